// SPDX-License-Identifier: Apache-2.0

package backoff

import (
	"hash/maphash"
	"math"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Backoff keeps an exponential back-off per key. It corrects the type of the same name in
// k8s.io/client-go/util/flowcontrol (see the package comment). Set the exported fields before
// the first method call. The methods are safe for concurrent use. The zero value never makes a
// key wait.
type Backoff struct {
	// Clock is read by the methods that do not take the time as an argument, and by the
	// others if that is the zero time. Nil means the real clock.
	Clock clock.Clock
	// HasExpiredFunc reports whether an event at eventTime resets a key that last advanced at
	// lastUpdate; see FlatReset. If it holds for a time, it must hold for later ones. Nil means
	// ProportionalReset. The function is called with the lock held, so it must be fast and must
	// not call a method of the same Backoff. If it panics, the key is unchanged.
	HasExpiredFunc func(eventTime time.Time, lastUpdate time.Time, maxDuration time.Duration) bool
	// DelayFirstRestart makes the first restart after a reset wait for the initial delay, as the
	// Kubernetes documentation says. By default it is immediate, as in the kubelet
	// (kubernetes/kubernetes#133472). The methods that client-go has ignore it.
	DelayFirstRestart bool
	// RulesOf returns the rules of a key that has its own, or nil. It is called for each
	// decision, mostly with the lock held, so it must be fast and must not call a method of the same
	// Backoff. Rules that change apply to the present wait too. Nil means that no key has any.
	RulesOf func(id string) *KeyRules

	// lock guards perItemBackoff. A Mutex costs half as much as an RWMutex here, and
	// no method holds it for long.
	lock sync.Mutex
	// 0 <= defaultDuration <= maxDuration.
	defaultDuration time.Duration
	maxDuration     time.Duration
	maxJitterFactor float64
	// metrics is nil without SetMetrics.
	metrics Metrics
	// perItemBackoff has the name of client-go's map, which client-go's tests read.
	perItemBackoff map[string]*backoffEntry
}

// Metrics is what a Backoff reports to. The methods are called with the lock held, so
// they must be fast and must not call a method of the Backoff.
type Metrics interface {
	// KeyAdded and KeyRemoved count the known keys.
	KeyAdded()
	KeyRemoved()
	// KeyReset is called when the reset rule resets a key after an exit, or when GC forgets
	// a key that neither waits nor has a start due. DecideStart only removes an expired key.
	KeyReset()
	// RestartAllowed is called when Decide, DecideStart or Force allows a restart. delay
	// is 0 for an immediate restart. late is how long after the end of its delay the
	// restart was allowed. A restart that is given back is not reported again.
	RestartAllowed(id string, delay, late time.Duration)
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
	b := &Backoff{Clock: tc, maxJitterFactor: maxJitterFactor}
	if max > 0 {
		b.maxDuration = max
	}
	if initial > 0 {
		b.defaultDuration = min(initial, b.maxDuration)
	}
	return b
}

// SetMetrics makes p report to m. Call it before any other method. Without it, p reports
// nothing.
func (p *Backoff) SetMetrics(m Metrics) { p.metrics = m }

// Get returns the delay that the next restart of the key has to wait, jitter
// included. It returns 0 for an unknown key.
func (p *Backoff) Get(id string) time.Duration {
	p.lock.Lock()
	defer p.lock.Unlock()
	return p.delay(id, entryOf(p.perItemBackoff[id]).attempts)
}

// Next advances the key to its next delay, or resets it to the initial delay if the key is new
// or the reset rule holds for eventTime. An event in the future counts as happening now, and one
// at or before the Unix epoch as happening at the last advance.
func (p *Backoff) Next(id string, eventTime time.Time) {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.next(id, eventTime, p.ask(p.now()), false)
}

// next is Next with the lock held. It returns the Decision of Force.
func (p *Backoff) next(id string, eventTime time.Time, q question, delayFirst bool) (d Decision) {
	known := p.perItemBackoff[id]
	e := entryOf(known)
	if e.look(&q, eventTime); known != nil && p.hasExpired(id, &e, &q) {
		d.Reset, e.attempts = true, 0
	}
	d.Allowed, d.RetryAt, d.Again = true, q.now, e.state == givenBack
	if delayFirst {
		e.attempts = max(e.attempts, 1)
	}
	d.Attempt = int(e.attempts)
	if e.advance(&q); !delayFirst {
		d.Attempt = int(e.attempts)
	}
	p.store(id, e)
	return d
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

// IsInBackOffSince reports whether the key still has to wait after an event at eventTime. It
// changes nothing. Unlike Decide, it does not move an event from before the last advance. For
// eventTime see Next.
func (p *Backoff) IsInBackOffSince(id string, eventTime time.Time) bool {
	p.lock.Lock()
	defer p.lock.Unlock()
	e, q := p.perItemBackoff[id], p.ask(p.now())
	if e == nil {
		return false
	}
	e.look(&q, eventTime)
	return !p.hasExpired(id, e, &q) && q.age < p.delay(id, e.attempts)
}

// IsInBackOffSinceUpdate reports whether eventTime, usually the current time, is less than the
// key's delay after its last advance. It changes nothing.
func (p *Backoff) IsInBackOffSinceUpdate(id string, eventTime time.Time) bool {
	p.lock.Lock()
	defer p.lock.Unlock()
	e := p.perItemBackoff[id]
	if e == nil {
		return false
	}
	q := p.ask(p.now())
	q.age = q.now.Sub(eventTime)
	delay := p.delay(id, e.attempts)
	return delay > 0 && !p.hasExpired(id, e, &q) && saturatingSub(e.since(q.at), q.age) < delay
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
	if p.metrics != nil {
		p.metrics.KeyAdded()
	}
}

func (p *Backoff) remove(id string) {
	if _, known := p.perItemBackoff[id]; known {
		delete(p.perItemBackoff, id)
		if p.metrics != nil {
			p.metrics.KeyRemoved()
		}
	}
}

// now returns the current time of the clock.
func (p *Backoff) now() time.Time {
	if p.Clock == nil {
		return time.Now()
	}
	return p.Clock.Now()
}

// ask returns a question at the time now, about no event yet.
func (p *Backoff) ask(now time.Time) question {
	at := monotonic(now)
	if at == math.MinInt64 {
		// A caller passed the zero time by mistake. With it, everything known of the
		// key would seem a long time ago.
		now = p.now()
		at = monotonic(now)
	}
	return question{now: now, at: at}
}
