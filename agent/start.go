// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"errors"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/kuberuntime"
	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

// missingRetry is the time until the next start of a container of which nothing could
// be created: backOffPeriod of pkg/kubelet, which adds up to half of it.
const missingRetry = 10 * time.Second

// mayStart reports whether to start a container that should be running. If so, the
// back-off counts that as a start, so the caller must start it. Else it waits until
// retryAt.
func (a *Agent) mayStart(now time.Time, c *container) bool {
	if now.Before(c.missingUntil) {
		return false // startFailed has set the rest.
	}
	wait, message, err := kuberuntime.DoBackOff(a.starting, a.o.Recorder, a.o.Pod, c.spec, c.statuses(), a.o.ContainerBackOff, now)
	if !wait {
		return true
	}
	c.retryAt, _ = kuberuntime.MinBackoffExpiration(err)
	if c.waitReason == "" { // The error of a failed start explains more than CrashLoopBackOff.
		c.waitReason, c.message = kuberuntime.ErrCrashLoopBackOff.Error(), message
	}
	return false
}

// statuses returns the instance from whose exit the back-off counts, if any.
func (c *container) statuses() []kuberuntime.ContainerStatus {
	i := c.instance
	if i == nil || c.old {
		return nil
	}
	return []kuberuntime.ContainerStatus{{
		Name: c.Name, State: kuberuntime.ContainerState(i.State), ExitCode: int(i.ExitCode), StartedAt: i.StartedAt, FinishedAt: i.FinishedAt, RestartCount: i.Restarts,
	}}
}

// startAll starts containers, and a sandbox if there is none. It returns when to try
// those again that have to wait, or zero.
func (a *Agent) startAll(o restartpod.Observation, list []int) (next time.Time) {
	if len(list) > 0 && o.SandboxLost {
		if err := a.o.Runtime.CreateSandbox(a.starting); err != nil {
			if a.starting.Err() == nil {
				a.fail("FailedCreatePodSandBox", "Failed to create pod sandbox: ", err)
			}
			return o.Now.Add(errorRetry)
		}
	}
	// Starts take time. In the order of the spec the last containers would never start
	// while the first ones fail at once, so the one that exited first starts first.
	slices.SortStableFunc(list, func(i, j int) int {
		a, b := &a.containers[i], &a.containers[j]
		if a.Kind != restartpod.KindRegular || b.Kind != restartpod.KindRegular {
			return cmp.Compare(i, j)
		}
		return a.ended().Compare(b.ended())
	})
	started := false
	for _, i := range list {
		c := &a.containers[i]
		if a.starting.Err() != nil {
			return o.Now.Add(errorRetry) // The pod is being deleted. Run syncs at once.
		}
		if a.hooking() {
			break
		}
		if a.mayStart(a.now(), c) {
			a.start(c)
			started = true
		} else {
			next = earlier(next, c.retryAt)
		}
	}
	if started {
		return o.Now // The machine has to see the new instances. A container that was not started has a back-off.
	}
	return next
}

// ended returns the time of the last exit, or of the last failed start, in the current
// run of the pod. It is zero if there is none.
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
		restarts = c.instance.Restarts + 1
		if !c.old {
			c.timeRestart(&c.restarts, c.ended(), c.retryAt)
		}
	}
	c.wait("", "", time.Time{})
	if c.hook = nil; c.spec.Lifecycle != nil && c.spec.Lifecycle.PostStart != nil {
		c.hook = &startHook{}
	}
	if _, err := a.o.Runtime.Start(a.starting, c.spec, restarts); err != nil {
		c.hook = nil
		if a.starting.Err() == nil {
			a.startFailed(a.now(), c, err)
		}
	}
}

// timeRestart counts the wait in r, and makes the next start of the container count its
// lateness there: from the end of the back-off, or from the exit without one.
func (c *container) timeRestart(r *Restarts, exit, retryAt time.Time) {
	c.due, c.timed = exit, r
	if retryAt.After(exit) {
		c.due = retryAt
		r.Waited += retryAt.Sub(exit)
	}
}

// startFailed records a failed start. If something was created, the attempt counts as
// an exit and the next one follows the curve. If nothing was created, the curve does
// not advance, because somebody has to provide what is missing.
func (a *Agent) startFailed(now time.Time, c *container, err error) {
	reason, created := "CreateContainerError", true
	if w := (*WaitingError)(nil); errors.As(err, &w) {
		reason, created = w.Reason, !nothingCreated[w.Reason]
	}
	c.timed, c.failedAt = nil, now
	c.wait(reason, err.Error(), time.Time{})
	a.event(c, v1.EventTypeWarning, "Failed", "Error: %v", err)
	// The result is not needed: mayStart asks the back-off again.
	_ = kuberuntime.StartFailed(a.o.Pod, c.spec, created, err, a.o.ContainerBackOff, now)
	if !created {
		c.failedAt = now.Add(missingRetry)
		c.retryAt, c.missingUntil = c.failedAt, c.failedAt
	}
}

// nothingCreated has the reasons of pkg/kubelet/kuberuntime and pkg/kubelet/images for
// failed starts that created nothing.
var nothingCreated = map[string]bool{
	"CreateContainerConfigError": true, "PreCreateHookError": true,
	"ErrImageNeverPull": true, "ErrImagePull": true, "ImageInspectError": true, "ImagePullBackOff": true, "InvalidImageName": true,
	"RegistryUnavailable": true, "SignatureValidationFailed": true,
}

// wait sets why the container is not running, and until when.
func (c *container) wait(reason, message string, until time.Time) {
	c.waitReason, c.message, c.retryAt, c.missingUntil = reason, message, until, time.Time{}
}
