// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"encoding/json"
	"time"

	v1 "k8s.io/api/core/v1"

	backoff "github.com/kubelet-backoff/kubelet-backoff/backoff"
)

// The annotations of a container in the container runtime. They keep the back-off of its
// start over a restart of the kubelet. Upstream's kubelet forgets every back-off on a
// restart (KEP-4603, "Feature Enablement and Rollback").
const (
	// ContainerBackOffAnnotation holds the back-off of the container.
	ContainerBackOffAnnotation = "io.kubernetes.container.restartBackOff"
	// PodBackOffAnnotation holds the back-off of the pod, for a pod that is restarted in
	// place.
	PodBackOffAnnotation = "io.kubernetes.pod.restartBackOff"
)

// savedBackOff is the value of an annotation, as JSON.
type savedBackOff struct {
	// Key is the key of the back-off.
	Key string `json:"key"`
	// Attempts is the field of backoff.KeyState after the start. It is at least 1.
	Attempts int `json:"attempts"`
	// Since is LastUpdate of backoff.KeyState. Only pods need it: the runtime knows
	// when an instance of a container started.
	Since time.Time `json:"since"`
}

// SaveBackOff returns the annotation for an instance that is about to be created. It
// holds the back-off of the key. It is empty for a first start. The annotation does
// not record whether the creation succeeds. So a restarted kubelet does not know of
// attempts that failed before there was an instance.
func SaveBackOff(backOff *backoff.Backoff, key string, now time.Time) string {
	state, known := backOff.Snapshot(key, now)
	if !known || state.Attempts == 0 {
		return ""
	}
	value, err := json.Marshal(savedBackOff{Key: key, Attempts: state.Attempts, Since: state.LastUpdate})
	if err != nil {
		return "" // The year of the time has more than four digits.
	}
	return string(value)
}

// lost returns the value that SaveBackOff encoded for the key. It returns false if the
// value is not valid or the key is known.
func lost(backOff *backoff.Backoff, key, value string, now time.Time) (saved savedBackOff, ok bool) {
	if _, known := backOff.Snapshot(key, now); known {
		return saved, false
	}
	err := json.Unmarshal([]byte(value), &saved)
	return saved, err == nil && saved.Key == key && saved.Attempts > 0
}

// RestoreBackOff restores the container's back-off to its state when the newest of the
// instances was started, and reports whether it did. If that instance has exited, the
// container waits from its exit. An instance that was created and never started counts
// only if there is no other: the container does not wait for the start that failed, and
// follows the same curve after it. RestoreBackOff does nothing if the key is already
// known, if the instance has no valid annotation for this container, if the reset rule
// would reset the back-off now, or if the wait ended more than
// [backoff.ContainerResetPeriod] ago. Without a valid annotation the exit counts
// as a first one, as after any restart of the kubelet. A time that is in the future or
// unknown to the runtime counts as now. Call RestoreBackOff before DoBackOff and
// InBackOff.
func RestoreBackOff(pod *v1.Pod, container *v1.Container, statuses []ContainerStatus, backOff *backoff.Backoff, now time.Time) bool {
	last := newest(container.Name, statuses, false)
	if last == nil {
		// The agent ended in the middle of a start, and GC has removed the instances
		// before it.
		last = newest(container.Name, statuses, true)
	}
	if last == nil || last.BackOff == "" {
		return false
	}
	key := Key(pod, container)
	saved, ok := lost(backOff, key, last.BackOff, now)
	if !ok {
		return false
	}
	ended := now
	if last.State == ContainerStateExited && isPast(last.FinishedAt, now) {
		ended = last.FinishedAt
	}
	state := backoff.KeyState{Attempts: saved.Attempts, LastUpdate: ended}
	if isPast(last.StartedAt, ended) {
		state.LastUpdate = last.StartedAt
	}
	if last.State == ContainerStateExited {
		// Mark it as waiting. Otherwise GC might take it for a running container and
		// remove it before the first check.
		state.WaitingSince = ended
	}
	if err := backOff.Restore(key, state, now); err != nil {
		return false
	}
	if d := backOff.Peek(key, ended, now); d.Reset || now.Sub(d.RetryAt) > backoff.ContainerResetPeriod {
		backOff.Reset(key)
		return false
	}
	return true
}

// RestorePodBackOff restores the back-off of a pod's key to its state when SaveBackOff
// returned saved, and reports whether it did. It does nothing for a known key or an
// invalid value. A time in the future counts as now.
func RestorePodBackOff(backOff *backoff.Backoff, key, saved string, now time.Time) bool {
	s, ok := lost(backOff, key, saved, now)
	if !ok {
		return false
	}
	if !isPast(s.Since, now) {
		s.Since = now
	}
	return backOff.Restore(key, backoff.KeyState{Attempts: s.Attempts, LastUpdate: s.Since}, now) == nil
}

// isPast reports whether t is known and not in the future.
func isPast(t, now time.Time) bool { return t.Unix() > 0 && !t.After(now) }
