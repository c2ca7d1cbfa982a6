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

// How the restart of a pod in place ended.
const (
	// All containers have started.
	PodInPlaceRestartRestarted = "Restarted"
	// An init container failed, which the pod's restart policy makes final.
	PodInPlaceRestartFailed = "Failed"
	// The pod is being terminated.
	PodInPlaceRestartDeleted = "Deleted"
	// A container that had started again triggered the next restart.
	PodInPlaceRestartTriggered = "TriggeredAgain"
)

var (
	// PodInPlaceRestarts counts the restarts of pods in place that have ended, by
	// action and outcome.
	PodInPlaceRestarts = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem:      KubeletSubsystem,
		Name:           "pod_in_place_restarts_total",
		Help:           "Number of restarts of pods in place that have ended, by the action of the container restart rule and by outcome.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"action", "outcome"})
	// PodInPlaceRestartPhaseDuration is how many seconds the phases of restarts of
	// pods in place took. A phase that began before the kubelet did is not counted.
	PodInPlaceRestartPhaseDuration = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Subsystem: KubeletSubsystem,
		Name:      "pod_in_place_restart_phase_duration_seconds",
		Help:      "Duration in seconds of the phases of restarts of pods in place, by the action of the container restart rule.",
		// The bounds above 5 are a little more than the delays of the default curve.
		Buckets:        []float64{0.1, 0.25, 0.5, 1, 2.5, 5, 12, 24, 45, 90, 180, 330, 600},
		StabilityLevel: metrics.ALPHA,
	}, []string{"action", "phase"})
)

// PodInPlaceRestartAction returns the action of a restart, given the type of the
// pod's condition.
func PodInPlaceRestartAction(condition v1.PodConditionType) string {
	if condition == v1.PodRestarting {
		return string(v1.ContainerRestartRuleActionRestartPod)
	}
	return string(v1.ContainerRestartRuleActionRestartAllContainers)
}

// registerPodInPlaceRestarts registers the metrics of restarts of pods in place.
func registerPodInPlaceRestarts() {
	legacyregistry.MustRegister(PodInPlaceRestarts)
	legacyregistry.MustRegister(PodInPlaceRestartPhaseDuration)
	// A counter that appears with its first event hides that from rate().
	for _, condition := range []v1.PodConditionType{v1.PodRestarting, v1.AllContainersRestarting} {
		action := PodInPlaceRestartAction(condition)
		for _, outcome := range []string{PodInPlaceRestartRestarted, PodInPlaceRestartFailed, PodInPlaceRestartDeleted, PodInPlaceRestartTriggered} {
			PodInPlaceRestarts.WithLabelValues(action, outcome)
		}
	}
}
