// SPDX-License-Identifier: Apache-2.0

package backoff

import (
	"slices"
	"time"
)

// IgnoredInterval is the least time between the starts of a key whose exits are ignored: see
// KeyRules.
const IgnoredInterval = time.Second

// KeyRules are the rules of a key that has others than its Backoff.
type KeyRules struct {
	// Initial and Max are the delays, as in Curve.
	Initial, Max time.Duration
	// Reset is the length of a run after which the key starts over, as for FlatReset. With 0,
	// each run that takes any time is long enough, and only failed starts wait.
	Reset time.Duration
	// Ignored are exit codes that are no failure. After such an exit the key restarts at once
	// and starts over: the delay after the next failure is that of a first one. But each start
	// until then, and the one after that failure, is at least IgnoredInterval after the one
	// before, if that one is known.
	Ignored []int32
}

// rules returns the key's own rules, or nil.
func (p *Backoff) rules(id string) *KeyRules {
	if p.RulesOf == nil {
		return nil
	}
	return p.RulesOf(id)
}

// curve returns the delays of the key.
func (p *Backoff) curve(id string) (initial, limit time.Duration) {
	if r := p.rules(id); r != nil {
		limit = max(r.Max, 0)
		return min(max(r.Initial, 0), limit), limit
	}
	return p.defaultDuration, p.maxDuration
}

// DecideExit is Decide after an exit with the given code at eventTime. If the rules of the key
// ignore the code, the exit is no failure, unless the start before it failed (Fail).
func (p *Backoff) DecideExit(id string, exitCode int32, eventTime, now time.Time) Decision {
	return p.decide(id, p.ignores(id, exitCode), eventTime, now)
}

// PeekExit returns the Decision that DecideExit would return, and changes nothing.
func (p *Backoff) PeekExit(id string, exitCode int32, eventTime, now time.Time) Decision {
	return p.peek(id, p.ignores(id, exitCode), eventTime, now)
}

func (p *Backoff) ignores(id string, exitCode int32) bool {
	r := p.rules(id)
	return r != nil && slices.Contains(r.Ignored, exitCode)
}

// ignore decides the question after an exit that is ignored, for a key in state e. It records no
// wait: the next start depends on the last one alone.
func (d *Decision) ignore(known bool, e *backoffEntry, q *question) {
	d.Again = e.state == givenBack
	e.attempts, e.ignored = 0, true
	e.last = min(e.last, q.at) // see wait
	if known && !d.Again {
		d.Delay = e.interval(q)
	}
	left := d.Delay - q.age
	d.Allowed, d.RetryAt = left <= 0, q.now.Add(left)
}

// interval returns the delay that makes the time between two starts, of which the former may have
// failed, IgnoredInterval.
func (e *backoffEntry) interval(q *question) time.Duration {
	run := max(saturatingSub(e.since(q.at), q.age), 0)
	return max(IgnoredInterval-run, 0)
}
