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
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/features"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/crashloop"
	"k8s.io/kubernetes/pkg/kubelet/kuberuntime"
	"k8s.io/kubernetes/pkg/kubelet/metrics"
	kubepod "k8s.io/kubernetes/pkg/kubelet/pod"
	proberesults "k8s.io/kubernetes/pkg/kubelet/prober/results"
	"k8s.io/kubernetes/pkg/kubelet/restartpod"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
	utilpod "k8s.io/kubernetes/pkg/util/pod"
)

// podRestarts has the machines of the pods that may be restarted in place. Its
// methods may be called on nil, which has none.
type podRestarts struct {
	clock   clock.Clock
	gates   restartpod.Gates
	backOff *flowcontrol.Backoff
	runtime kuberuntime.ContainerStopper
	// exits, if not nil, watches for the exits of pods' containers.
	exits *exitWatch

	lock sync.Mutex
	pods map[types.UID]*podRestart
}

// podRestart is the restart of one pod. A pod's worker alone uses it.
type podRestart struct {
	gates   restartpod.Gates
	machine *restartpod.Machine
	plan    restartpod.Plan
	// containers are those of the plan.
	containers []restartpod.Container
	// stopped has the IDs of instances that the kubelet stopped, as far as they are
	// known to the runtime.
	stopped map[kubecontainer.ContainerID]bool
	// hookFailed has the containers whose last start ended with a failed postStart
	// hook, for which the kubelet stops them, with the ID of the instance before.
	hookFailed map[string]kubecontainer.ContainerID
	// killed is what the sync in progress has stopped because of the plan.
	killed []*kubecontainer.SyncResult
	// ended is true once the pod is being terminated.
	ended bool
	// phaseSince is when the phase of the plan began, if this kubelet saw that.
	phaseSince time.Time
	// relists counts the relists since the last start, and relisting is true while
	// a goroutine asks for them.
	relists   atomic.Int32
	relisting atomic.Bool
	// stopping is true while a sync stops containers, and looks at them itself.
	stopping atomic.Bool
}

// newPodRestarts returns what restarts pods in place, with a back-off of its own
// that has the curve of containers. The first restart is always immediate.
func newPodRestarts(c clock.Clock, runtime kuberuntime.ContainerStopper, exits *exitWatch, initial, max time.Duration) *podRestarts {
	gate := utilfeature.DefaultFeatureGate
	r := &podRestarts{
		clock: c,
		gates: restartpod.Gates{
			ContainerRestartRules: gate.Enabled(features.ContainerRestartRules),
			RestartPod:            gate.Enabled(features.RestartPodOnContainerExits),
			RestartAllContainers:  gate.Enabled(features.RestartAllContainersOnContainerExits) && !upstreamRestartsAllContainers(),
		},
		backOff: crashloop.NewBackOff(c, flowcontrol.Curve{Initial: initial, Max: max}),
		runtime: runtime,
		exits:   exits,
		pods:    map[types.UID]*podRestart{},
	}
	metrics.MeasureRestartBackOff(r.backOff, metrics.RestartBackOffPod)
	return r
}

// upstreamRestartsAllContainers reports whether RestartAllContainers is as it is
// upstream, so that no Machine has a part in it.
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
	r.watchExits()
	return p
}

func (r *podRestarts) newRestart(pod *v1.Pod) *podRestart {
	return &podRestart{gates: r.gates, machine: restartpod.New(r.backOff, pod, r.gates)}
}

// add returns the restart of a pod that has none, which it makes if the pod needs
// one: if a rule may restart it, or a restart was in progress when the kubelet
// ended. The conditions are nil if it is not known which the pod has.
func (r *podRestarts) add(pod *v1.Pod, conditions []v1.PodCondition, podStatus *kubecontainer.PodStatus) *podRestart {
	if !podutil.PodCouldRestart(&pod.Spec) && !podutil.AllContainersCouldRestart(&pod.Spec) {
		return nil
	}
	p := r.newRestart(pod)
	p.observe(restartpod.Containers(&pod.Spec, r.gates), podStatus, nil)
	if conditions == nil {
		conditions = r.inferRestart(p.containers)
	}
	conditions = slices.DeleteFunc(slices.Clone(conditions), func(c v1.PodCondition) bool {
		return !isRestartCondition(c.Type)
	})
	if !r.mayRestart(&pod.Spec, conditions) {
		return nil
	}
	r.restoreBackOff(p, podStatus)
	p.machine.Recover(conditions, p.containers)
	p.plan.Phase, p.plan.Conditions = p.machine.State()
	return r.set(pod.UID, p)
}

// mayRestart reports whether a rule of the pod is answered with a restart of the
// pod. For a restart that is not over the gates do not matter.
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
// kubelet ended, for a pod whose conditions are not known: a static pod whose mirror
// pod is not known yet, or that has none. Where a container has started after an
// exit that restarts the pod, the restart had come to starting containers.
func (r *podRestarts) inferRestart(containers []restartpod.Container) []v1.PodCondition {
	var condition *v1.PodCondition
	for i := range containers {
		cause := &containers[i]
		if cause.Kind == restartpod.KindEphemeral || cause.Status == nil || cause.Status.State != restartpod.StateExited {
			continue
		}
		var t v1.PodConditionType
		switch r.gates.OnExit(cause, cause.Status.ExitCode) {
		case restartpod.ContainerRestartRuleActionRestartPod:
			t = v1.PodRestarting
		case v1.ContainerRestartRuleActionRestartAllContainers:
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

// isRestartCondition reports whether a condition is that of a Machine.
func isRestartCondition(t v1.PodConditionType) bool {
	return t == v1.PodRestarting || t == v1.AllContainersRestarting && !upstreamRestartsAllContainers()
}

// knowsPod reports whether there is a pod with the UID, or something left of one: a
// static pod may come back with the UID that it had.
func (kl *Kubelet) knowsPod(uid types.UID) bool {
	if _, known := kl.podManager.GetPodByUID(uid); known {
		return true
	}
	status, err := kl.podCache.Get(uid)
	return err == nil && len(status.ContainerStatuses) > 0
}

// gc forgets pods that are not known any more, and back-offs that are over.
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

// noteResult notes which containers the runtime manager has stopped in a sync with
// that result, before which the pod's status was podStatus. Their exits are none of
// their own, and restart no pod. It adds to the result what was stopped for a
// restart: after such a sync the statuses have to be read again.
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
			p.noteStopped(s.ID)
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

// noteAllStopped notes that the kubelet stops whatever runs of the pod.
func (p *podRestart) noteAllStopped(podStatus *kubecontainer.PodStatus) {
	if p == nil {
		return
	}
	for _, s := range podStatus.ContainerStatuses {
		if s.State != kubecontainer.ContainerStateExited {
			p.noteStopped(s.ID)
		}
	}
}

func (p *podRestart) noteStopped(id kubecontainer.ContainerID) {
	if p.stopped == nil {
		p.stopped = map[kubecontainer.ContainerID]bool{}
	}
	p.stopped[id] = true
}

// observe sets containers, with their newest instances as statuses.
func (p *podRestart) observe(containers []restartpod.Container, podStatus *kubecontainer.PodStatus, started func(name string, id kubecontainer.ContainerID) bool) {
	p.containers = containers
	stopped := p.stopped
	p.stopped = nil
	for i := range containers {
		s := podStatus.FindContainerStatusByName(containers[i].Name)
		if s == nil {
			continue
		}
		if before, ok := p.hookFailed[s.Name]; ok && before != s.ID {
			delete(p.hookFailed, s.Name)
			p.noteStopped(s.ID)
		} else if stopped[s.ID] {
			p.noteStopped(s.ID)
		}
		containers[i].Status = &restartpod.Status{
			ID:             s.ID.String(),
			State:          restartpod.State(s.State),
			Started:        s.State == kubecontainer.ContainerStateRunning && (started == nil || started(s.Name, s.ID)),
			ExitCode:       int32(s.ExitCode),
			StartedAt:      s.StartedAt,
			FinishedAt:     s.FinishedAt,
			StoppedByAgent: p.stopped[s.ID],
		}
	}
}

// old reports whether the newest instance of a container is of the previous run.
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

// present returns the status of the pod without the previous run: that of a pod
// that never ran, except for its sandbox.
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
		present.Restart.Waits = crashloop.NewBackoffError(kubecontainer.ErrCrashLoopBackOff, p.plan.StartAt)
		present.Restart.Message = w.Message
	}
	return &present
}

// withoutTriggers returns the pod without those rules that would restart it because
// of an exit that the kubelet brought about. Where such a rule matches, the restart
// policy decides.
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
			if rule.Action == restartpod.ContainerRestartRuleActionRestartPod ||
				rule.Action == v1.ContainerRestartRuleActionRestartAllContainers && p.gates.RestartAllContainers {
				rule.Action = "" // It matches, and nothing follows.
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

// presentForSync returns what the runtime manager is to see of the pod.
func (kl *Kubelet) presentForSync(pod *v1.Pod, p *podRestart, podStatus *kubecontainer.PodStatus) (*kubecontainer.PodStatus, error) {
	if p != nil && kl.podWorkers.IsPodTerminationRequested(pod.UID) {
		// A rule would start containers again.
		return nil, errTerminationRequested
	}
	return kl.podRestarts.saveBackOff(p, p.present(podStatus)), nil
}

// stepRestart steps the pod's machine, and returns it if the pod has one.
func (kl *Kubelet) stepRestart(ctx context.Context, pod *v1.Pod, podStatus *kubecontainer.PodStatus) *podRestart {
	p := kl.podRestarts.get(pod.UID)
	if p != nil && p.ended {
		// A static pod with a UID of its own runs again. How it ended is its past.
		p = kl.podRestarts.set(pod.UID, kl.podRestarts.newRestart(pod))
		for _, s := range podStatus.ContainerStatuses {
			p.noteStopped(s.ID)
		}
	}
	return kl.stepRestartOf(ctx, pod, podStatus, kl.podWorkers.IsPodTerminationRequested(pod.UID))
}

// endRestart ends the restart of a pod that is to be terminated, if it has one.
func (kl *Kubelet) endRestart(ctx context.Context, pod *v1.Pod, podStatus *kubecontainer.PodStatus) {
	if p := kl.stepRestartOf(ctx, pod, podStatus, true); p != nil {
		p.ended = true
	}
}

func (kl *Kubelet) stepRestartOf(ctx context.Context, pod *v1.Pod, podStatus *kubecontainer.PodStatus, deleted bool) *podRestart {
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
		grace = *pod.Spec.TerminationGracePeriodSeconds
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
		// A container that had started before the kubelet did is not probed again.
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
	// The pod may have changed and kept its UID.
	p.observe(restartpod.Containers(&pod.Spec, kl.podRestarts.gates), podStatus, started)
	before, now := p.plan, kl.podRestarts.clock.Now()
	p.plan = p.machine.Step(restartpod.Observation{
		Now:         now,
		Containers:  p.containers,
		GracePeriod: time.Duration(grace) * time.Second,
		SandboxLost: sandboxLost,
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
		// What kept containers of the previous run from starting is over.
		for _, c := range p.containers {
			if p.old(c.Name) {
				kl.reasonCache.Remove(pod.UID, c.Name)
			}
		}
	}
	return p
}

// restartConditions returns the conditions of a pod that has not been synced yet,
// or nil if they are not known.
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

// terminateForRestart stops the previous run of a pod that is to be restarted, and
// returns the pod's status after that.
//
// It is done when the containers are, as SyncTerminatingPod is. The context is
// cancelled when the pod is to be terminated meanwhile.
func (kl *Kubelet) terminateForRestart(ctx context.Context, pod *v1.Pod, p *podRestart, podStatus *kubecontainer.PodStatus) (*kubecontainer.PodStatus, error) {
	if p == nil {
		return podStatus, nil
	}
	p.killed = nil
	if kl.podWorkers.IsPodTerminationRequested(pod.UID) {
		return nil, errTerminationRequested
	}
	logger := klog.FromContext(ctx)
	p.stopping.Store(true)
	defer p.stopping.Store(false)
	// Every pass ends containers that it stopped: all but the sidecars, and then
	// one sidecar.
	for range p.containers {
		if len(p.plan.Kill) == 0 {
			break
		}
		killed := kubecontainer.PodSyncResult{SyncResults: kl.stopForRestart(ctx, pod, p)}
		p.killed = append(p.killed, killed.SyncResults...)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := killed.Error(); err != nil {
			return nil, err
		}
		fresh, err := kl.freshPodStatus(ctx, pod)
		if err != nil {
			return nil, fmt.Errorf("unable to read pod status after stopping containers for a restart: %w", err)
		}
		fresh.IPs = podStatus.IPs
		podStatus = fresh
		kl.stepRestart(ctx, pod, podStatus)
		apiPodStatus := kl.apiPodStatus(ctx, pod, podStatus)
		kl.statusManager.SetPodStatus(logger, pod, apiPodStatus)
		if apiPodStatus.Phase == v1.PodFailed || apiPodStatus.Phase == v1.PodSucceeded {
			return nil, fmt.Errorf("the pod has the phase %s since its containers were stopped for a restart", apiPodStatus.Phase)
		}
	}
	if len(p.plan.Kill) > 0 {
		return nil, errors.New("containers run on after they were stopped for a restart of the pod")
	}
	return podStatus, nil
}

// killedAny reports whether containers were stopped for a restart in this sync.
func (p *podRestart) killedAny() bool { return p != nil && len(p.killed) > 0 }

// withBackOff returns err, the error of a sync, with the end of the pod's back-off
// beside it if the sync failed before it came to that. The pod would otherwise be
// retried like any other, later than its back-off ends.
func (p *podRestart) withBackOff(err error) error {
	if p == nil || p.plan.Waiting == nil || err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	if _, found := crashloop.MinBackoffExpiration(err); found {
		return err
	}
	return errors.Join(err, crashloop.NewBackoffError(kubecontainer.ErrCrashLoopBackOff, p.plan.StartAt))
}

// errTerminationRequested ends the sync of a pod that is to be terminated. The pod
// worker has been told, and takes it for the cancellation that it is.
var errTerminationRequested = fmt.Errorf("the pod is to be terminated: %w", context.Canceled)

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

// relistInStartup has the PLEG look at a pod several times within the next second
// if containers of its present run were started, and the runtime does not tell when
// they end. An init container that ended by then would otherwise be noticed by the
// next relist of all pods only, and with it the next container started up to a second
// later.
func (kl *Kubelet) relistInStartup(ctx context.Context, uid types.UID) {
	p := kl.podRestarts.get(uid)
	if p == nil || p.plan.Phase != restartpod.PhaseStartup || kl.podRestarts.exits.isLive() {
		return
	}
	p.relists.Store(0)
	if !p.relisting.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer utilruntime.HandleCrashWithContext(ctx)
		defer p.relisting.Store(false)
		for n := p.relists.Add(1); n <= 4; n = p.relists.Add(1) {
			<-kl.clock.After(25 * time.Millisecond << n)
			kl.requestRelist(uid)
		}
	}()
}

// presentStatuses makes of the statuses in s what they are after a restart of the
// pod: a container whose newest instance is of the previous run waits, or did not
// run any more if the pod has ended, and how that instance ended is its last state.
// It returns the pod's status without the previous run.
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
				// As TerminatePod of the status manager has it.
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

// forgetPreviousRun leaves in statuses nothing of a previous run of the pod, so that
// the pod's phase is made of what has run since.
func (kl *Kubelet) forgetPreviousRun(pod *v1.Pod, statuses []v1.ContainerStatus) {
	p := kl.podRestarts.get(pod.UID)
	for i := range statuses {
		if p.old(statuses[i].Name) {
			statuses[i].LastTerminationState = v1.ContainerState{}
		}
	}
}

// waitingInRestart returns why a container of the previous run does not run.
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

// phaseInRestart returns the phase of a pod that may be being restarted: a pod
// that was running does not become pending by that.
func (kl *Kubelet) phaseInRestart(pod *v1.Pod, phase, old v1.PodPhase) v1.PodPhase {
	p := kl.podRestarts.get(pod.UID)
	if phase == v1.PodPending && old == v1.PodRunning && p != nil &&
		(p.plan.Phase == restartpod.PhaseTerminatingForRestart || p.plan.Phase == restartpod.PhaseStartup || slices.Contains(p.plan.Old, true)) {
		return v1.PodRunning
	}
	return phase
}

// setRestartConditions sets the conditions of restarts of the pod in conditions.
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
			// What the API has stays: it is somebody else's, or of a restart that is over.
			_, had = podutil.GetPodConditionFromList(kl.restartConditions(pod), t)
			if had == nil {
				continue
			}
			c = *had
			if p == nil || c.Status != v1.ConditionTrue {
				conditions = utilpod.ReplaceOrAppendPodCondition(conditions, &c)
				continue
			}
			// The mirror pod was not known yet when the kubelet, after its own restart, found
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
