// SPDX-License-Identifier: Apache-2.0

package backoff

import (
	"fmt"
	"math"
	"sync"
	"testing"
	"time"
)

func TestGCOverManyKeys(t *testing.T) {
	b := kubelet(10, 300)()
	const keys = 5*gcStep + 7
	for i := range keys {
		next(b, fmt.Sprint(i), seconds(0), seconds(float64(i%2*1000)))
	}
	clockAt(b, seconds(1000)).GC()
	for i := range keys {
		want := KeyState{Attempts: 1, LastUpdate: seconds(1000)}
		if s, known := b.Snapshot(fmt.Sprint(i), seconds(1000)); known != (i%2 == 1) || known && s != want {
			t.Errorf("key %d is known: %t, with state %v", i, known, s)
		}
	}
}

func TestSnapshotRestore(t *testing.T) {
	b := kubelet(10, 300)()
	for range 3 {
		next(b, "waits", seconds(0), seconds(100))
		next(b, "runs", seconds(0), seconds(100))
	}
	b.Decide("waits", seconds(101), seconds(105))
	if _, known := b.Snapshot("other", seconds(105)); known {
		t.Error("a key that was never seen is known")
	}
	want := map[string]KeyState{
		"waits": {Attempts: 3, LastUpdate: seconds(100), WaitingSince: seconds(101)},
		"runs":  {Attempts: 3, LastUpdate: seconds(100)},
	}
	restored := kubelet(10, 30)()
	for id, state := range want {
		got, known := b.Snapshot(id, seconds(108))
		if !known || got != state {
			t.Errorf("%s has state %v, %t, want %v", id, got, known, state)
		}
		for range 2 { // the second time over a known key
			if err := restored.Restore(id, got, seconds(110)); err != nil {
				t.Fatal(err)
			}
		}
		if again, _ := restored.Snapshot(id, seconds(112)); again != state {
			t.Errorf("%s is restored to %v, want %v", id, again, state)
		}
	}
	// The restored keys follow the new curve, whose maximum is 30 s.
	for id, want := range map[string]string{
		"waits": "wait #4 30s until 2m11s first",
		"runs":  "wait #4 30s until 2m11s first",
	} {
		if got := describe(restored.Decide(id, seconds(101), seconds(111))); got != want {
			t.Errorf("%s: got %s, want %s", id, got, want)
		}
	}
}

func TestRestoreRefuses(t *testing.T) {
	for want, s := range map[string]KeyState{
		"attempts: 0: must be at least 1 unless the start is due or an exit was ignored":          {LastUpdate: start},
		"attempts: 2: must be 0 if an exit was ignored":                                           {Attempts: 2, Ignored: true, LastUpdate: start},
		"attempts: -7: must be between 0 and 2147483647":                                          {Attempts: -7, LastUpdate: start},
		"attempts: 2147483648: must be between 0 and 2147483647":                                  {Attempts: 1 << 31, LastUpdate: start},
		"lastUpdate: 0001-01-01T00:00:00Z: must be after 1970-01-01T00:00:00Z":                    {Attempts: 1},
		"lastUpdate: 9999-01-01T00:00:00Z: must not be after the present, 2026-11-20T12:00:00Z":   {Attempts: 1, LastUpdate: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)},
		"waitingSince: 2026-11-20T11:59:58Z: must not be before lastUpdate, 2026-11-20T11:59:59Z": {Attempts: 1, LastUpdate: seconds(-1), WaitingSince: seconds(-2)},
		"waitingSince: 2026-11-20T12:00:00Z: must be zero if the start is due":                    {Attempts: 1, LastUpdate: start, WaitingSince: start, Due: true},
		"waitingSince: 2026-11-20T12:00:01Z: must not be after the present, 2026-11-20T12:00:00Z": {Attempts: 1, LastUpdate: start, WaitingSince: seconds(1)},
	} {
		b := kubelet(10, 300)()
		next(b, "a", start, start)
		before, _ := b.Snapshot("a", start)
		if err := b.Restore("a", s, start); err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
		if after, _ := b.Snapshot("a", start); after != before {
			t.Errorf("the key changed from %v to %v", before, after)
		}
	}
}

// A time of zero counts as the time of the clock.
func TestSnapshotAndRestoreAtTheZeroTime(t *testing.T) {
	b := clockAt(kubelet(10, 300)(), seconds(5))
	b.Decide("a", seconds(0), seconds(1))
	s, _ := b.Snapshot("a", time.Time{})
	if want := (KeyState{Attempts: 1, LastUpdate: seconds(1)}); s != want {
		t.Errorf("state %v, want %v", s, want)
	}
	if err := b.Restore("b", s, time.Time{}); err != nil {
		t.Error(err)
	}
	if again, _ := b.Snapshot("b", seconds(6)); again != s {
		t.Errorf("restored to %v, want %v", again, s)
	}
}

func TestConcurrentSnapshots(t *testing.T) {
	b := NewBackOff(time.Second, time.Minute)
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range 2000 {
				id := fmt.Sprint((worker + i) % 50)
				b.Decide(id, time.Now(), time.Now())
				if s, known := b.Snapshot(id, time.Now()); known {
					if err := b.Restore(id, s, time.Now()); err != nil {
						t.Error(err)
					}
				}
				if i%100 == 0 {
					b.GC()
					b.Reset(id)
				}
			}
		}()
	}
	wg.Wait()
}

func TestAttemptsSaturate(t *testing.T) {
	b := kubelet(10, 300)()
	if err := b.Restore("a", KeyState{Attempts: math.MaxInt32 - 1, LastUpdate: start}, start); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		d := b.Decide("a", seconds(0), seconds(300))
		s, _ := b.Snapshot("a", seconds(300))
		if d.Attempt != math.MaxInt32 || s.Attempts != d.Attempt && d.Allowed {
			t.Errorf("Decide says attempt %d, Snapshot %d", d.Attempt, s.Attempts)
		}
		b.DecideStart("a", start)
	}
	if s, _ := b.Snapshot("a", seconds(300)); b.Get("a") != 300*time.Second || b.Restore("a", s, seconds(300)) != nil {
		t.Errorf("%v cannot be restored", s)
	}
}

// Every state that Snapshot returns can be restored.
func TestRestoreTakesEverySnapshot(t *testing.T) {
	for name, prepare := range map[string]func(b *Backoff){
		"advanced": func(b *Backoff) { next(b, "a", start, start) },
		"waiting":  func(b *Backoff) { next(b, "a", start, start); b.Decide("a", seconds(1), seconds(2)) },
		"failed":   func(b *Backoff) { b.Fail("a", start) },
		"failed, the wait ended": func(b *Backoff) {
			next(b, "a", start, start)
			b.Fail("a", start)
			b.DecideStart("a", start)
		},
		"given back": func(b *Backoff) { b.Decide("a", start, start); b.GiveBack("a", start) },
		"the clock stepped back": func(b *Backoff) {
			next(b, "a", start, start)
			b.Decide("a", seconds(1), seconds(-5))
		},
		"advanced in the future": func(b *Backoff) { next(b, "a", start, seconds(500)) },
	} {
		b := kubelet(10, 300)()
		prepare(b)
		now := seconds(5)
		s, known := b.Snapshot("a", now)
		if !known {
			t.Errorf("%s: not known", name)
		}
		other := kubelet(10, 300)()
		if err := other.Restore("a", s, now); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if again, _ := other.Snapshot("a", now); again != s {
			t.Errorf("%s: restored to %v, want %v", name, again, s)
		}
	}
}

// The wall clock may step while the state is stored.
func TestSnapshotAcrossClockSteps(t *testing.T) {
	at := func(wall, monotonic float64) time.Time {
		return reading(t, seconds(wall), time.Duration(monotonic*float64(time.Second)))
	}
	const step = 300
	b := kubelet(300, 300)()
	b.Decide("a", seconds(0), at(0, 0))
	b.Decide("a", seconds(step+9), at(step+10, 10)) // the wall clock stepped by five minutes
	s, _ := b.Snapshot("a", at(step+20, 20))
	if want := seconds(step + 9); !s.WaitingSince.Equal(want) {
		t.Errorf("waiting since %s, want %s", s.WaitingSince, want)
	}
	// The other Backoff was created before another step.
	other := kubelet(300, 300)()
	next(other, "b", at(0, 1000), at(0, 1000))
	if err := other.Restore("a", s, at(step+30, 1030)); err != nil {
		t.Fatal(err)
	}
	if again, _ := other.Snapshot("a", at(step+30, 1030)); again != s {
		t.Errorf("restored to %v, want %v", again, s)
	}
	if d := other.Decide("a", seconds(step+9), at(step+308, 1308)); d.Allowed {
		t.Error("released early")
	}
	if d := other.Decide("a", seconds(step+9), at(step+309, 1309)); !d.Allowed {
		t.Error("not released")
	}
}

// Snapshot changes nothing, in any state.
func TestSnapshotChangesNothing(t *testing.T) {
	b := kubelet(10, 300)()
	for i, next := range []func(){
		func() {},
		func() { b.Decide("a", start, start) },
		func() { b.Exited("a", seconds(1), seconds(1)) },
		func() { b.Fail("a", seconds(2)) },
	} {
		next()
		before, keys := entryOf(b.perItemBackoff["a"]), len(b.perItemBackoff)
		b.Snapshot("a", seconds(30))
		if after := entryOf(b.perItemBackoff["a"]); after != before || len(b.perItemBackoff) != keys {
			t.Errorf("state %d: %+v has become %+v, of %d keys", i, before, after, len(b.perItemBackoff))
		}
	}
}
