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

// missingRetry is when a container is started again of which nothing could be
// created: backOffPeriod of pkg/kubelet, which adds up to half of it.
const missingRetry = 10 * time.Second

// decision says how to go on with a container that should run and does not:
// start it if the reason is empty, and else wait until then.
type decision struct {
	until           time.Time
	reason, message string
}

// decide decides about a container. The back-off takes a decision to start for
// a start that was made.
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
		return decision{until, c.waitReason, c.message} // What its start failed of says more.
	}
	return decision{until, kuberuntime.ErrCrashLoopBackOff.Error(), message}
}

// statuses has the instance whose exit the container's back-off counts from.
func (c *container) statuses() []kuberuntime.ContainerStatus {
	i := c.instance
	if i == nil || c.old {
		return nil
	}
	return []kuberuntime.ContainerStatus{{
		Name: c.Name, State: kuberuntime.ContainerState(i.State), ExitCode: int(i.ExitCode), StartedAt: i.StartedAt, FinishedAt: i.FinishedAt, RestartCount: i.Restarts,
	}}
}

// startAll starts containers, and a sandbox for them if need be. It returns when
// to try again those that have to wait, or zero.
func (a *Agent) startAll(o restartpod.Observation, list []int) (next time.Time) {
	if len(list) > 0 && o.SandboxLost {
		if err := a.o.Runtime.CreateSandbox(a.starting); err != nil {
			if a.starting.Err() == nil {
				a.fail("FailedCreatePodSandBox", "Failed to create pod sandbox: ", err)
			}
			return o.Now.Add(errorRetry)
		}
	}
	// Starts take time: without an order that turns, those at the end of the spec
	// would never have theirs while those before them fail at once.
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
			return o.Now.Add(errorRetry) // Run looks at once: the pod is deleted.
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
		return o.Now // What was started has a status, and may be waited for. What was not has a back-off.
	}
	return next
}

// ended is when the container's newest instance, or the attempt to start one,
// ended. It is zero if none has in this run of the pod.
func (c *container) ended() time.Time {
	if i := c.instance; i != nil && !c.old && i.FinishedAt.After(c.failedAt) {
		return i.FinishedAt
	}
	return c.failedAt
}

// start starts a container that decide said to start.
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

// startFailed notes that a container's start failed with err. After something was
// created the failed start counts as an exit, and the next one follows the curve.
// Before that the curve does not advance: somebody has to bring what is missing.
func (a *Agent) startFailed(now time.Time, c *container, err error) {
	reason, created := "CreateContainerError", true
	if w := (*WaitingError)(nil); errors.As(err, &w) {
		reason, created = w.Reason, !nothingCreated[w.Reason]
	}
	c.timed, c.failedAt = nil, now
	c.wait(reason, err.Error(), time.Time{})
	a.event(c, v1.EventTypeWarning, "Failed", "Error: %v", err)
	// What it returns says when decide has it started again.
	_ = kuberuntime.StartFailed(a.o.Pod, c.spec, created, err, a.o.ContainerBackOff, now)
	if !created {
		c.failedAt = now.Add(missingRetry)
		c.retryAt, c.missingUntil = c.failedAt, c.failedAt
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
	c.waitReason, c.message, c.retryAt, c.missingUntil = reason, message, until, time.Time{}
}
