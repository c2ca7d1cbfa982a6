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

// savedBackOff is the value of an annotation, as JSON. It has no times: when an
// instance started and finished is known to the runtime.
type savedBackOff struct {
	// Key is whose back-off it is.
	Key string `json:"key"`
	// Attempts is that of backoff.KeyState after the start. It is at least 1.
	Attempts int `json:"attempts"`
}

// SaveBackOff returns the value of an annotation for an instance that is about to be
// created under the back-off of the key. It is empty for a first start.
func SaveBackOff(backOff *backoff.Backoff, key string, now time.Time) string {
	state, known := backOff.SnapshotAt(key, now)
	if !known || state.Attempts == 0 {
		return ""
	}
	value, err := json.Marshal(savedBackOff{Key: key, Attempts: state.Attempts})
	if err != nil {
		return "" // The type has nothing that cannot be encoded.
	}
	return string(value)
}

// RestoreBackOff makes the container's back-off again what it was when the newest
// of the instances was started, and reports whether it did. It does nothing for a
// key that is known, and for an instance without a valid annotation for the very
// container: that is then a first exit, as to a kubelet that has been restarted.
// Call it before DoBackOff and InBackOff.
func RestoreBackOff(pod *v1.Pod, container *v1.Container, statuses []ContainerStatus, backOff *backoff.Backoff, now time.Time) bool {
	last := newest(container.Name, statuses)
	if last == nil || last.BackOff == "" {
		return false
	}
	ended := now
	if last.State == ContainerStateExited {
		ended = last.FinishedAt
	}
	return Restore(backOff, Key(pod, container), last.BackOff, last.StartedAt, ended, now)
}

// Restore is RestoreBackOff for any key: saved is the value of the annotation of an
// instance that started at startedAt and ran until ended, which is now if it runs.
// A time that the runtime does not know, or that is in the future, counts as ended
// or as now. What the reset rule would have forgotten by now is not restored.
func Restore(backOff *backoff.Backoff, key, saved string, startedAt, ended, now time.Time) bool {
	var s savedBackOff
	if err := json.Unmarshal([]byte(saved), &s); err != nil || s.Key != key || s.Attempts < 1 {
		return false
	}
	if _, known := backOff.SnapshotAt(key, now); known {
		return false
	}
	if ended.After(now) {
		ended = now
	}
	for _, t := range []time.Time{startedAt, ended, now} {
		if t.Unix() > 0 && !t.After(now) {
			startedAt = t
			break
		}
	}
	if err := backOff.RestoreAt(key, backoff.KeyState{Attempts: s.Attempts, LastUpdate: startedAt}, now); err != nil {
		return false
	}
	if d := backOff.PeekAt(key, ended, now); d.Reset || now.Sub(d.RetryAt) > backoff.ContainerResetPeriod {
		backOff.Reset(key)
		return false
	}
	return true
}
