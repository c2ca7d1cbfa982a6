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
// k8s.io/client-go/util/flowcontrol.Backoff. Set the exported fields before the
// first call of a method; the methods may be called concurrently. The zero value
// never makes a key wait.
type Backoff struct {
	// RWMutex is there because client-go's type has its methods. It guards
	// nothing.
	sync.RWMutex
	// Clock is read by the methods that do not take the time as an argument. Nil
	// means the real one.
	Clock clock.Clock
	// HasExpiredFunc reports whether an event at eventTime starts a key over that
	// last advanced at lastUpdate; see FlatReset. GC calls it with the present as
	// eventTime. Nil means ProportionalReset. It is called with the lock held
	// that guards all keys, so it must be fast and must not call a method of the
	// same Backoff. If it panics, the lock is released and the key is unchanged.
	HasExpiredFunc func(eventTime time.Time, lastUpdate time.Time, maxDuration time.Duration) bool
	// DelayFirstRestart makes the first restart after a reset wait for the
	// initial delay, as the Kubernetes documentation says, instead of being
	// immediate, as the kubelet has always been (kubernetes/kubernetes#133472).
	// It concerns Decide, Start, Fail and IsInBackOffSince.
	DelayFirstRestart bool

	// lock guards perItemBackoff. A plain one costs half of what an RWMutex does,
	// and no method holds it for long.
	lock sync.Mutex
	// 0 <= defaultDuration <= maxDuration.
	defaultDuration time.Duration
	maxDuration     time.Duration
	extras          *extras
	// perItemBackoff has the name of client-go's map, whose tests look into it.
	perItemBackoff map[string]*backoffEntry
}

// extras is what most Backoffs do without, and then have nil for.
type extras struct {
	maxJitterFactor float64
	observer        observer
}

// observer is told what happens; see SetMetrics. All but decided is called with the
// lock held.
type observer interface {
	keyAdded()
	keyRemoved()
	// recovered is for a key that GC removes by the reset rule, if it does not wait.
	recovered()
	decided(id string, d Decision, now time.Time)
}

// backoffEntry is the state of a key. last and from are distances from epoch on
// the monotonic clock, as is the argument at of its methods. It takes 32 bytes and
// has no pointers.
type backoffEntry struct {
	// last is when the key last advanced. A start that nobody decided and one that
	// failed move it as well: it is the time from which a run is measured.
	last time.Duration
	// event is the event after which a check found the key waiting, or else the one
	// that the last advance answered, as it was given; from is when the former
	// happened, as well as that could be known then. That it is the same event shows by
	// the first and not by the second, so that a step of the wall clock changes no
	// wait. from counts only while waiting.
	event, from time.Duration
	// attempts is how often the key advanced since its last reset. It is 0 only
	// while the first start is due.
	attempts int32
	waiting  bool
	// granted is true from an advance until it is given back or the start fails.
	granted bool
	// due is set from when a start failed, or was given back, to the next one. That
	// follows no new event: its wait counts from last.
	due due
	// ran is true from when Started moved last to the next advance. That start is
	// known, and ends no wait that began after it.
	ran bool
}

// due is why a start is due that follows no event.
type due uint8

const (
	notDue due = iota
	dueFailed
	dueGivenBack
)

const maxAttempts = math.MaxInt32

// epoch is what times are measured from. No decision depends on which time it is.
var epoch = time.Now()

// jitterSeed makes the jitter of two processes differ.
var jitterSeed = maphash.MakeSeed()

// NewBackOff returns a Backoff on the real clock whose delays start at initial
// and double up to max. Durations below 0 count as 0, an initial above max as max.
func NewBackOff(initial, max time.Duration) *Backoff {
	return NewBackOffWithJitter(initial, max, 0)
}

// NewBackOffWithJitter is NewBackOff with a random addition to each delay of up
// to maxJitterFactor times the delay before it, or for the first times itself;
// the sum is clamped to max. A maxJitterFactor of 0 or less adds nothing.
func NewBackOffWithJitter(initial, max time.Duration, maxJitterFactor float64) *Backoff {
	return NewFakeBackOffWithJitter(initial, max, clock.RealClock{}, maxJitterFactor)
}

// NewFakeBackOff is NewBackOff on the clock tc.
func NewFakeBackOff(initial, max time.Duration, tc clock.Clock) *Backoff {
	return NewFakeBackOffWithJitter(initial, max, tc, 0)
}

// NewFakeBackOffWithJitter is NewBackOffWithJitter on the clock tc.
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

// Decision is the answer to one question: may this key restart now?
type Decision struct {
	// Allowed is true when the restart may happen now.
	Allowed bool
	// Delay is how long this restart has to wait, jitter included; 0 for an
	// immediate one.
	Delay time.Duration
	// RetryAt is the time from which the restart is allowed: the event time
	// plus Delay, or earlier after the clock stepped back. It is on the clock of
	// the time that was passed as now, and not after that if Allowed.
	RetryAt time.Time
	// Attempt counts the restarts since the last reset, this one included: it
	// is 1 for the first, and 0 for a start that is no restart.
	Attempt int
	// Reset is true when the reset rule has just started the key over. A key
	// that GC removed by that rule before is new instead.
	Reset bool
	// FirstWait is true for the first check that found this restart waiting,
	// and false for all later ones.
	FirstWait bool
	// Again is true when this start was allowed before, and given back.
	Again bool
}

// Decide reports whether the key may restart now after an event (an exit) at
// eventTime, and if so advances the key to its next delay. It is
// IsInBackOffSince, Get and Next of client-go in one step.
//
// It answers one event with one start. An event at or before the time of the last
// start was answered by that, and counts as having happened then: so whoever asks
// again, and whoever asks because that start came to nothing, waits for the next
// delay. GiveBack takes back a start that was not made.
//
// An event in the future counts as happening now. An eventTime at or before the
// Unix epoch means unknown: the event counts as having happened at the first
// check that saw it.
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
	now = q.now // which the observer is told
	known.unanswered(&q, eventTime)
	p.grant(d, id, known, &q)
}

// Allow is Decide for a restart that does not wait, whatever the key's delay is: the
// key advances, and the Decision has no delay.
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

// Peek returns what Decide would, and changes nothing.
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

// Start is Decide for a start that follows no exit: the first one, or one after
// all instances were removed. It is allowed at once and counts as no attempt,
// unless the start before it failed: then it is decided as after an exit at that
// time. See Fail.
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

// Fail notes that a start of the key failed: that which Decide or Start allowed,
// or the first. It counts as an exit at this time, and the Decision is that on
// the next attempt, which is for Decide or Start to allow.
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
	d.FirstWait = false // for the check that finds it waiting
	return d
}

// GiveBack takes back the last advance of the key, because the start that it
// allowed was not made and nothing that could have run exists. The next Decide
// about the same event, or Start, allows it again at once, as the same attempt.
// Without an advance to take back, or after Fail, it does nothing.
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
	// The wait is over already, and was no run.
	e.last = saturatingSub(min(e.last, q.at), p.delay(id, e.attempts))
}

// Started notes that the key's last start took effect at startedAt, if that is
// later than known: the length of a run counts from there, and not from when the
// start was allowed. A startedAt in the future or unknown, and one while the key
// waits, change nothing.
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

// EndWait notes that what the key stands for has started although nothing was
// asked, so that its wait, if it has been found waiting, is over. The key keeps
// its delay; its next run counts from now, and its next wait is one of its own.
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
// included, and 0 for a key that is not known.
func (p *Backoff) Get(id string) time.Duration {
	p.lock.Lock()
	defer p.lock.Unlock()
	e := p.perItemBackoff[id]
	if e == nil {
		return 0
	}
	return p.delay(id, e.attempts)
}

// Next advances the key to its next delay, or back to the initial one when the
// key is new or the reset rule holds for eventTime. The delay counts as begun
// now. For eventTime see Decide.
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

// DeleteEntry forgets the key. It is client-go's second name for Reset.
func (p *Backoff) DeleteEntry(id string) {
	p.Reset(id)
}

// IsInBackOffSince reports whether the key still has to wait after an event at
// eventTime. For eventTime see Decide; but as nothing is granted here, an event
// before the key's last advance is taken as it is, as by client-go.
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

// IsInBackOffSinceUpdate reports whether less than the key's delay lay between
// the last advance of the key and eventTime, which is usually the present.
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

// gcStep is how many keys GC looks at before it lets others have the lock, and
// smallMap how many it puts into a new map at once.
const (
	gcStep   = 256
	smallMap = 4096
)

// GC forgets the keys for which the reset rule holds at present. The age of a key
// that waits counts from the end of its wait. The lock is released now and then,
// so that other calls are not held up.
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
	// The iterator is used under the lock alone, and a map may change between its
	// steps. But after shrink it is the map of before.
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
			// Whoever waits for the lock gets it; it would not if GC took it again.
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

// shrink gives memory back, which a map does not by itself: it makes the map anew
// if few keys are left. These are the kept ones, unless others came meanwhile.
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

// grant rules on the question, stores what follows and advances the key if it is
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

// rule rules on the question for a key in state e, which may be stored or not, and
// notes in e that the key waits, if it does.
func (p *Backoff) rule(d *Decision, id string, known bool, e *backoffEntry, q *question) {
	d.Reset, d.Again = known && p.hasExpired(e, q), e.due == dueGivenBack
	if !known || d.Reset {
		if !p.DelayFirstRestart {
			d.Allowed, d.Attempt, d.RetryAt = true, 1, q.now.Add(-q.age)
			return
		}
		// From the event on the key is as one that has advanced once.
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

// delay is what a key with so many attempts waits, jitter included.
func (p *Backoff) delay(id string, attempts int32) time.Duration {
	if attempts == 0 {
		return 0
	}
	d := p.maxDuration
	// The comparison shifts max and not initial, so that nothing overflows.
	if n := attempts - 1; p.defaultDuration <= p.maxDuration>>n {
		d = p.defaultDuration << n
	}
	if p.extras != nil && p.extras.maxJitterFactor > 0 {
		jitter := random(id, attempts) * p.extras.maxJitterFactor * float64(d)
		if attempts > 1 {
			jitter /= 2 // a factor of the delay before, which is half of d
		}
		// Written this way round for factors that make jitter NaN.
		if jitter < float64(p.maxDuration-d) {
			return d + time.Duration(jitter)
		}
		return p.maxDuration
	}
	return d
}

// random is a number in [0, 1) that depends on the key and its attempts alone,
// so that all checks of one wait see the same jitter. It is one step of the
// generator splitmix64.
func random(id string, attempts int32) float64 {
	x := maphash.String(jitterSeed, id) + uint64(attempts)*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return float64((x^x>>31)>>11) / (1 << 53)
}

// hasExpired asks the reset rule. The times have the right difference although the
// wall clock may have stepped during the run.
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

// question is what is asked about a key.
type question struct {
	// now is the present, and at its distance from epoch.
	now time.Time
	at  time.Duration
	// event is what to know the event by, and age how long ago it was.
	event, age time.Duration
}

// ask sets the present.
func (p *Backoff) ask(q *question, now time.Time) {
	q.now, q.at = now, monotonic(now)
	if q.at == math.MinInt64 {
		// A caller passed the zero time by mistake. It would make all that is known of
		// the key a long time ago.
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

// now is the present on the clock.
func (p *Backoff) now() time.Time {
	if p.Clock == nil {
		return time.Now()
	}
	return p.Clock.Now()
}

// entryOf is a copy of an entry, the zero one for nil.
func entryOf(e *backoffEntry) backoffEntry {
	if e == nil {
		return backoffEntry{}
	}
	return *e
}

// since is how long ago the key last advanced.
func (e *backoffEntry) since(at time.Duration) time.Duration {
	return saturatingSub(at, e.last)
}

// look makes the question one about the event at eventTime, which is as old as can
// be known.
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
// all before it, which count from then. An event before that after which the key
// waits already is no news, unless the time of the latter was not known. e may be
// nil.
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
		// Another call overtook this one, or the clock stepped back and has no monotonic
		// reading. Either way the event counts from when it was first seen.
		since = waited
	}
	if since < q.age || q.event != unknownEvent && q.event == e.event && !e.waiting {
		q.event, q.age = answeredEvent, since
	}
	if e.waiting && e.event != unknownEvent {
		q.age = min(q.age, waited)
	}
}

// noteWait notes that the key waits after the event, and reports whether this is a
// new wait. A later event than that after which it waits makes it a new one.
func (e *backoffEntry) noteWait(q *question) (first bool) {
	from := saturatingSub(q.at, q.age)
	switch {
	case !e.waiting, q.event > 0 && q.event != e.event && from > e.from:
		e.waiting, e.event, e.from, first = true, q.event, from, true
	case q.event > 0 && e.event == unknownEvent:
		e.event, e.from = q.event, from
	}
	// It is later only if the clock stepped back and has no monotonic reading. By how
	// much is not known, so the wait counts from now.
	e.from = min(e.from, q.at)
	return first
}

// advance moves the key to its next delay, which answers the event.
func (e *backoffEntry) advance(q *question) {
	e.attempts = min(e.attempts, maxAttempts-1) + 1
	e.event, e.last, e.waiting, e.granted, e.due, e.ran = q.event, q.at, false, true, notDue, false
}

// started notes a start that was not decided on. e may be nil.
func (e *backoffEntry) started(at time.Duration) {
	if e != nil {
		e.last, e.waiting, e.granted, e.due, e.ran = at, false, false, notDue, false
	}
}

// monotonic is t's distance from epoch: on the monotonic clock if t has a reading
// of it, and on the wall clock otherwise.
func monotonic(t time.Time) time.Duration { return t.Sub(epoch) }

// unknownEvent is an event at or before the Unix epoch, and answeredEvent any before
// the last advance. No other event has these times.
const (
	unknownEvent  time.Duration = 0
	answeredEvent time.Duration = -1
)

// wall is t's distance from the Unix epoch on the wall clock, within the range of
// time.Duration, or unknownEvent.
func wall(t time.Time) time.Duration {
	const most = math.MaxInt64/int64(time.Second) - 1
	s := t.Unix()
	if s <= 0 {
		return unknownEvent
	}
	return time.Duration(min(s, most))*time.Second + time.Duration(t.Nanosecond())
}

// saturatingSub is a-b, kept within ±math.MaxInt64 so that its negation does
// not overflow either.
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
