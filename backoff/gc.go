// SPDX-License-Identifier: Apache-2.0

package backoff

import (
	"runtime"
	"time"
)

// gcStep is how many keys GC checks before it yields the lock. smallMap is the
// largest number of keys that GC copies into a new map.
const (
	gcStep   = 256
	smallMap = 4096
)

// GC forgets the keys for which the reset rule holds now. The age of a waiting key
// counts from the end of its wait. GC releases the lock from time to time, so that it
// does not block other calls.
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
	// The iterator is used only under the lock, and a map may change between its
	// steps. After shrink the iterator is still on the old map.
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
			// A waiting goroutine gets the lock. Without this, GC would take it
			// again first.
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

// shrink replaces the map if few keys are left, because a map does not shrink by
// itself. It does nothing if other calls added or removed keys meanwhile.
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
