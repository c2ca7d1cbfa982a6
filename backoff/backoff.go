// SPDX-License-Identifier: Apache-2.0

package backoff

import (
	"math"
	"runtime"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Backoff keeps an exponential back-off per key. It corrects
// k8s.io/client-go/util/flowcontrol.Backoff. The exported fields are to be set
// before the first call of a method; the methods may be called concurrently. The
// zero value never makes a key wait.
type Backoff struct {
	// RWMutex is there because client-go's type has its methods. It guards
	// nothing.
	sync.RWMutex
	// Clock is read by the methods that do not take the time as an argument. Nil
	// means the real one.
	Clock clock.Clock
	// HasExpiredFunc tells whether an event at eventTime starts a key that last
	// advanced at lastUpdate over; see FlatReset. GC asks it with the present
	// as eventTime. Nil means ProportionalReset.
	HasExpiredFunc func(eventTime time.Time, lastUpdate time.Time, maxDuration time.Duration) bool
	// DelayFirstRestart makes the first restart after a reset wait for the
	// initial delay, as the Kubernetes documentation says, instead of being
	// immediate, as the kubelet has always been (kubernetes/kubernetes#133472).
	// It concerns Decide and IsInBackOffSince.
	DelayFirstRestart bool

	// lock guards what follows metrics. A plain one costs half of what an
	// RWMutex does, and no method holds it for long.
	lock sync.Mutex
	// 0 <= defaultDuration <= maxDuration.
	defaultDuration time.Duration
	maxDuration     time.Duration
	maxJitterFactor float64
	metrics         metrics

	// epoch is the first time that was seen, and epochUnix its whole seconds
	// after the Unix epoch. Times are stored as their distance from the one on
	// the monotonic clock, or from the other on the wall clock. epochSet is
	// false only while there are no keys.
	epoch     time.Time
	epochUnix int64
	epochSet  bool
	items     table
	// perItemBackoff holds the keys of a fake, for client-go's own tests, which
	// look into a map of this name. It is nil outside of fakes.
	perItemBackoff map[string]struct{}
}

// NewBackOff returns a Backoff on the real clock whose delays start at initial
// and double up to max. Durations below 0 count as 0, an initial above max as max.
func NewBackOff(initial, max time.Duration) *Backoff {
	return NewBackOffWithJitter(initial, max, 0)
}

// NewBackOffWithJitter is NewBackOff with a random addition to each delay of up
// to maxJitterFactor times the delay before it, or for the first times itself;
// the sum is clamped to max. A maxJitterFactor of 0 or less adds nothing.
func NewBackOffWithJitter(initial, max time.Duration, maxJitterFactor float64) *Backoff {
	return newBackoff(clock.RealClock{}, initial, max, maxJitterFactor)
}

// NewFakeBackOff is NewBackOff on the clock tc.
func NewFakeBackOff(initial, max time.Duration, tc clock.Clock) *Backoff {
	return NewFakeBackOffWithJitter(initial, max, tc, 0)
}

// NewFakeBackOffWithJitter is NewBackOffWithJitter on the clock tc.
func NewFakeBackOffWithJitter(initial, max time.Duration, tc clock.Clock, maxJitterFactor float64) *Backoff {
	p := newBackoff(tc, initial, max, maxJitterFactor)
	p.perItemBackoff = map[string]struct{}{}
	return p
}

func newBackoff(c clock.Clock, initial, limit time.Duration, maxJitterFactor float64) *Backoff {
	limit = max(limit, 0)
	return &Backoff{
		Clock:           c,
		defaultDuration: min(max(initial, 0), limit),
		maxDuration:     limit,
		maxJitterFactor: maxJitterFactor,
	}
}

// Decision is the answer to one question: may this key restart now?
type Decision struct {
	// Allowed is true when the restart may happen now.
	Allowed bool
	// Delay is how long this restart has to wait, jitter included; 0 for an
	// immediate one.
	Delay time.Duration
	// RetryAt is the time from which the restart is allowed: the event time
	// plus Delay, or earlier after the clock stepped back.
	RetryAt time.Time
	// Attempt counts the restarts since the last reset, this one included: it
	// is 1 for the first.
	Attempt int
	// Reset is true when the reset rule has just started the key over. A key
	// that GC removed by that rule before is new instead.
	Reset bool
	// FirstWait is true for the first check that found this restart waiting,
	// and false for all later ones.
	FirstWait bool
}

// Decide tells whether the key may restart now after an event (an exit) at
// eventTime, and if so advances the key to its next delay. It is
// IsInBackOffSince, Get and Next of client-go in one step. An eventTime at or
// before the Unix epoch means unknown: the event counts as having happened at
// the first check that saw it.
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
	p.lock.Lock()
	e := p.check(d, id, eventTime, now)
	if d.Allowed {
		// With DelayFirstRestart check has started the key over already.
		p.advance(id, e, now, d.Reset && !p.DelayFirstRestart)
	}
	p.lock.Unlock()
	if p.metrics.keys != nil {
		p.metrics.decided(d, now)
	}
}

// Get returns the delay that the next restart of the key has to wait, jitter
// included, and 0 for a key that is not known.
func (p *Backoff) Get(id string) time.Duration {
	p.lock.Lock()
	defer p.lock.Unlock()
	e := p.items.find(id)
	if e == nil {
		return 0
	}
	return p.delay(e)
}

// Next advances the key to its next delay, or back to the initial one when the
// key is new or the reset rule holds for eventTime. The delay counts as begun
// now. For eventTime see Decide.
func (p *Backoff) Next(id string, eventTime time.Time) {
	p.NextAt(id, eventTime, p.now())
}

// NextAt is Next at the time now.
func (p *Backoff) NextAt(id string, eventTime, now time.Time) {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.begin(now)
	e := p.items.find(id)
	p.advance(id, e, now, e != nil && p.expired(e, p.eventOf(e, eventTime, now)))
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

// IsInBackOffSince tells whether the key still has to wait after an event at
// eventTime. For eventTime see Decide.
func (p *Backoff) IsInBackOffSince(id string, eventTime time.Time) bool {
	return p.IsInBackOffSinceAt(id, eventTime, p.now())
}

// IsInBackOffSinceAt is IsInBackOffSince at the time now.
func (p *Backoff) IsInBackOffSinceAt(id string, eventTime, now time.Time) bool {
	p.lock.Lock()
	defer p.lock.Unlock()
	var d Decision
	p.check(&d, id, eventTime, now)
	return !d.Allowed
}

// IsInBackOffSinceUpdate tells whether less than the key's delay lay between
// the last advance of the key and eventTime, which is usually the present.
func (p *Backoff) IsInBackOffSinceUpdate(id string, eventTime time.Time) bool {
	return p.IsInBackOffSinceUpdateAt(id, eventTime, p.now())
}

// IsInBackOffSinceUpdateAt is IsInBackOffSinceUpdate at the time now, which
// matters only when eventTime is before the last advance.
func (p *Backoff) IsInBackOffSinceUpdateAt(id string, eventTime, now time.Time) bool {
	p.lock.Lock()
	defer p.lock.Unlock()
	e := p.items.find(id)
	if e == nil {
		return false
	}
	lastUpdate := p.lastUpdate(e, eventTime, hasMonotonic(eventTime))
	if p.hasExpired(eventTime, lastUpdate) {
		return false
	}
	delay := p.delay(e)
	if since := eventTime.Sub(lastUpdate); since >= 0 {
		return since < delay
	}
	left, _ := p.wait(e, delay, now)
	return left > 0
}

// EndWait notes that the key's wait, if it has been found waiting, is over
// although no decision allowed the restart: what the key stands for runs again
// for another reason, or exists no more. The key keeps its delay; its next wait
// is one of its own.
func (p *Backoff) EndWait(id string) {
	p.EndWaitAt(id, p.now())
}

// EndWaitAt is EndWait at the time now.
func (p *Backoff) EndWaitAt(id string, now time.Time) {
	p.lock.Lock()
	defer p.lock.Unlock()
	if e := p.items.find(id); e != nil && e.waiting() {
		e.set(e.attempts(), e.lastUpdate, p.monotonic(now))
	}
}

// GC forgets the keys for which the reset rule holds at present. The age of a
// key that has been found waiting counts from the end of its wait. The lock is
// released now and then, so that other calls are not held up.
func (p *Backoff) GC() {
	p.GCAt(p.now())
}

// GCAt is GC at the time now.
func (p *Backoff) GCAt(now time.Time) {
	for from, more := uint64(0), true; more; more = from != 0 {
		p.lock.Lock()
		from = p.items.visit(from, func(e *entry) bool {
			age := saturatingSub(p.monotonic(now), e.mark)
			if e.waiting() {
				if age = saturatingSub(age, p.delay(e)); age < 0 {
					return false
				}
			}
			if !p.hasExpired(now, now.Add(-age)) {
				return false
			}
			p.forget(e)
			return true
		})
		p.lock.Unlock()
		// Whoever waits for the lock gets it; it would not if GC took it again.
		runtime.Gosched()
	}
}

// check fills in the decision for a key without advancing it. It returns the
// key's entry, nil if it has none. The caller holds the lock.
func (p *Backoff) check(d *Decision, id string, eventTime, now time.Time) *entry {
	p.begin(now)
	e := p.items.find(id)
	event := p.eventOf(e, eventTime, now)
	monotonic := hasMonotonic(event)
	d.Reset = e != nil && p.hasExpired(event, p.lastUpdate(e, event, monotonic))
	if e == nil || d.Reset {
		if !p.DelayFirstRestart {
			d.Allowed, d.Attempt, d.RetryAt = true, 1, event
			return e
		}
		// From the event on the key is as one that has advanced once.
		e = p.advance(id, e, event, d.Reset)
	}
	d.Attempt = int(e.attempts())
	if !p.DelayFirstRestart {
		d.Attempt++
	}
	d.Delay = p.delay(e)
	d.RetryAt = event.Add(d.Delay)
	since := saturatingSub(p.wall(now), p.wall(event))
	if monotonic {
		since = now.Sub(event)
	}
	ahead := saturatingSub(d.Delay, since)
	if ahead <= 0 {
		d.Allowed = true
		return e
	}
	left, first := p.wait(e, d.Delay, now)
	if left < ahead {
		d.RetryAt = now.Add(left)
	}
	d.Allowed = left <= 0
	d.FirstWait = first && !d.Allowed
	return e
}

// wait notes that the key is waiting at the time now and returns how long it
// has to wait at most, counted from the first such note, and whether this one
// is the first. When now is before that one, the clock has stepped back by an
// unknown amount and the count begins anew.
func (p *Backoff) wait(e *entry, delay time.Duration, now time.Time) (left time.Duration, first bool) {
	at := p.monotonic(now)
	first = !e.waiting()
	if first || at < e.mark {
		e.startWaiting(at)
	}
	return saturatingSub(delay, saturatingSub(at, e.mark)), first
}

// begin sets the epoch. It takes the present and not an event time, because
// that has no monotonic reading.
func (p *Backoff) begin(now time.Time) {
	if !p.epochSet {
		p.epoch, p.epochUnix, p.epochSet = now, now.Unix(), true
	}
}

// advance moves the key to its next delay at the time now, or to the first one
// on a reset or when it is new, which a nil entry says.
func (p *Backoff) advance(id string, e *entry, now time.Time, reset bool) *entry {
	var attempts uint32
	if e == nil {
		e = p.insert(id)
	} else if !reset {
		attempts = e.attempts()
	}
	e.set(attempts+1, p.wall(now), p.monotonic(now))
	return e
}

func (p *Backoff) insert(id string) *entry {
	if p.perItemBackoff != nil {
		p.perItemBackoff[id] = struct{}{}
	}
	p.metrics.keyAdded()
	return p.items.insert(id)
}

func (p *Backoff) remove(id string) {
	if e := p.items.find(id); e != nil {
		p.forget(e)
		p.items.remove(id)
	}
}

// forget notes that a key will be removed from items.
func (p *Backoff) forget(e *entry) {
	if p.perItemBackoff != nil {
		delete(p.perItemBackoff, p.items.keyOf(e))
	}
	p.metrics.keyRemoved()
}

// eventOf is eventTime, or the best that is known in its place.
func (p *Backoff) eventOf(e *entry, eventTime, now time.Time) time.Time {
	if eventTime.Unix() > 0 {
		return eventTime
	}
	if e != nil && e.waiting() {
		return now.Add(-max(saturatingSub(p.monotonic(now), e.mark), 0))
	}
	return now
}

// delay is the key's present delay, jitter included.
func (p *Backoff) delay(e *entry) time.Duration {
	d := p.maxDuration
	// The comparison shifts max and not initial, so that nothing overflows.
	if n := e.attempts() - 1; p.defaultDuration <= p.maxDuration>>n {
		d = p.defaultDuration << n
	}
	if p.maxJitterFactor > 0 {
		jitter := p.items.random(e) * p.maxJitterFactor * float64(d)
		if e.attempts() > 1 {
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

func (p *Backoff) expired(e *entry, event time.Time) bool {
	return p.hasExpired(event, p.lastUpdate(e, event, hasMonotonic(event)))
}

func (p *Backoff) hasExpired(eventTime, lastUpdate time.Time) bool {
	if p.HasExpiredFunc != nil {
		return p.HasExpiredFunc(eventTime, lastUpdate, p.maxDuration)
	}
	return ProportionalReset(eventTime, lastUpdate, p.maxDuration)
}

// lastUpdate is when the key last advanced, for comparison with t: so that the
// difference is that of the monotonic clock when t has a reading of it, which
// monotonic says, and the entry still has one of the advance.
func (p *Backoff) lastUpdate(e *entry, t time.Time, monotonic bool) time.Time {
	if monotonic && !e.waiting() {
		return t.Add(-saturatingSub(p.monotonic(t), e.mark))
	}
	return time.Unix(p.epochUnix, int64(e.lastUpdate))
}

// hasMonotonic tells whether t has a monotonic reading, which Round strips.
func hasMonotonic(t time.Time) bool { return t != t.Round(0) }

// now is the present on the clock.
func (p *Backoff) now() time.Time {
	if p.Clock == nil {
		return time.Now()
	}
	return p.Clock.Now()
}

// monotonic is t's distance from the epoch on the monotonic clock if both have
// a reading of it, and on the wall clock otherwise.
func (p *Backoff) monotonic(t time.Time) time.Duration {
	return t.Sub(p.epoch)
}

// wall is t's distance from the epoch on the wall clock. It is three times as
// fast as time.Time.Sub.
func (p *Backoff) wall(t time.Time) time.Duration {
	const most = math.MaxInt64/int64(time.Second) - 1
	s := t.Unix() - p.epochUnix
	switch {
	case s > most:
		return math.MaxInt64
	case s < -most:
		return -math.MaxInt64
	}
	return time.Duration(s)*time.Second + time.Duration(t.Nanosecond())
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
