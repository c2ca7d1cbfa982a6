// SPDX-License-Identifier: Apache-2.0

package backoff

import (
	"hash/maphash"
	"strconv"
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
	// for the first restart, and 0 for a start that is not a restart or follows an exit
	// that is ignored (KeyRules).
	Attempt int
	// Reset reports whether the reset rule has just reset the key. A key that GC
	// removed by that rule earlier counts as new instead.
	Reset bool
	// FirstWait is true for the first check that found this restart waiting, and
	// false for all later checks, and for Fail.
	FirstWait bool
	// Again reports whether the last start was allowed before and given back. If the event is
	// another one, this start may have to wait nevertheless.
	Again bool
}

// Decide reports whether the key may restart at the time now after an event (an exit) at
// eventTime. If so, it advances the key to its next delay. It combines IsInBackOffSince, Get and
// Next of client-go.
//
// One event permits one start. An event before the time of the last start is already and
// counts as happening at that start. A caller that asks again therefore waits for the next delay. GiveBack takes back a start that was not made.
//
// An event in the future counts as happening now. An eventTime at or before the Unix epoch means
// unknown: the event counts as happening at the first check that saw it.
func (p *Backoff) Decide(id string, eventTime, now time.Time) Decision {
	return p.decide(id, false, eventTime, now)
}

func (p *Backoff) decide(id string, ignored bool, eventTime, now time.Time) (d Decision) {
	p.lock.Lock()
	defer p.lock.Unlock()
	known, q := p.perItemBackoff[id], p.ask(now)
	q.ignored = ignored
	known.answer(&q, eventTime)
	p.grant(&d, id, known, &q)
	return d
}

// Peek returns the Decision that Decide would return, and changes nothing.
func (p *Backoff) Peek(id string, eventTime, now time.Time) Decision {
	return p.peek(id, false, eventTime, now)
}

func (p *Backoff) peek(id string, ignored bool, eventTime, now time.Time) (d Decision) {
	p.lock.Lock()
	defer p.lock.Unlock()
	known := p.perItemBackoff[id]
	e, q := entryOf(known), p.ask(now)
	q.ignored = ignored
	known.answer(&q, eventTime)
	p.rule(&d, id, known != nil, &e, &q)
	return d
}

// DecideStart is Decide for a start that follows no exit: the first one, or one after all
// instances were removed. It is allowed at once, ends a wait, and does not count as an attempt. If
// the previous start failed or was given back, DecideStart decides as after an exit at that time.
func (p *Backoff) DecideStart(id string, now time.Time) (d Decision) {
	p.lock.Lock()
	defer p.lock.Unlock()
	e, q := p.perItemBackoff[id], p.ask(now)
	if e != nil && e.state.due() {
		q.event, q.age, q.answered = e.event, max(e.since(q.at), 0), true
		p.grant(&d, id, e, &q)
		return d
	}
	if e != nil && e.state != waiting && p.hasExpired(id, e, &q) {
		p.remove(id) // the run was long enough
	} else if e != nil {
		e.start(running, &q)
	}
	d.Allowed, d.RetryAt = true, q.now
	return d
}

// Force is Decide for a restart that does not wait, regardless of the key's delay. The
// event happens now, unless the key already waits after one. The key advances, and the
// Decision has no delay.
func (p *Backoff) Force(id string, now time.Time) (d Decision) {
	p.lock.Lock()
	defer p.lock.Unlock()
	e, q := p.perItemBackoff[id], p.ask(now)
	eventTime := q.now
	if e != nil && e.state == waiting {
		eventTime = q.now.Add(-e.waited(q.at))
	}
	d = p.next(id, eventTime, q, p.DelayFirstRestart)
	p.report(id, &d, &q)
	return d
}

// Fail records that a start of the key failed: the one that Decide or DecideStart allowed, or the
// first one. The failure counts as an exit now, so a wait counts from the last Fail. The returned
// Decision is about the next attempt, which Decide or DecideStart must still allow.
func (p *Backoff) Fail(id string, now time.Time) (d Decision) {
	p.lock.Lock()
	defer p.lock.Unlock()
	e, q := entryOf(p.perItemBackoff[id]), p.ask(now)
	if e.start(failed, &q); p.DelayFirstRestart {
		e.attempts = max(e.attempts, 1)
	}
	asked := e
	p.rule(&d, id, true, &asked, &q)
	p.store(id, e)
	d.FirstWait = false // the check that finds it waiting sets this
	return d
}

// GiveBack takes back the restart that Decide, DecideStart or Force has just allowed, if nothing
// was started. The next Decide about the same event, or the next DecideStart, allows it again at
// once, as the same attempt. GiveBack does nothing in any other state than granted.
func (p *Backoff) GiveBack(id string, now time.Time) {
	p.lock.Lock()
	defer p.lock.Unlock()
	e, q := p.perItemBackoff[id], p.ask(now)
	if e == nil || e.state != granted {
		return
	}
	e.attempts = max(e.attempts-1, 0)
	e.state, e.last = givenBack, min(e.last, q.at)
}

// Granted reports whether the key's last start was a restart, and is not known to have taken
// effect yet. GiveBack can take it back.
func (p *Backoff) Granted(id string) bool {
	p.lock.Lock()
	defer p.lock.Unlock()
	e := p.perItemBackoff[id]
	return e != nil && e.state == granted
}

// Started records that the key's last start took effect at startedAt, if that is later than the
// known time. The run then counts from startedAt, and the start can no longer be given back. Started
// does nothing if startedAt is unknown or in the future, or if a later event is already waiting.
func (p *Backoff) Started(id string, startedAt, now time.Time) {
	p.lock.Lock()
	defer p.lock.Unlock()
	e, q := p.perItemBackoff[id], p.ask(now)
	if e == nil || e.state != running && e.state != granted || startedAt.Unix() <= 0 {
		return
	}
	// The wall clock is compared with what it showed when the start was allowed, and
	// not with now: it may have stepped during a long run.
	at := saturatingSub(e.last, saturatingSub(e.from, wall(startedAt)))
	if at > q.at {
		at = saturatingSub(q.at, q.now.Sub(startedAt))
	}
	if at > e.last && at <= q.at {
		e.last, e.from, e.state, e.seen = at, wall(startedAt), running, false
	}
}

// Exited records that the key's run ended at eventTime (see Decide), for a caller that calls Decide
// much later. Otherwise GC might forget the key. Exited does nothing for an unknown key.
func (p *Backoff) Exited(id string, eventTime, now time.Time) {
	p.lock.Lock()
	defer p.lock.Unlock()
	if e := p.perItemBackoff[id]; e != nil {
		q := p.ask(now)
		e.answer(&q, eventTime)
		e.wait(&q)
	}
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
	} else if p.rule(d, id, true, known, q); d.Allowed {
		if d.Reset && !p.DelayFirstRestart {
			known.attempts = 0
		}
		known.advance(q)
	}
	p.report(id, d, q)
}

// report reports a decision to the metrics.
func (p *Backoff) report(id string, d *Decision, q *question) {
	if p.metrics == nil || d.Again {
		return
	}
	if d.Reset {
		p.metrics.KeyReset()
	}
	if d.Allowed {
		late := time.Duration(0)
		if d.Delay > 0 {
			late = q.now.Sub(d.RetryAt)
		}
		p.metrics.RestartAllowed(id, d.Delay, late)
	}
}

// rule decides the question for a key in state e, which need not be stored. If the
// key has to wait, rule records the wait in e.
func (p *Backoff) rule(d *Decision, id string, known bool, e *backoffEntry, q *question) {
	if q.ignored = q.ignored && e.state != failed; q.ignored {
		d.ignore(known, e, q)
		return
	}
	d.Reset, d.Again = known && p.hasExpired(id, e, q), e.state == givenBack
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
	if e.attempts == 0 && e.ignored {
		d.Delay = e.interval(q)
	}
	left := d.Delay - q.age
	if e.state == givenBack && q.answered {
		left = -q.age // the delay had passed when the start was allowed
	}
	d.RetryAt = q.now.Add(left)
	if d.Allowed = left <= 0; !d.Allowed {
		e.wait(q)
		d.FirstWait, e.seen = !e.seen, true
	}
}

// delay returns how long a key with this many attempts waits, jitter included.
func (p *Backoff) delay(id string, attempts int32) time.Duration {
	if attempts == 0 {
		return 0
	}
	initial, limit := p.curve(id)
	d := doubled(initial, limit, int(attempts-1))
	if p.maxJitterFactor > 0 {
		// All checks of one wait see the same jitter, because it depends only on the key
		// and its attempts.
		random := float64(maphash.String(jitterSeed, id+strconv.Itoa(int(attempts)))) / (1 << 64)
		jitter := random * p.maxJitterFactor * float64(d)
		if attempts > 1 {
			jitter /= 2 // the factor applies to the previous delay, half of d
		}
		// This form of the comparison also handles factors that make jitter NaN.
		if jitter < float64(limit-d) {
			return d + time.Duration(jitter)
		}
		return limit
	}
	return d
}

// hasExpired applies the reset rule. The difference of the times is right after a step of the clock.
func (p *Backoff) hasExpired(id string, e *backoffEntry, q *question) bool {
	return p.expired(id, q.now.Add(-q.age), q.now.Add(-e.since(q.at)))
}

func (p *Backoff) expired(id string, eventTime, lastUpdate time.Time) bool {
	if r := p.rules(id); r != nil {
		return FlatReset(r.Reset)(eventTime, lastUpdate, r.Max)
	}
	if p.HasExpiredFunc != nil {
		return p.HasExpiredFunc(eventTime, lastUpdate, p.maxDuration)
	}
	return ProportionalReset(eventTime, lastUpdate, p.maxDuration)
}
