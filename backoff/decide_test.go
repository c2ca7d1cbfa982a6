// SPDX-License-Identifier: Apache-2.0

package backoff

import (
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"
)

// step is one call of DecideAt. Times are seconds after start.
type step struct {
	event, now float64
	want       string
}

func seconds(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }

// describe formats a Decision; times are relative to start.
func describe(d Decision) string {
	s := "wait"
	if d.Allowed {
		s = "go"
	}
	s = fmt.Sprintf("%s #%d %s until %s", s, d.Attempt, d.Delay, d.RetryAt.Sub(start))
	if d.Reset {
		s += " reset"
	}
	if d.FirstWait {
		s += " first"
	}
	return s
}

const unknown = math.MinInt32 // an event time, in 1958

func TestDecideSteps(t *testing.T) {
	tests := []struct {
		name  string
		make  func() *Backoff
		steps []step
	}{
		{"curve", kubelet(10, 300), []step{
			{0, 0, "go #1 0s until 0s"},
			{0, 0.5, "wait #2 10s until 10s first"},
			{0, 9.999, "wait #2 10s until 10s"},
			{0, 10, "go #2 10s until 10s"},
			{10, 10, "wait #3 20s until 30s first"},
			{10, 31, "go #3 20s until 30s"},
			{31, 71, "go #4 40s until 1m11s"},
			{71, 151, "go #5 1m20s until 2m31s"},
			{151, 311, "go #6 2m40s until 5m11s"},
			{311, 611, "go #7 5m0s until 10m11s"},
			{611, 911, "go #8 5m0s until 15m11s"},
		}},
		{"maximum below initial", kubelet(10, 4), []step{
			{0, 0, "go #1 0s until 0s"},
			{0, 1, "wait #2 4s until 4s first"},
			{0, 4, "go #2 4s until 4s"},
			{4, 8, "go #3 4s until 8s"},
		}},
		{"reduced decay", kubelet(1, 60), []step{
			{0, 0, "go #1 0s until 0s"},
			{0, 1, "go #2 1s until 1s"},
			{1, 3, "go #3 2s until 3s"},
			{3, 7, "go #4 4s until 7s"},
			{7, 15, "go #5 8s until 15s"},
			{15, 31, "go #6 16s until 31s"},
			{31, 63, "go #7 32s until 1m3s"},
			{63, 123, "go #8 1m0s until 2m3s"},
			{123, 124, "wait #9 1m0s until 3m3s first"},
		}},
		{"zero durations never wait", kubelet(0, 0), []step{
			{0, 0, "go #1 0s until 0s"},
			{0, 0, "go #2 0s until 0s"},
			{5, 0, "go #3 0s until 0s"},
		}},
		{"zero initial never waits", kubelet(0, 300), []step{
			{0, 0, "go #1 0s until 0s"},
			{0, 0, "go #2 0s until 0s"},
			{0, 0, "go #3 0s until 0s"},
		}},
		{"a run just short of ten minutes", kubelet(10, 300), []step{
			{0, 0, "go #1 0s until 0s"},
			{599.999, 600, "wait #2 10s until 10m9.999s first"},
		}},
		{"a run of ten minutes", kubelet(10, 300), []step{
			{0, 0, "go #1 0s until 0s"},
			{600, 600, "wait #2 10s until 10m10s first"},
			{600, 610, "go #2 10s until 10m10s"},
		}},
		{"a run of more than ten minutes", kubelet(10, 300), []step{
			{0, 0, "go #1 0s until 0s"},
			{0, 10, "go #2 10s until 10s"},
			{610.001, 611, "go #1 0s until 10m10.001s reset"},
			{611, 612, "wait #2 10s until 10m21s first"},
		}},
		{"a long wait is not a long run", kubelet(300, 300), []step{
			{0, 0, "go #1 0s until 0s"},
			{400, 400, "wait #2 5m0s until 11m40s first"},
			{400, 699, "wait #2 5m0s until 11m40s"},
			{400, 700, "go #2 5m0s until 11m40s"},
			{700, 701, "wait #3 5m0s until 16m40s first"},
		}},
		{"first restart delayed", delayed(10, 300), []step{
			{0, 1, "wait #1 10s until 10s first"},
			{0, 9, "wait #1 10s until 10s"},
			{0, 10, "go #1 10s until 10s"},
			{11, 12, "wait #2 20s until 31s first"},
			{11, 31, "go #2 20s until 31s"},
			{31, 71, "go #3 40s until 1m11s"},
		}},
		{"first restart delayed, seen late", delayed(10, 300), []step{
			{0, 60, "go #1 10s until 10s"},
			{60, 80, "go #2 20s until 1m20s"},
		}},
		{"first restart delayed, after a reset", delayed(10, 300), []step{
			{0, 10, "go #1 10s until 10s"},
			{10, 30, "go #2 20s until 30s"},
			{700, 700, "wait #1 10s until 11m50s reset first"},
			{700, 705, "wait #1 10s until 11m50s"},
			{700, 710, "go #1 10s until 11m50s"},
			{710, 730, "go #2 20s until 12m10s"},
		}},
		{"first restart delayed, after a reset that is seen late", delayed(10, 300), []step{
			{0, 10, "go #1 10s until 10s"},
			{700, 800, "go #1 10s until 11m50s reset"},
			{800, 801, "wait #2 20s until 13m40s first"},
		}},
		{"first restart delayed, zero durations", delayed(0, 0), []step{
			{0, 0, "go #1 0s until 0s"},
			{5, 0, "go #2 0s until 0s"},
		}},
		{"the clock steps back while waiting", kubelet(10, 300), []step{
			{0, 0, "go #1 0s until 0s"},
			{1, 2, "wait #2 10s until 11s first"},
			{1, -3600, "wait #2 10s until -59m50s"},
			{1, -3595, "wait #2 10s until -59m50s"},
			{1, -3590, "go #2 10s until -59m50s"},
		}},
		{"the clock steps back twice", kubelet(10, 300), []step{
			{0, 0, "go #1 0s until 0s"},
			{1, 2, "wait #2 10s until 11s first"},
			{1, -5, "wait #2 10s until 5s"},
			{1, -60, "wait #2 10s until -50s"},
			{1, -50, "go #2 10s until -50s"},
		}},
		{"the clock steps back before the exit is seen", kubelet(10, 300), []step{
			{0, 0, "go #1 0s until 0s"},
			{5, -100, "wait #2 10s until -1m30s first"},
			{5, -90, "go #2 10s until -1m30s"},
			{-90, -89, "wait #3 20s until -1m10s first"},
		}},
		{"the clock steps forward", kubelet(10, 300), []step{
			{0, 0, "go #1 0s until 0s"},
			{1, 2, "wait #2 10s until 11s first"},
			{1, 3600, "go #2 10s until 11s"},
			{3601, 3602, "wait #3 20s until 1h0m21s first"},
		}},
		{"the exit is unknown", kubelet(10, 300), []step{
			{unknown, 0, "go #1 0s until 0s"},
			{unknown, 5, "wait #2 10s until 15s first"},
			{unknown, 14, "wait #2 10s until 15s"},
			{unknown, 15, "go #2 10s until 15s"},
			{unknown, 700, "go #1 0s until 11m40s reset"},
		}},
		{"the exit is unknown and the clock steps back", kubelet(10, 300), []step{
			{unknown, 0, "go #1 0s until 0s"},
			{unknown, 5, "wait #2 10s until 15s first"},
			{unknown, -60, "wait #2 10s until -50s"},
			{unknown, -50, "go #2 10s until -50s"},
		}},
		{"the exit becomes known", kubelet(10, 300), []step{
			{unknown, 0, "go #1 0s until 0s"},
			{unknown, 5, "wait #2 10s until 15s first"},
			{4, 6, "wait #2 10s until 14s"},
			{4, 14, "go #2 10s until 14s"},
		}},
		{"one exit, asked for again and again", kubelet(10, 300), []step{
			{1, 400, "go #1 0s until 1s"},
			{1, 400, "wait #2 10s until 6m50s first"},
			{1, 405, "wait #2 10s until 6m50s"},
			{1, 410, "go #2 10s until 6m50s"},
			{1, 410, "wait #3 20s until 7m10s first"},
			{412, 420, "wait #3 20s until 7m12s first"},
			{412, 421, "wait #3 20s until 7m12s"},
			{412, 432, "go #3 20s until 7m12s"},
		}},
		{"one exit, asked for by one who looked at the clock before the other", kubelet(10, 300), []step{
			{1, 400, "go #1 0s until 1s"},
			{1, 399.999, "wait #2 10s until 6m49.999s first"},
			{1, 410, "go #2 10s until 6m49.999s"},
		}},
		{"one exit at the maximum, whose starts come to nothing", kubelet(300, 300), []step{
			{0, 0, "go #1 0s until 0s"},
			{1, 301, "go #2 5m0s until 5m1s"},
			{1, 311, "wait #3 5m0s until 10m1s first"},
			{1, 600, "wait #3 5m0s until 10m1s"},
			{1, 601, "go #3 5m0s until 10m1s"},
			{1, 2000, "go #4 5m0s until 15m1s"}, // no run, however long ago
		}},
		{"exits stamped in the future", kubelet(10, 300), []step{
			{700, 0, "go #1 0s until 0s"},
			{701, 1, "wait #2 10s until 11s first"},
			{701, 2, "wait #2 10s until 11s"},
			{701, 11, "go #2 10s until 11s"},
			{3e9, 12, "wait #3 20s until 32s first"}, // a hundred years
			{3e9, 32, "go #3 20s until 32s"},
			{3e9, 52, "wait #4 40s until 1m12s first"}, // the same timestamp is the same exit
		}},
		{"an exit stamped in the future, asked about in the past of that", kubelet(300, 300), []step{
			{0, 0, "go #1 0s until 0s"},
			{100.5, 100, "wait #2 5m0s until 6m40s first"},
			{100.5, 101, "wait #2 5m0s until 6m40s"},
			{105, 106, "wait #2 5m0s until 6m45s first"}, // it ran again meanwhile
		}},
		{"one exit stamped in the future, asked about after that", kubelet(10, 300), []step{
			{700, 0, "go #1 0s until 0s"},
			{700, 701, "go #2 10s until 10s"},
			{6, 701, "wait #3 20s until 12m1s first"},
		}},
		{"a stamp in the future at the time of the start", kubelet(10, 300), []step{
			{0, 0, "go #1 0s until 0s"},
			{6, 0, "wait #2 10s until 10s first"},
			{6, 10, "go #2 10s until 10s"},
		}},
		{"after an unknown exit one that is known", kubelet(10, 300), []step{
			{0, 0, "go #1 0s until 0s"},
			{unknown, 100, "wait #2 10s until 1m50s first"},
			{300, 301, "wait #2 10s until 5m10s first"},
			{300, 310, "go #2 10s until 5m10s"},
		}},
		{"the longest durations", kubelet(math.MaxInt64/float64(time.Second), math.MaxInt64/float64(time.Second)), []step{
			{0, 0, "go #1 0s until 0s"},
			{0, 1, "wait #2 2562047h47m16.854775807s until 2562047h47m16.854775807s first"},
			{0, 2, "wait #2 2562047h47m16.854775807s until 2562047h47m16.854775807s"},
		}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			b := tc.make()
			for i, s := range tc.steps {
				if got := describe(b.Decide("a", seconds(s.event), seconds(s.now))); got != s.want {
					t.Fatalf("step %d, exit at %vs, now %vs:\n got %s\nwant %s", i, s.event, s.now, got, s.want)
				}
			}
		})
	}
}

// kubelet returns a constructor of a kubelet's Backoff; initial and limit are in
// seconds.
func kubelet(initial, limit float64) func() *Backoff {
	return func() *Backoff {
		b := NewBackOff(durationOf(initial), durationOf(limit))
		b.HasExpiredFunc = FlatReset(ContainerResetPeriod)
		return b
	}
}

func delayed(initial, limit float64) func() *Backoff {
	return func() *Backoff {
		b := kubelet(initial, limit)()
		b.DelayFirstRestart = true
		return b
	}
}

// clockAt makes the clock of b show now.
func clockAt(b *Backoff, now time.Time) *Backoff {
	b.Clock = testingclock.NewFakeClock(now)
	return b
}

// next is Next at the time now.
func next(b *Backoff, id string, event, now time.Time) {
	clockAt(b, now).Next(id, event)
}

func durationOf(seconds float64) time.Duration {
	if d := seconds * float64(time.Second); d < math.MaxInt64 {
		return time.Duration(d)
	}
	return math.MaxInt64
}

// The methods of client-go decide as Decide does.
func TestDropInMethodsAgreeWithDecide(t *testing.T) {
	one, other := kubelet(10, 300)(), kubelet(10, 300)()
	exit := start
	for n := range 12 {
		for now := exit; ; now = now.Add(5 * time.Second) {
			waits := clockAt(other, now).IsInBackOffSince("a", exit)
			delay := other.Get("a")
			d := one.Decide("a", exit, now)
			if d.Allowed == waits || waits && d.Delay != delay {
				t.Fatalf("restart %d, %s after the exit: Decide says %s, the others %t, %s", n+1, now.Sub(exit), describe(d), !waits, delay)
			}
			if d.Allowed {
				other.Next("a", exit)
				// The tenth run lasts long enough for a reset.
				exit = now.Add(time.Second)
				if n == 9 {
					exit = now.Add(time.Hour)
				}
				break
			}
		}
	}
}

func TestGC(t *testing.T) {
	tests := []struct {
		name string
		// wait is when the key is found waiting after an exit at that time, or 0
		// for never.
		wait      float64
		now       float64
		collected bool
	}{
		{"idle, one delay past the boundary", 0, 610, false}, // it might have waited since the boundary
		{"idle, later", 0, 610.001, true},
		{"idle, the clock stepped back", 0, -600, false},
		{"waiting, past the boundary of its last update", 595, 604, false},
		{"waited, not asked since", 595, 605 + 600, false},
		{"waited, abandoned", 595, 605 + 600.001, true},
		{"waiting, the clock stepped back", 595, -600, false},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			b := kubelet(10, 300)()
			next(b, "a", seconds(0), seconds(0))
			if tc.wait != 0 && b.Decide("a", seconds(tc.wait), seconds(tc.wait)).Allowed {
				t.Fatal("not waiting")
			}
			clockAt(b, seconds(tc.now)).GC()
			if known := b.perItemBackoff["a"] != nil; known == tc.collected {
				t.Errorf("known after GC: %t", known)
			}
		})
	}
}

// GC keeps a key whose next start is due for as long as one that waits.
func TestGCOfADueKey(t *testing.T) {
	for name, due := range map[string]func(*Backoff){
		"failed":     func(b *Backoff) { b.Fail("a", seconds(0)) },
		"given back": func(b *Backoff) { b.GiveBack("a", seconds(10)) },
	} {
		b := kubelet(10, 300)()
		b.Decide("a", seconds(-10), seconds(-10))
		b.Decide("a", seconds(0), seconds(10)) // the second attempt, and the next delay is 20 s
		due(b)
		for now, known := range map[float64]bool{620: true, 620.001: false} {
			other := kubelet(10, 300)()
			*other = Backoff{HasExpiredFunc: b.HasExpiredFunc, defaultDuration: b.defaultDuration, maxDuration: b.maxDuration}
			other.store("a", *b.perItemBackoff["a"])
			if clockAt(other, seconds(now)).GC(); (other.perItemBackoff["a"] != nil) != known {
				t.Errorf("%s: at %v s the key is known: %t", name, now, !known)
			}
		}
	}
}

// GC must not remove a waiting key, even if the rule always holds.
func TestGCKeepsWaitingKeyWhateverTheRule(t *testing.T) {
	b := kubelet(10, 300)()
	next(b, "a", seconds(0), seconds(0))
	clockAt(b, seconds(1)).IsInBackOffSince("a", seconds(0))
	b.HasExpiredFunc = func(time.Time, time.Time, time.Duration) bool { return true }
	clockAt(b, seconds(9.999)).GC()
	if b.Get("a") == 0 {
		t.Error("collected while it waits")
	}
	clockAt(b, seconds(12)).GC()
	if b.Get("a") != 0 {
		t.Error("not collected after its wait")
	}
}

// A jitter factor of NaN or infinity still gives a delay on the curve.
func TestJitterFactors(t *testing.T) {
	for _, factor := range []float64{-1, 0, 0.5, 1e300, math.Inf(1), math.NaN()} {
		for _, initial := range []time.Duration{0, time.Second, time.Minute} {
			b := NewBackOffWithJitter(initial, time.Minute, factor)
			next(b, "a", start, start)
			d := b.Get("a")
			if d < initial || d > time.Minute || !(factor > 0) && d != initial {
				t.Errorf("factor %v, initial %s: delay %s", factor, initial, d)
			}
		}
	}
}

// The factor applies to the first delay itself, and then to the previous delay.
func TestJitterOfTheFirstDelay(t *testing.T) {
	longest := time.Duration(0)
	b := NewBackOffWithJitter(time.Second, time.Hour, 1)
	for i := range 64 {
		b.Next(fmt.Sprint(i), start)
		longest = max(longest, b.Get(fmt.Sprint(i)))
	}
	if longest < 1500*time.Millisecond || longest > 2*time.Second {
		t.Errorf("the longest of 64 first delays is %s", longest)
	}
}

func TestConcurrentUse(t *testing.T) {
	tc := testingclock.NewFakeClock(start)
	b := NewFakeBackOff(time.Second, time.Minute, tc)
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range 2000 {
				id := fmt.Sprint((worker + i) % 50)
				b.Decide(id, tc.Now(), tc.Now())
				b.Get(id)
				b.Next(id, tc.Now())
				b.IsInBackOffSinceUpdate(id, tc.Now())
				if i%100 == 0 {
					b.GC()
					b.Reset(id)
					tc.Step(time.Second)
				}
			}
		}()
	}
	wg.Wait()
}

func TestDecideDoesNotAllocate(t *testing.T) {
	b := kubelet(10, 300)()
	now := start
	if n := testing.AllocsPerRun(100, func() {
		b.Decide("a", now, now)
		now = now.Add(time.Second)
	}); n != 0 {
		t.Errorf("%v allocations per decision", n)
	}
}
