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

// decision is the decision about a container that should be running: start it if the
// reason is empty, else wait.
type decision struct {
	until           time.Time
	reason, message string
}

// decide decides about a container. If it decides to start, the back-off counts that as
// a start, so the caller must start.
func (a *Agent) decide(now time.Time, c *container) decision {
	if now.Before(c.missingUntil) {
		return decision{c.missingUntil, c.waitReason, c.message}
	}
	wait, message, err := kuberuntime.DoBackOff(a.starting, a.o.Recorder, a.o.Pod, c.spec, c.statuses(), a.o.ContainerBackOff, now)
	if !wait {
		return decision{}
	}
	until, _ := kuberuntime.MinBackoffExpiration(err)
	if c.waitReason != "" {
		return decision{until, c.waitReason, c.message} // The error of the start explains more than CrashLoopBackOff.
	}
	return decision{until, kuberuntime.ErrCrashLoopBackOff.Error(), message}
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
		now := a.now()
		d := a.decide(now, c)
		if d.reason == "" {
			a.start(now, c)
			started = true
			continue
		}
		c.waitReason, c.message, c.retryAt = d.reason, d.message, d.until
		next = earlier(next, d.until)
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

// start starts a container after decide.
func (a *Agent) start(now time.Time, c *container) {
	restarts := 0
	if i := c.instance; i != nil {
		restarts = i.Restarts + 1
		if !c.old {
			c.due, c.timed = i.FinishedAt, &c.restarts
			if c.failedAt.After(c.due) {
				c.due = c.failedAt
			}
			if c.retryAt.After(c.due) {
				c.restarts.Waited += c.retryAt.Sub(c.due)
				c.due = c.retryAt
			}
		}
	}
	c.wait("", "", time.Time{})
	if c.hook = nil; c.spec.Lifecycle != nil && c.spec.Lifecycle.PostStart != nil {
		c.hook = &startHook{}
	}
	_, err := a.o.Runtime.Start(a.starting, c.spec, restarts)
	if err != nil {
		c.hook = nil
	}
	if err != nil && a.starting.Err() == nil {
		a.startFailed(a.now(), c, err)
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
	// The result is not needed: decide asks the back-off again.
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
