// SPDX-License-Identifier: Apache-2.0

package backoff

import (
	"hash/maphash"
	"math"
	"runtime"
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

// Decision is the answer to the question whether a key may restart now.
type Decision struct {
	// Allowed reports whether the restart may happen now.
	Allowed bool
	// Delay is how long this restart has to wait, jitter included. It is 0 for an
	// immediate restart.
	Delay time.Duration
	// RetryAt is the time from which the restart is allowed: the event time plus
	// Delay, or earlier after the clock stepped back. It is on the same clock as the
	// argument now. If Allowed, it is not after now.
	RetryAt time.Time
	// Attempt counts the restarts since the last reset, including this one. It is 1
	// for the first restart, and 0 for a start that is not a restart.
	Attempt int
	// Reset reports whether the reset rule has just reset the key. A key that GC
	// removed by that rule earlier counts as new instead.
	Reset bool
	// FirstWait is true for the first check that found this restart waiting, and
	// false for all later checks.
	FirstWait bool
	// Again reports whether this start was allowed before and given back.
	Again bool
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

// gcStep is how many keys GC checks before it yields the lock. smallMap is the
// largest number of keys that GC copies into a new map.
const (
	gcStep   = 256
	smallMap = 4096
)

// GC forgets the keys for which the reset rule holds now. The age of a waiting key
// counts from the end of its wait. GC releases the lock from time to time, so that it
// does not block other calls.
func (p *Backoff) GC() {
	p.GCAt(p.now())
}

// GCAt is GC at the time now.
func (p *Backoff) GCAt(now time.Time) {
	p.lock.Lock()
	defer p.lock.Unlock()
	at := monotonic(now)
	var kept []string
	visited, removed := 0, false
	// The iterator is used only under the lock, and a map may change between its
	// steps. After shrink the iterator is still on the old map.
	for id, e := range p.perItemBackoff {
		if p.perItemBackoff[id] != e {
			continue
		}
		if p.collectable(id, e, now, at) {
			if o := p.observer(); o != nil && !e.waiting && e.due == notDue {
				o.recovered()
			}
			p.remove(id)
			removed = true
		} else if len(kept) <= smallMap {
			kept = append(kept, id)
		}
		if visited++; visited%gcStep == 0 {
			p.lock.Unlock()
			// A waiting goroutine gets the lock. Without this, GC would take it
			// again first.
			runtime.Gosched()
			p.lock.Lock()
		}
	}
	if removed {
		p.shrink(kept)
	}
}

func (p *Backoff) collectable(id string, e *backoffEntry, now time.Time, at time.Duration) bool {
	age := e.since(at)
	if e.waiting || e.due != notDue {
		if e.waiting {
			age = saturatingSub(at, e.from)
		}
		if age = saturatingSub(age, p.delay(id, e.attempts)); age < 0 {
			return false
		}
	}
	return p.expired(now, now.Add(-age))
}

// shrink replaces the map if few keys are left, because a map does not shrink by
// itself. It does nothing if other calls added or removed keys meanwhile.
func (p *Backoff) shrink(kept []string) {
	if len(p.perItemBackoff) != len(kept) {
		return
	}
	smaller := make(map[string]*backoffEntry, len(kept))
	for _, id := range kept {
		e := p.perItemBackoff[id]
		if e == nil {
			return
		}
		smaller[id] = e
	}
	p.perItemBackoff = smaller
}

// grant decides the question, stores the result and advances the key if the start is
// allowed. The caller holds the lock.
func (p *Backoff) grant(d *Decision, id string, known *backoffEntry, q *question) {
	if known == nil {
		var e backoffEntry
		p.rule(d, id, false, &e, q)
		if d.Allowed {
			e.advance(q)
		}
		p.store(id, e)
		return
	}
	p.rule(d, id, true, known, q)
	if d.Allowed {
		if d.Reset && !p.DelayFirstRestart {
			known.attempts = 0
		}
		known.advance(q)
	}
}

// rule decides the question for a key in state e, which need not be stored. If the
// key has to wait, rule records the wait in e.
func (p *Backoff) rule(d *Decision, id string, known bool, e *backoffEntry, q *question) {
	d.Reset, d.Again = known && p.hasExpired(e, q), e.due == dueGivenBack
	if !known || d.Reset {
		if !p.DelayFirstRestart {
			d.Allowed, d.Attempt, d.RetryAt = true, 1, q.now.Add(-q.age)
			return
		}
		// After the event the key counts as having advanced once.
		*e = backoffEntry{last: saturatingSub(q.at, q.age)}
	}
	if p.DelayFirstRestart {
		e.attempts = max(e.attempts, 1)
	}
	d.Attempt = int(e.attempts)
	if !p.DelayFirstRestart && e.attempts < maxAttempts {
		d.Attempt++
	}
	d.Delay = p.delay(id, e.attempts)
	left := d.Delay - q.age
	d.RetryAt = q.now.Add(left)
	if d.Allowed = left <= 0; !d.Allowed {
		d.FirstWait = e.noteWait(q)
	}
}

// delay returns how long a key with this many attempts waits, jitter included.
func (p *Backoff) delay(id string, attempts int32) time.Duration {
	if attempts == 0 {
		return 0
	}
	d := p.maxDuration
	// The comparison shifts max and not initial, so that it cannot overflow.
	if n := attempts - 1; p.defaultDuration <= p.maxDuration>>n {
		d = p.defaultDuration << n
	}
	if p.extras != nil && p.extras.maxJitterFactor > 0 {
		jitter := random(id, attempts) * p.extras.maxJitterFactor * float64(d)
		if attempts > 1 {
			jitter /= 2 // the factor applies to the previous delay, half of d
		}
		// This form of the comparison also handles factors that make jitter NaN.
		if jitter < float64(p.maxDuration-d) {
			return d + time.Duration(jitter)
		}
		return p.maxDuration
	}
	return d
}

// random returns a number in [0, 1) that depends only on the key and its attempts.
// All checks of one wait therefore see the same jitter. It is one step of the
// generator splitmix64.
func random(id string, attempts int32) float64 {
	x := maphash.String(jitterSeed, id) + uint64(attempts)*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return float64((x^x>>31)>>11) / (1 << 53)
}

// hasExpired applies the reset rule. The difference of the two times is right even if
// the wall clock stepped during the run.
func (p *Backoff) hasExpired(e *backoffEntry, q *question) bool {
	return p.expired(q.now.Add(-q.age), q.now.Add(-e.since(q.at)))
}

func (p *Backoff) expired(eventTime, lastUpdate time.Time) bool {
	if p.HasExpiredFunc != nil {
		return p.HasExpiredFunc(eventTime, lastUpdate, p.maxDuration)
	}
	return ProportionalReset(eventTime, lastUpdate, p.maxDuration)
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

// question holds the arguments of a decision.
type question struct {
	// now is the current time, and at its distance from epoch.
	now time.Time
	at  time.Duration
	// event identifies the event, and age is how long ago it was.
	event, age time.Duration
}

// ask sets the current time.
func (p *Backoff) ask(q *question, now time.Time) {
	q.now, q.at = now, monotonic(now)
	if q.at == math.MinInt64 {
		// A caller passed the zero time by mistake. With it, everything known of the
		// key would seem a long time ago.
		q.now = p.now()
		q.at = monotonic(q.now)
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
