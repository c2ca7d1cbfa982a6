// SPDX-License-Identifier: Apache-2.0

package asked

import (
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	backoff "github.com/kubelet-backoff/kubelet-backoff/backoff"
	"github.com/kubelet-backoff/kubelet-backoff/restart"
)

// MaxRestartsAnnotation is the annotation with the number of restarts in a row after which
// a pod ends.
const MaxRestartsAnnotation = "kubelet-backoff.github.io/max-restarts"

// ReasonRestartLimitExceeded is the reason in the status of a pod that has ended because of
// MaxRestartsAnnotation, and that of the event.
const ReasonRestartLimitExceeded = "RestartLimitExceeded"

// Limits ends the pods of a node that restart more often than they ask for. A nil *Limits
// ignores the annotations. The methods are safe for concurrent use.
//
// The restarts of each container count for themselves, and so do those of the whole pod:
// kubernetes/enhancements#3339 (KEP-3322) first added them up, and its reviewers preferred
// this. The count is that of the back-off. So a run that resets the back-off sets the count
// to 0, and it survives a restart of the agent as the back-off does.
type Limits struct {
	lock sync.Mutex
	pods map[types.UID]limited
}

// limited is what Limits knows of a pod.
type limited struct {
	// exceeded is the message of the pod's status, or empty if the pod goes on.
	exceeded string
	// reported is the invalid value that was last reported, as an error.
	reported string
	// at is when one of these last changed.
	at time.Time
}

// Exceed reports whether the pod ends, because a restart of the container would be one more
// than MaxRestartsAnnotation allows. Call it after each answer of restart.DoBackOff, except a
// wait until now, and do not start the container if it returns true. waits is that answer, and
// key is the key of the container in backOff. If container is empty, the restart is that of the pod
// (restartpod.Machine.BackOffKey), and waits reports whether it has to wait.
//
// So a pod ends as soon as the container has exited, and not after a wait. Exceed records an
// event when it returns true for the first time, and a warning for a value that is not a
// number, at most once in RestartAtInterval. recorder may be nil.
func (l *Limits) Exceed(recorder restart.EventRecorder, pod *v1.Pod, container string, backOff *backoff.Backoff, key string, waits bool, now time.Time) bool {
	value := pod.Annotations[MaxRestartsAnnotation]
	if l == nil || value == "" {
		return false
	}
	exceeds, e := l.exceed(pod.UID, value, container, restarts(container, backOff, key, waits, now), now)
	e.record(recorder, pod)
	return exceeds
}

// exceed is Exceed for the restart with the number n. It returns the event to record.
func (l *Limits) exceed(uid types.UID, value, container string, n int, now time.Time) (bool, event) {
	limit, invalid := parseMaxRestarts(value)
	l.lock.Lock()
	defer l.lock.Unlock()
	p := l.pods[uid]
	var e event
	switch {
	case p.exceeded != "":
		return true, e
	case invalid != nil && invalid.Error() != p.reported && (p.reported == "" || now.Sub(p.at).Abs() >= RestartAtInterval):
		p.reported = invalid.Error()
		e = event{v1.EventTypeWarning, EventInvalidAnnotation, p.reported}
	case invalid != nil || n <= limit:
		return false, e
	default:
		what := "Container " + container
		if container == "" {
			what = "The pod"
		}
		p.exceeded = fmt.Sprintf("%s was restarted %d times in a row, and annotation %s allows %d", what, n-1, MaxRestartsAnnotation, limit)
		e = event{v1.EventTypeWarning, ReasonRestartLimitExceeded, p.exceeded}
	}
	p.at = now
	maps.DeleteFunc(l.pods, func(_ types.UID, other limited) bool { return now.Sub(other.at) > remembered })
	if l.pods == nil {
		l.pods = map[types.UID]limited{}
	}
	l.pods[uid] = p
	return p.exceeded != "", e
}

// Exceeded returns the message for the status of a pod that ends, or "". The phase of that
// status is Failed, and its reason ReasonRestartLimitExceeded. Call Forget when the status is
// stored. Otherwise Limits remembers the pod for an hour at least.
func (l *Limits) Exceeded(uid types.UID) string {
	if l == nil {
		return ""
	}
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.pods[uid].exceeded
}

// Forget makes Limits forget what it knows of a pod. A static pod may come back with its UID.
func (l *Limits) Forget(uid types.UID) {
	if l != nil {
		l.lock.Lock()
		defer l.lock.Unlock()
		delete(l.pods, uid)
	}
}

// restarts returns the number of the restart that the back-off has just allowed or made wait,
// from 1 for the first one after a reset, or 0 for a start of a container that is not a
// restart.
func restarts(container string, b *backoff.Backoff, key string, waits bool, now time.Time) int {
	state, known := b.Snapshot(key, now)
	n := state.Attempts
	switch {
	case container != "" && !waits && !b.Granted(key):
		return 0
	case waits && (!state.Ignored || state.Due || !state.WaitingSince.IsZero()):
		n++ // Not after an exit that is ignored.
	}
	if known && b.DelayFirstRestart {
		n-- // The wait before the first restart has advanced the key.
	}
	return n
}

// ValidateMaxRestarts returns an error if MaxRestartsAnnotation has no effect because its
// value is not a number.
func ValidateMaxRestarts(pod *v1.Pod) field.ErrorList {
	if value := pod.Annotations[MaxRestartsAnnotation]; value != "" {
		if _, err := parseMaxRestarts(value); err != nil {
			return field.ErrorList{err}
		}
	}
	return nil
}

func parseMaxRestarts(value string) (int, *field.Error) {
	n, err := strconv.ParseUint(value[:min(len(value), maxValue)], 10, 31)
	if err != nil || len(value) > maxValue {
		return 0, field.Invalid(annotationPath(MaxRestartsAnnotation), shortened(value), "must be a number of restarts, such as 5")
	}
	return int(n), nil
}
