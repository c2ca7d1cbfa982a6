// SPDX-License-Identifier: Apache-2.0

package backoff

import (
	"math"
	"time"
)

// backoffEntry is the state of a key. The fields last and from, and the argument at
// of the methods, are distances from epoch on the monotonic clock. An entry takes 32
// bytes and has no pointers.
type backoffEntry struct {
	// last is when the key last advanced. A start without a decision and a failed
	// start set it too: the length of a run is measured from it.
	last time.Duration
	// event identifies the event that the key waits after, or else the event that the
	// last advance answered. from is the time of the event that the key waits after,
	// as far as it was known at the check, and is valid only while waiting. Events
	// are compared by event and not by from, so that a step of the wall clock does
	// not change a wait.
	event, from time.Duration
	// attempts counts the advances since the last reset. It is 0 only while the first
	// start is due.
	attempts int32
	waiting  bool
	// granted is true from an advance until it is given back or the start fails.
	granted bool
	// due is set from a failed or returned start until the next start. The next start
	// follows no new event: its wait counts from last.
	due due
	// ran is true from the time Started set last until the next advance. The start at
	// last is then known, and does not end a wait that began after it.
	ran bool
}

// due is the reason why a start without an event is due.
type due uint8

const (
	notDue due = iota
	dueFailed
	dueGivenBack
)

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

// since returns how long ago the key last advanced.
func (e *backoffEntry) since(at time.Duration) time.Duration {
	return saturatingSub(at, e.last)
}

// look sets the question's event to the one at eventTime. Its age is the best that is
// known.
func (e *backoffEntry) look(q *question, eventTime time.Time) {
	event, age := wall(eventTime), q.now.Sub(eventTime)
	known := event != unknownEvent && age >= 0
	switch {
	case e.waiting && (!known || event == e.event):
		age = max(saturatingSub(q.at, e.from), 0)
	case known:
	case e.due != notDue:
		age = max(e.since(q.at), 0)
	default:
		age = 0
	}
	q.event, q.age = event, age
}

// unanswered is look for Decide. The key's last advance answered its own event and
// all earlier ones: they count from that advance. An event before the one that the
// key waits after changes nothing, unless the time of the latter was unknown. e may
// be nil.
func (e *backoffEntry) unanswered(q *question, eventTime time.Time) {
	if e == nil {
		new(backoffEntry).look(q, eventTime)
		return
	}
	e.look(q, eventTime)
	since, waited := e.since(q.at), time.Duration(0)
	if e.waiting {
		waited = max(saturatingSub(q.at, e.from), 0)
	}
	if since < 0 {
		// Another call overtook this one, or the clock stepped back and has no
		// monotonic reading. In both cases the event counts from its first check.
		since = waited
	}
	if since < q.age || q.event != unknownEvent && q.event == e.event && !e.waiting {
		q.event, q.age = answeredEvent, since
	}
	if e.waiting && e.event != unknownEvent {
		q.age = min(q.age, waited)
	}
}

// noteWait records that the key waits after the event, and reports whether this wait
// is new. A wait is new if the event is later than the one that the key waits after.
func (e *backoffEntry) noteWait(q *question) (first bool) {
	from := saturatingSub(q.at, q.age)
	switch {
	case !e.waiting, q.event > 0 && q.event != e.event && from > e.from:
		e.waiting, e.event, e.from, first = true, q.event, from, true
	case q.event > 0 && e.event == unknownEvent:
		e.event, e.from = q.event, from
	}
	// from is later than now only if the clock stepped back and has no monotonic
	// reading. The size of the step is unknown, so the wait counts from now.
	e.from = min(e.from, q.at)
	return first
}

// advance moves the key to its next delay and records the event as answered.
func (e *backoffEntry) advance(q *question) {
	e.attempts = min(e.attempts, maxAttempts-1) + 1
	e.event, e.last, e.waiting, e.granted, e.due, e.ran = q.event, q.at, false, true, notDue, false
}

// started records a start without a decision. e may be nil.
func (e *backoffEntry) started(at time.Duration) {
	if e != nil {
		e.last, e.waiting, e.granted, e.due, e.ran = at, false, false, notDue, false
	}
}

// monotonic returns the distance of t from epoch. It uses the monotonic clock if t
// has a reading of it, and the wall clock otherwise.
func monotonic(t time.Time) time.Duration { return t.Sub(epoch) }

// unknownEvent is an event at or before the Unix epoch. answeredEvent is any event
// before the last advance. No other event has these values.
const (
	unknownEvent  time.Duration = 0
	answeredEvent time.Duration = -1
)

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
