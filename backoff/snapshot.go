// SPDX-License-Identifier: Apache-2.0

package backoff

import (
	"fmt"
	"time"
)

// KeyState is the state of a key in a form that can be stored. It has no delay, which follows from
// Attempts and the curve of the Backoff that the state is restored to. Jitter may therefore differ
// after a restore. It has no grant either: GiveBack does nothing for a restored key.
type KeyState struct {
	// Attempts counts the advances of the key since its last reset. With DelayFirstRestart,
	// the first event counts as one too. It is 0 only while the first start is due, or if
	// Ignored is true.
	Attempts int `json:"attempts"`
	// LastUpdate is when the key last advanced. A later start, or a later failed
	// start, also sets it.
	LastUpdate time.Time `json:"lastUpdate"`
	// WaitingSince is the time of the event that the key was found waiting
	// after, or zero if the key does not wait. It is not before LastUpdate.
	WaitingSince time.Time `json:"waitingSince"`
	// Due reports whether the last start failed or was given back. WaitingSince is
	// then zero.
	Due bool `json:"due,omitempty"`
	// Ignored reports whether Attempts is 0 because an exit was ignored (KeyRules).
	Ignored bool `json:"ignored,omitempty"`
}

// Snapshot returns the state of the key at the time now, and false for an unknown key.
func (p *Backoff) Snapshot(id string, now time.Time) (KeyState, bool) {
	p.lock.Lock()
	defer p.lock.Unlock()
	e, q := p.perItemBackoff[id], p.ask(now)
	if e == nil {
		return KeyState{}, false
	}
	at := func(t time.Duration) time.Time {
		return q.now.Round(0).UTC().Add(-max(saturatingSub(q.at, t), 0))
	}
	s := KeyState{Attempts: int(e.attempts), LastUpdate: at(e.last), Due: e.state.due(), Ignored: e.attempts == 0 && e.ignored}
	if e.state == waiting {
		s.WaitingSince = at(e.from)
	}
	return s, true
}

// Restore sets the key to the given state, and replaces a known key. A caller whose clock may
// have been set back between Snapshot and Restore must first replace times after now by now, as
// restart.RestoreBackOff does. The first check
// that finds it waiting sets FirstWait. Restore returns an error and changes nothing for
// a state that Snapshot cannot have returned before now. The error names the field, its
// value and what would be valid.
func (p *Backoff) Restore(id string, s KeyState, now time.Time) error {
	p.lock.Lock()
	defer p.lock.Unlock()
	q := p.ask(now)
	now = q.now
	waits := !s.WaitingSince.IsZero()
	switch {
	case s.Attempts < 0 || s.Attempts > maxAttempts:
		return fmt.Errorf("attempts: %d: must be between 0 and %d", s.Attempts, maxAttempts)
	case s.Attempts == 0 && !s.Due && !s.Ignored:
		return fmt.Errorf("attempts: 0: must be at least 1 unless the start is due or an exit was ignored")
	case s.Attempts > 0 && s.Ignored:
		return fmt.Errorf("attempts: %d: must be 0 if an exit was ignored", s.Attempts)
	case s.LastUpdate.Unix() <= 0:
		return fmt.Errorf("lastUpdate: %s: must be after 1970-01-01T00:00:00Z", s.LastUpdate.Format(time.RFC3339))
	case s.LastUpdate.After(now):
		return fmt.Errorf("lastUpdate: %s: must not be after the present, %s", s.LastUpdate.Format(time.RFC3339), now.Format(time.RFC3339))
	case waits && s.Due:
		return fmt.Errorf("waitingSince: %s: must be zero if the start is due", s.WaitingSince.Format(time.RFC3339))
	case waits && s.WaitingSince.Before(s.LastUpdate):
		return fmt.Errorf("waitingSince: %s: must not be before lastUpdate, %s", s.WaitingSince.Format(time.RFC3339), s.LastUpdate.Format(time.RFC3339))
	case waits && s.WaitingSince.After(now):
		return fmt.Errorf("waitingSince: %s: must not be after the present, %s", s.WaitingSince.Format(time.RFC3339), now.Format(time.RFC3339))
	}
	// An interval on the wall clock has the same length on the monotonic clock.
	ago := func(t time.Time) time.Duration { return saturatingSub(q.at, now.Round(0).Sub(t)) }
	e := backoffEntry{last: ago(s.LastUpdate), from: wall(s.LastUpdate), attempts: int32(s.Attempts), ignored: s.Ignored}
	switch {
	case s.Due:
		e.state = failed
	case waits:
		e.state, e.event, e.from = waiting, wall(s.WaitingSince), ago(s.WaitingSince)
	}
	p.store(id, e)
	return nil
}
