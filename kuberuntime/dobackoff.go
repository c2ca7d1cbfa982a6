// SPDX-License-Identifier: Apache-2.0

package kuberuntime

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	backoff "github.com/kubelet-backoff/kubelet-backoff/backoff"
)

// ContainerState is the state of an instance of a container as the container
// runtime has it. The values are those of pkg/kubelet/container.
type ContainerState string

// The states of an instance. One that is Unknown may be running.
const (
	ContainerStateCreated ContainerState = "created"
	ContainerStateRunning ContainerState = "running"
	ContainerStateExited  ContainerState = "exited"
	ContainerStateUnknown ContainerState = "unknown"
)

// ContainerStatus is what is known of one instance of a container, be it the
// present one or an earlier one.
type ContainerStatus struct {
	// Name is the container's name in the pod.
	Name  string
	State ContainerState
	// ExitCode is valid for an exited instance. It does not matter for the
	// back-off.
	ExitCode int
	// StartedAt and FinishedAt are zero, or the Unix epoch, where the runtime
	// does not know.
	StartedAt, FinishedAt time.Time
	// RestartCount is how many instances there were before this one.
	RestartCount int
}

// NewBackOff returns the back-off of a node's containers: delays from initial to
// max, and a reset after a run of more than backoff.ContainerResetPeriod. With
// delayFirst the first restart waits too (kubernetes/kubernetes#133472). It
// takes the place of what NewMainKubelet of pkg/kubelet puts together.
func NewBackOff(c clock.Clock, initial, max time.Duration, delayFirst bool) *backoff.Backoff {
	b := backoff.NewBackOff(initial, max)
	b.Clock = c
	b.HasExpiredFunc = backoff.FlatReset(backoff.ContainerResetPeriod)
	b.DelayFirstRestart = delayFirst
	return b
}

// BackOffStartContainer is the reason of the event that DoBackOff records.
const BackOffStartContainer = "BackOff"

// DoBackOff tells whether the container, which is about to be started, has to
// wait at the time now. If so it returns true, a message for people and a
// *BackoffError that wraps ErrCrashLoopBackOff and has the time of the retry;
// if not, the container is to be started, for its back-off has advanced.
//
// The statuses are those of all instances in the pod as they were when the
// start was decided; earlier instances count for nothing. The delay runs from
// the exit of the newest instance, or from now when that one had not exited,
// because whoever starts a container whose last instance was running has just
// killed it. A container without instances never waits.
//
// It corrects doBackOff of pkg/kubelet/kuberuntime: same event, same texts, but
// the event comes once for each wait, and a container that was just killed
// waits as one that exited.
func DoBackOff(ctx context.Context, now time.Time, recorder record.EventRecorder, pod *v1.Pod, container *v1.Container, statuses []ContainerStatus, backOff *backoff.Backoff) (bool, string, error) {
	eventTime, ran := lastExit(container.Name, statuses, now)
	if !ran {
		// Its instances may have been removed while it waited.
		backOff.EndWaitAt(Key(pod, container), now)
		return false, "", nil
	}
	logger := klog.FromContext(ctx)
	d := backOff.DecideAt(Key(pod, container), eventTime, now)
	logger.V(3).Info("Checked back-off of container", "pod", klog.KObj(pod), "containerName", container.Name,
		"allowed", d.Allowed, "attempt", d.Attempt, "delay", d.Delay, "reset", d.Reset)
	if d.Allowed {
		return false, "", nil
	}
	podName := fmt.Sprintf("%s_%s(%s)", pod.Name, pod.Namespace, pod.UID)
	if d.FirstWait {
		recorder.Eventf(containerRef(pod, container), v1.EventTypeWarning, BackOffStartContainer,
			"Back-off restarting failed container %s in pod %s", container.Name, podName)
	}
	message := fmt.Sprintf("back-off %s restarting failed container=%s pod=%s", d.Delay, container.Name, podName)
	return true, message, NewBackoffError(ErrCrashLoopBackOff, d.RetryAt)
}

// lastExit returns when the newest instance of the container exited, and false
// if there is none that ever ran.
func lastExit(name string, statuses []ContainerStatus, now time.Time) (time.Time, bool) {
	var newest *ContainerStatus
	for i := range statuses {
		s := &statuses[i]
		if s.Name == name && s.State != ContainerStateCreated && (newest == nil || newer(s, newest)) {
			newest = s
		}
	}
	switch {
	case newest == nil:
		return time.Time{}, false
	case newest.State == ContainerStateExited:
		return newest.FinishedAt, true
	default:
		return now, true
	}
}

// newer tells whether a is a later instance than b. Agents that do not count
// restarts have only the times; of an instance that has not finished, nothing
// is later.
func newer(a, b *ContainerStatus) bool {
	if a.RestartCount != b.RestartCount {
		return a.RestartCount > b.RestartCount
	}
	if a.State != b.State {
		return b.State == ContainerStateExited
	}
	return a.FinishedAt.After(b.FinishedAt)
}

// containerRef refers to a container within its pod, as the kubelet's events do.
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
