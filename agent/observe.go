// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubelet-backoff/kubelet-backoff/restart"
	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

// observe updates the containers from the state of the runtime, and records events.
func (a *Agent) observe(state State) {
	a.ip = state.IP
	for i := range a.containers {
		c := &a.containers[i]
		instance, ok := state.Instances[c.Name]
		if a.awaitStart(c, instance, ok) {
			continue
		}
		if c.instance != nil && c.instance.ID != instance.ID {
			delete(a.stopped, c.instance.ID)
			delete(a.lost, c.instance.ID)
			delete(a.before, c.instance.ID)
		}
		if !ok {
			c.probe.end(kinds)
			c.stop.end()
			c.hook.end()
			c.instance, c.stop, c.probe, c.hook, c.stopAt = nil, nil, nil, nil, time.Time{}
			continue
		}
		isNew := c.instance == nil || c.instance.ID != instance.ID
		c.instance = &instance
		c.restarts.Count = instance.RestartCount
		if isNew {
			c.probe.end(kinds)
			c.stop.end()
			c.stop, c.probe, c.stopAt = nil, nil, time.Time{}
			if instance.State != restart.ContainerStateCreated {
				c.wait("", "", time.Time{}) // The start may have returned an error, or have been late.
			}
			a.recordStart(c)
			a.observeHook(c)
		}
		if c.probe == nil && c.stop == nil && c.hook.succeeded() && instance.State == restart.ContainerStateRunning {
			c.probe = a.newProber(c)
		}
		if instance.State == restart.ContainerStateExited && (c.lastExit == nil || c.lastExit.ContainerID != instance.ID) {
			c.probe.end(kinds)
			c.hook.end()
			reason := "Error" // As container runtimes report it.
			if instance.ExitCode == 0 {
				reason = "Completed"
			}
			c.hook, c.lastExit = nil, &v1.ContainerStateTerminated{
				ExitCode: instance.ExitCode, Reason: cmp.Or(instance.Reason, reason), Message: instance.Message, ContainerID: instance.ID,
				StartedAt: metav1.NewTime(instance.StartedAt), FinishedAt: metav1.NewTime(instance.FinishedAt),
			}
		}
	}
}

// recordStart records the start of an instance and its lateness, unless an earlier agent
// started the instance.
func (a *Agent) recordStart(c *container) {
	if !a.recovered {
		return
	}
	a.event(c, v1.EventTypeNormal, "Created", "Container created")
	if c.instance.Reason == ReasonStartError {
		a.event(c, v1.EventTypeWarning, "Failed", "Error: %s", c.instance.Message)
	} else {
		a.event(c, v1.EventTypeNormal, "Started", "Container started")
	}
	if r := c.timed; r != nil && c.instance.StartedAt.Unix() > 0 {
		late := max(c.instance.StartedAt.Sub(c.due), 0)
		r.Timed++
		r.Late += late
		r.Worst = max(r.Worst, late)
	}
	c.timed = nil
}

// observation returns the input of the machine.
func (a *Agent) observation(now time.Time, state State) restartpod.Observation {
	o := restartpod.Observation{
		Now: now, SandboxLost: !state.SandboxReady, Deleted: a.deleted,
		GracePeriod: a.gracePeriod(nil),
		Containers:  make([]restartpod.Container, len(a.containers)),
	}
	for i := range a.containers {
		c := &a.containers[i]
		o.Containers[i] = c.Container
		if u := c.unseen; u != nil {
			o.Containers[i].Status = &restart.ContainerStatus{ID: u.ID, State: restart.ContainerStateRunning, RestartCount: u.Restarts}
			continue
		}
		if c.instance == nil || a.lost[c.instance.ID] {
			continue
		}
		s := c.instance.ContainerStatus
		s.Started = c.probe.hasStarted()
		s.StoppedByAgent = a.stoppedByAgent(now, c)
		if s.StoppedByAgent && s.State == restart.ContainerStateExited && s.ExitCode == 0 && c.Policy == v1.ContainerRestartPolicyOnFailure {
			s.State = restart.ContainerStateCreated // The kubelet restarts it whatever its exit code is.
		}
		o.Containers[i].Status = &s
	}
	return o
}

// stoppedByAgent returns the field of restart.ContainerStatus for the container's instance.
func (a *Agent) stoppedByAgent(now time.Time, c *container) bool {
	when, ok := a.stopped[c.instance.ID]
	if now.Before(when.From) {
		when.From = time.Time{} // The clock stepped back: times do not show what came first.
		a.stopped[c.instance.ID] = when
	}
	if c.stop != nil {
		when.Until = time.Time{} // This agent repeats a stop that fails.
	}
	return ok && (c.instance.State != restart.ContainerStateExited || when.Ends(c.instance.FinishedAt))
}

// loseSandbox handles a lost sandbox as the kubelet does after PodSandboxChanged of
// pkg/kubelet/kuberuntime/util: it stops the remaining containers, and then all
// containers run again, from the first init container. A pod that has ended does not
// change. With restartPolicy Never, only containers with their own policy or rules run
// again. Unlike in the kubelet, a container that has succeeded with restartPolicy
// OnFailure runs again if another container has not. ending is true while containers are
// being stopped.
func (a *Agent) loseSandbox(now time.Time, state State) (ending bool) {
	o := a.observation(now, state)
	if a.finalPhase(o) != v1.PodRunning {
		return false
	}
	lost := false
	for i := range a.containers {
		c := &a.containers[i]
		if o.Containers[i].Status == nil {
			continue
		}
		lost = true
		if c.instance.State != restart.ContainerStateExited {
			a.killNoted(now, c, restartpod.Kill{Container: i, ID: c.instance.ID, Message: "Stopping container " + c.Name})
			ending = true
		}
	}
	if ending || !lost || a.o.Pod.Spec.RestartPolicy == v1.RestartPolicyNever {
		return ending
	}
	a.event(nil, v1.EventTypeNormal, "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")
	for i := range a.containers {
		if instance := a.containers[i].instance; instance != nil {
			a.lost[instance.ID] = true
		}
	}
	return false
}

// timePodRestart counts a restart of the pod. Its first container is due at the end of
// the pod's back-off or, without one, at the last exit of the previous run.
func (a *Agent) timePodRestart() {
	var ended time.Time
	for i := range a.containers {
		if e := a.containers[i].lastExit; e != nil && e.FinishedAt.After(ended) {
			ended = e.FinishedAt.Time
		}
	}
	a.restarts.Count++
	a.containers[0].timeRestart(&a.restarts, ended, a.retryAt)
}

// finalPhase returns Succeeded or Failed if the pod has ended, else Running. It keeps
// the behavior of getPhase of pkg/kubelet, but ignores the exits of the previous run.
func (a *Agent) finalPhase(o restartpod.Observation) v1.PodPhase {
	if a.restarting == restartpod.PhaseFailed {
		return v1.PodFailed
	}
	phase := v1.PodSucceeded
	for i := range o.Containers {
		c := &o.Containers[i]
		switch {
		case c.Kind != restartpod.KindRegular:
		case a.containers[i].old || c.Status == nil || c.Status.State != restart.ContainerStateExited || a.o.Gates.OnExit(c, c.Status.ExitCode) != "":
			return v1.PodRunning
		case c.Status.ExitCode != 0:
			phase = v1.PodFailed
		}
	}
	return phase
}

// phaseOfDeleted returns the phase of a pod that was deleted before it ended, after all
// containers have stopped. It keeps the behavior of getPhase of pkg/kubelet and of
// TerminatePod of its status manager: no container will be restarted, so the exit code of
// a container in back-off counts, and a container that did not run in the current run of
// the pod has failed.
func (a *Agent) phaseOfDeleted() v1.PodPhase {
	for i := range a.containers {
		c := &a.containers[i]
		exited := c.instance != nil && c.instance.State == restart.ContainerStateExited && !c.old
		switch {
		case c.Kind == restartpod.KindRegular && (!exited || c.instance.ExitCode != 0),
			c.Kind == restartpod.KindInit && exited && c.instance.ExitCode != 0 && a.o.Gates.OnExit(&c.Container, c.instance.ExitCode) == "":
			return v1.PodFailed
		}
	}
	return v1.PodSucceeded
}

// Status returns the status of the pod after the last Step. During Run, only
// Options.Report may call it. As in mergePodStatus of pkg/kubelet/status, the phase is
// Succeeded or Failed only after all containers have stopped.
func (a *Agent) Status() Status {
	s := Status{
		Phase: v1.PodRunning, StartTime: a.startedAt, Conditions: a.conditions, Terminating: !a.stoppingSince.IsZero(),
		RetryAt: a.retryAt, Restarts: a.restarts, Containers: make([]ContainerStatus, 0, len(a.containers)),
	}
	running := false
	for i := range a.containers {
		c := &a.containers[i]
		if c.Kind == restartpod.KindRegular && c.instance == nil && c.lastExit == nil {
			s.Phase = v1.PodPending
		}
		status := ContainerStatus{
			Name: c.Name, Kind: c.Kind, Image: c.spec.Image, State: a.containerState(c), LastExit: c.lastExit, RetryAt: c.retryAt, Restarts: c.restarts,
		}
		status.Started = status.State.Running != nil && c.probe.hasStarted()
		status.Ready = status.Started && c.probe.ready
		if c.Kind == restartpod.KindInit {
			status.Ready = status.State.Terminated != nil && status.State.Terminated.ExitCode == 0
		}
		if c.instance != nil {
			status.ID = c.instance.ID
			running = running || c.instance.State != restart.ContainerStateExited
		}
		running = running || c.unseen != nil
		s.Containers = append(s.Containers, status)
	}
	if phase := cmp.Or(a.deletedPhase, a.phase); phase != v1.PodRunning {
		if s.Ended = phase; !running {
			s.Phase, s.Reason, s.Message = phase, a.failedReason, a.failedMessage
		}
	}
	return s
}

func (a *Agent) containerState(c *container) v1.ContainerState {
	waiting := func(reason, message string) v1.ContainerState {
		return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason, Message: message}}
	}
	switch i := c.instance; {
	case a.waiting != nil:
		return waiting(a.waiting.Reason, a.waiting.Message)
	case c.waitReason != "":
		return waiting(c.waitReason, c.message)
	case i != nil && i.State == restart.ContainerStateRunning:
		return v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.NewTime(i.StartedAt)}}
	case i != nil && i.State == restart.ContainerStateExited && !c.old && !a.lost[i.ID] && c.unseen == nil:
		return v1.ContainerState{Terminated: c.lastExit}
	case len(a.o.Pod.Spec.InitContainers) > 0:
		return waiting("PodInitializing", "")
	default:
		return waiting("ContainerCreating", "")
	}
}
