// SPDX-License-Identifier: Apache-2.0

package backoff

import (
	"hash/maphash"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Backoff keeps an exponential back-off per key. It corrects
// k8s.io/client-go/util/flowcontrol.Backoff; the package comment lists the
// differences. Set the exported fields before the first method call. The methods are
// safe for concurrent use. The zero value never makes a key wait.
type Backoff struct {
	// RWMutex is embedded because client-go's type exports its methods. It guards
	// nothing.
	sync.RWMutex
	// Clock is read by the methods that do not take the time as an argument. Nil
	// means the real clock.
	Clock clock.Clock
	// HasExpiredFunc reports whether an event at eventTime resets a key that last
	// advanced at lastUpdate; see FlatReset. GC passes the current time as eventTime.
	// Nil means ProportionalReset. The function is called with the lock of all keys
	// held, so it must be fast and must not call a method of the same Backoff. If it
	// panics, the lock is released and the key is unchanged.
	HasExpiredFunc func(eventTime time.Time, lastUpdate time.Time, maxDuration time.Duration) bool
	// DelayFirstRestart makes the first restart after a reset wait for the initial
	// delay, as the Kubernetes documentation says. By default it is immediate, as in
	// the kubelet (kubernetes/kubernetes#133472). The option affects Decide, Start,
	// Fail and IsInBackOffSince.
	DelayFirstRestart bool

	// lock guards perItemBackoff. A Mutex costs half as much as an RWMutex here, and
	// no method holds it for long.
	lock sync.Mutex
	// 0 <= defaultDuration <= maxDuration.
	defaultDuration time.Duration
	maxDuration     time.Duration
	extras          *extras
	// perItemBackoff has the name of client-go's map, which client-go's tests read.
	perItemBackoff map[string]*backoffEntry
}

// extras holds the options that most Backoffs do not use. It is nil for those.
type extras struct {
	maxJitterFactor float64
	observer        observer
}

// observer is notified of changes; see SetMetrics. All methods except decided are
// called with the lock held.
type observer interface {
	keyAdded()
	keyRemoved()
	// recovered is called when GC removes a key that does not wait.
	recovered()
	decided(id string, d Decision, now time.Time)
}

// jitterSeed gives each process its own jitter.
var jitterSeed = maphash.MakeSeed()

// NewBackOff returns a Backoff on the real clock. Its delays start at initial and
// double up to max. A negative duration counts as 0, and initial is clamped to max.
func NewBackOff(initial, max time.Duration) *Backoff {
	return NewBackOffWithJitter(initial, max, 0)
}

// NewBackOffWithJitter is like NewBackOff and adds random jitter of up to
// maxJitterFactor times the previous delay, or times the first delay itself. The sum
// is clamped to max. A maxJitterFactor of 0 or less adds nothing.
func NewBackOffWithJitter(initial, max time.Duration, maxJitterFactor float64) *Backoff {
	return NewFakeBackOffWithJitter(initial, max, clock.RealClock{}, maxJitterFactor)
}

// NewFakeBackOff is like NewBackOff with the clock tc.
func NewFakeBackOff(initial, max time.Duration, tc clock.Clock) *Backoff {
	return NewFakeBackOffWithJitter(initial, max, tc, 0)
}

// NewFakeBackOffWithJitter is like NewBackOffWithJitter with the clock tc.
func NewFakeBackOffWithJitter(initial, max time.Duration, tc clock.Clock, maxJitterFactor float64) *Backoff {
	b := &Backoff{Clock: tc}
	if maxJitterFactor > 0 {
		b.extras = &extras{maxJitterFactor: maxJitterFactor}
	}
	if max > 0 {
		b.maxDuration = max
	}
	if initial > 0 {
		b.defaultDuration = min(initial, b.maxDuration)
	}
	return b
}

// Decide reports whether the key may restart now after an event (an exit) at
// eventTime. If so, it advances the key to its next delay. It combines
// IsInBackOffSince, Get and Next of client-go.
//
// One event permits one start. An event at or before the time of the last start is
// already answered, and counts as happening at that start. A caller that asks again,
// or whose start came to nothing, therefore waits for the next delay. GiveBack takes
// back a start that was not made.
//
// An event in the future counts as happening now. An eventTime at or before the Unix
// epoch means unknown: the event counts as happening at the first check that saw it.
func (p *Backoff) Decide(id string, eventTime time.Time) (d Decision) {
	p.decide(&d, id, eventTime, p.now())
	return d
}

// DecideAt is Decide at the time now.
func (p *Backoff) DecideAt(id string, eventTime, now time.Time) (d Decision) {
	p.decide(&d, id, eventTime, now)
	return d
}

func (p *Backoff) decide(d *Decision, id string, eventTime, now time.Time) {
	if o := p.observer(); o != nil {
		defer func() { o.decided(id, *d, now) }()
	}
	p.lock.Lock()
	defer p.lock.Unlock()
	known := p.perItemBackoff[id]
	var q question
	p.ask(&q, now)
	now = q.now // the observer gets the corrected time
	known.unanswered(&q, eventTime)
	p.grant(d, id, known, &q)
}

// Allow is Decide for a restart that does not wait, regardless of the key's delay.
// The key advances, and the Decision has no delay.
func (p *Backoff) Allow(id string, eventTime time.Time) Decision {
	return p.AllowAt(id, eventTime, p.now())
}

// AllowAt is Allow at the time now.
func (p *Backoff) AllowAt(id string, eventTime, now time.Time) (d Decision) {
	p.next(&d, id, eventTime, now)
	if o := p.observer(); o != nil {
		o.decided(id, d, d.RetryAt)
	}
	return d
}

// Peek returns the Decision that Decide would return, and changes nothing.
func (p *Backoff) Peek(id string, eventTime time.Time) Decision {
	return p.PeekAt(id, eventTime, p.now())
}

// PeekAt is Peek at the time now.
func (p *Backoff) PeekAt(id string, eventTime, now time.Time) (d Decision) {
	p.lock.Lock()
	defer p.lock.Unlock()
	known := p.perItemBackoff[id]
	e := entryOf(known)
	var q question
	p.ask(&q, now)
	known.unanswered(&q, eventTime)
	p.rule(&d, id, known != nil, &e, &q)
	return d
}

// Start is Decide for a start that follows no exit: the first one, or one after all
// instances were removed. It is allowed at once and does not count as an attempt. If
// the previous start failed, Start decides as after an exit at the time of that
// failure. See Fail.
func (p *Backoff) Start(id string) Decision {
	return p.StartAt(id, p.now())
}

// StartAt is Start at the time now.
func (p *Backoff) StartAt(id string, now time.Time) (d Decision) {
	now = p.start(&d, id, now)
	if o := p.observer(); o != nil && d.Attempt > 0 {
		o.decided(id, d, now)
	}
	return d
}

func (p *Backoff) start(d *Decision, id string, now time.Time) time.Time {
	p.lock.Lock()
	defer p.lock.Unlock()
	known := p.perItemBackoff[id]
	var q question
	p.ask(&q, now)
	if known != nil && known.due != notDue {
		q.event, q.age = answeredEvent, max(known.since(q.at), 0)
		p.grant(d, id, known, &q)
		return q.now
	}
	known.started(q.at)
	d.Allowed, d.RetryAt = true, q.now
	return q.now
}

// Fail records that a start of the key failed: the start that Decide or Start
// allowed, or the first one. The failure counts as an exit at this time. The returned
// Decision is about the next attempt, which Decide or Start must still allow.
func (p *Backoff) Fail(id string) Decision {
	return p.FailAt(id, p.now())
}

// FailAt is Fail at the time now.
func (p *Backoff) FailAt(id string, now time.Time) (d Decision) {
	p.lock.Lock()
	defer p.lock.Unlock()
	e := entryOf(p.perItemBackoff[id])
	var q question
	p.ask(&q, now)
	e.last, e.waiting, e.granted, e.due, e.ran = q.at, false, false, dueFailed, false
	asked := e
	p.rule(&d, id, true, &asked, &q)
	p.store(id, e)
	d.FirstWait = false // the check that finds it waiting sets this
	return d
}

// GiveBack takes back the last advance of the key. Call it if the start was not made
// and nothing exists that could have run. The next Decide about the same event, or
// the next Start, allows the start again at once, as the same attempt. GiveBack does
// nothing if there is no advance to take back, or after Fail.
func (p *Backoff) GiveBack(id string) {
	p.GiveBackAt(id, p.now())
}

// GiveBackAt is GiveBack at the time now.
func (p *Backoff) GiveBackAt(id string, now time.Time) {
	p.lock.Lock()
	defer p.lock.Unlock()
	e := p.perItemBackoff[id]
	if e == nil || !e.granted {
		return
	}
	var q question
	p.ask(&q, now)
	e.attempts--
	e.waiting, e.granted, e.due, e.ran = false, false, dueGivenBack, false
	// The wait is already over, and no run followed.
	e.last = saturatingSub(min(e.last, q.at), p.delay(id, e.attempts))
}

// Started records that the key's last start took effect at startedAt, if that is
// later than the known time. The length of a run then counts from startedAt and not
// from when the start was allowed. Started does nothing if startedAt is unknown or in
// the future, or while the key waits.
func (p *Backoff) Started(id string, startedAt, now time.Time) {
	p.lock.Lock()
	defer p.lock.Unlock()
	e := p.perItemBackoff[id]
	age := now.Sub(startedAt)
	if e == nil || e.waiting && (e.event != answeredEvent || e.ran) || startedAt.Unix() <= 0 || age < 0 {
		return
	}
	if at := saturatingSub(monotonic(now), age); at > e.last {
		e.last, e.waiting, e.ran = at, false, true
	}
}

// EndWait records that the container of the key has started without a decision. A
// wait that was seen is over. The key keeps its delay: the next run counts from now,
// and the next wait is a new one.
func (p *Backoff) EndWait(id string) {
	p.EndWaitAt(id, p.now())
}

// EndWaitAt is EndWait at the time now.
func (p *Backoff) EndWaitAt(id string, now time.Time) {
	p.lock.Lock()
	defer p.lock.Unlock()
	e := p.perItemBackoff[id]
	var q question
	p.ask(&q, now)
	if e.started(q.at); e != nil && e.attempts == 0 {
		p.remove(id)
	}
}

// Get returns the delay that the next restart of the key has to wait, jitter
// included. It returns 0 for an unknown key.
func (p *Backoff) Get(id string) time.Duration {
	p.lock.Lock()
	defer p.lock.Unlock()
	e := p.perItemBackoff[id]
	if e == nil {
		return 0
	}
	return p.delay(id, e.attempts)
}

// Next advances the key to its next delay, or resets it to the initial delay if the
// key is new or the reset rule holds for eventTime. The delay counts from now. For
// eventTime see Decide.
func (p *Backoff) Next(id string, eventTime time.Time) {
	p.NextAt(id, eventTime, p.now())
}

// NextAt is Next at the time now.
func (p *Backoff) NextAt(id string, eventTime, now time.Time) {
	var d Decision
	p.next(&d, id, eventTime, now)
}

func (p *Backoff) next(d *Decision, id string, eventTime, now time.Time) {
	p.lock.Lock()
	defer p.lock.Unlock()
	known := p.perItemBackoff[id]
	e := entryOf(known)
	var q question
	p.ask(&q, now)
	e.look(&q, eventTime)
	if known != nil && p.hasExpired(&e, &q) {
		d.Reset, e.attempts = true, 0
	}
	d.Allowed, d.RetryAt, d.Again = true, q.now, e.due == dueGivenBack
	e.advance(&q)
	d.Attempt = int(e.attempts)
	p.store(id, e)
}

// Reset forgets the key.
func (p *Backoff) Reset(id string) {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.remove(id)
}

// DeleteEntry forgets the key. It is the same as Reset; client-go has both names.
func (p *Backoff) DeleteEntry(id string) {
	p.Reset(id)
}

// IsInBackOffSince reports whether the key still has to wait after an event at
// eventTime. For eventTime see Decide. As it grants no start, it does not move an
// event from before the key's last advance. Neither does client-go.
func (p *Backoff) IsInBackOffSince(id string, eventTime time.Time) bool {
	return p.IsInBackOffSinceAt(id, eventTime, p.now())
}

// IsInBackOffSinceAt is IsInBackOffSince at the time now.
func (p *Backoff) IsInBackOffSinceAt(id string, eventTime, now time.Time) bool {
	p.lock.Lock()
	defer p.lock.Unlock()
	known := p.perItemBackoff[id]
	e := entryOf(known)
	var q question
	p.ask(&q, now)
	e.look(&q, eventTime)
	var d Decision
	p.rule(&d, id, known != nil, &e, &q)
	if e.attempts > 0 {
		p.store(id, e)
	}
	return !d.Allowed
}

// IsInBackOffSinceUpdate reports whether the time between the last advance of the key
// and eventTime is less than the key's delay. eventTime is usually the current time.
func (p *Backoff) IsInBackOffSinceUpdate(id string, eventTime time.Time) bool {
	return p.IsInBackOffSinceUpdateAt(id, eventTime, p.now())
}

// IsInBackOffSinceUpdateAt is IsInBackOffSinceUpdate at the time now, which
// matters only when eventTime has no monotonic reading or is before the last
// advance.
func (p *Backoff) IsInBackOffSinceUpdateAt(id string, eventTime, now time.Time) bool {
	p.lock.Lock()
	defer p.lock.Unlock()
	e := p.perItemBackoff[id]
	if e == nil {
		return false
	}
	var q question
	p.ask(&q, now)
	q.age = q.now.Sub(eventTime)
	if p.hasExpired(e, &q) {
		return false
	}
	delay := p.delay(id, e.attempts)
	if since := saturatingSub(e.since(q.at), q.age); since >= 0 {
		return since < delay
	}
	q.event, q.age = answeredEvent, 0
	e.noteWait(&q)
	return saturatingSub(q.at, e.from) < delay
}

func (p *Backoff) store(id string, e backoffEntry) {
	if known := p.perItemBackoff[id]; known != nil {
		*known = e
		return
	}
	if p.perItemBackoff == nil {
		p.perItemBackoff = map[string]*backoffEntry{}
	}
	p.perItemBackoff[id] = &e
	if o := p.observer(); o != nil {
		o.keyAdded()
	}
}

func (p *Backoff) remove(id string) {
	if _, known := p.perItemBackoff[id]; known {
		delete(p.perItemBackoff, id)
		if o := p.observer(); o != nil {
			o.keyRemoved()
		}
	}
}

func (p *Backoff) observer() observer {
	if p.extras == nil {
		return nil
	}
	return p.extras.observer
}

// now returns the current time of the clock.
func (p *Backoff) now() time.Time {
	if p.Clock == nil {
		return time.Now()
	}
	return p.Clock.Now()
}
