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
	"context"
	"math"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"

	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubepod "k8s.io/kubernetes/pkg/kubelet/pod"
	proberesults "k8s.io/kubernetes/pkg/kubelet/prober/results"
	"k8s.io/kubernetes/pkg/kubelet/restartpod"
	"k8s.io/kubernetes/pkg/kubelet/status"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
	utilpod "k8s.io/kubernetes/pkg/util/pod"
)

// knowsPod reports whether a pod with the UID exists, or containers of one. A
// static pod may come back with the same UID.
func (kl *Kubelet) knowsPod(uid types.UID) bool {
	if _, known := kl.podManager.GetPodByUID(uid); known {
		return true
	}
	status, err := kl.podCache.Get(uid)
	return err == nil && len(status.ContainerStatuses) > 0
}

// endRestart ends the restart, if there is one, of a pod that must be terminated.
func (kl *Kubelet) endRestart(ctx context.Context, pod *v1.Pod, podStatus *kubecontainer.PodStatus) {
	if p := kl.stepRestartOf(ctx, pod, podStatus, true, false); p != nil {
		p.ended = true
	}
}

// stepRestartOf steps the pod's machine, and returns nil if the pod has none. held is
// true in a step after which the sync does not stop containers yet.
func (kl *Kubelet) stepRestartOf(ctx context.Context, pod *v1.Pod, podStatus *kubecontainer.PodStatus, deleted, held bool) *podRestart {
	if kl.podRestarts == nil {
		return nil
	}
	p := kl.podRestarts.get(pod.UID)
	if p == nil {
		if p = kl.podRestarts.add(pod, kl.restartConditions(pod), podStatus); p == nil {
			return nil
		}
	}
	grace := int64(v1.DefaultTerminationGracePeriodSeconds)
	if pod.Spec.TerminationGracePeriodSeconds != nil {
		// The API accepts numbers of seconds that are no Duration.
		grace = min(*pod.Spec.TerminationGracePeriodSeconds, math.MaxInt32)
	}
	sandboxLost := sandboxChanged(pod, podStatus)
	started := func(name string, id kubecontainer.ContainerID) bool {
		spec := kubecontainer.GetContainerSpec(pod, name)
		if spec == nil || spec.StartupProbe == nil {
			return true
		}
		if result, found := kl.startupManager.Get(id); found {
			return result == proberesults.Success
		}
		// A container that started before the kubelet is not probed again.
		known, found := kl.statusManager.GetPodStatus(pod.UID)
		if !found {
			known = pod.Status
		}
		for _, c := range append(append([]v1.ContainerStatus(nil), known.InitContainerStatuses...), known.ContainerStatuses...) {
			if c.ContainerID == id.String() {
				return c.Started != nil && *c.Started
			}
		}
		return false
	}
	// The pod may have changed under the same UID.
	p.observe(kl.podRestarts.containers(pod), podStatus, started)
	before, now := p.plan, kl.podRestarts.clock.Now()
	p.plan = p.machine.Step(restartpod.Observation{
		Now:         now,
		Containers:  p.containers,
		GracePeriod: time.Duration(grace) * time.Second,
		SandboxLost: sandboxLost,
		Held:        held,
		Deleted:     deleted,
	})
	logger := klog.FromContext(ctx)
	for _, e := range p.plan.Events {
		kl.recorderFor(ctx).Event(pod, e.Type, e.Reason, e.Message)
	}
	p.measure(&before, now)
	if w := p.plan.Waiting; w != nil {
		logger.V(3).Info("Pod waits to be restarted", "pod", klog.KObj(pod), "podUID", pod.UID, "reason", w.Message, "retryAt", p.plan.StartAt)
	}
	if p.plan.Phase != before.Phase {
		logger.V(2).Info("Restart of the pod", "pod", klog.KObj(pod), "podUID", pod.UID, "phase", p.plan.Phase, "reason", p.plan.Reason)
		// The reasons that kept containers of the previous run from starting are
		// over.
		for _, c := range p.containers {
			if p.old(c.Name) {
				kl.reasonCache.Remove(pod.UID, c.Name)
			}
		}
	}
	return p
}

// restartConditions returns the conditions of a pod that has not been synced yet,
// or nil if they are unknown.
func (kl *Kubelet) restartConditions(pod *v1.Pod) []v1.PodCondition {
	if !kubetypes.IsStaticPod(pod) {
		return append([]v1.PodCondition{}, pod.Status.Conditions...)
	}
	mirrorPod, ok := kl.podManager.GetMirrorPodByPod(pod)
	if !ok || !kubepod.IsMirrorPodOf(mirrorPod, pod) {
		return nil
	}
	return append([]v1.PodCondition{}, mirrorPod.Status.Conditions...)
}

// stopForRestart stops the containers of the plan, all at once.
func (kl *Kubelet) stopForRestart(ctx context.Context, pod *v1.Pod, p *podRestart) []*kubecontainer.SyncResult {
	results := make([]*kubecontainer.SyncResult, len(p.plan.Kill))
	var wg sync.WaitGroup
	for i, k := range p.plan.Kill {
		name := p.containers[k.Container].Name
		results[i] = kubecontainer.NewSyncResult(kubecontainer.KillContainer, name)
		wg.Add(1)
		go func() {
			defer wg.Done()
			defer utilruntime.HandleCrashWithContext(ctx)
			id := parseContainerID(ctx, k.ID)
			grace := int64(math.Ceil(k.Grace.Seconds()))
			if err := kl.podRestarts.runtime.StopContainer(ctx, pod, id, name, k.Message, grace); err != nil {
				results[i].Fail(kubecontainer.ErrKillContainer, err.Error())
			}
		}()
	}
	wg.Wait()
	return results
}

// presentStatuses updates the statuses in s for a restart of the pod. A container
// whose newest instance belongs to the previous run waits, or did not run again if
// the pod has ended. That instance becomes the last state. presentStatuses returns
// the pod's status without the previous run.
func (kl *Kubelet) presentStatuses(pod *v1.Pod, s *v1.PodStatus, podStatus *kubecontainer.PodStatus, podIsTerminal bool) *kubecontainer.PodStatus {
	p := kl.podRestarts.get(pod.UID)
	for _, group := range [][]v1.ContainerStatus{s.ContainerStatuses, s.InitContainerStatuses} {
		for i := range group {
			c := &group[i]
			if !p.old(c.Name) || c.State.Running != nil {
				continue
			}
			if c.State.Terminated != nil {
				c.LastTerminationState = c.State
			}
			c.State = v1.ContainerState{}
			if podIsTerminal {
				// The same as in TerminatePod of the status manager.
				c.State.Terminated = &v1.ContainerStateTerminated{
					Reason:   kubecontainer.ContainerReasonStatusUnknown,
					Message:  "The container was not started again when the pod was terminated",
					ExitCode: 137,
				}
			} else {
				c.State.Waiting = kl.waitingInRestart(pod, p, c.Name)
			}
		}
	}
	return p.present(podStatus)
}

// waitingInRestart returns the reason why a container of the previous run does not
// run.
func (kl *Kubelet) waitingInRestart(pod *v1.Pod, p *podRestart, name string) *v1.ContainerStateWaiting {
	if p.plan.Waiting != nil {
		return &v1.ContainerStateWaiting{Reason: p.plan.Waiting.Reason, Message: p.plan.Waiting.Message}
	}
	if reason, ok := kl.reasonCache.Get(pod.UID, name); ok {
		return &v1.ContainerStateWaiting{Reason: reason.Err.Error(), Message: reason.Message}
	}
	if len(pod.Spec.InitContainers) > 0 {
		return &v1.ContainerStateWaiting{Reason: PodInitializing}
	}
	return &v1.ContainerStateWaiting{Reason: ContainerCreating}
}

// phaseInRestart returns the phase of a pod that may be in a restart. The previous run
// does not count, nor do rules that must not restart the pod. phase is the phase
// without a restart, and old the previous one.
func (kl *Kubelet) phaseInRestart(pod *v1.Pod, phase v1.PodPhase, statuses []v1.ContainerStatus, podIsTerminal bool, podStatus *kubecontainer.PodStatus, old v1.PodPhase) v1.PodPhase {
	p := kl.podRestarts.get(pod.UID)
	if p == nil {
		return phase
	}
	for i := range statuses {
		if p.old(statuses[i].Name) {
			statuses[i].LastTerminationState = v1.ContainerState{}
		}
	}
	phase = podPhase(p.withoutTriggers(pod), statuses, podIsTerminal, podStatus)
	if phase == v1.PodPending && old == v1.PodRunning &&
		(p.plan.Phase == restartpod.PhaseTerminatingForRestart || p.plan.Phase == restartpod.PhaseStartup || slices.Contains(p.plan.Old, true)) {
		// A restart does not make a running pod Pending.
		return v1.PodRunning
	}
	return phase
}

// setRestartConditions sets the pod's restart conditions in conditions.
func (kl *Kubelet) setRestartConditions(pod *v1.Pod, old *v1.PodStatus, conditions []v1.PodCondition) []v1.PodCondition {
	set := map[v1.PodConditionType]v1.PodCondition{}
	p := kl.podRestarts.get(pod.UID)
	if p != nil {
		for _, c := range p.plan.Conditions {
			set[c.Type] = c
		}
	}
	for _, t := range []v1.PodConditionType{v1.PodRestarting, v1.AllContainersRestarting} {
		if !isRestartCondition(t) {
			continue
		}
		c, ok := set[t]
		_, had := podutil.GetPodCondition(old, t)
		switch {
		case ok:
		case !kubetypes.PodConditionByKubelet(t):
			// The condition in the API stays: another component set it, or it
			// belongs to a restart that is over.
			_, had = podutil.GetPodConditionFromList(kl.restartConditions(pod), t)
			if had == nil {
				continue
			}
			c = *had
			if p == nil || c.Status != v1.ConditionTrue || t == v1.PodRestarting && !status.IsPodRestartCondition(&c) {
				conditions = utilpod.ReplaceOrAppendPodCondition(conditions, &c)
				continue
			}
			// The mirror pod was not known yet when the restarted kubelet found
			// that all containers had been started.
			c.Status, c.Reason, c.LastTransitionTime = v1.ConditionFalse, restartpod.ReasonContainersStarted, metav1.NewTime(kl.clock.Now())
		case had != nil:
			c = *had
		case t == v1.AllContainersRestarting && podutil.AllContainersCouldRestart(&pod.Spec):
			c = v1.PodCondition{Type: t, Status: v1.ConditionFalse, LastTransitionTime: metav1.NewTime(kl.clock.Now())}
		default:
			continue
		}
		c.ObservedGeneration = podutil.CalculatePodConditionObservedGeneration(old, pod.Generation, t)
		conditions = utilpod.ReplaceOrAppendPodCondition(conditions, &c)
	}
	return conditions
}
