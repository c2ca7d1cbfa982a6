/*
Copyright The Kubernetes Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package kuberuntime

import (
	"slices"
	"time"
)

// How long a start counts at most. A start that hangs must not block others for ever.
const (
	// startLimit is for a start that has been requested from the container runtime.
	startLimit = 5 * time.Second
	// comeLimit is for a restart that may go on but has not begun. It is far longer
	// than a pod's sync takes to reach its containers.
	comeLimit = time.Second
	// comeLate is how long after comeLimit the restart may still go on.
	comeLate = time.Minute
)

// startQueue orders the starts of a node's containers, so that a first start finds the
// container runtime busy with few restarts. First starts never wait. At most Limit
// restarts run at once. While a first start runs, the limit is a quarter of that, but
// at least one. The other restarts wait and go on in the order of their arrival. A
// restart that is late for its turn goes on at once, so after a stall more restarts may
// run for a moment. A K identifies a start. The zero value has a limit of one. A
// startQueue has no lock and no clock.
type startQueue[K comparable] struct {
	// Limit is the maximum number of concurrent restarts.
	Limit int

	// starts holds the starts that run, and the restarts that may go on.
	starts map[K]start
	// waiting holds the waiting restarts in their order. A node has a few hundred
	// containers, so a linear search costs nothing compared to a start.
	waiting []K
}

// start is a start that has not ended.
type start struct {
	first bool
	// waited is true for a restart that may go on after a wait.
	waited bool
	// until is when the start stops counting.
	until time.Time
}

// Restart reports whether the restart k may go on at the time now, and if so, whether
// it waited before. It then counts for a short time until Begin. Otherwise it waits
// until Next returns it.
func (q *startQueue[K]) Restart(k K, now time.Time) (ok, waited bool) {
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

// Begin records that the start k has been requested from the container runtime. The
// start counts until End, or until it takes too long.
func (q *startQueue[K]) Begin(k K, first bool, now time.Time) {
	q.count(k, start{first: first, until: now.Add(startLimit)})
}

// End records that the start k has succeeded or failed, or will not be made.
func (q *startQueue[K]) End(k K) {
	delete(q.starts, k)
}

// Next returns a waiting restart that may go on, or false if there is none. The caller
// must soon call Restart or End for it. Call Next after every other call, until it
// returns false, and at the time that Expiry returns.
func (q *startQueue[K]) Next(now time.Time) (k K, ok bool) {
	if len(q.waiting) == 0 || !q.room(now) {
		return k, false
	}
	k = q.waiting[0]
	q.waiting = slices.Delete(q.waiting, 0, 1)
	q.count(k, start{waited: true, until: now.Add(comeLimit)})
	return k, true
}

// Expiry returns when the next start stops counting because it takes too long. It
// returns false if nothing waits for that.
func (q *startQueue[K]) Expiry(now time.Time) (at time.Time, ok bool) {
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

// room reports whether one more restart may run.
func (q *startQueue[K]) room(now time.Time) bool {
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

func (q *startQueue[K]) count(k K, s start) {
	if q.starts == nil {
		q.starts = map[K]start{}
	}
	q.starts[k] = s
}
