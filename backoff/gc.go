// SPDX-License-Identifier: Apache-2.0

package backoff

import "runtime"

// gcStep is how many keys GC checks before it yields the lock. GC copies up to smallMap keys.
const (
	gcStep   = 256
	smallMap = 4096
)

// GC forgets the keys for which the reset rule holds one delay before now. A key that
// waits is therefore kept: its wait began before the rule held, and lasts one delay. GC
// releases the lock from time to time, so that it does not block other calls.
func (p *Backoff) GC() {
	p.lock.Lock()
	defer p.lock.Unlock()
	q := p.ask(p.now())
	var kept []string
	visited, removed := 0, false
	// The iterator is used only under the lock, and a map may change between its
	// steps. After shrink the iterator is still on the old map.
	for id, e := range p.perItemBackoff {
		if p.perItemBackoff[id] != e {
			continue
		}
		if p.collectable(id, e, &q) {
			if p.metrics != nil && e.state != waiting && !e.state.due() {
				p.metrics.KeyReset()
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

func (p *Backoff) collectable(id string, e *backoffEntry, q *question) bool {
	age := e.since(q.at)
	if e.state == waiting {
		age = e.waited(q.at)
	}
	age = saturatingSub(age, p.delay(id, e.attempts))
	if p.rules(id) != nil && age <= ContainerResetPeriod {
		return false // a late start has its delay also if the key's reset is short
	}
	return age >= 0 && p.expired(id, q.now, q.now.Add(-age))
}

// shrink replaces the map if few keys are left, because a map does not shrink by
// itself. It does nothing if other calls added or removed keys meanwhile.
func (p *Backoff) shrink(kept []string) {
	if len(p.perItemBackoff) > smallMap {
		return
	}
	smaller := make(map[string]*backoffEntry, len(p.perItemBackoff))
	for _, id := range kept {
		if e := p.perItemBackoff[id]; e != nil {
			smaller[id] = e
		}
	}
	// A key that was removed and added again may be in kept twice.
	if len(smaller) == len(p.perItemBackoff) {
		p.perItemBackoff = smaller
	}
}
