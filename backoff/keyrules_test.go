// SPDX-License-Identifier: Apache-2.0

package backoff

import (
	"strings"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"
)

// ruled returns a Backoff of a kubelet, whose key "a" has own rules: delays of 1 s to 5 s, a reset
// after 60 s, and exit codes 0 and 3 are ignored.
func ruled() (*Backoff, *KeyRules) {
	b, rules := kubelet(10, 300)(), &KeyRules{Initial: time.Second, Max: 5 * time.Second, Reset: time.Minute, Ignored: []int32{0, 3}}
	b.RulesOf = func(id string) *KeyRules {
		if id == "a" {
			return rules
		}
		return nil
	}
	return b, rules
}

// crashes returns the delays of restarts after runs of the given length, from the time now.
func crashes(b *Backoff, id string, now, run float64, restarts int) string {
	var delays []string
	for range restarts {
		exit := now + run
		d := b.Decide(id, seconds(exit), seconds(exit))
		if now = exit; !d.Allowed {
			now = d.RetryAt.Sub(start).Seconds()
			b.Decide(id, seconds(exit), seconds(now))
		}
		delays = append(delays, d.Delay.String())
	}
	return strings.Join(delays, " ")
}

func TestKeyRules(t *testing.T) {
	b, _ := ruled()
	if got := crashes(b, "a", 0, 1, 6); got != "0s 1s 2s 4s 5s 5s" {
		t.Errorf("own rules: %s", got)
	}
	if got := crashes(b, "b", 0, 1, 4); got != "0s 10s 20s 40s" {
		t.Errorf("rules of the Backoff: %s", got)
	}
	if got := crashes(b, "a", 100, 61, 3); got != "0s 0s 0s" {
		t.Errorf("after runs that reset: %s", got)
	}
	// The attempts stay when the rules change. The new delay is that of the present wait.
	b, rules := ruled()
	crashes(b, "a", 0, 1, 5)
	exit := 100.0
	if d := b.Decide("a", seconds(exit-50), seconds(exit-50)); d.Delay != 5*time.Second {
		t.Errorf("before the change: %s", describe(d))
	}
	rules.Max = time.Hour
	if d := b.Decide("a", seconds(exit-50), seconds(exit-49)); d.Delay != 16*time.Second {
		t.Errorf("after the change: %s", describe(d))
	}
	// A maximum below the initial delay, and negative delays.
	rules.Max = 500 * time.Millisecond
	if d := b.Decide("a", seconds(exit-50), seconds(exit-49.9)); d.Delay != rules.Max {
		t.Errorf("a maximum below the initial delay: %s", describe(d))
	}
	rules.Initial, rules.Max = -1, -1
	if d := b.Peek("a", seconds(exit-50), seconds(exit-49.9)); !d.Allowed || d.Delay != 0 {
		t.Errorf("negative delays: %s", describe(d))
	}
}

// GC and the methods of client-go follow the key's rules.
func TestKeyRulesEverywhere(t *testing.T) {
	for id, kept := range map[string]bool{"a": false, "b": true} {
		b, _ := ruled()
		clock := testingclock.NewFakeClock(seconds(0))
		b.Clock = clock
		crashes(b, id, 0, 1, 4)
		state, _ := b.Snapshot(id, seconds(50))
		clock.SetTime(state.LastUpdate.Add(10*time.Minute + 20*time.Second))
		b.GC()
		if _, known := b.Snapshot(id, clock.Now()); known != kept {
			t.Errorf("%s after GC: known %t", id, known)
		}
	}
	b, _ := ruled()
	for range 5 {
		b.Next("a", seconds(0))
	}
	if got := b.Get("a"); got != 5*time.Second {
		t.Errorf("Get: %s", got)
	}
	j := NewFakeBackOffWithJitter(10*time.Second, 300*time.Second, testingclock.NewFakeClock(seconds(0)), 100)
	j.RulesOf = b.RulesOf
	for range 5 {
		j.Next("a", seconds(0))
	}
	if got := j.Get("a"); got < time.Second || got > 5*time.Second {
		t.Errorf("with jitter: %s", got)
	}
}

// An exit that is ignored starts the key over. Two starts are at least a second apart.
func TestDecideExit(t *testing.T) {
	exit := func(b *Backoff, code int32, at, now float64) string {
		return describe(b.DecideExit("a", code, seconds(at), seconds(now)))
	}
	steps := []struct {
		name string
		do   func(b *Backoff) string
		want string
	}{
		{"of a key that is not known", func(b *Backoff) string { return exit(b, 0, 2, 2) }, "go #0 0s until 2s"},
		{"a short run", func(b *Backoff) string {
			exit(b, 0, 2, 2)
			return exit(b, 3, 2.25, 2.5) + ", " + exit(b, 3, 2.25, 3) + ", " + exit(b, 3, 2.25, 3.5)
		}, "wait #0 750ms until 3s, go #0 750ms until 3s, wait #0 1s until 4s"},
		{"a failure", func(b *Backoff) string {
			exit(b, 0, 2, 2)
			return exit(b, 1, 2.25, 2.25) + ", " + exit(b, 1, 2.25, 3) + ", " + exit(b, 1, 3.5, 3.5)
		}, "wait #1 750ms until 3s first, go #1 750ms until 3s, wait #2 1s until 4.5s first"},
		{"starts over", func(b *Backoff) string {
			crashes(b, "a", 0, 1, 4) // ends at 11 s, of which 0, 1, 2 and 4 s were delays
			return exit(b, 0, 12, 12) + ", " + exit(b, 1, 14, 14) + ", " + exit(b, 1, 15, 15)
		}, "go #0 0s until 12s, go #1 0s until 14s, wait #2 1s until 16s first"},
		{"ends a wait", func(b *Backoff) string {
			crashes(b, "a", 0, 1, 5) // ends at 17 s
			return exit(b, 1, 18, 18) + ", " + exit(b, 0, 18, 19)
		}, "wait #6 5s until 23s first, go #0 0s until 18s"},
		{"a start that failed after it", func(b *Backoff) string {
			exit(b, 0, 2, 2)
			b.Fail("a", seconds(2))
			s := exit(b, 0, 2, 2.5) + ", " + exit(b, 0, 2, 3)
			b.Fail("a", seconds(3))
			return s + ", " + exit(b, 0, 2, 3.5)
		}, "wait #1 1s until 3s first, go #1 1s until 3s, wait #2 1s until 4s first"},
		{"a snapshot in the second", func(b *Backoff) string {
			exit(b, 0, 2, 2)
			s, _ := b.Snapshot("a", seconds(2.25))
			if err := b.Restore("a", s, seconds(2.25)); err != nil {
				return err.Error()
			}
			return exit(b, 0, 2.25, 2.25)
		}, "wait #0 750ms until 3s"},
		{"a start that was given back", func(b *Backoff) string {
			exit(b, 0, 2, 2)
			b.GiveBack("a", seconds(2.1))
			return exit(b, 0, 2, 2.2) + ", " + exit(b, 1, 4, 4)
		}, "go #0 0s until 2s, go #1 0s until 4s"},
		{"a step of the clock", func(b *Backoff) string {
			b.DecideExit("a", 0, seconds(100), seconds(100))
			s := exit(b, 0, 100.25, 99) // and without a monotonic reading
			return s + ", " + exit(b, 0, 100.25, 100)
		}, "wait #0 1s until 1m40s, go #0 0s until 1m40s"},
		{"an unknown time", func(b *Backoff) string {
			exit(b, 0, 2, 2)
			s := describe(b.DecideExit("a", 0, time.Time{}, seconds(2.5)))
			return s + ", " + describe(b.DecideExit("a", 0, time.Time{}, seconds(3)))
		}, "wait #0 500ms until 3s, go #0 0s until 3s"},
		{"a snapshot", func(b *Backoff) string {
			exit(b, 0, 2, 2)
			s, _ := b.Snapshot("a", seconds(3))
			if err := b.Restore("a", s, seconds(3)); err != nil {
				return err.Error()
			}
			return exit(b, 1, 4, 4)
		}, "go #1 0s until 4s"},
	}
	for _, tc := range steps {
		t.Run(tc.name, func(t *testing.T) {
			b, _ := ruled()
			if got := tc.do(b); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
			b, _ = ruled()
			b.DelayFirstRestart = true
			exit(b, 0, 2, 2)
			if got := exit(b, 1, 4, 4); got != "wait #1 1s until 5s first" {
				t.Errorf("with DelayFirstRestart: %s", got)
			}
		})
	}
	b, _ := ruled()
	crashes(b, "a", 0, 1, 5)
	for range 2 {
		if got := describe(b.PeekExit("a", 0, seconds(17.5), seconds(17.6))); got != "wait #0 500ms until 18s" {
			t.Errorf("PeekExit: %s", got)
		}
	}
	if got := exit(b, 1, 17.5, 17.6); got != "wait #6 5s until 22.5s first" {
		t.Errorf("after PeekExit: %s", got)
	}
	if got := describe(b.DecideExit("b", 0, seconds(0), seconds(0))); got != "go #1 0s until 0s" {
		t.Errorf("a key without rules: %s", got)
	}
}
