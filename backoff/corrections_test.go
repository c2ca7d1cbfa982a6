// SPDX-License-Identifier: Apache-2.0

package backoff

import (
	"fmt"
	"math"
	"reflect"
	"sync"
	"testing"
	"time"

	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"
)

// dropIn is the common interface of client-go's Backoff and this one.
type dropIn interface {
	Get(id string) time.Duration
	Next(id string, eventTime time.Time)
	IsInBackOffSince(id string, eventTime time.Time) bool
	IsInBackOffSinceUpdate(id string, eventTime time.Time) bool
	GC()
	Reset(id string)
	DeleteEntry(id string)
}

// resetRule is the type of the field HasExpiredFunc.
type resetRule = func(eventTime, lastUpdate time.Time, maxDuration time.Duration) bool

// maker makes a Backoff of either kind.
type maker func(initial, max time.Duration, tc clock.Clock, jitter float64, rule resetRule) dropIn

func makeCorrected(initial, max time.Duration, tc clock.Clock, jitter float64, rule resetRule) dropIn {
	b := NewFakeBackOffWithJitter(initial, max, tc, jitter)
	b.HasExpiredFunc = rule
	return b
}

// tenMinutes is the kubelet's rule.
func tenMinutes(eventTime, lastUpdate time.Time, _ time.Duration) bool {
	return eventTime.Sub(lastUpdate) > 10*time.Minute
}

func neverReset(time.Time, time.Time, time.Duration) bool { return false }

// start is a time with no monotonic reading, as a runtime reports times.
var start = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// corrections holds a check for each difference from client-go's Backoff. A
// check returns an error for a Backoff that has upstream's defect.
var corrections = []struct {
	name  string
	check func(maker) error
}{
	{"initial-above-max", func(newBackoff maker) error {
		b := newBackoff(10*time.Second, 2*time.Second, testingclock.NewFakeClock(start), 0, nil)
		b.Next("a", start)
		return wantDelay(b, "a", 2*time.Second)
	}},
	{"jitter-above-max", func(newBackoff maker) error {
		b := newBackoff(10*time.Second, 10*time.Second, testingclock.NewFakeClock(start), 0.9, neverReset)
		for i := range 32 {
			id := fmt.Sprint(i)
			b.Next(id, start)
			if err := wantDelay(b, id, 10*time.Second); err != nil {
				return err
			}
		}
		return nil
	}},
	{"jitter-compounds", func(newBackoff maker) error {
		b := newBackoff(time.Second, time.Hour, testingclock.NewFakeClock(start), 1, neverReset)
		different := map[time.Duration]bool{}
		for key := range 32 {
			id := fmt.Sprint(key)
			for n := range 11 {
				b.Next(id, start)
				plain, before := time.Second<<n, time.Second<<max(n-1, 0)
				got := b.Get(id)
				if got < plain || got > plain+before {
					return fmt.Errorf("advance %d: the delay is %s, want %s to %s", n+1, got, plain, plain+before)
				}
				if again := b.Get(id); again != got {
					return fmt.Errorf("advance %d: the delay is %s and then %s", n+1, got, again)
				}
			}
			different[b.Get(id)] = true
		}
		if len(different) < 16 {
			return fmt.Errorf("32 keys have only %d different delays", len(different))
		}
		return nil
	}},
	{"delay-overflows", func(newBackoff maker) error {
		b := newBackoff(time.Second, math.MaxInt64, testingclock.NewFakeClock(start), 0, neverReset)
		last := time.Duration(0)
		for n := range 100 {
			b.Next("a", start)
			if d := b.Get("a"); d < last || d == 0 {
				return fmt.Errorf("advance %d: the delay goes from %s to %s", n+1, last, d)
			}
			last = b.Get("a")
		}
		return wantDelay(b, "a", math.MaxInt64)
	}},
	{"reset-overflows", func(newBackoff maker) error {
		b := newBackoff(time.Second, math.MaxInt64, testingclock.NewFakeClock(start), 0, nil)
		b.Next("a", start)
		b.Next("a", start)
		return wantDelay(b, "a", 2*time.Second)
	}},
	{"negative-delay", func(newBackoff maker) error {
		for _, c := range []struct{ initial, max time.Duration }{{-time.Second, time.Minute}, {time.Second, -time.Minute}} {
			b := newBackoff(c.initial, c.max, testingclock.NewFakeClock(start), 0, neverReset)
			for range 2 {
				b.Next("a", start)
				if err := wantDelay(b, "a", 0); err != nil {
					return fmt.Errorf("initial %s, max %s: %w", c.initial, c.max, err)
				}
			}
		}
		return nil
	}},
	{"gc-cuts-wait", func(newBackoff maker) error {
		tc := testingclock.NewFakeClock(start)
		b := newBackoff(10*time.Second, 300*time.Second, tc, 0, tenMinutes)
		for range 6 {
			b.Next("a", tc.Now())
		}
		// It runs for 400 s, and waits for 300 s while GC runs.
		tc.Step(400 * time.Second)
		exit := tc.Now()
		for waited := range 300 {
			if !b.IsInBackOffSince("a", exit) {
				return fmt.Errorf("released %d s after the exit, want 300 s", waited)
			}
			b.GC()
			tc.Step(time.Second)
		}
		b.GC()
		if b.IsInBackOffSince("a", exit) {
			return fmt.Errorf("not released 300 s after the exit")
		}
		b.Next("a", exit)
		return wantDelay(b, "a", 300*time.Second)
	}},
	{"clock-steps-back", func(newBackoff maker) error {
		tc := testingclock.NewFakeClock(start)
		b := newBackoff(10*time.Second, 300*time.Second, tc, 0, nil)
		b.Next("a", start)
		tc.Step(time.Second)
		exit := tc.Now()
		if allowed(b, "a", exit) {
			return fmt.Errorf("not waiting at the exit")
		}
		tc.SetTime(start.Add(-time.Hour))
		if allowed(b, "a", exit) {
			return fmt.Errorf("released by the step of the clock")
		}
		tc.Step(10 * time.Second)
		if !allowed(b, "a", exit) {
			return fmt.Errorf("not released one delay after the step of the clock")
		}
		return nil
	}},
	{"event-unknown", func(newBackoff maker) error {
		for _, unknown := range []time.Time{{}, time.Unix(0, 0)} {
			tc := testingclock.NewFakeClock(start)
			b := newBackoff(10*time.Second, 300*time.Second, tc, 0, tenMinutes)
			b.Next("a", start)
			tc.Step(5 * time.Second)
			if !b.IsInBackOffSince("a", unknown) {
				return fmt.Errorf("event at %s: does not wait 5 s after the advance", unknown)
			}
			tc.Step(590 * time.Second)
			for waited := range 10 {
				if allowed(b, "a", unknown) {
					return fmt.Errorf("event at %s: released %d s after it was seen, want 10 s", unknown, waited)
				}
				tc.Step(time.Second)
			}
			if !allowed(b, "a", unknown) {
				return fmt.Errorf("event at %s: not released 10 s after it was seen", unknown)
			}
			// It ran for 595 s, which is not enough for a reset.
			if err := wantDelay(b, "a", 20*time.Second); err != nil {
				return fmt.Errorf("event at %s: %w", unknown, err)
			}
		}
		return nil
	}},
	{"event-in-future", func(newBackoff maker) error {
		tc := testingclock.NewFakeClock(start)
		b := newBackoff(10*time.Second, 300*time.Second, tc, 0, tenMinutes)
		restarts := 0
		for range 600 {
			// An exit each second, by a runtime whose clock is ahead.
			if exit := tc.Now().Add(700 * time.Second); allowed(b, "a", exit) {
				restarts++
			}
			tc.Step(time.Second)
		}
		if restarts != 6 {
			return fmt.Errorf("%d restarts in 600 s, want 6", restarts)
		}
		return nil
	}},
	{"event-answered", func(newBackoff maker) error {
		tc := testingclock.NewFakeClock(start)
		b := newBackoff(300*time.Second, 300*time.Second, tc, 0, tenMinutes)
		for now, want := range map[time.Duration]bool{0: true, 10 * time.Second: false, 299 * time.Second: false, 300 * time.Second: true} {
			b.Reset("a")
			tc.SetTime(start)
			b.Next("a", start)
			tc.Step(400 * time.Second)
			// Two callers ask about the same exit.
			exit := start.Add(time.Second)
			if !allowed(b, "a", exit) {
				return fmt.Errorf("not allowed after its delay")
			}
			tc.Step(now)
			if now == 0 {
				continue
			}
			if got := allowed(b, "a", exit); got != want {
				return fmt.Errorf("%s after the answer: allowed %t, want %t", now, got, want)
			}
		}
		return nil
	}},
	{"lock-exported", func(newBackoff maker) error {
		b := newBackoff(time.Second, time.Second, testingclock.NewFakeClock(start), 0, nil)
		if _, exported := b.(sync.Locker); exported {
			return fmt.Errorf("a caller can take the lock and keep it")
		}
		return nil
	}},
	{"zero-value", func(newBackoff maker) (err error) {
		made := newBackoff(time.Second, time.Second, testingclock.NewFakeClock(start), 0, nil)
		b := reflect.New(reflect.TypeOf(made).Elem()).Interface().(dropIn)
		defer func() {
			if r := recover(); r != nil {
				err = fmt.Errorf("panics: %v", r)
			}
		}()
		b.Reset("a")
		b.GC()
		b.Next("a", start)
		if b.IsInBackOffSince("a", start) || b.IsInBackOffSinceUpdate("a", start) {
			return fmt.Errorf("waits")
		}
		b.DeleteEntry("a")
		return wantDelay(b, "a", 0)
	}},
}

// allowed reports whether a restart may happen now and advances the key if so.
// It uses Decide if b has it, and otherwise the calls that Decide replaces.
func allowed(b dropIn, id string, exit time.Time) bool {
	if b, ok := b.(*Backoff); ok {
		return b.Decide(id, exit, b.Clock.Now()).Allowed
	}
	if b.IsInBackOffSince(id, exit) {
		return false
	}
	b.Next(id, exit)
	return true
}

func wantDelay(b dropIn, id string, want time.Duration) error {
	if got := b.Get(id); got != want {
		return fmt.Errorf("the delay of %s is %s, want %s", id, got, want)
	}
	return nil
}

func TestCorrections(t *testing.T) {
	for _, c := range corrections {
		t.Run(c.name, func(t *testing.T) {
			if err := c.check(makeCorrected); err != nil {
				t.Error(err)
			}
		})
	}
}
