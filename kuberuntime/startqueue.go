// SPDX-License-Identifier: Apache-2.0

package kuberuntime

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	backoff "github.com/kubelet-backoff/kubelet-backoff/backoff"
)

// How long a start counts at most: one that hangs must not hold up others for ever.
const (
	// startLimit is for a start that the container runtime has been asked for.
	startLimit = 5 * time.Second
	// comeLimit is for a restart whose turn it is and that does nothing yet. It is far
	// more than the sync of a pod takes to come to its containers.
	comeLimit = time.Second
	// comeLate is how much later than that it still has its turn.
	comeLate = time.Minute
)

// StartQueue orders the starts of a node's containers, so that a first start finds
// the container runtime busy with few restarts. First starts never wait. Of the
// restarts as many as Limit are under way at once, and a quarter of that, but one at
// least, while a first start is. The others wait, and go on in the order in which
// they came. One that comes late to its turn goes on at once, so that after a stall
// there may be more for a moment. A K names a start. The zero value has a limit of
// one. A StartQueue has no lock and no clock.
type StartQueue[K comparable] struct {
	// Limit is how many restarts may be under way at once.
	Limit int

	// starts has those under way, and the restarts whose turn it is.
	starts map[K]start
	// waiting has the restarts that wait, in their order. A node has some hundred
	// containers: to look through them costs nothing beside a start.
	waiting []K
}

// start is a start that has not ended.
type start struct {
	first bool
	// waited is true for a restart whose turn it is after a wait.
	waited bool
	// until is when it ceases to count.
	until time.Time
}

// Restart reports whether the restart k may go on at the time now, and if so whether
// it had to wait before. It counts from then on, for a short time until Begin.
// Otherwise it waits, until Next returns it.
func (q *StartQueue[K]) Restart(k K, now time.Time) (ok, waited bool) {
	s, called := q.starts[k]
	if !called && (len(q.waiting) > 0 || !q.room(now)) {
		if !slices.Contains(q.waiting, k) {
			q.waiting = append(q.waiting, k)
		}
		return false, false
	}
	q.count(k, start{until: now.Add(comeLimit)})
	return true, s.waited
}

// Begin notes that the container runtime has been asked for the start k. It counts
// until End, or until it has taken too long.
func (q *StartQueue[K]) Begin(k K, first bool, now time.Time) {
	q.count(k, start{first: first, until: now.Add(startLimit)})
}

// End notes that the start k has ended, well or not, or will not be made.
func (q *StartQueue[K]) End(k K) {
	delete(q.starts, k)
}

// Next returns a restart that waits no more because it is its turn, or false if there
// is none. Have Restart called for it soon, or else End. Call Next after everything
// else, until it returns false, and at the time that Expiry returns.
func (q *StartQueue[K]) Next(now time.Time) (k K, ok bool) {
	if len(q.waiting) == 0 || !q.room(now) {
		return k, false
	}
	k = q.waiting[0]
	q.waiting = slices.Delete(q.waiting, 0, 1)
	q.count(k, start{waited: true, until: now.Add(comeLimit)})
	return k, true
}

// Expiry returns when the next start ceases to count because it takes too long, or
// false if nothing waits for that.
func (q *StartQueue[K]) Expiry(now time.Time) (at time.Time, ok bool) {
	if len(q.waiting) == 0 {
		return at, false
	}
	for _, s := range q.starts {
		if s.until.After(now) && (!ok || s.until.Before(at)) {
			at, ok = s.until, true
		}
	}
	return at, ok
}

// room reports whether one more restart may be under way.
func (q *StartQueue[K]) room(now time.Time) bool {
	limit, restarts := q.Limit, 0
	for k, s := range q.starts {
		switch late := now.Sub(s.until); {
		case late >= comeLate:
			delete(q.starts, k)
		case late >= 0:
		case s.first:
			limit = q.Limit / 4
		default:
			restarts++
		}
	}
	return restarts < max(limit, 1)
}

func (q *StartQueue[K]) count(k K, s start) {
	if q.starts == nil {
		q.starts = map[K]start{}
	}
	q.starts[k] = s
}

// RestartDue reports whether DoBackOff would start the container at the time now, and
// that is a restart: the container exited, or two starts in a row failed. One whose
// newest instance has not exited was killed a moment ago, and may not be put off: if it
// ended with 0, nobody might start it later. Nothing is granted, and no wait begins.
func RestartDue(pod *v1.Pod, container *v1.Container, statuses []ContainerStatus, backOff *backoff.Backoff, now time.Time) bool {
	key, last := Key(pod, container), newest(container.Name, statuses)
	switch {
	case last == nil:
		return backOff.Get(key) > 0 && backOff.PeekAt(key, time.Time{}, now).Allowed
	case last.State == ContainerStateExited:
		backOff.Started(key, last.StartedAt, now)
		return backOff.PeekAt(key, last.exit(), now).Allowed
	default:
		return false
	}
}
