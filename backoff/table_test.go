// SPDX-License-Identifier: Apache-2.0

package backoff

import (
	"fmt"
	"math/rand"
	"strings"
	"testing"
)

// testKey makes keys of all lengths about the one that is inline, some of which
// differ in trailing zeros alone.
func testKey(i int) string {
	return fmt.Sprint(i/20) + strings.Repeat("\x00", i%20)
}

// The table behaves as a map does, over growth, removal and reuse of places.
func TestTableAgainstMap(t *testing.T) {
	const seed, keys = 2, 6000
	r := rand.New(rand.NewSource(seed))
	tab, model := table{}, map[string]uint32{}
	for i := range 100_000 {
		// Insertions outweigh removals for a while, and then the other way round.
		insert := r.Intn(10) < 7
		if i/20_000%2 == 1 {
			insert = !insert
		}
		key := testKey(r.Intn(keys))
		e := tab.find(key)
		state, known := model[key]
		if (e != nil) != known || known && e.attempts() != state {
			t.Fatalf("step %d: key %s is %v in the table, and %d, %t in the map", i, key, e, state, known)
		}
		switch {
		case insert && !known:
			tab.insert(key).set(uint32(i+1), 0, 0)
			model[key] = uint32(i + 1)
		case !insert && known:
			tab.remove(key)
			delete(model, key)
		}
	}
	for from, more := uint64(0), true; more; more = from != 0 {
		from = tab.visit(from, func(e *entry) bool {
			key := tab.keyOf(e)
			// One that moved up may come again, but not with removals on the way.
			if model[key] != e.attempts() {
				t.Errorf("key %s has %d attempts, in the map %d", key, e.attempts(), model[key])
			}
			delete(model, key)
			return true
		})
	}
	if len(model) != 0 {
		t.Errorf("visit left out %d keys", len(model))
	}
}

func TestAttemptsSaturate(t *testing.T) {
	tab := table{}
	e := tab.insert("a")
	e.set(attemptsMask, 0, 0)
	e.startWaiting(0)
	if e.attempts() != attemptsMask || !e.waiting() || tab.find("a") != e {
		t.Errorf("attempts = %d, waiting = %t", e.attempts(), e.waiting())
	}
	e.set(e.attempts()+1, 0, 0)
	if e.attempts() != attemptsMask || e.waiting() || tab.find("a") != e {
		t.Errorf("attempts = %d, waiting = %t", e.attempts(), e.waiting())
	}
}
