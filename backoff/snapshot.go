// SPDX-License-Identifier: Apache-2.0

package backoff

import (
	"fmt"
	"time"
)

// KeyState is the state of a key in a form that can be stored. It does not
// contain the delay, which follows from Attempts and the curve of the Backoff
// that the state is restored to. A jittered delay may therefore differ after a
// restore. KeyState does not contain a grant either: GiveBack does nothing for a
// restored key.
type KeyState struct {
	// Attempts counts the advances of the key since its last reset. It is 0 only
	// while the first start is due.
	Attempts int `json:"attempts"`
	// LastUpdate is when the key last advanced. A later start, or a later failed
	// start, also sets it.
	LastUpdate time.Time `json:"lastUpdate"`
	// WaitingSince is the time of the event that the key was found waiting
	// after, or zero if the key does not wait. It is not before LastUpdate.
	WaitingSince time.Time `json:"waitingSince"`
	// Due reports whether the last start failed or was given back.
	Due bool `json:"due,omitempty"`
}

// Snapshot returns the state of the key, and false for an unknown key.
func (p *Backoff) Snapshot(id string) (KeyState, bool) {
	return p.SnapshotAt(id, p.now())
}

// SnapshotAt is Snapshot at the time now.
func (p *Backoff) SnapshotAt(id string, now time.Time) (KeyState, bool) {
	p.lock.Lock()
	defer p.lock.Unlock()
	e := p.perItemBackoff[id]
	if e == nil {
		return KeyState{}, false
	}
	return e.state(now), true
}

// Restore sets the key to the given state, and replaces a known key. It returns
// an error and changes nothing for a state that Snapshot cannot have returned
// before now. The error names the field, its value and what would be valid.
func (p *Backoff) Restore(id string, s KeyState) error {
	return p.RestoreAt(id, s, p.now())
}

// RestoreAt is Restore at the time now.
func (p *Backoff) RestoreAt(id string, s KeyState, now time.Time) error {
	waiting := !s.WaitingSince.IsZero()
	switch {
	case s.Attempts < 0 || s.Attempts > maxAttempts:
		return fmt.Errorf("attempts: %d: must be between 0 and %d", s.Attempts, maxAttempts)
	case s.Attempts == 0 && !s.Due:
		return fmt.Errorf("attempts: 0: must be at least 1 unless the start is due")
	case s.LastUpdate.Unix() <= 0:
		return fmt.Errorf("lastUpdate: %s: must be after 1970-01-01T00:00:00Z", s.LastUpdate.Format(time.RFC3339))
	case s.LastUpdate.After(now):
		return fmt.Errorf("lastUpdate: %s: must not be after the present, %s", s.LastUpdate.Format(time.RFC3339), now.Format(time.RFC3339))
	case waiting && s.WaitingSince.Before(s.LastUpdate):
		return fmt.Errorf("waitingSince: %s: must not be before lastUpdate, %s", s.WaitingSince.Format(time.RFC3339), s.LastUpdate.Format(time.RFC3339))
	case waiting && s.WaitingSince.After(now):
		return fmt.Errorf("waitingSince: %s: must not be after the present, %s", s.WaitingSince.Format(time.RFC3339), now.Format(time.RFC3339))
	}
	// An interval on the wall clock has the same length on the monotonic clock.
	ago := func(t time.Time) time.Duration {
		return saturatingSub(monotonic(now), now.Round(0).Sub(t))
	}
	e := backoffEntry{last: ago(s.LastUpdate), attempts: int32(s.Attempts), waiting: waiting}
	if s.Due {
		e.due = dueFailed
	}
	if waiting {
		e.event, e.from = wall(s.WaitingSince), ago(s.WaitingSince)
	}
	p.lock.Lock()
	defer p.lock.Unlock()
	p.store(id, e)
	return nil
}

// All returns an iterator over the keys and their states, for a range statement.
// The order is not defined. A key that is added or removed during the iteration
// may be left out. The loop body may call any method of p.
func (p *Backoff) All() func(yield func(string, KeyState) bool) {
	return p.AllAt(p.now())
}

// AllAt is All at the time now.
func (p *Backoff) AllAt(now time.Time) func(yield func(string, KeyState) bool) {
	return func(yield func(string, KeyState) bool) {
		p.lock.Lock()
		// As in GCAt, the iterator is used only under the lock.
		for id, e := range p.perItemBackoff {
			if p.perItemBackoff[id] != e {
				continue
			}
			s := e.state(now)
			p.lock.Unlock()
			if !yield(id, s) {
				return
			}
			p.lock.Lock()
		}
		p.lock.Unlock()
	}
}

// state returns the entry with times of the current wall clock.
func (e *backoffEntry) state(now time.Time) KeyState {
	at := func(t time.Duration) time.Time {
		return now.Round(0).UTC().Add(-max(saturatingSub(monotonic(now), t), 0))
	}
	s := KeyState{Attempts: int(e.attempts), LastUpdate: at(e.last), Due: e.due != notDue}
	if e.waiting {
		s.WaitingSince = at(e.from)
		if s.WaitingSince.Before(s.LastUpdate) {
			s.LastUpdate = s.WaitingSince
		}
	}
	return s
}
