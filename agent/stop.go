// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/restart"
	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

// stop is the state of an instance that the agent stops.
type stop struct {
	// grace is the grace period.
	grace time.Duration
	// hookUntil is the latest end of the running preStop hook, or zero. cancelHook
	// cancels a hook that is not a sleep hook.
	hookUntil  time.Time
	cancelHook context.CancelFunc
	// kill is the pending kill. It is nil before it is the instance's turn to stop, and
	// after Runtime.Stop was called. deadline is the time of SIGKILL, or zero.
	kill     *restartpod.Kill
	deadline time.Time
	// retryAt is the time of the next attempt after an error.
	retryAt time.Time
}

// kill starts to stop an instance, unless it is already being stopped with an earlier
// deadline. proceed calls the runtime. The caller calls kill again for an instance that
// State does not show yet.
func (a *Agent) kill(now time.Time, c *container, k restartpod.Kill) {
	if c.unseen != nil {
		return
	}
	a.beginStop(now, c, k.PreStop, k.Grace, k.Message)
	if s, deadline := c.stop, now.Add(k.Grace); s.deadline.IsZero() || deadline.Before(s.deadline) {
		s.deadline, s.kill = deadline, &k
	}
}

// killNoted kills an instance and saves that. So no rule that restarts the pod applies to the
// exit, also under an agent that adopts the pod.
func (a *Agent) killNoted(now time.Time, c *container, k restartpod.Kill) {
	if c.stop == nil {
		a.stopped[k.ID] = restartpod.NewStopTime(a.stopped[k.ID], now, k.Grace)
		a.save()
	}
	a.kill(now, c, k)
}

// beginStop ends the startup and liveness probes of an instance and starts its preStop
// hook. As in the kubelet, the readiness probe goes on until the instance has ended. The
// message is that of the event, or empty for no event.
func (a *Agent) beginStop(now time.Time, c *container, preStop bool, grace time.Duration, message string) {
	if c.stop != nil {
		return
	}
	s := &stop{grace: grace}
	c.stop = s
	c.probe.end(readiness)
	if message != "" {
		a.event(c, v1.EventTypeNormal, "Killing", "%s", message)
	}
	if !preStop || grace == 0 || c.spec.Lifecycle == nil || c.spec.Lifecycle.PreStop == nil {
		return
	}
	hook := c.spec.Lifecycle.PreStop
	if hook.Sleep != nil {
		s.hookUntil = now.Add(min(grace, longSeconds(hook.Sleep.Seconds)))
		return
	}
	s.hookUntil = now.Add(grace)
	var ctx context.Context
	ctx, s.cancelHook = context.WithCancel(a.ctx)
	id, ip := c.instance.ID, a.ip
	a.spawn(func() func() {
		err := a.runHook(deadlineContext{ctx, now.Add(grace)}, c, id, ip, hook)
		return func() { a.hookEnded(c, s, err) }
	})
}

// end cancels the hook of an instance that is gone.
func (s *stop) end() {
	if s != nil && s.cancelHook != nil {
		s.hookUntil = time.Time{}
		s.cancelHook()
	}
}

// hookEnded handles the end of a preStop hook.
func (a *Agent) hookEnded(c *container, s *stop, err error) {
	if s.hookUntil.IsZero() {
		return
	}
	s.hookUntil, a.again = time.Time{}, true
	if s.cancelHook != nil {
		s.cancelHook()
	}
	if err != nil {
		a.event(c, v1.EventTypeWarning, "FailedPreStopHook", "PreStopHook failed")
	}
}

// proceed does what is due to stop a container, if it is being stopped. It returns the
// time of the next call, or zero.
func (a *Agent) proceed(now time.Time, c *container) (next time.Time) {
	s := c.stop
	if s == nil {
		return time.Time{}
	}
	// The clock may have stepped back.
	if latest := now.Add(s.grace); s.deadline.After(latest) {
		s.deadline = latest
	}
	if latest := now.Add(errorRetry); s.retryAt.After(latest) {
		s.retryAt = latest
	}
	if !s.hookUntil.IsZero() && !now.Before(s.hookUntil) {
		var err error
		if s.cancelHook != nil {
			err = context.DeadlineExceeded
		}
		a.hookEnded(c, s, err)
	}
	switch {
	case s.kill == nil:
		return s.hookUntil
	case now.Before(s.retryAt):
		return s.retryAt
	case s.kill.PreStop && !s.hookUntil.IsZero() && now.Before(s.deadline):
		return earlier(s.hookUntil, s.deadline)
	}
	k := s.kill
	s.kill = nil
	grace := k.Grace
	if k.PreStop {
		grace = max(s.deadline.Sub(now), restartpod.MinimumGracePeriod)
	}
	a.spawn(func() func() {
		err := a.o.Runtime.Stop(a.ctx, k.ID, grace)
		return func() {
			if a.again = true; err == nil {
				return
			}
			a.fail("FailedKillPod", "error killing pod: ", err)
			if s.retryAt = a.now().Add(errorRetry); s.kill == nil {
				s.kill = k
			}
		}
	})
	if s.kill != nil {
		return s.retryAt
	}
	return s.hookUntil
}

// end does what is due to stop the pod for good. It returns the time of the next call,
// and whether the pod was removed.
func (a *Agent) end(o restartpod.Observation) (next time.Time, gone bool) {
	a.waiting, a.retryAt = nil, time.Time{}
	o.GracePeriod = max(o.GracePeriod, time.Second) // As in calculateEffectiveGracePeriod of pkg/kubelet.
	for i := range a.containers {
		c := &a.containers[i]
		c.wait("", "", time.Time{})
		if c.unseen != nil { // Remove kills what State does not show by then.
			c.unseen.Until = earlier(c.unseen.Until, a.stoppingSince.Add(o.GracePeriod))
		}
		if c.instance != nil && c.instance.State == restart.ContainerStateRunning {
			// The kubelet starts all hooks at once, including those of sidecars.
			a.beginStop(o.Now, c, true, o.GracePeriod, "Stopping container "+c.Name)
		}
	}
	if a.stoppingSince.After(o.Now) {
		a.stoppingSince = o.Now // the clock stepped back
	}
	kills, next := o.Stop(a.stoppingSince)
	for _, k := range kills {
		a.kill(o.Now, &a.containers[k.Container], k)
	}
	if kills != nil {
		return next, false
	}
	if a.phase == v1.PodRunning {
		a.deletedPhase = a.phaseOfDeleted()
	}
	if err := a.o.Runtime.Remove(a.ctx); err != nil {
		a.fail("FailedKillPod", "error killing pod: ", err)
		return o.Now.Add(errorRetry), false
	}
	if err := os.RemoveAll(a.o.StatusFile); err != nil {
		a.fail("FailedSync", "cannot remove the pod's status: ", err)
	}
	return time.Time{}, true
}

// exitPause returns for how long a stop after a failed probe or hook waits for the container to
// exit by itself. A probe or a hook that runs in the container ends with it, and the runtime may
// report that before the exit. A rule that restarts the pod applies to that exit, and not to one
// that the agent causes. The kubelet of the patches waits as long in each pod with such a rule.
func (c *container) exitPause() time.Duration {
	if slices.ContainsFunc(c.Rules, func(r restartpod.Rule) bool { return r.Action != restartpod.ActionRestart }) {
		return restartpod.ExitPause
	}
	return 0
}

// mustKill returns when to kill a container that has failed a probe or a hook, or is in an
// unknown state, unless it exits before, and its grace period. The time is zero for other
// containers, and for those that are being stopped. mustKill records the events of the stop
// when it first returns a time for an instance, as the kubelet does before its wait.
func (a *Agent) mustKill(now time.Time, c *container) (grace time.Duration, at time.Time) {
	var message string
	grace = a.gracePeriod(nil)
	switch {
	case c.instance == nil, c.stop != nil && !c.stop.deadline.IsZero():
		return 0, time.Time{}
	case c.instance.State == restart.ContainerStateUnknown:
		message = fmt.Sprintf("Container is in %q state, try killing it before restart", c.instance.State)
	case c.instance.State != restart.ContainerStateRunning:
		return 0, time.Time{}
	case c.hook != nil && c.hook.failed:
		if message = "FailedPostStartHook"; c.stopAt.IsZero() {
			a.event(c, v1.EventTypeWarning, message, "PostStartHook failed")
		}
	case c.probe != nil && c.probe.failed != nil:
		grace = a.gracePeriod(c.probe.failed)
		message = "Container " + c.Name + " failed " + c.probe.failedAs + " probe"
		switch {
		case c.Kind != restartpod.KindRegular:
			message = "Init c" + message[1:]
		case c.Policy != v1.ContainerRestartPolicyNever:
			message += ", will be restarted"
		}
	default:
		return 0, time.Time{}
	}
	if c.stopAt.IsZero() {
		a.event(c, v1.EventTypeNormal, "Killing", "%s", message)
	}
	at = now
	if c.instance.State == restart.ContainerStateRunning {
		at = now.Add(c.exitPause())
	}
	c.stopAt = earlier(c.stopAt, at)
	return grace, c.stopAt
}
