// SPDX-License-Identifier: Apache-2.0

package backoff

import (
	"hash/maphash"
	"math"
	"time"
)

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
