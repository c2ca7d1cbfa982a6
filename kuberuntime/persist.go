// SPDX-License-Identifier: Apache-2.0

package kuberuntime

import (
	"encoding/json"
	"time"

	v1 "k8s.io/api/core/v1"

	backoff "github.com/kubelet-backoff/kubelet-backoff/backoff"
)

// The annotations of a container in the container runtime that keep the back-off
// under which it was started, over a restart of the kubelet. Upstream's kubelet
// forgets every back-off then (KEP-4603, "Feature Enablement and Rollback").
const (
	// ContainerBackOffAnnotation has the back-off of the container.
	ContainerBackOffAnnotation = "io.kubernetes.container.restartBackOff"
	// PodBackOffAnnotation has the back-off of the pod, for one that is restarted
	// in place.
	PodBackOffAnnotation = "io.kubernetes.pod.restartBackOff"
)

// savedBackOff is the value of an annotation, as JSON.
type savedBackOff struct {
	// Key is whose back-off it is.
	Key string `json:"key"`
	// Attempts is that of backoff.KeyState after the start. It is at least 1.
	Attempts int `json:"attempts"`
	// Since is LastUpdate of backoff.KeyState. It is for pods: when the instance of a
	// container started is known to the runtime.
	Since time.Time `json:"since"`
}

// SaveBackOff returns the value of an annotation for an instance that is about to be
// created under the back-off of the key. It is empty for a first start. What becomes
// of the instance's creation is in no annotation: a kubelet that is restarted does not
// know of attempts that failed before there was an instance.
func SaveBackOff(backOff *backoff.Backoff, key string, now time.Time) string {
	state, known := backOff.SnapshotAt(key, now)
	if !known || state.Attempts == 0 {
		return ""
	}
	value, err := json.Marshal(savedBackOff{Key: key, Attempts: state.Attempts, Since: state.LastUpdate})
	if err != nil {
		return "" // The year of the time has more than four digits.
	}
	return string(value)
}

// lost returns what SaveBackOff has put into value for the key, and false if that is
// nothing valid, or if the key is known.
func lost(backOff *backoff.Backoff, key, value string, now time.Time) (saved savedBackOff, ok bool) {
	if _, known := backOff.SnapshotAt(key, now); known {
		return saved, false
	}
	err := json.Unmarshal([]byte(value), &saved)
	return saved, err == nil && saved.Key == key && saved.Attempts > 0
}

// RestoreBackOff makes the container's back-off again what it was when the newest
// of the instances was started, and reports whether it did. If that has exited, the
// container waits from its exit. It does nothing for a key that is known, and for an
// instance without a valid annotation for the very container: that is then a first
// exit, as to a kubelet that has been restarted. Nor does it for what the reset rule
// would have forgotten by now. Times that the runtime does not know, or that are in
// the future, count as now. Call it before DoBackOff and InBackOff.
func RestoreBackOff(pod *v1.Pod, container *v1.Container, statuses []ContainerStatus, backOff *backoff.Backoff, now time.Time) bool {
	last := newest(container.Name, statuses)
	if last == nil || last.BackOff == "" {
		return false
	}
	key := Key(pod, container)
	saved, ok := lost(backOff, key, last.BackOff, now)
	if !ok {
		return false
	}
	ended, waiting := now, now
	if last.State == ContainerStateExited && isPast(last.FinishedAt, now) {
		// From before the exit, so that the first check of this agent still finds it new.
		ended, waiting = last.FinishedAt, last.FinishedAt.Add(-1)
	}
	state := backoff.KeyState{Attempts: saved.Attempts, LastUpdate: waiting}
	if isPast(last.StartedAt, now) {
		state.LastUpdate = last.StartedAt
	}
	if last.State == ContainerStateExited {
		// It waits, or GC might take it for one that runs and forget it before it is asked.
		state.WaitingSince = waiting
		if waiting.Before(state.LastUpdate) {
			state.WaitingSince = state.LastUpdate
		}
	}
	if err := backOff.RestoreAt(key, state, now); err != nil {
		return false
	}
	if d := backOff.PeekAt(key, ended, now); d.Reset || now.Sub(d.RetryAt) > backoff.ContainerResetPeriod {
		backOff.Reset(key)
		return false
	}
	return true
}

// RestorePodBackOff makes the back-off of the key, which is that of a pod, again what
// it was when SaveBackOff returned saved, and reports whether it did. It does nothing
// for a key that is known, and for what is not valid. A time in the future counts as
// now.
func RestorePodBackOff(backOff *backoff.Backoff, key, saved string, now time.Time) bool {
	s, ok := lost(backOff, key, saved, now)
	if !ok {
		return false
	}
	if !isPast(s.Since, now) {
		s.Since = now
	}
	return backOff.RestoreAt(key, backoff.KeyState{Attempts: s.Attempts, LastUpdate: s.Since}, now) == nil
}

// isPast reports whether t is a time that can have been.
func isPast(t, now time.Time) bool { return t.Unix() > 0 && !t.After(now) }
