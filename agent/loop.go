// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/kuberuntime"
	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

const (
	// errorRetry is when a pod is synced again after an error that is no back-off.
	// The kubelet waits longer, but looks at the runtime each second meanwhile.
	errorRetry = time.Second
	// missingRetry is when a container is started again of which nothing could be
	// created: backOffPeriod of pkg/kubelet, which adds up to half of it.
	missingRetry = 10 * time.Second
	// resync is when a pod is synced again at the latest while it waits for a
	// back-off, as the kubelet's --sync-frequency.
	resync = time.Minute
)

// Run runs the pod until it has ended, or ctx is done and it was stopped, and
// removes it. It returns Succeeded or Failed, or Running if it was stopped before
// it had ended: the phase that the kubelet gives it then is in its last Status. It
// returns an error, having done nothing, if the status file cannot be read.
func (a *Agent) Run(ctx context.Context) (v1.PodPhase, error) {
	if err := a.load(); err != nil {
		return "", err
	}
	a.starting = ctx
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	for {
		now := time.Now()
		next, gone := a.sync(ctx, now)
		if gone {
			return a.phase, nil
		}
		var expired <-chan time.Time
		if !next.IsZero() {
			expired = time.After(next.Sub(now))
		}
		deletion := a.starting.Done()
		if a.deleted {
			deletion = nil
		}
		select {
		case <-expired:
		case <-a.Runtime.Changed():
		case call := <-a.calls:
			call()
		case <-deletion:
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
	a.deleted = a.starting.Err() != nil
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
	if !state.SandboxReady && a.restarting == restartpod.PhaseRunning && a.stoppingSince.IsZero() && a.loseSandbox(ctx, now, state) {
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
	a.conditions = plan.Conditions
	for _, e := range plan.Events {
		a.Recorder.Event(a.Pod, e.Type, e.Reason, e.Message)
	}
	if plan.Phase == restartpod.PhaseStartup && a.restarting != restartpod.PhaseStartup {
		a.timePodRestart()
	}
	a.restarting, a.waiting, a.retryAt = plan.Phase, plan.Waiting, plan.StartAt
	for i := range a.containers {
		c := &a.containers[i]
		if c.old = plan.Old != nil && plan.Old[i]; c.old {
			c.wait("", "", time.Time{})
		}
	}
	if a.phase = a.finalPhase(o); a.phase == v1.PodRunning && late {
		a.phase, a.failedReason, a.failedMessage = v1.PodFailed, "DeadlineExceeded", "Pod was active on the node longer than the specified deadline"
		a.Recorder.Event(a.Pod, v1.EventTypeNormal, a.failedReason, a.failedMessage)
	}
	a.save()
	if o.Deleted || a.phase != v1.PodRunning {
		a.stoppingSince = o.Now
		return time.Time{}
	}
	next = earlier(plan.Next, deadline)

	for _, kill := range plan.Kill {
		a.kill(ctx, o.Now, &a.containers[kill.Container], kill)
	}
	if plan.Phase == restartpod.PhaseTerminatingForRestart {
		return next
	}
	for i := range a.containers {
		c := &a.containers[i]
		if grace, message := a.unfit(c); message != "" {
			a.stopped[c.instance.ID] = true
			a.save()
			a.kill(ctx, o.Now, c, restartpod.Kill{Container: i, ID: c.instance.ID, PreStop: true, Grace: grace, Message: message})
		}
	}
	return earlier(next, a.startAll(o, plan.Start))
}

// startsPerSync is how many containers are started before the pod is looked at
// again, and shown.
const startsPerSync = 10

// startAll starts containers, and a sandbox for them if need be. It returns when
// to try again those that have to wait, or zero.
func (a *Agent) startAll(o restartpod.Observation, list []int) (next time.Time) {
	if len(list) > 0 && o.SandboxLost {
		if err := a.Runtime.CreateSandbox(a.starting); err != nil {
			if a.starting.Err() == nil {
				a.fail("FailedCreatePodSandBox", "Failed to create pod sandbox: ", err)
			}
			return o.Now.Add(errorRetry)
		}
	}
	var errs []error
	tried := 0
	for _, i := range list {
		if a.starting.Err() != nil || tried == startsPerSync {
			return o.Now
		}
		if err := a.start(o.Now, &a.containers[i]); err != nil {
			errs = append(errs, err)
		} else {
			tried++
		}
	}
	if tried > 0 {
		return o.Now // What was started has a status, and may be waited for. What was not has a back-off.
	}
	if len(errs) > 0 {
		delay, _ := kuberuntime.NextSync(errors.Join(errs...), errorRetry, resync, o.Now)
		next = o.Now.Add(delay)
	}
	return next
}

// start tries to start a container, or returns the error that says why not now.
func (a *Agent) start(now time.Time, c *container) error {
	if at, ok := kuberuntime.MinBackoffExpiration(c.missing); ok && now.Before(at) {
		return c.missing
	}
	if err := a.backOff(now, c); err != nil {
		return err
	}
	restarts := 0
	if c.instance != nil {
		restarts = c.instance.Restarts + 1
	}
	c.wait("", "", time.Time{})
	if _, err := a.Runtime.Start(a.starting, c.spec, restarts); err != nil && a.starting.Err() == nil {
		a.startFailed(now, c, err)
	}
	return nil
}

// startFailed notes that a container's start failed with err. After something was
// created the failed start counts as an exit, and the next one follows the curve.
// Before that the curve does not advance: somebody has to bring what is missing.
func (a *Agent) startFailed(now time.Time, c *container, err error) {
	reason, created := "CreateContainerError", true
	if w := (*WaitingError)(nil); errors.As(err, &w) {
		reason, created = w.Reason, !nothingCreated[w.Reason]
	}
	c.timed = nil
	c.wait(reason, err.Error(), time.Time{})
	a.Recorder.Eventf(a.ref(c), v1.EventTypeWarning, "Failed", "Error: %v", err)
	err = kuberuntime.StartFailed(a.Pod, c.spec, created, err, a.ContainerBackOff, now)
	c.failedAt = now
	if !created {
		c.failedAt = now.Add(missingRetry)
		c.retryAt, c.missing = c.failedAt, kuberuntime.NewBackoffError(err, c.failedAt)
	}
}

// nothingCreated has the reasons of pkg/kubelet/kuberuntime and pkg/kubelet/images
// with which a container's start ends before anything of it is created.
var nothingCreated = map[string]bool{
	"CreateContainerConfigError": true, "PreCreateHookError": true,
	"ErrImageNeverPull": true, "ErrImagePull": true, "ImageInspectError": true, "ImagePullBackOff": true, "InvalidImageName": true,
	"RegistryUnavailable": true, "SignatureValidationFailed": true,
}

// wait says why the container does not run, and until when.
func (c *container) wait(reason, message string, until time.Time) {
	c.waitReason, c.message, c.retryAt, c.missing = reason, message, until, nil
}

// backOff returns an error if the container has to wait for its back-off.
func (a *Agent) backOff(now time.Time, c *container) error {
	var statuses []kuberuntime.ContainerStatus
	if i := c.instance; i != nil && !c.old {
		statuses = append(statuses, kuberuntime.ContainerStatus{
			Name: c.Name, State: kuberuntime.ContainerState(i.State), ExitCode: int(i.ExitCode), StartedAt: i.StartedAt, FinishedAt: i.FinishedAt, RestartCount: i.Restarts,
		})
	}
	wait, message, err := kuberuntime.DoBackOff(a.starting, a.Recorder, a.Pod, c.spec, statuses, a.ContainerBackOff, now)
	if wait {
		if c.waitReason == "" { // What its start failed of says more.
			c.waitReason, c.message = kuberuntime.ErrCrashLoopBackOff.Error(), message
		}
		c.retryAt, _ = kuberuntime.MinBackoffExpiration(err)
		return err
	}
	if len(statuses) > 0 {
		c.due, c.timed = c.instance.FinishedAt, &c.restarts
		if c.failedAt.After(c.due) {
			c.due = c.failedAt
		}
		if c.retryAt.After(c.due) {
			c.restarts.Waited += c.retryAt.Sub(c.due)
			c.due = c.retryAt
		}
	}
	return nil
}

// kill stops an instance, unless it is being stopped in time already.
func (a *Agent) kill(ctx context.Context, now time.Time, c *container, k restartpod.Kill) {
	a.beginStop(ctx, c, k.PreStop, k.Grace, k.Message)
	s, deadline := c.stop, now.Add(k.Grace)
	if !s.deadline.IsZero() && !deadline.Before(s.deadline) {
		return
	}
	s.deadline = deadline
	go func() {
		if k.PreStop {
			select {
			case <-s.hooked:
			case <-time.After(k.Grace):
			}
			k.Grace = max(time.Until(deadline), restartpod.MinimumGracePeriod)
		}
		if err := a.Runtime.Stop(ctx, k.ID, k.Grace); err != nil {
			select {
			case <-time.After(errorRetry):
			case <-ctx.Done():
			}
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
	if !preStop || grace == 0 || c.spec.Lifecycle == nil || c.spec.Lifecycle.PreStop == nil {
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
	a.waiting, a.retryAt = nil, time.Time{}
	o.GracePeriod = max(o.GracePeriod, time.Second) // As in calculateEffectiveGracePeriod of pkg/kubelet.
	for i := range a.containers {
		c := &a.containers[i]
		c.wait("", "", time.Time{})
		if c.instance != nil && c.instance.State == restartpod.StateRunning {
			// The kubelet runs all hooks at the beginning, also those of sidecars.
			a.beginStop(ctx, c, true, o.GracePeriod, "Stopping container "+c.Name)
		}
	}
	kills, next := o.Stop(a.stoppingSince)
	for _, k := range kills {
		a.kill(ctx, o.Now, &a.containers[k.Container], k)
	}
	if kills != nil {
		return next, false
	}
	if a.phase == v1.PodRunning {
		a.deletedPhase = a.phaseOfDeleted()
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
