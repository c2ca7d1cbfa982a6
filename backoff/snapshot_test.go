// SPDX-License-Identifier: Apache-2.0

package backoff

import (
	"fmt"
	"math"
	"sync"
	"testing"
	"time"
)

func TestGCAndAllOverManyKeys(t *testing.T) {
	b := kubelet(10, 300)()
	const keys = 5*gcStep + 7
	for i := range keys {
		b.NextAt(fmt.Sprint(i), seconds(float64(i%2*1000)), seconds(float64(i%2*1000)))
	}
	b.GCAt(seconds(1000))
	seen := map[string]bool{}
	b.AllAt(seconds(1000))(func(id string, s KeyState) bool {
		if seen[id] {
			t.Errorf("%s comes twice", id)
		}
		seen[id] = true
		if want := (KeyState{Attempts: 1, LastUpdate: seconds(1000)}); s != want {
			t.Errorf("%s has state %v, want %v", id, s, want)
		}
		b.Reset(id)
		return true
	})
	if len(seen) != keys/2 {
		t.Errorf("All gave %d keys, want %d", len(seen), keys/2)
	}
	b.All()(func(id string, _ KeyState) bool {
		t.Errorf("%s is left", id)
		return false
	})
}

func TestSnapshotRestore(t *testing.T) {
	b := kubelet(10, 300)()
	for range 3 {
		b.NextAt("waits", seconds(0), seconds(100))
		b.NextAt("runs", seconds(0), seconds(100))
	}
	b.IsInBackOffSinceAt("waits", seconds(101), seconds(105))
	if _, known := b.Snapshot("other"); known {
		t.Error("a key that was never seen is known")
	}
	want := map[string]KeyState{
		"waits": {Attempts: 3, LastUpdate: seconds(100), WaitingSince: seconds(101)},
		"runs":  {Attempts: 3, LastUpdate: seconds(100)},
	}
	restored := kubelet(10, 30)()
	for id, state := range want {
		got, known := b.SnapshotAt(id, seconds(108))
		if !known || got != state {
			t.Errorf("%s has state %v, %t, want %v", id, got, known, state)
		}
		for range 2 { // the second time over a known key
			if err := restored.RestoreAt(id, got, seconds(110)); err != nil {
				t.Fatal(err)
			}
		}
		if again, _ := restored.SnapshotAt(id, seconds(112)); again != state {
			t.Errorf("%s is restored to %v, want %v", id, again, state)
		}
	}
	// The restored keys follow the new curve, whose maximum is 30 s.
	for id, want := range map[string]string{
		"waits": "wait #4 30s until 2m11s",
		"runs":  "wait #4 30s until 2m11s first",
	} {
		if got := describe(restored.DecideAt(id, seconds(101), seconds(111))); got != want {
			t.Errorf("%s: got %s, want %s", id, got, want)
		}
	}
}

func TestRestoreRefuses(t *testing.T) {
	for want, s := range map[string]KeyState{
		"attempts: 0: must be at least 1 unless the start is due":                                 {LastUpdate: start},
		"attempts: -7: must be between 0 and 2147483647":                                          {Attempts: -7, LastUpdate: start},
		"attempts: 2147483648: must be between 0 and 2147483647":                                  {Attempts: 1 << 31, LastUpdate: start},
		"lastUpdate: 0001-01-01T00:00:00Z: must be after 1970-01-01T00:00:00Z":                    {Attempts: 1},
		"lastUpdate: 9999-01-01T00:00:00Z: must not be after the present, 2026-11-20T12:00:00Z":   {Attempts: 1, LastUpdate: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)},
		"waitingSince: 2026-11-20T11:59:58Z: must not be before lastUpdate, 2026-11-20T11:59:59Z": {Attempts: 1, LastUpdate: seconds(-1), WaitingSince: seconds(-2)},
		"waitingSince: 2026-11-20T12:00:01Z: must not be after the present, 2026-11-20T12:00:00Z": {Attempts: 1, LastUpdate: start, WaitingSince: seconds(1)},
	} {
		b := kubelet(10, 300)()
		b.NextAt("a", start, start)
		before, _ := b.SnapshotAt("a", start)
		if err := b.RestoreAt("a", s, start); err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
		if after, _ := b.SnapshotAt("a", start); after != before {
			t.Errorf("the key changed from %v to %v", before, after)
		}
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
				b.Decide(id, time.Now())
				if s, known := b.Snapshot(id); known {
					if err := b.Restore(id, s); err != nil {
						t.Error(err)
					}
				}
				if i%100 == 0 {
					b.GC()
					b.All()(func(string, KeyState) bool { return true })
					b.Reset(id)
				}
			}
		}()
	}
	wg.Wait()
}

func TestAttemptsSaturate(t *testing.T) {
	b := kubelet(10, 300)()
	if err := b.RestoreAt("a", KeyState{Attempts: math.MaxInt32 - 1, LastUpdate: start}, start); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		d := b.DecideAt("a", seconds(0), seconds(300))
		s, _ := b.SnapshotAt("a", seconds(300))
		if d.Attempt != math.MaxInt32 || s.Attempts != d.Attempt && d.Allowed {
			t.Errorf("Decide says attempt %d, Snapshot %d", d.Attempt, s.Attempts)
		}
		b.EndWaitAt("a", start)
	}
	if b.Get("a") != 300*time.Second {
		t.Error(b.Get("a"))
	}
}

// Every state that Snapshot returns can be restored.
func TestRestoreTakesEverySnapshot(t *testing.T) {
	for name, prepare := range map[string]func(b *Backoff){
		"advanced": func(b *Backoff) { b.NextAt("a", start, start) },
		"waiting":  func(b *Backoff) { b.NextAt("a", start, start); b.IsInBackOffSinceAt("a", seconds(1), seconds(2)) },
		"failed":   func(b *Backoff) { b.FailAt("a", start) },
		"failed, the wait ended": func(b *Backoff) {
			b.NextAt("a", start, start)
			b.FailAt("a", start)
			b.EndWaitAt("a", start)
		},
		"given back": func(b *Backoff) { b.DecideAt("a", start, start); b.GiveBackAt("a", start) },
		"the clock stepped back": func(b *Backoff) {
			b.NextAt("a", start, start)
			b.IsInBackOffSinceAt("a", seconds(1), seconds(-5))
		},
		"advanced in the future": func(b *Backoff) { b.NextAt("a", start, seconds(500)) },
	} {
		b := kubelet(10, 300)()
		prepare(b)
		now := seconds(5)
		s, known := b.SnapshotAt("a", now)
		if !known {
			t.Errorf("%s: not known", name)
		}
		other := kubelet(10, 300)()
		if err := other.RestoreAt("a", s, now); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if again, _ := other.SnapshotAt("a", now); again != s {
			t.Errorf("%s: restored to %v, want %v", name, again, s)
		}
	}
}

// GC may replace the map while All iterates.
func TestAllWhileGCMakesANewMap(t *testing.T) {
	b := kubelet(10, 300)()
	const keys = 100
	for i := range keys {
		b.NextAt(fmt.Sprint(i), seconds(0), seconds(0))
	}
	b.NextAt("old", seconds(-700), seconds(-700))
	first := true
	seen := 0
	b.AllAt(seconds(2))(func(id string, s KeyState) bool {
		if first {
			first = false
			b.GCAt(seconds(1)) // removes old
			for i := range keys {
				b.Reset(fmt.Sprint(i))
			}
			return true
		}
		seen++
		return true
	})
	if seen != 0 {
		t.Errorf("%d keys come that were gone", seen)
	}
}

// The wall clock may step while the state is stored.
func TestSnapshotAcrossClockSteps(t *testing.T) {
	at := func(wall, monotonic float64) time.Time {
		return reading(t, seconds(wall), time.Duration(monotonic*float64(time.Second)))
	}
	const step = 300
	b := kubelet(300, 300)()
	b.DecideAt("a", seconds(0), at(0, 0))
	b.DecideAt("a", seconds(step+9), at(step+10, 10)) // the wall clock stepped by five minutes
	s, _ := b.SnapshotAt("a", at(step+20, 20))
	if want := seconds(step + 9); !s.WaitingSince.Equal(want) {
		t.Errorf("waiting since %s, want %s", s.WaitingSince, want)
	}
	// The other Backoff was created before another step.
	other := kubelet(300, 300)()
	other.NextAt("b", at(0, 1000), at(0, 1000))
	if err := other.RestoreAt("a", s, at(step+30, 1030)); err != nil {
		t.Fatal(err)
	}
	if again, _ := other.SnapshotAt("a", at(step+30, 1030)); again != s {
		t.Errorf("restored to %v, want %v", again, s)
	}
	if d := other.DecideAt("a", seconds(step+9), at(step+308, 1308)); d.Allowed {
		t.Error("released early")
	}
	if d := other.DecideAt("a", seconds(step+9), at(step+309, 1309)); !d.Allowed {
		t.Error("not released")
	}
}
