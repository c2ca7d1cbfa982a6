// SPDX-License-Identifier: Apache-2.0

package backoff

import (
	"testing"
	"time"
	"unsafe"
)

// reading is what the real clock returns when its wall clock shows wall and
// its monotonic clock shows monotonic. No function of the standard library
// makes such a time, so it is put together from its parts.
func reading(t *testing.T, wall time.Time, monotonic time.Duration) time.Time {
	t.Helper()
	r := time.Now()
	parts := (*struct {
		wall uint64
		ext  int64
	})(unsafe.Pointer(&r))
	const secondsFrom1885, hasMonotonic = 2682288000, 1 << 63
	parts.wall = hasMonotonic | uint64(wall.Unix()+secondsFrom1885)<<30 | uint64(wall.Nanosecond())
	parts.ext = int64(monotonic)
	if !r.Round(0).Equal(wall) || r.Sub(r.Add(-monotonic)) != monotonic {
		t.Fatalf("the layout of time.Time is not as this test expects: %s", r)
	}
	return r
}

// With the readings of a real clock a wait ends on time although the wall clock
// steps, and the length of a run is right.
func TestWallClockStepsUnderMonotonicClock(t *testing.T) {
	at := func(wall, monotonic float64) time.Time {
		return reading(t, seconds(wall), time.Duration(monotonic*float64(time.Second)))
	}
	const hour = 3600
	t.Run("back while waiting", func(t *testing.T) {
		b := kubelet(10, 300)()
		b.DecideAt("a", seconds(0), at(0, 0))
		if got := describe(b.DecideAt("a", seconds(1), at(2, 2))); got != "wait #2 10s until 11s first" {
			t.Error(got)
		}
		if d := b.DecideAt("a", seconds(1), at(5-hour, 5)); d.Allowed || d.RetryAt.Sub(at(5-hour, 5)) != 6*time.Second {
			t.Error(describe(d))
		}
		if d := b.DecideAt("a", seconds(1), at(11-hour, 11)); !d.Allowed {
			t.Error(describe(d))
		}
	})
	t.Run("forward while waiting", func(t *testing.T) {
		b := kubelet(10, 300)()
		b.DecideAt("a", seconds(0), at(0, 0))
		b.DecideAt("a", seconds(5), at(6, 6))
		if d := b.DecideAt("a", seconds(5), at(14+hour, 14)); d.Allowed || d.RetryAt.Sub(at(14+hour, 14)) != time.Second {
			t.Error(describe(d))
		}
		if d := b.DecideAt("a", seconds(5), at(15+hour, 15)); !d.Allowed {
			t.Error(describe(d))
		}
		// The exit after that is stamped by the new time.
		if d := b.DecideAt("a", seconds(17+hour), at(18+hour, 18)); d.Allowed || d.RetryAt.Sub(at(18+hour, 18)) != 19*time.Second {
			t.Error(describe(d))
		}
	})
	t.Run("forward during a run of two seconds", func(t *testing.T) {
		b := kubelet(10, 300)()
		b.DecideAt("a", seconds(0), at(0, 0))
		if d := b.DecideAt("a", seconds(2+hour), at(2.1+hour, 2.1)); d.Allowed || d.Reset {
			t.Error(describe(d))
		}
		b.DecideAt("a", seconds(2+hour), at(12+hour, 12))
		b.NextAt("a", seconds(13+2*hour), at(13+2*hour, 13))
		if b.Get("a") != 40*time.Second {
			t.Error("reset by the step of the clock")
		}
	})
	t.Run("back during a long run", func(t *testing.T) {
		b := kubelet(10, 300)()
		b.DecideAt("a", seconds(0), at(0, 0))
		if d := b.DecideAt("a", seconds(700-hour), at(700-hour, 700)); !d.Allowed || !d.Reset {
			t.Error(describe(d))
		}
	})
	t.Run("back while running", func(t *testing.T) {
		b := kubelet(10, 300)()
		b.NextAt("a", at(0, 0), at(0, 0))
		if b.IsInBackOffSinceUpdateAt("a", at(10-hour, 10), at(10-hour, 10)) {
			t.Error("still waiting one delay after the advance")
		}
		if !b.IsInBackOffSinceUpdateAt("a", at(9-hour, 9), at(9-hour, 9)) {
			t.Error("released by the step of the clock")
		}
	})
	t.Run("forward while running", func(t *testing.T) {
		b := kubelet(10, 300)()
		b.NextAt("a", at(0, 0), at(0, 0))
		b.GCAt(at(60+hour, 60))
		if b.Get("a") != 10*time.Second {
			t.Error("collected by the step of the clock")
		}
		b.NextAt("a", at(61+hour, 61), at(61+hour, 61))
		if b.Get("a") != 20*time.Second {
			t.Error("reset by the step of the clock")
		}
		b.GCAt(at(0, 700))
		if b.Get("a") != 0 {
			t.Error("not collected after more than ten minutes")
		}
	})
	t.Run("between snapshot and restore", func(t *testing.T) {
		const step = 300
		b := kubelet(300, 300)()
		b.DecideAt("a", seconds(0), at(0, 0))
		b.DecideAt("a", seconds(step+9), at(step+10, 10)) // the wall clock has stepped by five minutes
		s, _ := b.SnapshotAt("a", at(step+20, 20))
		if want := seconds(step + 9); !s.WaitingSince.Equal(want) {
			t.Errorf("waiting since %s, want %s", s.WaitingSince, want)
		}
		// The Backoff that it is restored to began before another step.
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
	})
	t.Run("the first event has no monotonic reading", func(t *testing.T) {
		b := delayed(10, 300)()
		b.DecideAt("a", seconds(0), at(1, 1))
		if d := b.DecideAt("a", seconds(0), at(11-hour, 11)); !d.Allowed {
			t.Error(describe(d))
		}
	})
}
