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

package kubelet

import (
	"slices"
	"time"

	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/metrics"
	"k8s.io/kubernetes/pkg/kubelet/restart"
	"k8s.io/kubernetes/pkg/kubelet/restartpod"
)

// restoreBackOff restores the pod's back-off after a restart of the kubelet, from
// the newest of the pod's instances.
func (r *podRestarts) restoreBackOff(p *podRestart, podStatus *kubecontainer.PodStatus) {
	var newest *kubecontainer.Status
	for _, s := range podStatus.ContainerStatuses {
		// An older instance may have been created when the clock was ahead.
		older := slices.ContainsFunc(podStatus.ContainerStatuses, func(other *kubecontainer.Status) bool {
			return other.Name == s.Name && s.CreatedBefore(other)
		})
		if s.PodBackOff != "" && !older && (newest == nil || s.CreatedAt.After(newest.CreatedAt)) {
			newest = s
		}
	}
	if newest != nil {
		restart.RestorePodBackOff(r.backOff, p.machine.BackOffKey(), newest.PodBackOff, r.clock.Now())
	}
}

// measure reports to the metrics what a step of the pod's machine has changed
// since the previous plan. now is the time of the step.
func (p *podRestart) measure(before *restartpod.Plan, now time.Time) {
	inRestart := func(phase restartpod.Phase) bool {
		return phase == restartpod.PhaseTerminatingForRestart || phase == restartpod.PhaseStartup
	}
	again := slices.ContainsFunc(p.plan.Events, func(e restartpod.Event) bool { return e.Reason == restartpod.EventPodRestarting })
	if p.plan.Phase == before.Phase && !again {
		return
	}
	if inRestart(before.Phase) {
		action := metrics.PodInPlaceRestartAction(before.Conditions[0].Type)
		if !p.phaseSince.IsZero() {
			metrics.PodInPlaceRestartPhaseDuration.WithLabelValues(action, string(before.Phase)).Observe(now.Sub(p.phaseSince).Seconds())
		}
		outcome := ""
		switch {
		case again:
			outcome = metrics.PodInPlaceRestartTriggered
		case inRestart(p.plan.Phase):
		case p.plan.Conditions[0].Reason == restartpod.ReasonPodDeleted:
			outcome = metrics.PodInPlaceRestartDeleted
		case p.plan.Phase == restartpod.PhaseFailed:
			outcome = metrics.PodInPlaceRestartFailed
		default:
			outcome = metrics.PodInPlaceRestartRestarted
		}
		if outcome != "" {
			metrics.PodInPlaceRestarts.WithLabelValues(action, outcome).Inc()
		}
	}
	if again && p.plan.Phase == restartpod.PhaseStartup {
		// There was nothing to stop and no wait.
		action := metrics.PodInPlaceRestartAction(p.plan.Conditions[0].Type)
		metrics.PodInPlaceRestartPhaseDuration.WithLabelValues(action, string(restartpod.PhaseTerminatingForRestart)).Observe(0)
	}
	p.phaseSince = time.Time{}
	if before.Phase != "" || again {
		p.phaseSince = now
	}
}
