// SPDX-License-Identifier: Apache-2.0

package backoff

import (
	"cmp"
	"math"
	"time"
)

// backoffEntry is what is known of a key, in 32 bytes without pointers. The fields last and from,
// and the argument at of the methods, are distances from epoch on the monotonic clock.
type backoffEntry struct {
	// last is when the last start was allowed, took effect or failed. The length of a
	// run is measured from it.
	last time.Duration
	// event identifies the event that the key waits after, or if it does not wait, the last
	// answered event. Events are compared by this and not by their times, so that a step of the
	// wall clock does not change a wait.
	event time.Duration
	// from depends on the state. In waiting, it is when the event happened, as far as a check
	// could know, and not before last. In running and granted, it is what the wall clock showed at last, as a distance
	// from the Unix epoch.
	from time.Duration
	// attempts counts the advances since the last reset. It is 0 only if the first
	// start failed or was given back, or if ignored is true.
	attempts int32
	state    state
	// ignored reports, if attempts is 0, whether an exit that was ignored set it to that.
	ignored bool
	// seen reports whether a check has found that the key has to wait, since the state
	// or the event that it waits after last changed.
	seen bool
}

// state is what a key does. The package comment has the table.
type state uint8

const (
	running state = iota
	granted
	// waiting: an event came after the last start, and no start has answered it.
	waiting
	// failed: a start is due one delay after last. It follows no event.
	failed
	// givenBack: a start is due, and its delay has passed.
	givenBack
)

// due reports whether a start is due that follows no event.
func (s state) due() bool { return s == failed || s == givenBack }

const maxAttempts = math.MaxInt32

// epoch is the origin of all stored times. No decision depends on its value.
var epoch = time.Now()

// entryOf returns a copy of an entry, or the zero entry for nil.
func entryOf(e *backoffEntry) backoffEntry {
	if e == nil {
		return backoffEntry{}
	}
	return *e
}

// since returns how long ago last was, and waited how long ago from was.
func (e *backoffEntry) since(at time.Duration) time.Duration { return saturatingSub(at, e.last) }
func (e *backoffEntry) waited(at time.Duration) time.Duration {
	return max(saturatingSub(at, e.from), 0)
}

// question holds the arguments of a decision.
type question struct {
	// now is the current time, and at its distance from epoch.
	now time.Time
	at  time.Duration
	// event identifies the event, and age is how long ago it was.
	event, age time.Duration
	// answered is true if the event is not later than last: the wait counts from last.
	answered bool
	// ignored is true if the event is an exit that the key's rules ignore.
	ignored bool
}

// see sets the question's event to the one at eventTime, and reports whether its age is
// known: the time is known and not in the future.
func (q *question) see(eventTime time.Time) (known bool) {
	q.event, q.age = wall(eventTime), q.now.Sub(eventTime)
	return q.event != unknownEvent && q.age >= 0
}

// look sets the question's event for a method of client-go. An event at an unknown time
// counts as happening at the last start.
func (e *backoffEntry) look(q *question, eventTime time.Time) {
	switch known := q.see(eventTime); {
	case known:
	case q.event == unknownEvent:
		q.age = max(e.since(q.at), 0)
	default:
		q.age = 0
	}
}

// answer sets the question's event for Decide. The last start answered its own event and all
// earlier ones: they count from that start. An event before the one that the key waits after changes
// nothing, unless the time of the latter was unknown. e may be nil.
func (e *backoffEntry) answer(q *question, eventTime time.Time) {
	q.event = wall(eventTime)
	if e != nil && q.event == e.event && q.event != unknownEvent {
		// Most checks are about the same event as the one before. They need no see, which is slow.
		if e.state == waiting {
			q.age = e.waited(q.at)
		} else {
			q.age, q.answered = max(e.since(q.at), 0), true
		}
		return
	}
	known := q.see(eventTime)
	if e == nil {
		if !known {
			q.age = 0
		}
		return
	}
	// last is in the future if a call with a later time overtook this one, or if the
	// clock stepped back and has no monotonic reading.
	since := max(e.since(q.at), 0)
	switch {
	case e.state == waiting && (!known || since < q.age):
		q.age = e.waited(q.at)
	case e.state == waiting && e.event != unknownEvent:
		q.age = min(q.age, e.waited(q.at))
	case known && since < q.age, e.state.due() && (!known || since == q.age):
		// The answered event is remembered: after a step of the wall clock it may look later.
		q.event, q.age, q.answered = cmp.Or(q.event, e.event), since, true // unknownEvent is 0
	case known:
	default:
		q.age = 0
	}
}

// wait records that the key waits after the question's event.
func (e *backoffEntry) wait(q *question) {
	from := saturatingSub(q.at, q.age)
	switch {
	case q.answered && e.state == waiting:
	case q.answered:
		e.event = q.event
	case e.state != waiting, q.event != e.event && q.event != unknownEvent && from > e.from:
		e.state, e.event, e.from, e.seen = waiting, q.event, from, false
	case e.event == unknownEvent, q.event > wall(q.now):
		// This stamp of the same exit will be in the past later.
		e.event, e.from = q.event, from
	}
	// These are in the future only if the clock stepped back and has no monotonic
	// reading. The size of the step is unknown, so the wait counts from now.
	e.last = min(e.last, q.at)
	if e.state == waiting {
		e.from = min(e.from, q.at)
	}
}

// advance moves the key to its next delay and records the event as answered.
func (e *backoffEntry) advance(q *question) {
	e.attempts = min(e.attempts, maxAttempts-1) + 1
	if q.ignored {
		e.attempts = 0
	}
	e.event = q.event
	e.start(granted, q)
}

// start records a start.
func (e *backoffEntry) start(s state, q *question) {
	e.last, e.from, e.state, e.seen = q.at, wall(q.now), s, false
}

// monotonic returns the distance of t from epoch. It uses the monotonic clock if t
// has a reading of it, and the wall clock otherwise.
func monotonic(t time.Time) time.Duration { return t.Sub(epoch) }

// unknownEvent is an event at or before the Unix epoch.
const unknownEvent time.Duration = 0

// wall returns the distance of t from the Unix epoch on the wall clock, clamped to
// the range of time.Duration, or unknownEvent.
func wall(t time.Time) time.Duration {
	const most = math.MaxInt64/int64(time.Second) - 1
	s := t.Unix()
	if s <= 0 {
		return unknownEvent
	}
	return time.Duration(min(s, most))*time.Second + time.Duration(t.Nanosecond())
}

// saturatingSub returns a-b, clamped to ±math.MaxInt64 so that its negation does not
// overflow either.
func saturatingSub(a, b time.Duration) time.Duration {
	d := a - b
	switch {
	case b > 0 && d > a:
		return -math.MaxInt64
	case b < 0 && d < a:
		return math.MaxInt64
	}
	return max(d, -math.MaxInt64)
}
