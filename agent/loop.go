// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/asked"
	"github.com/kubelet-backoff/kubelet-backoff/restart"
	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

const (
	// errorRetry is the time until the next sync after an error that is not a back-off.
	// The kubelet waits longer, but it relists the containers every second.
	errorRetry = time.Second
	// resync is the longest time between two syncs of Run, as the kubelet's
	// syncFrequency. It limits the delay after the clock was set.
	resync = time.Minute
)

// Run runs the pod until it ends, and removes it. When ctx is done, Run stops the pod. It
// returns Succeeded or Failed, or Running if ctx was done before the pod ended. The last
// Status has the phase that the kubelet reports for such a pod.
func (a *Agent) Run(ctx context.Context) v1.PodPhase {
	deletion := ctx.Done()
	a.starting = ctx
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	calls := make(chan func())
	a.ctx, a.now = ctx, a.o.Clock.Now
	a.spawn = func(call func() func()) {
		go func() {
			select {
			case calls <- call():
			case <-ctx.Done():
			}
		}()
	}
	var next time.Time
	for a.again = true; ; {
		if now := a.now(); a.again || !now.Before(next) {
			var gone bool
			a.deleted = a.starting.Err() != nil
			if next, gone = a.sync(); gone {
				return a.phase
			}
			if limit := now.Add(resync); next.IsZero() || next.After(limit) {
				next = limit
			}
		}
		due := earlier(next, a.runProbes(a.now()))
		wait := due.Sub(a.now())
		if a.again || wait <= 0 {
			select {
			case then := <-calls:
				then()
			default:
			}
			continue
		}
		timer := a.o.Clock.NewTimer(wait)
		select {
		case <-timer.C():
		case <-a.o.Runtime.Changed():
			a.again = true
		case then := <-calls:
			then()
		case <-deletion:
			deletion, a.again = nil, true
		}
		timer.Stop()
	}
}

// Step does everything that is due at the time now. It returns the time of the next call,
// or zero for never. Call it earlier if the runtime's State changes, for example when a
// container exits. done is true when the pod has ended and was removed. Then Status has
// the result.
//
// Step starts no goroutines: all calls of the runtime are made before it returns. So
// probes and hooks take no time, except sleep hooks. Runtime.Stop should return before
// the instance has ended, unless that takes no time.
func (a *Agent) Step(ctx context.Context, now time.Time) (next time.Time, done bool) {
	a.ctx, a.starting, a.now = ctx, ctx, func() time.Time { return now }
	a.spawn = func(call func() func()) { call()() }
	if next, done = a.sync(); done {
		return next, true
	}
	if next = earlier(next, a.runProbes(now)); a.again {
		next = now
	}
	return next, false
}

// Delete makes the next Step stop the pod, as after its deletion in the API. With Run,
// cancel the context instead.
func (a *Agent) Delete() { a.deleted = true }

// sync gets the state of the pod and does what is due. It returns the time of the next
// call, or zero, and whether the pod was removed.
func (a *Agent) sync() (next time.Time, gone bool) {
	now := a.now()
	a.again = false
	if a.begun.IsZero() || now.Before(a.begun) {
		a.begun = now
	}
	if a.startedAt.IsZero() {
		a.startedAt = now
	}
	state, err := a.o.Runtime.State(a.ctx)
	if err != nil {
		a.fail("FailedSync", "", err)
		return now.Add(errorRetry), false
	}
	a.o.Curves.Note(a.o.Recorder, a.present(), now)
	a.observe(state)
	// A start that State does not show yet was in a sandbox that it may not show either.
	state.SandboxReady = state.SandboxReady || slices.ContainsFunc(a.containers, func(c container) bool { return c.unseen != nil })
	a.report()
	if !a.recovered {
		restart.RestorePodBackOff(a.o.PodBackOff, a.machine.BackOffKey(), a.podBackOff, now)
		for i := range a.containers {
			a.restoreBackOff(&a.containers[i], now)
		}
		a.machine.Recover(a.conditions, a.observation(now, state).Containers, now)
		a.restarting, _ = a.machine.State()
		a.recovered = true
		if a.phase != v1.PodRunning {
			a.stoppingSince = now
		}
	}
	if a.stoppingSince.IsZero() && (state.SandboxReady || a.restarting != restartpod.PhaseRunning || !a.loseSandbox(now, state)) {
		next = a.step(a.observation(now, state))
	}
	if !a.stoppingSince.IsZero() {
		if next, gone = a.end(a.observation(now, state)); gone {
			a.report()
			a.o.MaxRestarts.Forget(a.o.Pod.UID)
			a.o.Curves.Forget(a.o.Pod.UID)
			return time.Time{}, true
		}
	}
	for i := range a.containers {
		c := &a.containers[i]
		if next = earlier(next, a.proceed(now, c)); c.unseen != nil {
			next = earlier(next, now.Add(errorRetry))
		}
	}
	a.report()
	return next, false
}

func (a *Agent) report() {
	if a.o.Report != nil {
		a.o.Report(a.Status())
	}
}

// step carries out the plan of the machine.
func (a *Agent) step(o restartpod.Observation) (next time.Time) {
	var deadline time.Time
	if s := a.o.Pod.Spec.ActiveDeadlineSeconds; s != nil {
		deadline = a.startedAt.Add(longSeconds(*s))
	}
	late := !deadline.IsZero() && !o.Now.Before(deadline)
	exceeded := a.o.MaxRestarts.Exceeded(a.o.Pod.UID)
	o.Deleted = o.Deleted || late || exceeded != ""
	plan := a.machine.Step(o)
	a.conditions = plan.Conditions
	for _, e := range plan.Events {
		a.event(nil, e.Type, e.Reason, "%s", e.Message)
	}
	triggered := slices.ContainsFunc(plan.Events, func(e restartpod.Event) bool { return e.Reason == restartpod.EventPodRestarting })
	begins, waits := plan.Phase == restartpod.PhaseStartup && (a.restarting != restartpod.PhaseStartup || triggered), !plan.StartAt.IsZero()
	if waits {
		plan.StartAt = a.endWait(o.Now, "", a.o.PodBackOff, a.machine.BackOffKey(), plan.StartAt)
		plan.Next = plan.StartAt
	}
	if (begins || waits) && a.exceeds(o.Now, "", a.o.PodBackOff, a.machine.BackOffKey(), waits) {
		return a.step(o)
	}
	if begins {
		a.timePodRestart()
	}
	a.restarting, a.waiting, a.retryAt = plan.Phase, plan.Waiting, plan.StartAt
	for i := range a.containers {
		c := &a.containers[i]
		if c.old = plan.Old != nil && plan.Old[i]; c.old {
			c.wait("", "", time.Time{})
		}
	}
	switch a.phase = a.finalPhase(o); {
	case a.phase != v1.PodRunning:
	case late:
		a.phase, a.failedReason, a.failedMessage = v1.PodFailed, "DeadlineExceeded", "Pod was active on the node longer than the specified deadline"
		a.event(nil, v1.EventTypeNormal, a.failedReason, "%s", a.failedMessage)
	case exceeded != "":
		a.phase, a.failedReason, a.failedMessage = v1.PodFailed, asked.ReasonRestartLimitExceeded, exceeded
	}
	a.save()
	if o.Deleted || a.phase != v1.PodRunning {
		a.stoppingSince = o.Now
		return time.Time{}
	}
	next = earlier(earlier(plan.Next, deadline), a.awaitHooks(o.Now))

	for _, kill := range plan.Kill {
		a.kill(o.Now, &a.containers[kill.Container], kill)
	}
	if plan.Phase == restartpod.PhaseTerminatingForRestart {
		return next
	}
	for i := range a.containers {
		c := &a.containers[i]
		grace, at := a.mustKill(o.Now, c)
		if at.IsZero() || o.Now.Before(at) {
			next = earlier(next, at)
			continue
		}
		a.killNoted(o.Now, c, restartpod.Kill{Container: i, ID: c.instance.ID, PreStop: true, Grace: grace})
	}
	return earlier(next, a.startAll(o, plan.Start))
}
