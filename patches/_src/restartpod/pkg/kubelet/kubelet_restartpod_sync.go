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
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/restart"
	"k8s.io/kubernetes/pkg/kubelet/restartpod"
)

// restartSync is one sync of a pod that may be restarted in place. stepRestart returns
// it before the runtime syncs the containers, syncPod takes the place of that, and end
// follows it.
type restartSync struct {
	kl  *Kubelet
	pod *v1.Pod
	// restart is nil if no rule can restart the pod.
	restart *podRestart
	// podStatus is the pod's status at the start of the sync.
	podStatus *kubecontainer.PodStatus
	// err is why the runtime did not sync the containers.
	err error
}

// stepRestart steps the pod's machine. The status that is generated next shows whether
// a restart begins or ends.
func (kl *Kubelet) stepRestart(ctx context.Context, pod *v1.Pod, podStatus *kubecontainer.PodStatus) *restartSync {
	p := kl.podRestarts.get(pod.UID)
	if p != nil && p.ended {
		// A static pod runs again under the same UID. Its earlier end no longer
		// matters.
		p = kl.podRestarts.set(pod.UID, kl.podRestarts.newRestart(pod))
		for _, s := range podStatus.ContainerStatuses {
			p.noteStopped(s.ID, restartpod.StopTime{})
		}
	}
	if p = kl.stepRestartOf(ctx, pod, podStatus, kl.podWorkers.IsPodTerminationRequested(pod.UID), true); p != nil {
		p.killed = nil
	}
	return &restartSync{kl: kl, pod: pod, restart: p, podStatus: podStatus}
}

// syncPod stops the previous run of the pod if it is being restarted, and then syncs the
// containers. sync gets the pod without the rules that must not restart it, and its
// status without the previous run: that of a new pod in a ready sandbox.
func (s *restartSync) syncPod(ctx context.Context, podStatus *kubecontainer.PodStatus, sync func(*v1.Pod, *kubecontainer.PodStatus) kubecontainer.PodSyncResult) kubecontainer.PodSyncResult {
	p := s.restart
	if p == nil {
		return sync(s.pod, podStatus)
	}
	if podStatus, s.err = s.kl.terminateForRestart(ctx, s.pod, p, podStatus); s.err == nil && s.kl.podWorkers.IsPodTerminationRequested(s.pod.UID) {
		// Otherwise a rule would start containers again.
		s.err = errTerminationRequested
	}
	if s.err != nil {
		return kubecontainer.PodSyncResult{}
	}
	podStatus = s.forStarts(ctx, p.present(podStatus))
	result := sync(p.withoutTriggers(s.pod), podStatus)
	p.noteResult(podStatus, &result)
	return result
}

// forStarts returns podStatus with the pod's back-off, which the containers that start keep
// for restoreBackOff. It also holds those that had ended when the sync stopped them: the probe
// of a container fails with it, before the runtime shows the exit. The next sync sees which
// rule applies to that.
func (s *restartSync) forStarts(ctx context.Context, podStatus *kubecontainer.PodStatus) *kubecontainer.PodStatus {
	with := *podStatus
	with.Restart = &kubecontainer.PodRestart{}
	if podStatus.Restart != nil {
		*with.Restart = *podStatus.Restart
	}
	r := s.kl.podRestarts
	with.Restart.BackOff = restart.SaveBackOff(r.backOff, s.restart.machine.BackOffKey(), r.clock.Now())
	with.Restart.Hold = func(name string) *kubecontainer.BackoffError {
		before := podStatus.FindContainerStatusByName(name)
		if before == nil || before.State != kubecontainer.ContainerStateRunning {
			return nil
		}
		when := s.restart.stopTime(name, before.ID)
		if when.From.IsZero() {
			return nil
		}
		if c := s.exited(ctx, before); c == nil || when.Ends(c.FinishedAt) {
			return nil
		}
		return kubecontainer.NewBackoffError(kubecontainer.ErrCrashLoopBackOff, s.kl.clock.Now())
	}
	return &with
}

// containerd may end a stop before it shows that the container has ended. It has ten seconds to
// handle an exit.
const (
	exitReads      = 50
	exitReadPeriod = 200 * time.Millisecond
)

// exited returns the status of an instance that the sync has stopped, or nil if the runtime does
// not show its exit.
func (s *restartSync) exited(ctx context.Context, before *kubecontainer.Status) *kubecontainer.Status {
	for range exitReads {
		fresh, err := s.kl.freshPodStatus(ctx, s.pod)
		if err != nil {
			return nil
		}
		c := fresh.FindContainerStatusByName(before.Name)
		switch {
		case c == nil || c.ID != before.ID:
			return nil
		case c.State == kubecontainer.ContainerStateExited:
			return c
		case c.State != kubecontainer.ContainerStateRunning:
			return nil
		}
		s.kl.clock.Sleep(exitReadPeriod)
	}
	return nil
}

// endSync updates what the sync returns, and records what the sync has stopped.
func (s *restartSync) endSync(isTerminal *bool, err *error) {
	p := s.restart
	if p == nil {
		return
	}
	p.noteStops(s.podStatus)
	switch {
	case s.err == nil:
		*err = p.withBackOff(*err)
	case errors.Is(s.err, errTerminal):
		*isTerminal, *err = true, nil
	default:
		*err = s.err
	}
}

// terminateForRestart stops the previous run of a pod that is being restarted, and
// returns the pod's status after that.
//
// Like SyncTerminatingPod, it returns when the containers have stopped. The context
// is cancelled if the pod must be terminated in the meantime.
func (kl *Kubelet) terminateForRestart(ctx context.Context, pod *v1.Pod, p *podRestart, podStatus *kubecontainer.PodStatus) (*kubecontainer.PodStatus, error) {
	if kl.podWorkers.IsPodTerminationRequested(pod.UID) {
		return nil, errTerminationRequested
	}
	// refresh reads the pod's status again and steps the machine.
	refresh := func() error {
		fresh, err := kl.freshPodStatus(ctx, pod)
		if err != nil {
			return fmt.Errorf("unable to read pod status in a restart: %w", err)
		}
		fresh.IPs = podStatus.IPs
		podStatus = fresh
		kl.stepRestartOf(ctx, pod, podStatus, kl.podWorkers.IsPodTerminationRequested(pod.UID), false)
		apiPodStatus := kl.apiPodStatus(ctx, pod, podStatus)
		kl.statusManager.SetPodStatus(klog.FromContext(ctx), pod, apiPodStatus)
		if apiPodStatus.Phase == v1.PodFailed || apiPodStatus.Phase == v1.PodSucceeded {
			return errTerminal
		}
		return nil
	}
	if len(p.plan.Kill) > 0 {
		// The sync may have waited long for volumes, and earlier ones for the network.
		// It has stopped the containers if the pod's cgroups were missing. The grace
		// period of those that still run begins now.
		if err := refresh(); err != nil {
			return nil, err
		}
	}
	p.stopping.Store(true)
	defer p.stopping.Store(false)
	// Each pass waits for the containers that it stops: first all except the
	// sidecars, and then one sidecar at a time.
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
		if err := refresh(); err != nil {
			return nil, err
		}
	}
	if len(p.plan.Kill) > 0 {
		return nil, errors.New("containers run on after they were stopped for a restart of the pod")
	}
	return podStatus, nil
}

// errTerminationRequested ends the sync of a pod that must be terminated. The pod
// worker handles it as a cancellation.
var errTerminationRequested = fmt.Errorf("the pod must be terminated: %w", context.Canceled)

// errTerminal ends the sync of a pod that must not run any more: its deadline has passed
// since the sync began.
var errTerminal = errors.New("the pod is terminal")
