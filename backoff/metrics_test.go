// SPDX-License-Identifier: Apache-2.0

package backoff

import (
	"fmt"
	"reflect"
	"testing"
	"time"
)

// recorder is a Metrics that records the calls.
type recorder struct {
	keys, resets int
	restarts     []string
}

func (r *recorder) KeyAdded()   { r.keys++ }
func (r *recorder) KeyRemoved() { r.keys-- }
func (r *recorder) KeyReset()   { r.resets++ }
func (r *recorder) RestartAllowed(id string, delay, late time.Duration) {
	r.restarts = append(r.restarts, fmt.Sprintf("%s %s late %s", id, delay, late))
}

func TestMetrics(t *testing.T) {
	r := &recorder{}
	b := kubelet(10, 300)()
	b.SetMetrics(r)
	for _, s := range []step{{event: 0, now: 0}, {event: 0, now: 1}, {event: 0, now: 2}, {event: 0, now: 12.5}, {event: 700, now: 701}} {
		b.Decide("a", seconds(s.event), seconds(s.now))
	}
	next(b, "b", start, start)
	b.Reset("a")
	b.Reset("a")
	next(b, "c", start, start)
	next(b, "d", start, start)
	b.Decide("d", seconds(1), seconds(1)) // waits, and is given up
	b.Fail("e", start)                    // is given up too
	if r.keys != 4 || r.resets != 1 {
		t.Errorf("%d keys and %d resets, want 4 and 1", r.keys, r.resets)
	}
	clockAt(b, seconds(611)).GC() // removes b, c and e
	clockAt(b, seconds(612)).GC() // removes d
	if want := (&recorder{resets: 3, restarts: []string{"a 0s late 0s", "a 10s late 2.5s", "a 0s late 0s"}}); !reflect.DeepEqual(r, want) {
		t.Errorf("got %v, want %v", r, want)
	}
}

// A restart is reported once, also if it was given back. A first start is no restart.
func TestMetricsOfStarts(t *testing.T) {
	r := &recorder{}
	b := kubelet(10, 300)()
	b.SetMetrics(r)
	b.DecideStart("a", seconds(0))
	b.Fail("a", seconds(0))
	b.DecideStart("a", seconds(1))
	b.Decide("a", seconds(2), seconds(13))
	b.GiveBack("a", seconds(13))
	b.Decide("a", seconds(2), seconds(14))
	b.Fail("a", seconds(15))
	b.DecideStart("a", seconds(39))
	b.Force("a", seconds(40))
	b.GiveBack("a", seconds(40))
	b.Force("a", seconds(41))
	b.Force("a", seconds(700))
	want := &recorder{keys: 1, resets: 1, restarts: []string{"a 0s late 0s", "a 10s late 1s", "a 20s late 4s", "a 0s late 0s", "a 0s late 0s"}}
	if !reflect.DeepEqual(r, want) {
		t.Errorf("got %v, want %v", r, want)
	}
}

// panics is a Metrics that panics.
type panics struct{}

func (panics) KeyAdded()                                           { panic("KeyAdded") }
func (panics) KeyRemoved()                                         { panic("KeyRemoved") }
func (panics) KeyReset()                                           { panic("KeyReset") }
func (panics) RestartAllowed(string, time.Duration, time.Duration) { panic("RestartAllowed") }

// A panic in a metric leaves no lock held.
func TestMetricsPanicsReleaseTheLock(t *testing.T) {
	for name, f := range map[string]func(*Backoff){
		"KeyAdded":       func(b *Backoff) { b.Next("b", start) },
		"RestartAllowed": func(b *Backoff) { b.Force("a", start) },
		"KeyReset":       func(b *Backoff) { clockAt(b, seconds(1e6)).GC() },
		"KeyRemoved":     func(b *Backoff) { b.Reset("a") },
	} {
		b := kubelet(10, 300)()
		next(b, "a", start, start)
		b.SetMetrics(panics{})
		panicking(t, func() { f(b) })
		if !b.lock.TryLock() {
			t.Errorf("%s: the lock is held", name)
		}
	}
}
