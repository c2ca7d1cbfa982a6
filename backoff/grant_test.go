// SPDX-License-Identifier: Apache-2.0

package backoff

import (
	"fmt"
	"math"
	"runtime"
	"sync"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"
)

// Many callers ask about one exit: in each window only one may start the
// container.
func TestOneExitOneStart(t *testing.T) {
	b := kubelet(300, 300)()
	b.Decide("a", seconds(0), seconds(0))
	for window := range 3 {
		now := seconds(float64(1 + 300*(window+1)))
		var wg sync.WaitGroup
		var lock sync.Mutex
		starts := 0
		for range 64 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				if b.Decide("a", seconds(1), now).Allowed {
					lock.Lock()
					defer lock.Unlock()
					starts++
				}
			}()
		}
		wg.Wait()
		if starts != 1 {
			t.Errorf("window %d: %d starts", window, starts)
		}
	}
}

// call is one method call, at a time in seconds, and its result.
type call struct {
	method string
	event  float64
	now    float64
	want   string
}

func TestStarts(t *testing.T) {
	tests := []struct {
		name  string
		make  func() *Backoff
		calls []call
	}{
		{"starts that fail, of a container that never ran", kubelet(10, 300), []call{
			{"start", 0, 0, "go #0 0s until 0s"},
			{"fail", 0, 1, "go #1 0s until 1s"},
			{"start", 0, 1, "go #1 0s until 1s"},
			{"fail", 0, 2, "wait #2 10s until 12s"},
			{"start", 0, 7, "wait #2 10s until 12s first"},
			{"start", 0, 7, "wait #2 10s until 12s"},
			{"start", 0, 12, "go #2 10s until 12s"},
			{"fail", 0, 13, "wait #3 20s until 33s"},
			{"start", 0, 33, "go #3 20s until 33s"},
			{"decide", 40, 41, "wait #4 40s until 1m20s first"}, // it ran, and crashed
		}},
		{"the first starts fail, then the first run", kubelet(10, 300), []call{
			{"start", 0, 0, "go #0 0s until 0s"},
			{"fail", 0, 1, "go #1 0s until 1s"},
			{"start", 0, 1, "go #1 0s until 1s"},
			{"decide", 700, 700, "go #1 0s until 11m40s reset"},
		}},
		{"starts that fail, with the first restart delayed", delayed(10, 300), []call{
			{"start", 0, 0, "go #0 0s until 0s"},
			{"fail", 0, 1, "wait #1 10s until 11s"},
			{"start", 0, 11, "go #1 10s until 11s"},
			{"fail", 0, 12, "wait #2 20s until 32s"},
		}},
		{"a start that fails after an exit", kubelet(10, 300), []call{
			{"decide", 1, 1, "go #1 0s until 1s"},
			{"fail", 0, 4, "wait #2 10s until 14s"},
			{"decide", 1, 5, "wait #2 10s until 14s first"},
			{"decide", 3, 6, "wait #2 10s until 14s"}, // an instance that did not start
			{"decide", 1, 14, "go #2 10s until 14s"},
			{"fail", 0, 15, "wait #3 20s until 35s"},
			{"fail", 0, 15, "wait #3 20s until 35s"},
			{"decide", unknown, 34, "wait #3 20s until 35s first"},
			{"decide", unknown, 35, "go #3 20s until 35s"},
		}},
		{"a start that is not made", kubelet(10, 300), []call{
			{"decide", 1, 1, "go #1 0s until 1s"},
			{"give back", 0, 1, ""},
			{"decide", 1, 11, "go #1 0s until 1s"},
			{"decide", 12, 22, "go #2 10s until 22s"},
			{"give back", 0, 22, ""},
			{"give back", 0, 22, ""},
			{"decide", 12, 32, "go #2 10s until 22s"},
			{"give back", 0, 32, ""},
			{"decide", 12, 700, "go #2 10s until 32s"}, // no run, however long ago
			{"decide", 701, 701, "wait #3 20s until 12m1s first"},
		}},
		{"a start that is not made, others having asked", kubelet(10, 300), []call{
			{"decide", 0, 0, "go #1 0s until 0s"},
			{"decide", 1, 11, "go #2 10s until 11s"},
			{"decide", 1, 11, "wait #3 20s until 31s first"},
			{"give back", 0, 12, ""},
			{"decide", 1, 12, "go #2 10s until 11s"},
			{"decide", 1, 12, "wait #3 20s until 32s first"},
		}},
		{"a start that is not made after a reset", kubelet(10, 300), []call{
			{"decide", 0, 0, "go #1 0s until 0s"},
			{"decide", 1, 11, "go #2 10s until 11s"},
			{"decide", 700, 700, "go #1 0s until 11m40s reset"},
			{"give back", 0, 700, ""},
			{"decide", 700, 710, "go #1 0s until 11m40s"},
			{"decide", 711, 711, "wait #2 10s until 12m1s first"},
		}},
		{"a start that is not made, with the first restart delayed", delayed(10, 300), []call{
			{"decide", 0, 10, "go #1 10s until 10s"},
			{"give back", 0, 10, ""},
			{"decide", 0, 20, "go #1 10s until 10s"},
			{"decide", 21, 22, "wait #2 20s until 41s first"},
		}},
		{"a failed start is not given back", kubelet(10, 300), []call{
			{"decide", 0, 0, "go #1 0s until 0s"},
			{"fail", 0, 1, "wait #2 10s until 11s"},
			{"give back", 0, 1, ""},
			{"decide", 0, 2, "wait #2 10s until 11s first"},
		}},
		{"nothing to give back", kubelet(10, 300), []call{
			{"give back", 0, 0, ""},
			{"start", 0, 0, "go #0 0s until 0s"},
			{"give back", 0, 0, ""},
			{"decide", 1, 1, "go #1 0s until 1s"},
			{"start", 0, 2, "go #0 0s until 2s"},
			{"give back", 0, 2, ""},
			{"decide", 3, 3, "wait #2 10s until 13s first"},
		}},
		{"a run counts from a start that ended a wait", kubelet(300, 300), []call{
			{"decide", 0, 0, "go #1 0s until 0s"},
			{"decide", 2, 2, "wait #2 5m0s until 5m2s first"},
			{"start", 0, 500, "go #0 0s until 8m20s"},
			{"decide", 800, 800, "wait #2 5m0s until 18m20s first"},
		}},
		{"a run counts from a start that nobody decided", kubelet(300, 300), []call{
			{"decide", 0, 0, "go #1 0s until 0s"},
			{"start", 0, 500, "go #0 0s until 8m20s"},
			{"decide", 800, 800, "wait #2 5m0s until 18m20s first"},
			{"start", 0, 900, "go #0 0s until 15m0s"},
			{"decide", 1501, 1501, "go #1 0s until 25m1s reset"},
		}},
		{"a run counts from when the start took effect", kubelet(10, 300), []call{
			{"decide", 0, 0, "go #1 0s until 0s"},
			{"started", 900, 902, ""}, // the image pull took 15 minutes
			{"decide", 902, 902, "wait #2 10s until 15m12s first"},
			{"started", 905, 905, ""}, // not while it waits
			{"decide", 902, 912, "go #2 10s until 15m12s"},
			{"started", 913, 912.5, ""}, // not in the future
			{"started", 100, 912.5, ""}, // not backwards
			{"started", unknown, 912.5, ""},
			{"decide", 1512, 1512, "wait #3 20s until 25m32s first"},
			{"decide", 1512, 1532, "go #3 20s until 25m32s"},
			{"decide", 2133, 2133, "go #1 0s until 35m33s reset"},
		}},
		{"a run counts from when the start took effect, whoever asked meanwhile", kubelet(10, 300), []call{
			{"decide", 0, 0, "go #1 0s until 0s"},
			{"decide", 0, 0, "wait #2 10s until 10s first"},
			{"started", 900, 902, ""},
			{"decide", 902, 902, "wait #2 10s until 15m12s first"},
		}},
		{"a question changes nothing", delayed(10, 300), []call{
			{"peek", 1, 2, "wait #1 10s until 11s first"},
			{"peek", 1, 12, "go #1 10s until 11s"},
			{"decide", 1, 4, "wait #1 10s until 11s first"},
			{"peek", 1, 5, "wait #1 10s until 11s"},
			{"decide", 1, 11, "go #1 10s until 11s"},
			{"peek", 1, 12, "wait #2 20s until 31s first"},
			{"decide", 1, 13, "wait #2 20s until 31s first"},
		}},
		{"a start that is not made, after an exit that is not known", kubelet(10, 300), []call{
			{"decide", 0, 0, "go #1 0s until 0s"},
			{"decide", unknown, 5, "wait #2 10s until 15s first"},
			{"decide", unknown, 15, "go #2 10s until 15s"},
			{"give back", 0, 15, ""},
			{"decide", unknown, 25, "go #2 10s until 15s"},
			{"give back", 0, 25, ""},
			{"decide", 1e6, 35, "go #2 10s until 25s"}, // in the future
			{"give back", 0, 35, ""},
			{"start", 0, 45, "go #2 10s until 35s"},
		}},
		{"a start that is not made, after an exit that is not known, with the first restart delayed", delayed(10, 300), []call{
			{"decide", unknown, 5, "wait #1 10s until 15s first"},
			{"decide", unknown, 15, "go #1 10s until 15s"},
			{"give back", 0, 15, ""},
			{"decide", unknown, 25, "go #1 10s until 15s"},
		}},
		{"starts that fail and starts that are not made in turns", kubelet(10, 300), []call{
			{"start", 0, 0, "go #0 0s until 0s"},
			{"fail", 0, 0, "go #1 0s until 0s"},
			{"start", 0, 0, "go #1 0s until 0s"},
			{"give back", 0, 0, ""},
			{"start", 0, 10, "go #1 0s until 0s"},
			{"fail", 0, 11, "wait #2 10s until 21s"},
			{"start", 0, 21, "go #2 10s until 21s"},
			{"give back", 0, 21, ""},
			{"start", 0, 31, "go #2 10s until 21s"},
			{"fail", 0, 32, "wait #3 20s until 52s"},
		}},
		{"a refusal is not given back", kubelet(10, 300), []call{
			{"decide", 0, 0, "go #1 0s until 0s"},
			{"decide", 2, 2, "wait #2 10s until 12s first"},
			{"give back", 0, 2, ""},
			{"decide", 2, 3, "wait #2 10s until 12s"},
		}},
		{"a refusal after an exit at an unknown time is not given back", kubelet(10, 300), []call{
			{"decide", 0, 0, "go #1 0s until 0s"},
			{"decide", unknown, 2, "wait #2 10s until 12s first"},
			{"give back", 0, 2, ""},
			{"decide", unknown, 3, "wait #2 10s until 12s"},
		}},
		{"a start that took effect is not given back", kubelet(10, 300), []call{
			{"decide", 0, 0, "go #1 0s until 0s"},
			{"started", 1, 2, ""},
			{"give back", 0, 2, ""},
			{"decide", 3, 3, "wait #2 10s until 13s first"},
		}},
		{"a start that is not made, after another one is asked for in the past", kubelet(10, 300), []call{
			{"decide", 0, 0, "go #1 0s until 0s"},
			{"decide", 1, 11, "go #2 10s until 11s"},
			{"give back", 0, 5, ""}, // the clock stepped back
			{"decide", 1, 6, "go #2 10s until 5s"},
		}},
		{"a restart that does not wait", kubelet(10, 300), []call{
			{"force", 0, 0, "go #1 0s until 0s"},
			{"force", 0, 1, "go #2 0s until 1s"},
			{"decide", 2, 2, "wait #3 20s until 22s first"},
			{"force", 0, 3, "go #3 0s until 3s"},
			{"force", 0, 603, "go #4 0s until 10m3s"},
			{"force", 0, 1203.1, "go #1 0s until 20m3.1s reset"},
		}},
		{"an exit that is decided later", kubelet(10, 300), []call{
			{"exited", 0, 0, ""},
			{"decide", 0, 0, "go #1 0s until 0s"},
			{"exited", 1, 2, ""},
			{"exited", 1, 3, ""},
			{"decide", 1, 4, "wait #2 10s until 11s first"},
			{"exited", 1, 5, ""},
			{"decide", 1, 6, "wait #2 10s until 11s"},
			{"decide", 1, 11, "go #2 10s until 11s"},
			{"exited", 12, 40, ""},
			{"decide", 12, 41, "go #3 20s until 32s"},
			{"exited", 42, 50, ""},
			{"decide", unknown, 51, "wait #4 40s until 1m22s first"},
			{"decide", 42, 82, "go #4 40s until 1m22s"},
			{"exited", unknown, 90, ""},
			{"decide", unknown, 100, "wait #5 1m20s until 2m50s first"},
		}},
		{"an exit stamped ahead, answered and asked about again", kubelet(10, 300), []call{
			{"decide", 5, 0, "go #1 0s until 0s"},
			{"decide", 5, 6, "wait #2 10s until 10s first"},
			{"decide", 5, 7, "wait #2 10s until 10s"},
			{"decide", 5, 10, "go #2 10s until 10s"},
			{"decide", 5, 20, "wait #3 20s until 30s first"},
			{"decide", 5, 29, "wait #3 20s until 30s"},
		}},
		{"an exit stamped ahead, after another one that is still to come", kubelet(10, 300), []call{
			{"decide", 0, 0, "go #1 0s until 0s"},
			{"fail", 0, 1, "wait #2 10s until 11s"},
			{"decide", 100, 2, "wait #2 10s until 11s first"},
			{"decide", 17, 12, "go #2 10s until 11s"},
			{"decide", 17, 18, "wait #3 20s until 32s first"},
		}},
		{"an exit stamped ahead whose start is given back", kubelet(10, 300), []call{
			{"decide", 0, 0, "go #1 0s until 0s"},
			{"fail", 0, 1, "wait #2 10s until 11s"},
			{"decide", 100, 2, "wait #2 10s until 11s first"},
			{"decide", 13, 12, "go #2 10s until 11s"},
			{"give back", 0, 12, ""},
			{"decide", 13, 15, "go #2 10s until 12s"},
		}},
		{"an exit stamped ahead after the clock was set back", kubelet(10, 300), []call{
			{"decide", 0, 0, "go #1 0s until 0s"},
			{"fail", 0, -3600, "wait #2 10s until -59m50s"},
			{"decide", -3588, -3589, "go #2 10s until -59m50s"},
			{"decide", -3588, -3587, "wait #3 20s until -59m29s first"},
		}},
		{"an exit at an unknown time while the clock is set back", kubelet(10, 300), []call{
			{"decide", 0, 0, "go #1 0s until 0s"},
			{"decide", 1, 2, "wait #2 10s until 11s first"},
			{"decide", unknown, -100, "wait #2 10s until -1m30s"},
			{"decide", unknown, -90, "go #2 10s until -1m30s"},
		}},
		{"an exit that is stamped in the future while the key waits", kubelet(10, 300), []call{
			{"decide", 0, 0, "go #1 0s until 0s"},
			{"decide", 1, 2, "wait #2 10s until 11s first"},
			{"decide", 1e6, 3, "wait #2 10s until 11s"},
			{"decide", 1, 4, "wait #2 10s until 11s"},
		}},
		{"an unknown exit becomes known", kubelet(10, 300), []call{
			{"decide", 0, 0, "go #1 0s until 0s"},
			{"decide", unknown, 100, "wait #2 10s until 1m50s first"},
			{"decide", 95, 101, "wait #2 10s until 1m45s"},
			{"decide", unknown, 102, "wait #2 10s until 1m45s"},
			{"decide", 95, 104, "wait #2 10s until 1m45s"},
		}},
		{"a forced restart that is not made", kubelet(300, 300), []call{
			{"decide", 0, 0, "go #1 0s until 0s"},
			{"force", 0, 1000, "go #1 0s until 16m40s reset"},
			{"force", 0, 1100, "go #2 0s until 18m20s"},
			{"give back", 0, 1100, ""},
			{"decide", 1099.9, 1110, "go #2 5m0s until 18m20s"}, // the kill came before the restart
			{"give back", 0, 1110, ""},
			{"decide", unknown, 1120, "go #2 5m0s until 18m30s"},
		}},
		{"a start that is not made, and the clock steps back", kubelet(10, 300), []call{
			{"decide", 0, 0, "go #1 0s until 0s"},
			{"decide", 1, 11, "go #2 10s until 11s"},
			{"give back", 0, 11, ""},
			{"decide", 1, -100, "go #2 10s until -1m40s"},
		}},
		{"restarts that do not wait, with the first restart delayed", delayed(10, 300), []call{
			{"force", 0, 0, "go #1 0s until 0s"},
			{"decide", 1, 1, "wait #2 20s until 21s first"},
			{"decide", 1, 21, "go #2 20s until 21s"},
			{"force", 0, 22, "go #3 0s until 22s"},
			{"give back", 0, 22, ""},
			{"start", 0, 23, "go #3 40s until 22s"},
			{"decide", 24, 24, "wait #4 1m20s until 1m44s first"},
		}},
		{"an exit stamped in the future that comes to pass", kubelet(300, 300), []call{
			{"decide", 0, 0, "go #1 0s until 0s"},
			{"exited", unknown, 10, ""},
			{"decide", 260, 11, "wait #2 5m0s until 5m10s first"},
			{"decide", 260, 259, "wait #2 5m0s until 5m10s"},
			{"decide", 260, 261, "wait #2 5m0s until 5m10s"},
			{"decide", 262, 263, "wait #2 5m0s until 9m22s first"}, // it ran
			{"decide", 400, 264, "wait #2 5m0s until 9m22s"},
			{"decide", 400, 401, "wait #2 5m0s until 9m22s"},
		}},
		{"an answered exit while the key waits after an unknown one", kubelet(10, 300), []call{
			{"decide", 0, 0, "go #1 0s until 0s"},
			{"decide", 1, 11, "go #2 10s until 11s"},
			{"decide", unknown, 100, "wait #3 20s until 2m0s first"},
			{"decide", 1, 101, "wait #3 20s until 2m0s"},
			{"decide", unknown, 102, "wait #3 20s until 2m0s"},
		}},
		{"a start without an exit after a long run", kubelet(10, 300), []call{
			{"decide", 0, 0, "go #1 0s until 0s"},
			{"decide", 1, 11, "go #2 10s until 11s"},
			{"start", 0, 611, "go #0 0s until 10m11s"},
			{"decide", 612, 612, "wait #3 20s until 10m32s first"},
			{"decide", 612, 632, "go #3 20s until 10m32s"},
			{"start", 0, 1233, "go #0 0s until 20m33s"}, // after more than ten minutes
			{"decide", 1234, 1234, "go #1 0s until 20m34s"},
			{"decide", 1235, 1235, "wait #2 10s until 20m45s first"},
			{"start", 0, 5000, "go #0 0s until 1h23m20s"}, // a long wait is no long run
			{"decide", 5001, 5001, "wait #2 10s until 1h23m31s first"},
		}},
		{"an exit at the time of the failed start", kubelet(10, 300), []call{
			{"decide", 0, 0, "go #1 0s until 0s"},
			{"fail", 0, 5, "wait #2 10s until 15s"},
			{"decide", 5, 6, "wait #2 10s until 15s first"},
			{"start", 0, 7, "wait #2 10s until 15s"},
		}},
		{"a time of zero spoils nothing", func() *Backoff {
			b := kubelet(10, 300)()
			b.Clock = testingclock.NewFakeClock(seconds(2))
			return b
		}, []call{
			{"decide", 0, math.Inf(-1), "go #1 0s until 0s"},
			{"decide", 3, 3, "wait #2 10s until 13s first"},
			{"decide", 3, math.Inf(-1), "wait #2 10s until 12s"}, // the clock stands
			{"peek", 3, math.Inf(-1), "wait #2 10s until 12s"},
			{"decide", 3, 12, "go #2 10s until 12s"},
			{"fail", 0, math.Inf(-1), "wait #3 20s until 22s"},
			{"start", 0, math.Inf(-1), "wait #3 20s until 22s first"},
			{"decide", 1, 22, "go #3 20s until 22s"},
		}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			b := tc.make()
			for i, c := range tc.calls {
				now := time.Time{}
				if !math.IsInf(c.now, -1) {
					now = seconds(c.now)
				}
				got := ""
				switch c.method {
				case "decide":
					got = describe(b.Decide("a", seconds(c.event), now))
				case "peek":
					got = describe(b.Peek("a", seconds(c.event), now))
				case "start":
					got = describe(b.DecideStart("a", now))
				case "fail":
					got = describe(b.Fail("a", now))
				case "give back":
					b.GiveBack("a", now)
				case "force":
					got = describe(b.Force("a", now))
				case "exited":
					b.Exited("a", seconds(c.event), now)
				case "started":
					b.Started("a", seconds(c.event), now)
				}
				if got != c.want {
					t.Fatalf("call %d, %s at %vs of %vs:\n got %s\nwant %s", i, c.method, c.now, c.event, got, c.want)
				}
			}
		})
	}
}

// The times of client-go's methods: an event in the future counts as now, and one at an
// unknown time as at the last advance.
func TestNextWithStrangeTimes(t *testing.T) {
	for name, tc := range map[string]struct {
		event time.Time
		delay time.Duration
	}{
		"unknown":       {time.Time{}, 20 * time.Second},
		"in the future": {seconds(1e6), 10 * time.Second},
	} {
		b := kubelet(10, 300)()
		next(b, "a", start, start)
		next(b, "a", tc.event, seconds(601))
		if got := b.Get("a"); got != tc.delay {
			t.Errorf("%s: the delay is %s, want %s", name, got, tc.delay)
		}
		if waits := clockAt(b, seconds(610)).IsInBackOffSince("a", tc.event); !waits {
			t.Errorf("%s: does not wait", name)
		}
		if waits := clockAt(b, seconds(622)).IsInBackOffSince("a", tc.event); waits != (name == "in the future") {
			t.Errorf("%s: waits for more than one delay after the advance: %t", name, waits)
		}
	}
}

func TestTimesAtTheEdge(t *testing.T) {
	far := time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC)
	if wall(far) <= wall(start) || wall(time.Unix(0, 5)) != unknownEvent || wall(time.Time{}) != unknownEvent {
		t.Errorf("%d, %d, %d", wall(far), wall(time.Unix(0, 5)), wall(time.Time{}))
	}
	const most = math.MaxInt64
	for _, tc := range [][3]time.Duration{{1, 2, -1}, {most, -1, most}, {-most, 1, -most}, {-most, 2, -most}, {-2, most, -most}, {-1, most, -most}, {0, -most, most}, {most, most, 0}, {math.MinInt64, 0, -most}} {
		if got := saturatingSub(tc[0], tc[1]); got != tc[2] {
			t.Errorf("%d - %d = %d, want %d", tc[0], tc[1], got, tc[2])
		}
	}
}

// GC keeps a key whose first start failed, if the first restart is delayed.
func TestGCKeepsAFailedFirstStart(t *testing.T) {
	b := delayed(100, 300)()
	b.HasExpiredFunc = FlatReset(5 * time.Second)
	b.Fail("a", seconds(0))
	clockAt(b, seconds(6)).GC()
	if got := describe(b.DecideStart("a", seconds(6))); got != "wait #1 1m40s until 1m40s first" {
		t.Error(got)
	}
}

// A container exits every two seconds, and its agent gives back each start that it was
// refused.
func TestGiveBackAfterEachRefusal(t *testing.T) {
	b := kubelet(10, 300)()
	starts := 0
	for now, exit := 0.0, 0.0; now < 600; now++ {
		if b.Decide("a", seconds(exit), seconds(now)).Allowed {
			starts++
			exit = now + 2
		} else {
			b.GiveBack("a", seconds(now))
		}
	}
	if starts != 6 {
		t.Errorf("%d starts in 600 s, want 6", starts)
	}
}

// A question changes nothing, however often it is asked, in any state and of an unknown
// key.
func TestQuestionsChangeNothing(t *testing.T) {
	states := map[string]func(*Backoff){
		"unknown":    func(*Backoff) {},
		"running":    func(b *Backoff) { b.Decide("a", start, start); b.DecideStart("a", start) },
		"granted":    func(b *Backoff) { b.Decide("a", start, start) },
		"waiting":    func(b *Backoff) { b.Decide("a", start, start); b.Exited("a", seconds(1), seconds(1)) },
		"failed":     func(b *Backoff) { b.Decide("a", start, start); b.Fail("a", start) },
		"given back": func(b *Backoff) { b.Decide("a", start, start); b.GiveBack("a", start) },
	}
	for name, reach := range states {
		for _, make := range []func() *Backoff{kubelet(10, 300), delayed(10, 300)} {
			b := make()
			reach(b)
			before := entryOf(b.perItemBackoff["a"])
			for now := -5.0; now < 30; now++ {
				clockAt(b, seconds(now))
				for _, event := range []time.Time{{}, start, seconds(1), seconds(now), seconds(1e6)} {
					b.IsInBackOffSince("a", event)
					b.IsInBackOffSinceUpdate("a", event)
					b.Peek("a", event, seconds(now))
					b.Get("a")
				}
			}
			if after := entryOf(b.perItemBackoff["a"]); after != before || (name == "unknown") != (len(b.perItemBackoff) == 0) {
				t.Errorf("%s: %+v has become %+v, of %d keys", name, before, after, len(b.perItemBackoff))
			}
		}
	}
}

// Somebody asks each second whether a key waits, with the present time.
func TestQuestionsDoNotPostponeARestart(t *testing.T) {
	b := kubelet(10, 300)()
	b.Decide("a", start, start)
	for now := 1.0; now <= 11; now++ {
		clockAt(b, seconds(now)).IsInBackOffSince("a", seconds(now))
		if d := b.Decide("a", seconds(1), seconds(now)); d.Allowed != (now == 11) {
			t.Errorf("%v s: %s", now, describe(d))
		}
	}
}

// RetryAt of an allowed restart is never in the future.
func TestRetryAtOfAllowed(t *testing.T) {
	for _, event := range []time.Time{{}, start, seconds(1e9), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)} {
		b := kubelet(10, 300)()
		for range 3 {
			if d := b.Decide("a", event, start); d.Allowed && d.RetryAt.After(start) {
				t.Errorf("event at %s: allowed, with the retry at %s", event, d.RetryAt)
			}
		}
	}
}

// panicking fails the test if f does not panic.
func panicking(t *testing.T, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	f()
}

// A panic in a user's function leaves no lock held.
func TestPanicsReleaseTheLock(t *testing.T) {
	t.Run("HasExpiredFunc", func(t *testing.T) {
		b := kubelet(10, 300)()
		next(b, "a", start, start)
		b.HasExpiredFunc = func(time.Time, time.Time, time.Duration) bool { panic("rule") }
		for _, f := range []func(){
			func() { b.Decide("a", start, start) },
			func() { b.Peek("a", start, start) },
			func() { clockAt(b, seconds(11)).GC() },
			func() { next(b, "a", start, start) },
			func() { b.Force("a", start) },
			func() { b.Fail("a", start) },
			func() { b.IsInBackOffSince("a", start) },
			func() { b.IsInBackOffSinceUpdate("a", start) },
		} {
			before := *b.perItemBackoff["a"]
			panicking(t, f)
			if !b.lock.TryLock() {
				t.Fatal("the lock is held")
			}
			b.lock.Unlock()
			if after := *b.perItemBackoff["a"]; after != before {
				t.Errorf("the key changed from %v to %v", before, after)
			}
		}
	})
}

// GC frees the memory of removed keys, whether some keys are left or none.
func TestGCGivesMemoryBack(t *testing.T) {
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	const keys = 100_000
	for _, left := range []int{0, 1, smallMap} {
		b := kubelet(10, 300)()
		before := heap()
		for i := range keys {
			now := seconds(0)
			if i < left {
				now = seconds(600)
			}
			next(b, fmt.Sprint(i), now, now)
		}
		full := heap() - before
		clockAt(b, seconds(611)).GC()
		if after := int64(heap() - before); after > int64(full/10) {
			t.Errorf("%d keys left: %d of %d bytes are still in use", left, after, full)
		}
		for i := range left {
			if b.Get(fmt.Sprint(i)) == 0 {
				t.Errorf("key %d is gone", i)
			}
		}
		runtime.KeepAlive(b)
	}
}

// The reset rule gets the time of the event and the time of the last advance.
func TestHasExpiredFuncGetsTheTimes(t *testing.T) {
	b := NewBackOff(10*time.Second, 300*time.Second)
	var got [2]time.Time
	b.HasExpiredFunc = func(eventTime, lastUpdate time.Time, limit time.Duration) bool {
		if limit != 300*time.Second {
			t.Errorf("the maximum is %s", limit)
		}
		got = [2]time.Time{eventTime, lastUpdate}
		return false
	}
	for name, ask := range map[string]func(){
		"Decide":                 func() { b.Decide("a", seconds(5), seconds(8)) },
		"Peek":                   func() { b.Peek("a", seconds(5), seconds(8)) },
		"IsInBackOffSince":       func() { clockAt(b, seconds(8)).IsInBackOffSince("a", seconds(5)) },
		"IsInBackOffSinceUpdate": func() { clockAt(b, seconds(8)).IsInBackOffSinceUpdate("a", seconds(5)) },
		"Next":                   func() { next(b, "a", seconds(5), seconds(8)) },
	} {
		b.Reset("a")
		next(b, "a", seconds(0), seconds(1))
		ask()
		if !got[0].Equal(seconds(5)) || !got[1].Equal(seconds(1)) {
			t.Errorf("%s: the event is at %s, the last advance at %s", name, got[0].Sub(start), got[1].Sub(start))
		}
	}
}

// GC checks the current state of each key, even if another GC runs at the same
// time.
func TestConcurrentGCKeepsFreshKeys(t *testing.T) {
	const keys = 3 * gcStep
	for range 30 {
		b := kubelet(10, 300)()
		for i := range keys {
			next(b, fmt.Sprint(i), seconds(0), seconds(0))
		}
		clockAt(b, seconds(700))
		var wg sync.WaitGroup
		wg.Add(1)
		go func() {
			defer wg.Done()
			b.GC()
		}()
		b.GC()
		for i := range keys {
			b.Reset(fmt.Sprint(i))
			b.Next(fmt.Sprint(i), seconds(700))
		}
		wg.Wait()
		for i := range keys {
			if b.Get(fmt.Sprint(i)) == 0 {
				t.Fatalf("key %d is gone, though it advanced at the time of GC", i)
			}
		}
	}
}

// GC keeps the key b, which was added while GC did not hold the lock, although a, which
// was removed and added again meanwhile, came twice.
func TestGCKeepsAKeyAddedMeanwhile(t *testing.T) {
	b := kubelet(10, 300)()
	b.Next("a", start)
	b.Next("b", start)
	b.shrink([]string{"a", "a"})
	for _, id := range []string{"a", "b"} {
		if b.Get(id) == 0 {
			t.Errorf("key %s is gone", id)
		}
	}
}

// A restart that does not wait starts over only after a long run, and not after a long wait.
func TestForceWhileWaiting(t *testing.T) {
	for run, want := range map[time.Duration]int{8 * time.Minute: 7, 11 * time.Minute: 1} {
		b, now := kubelet(10, 300)(), start
		for range 6 {
			b.Force("a", now)
		}
		now = now.Add(run)
		d := b.Decide("a", now, now)
		if !d.Allowed {
			d = b.Force("a", now.Add(150*time.Second))
		}
		if d.Attempt != want {
			t.Errorf("after a run of %s: attempt %d, want %d", run, d.Attempt, want)
		}
	}
}
