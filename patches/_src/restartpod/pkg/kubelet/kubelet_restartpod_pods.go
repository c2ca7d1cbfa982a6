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
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/utils/clock"

	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/backoff"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/kuberuntime"
	"k8s.io/kubernetes/pkg/kubelet/metrics"
	"k8s.io/kubernetes/pkg/kubelet/restart"
	"k8s.io/kubernetes/pkg/kubelet/restartpod"
	"k8s.io/kubernetes/pkg/kubelet/restartpod/restartrules"
	"k8s.io/kubernetes/pkg/kubelet/status"
)

// podRestarter holds what the kubelet needs to restart pods in place.
type podRestarter struct {
	podRestarts *podRestarts
}

// podRestarts holds the machines of the pods that may be restarted in place. Its
// methods may be called on nil, which has no machines.
type podRestarts struct {
	clock   clock.Clock
	gates   restartpod.Gates
	backOff *backoff.Backoff
	runtime kuberuntime.ContainerStopper
	// exits, if not nil, finds exits of these pods before the next relist of all pods.
	exits interface {
		// synced is called after a sync that changed the pod.
		synced(uid types.UID)
	}

	lock sync.Mutex
	pods map[types.UID]*podRestart
}

// podRestart is the restart of one pod. Only the pod's worker uses it.
type podRestart struct {
	restarts *podRestarts
	uid      types.UID
	machine  *restartpod.Machine
	plan     restartpod.Plan
	// containers are the containers of the plan.
	containers []restartpod.Container
	// stopped has the IDs of instances that the kubelet stopped and that the
	// runtime still knows, and when.
	stopped map[kubecontainer.ContainerID]restartpod.StopTime
	// hookFailed has the containers whose last start ended with a failed postStart
	// hook, after which the kubelet stops them. The value is the ID of the previous
	// instance.
	hookFailed map[string]kubecontainer.ContainerID
	// killed has the results of the stops in the current sync because of the plan.
	killed []*kubecontainer.SyncResult
	// ended is true once the pod is being terminated.
	ended bool
	// phaseSince is when the phase of the plan began, if this kubelet observed it.
	phaseSince time.Time
	// stopping is true while a sync stops containers and checks for their exits
	// itself.
	stopping atomic.Bool
}

// newPodRestarts returns a podRestarts with its own back-off, which has the curve
// of containers. The first restart is always immediate.
func newPodRestarts(c clock.Clock, runtime kuberuntime.ContainerStopper, initial, max time.Duration) *podRestarts {
	gate := utilfeature.DefaultFeatureGate
	r := &podRestarts{
		clock: c,
		gates: restartpod.Gates{
			ContainerRestartRules: gate.Enabled(features.ContainerRestartRules),
			RestartPod:            gate.Enabled(features.RestartPodOnContainerExits),
			RestartAllContainers:  gate.Enabled(features.RestartAllContainersOnContainerExits) && !upstreamRestartsAllContainers(),
		},
		backOff: restart.NewBackOff(c, backoff.Curve{Initial: initial, Max: max}),
		runtime: runtime,
		pods:    map[types.UID]*podRestart{},
	}
	metrics.MeasureRestartBackOff(r.backOff, metrics.RestartBackOffPod)
	return r
}

// upstreamRestartsAllContainers reports whether upstream's code handles
// RestartAllContainers, without a Machine.
func upstreamRestartsAllContainers() bool {
	return utilfeature.DefaultFeatureGate.Enabled(features.RestartAllContainersOnContainerExits) &&
		!utilfeature.DefaultFeatureGate.Enabled(features.KubeletRestartAllContainersBackOff)
}

// get returns the restart of a pod, or nil if it has none.
func (r *podRestarts) get(uid types.UID) *podRestart {
	if r == nil {
		return nil
	}
	r.lock.Lock()
	defer r.lock.Unlock()
	return r.pods[uid]
}

func (r *podRestarts) set(uid types.UID, p *podRestart) *podRestart {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.pods[uid] = p
	return p
}

func (r *podRestarts) newRestart(pod *v1.Pod) *podRestart {
	return &podRestart{restarts: r, uid: pod.UID, machine: restartpod.New(r.backOff, pod, r.gates)}
}

// add creates the restart of a pod that has none, and returns it. It does so only
// if a rule may restart the pod, or if a restart was in progress when the kubelet
// ended. conditions is nil if the pod's conditions are unknown.
func (r *podRestarts) add(pod *v1.Pod, conditions []v1.PodCondition, podStatus *kubecontainer.PodStatus) *podRestart {
	if !podutil.PodCouldRestart(&pod.Spec) && !podutil.AllContainersCouldRestart(&pod.Spec) {
		return nil
	}
	known := conditions != nil
	conditions = slices.DeleteFunc(slices.Clone(conditions), func(c v1.PodCondition) bool {
		return !isRestartCondition(c.Type) || c.Type == v1.PodRestarting && !status.IsPodRestartCondition(&c)
	})
	if !r.mayRestart(&pod.Spec, conditions) {
		return nil
	}
	p := r.newRestart(pod)
	for _, s := range podStatus.ContainerStatuses {
		if id, when := r.runtime.LastStopped(pod.UID, s.Name); id == s.ID.String() {
			p.noteStopped(s.ID, when)
		}
	}
	p.observe(r.containers(pod), podStatus, nil)
	if !known {
		conditions = r.inferRestart(p.containers)
	}
	r.restoreBackOff(p, podStatus)
	p.machine.Recover(conditions, p.containers, r.clock.Now())
	p.plan.Phase, p.plan.Conditions = p.machine.State()
	return r.set(pod.UID, p)
}

// containers returns the containers of a pod for its machine, without statuses. An exit
// after which upstream's code restarts all containers ends its container no more than
// one with the action Restart.
func (r *podRestarts) containers(pod *v1.Pod) []restartpod.Container {
	containers := restartrules.Containers(&pod.Spec, r.gates)
	if !upstreamRestartsAllContainers() {
		return containers
	}
	for i := range containers {
		rules := containers[i].Rules
		for j := range rules {
			if rules[j].Action == restartpod.ActionRestartAllContainers {
				rules[j].Action = restartpod.ActionRestart
			}
		}
	}
	return containers
}

// mayRestart reports whether a rule of the pod can restart the pod. The gates do
// not matter for a restart that is not over.
func (r *podRestarts) mayRestart(spec *v1.PodSpec, conditions []v1.PodCondition) bool {
	began := func(t v1.PodConditionType) bool {
		return slices.ContainsFunc(conditions, func(c v1.PodCondition) bool {
			return c.Type == t && (c.Status == v1.ConditionTrue ||
				c.Reason == restartpod.ReasonPodFailed || c.Reason == restartpod.ReasonPodDeleted)
		})
	}
	return (r.gates.ContainerRestartRules && r.gates.RestartPod || began(v1.PodRestarting)) && podutil.PodCouldRestart(spec) ||
		(r.gates.ContainerRestartRules && r.gates.RestartAllContainers || began(v1.AllContainersRestarting)) && podutil.AllContainersCouldRestart(spec)
}

// inferRestart returns the condition of the restart that was in progress when the
// kubelet ended. It is for a pod with unknown conditions: a static pod that has no
// mirror pod, or whose mirror pod is not known yet. If a container has started
// after an exit that restarts the pod, the restart had reached Startup.
func (r *podRestarts) inferRestart(containers []restartpod.Container) []v1.PodCondition {
	var condition *v1.PodCondition
	for i := range containers {
		cause := &containers[i]
		if cause.Kind == restartpod.KindEphemeral || cause.Status == nil || cause.Status.State != restart.ContainerStateExited {
			continue
		}
		var t v1.PodConditionType
		switch r.gates.OnExit(cause, cause.Status.ExitCode) {
		case restartpod.ActionRestartPod:
			t = v1.PodRestarting
		case restartpod.ActionRestartAllContainers:
			t = v1.AllContainersRestarting
		default:
			continue
		}
		exited := cause.Status.FinishedAt
		if condition != nil && !exited.Before(condition.LastTransitionTime.Time) {
			continue
		}
		for j := range containers {
			c := &containers[j]
			if c.Kind != restartpod.KindEphemeral && c.Status != nil && c.Status.StartedAt.After(exited) {
				condition = &v1.PodCondition{
					Type: t, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(exited), Reason: restartpod.ReasonContainerExited,
					Message: fmt.Sprintf("Container %s exited with code %d, triggering pod restart", cause.Name, cause.Status.ExitCode),
				}
				break
			}
		}
	}
	if condition == nil {
		return nil
	}
	return []v1.PodCondition{*condition}
}

// isRestartCondition reports whether a Machine sets the condition.
func isRestartCondition(t v1.PodConditionType) bool {
	return t == v1.PodRestarting || t == v1.AllContainersRestarting && !upstreamRestartsAllContainers()
}

// gc forgets pods that are no longer known, and back-offs that are over.
func (r *podRestarts) gc(known func(types.UID) bool) {
	if r == nil {
		return
	}
	r.lock.Lock()
	defer r.lock.Unlock()
	for uid := range r.pods {
		if !known(uid) {
			delete(r.pods, uid)
		}
	}
	r.backOff.GC()
}

// noteResult records which containers the runtime manager has stopped in a sync
// with this result. podStatus is the pod's status before the sync. The exits of
// these containers restart no pod, unless they came before the stops. noteResult
// also adds the containers stopped for a restart to the result: after such a sync
// the statuses must be read again.
func (p *podRestart) noteResult(podStatus *kubecontainer.PodStatus, result *kubecontainer.PodSyncResult) {
	if p == nil {
		return
	}
	defer func() { result.AddSyncResult(p.killed...) }()
	for _, r := range result.SyncResults {
		name, ok := r.Target.(string)
		if !ok {
			continue
		}
		s := podStatus.FindContainerStatusByName(name)
		switch {
		case r.Action == kubecontainer.KillContainer && s != nil && s.State != kubecontainer.ContainerStateExited:
			when, noted := p.stopped[s.ID]
			// A stop that hangs is repeated after its end, and may have ended the container before.
			if !noted || !when.Until.IsZero() || p.restarts.clock.Now().Before(when.From) {
				// It has no end, because the kubelet repeats a stop that fails.
				when = restartpod.StopTime{From: p.stopTime(name, s.ID).From}
			}
			p.noteStopped(s.ID, when)
		case r.Action == kubecontainer.StartContainer && r.Error == nil:
			delete(p.hookFailed, name)
		case r.Action == kubecontainer.StartContainer && errors.Is(r.Error, kuberuntime.ErrPostStartHook):
			if p.hookFailed == nil {
				p.hookFailed = map[string]kubecontainer.ContainerID{}
			}
			p.hookFailed[name] = kubecontainer.ContainerID{}
			if s != nil {
				p.hookFailed[name] = s.ID
			}
		}
	}
}

// noteStops records which of the containers that ran at the start of the sync were
// stopped in it, other than for the restart: all of them if the pod's cgroup was
// missing.
func (p *podRestart) noteStops(podStatus *kubecontainer.PodStatus) {
	for _, s := range podStatus.ContainerStatuses {
		if s.State == kubecontainer.ContainerStateExited || slices.ContainsFunc(p.killed, func(r *kubecontainer.SyncResult) bool { return r.Target == s.Name }) {
			continue
		}
		if _, noted := p.stopped[s.ID]; noted {
			continue
		}
		if id, when := p.restarts.runtime.LastStopped(p.uid, s.Name); id == s.ID.String() {
			p.noteStopped(s.ID, when)
		}
	}
}

// stopTime returns the time of a stop that this kubelet has made. It is zero if it could not be
// stored, or if the clock is before its beginning: after a step back, times do not show what
// came first.
func (p *podRestart) stopTime(name string, id kubecontainer.ContainerID) restartpod.StopTime {
	last, when := p.restarts.runtime.LastStopped(p.uid, name)
	if last != id.String() || p.restarts.clock.Now().Before(when.From) {
		return restartpod.StopTime{}
	}
	return when
}

func (p *podRestart) noteStopped(id kubecontainer.ContainerID, when restartpod.StopTime) {
	if p.stopped == nil {
		p.stopped = map[kubecontainer.ContainerID]restartpod.StopTime{}
	}
	p.stopped[id] = when
}

// observe sets containers, with the statuses of their newest instances.
func (p *podRestart) observe(containers []restartpod.Container, podStatus *kubecontainer.PodStatus, started func(name string, id kubecontainer.ContainerID) bool) {
	p.containers = containers
	stopped := p.stopped
	p.stopped = nil
	for i := range containers {
		s := podStatus.FindContainerStatusByName(containers[i].Name)
		if s == nil {
			continue
		}
		when, byKubelet := stopped[s.ID]
		if before, ok := p.hookFailed[s.Name]; ok && before != s.ID {
			delete(p.hookFailed, s.Name)
			when, byKubelet = p.stopTime(s.Name, s.ID), true
		}
		if byKubelet = byKubelet && (s.State != kubecontainer.ContainerStateExited || when.Ends(s.FinishedAt)); byKubelet {
			p.noteStopped(s.ID, when)
		}
		status := kuberuntime.CrashLoopStatus(s)
		status.ID = s.ID.String()
		status.Started = s.State == kubecontainer.ContainerStateRunning && (started == nil || started(s.Name, s.ID))
		status.StoppedByAgent = byKubelet
		containers[i].Status = &status
	}
}

// old reports whether the newest instance of a container belongs to the previous
// run.
func (p *podRestart) old(name string) bool {
	if p == nil {
		return false
	}
	for i, old := range p.plan.Old {
		if old && p.containers[i].Name == name {
			return true
		}
	}
	return false
}

// present returns the status of the pod without the previous run. It looks like the
// status of a pod that never ran, except for the sandbox.
func (p *podRestart) present(podStatus *kubecontainer.PodStatus) *kubecontainer.PodStatus {
	if p == nil || p.plan.Old == nil && p.plan.Waiting == nil {
		return podStatus
	}
	present := *podStatus
	present.ContainerStatuses = p.withoutOld(podStatus.ContainerStatuses)
	present.ActiveContainerStatuses = p.withoutOld(podStatus.ActiveContainerStatuses)
	present.Restart = &kubecontainer.PodRestart{LastCounts: map[string]int{}}
	for i := range p.containers {
		name := p.containers[i].Name
		if s := podStatus.FindContainerStatusByName(name); s != nil && p.old(name) {
			present.Restart.LastCounts[name] = s.RestartCount
		}
	}
	if w := p.plan.Waiting; w != nil {
		present.Restart.Waits = kubecontainer.NewBackoffError(kubecontainer.ErrCrashLoopBackOff, p.plan.StartAt)
		present.Restart.Message = w.Message
	}
	return &present
}

// withoutTriggers returns the pod without the rules that would restart it because
// of an exit that the kubelet caused. If such a rule matches, the restart policy
// decides.
func (p *podRestart) withoutTriggers(pod *v1.Pod) *v1.Pod {
	if p == nil || len(p.stopped) == 0 {
		return pod
	}
	pod = pod.DeepCopy()
	for i := range p.containers {
		s := p.containers[i].Status
		spec := kubecontainer.GetContainerSpec(pod, p.containers[i].Name)
		if s == nil || !s.StoppedByAgent || spec == nil {
			continue
		}
		for j := range spec.RestartPolicyRules {
			rule := &spec.RestartPolicyRules[j]
			if rule.Action == v1.ContainerRestartRuleActionRestartPod ||
				rule.Action == v1.ContainerRestartRuleActionRestartAllContainers && p.restarts.gates.RestartAllContainers {
				rule.Action = "" // the rule matches and has no effect
			}
		}
	}
	return pod
}

func (p *podRestart) withoutOld(statuses []*kubecontainer.Status) []*kubecontainer.Status {
	var present []*kubecontainer.Status
	for _, s := range statuses {
		if !p.old(s.Name) {
			present = append(present, s)
		}
	}
	return present
}

// withBackOff adds the end of the pod's back-off to err, the error of a sync that
// failed before it got to the back-off. Otherwise the pod would be retried later
// than its back-off ends.
func (p *podRestart) withBackOff(err error) error {
	if p == nil || p.plan.Waiting == nil || err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	if _, found := restart.MinBackoffExpiration(err); found {
		return err
	}
	return errors.Join(err, kubecontainer.NewBackoffError(kubecontainer.ErrCrashLoopBackOff, p.plan.StartAt))
}
