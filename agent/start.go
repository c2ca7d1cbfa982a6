// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"errors"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/backoff"
	"github.com/kubelet-backoff/kubelet-backoff/restart"
	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

// missingRetry is the time between a start that created nothing and the next one:
// backOffPeriod of pkg/kubelet, without its jitter.
const missingRetry = 10 * time.Second

// startLimit is the longest time for which State may not show a successful start, the
// kubelet's default runtimeRequestTimeout: so long it waits for the answer to a start.
const startLimit = 2 * time.Minute

// unseen is a successful start that State does not show yet. The status file has it, so
// that the next agent does not start the container again.
type unseen struct {
	ID       string
	Restarts int
	// Until is the time at which the start counts as failed.
	Until time.Time
}

// awaitStart reports whether State, which shows this instance or none, does not show the
// last start of the container yet. An instance that State shows before its start, as
// created, would be started again, and without its postStart hook.
func (a *Agent) awaitStart(c *container, shown Instance, ok bool) bool {
	u, now := c.unseen, a.now()
	switch {
	case u == nil:
		return false
	case ok && shown.State != restart.ContainerStateCreated && (shown.ID == u.ID || shown.RestartCount >= u.Restarts):
		c.unseen = nil
	case now.Before(u.Until):
		u.Until = earlier(u.Until, now.Add(startLimit)) // The clock may have stepped back.
	default:
		c.unseen, c.hook = nil, nil
		a.startFailed(now, c, errors.New("the runtime does not show the container that it has started"))
	}
	return c.unseen != nil
}

// mayStart reports whether a container that should be running may start. If so, the
// back-off counts a start, and the caller must start the container. Otherwise the
// container waits until retryAt.
func (a *Agent) mayStart(now time.Time, c *container) bool {
	if now.Before(c.missingUntil) { // startFailed has set retryAt and the reason.
		c.missingUntil = earlier(c.missingUntil, now.Add(missingRetry)) // The clock may have stepped back.
		c.retryAt = c.missingUntil
		return false
	}
	var statuses []restart.ContainerStatus // The back-off counts from the exit of this instance.
	if !c.old {
		statuses = a.restoreBackOff(c, now)
	}
	wait, message, err := restart.DoBackOff(a.starting, a.o.Recorder, a.o.Pod, c.spec, statuses, a.o.ContainerBackOff, now)
	key := restart.Key(a.o.Pod, c.spec)
	if wait {
		retryAt, _ := restart.MinBackoffExpiration(err)
		c.retryAt = a.endWait(now, c.Name, a.o.ContainerBackOff, key, retryAt)
	}
	if a.exceeds(now, c.Name, a.o.ContainerBackOff, key, wait) {
		c.retryAt = now
		return false
	}
	if !wait {
		return true
	}
	if c.waitReason == "" { // The error of a failed start is more useful than CrashLoopBackOff.
		c.waitReason, c.message = restart.ErrCrashLoopBackOff.Error(), message
	}
	return false
}

// restoreBackOff restores the back-off of a container that an earlier agent started. It returns
// the statuses of the container's instances.
func (a *Agent) restoreBackOff(c *container, now time.Time) []restart.ContainerStatus {
	if c.instance == nil || c.unseen != nil {
		return nil
	}
	s := c.instance.ContainerStatus
	s.Name, s.BackOff = c.Name, c.backOff
	statuses := []restart.ContainerStatus{s}
	restart.RestoreBackOff(a.o.Pod, c.spec, statuses, a.o.ContainerBackOff, now)
	return statuses
}

// endWait returns until when a wait lasts that would last until retryAt. The pod may ask for
// an earlier end.
func (a *Agent) endWait(now time.Time, container string, b *backoff.Backoff, key string, retryAt time.Time) time.Time {
	until, _ := a.o.RestartAt.EndWait(a.o.Recorder, a.present(), container, b, key, retryAt, now)
	return until
}

// exceeds reports whether the restart that the back-off has just allowed, or made wait, is one
// too many. If so, the next sync ends the pod.
func (a *Agent) exceeds(now time.Time, container string, b *backoff.Backoff, key string, waits bool) bool {
	exceeds := a.o.MaxRestarts.Exceed(a.o.Recorder, a.present(), container, b, key, waits, now)
	a.again = a.again || exceeds
	return exceeds
}

// present returns the pod with its present annotations.
func (a *Agent) present() *v1.Pod {
	if a.o.Annotations == nil {
		return a.o.Pod
	}
	pod := *a.o.Pod
	pod.Annotations = a.o.Annotations()
	return &pod
}

// startAll starts the listed containers that may start, and a sandbox if there is none.
// It returns the time at which the next container may start, or zero.
func (a *Agent) startAll(o restartpod.Observation, list []int) (next time.Time) {
	if len(list) > 0 && o.SandboxLost {
		if err := a.o.Runtime.CreateSandbox(a.starting); err != nil {
			if a.starting.Err() == nil {
				a.fail("FailedCreatePodSandBox", "Failed to create pod sandbox: ", err)
			}
			return o.Now.Add(errorRetry)
		}
	}
	// The container that exited first starts first. In the order of the spec, if many
	// containers fail at once, the last ones would never start, because starts take time.
	slices.SortStableFunc(list, func(i, j int) int {
		a, b := &a.containers[i], &a.containers[j]
		if a.Kind != restartpod.KindRegular || b.Kind != restartpod.KindRegular {
			return cmp.Compare(i, j)
		}
		return a.ended().Compare(b.ended())
	})
	started := false
	hook := slices.ContainsFunc(a.containers, func(c container) bool { return c.hook.running() })
	for _, i := range list {
		c := &a.containers[i]
		if a.starting.Err() != nil {
			return o.Now.Add(errorRetry) // The pod is being deleted. Run syncs at once.
		}
		if hook {
			break
		}
		if a.mayStart(a.now(), c) {
			a.start(c)
			a.save() // The next start may take long, and the agent may be killed in it.
			started, hook = true, c.hook.running()
		} else {
			next = earlier(next, c.retryAt)
		}
	}
	if started {
		return o.Now // The machine has to observe the new instances.
	}
	return next
}

// ended returns the time of the last exit or failed start in the current run of the pod,
// or zero.
func (c *container) ended() time.Time {
	if i := c.instance; i != nil && !c.old && i.FinishedAt.After(c.failedAt) {
		return i.FinishedAt
	}
	return c.failedAt
}

// start starts a container after mayStart.
func (a *Agent) start(c *container) {
	restarts := 0
	if c.instance != nil {
		restarts = c.instance.RestartCount + 1
		if !c.old {
			c.timeRestart(&c.restarts, c.ended(), c.retryAt)
		}
	}
	c.wait("", "", time.Time{})
	if c.hook = nil; c.spec.Lifecycle != nil && c.spec.Lifecycle.PostStart != nil {
		c.hook = &startHook{}
	}
	c.backOff = restart.SaveBackOff(a.o.ContainerBackOff, restart.Key(a.o.Pod, c.spec), a.now())
	a.podBackOff = restart.SaveBackOff(a.o.PodBackOff, a.machine.BackOffKey(), a.now())
	id, err := a.o.Runtime.Start(a.starting, c.spec, restarts)
	if err == nil {
		c.unseen = &unseen{ID: id, Restarts: restarts, Until: a.now().Add(startLimit)}
		return
	}
	c.hook = nil
	if a.starting.Err() == nil {
		a.startFailed(a.now(), c, err)
	}
}

// timeRestart adds the wait before the next start of the container to r. recordStart adds
// the lateness of that start to r. A runtime may not know the time of an exit.
func (c *container) timeRestart(r *Restarts, exit, retryAt time.Time) {
	if exit.Unix() <= 0 {
		c.timed = nil
		return
	}
	c.due, c.timed = exit, r
	if retryAt.After(exit) {
		c.due = retryAt
		r.Waited += retryAt.Sub(exit)
	}
}

// startFailed records a failed start. If something was created, the attempt counts as
// an exit, and the next attempt follows the curve. If nothing was created, the delay does
// not grow, because the user has to provide what is missing.
func (a *Agent) startFailed(now time.Time, c *container, err error) {
	reason, created := "CreateContainerError", true
	if w := (*WaitingError)(nil); errors.As(err, &w) {
		reason, created = w.Reason, !nothingCreated[w.Reason]
	}
	c.timed, c.failedAt = nil, now
	c.wait(reason, err.Error(), time.Time{})
	a.event(c, v1.EventTypeWarning, "Failed", "Error: %v", err)
	// The error is not needed: mayStart asks the back-off again.
	_ = restart.StartFailed(a.o.Pod, c.spec, created, err, a.o.ContainerBackOff, now)
	if !created {
		c.failedAt = now.Add(missingRetry)
		c.retryAt, c.missingUntil = c.failedAt, c.failedAt
	}
}

// nothingCreated is the set of reasons in pkg/kubelet/kuberuntime and pkg/kubelet/images
// for failed starts that created nothing.
var nothingCreated = map[string]bool{
	"CreateContainerConfigError": true, "PreCreateHookError": true,
	"ErrImageNeverPull": true, "ErrImagePull": true, "ImageInspectError": true, "ImagePullBackOff": true, "InvalidImageName": true,
	"RegistryUnavailable": true, "SignatureValidationFailed": true,
}

// wait sets the reason why the container is not running, and the time of the next start.
func (c *container) wait(reason, message string, until time.Time) {
	c.waitReason, c.message, c.retryAt, c.missingUntil = reason, message, until, time.Time{}
}
