// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/kubelet-backoff/kubelet-backoff/backoff"
	"github.com/kubelet-backoff/kubelet-backoff/kuberuntime"
	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

const (
	// errorRetry is when a pod is synced again after an error that is no back-off.
	// The kubelet waits longer, but looks at the runtime each second meanwhile.
	errorRetry = time.Second
	// resync is when a pod is synced again at the latest while it waits for a
	// back-off, as the kubelet's --sync-frequency.
	resync = time.Minute
)

// Options are what an Agent works with.
type Options struct {
	// Pod is a valid pod with all defaults. It is not changed.
	Pod   *v1.Pod
	Gates restartpod.Gates
	// ContainerBackOff and PodBackOff may be those of other pods too.
	ContainerBackOff, PodBackOff *backoff.Backoff
	Runtime                      Runtime
	// Recorder gets the kubelet's events.
	Recorder record.EventRecorder
	// Report gets the status as it is seen, before what follows from it is
	// decided, and again after that was done.
	Report func(Status)
	// StatusFile is where the pod's status is kept for the next agent, if the
	// containers outlive this one, and else "".
	StatusFile string
	Clock      clock.Clock
}

// Agent runs one pod. The goroutine of Run alone uses its fields. What others
// have found out they hand over through calls.
type Agent struct {
	Options
	machine    *restartpod.Machine
	containers []container
	// recovered is true once the runtime has told what an agent before left.
	recovered  bool
	conditions []v1.PodCondition
	startedAt  time.Time
	deleted    bool
	// stoppingSince is when the pod began to be stopped for good, and else zero.
	// The phase is Running before and, if it is deleted, afterwards. The other two
	// say why it failed, where no container does.
	stoppingSince          time.Time
	phase                  v1.PodPhase
	failedReason, failedBy string
	// restarting, retryAt and restarts are of the restart of the whole pod: how
	// far it is, when its back-off ends, and how many there were.
	restarting restartpod.Phase
	retryAt    time.Time
	restarts   Restarts
	// lost has the instances of sandboxes that are gone, which are to run again.
	lost map[string]bool
	// startedBefore has the instances whose startup probe passed before this agent
	// was started.
	startedBefore map[string]bool
	// told and saved keep what repeats itself from being told or written again.
	told, saved string
	calls       chan func()
}

// container is a container of the pod.
type container struct {
	// Container is without the Status, which observation adds.
	restartpod.Container
	spec     *v1.Container
	instance *Instance
	// old says that instance is of the generation before.
	old      bool
	lastExit *v1.ContainerStateTerminated
	// retryAt and message are of the back-off that the container waits for.
	retryAt  time.Time
	message  string
	restarts Restarts
	// due is when the next instance is to start, and timed where that is counted.
	due   time.Time
	timed *Restarts
	// failedAt is when a newer instance could not be made, and else zero.
	failedAt time.Time
	// stop is the end that the agent makes of instance, and probe its probes. Both
	// are nil without any.
	stop  *stop
	probe *prober
}

// stop is the end that an agent makes of an instance.
type stop struct {
	// hooked is closed when the preStop hook has ended, or there is none.
	hooked chan struct{}
	// deadline is when it gets SIGKILL, and zero until it is its turn to stop.
	deadline time.Time
}

// New returns the agent of a pod.
func New(o Options) *Agent {
	a := &Agent{
		Options: o, machine: restartpod.New(o.PodBackOff, o.Pod.UID, o.Gates), startedAt: o.Clock.Now(),
		phase: v1.PodRunning, restarting: restartpod.PhaseRunning, lost: map[string]bool{}, startedBefore: map[string]bool{}, calls: make(chan func()),
	}
	spec := &a.Pod.Spec
	for i, c := range restartpod.Containers(spec, o.Gates) {
		if n := len(spec.InitContainers); i < n {
			a.containers = append(a.containers, container{Container: c, spec: &spec.InitContainers[i]})
		} else {
			a.containers = append(a.containers, container{Container: c, spec: &spec.Containers[i-n]})
		}
	}
	return a
}

// Run runs the pod until it has ended, or ctx is done and it was stopped, and
// removes it. It returns Succeeded or Failed, or Running if it was stopped, and
// an error, having done nothing, if the status file cannot be read.
func (a *Agent) Run(ctx context.Context) (v1.PodPhase, error) {
	if err := a.load(); err != nil {
		return "", err
	}
	deletion := ctx.Done()
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	for {
		now := a.Clock.Now()
		next, gone := a.sync(ctx, now)
		if gone {
			return a.phase, nil
		}
		var timer clock.Timer
		var expired <-chan time.Time
		if !next.IsZero() {
			timer = a.Clock.NewTimer(next.Sub(now))
			expired = timer.C()
		}
		select {
		case <-expired:
		case <-a.Runtime.Changed():
		case call := <-a.calls:
			call()
		case <-deletion:
			a.deleted, deletion = true, nil
		}
		if timer != nil {
			timer.Stop()
		}
	}
}

// call has f called by the goroutine of Run, before the next sync.
func (a *Agent) call(ctx context.Context, f func()) {
	select {
	case a.calls <- f:
	case <-ctx.Done():
	}
}

// sync looks at the pod and does what there is to do. It returns when to call it
// again if nothing happens before, zero for never, and whether the pod is gone.
func (a *Agent) sync(ctx context.Context, now time.Time) (next time.Time, gone bool) {
	state, err := a.Runtime.State(ctx)
	if err != nil {
		a.fail("FailedSync", "", err)
		return now.Add(errorRetry), false
	}
	a.observe(ctx, state)
	a.Report(a.status())
	if !a.recovered {
		a.machine.Recover(a.conditions, a.observation(now, state).Containers)
		a.recovered = true
	}
	if !state.SandboxReady && a.restarting == restartpod.PhaseRunning && a.stoppingSince.IsZero() && a.loseSandbox(ctx, now) {
		return time.Time{}, false
	}
	o := a.observation(now, state)
	if a.stoppingSince.IsZero() {
		next = a.step(ctx, o)
	}
	if !a.stoppingSince.IsZero() {
		next, gone = a.end(ctx, o)
	}
	a.Report(a.status())
	return next, gone
}

// step does what the machine plans.
func (a *Agent) step(ctx context.Context, o restartpod.Observation) (next time.Time) {
	deadline := a.deadline()
	late := !deadline.IsZero() && !o.Now.Before(deadline)
	o.Deleted = o.Deleted || late
	plan := a.machine.Step(o)
	a.setCondition(plan.Condition)
	if plan.Event != "" {
		a.Recorder.Event(a.Pod, v1.EventTypeNormal, restartpod.EventReason, plan.Event)
		a.restarts.Count++
	}
	if plan.Phase == restartpod.PhaseStartup && a.restarting != restartpod.PhaseStartup {
		a.timePodRestart()
	}
	if !plan.StartAt.IsZero() && plan.StartAt != a.retryAt {
		a.Recorder.Eventf(a.Pod, v1.EventTypeWarning, kuberuntime.BackOffStartContainer, "Back-off restarting pod %s: %s", a.Pod.Name, plan.Condition.Message)
	}
	a.restarting, a.retryAt = plan.Phase, plan.StartAt
	for i := range a.containers {
		a.containers[i].old = plan.Old != nil && plan.Old[i]
	}
	if a.phase = a.finalPhase(o, plan.Phase); a.phase == v1.PodRunning && late {
		a.phase, a.failedReason, a.failedBy = v1.PodFailed, "DeadlineExceeded", "Pod was active on the node longer than the specified deadline"
		a.Recorder.Event(a.Pod, v1.EventTypeNormal, a.failedReason, a.failedBy)
	}
	if o.Deleted || a.phase != v1.PodRunning {
		a.stoppingSince = o.Now
		return time.Time{}
	}
	next = earlier(plan.Next, deadline)
	a.save()

	for _, kill := range plan.Kill {
		c := &a.containers[kill.Container]
		a.kill(ctx, o.Now, c, kill, fmt.Sprintf("Stopping container %s, the pod is being restarted", c.Name))
	}
	if plan.Phase == restartpod.PhaseTerminatingForRestart {
		return next
	}
	for i := range a.containers {
		c := &a.containers[i]
		if grace, message := a.failedProbe(c); message != "" {
			a.kill(ctx, o.Now, c, restartpod.Kill{Container: i, ID: c.instance.ID, PreStop: true, Grace: grace}, message)
		}
	}
	if len(plan.Start) > 0 && o.SandboxLost {
		if err := a.Runtime.CreateSandbox(ctx); err != nil {
			a.fail("FailedCreatePodSandBox", "Failed to create pod sandbox: ", err)
			return earlier(next, o.Now.Add(errorRetry))
		}
	}
	var errs []error
	for _, i := range plan.Start {
		if err := a.start(ctx, o.Now, &a.containers[i]); err != nil {
			errs = append(errs, err)
		} else {
			next = o.Now // What was started has a status, and may be waited for.
		}
	}
	if len(errs) > 0 {
		delay, _ := kuberuntime.NextSync(errors.Join(errs...), o.Now, errorRetry, resync)
		next = earlier(next, o.Now.Add(delay))
	}
	return next
}

// start starts a container, or returns the error that says why not now.
func (a *Agent) start(ctx context.Context, now time.Time, c *container) error {
	var statuses []kuberuntime.ContainerStatus
	restarts := 0
	if i := c.instance; i != nil {
		restarts = i.Restarts + 1
		if !c.old {
			statuses = append(statuses, kuberuntime.ContainerStatus{
				Name: c.Name, State: i.State, ExitCode: int(i.ExitCode), StartedAt: i.StartedAt, FinishedAt: i.FinishedAt, RestartCount: i.Restarts,
			})
		}
	}
	if !c.failedAt.IsZero() {
		// What could not be made waits as what exited.
		statuses = append(statuses, kuberuntime.ContainerStatus{
			Name: c.Name, State: kuberuntime.ContainerStateExited, FinishedAt: c.failedAt, RestartCount: restarts,
		})
	}
	wait, message, err := kuberuntime.DoBackOff(ctx, now, a.Recorder, a.Pod, c.spec, statuses, a.ContainerBackOff)
	if wait {
		c.message = message
		c.retryAt, _ = kuberuntime.MinBackoffExpiration(err)
		return err
	}
	if len(statuses) > 0 {
		exit := statuses[len(statuses)-1].FinishedAt
		c.due, c.timed = exit, &c.restarts
		if c.retryAt.After(exit) {
			c.due = c.retryAt
			c.restarts.Waited += c.retryAt.Sub(exit)
		}
	}
	c.retryAt, c.message = time.Time{}, ""
	if _, err = a.Runtime.Start(ctx, c.spec, restarts); err != nil {
		c.failedAt = now
		a.Recorder.Eventf(a.ref(c), v1.EventTypeWarning, "Failed", "Error: %v", err)
	}
	return err
}

// kill stops an instance, unless it is being stopped in time already.
func (a *Agent) kill(ctx context.Context, now time.Time, c *container, k restartpod.Kill, message string) {
	a.beginStop(ctx, c, k.PreStop, k.Grace, message)
	s, deadline := c.stop, now.Add(k.Grace)
	if !s.deadline.IsZero() && !deadline.Before(s.deadline) {
		return
	}
	s.deadline = deadline
	go func() {
		if k.PreStop {
			select {
			case <-s.hooked:
			case <-a.Clock.After(k.Grace):
			}
			k.Grace = max(deadline.Sub(a.Clock.Now()), restartpod.MinimumGracePeriod)
		}
		if err := a.Runtime.Stop(ctx, k.ID, k.Grace); err != nil {
			<-a.Clock.After(errorRetry)
			a.call(ctx, func() {
				a.fail("FailedKillPod", "error killing pod: ", err)
				s.deadline = time.Time{}
			})
		}
	}()
}

// beginStop ends the probes of an instance and runs its preStop hook.
func (a *Agent) beginStop(ctx context.Context, c *container, preStop bool, grace time.Duration, message string) {
	if c.stop != nil {
		return
	}
	c.stop = &stop{hooked: make(chan struct{})}
	c.probe.end()
	a.Recorder.Event(a.ref(c), v1.EventTypeNormal, "Killing", message)
	if !preStop || c.spec.Lifecycle == nil || c.spec.Lifecycle.PreStop == nil {
		close(c.stop.hooked)
		return
	}
	go func(hooked chan struct{}, id string) {
		defer close(hooked)
		ctx, cancel := context.WithTimeout(ctx, grace)
		defer cancel()
		if err := a.runHook(ctx, id, c.spec.Lifecycle.PreStop); err != nil {
			a.Recorder.Event(a.ref(c), v1.EventTypeWarning, "FailedPreStopHook", "PreStopHook failed")
		}
	}(c.stop.hooked, c.instance.ID)
}

// end goes on with stopping the pod for good. It returns when to go on, and true
// once the pod is gone.
func (a *Agent) end(ctx context.Context, o restartpod.Observation) (next time.Time, gone bool) {
	a.retryAt = time.Time{}
	for i := range a.containers {
		c := &a.containers[i]
		c.retryAt = time.Time{}
		if c.instance != nil && c.instance.State == kuberuntime.ContainerStateRunning {
			// The kubelet runs all hooks at the beginning, also those of sidecars.
			a.beginStop(ctx, c, true, o.GracePeriod, "Stopping container "+c.Name)
		}
	}
	kills, next := o.Stop(a.stoppingSince)
	for _, k := range kills {
		a.kill(ctx, o.Now, &a.containers[k.Container], k, "Stopping container "+a.containers[k.Container].Name)
	}
	if kills != nil {
		return next, false
	}
	if err := errors.Join(a.Runtime.Remove(ctx), a.forget()); err != nil {
		a.fail("FailedKillPod", "error killing pod: ", err)
		return o.Now.Add(errorRetry), false
	}
	return time.Time{}, true
}

// earlier returns the earlier of two times of which zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
