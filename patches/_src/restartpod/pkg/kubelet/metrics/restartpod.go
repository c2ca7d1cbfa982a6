/*
Copyright The Kubernetes Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package metrics

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// The outcomes of an in-place restart of a pod.
const (
	// All containers have started.
	PodInPlaceRestartRestarted = "Restarted"
	// An init container failed, and the pod's restart policy does not restart it.
	PodInPlaceRestartFailed = "Failed"
	// The pod is being terminated.
	PodInPlaceRestartDeleted = "Deleted"
	// A container that had started again triggered the next restart.
	PodInPlaceRestartTriggered = "TriggeredAgain"
)

var (
	// PodInPlaceRestarts counts completed in-place restarts of pods by action and
	// outcome.
	PodInPlaceRestarts = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem:      KubeletSubsystem,
		Name:           "pod_in_place_restarts_total",
		Help:           "Number of restarts of pods in place that have ended, by the action of the container restart rule and by outcome.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"action", "outcome"})
	// PodInPlaceRestartPhaseDuration is the duration of the phases of in-place
	// restarts in seconds. A phase that began before the kubelet is not counted.
	PodInPlaceRestartPhaseDuration = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Subsystem: KubeletSubsystem,
		Name:      "pod_in_place_restart_phase_duration_seconds",
		Help:      "Duration in seconds of the phases of restarts of pods in place, by the action of the container restart rule.",
		// The bounds above 5 are slightly longer than the delays of the default
		// curve.
		Buckets:        []float64{0.1, 0.25, 0.5, 1, 2.5, 5, 12, 24, 45, 90, 180, 330, 600},
		StabilityLevel: metrics.ALPHA,
	}, []string{"action", "phase"})
)

// PodInPlaceRestartAction returns the action of a restart with a condition of this
// type.
func PodInPlaceRestartAction(condition v1.PodConditionType) string {
	if condition == v1.PodRestarting {
		return string(v1.ContainerRestartRuleActionRestartPod)
	}
	return string(v1.ContainerRestartRuleActionRestartAllContainers)
}

// registerPodInPlaceRestarts registers the metrics of in-place restarts of pods.
func registerPodInPlaceRestarts() {
	legacyregistry.MustRegister(PodInPlaceRestarts)
	legacyregistry.MustRegister(PodInPlaceRestartPhaseDuration)
	// rate() does not see the event with which a counter appears.
	for _, condition := range []v1.PodConditionType{v1.PodRestarting, v1.AllContainersRestarting} {
		action := PodInPlaceRestartAction(condition)
		for _, outcome := range []string{PodInPlaceRestartRestarted, PodInPlaceRestartFailed, PodInPlaceRestartDeleted, PodInPlaceRestartTriggered} {
			PodInPlaceRestarts.WithLabelValues(action, outcome)
		}
	}
}
