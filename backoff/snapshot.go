// SPDX-License-Identifier: Apache-2.0

package backoff

import (
	"fmt"
	"time"
)

// KeyState is what is known of a key, in a form that can be stored. The delay is
// not part of it: it follows from Attempts and the curve of the Backoff that the
// state is restored to. A jittered delay may differ after that. Nor is a grant:
// GiveBack does nothing for a key that was restored after it.
type KeyState struct {
	// Attempts is how often the key advanced since its last reset. It is 0 only
	// while the first start is due.
	Attempts int `json:"attempts"`
	// LastUpdate is when the key last advanced, or started or failed to start
	// after that.
	LastUpdate time.Time `json:"lastUpdate"`
	// WaitingSince is when the event happened after which a check found the key
	// waiting, and zero if none did. It is not before LastUpdate.
	WaitingSince time.Time `json:"waitingSince"`
	// Due is true if the last start failed or was given back.
	Due bool `json:"due,omitempty"`
}

// Snapshot returns the state of the key, and false if it is not known.
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

// Restore puts a key in the given state, whether it was known or not. It fails
// and changes nothing for a state that Snapshot cannot have made by now.
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
	// What happened so long ago on the wall clock did so on the monotonic one.
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

// All returns an iterator over the keys and their states, for use in a range
// clause. The order is not defined. A key that is added or removed meanwhile
// may be left out; the body of the loop may call any method of p.
func (p *Backoff) All() func(yield func(string, KeyState) bool) {
	return p.AllAt(p.now())
}

// AllAt is All at the time now.
func (p *Backoff) AllAt(now time.Time) func(yield func(string, KeyState) bool) {
	return func(yield func(string, KeyState) bool) {
		p.lock.Lock()
		// The iterator is used under the lock alone, as in GCAt.
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

// state is the entry as times of the present wall clock.
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
