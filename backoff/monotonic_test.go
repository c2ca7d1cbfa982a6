// SPDX-License-Identifier: Apache-2.0

package backoff

import (
	"testing"
	"time"
	"unsafe"
)

// reading returns what the real clock returns when its wall clock shows wall and its
// monotonic clock shows monotonic. No function of the standard library makes such a
// time, so it is built from its fields.
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

// With readings of a real clock, a wait ends on time although the wall clock steps, and
// the length of a run is right.
func TestWallClockStepsUnderMonotonicClock(t *testing.T) {
	at := func(wall, monotonic float64) time.Time {
		return reading(t, seconds(wall), time.Duration(monotonic*float64(time.Second)))
	}
	const hour = 3600
	t.Run("back while waiting", func(t *testing.T) {
		b := kubelet(10, 300)()
		b.Decide("a", seconds(0), at(0, 0))
		if got := describe(b.Decide("a", seconds(1), at(2, 2))); got != "wait #2 10s until 11s first" {
			t.Error(got)
		}
		if d := b.Decide("a", seconds(1), at(5-hour, 5)); d.Allowed || d.RetryAt.Sub(at(5-hour, 5)) != 6*time.Second {
			t.Error(describe(d))
		}
		if d := b.Decide("a", seconds(1), at(11-hour, 11)); !d.Allowed {
			t.Error(describe(d))
		}
	})
	t.Run("forward while waiting", func(t *testing.T) {
		b := kubelet(10, 300)()
		b.Decide("a", seconds(0), at(0, 0))
		b.Decide("a", seconds(5), at(6, 6))
		if d := b.Decide("a", seconds(5), at(14+hour, 14)); d.Allowed || d.RetryAt.Sub(at(14+hour, 14)) != time.Second {
			t.Error(describe(d))
		}
		if d := b.Decide("a", seconds(5), at(15+hour, 15)); !d.Allowed {
			t.Error(describe(d))
		}
		// The next exit has a timestamp of the new time.
		if d := b.Decide("a", seconds(17+hour), at(18+hour, 18)); d.Allowed || d.RetryAt.Sub(at(18+hour, 18)) != 19*time.Second {
			t.Error(describe(d))
		}
	})
	t.Run("forward during a run of two seconds", func(t *testing.T) {
		b := kubelet(10, 300)()
		b.Decide("a", seconds(0), at(0, 0))
		if d := b.Decide("a", seconds(2+hour), at(2.1+hour, 2.1)); d.Allowed || d.Reset {
			t.Error(describe(d))
		}
		b.Decide("a", seconds(2+hour), at(12+hour, 12))
		next(b, "a", seconds(13+2*hour), at(13+2*hour, 13))
		if b.Get("a") != 40*time.Second {
			t.Error("reset by the step of the clock")
		}
	})
	t.Run("back during a long run", func(t *testing.T) {
		b := kubelet(10, 300)()
		b.Decide("a", seconds(0), at(0, 0))
		if d := b.Decide("a", seconds(700-hour), at(700-hour, 700)); !d.Allowed || !d.Reset {
			t.Error(describe(d))
		}
	})
	t.Run("back while running", func(t *testing.T) {
		b := kubelet(10, 300)()
		next(b, "a", at(0, 0), at(0, 0))
		if clockAt(b, at(10-hour, 10)).IsInBackOffSinceUpdate("a", at(10-hour, 10)) {
			t.Error("still waiting one delay after the advance")
		}
		if !clockAt(b, at(9-hour, 9)).IsInBackOffSinceUpdate("a", at(9-hour, 9)) {
			t.Error("released by the step of the clock")
		}
	})
	t.Run("forward while running", func(t *testing.T) {
		b := kubelet(10, 300)()
		next(b, "a", at(0, 0), at(0, 0))
		clockAt(b, at(60+hour, 60)).GC()
		if b.Get("a") != 10*time.Second {
			t.Error("collected by the step of the clock")
		}
		next(b, "a", at(61+hour, 61), at(61+hour, 61))
		if b.Get("a") != 20*time.Second {
			t.Error("reset by the step of the clock")
		}
		clockAt(b, at(0, 700)).GC()
		if b.Get("a") != 0 {
			t.Error("not collected after more than ten minutes")
		}
	})
	t.Run("back during a run that Started reports at its end", func(t *testing.T) {
		b := kubelet(10, 300)()
		b.Decide("a", seconds(0), at(0, 0))
		b.Started("a", seconds(1), at(701-200, 701))
		if d := b.Decide("a", seconds(701-200), at(701-200, 701)); !d.Reset {
			t.Error(describe(d))
		}
	})
	t.Run("forward during a run that Started reports at its end", func(t *testing.T) {
		b := kubelet(10, 300)()
		b.Decide("a", seconds(0), at(0, 0))
		b.Started("a", seconds(1), at(500+200, 500))
		if d := b.Decide("a", seconds(500+200), at(500+200, 500)); d.Reset {
			t.Error(describe(d))
		}
	})
	t.Run("forward before the start that Started reports", func(t *testing.T) {
		b := kubelet(10, 300)()
		b.Decide("a", seconds(0), at(0, 0))
		b.Started("a", seconds(5000), at(5100, 650)) // an image pull took until 550
		if d := b.Decide("a", seconds(5100), at(5100, 650)); d.Reset {
			t.Error(describe(d))
		}
	})
	t.Run("the first event has no monotonic reading", func(t *testing.T) {
		b := delayed(10, 300)()
		b.Decide("a", seconds(0), at(1, 1))
		if d := b.Decide("a", seconds(0), at(11-hour, 11)); !d.Allowed {
			t.Error(describe(d))
		}
	})
}

// A runtime may report the exit of an instance before its start. The start then becomes
// known after the first check, and must not end the wait, whatever the wall clock does.
func TestStartedDuringItsOwnWait(t *testing.T) {
	for name, drift := range map[string]float64{"nanoseconds": 9e-9, "slewed": 0.1, "stepped back": -3, "stepped forward": 3600} {
		t.Run(name, func(t *testing.T) {
			at := func(wall, monotonic float64) time.Time {
				return reading(t, seconds(wall), time.Duration(monotonic*float64(time.Second)))
			}
			b := kubelet(10, 300)()
			b.Decide("a", seconds(0), at(0, 0))
			started, exited := seconds(0.5), seconds(0.4)
			for i, now := range []time.Time{at(1, 1), at(8-drift, 8), at(9-drift, 9)} {
				b.Started("a", started, now)
				d := b.Decide("a", exited, now)
				if d.Allowed || d.FirstWait != (i == 0) {
					t.Errorf("check %d: %s", i, describe(d))
				}
			}
			b.Started("a", started, at(10.5-drift, 10.5))
			if d := b.Decide("a", exited, at(10.5-drift, 10.5)); !d.Allowed {
				t.Error(describe(d))
			}
		})
	}
}
