// SPDX-License-Identifier: Apache-2.0

package backoff

import (
	"fmt"
	"time"
)

// KeyState is all that is known of a key, in a form that can be stored. The delay
// is not part of it: it follows from Attempts and the curve of the Backoff that
// the state is restored to. A jittered delay may differ after that.
type KeyState struct {
	// Attempts is how often the key advanced since its last reset, at least 1.
	Attempts int `json:"attempts"`
	// LastUpdate is when the key last advanced.
	LastUpdate time.Time `json:"lastUpdate"`
	// WaitingSince is when a check first found the key waiting after that, and
	// zero if none did.
	WaitingSince time.Time `json:"waitingSince"`
}

// Snapshot returns the state of the key, and false if it is not known.
func (p *Backoff) Snapshot(id string) (KeyState, bool) {
	return p.SnapshotAt(id, p.now())
}

// SnapshotAt is Snapshot at the time now.
func (p *Backoff) SnapshotAt(id string, now time.Time) (KeyState, bool) {
	p.lock.Lock()
	defer p.lock.Unlock()
	e := p.items.find(id)
	if e == nil {
		return KeyState{}, false
	}
	return p.state(e, now), true
}

// Restore puts a key in the given state, whether it was known or not. It fails
// and changes nothing when Attempts is below 1, or LastUpdate is at or before
// the Unix epoch.
func (p *Backoff) Restore(id string, s KeyState) error {
	return p.RestoreAt(id, s, p.now())
}

// RestoreAt is Restore at the time now.
func (p *Backoff) RestoreAt(id string, s KeyState, now time.Time) error {
	if s.Attempts < 1 {
		return fmt.Errorf("attempts: %d: must be at least 1", s.Attempts)
	}
	if s.LastUpdate.Unix() <= 0 {
		return fmt.Errorf("lastUpdate: %s: must be after 1970-01-01T00:00:00Z", s.LastUpdate.Format(time.RFC3339))
	}
	p.lock.Lock()
	defer p.lock.Unlock()
	p.begin(now)
	e := p.items.find(id)
	if e == nil {
		e = p.insert(id)
	}
	// What happened so long ago on the wall clock did so on the monotonic one.
	mark := func(t time.Time) time.Duration {
		return saturatingSub(p.monotonic(now), saturatingSub(p.wall(now), p.wall(t)))
	}
	e.set(uint32(min(s.Attempts, attemptsMask)), p.wall(s.LastUpdate), mark(s.LastUpdate))
	if !s.WaitingSince.IsZero() {
		e.startWaiting(mark(s.WaitingSince))
	}
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
		type item struct {
			key   string
			state KeyState
		}
		var some []item
		for from, more := uint64(0), true; more; more = from != 0 {
			some = some[:0]
			p.lock.Lock()
			from = p.items.visit(from, func(e *entry) bool {
				some = append(some, item{p.items.keyOf(e), p.state(e, now)})
				return false
			})
			p.lock.Unlock()
			for _, i := range some {
				if !yield(i.key, i.state) {
					return
				}
			}
		}
	}
}

func (p *Backoff) state(e *entry, now time.Time) KeyState {
	s := KeyState{Attempts: int(e.attempts()), LastUpdate: time.Unix(p.epochUnix, int64(e.lastUpdate)).UTC()}
	if e.waiting() {
		// So long ago on the monotonic clock; the wall clock may have stepped.
		s.WaitingSince = now.Round(0).Add(-saturatingSub(p.monotonic(now), e.mark))
	}
	return s
}
