// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	backoff "github.com/kubelet-backoff/kubelet-backoff/backoff"
)

// NewBackOff returns the back-off of a node's containers. It has the delays of
// curve, and resets after a run of more than backoff.ContainerResetPeriod. It
// replaces the back-off that NewMainKubelet of pkg/kubelet creates.
func NewBackOff(c clock.Clock, curve backoff.Curve) *backoff.Backoff {
	b := backoff.NewBackOff(curve.Initial, curve.Max)
	b.Clock = c
	b.HasExpiredFunc = backoff.FlatReset(backoff.ContainerResetPeriod)
	b.DelayFirstRestart = curve.DelayFirst
	return b
}

// BackOffStartContainer is the reason of the event that DoBackOff records.
const BackOffStartContainer = "BackOff"

// EventRecorder records an event of an object. It is one method of client-go's
// record.EventRecorder.
type EventRecorder interface {
	Eventf(object runtime.Object, eventtype, reason, messageFmt string, args ...interface{})
}

// DoBackOff reports whether a container that is about to be started has to wait at
// the time now. If so, it returns true, a message for people and a *BackoffError.
// The error wraps ErrCrashLoopBackOff and holds the time of the retry. Otherwise
// the caller must start the container, and the back-off has advanced if the
// statuses have an exit. Pass the error of that start to StartFailed.
//
// The statuses must be those of all instances in the pod from the time when the
// start was decided. Only the newest instance of the container matters, the one with the
// highest RestartCount, and one that was created and never started does not. The delay counts from its
// exit. If it has not exited, the delay counts from now: a caller that starts a
// container with a running instance has just killed it. Such a container waits only
// if it is restarted regardless of its exit code. Otherwise it may have exited with
// 0 when it was killed, and nobody would start it after the wait. This depends on
// the container's own restart policy, if it has one. A node that does not honor
// those must leave it out. After an instance that was replaced, the container starts at
// once, and its back-off starts over. A container without instances waits only if its
// last start failed. A nil recorder records nothing.
//
// An exit with a code that is ignored ([backoff.KeyRules]) is no failure, and no event. So
// if the rules of the key ignore any, a container that would wait after it was killed first
// waits until now: the next sync knows its exit code.
//
// DoBackOff corrects doBackOff of pkg/kubelet/kuberuntime and keeps its error
// texts. There are three differences. The event comes once for each wait and
// contains its length. A container that was just killed waits like one that exited.
// A container whose start failed waits too.
func DoBackOff(ctx context.Context, recorder EventRecorder, pod *v1.Pod, container *v1.Container, statuses []ContainerStatus, backOff *backoff.Backoff, now time.Time) (bool, string, error) {
	key := Key(pod, container)
	var d backoff.Decision
	switch last := newest(container.Name, statuses, false); {
	case last == nil:
		// Its instances may have been removed while it waited.
		d = backOff.DecideStart(key, now)
	case last.Replaced:
		// With a key, the exit would wait if this start failed before it created anything.
		backOff.Reset(key)
		d = backOff.DecideStart(key, now)
	case last.State == ContainerStateExited:
		last.recordStart(backOff, key, now)
		d = backOff.DecideExit(key, last.ExitCode, last.FinishedAt, now)
	case !alwaysRestarts(pod, container):
		d = backOff.Force(key, now)
	case last.State == ContainerStateRunning && ignoresExits(backOff, key):
		return true, message(pod, container, d), NewBackoffError(ErrCrashLoopBackOff, now)
	default:
		last.recordStart(backOff, key, now)
		d = backOff.Decide(key, last.exit(), now)
	}
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "pod", klog.KObj(pod), "containerName", container.Name)
	logger.V(3).Info("Checked back-off of container",
		"allowed", d.Allowed, "attempt", d.Attempt, "delay", d.Delay, "retryAt", d.RetryAt, "reset", d.Reset)
	switch {
	case d.Allowed && d.Delay > 0 && !d.Again:
		logger.V(2).Info("Container leaves back-off", "attempt", d.Attempt, "delay", d.Delay, "late", now.Sub(d.RetryAt))
	case d.FirstWait:
		logger.V(2).Info("Container waits in back-off", "attempt", d.Attempt, "delay", d.Delay, "retryAt", d.RetryAt)
		if recorder != nil {
			recorder.Eventf(containerRef(pod, container), v1.EventTypeWarning, BackOffStartContainer,
				"Back-off restarting failed container %s in pod %s: waiting %s, next start at %s",
				container.Name, podName(pod), d.Delay, d.RetryAt.UTC().Format(time.RFC3339))
		}
	}
	if d.Allowed {
		return false, "", nil
	}
	return true, message(pod, container, d), NewBackoffError(ErrCrashLoopBackOff, d.RetryAt)
}

// ignoresExits reports whether the rules of the key ignore any exit code.
func ignoresExits(backOff *backoff.Backoff, key string) bool {
	if backOff.RulesOf == nil {
		return false
	}
	rules := backOff.RulesOf(key)
	return rules != nil && len(rules.Ignored) > 0
}

// InBackOff reports whether DoBackOff would make the container wait, and returns
// its message. It grants no start and begins no wait. Use it for a status that is
// written before the start is decided. It returns false for a container whose
// newest instance has not exited.
func InBackOff(pod *v1.Pod, container *v1.Container, statuses []ContainerStatus, backOff *backoff.Backoff, now time.Time) (bool, string) {
	last := newest(container.Name, statuses, false)
	if last == nil || last.State != ContainerStateExited {
		return false, ""
	}
	key := Key(pod, container)
	last.recordStart(backOff, key, now)
	d := backOff.PeekExit(key, last.ExitCode, last.FinishedAt, now)
	if d.Allowed {
		return false, ""
	}
	return true, message(pod, container, d)
}

// Due reports whether DoBackOff would allow a restart of the container at the
// time now. A start is a restart if the container exited, or if two starts in a row
// failed. A container whose newest instance has not exited was just killed and must not
// be delayed: if it ended with 0, nobody might start it later. Due grants no
// start and begins no wait.
func Due(pod *v1.Pod, container *v1.Container, statuses []ContainerStatus, backOff *backoff.Backoff, now time.Time) bool {
	key, last := Key(pod, container), newest(container.Name, statuses, false)
	switch {
	case last == nil:
		return backOff.Get(key) > 0 && backOff.Peek(key, time.Time{}, now).Allowed
	case last.State == ContainerStateExited:
		last.recordStart(backOff, key, now)
		return backOff.PeekExit(key, last.ExitCode, last.FinishedAt, now).Allowed
	default:
		return false
	}
}

// StartFailed records that a start allowed by DoBackOff failed with err, and
// returns the error to report. A nil err changes nothing, and neither does an error of
// DoBackOff: the start was not allowed.
//
// If created is true, the failed attempt counts as an exit (CreateContainerError,
// RunContainerError, a failed postStart hook). The result is a *BackoffError that
// wraps err and holds the time of the next attempt. If created is false, the start
// does not count, and the result is err (CreateContainerConfigError, an image that
// cannot be pulled). The missing object may appear at any time, so the ordinary
// retry after an error is right. Upstream's kubelet retries both kinds every 10 to
// 15 seconds without end.
func StartFailed(pod *v1.Pod, container *v1.Container, created bool, err error, backOff *backoff.Backoff, now time.Time) error {
	switch {
	case err == nil, refused(err):
		return err
	case created:
		return NewBackoffError(err, backOff.Fail(Key(pod, container), now).RetryAt)
	default:
		backOff.GiveBack(Key(pod, container), now)
		return err
	}
}

// refused reports whether err is DoBackOff's, perhaps wrapped.
func refused(err error) bool {
	for ; err != nil; err = errors.Unwrap(err) {
		if b, ok := err.(*BackoffError); ok {
			return b != nil && b.err == ErrCrashLoopBackOff
		}
	}
	return false
}

func message(pod *v1.Pod, container *v1.Container, d backoff.Decision) string {
	return fmt.Sprintf("back-off %s restarting failed container=%s pod=%s", d.Delay, container.Name, podName(pod))
}

func podName(pod *v1.Pod) string {
	return fmt.Sprintf("%s_%s(%s)", pod.Name, pod.Namespace, pod.UID)
}

// alwaysRestarts reports whether the container is restarted regardless of its exit
// code. This is false for an init container that is not a sidecar.
func alwaysRestarts(pod *v1.Pod, container *v1.Container) bool {
	if own := container.RestartPolicy; own != nil {
		return *own == v1.ContainerRestartPolicyAlways
	}
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == container.Name {
			return false
		}
	}
	// The default of the API is Always.
	return pod.Spec.RestartPolicy == v1.RestartPolicyAlways || pod.Spec.RestartPolicy == ""
}

// newest returns the newest instance of the container that ever ran, or that was created
// and never ran, or nil.
func newest(name string, statuses []ContainerStatus, created bool) *ContainerStatus {
	var newest *ContainerStatus
	for i := range statuses {
		s := &statuses[i]
		if s.Name == name && (s.State == ContainerStateCreated) == created && (newest == nil || newer(s, newest)) {
			newest = s
		}
	}
	return newest
}

// exit returns when the instance exited. It returns zero if that is unknown: the
// instance may have been killed a moment ago.
func (s *ContainerStatus) exit() time.Time {
	if s.State != ContainerStateExited {
		return time.Time{}
	}
	return s.FinishedAt
}

// recordStart tells the back-off when the instance started. If an instance ends at once, a
// runtime may take the time of its start after that of its exit. The start then counts
// from the decision, so that the exit is still a new one.
func (s *ContainerStatus) recordStart(backOff *backoff.Backoff, key string, now time.Time) {
	if exit := s.exit(); exit.Unix() <= 0 || s.StartedAt.Before(exit) {
		backOff.Started(key, s.StartedAt, now)
	}
}

// newer reports whether a is a later instance than b. Agents that do not count
// restarts have only the times. No instance is later than one that has not
// finished.
func newer(a, b *ContainerStatus) bool {
	if a.RestartCount != b.RestartCount {
		return a.RestartCount > b.RestartCount
	}
	if a.State != b.State {
		return b.State == ContainerStateExited
	}
	if a.FinishedAt.Unix() <= 0 || b.FinishedAt.Unix() <= 0 {
		return a.StartedAt.After(b.StartedAt)
	}
	return a.FinishedAt.After(b.FinishedAt)
}

// containerRef returns a reference to a container in its pod, as in the kubelet's
// events.
func containerRef(pod *v1.Pod, container *v1.Container) *v1.ObjectReference {
	return &v1.ObjectReference{
		Kind:            "Pod",
		APIVersion:      "v1",
		Namespace:       pod.Namespace,
		Name:            pod.Name,
		UID:             pod.UID,
		ResourceVersion: pod.ResourceVersion,
		FieldPath:       fieldPath(pod, container.Name),
	}
}

func fieldPath(pod *v1.Pod, name string) string {
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == name {
			return "spec.containers{" + name + "}"
		}
	}
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == name {
			return "spec.initContainers{" + name + "}"
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if pod.Spec.EphemeralContainers[i].Name == name {
			return "spec.ephemeralContainers{" + name + "}"
		}
	}
	return "implicitly required container " + name
}
