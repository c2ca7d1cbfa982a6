// SPDX-License-Identifier: Apache-2.0

package restart_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kubelet-backoff/kubelet-backoff/backoff"
)

// The effect of jitter on a herd. All containers exit when their common dependency
// fails, and exit again after each restart until it is back. Time is virtual, and a
// start takes no time.

const (
	herdSize = 110
	herdLife = 20 * time.Millisecond
)

// herdStarts returns when the containers start after the loss, until some time after
// the end. It omits the first, undelayed starts.
func herdStarts(herd int, b *backoff.Backoff, end time.Duration) [herdSize][]time.Duration {
	var starts [herdSize][]time.Duration
	base := time.Unix(1e9, 0)
	for i := range starts {
		key := fmt.Sprintf("%d/%d", herd, i)
		b.Decide(key, base, base)
		for now := base; now.Sub(base) <= end; {
			exit := now.Add(herdLife)
			now = b.Decide(key, exit, exit).RetryAt
			if !b.Decide(key, exit, now).Allowed {
				panic("not allowed at RetryAt")
			}
			starts[i] = append(starts[i], now.Sub(base))
		}
	}
	return starts
}

// recovered returns how long after the return of the dependency half of the
// containers have started, and all of them.
func recovered(starts [herdSize][]time.Duration, back time.Duration) (half, all time.Duration) {
	var waits [herdSize]time.Duration
	for i, s := range starts {
		next, _ := slices.BinarySearch(s, back)
		waits[i] = s[next] - back
	}
	slices.Sort(waits[:])
	return waits[herdSize/2-1], waits[herdSize-1]
}

// busiest returns the largest number of starts in any one second after from.
func busiest(starts [herdSize][]time.Duration, from time.Duration) (most int) {
	var all []time.Duration
	for _, s := range starts {
		next, _ := slices.BinarySearch(s, from)
		all = append(all, s[next:]...)
	}
	slices.Sort(all)
	first := 0
	for i, at := range all {
		for at-all[first] >= time.Second {
			first++
		}
		most = max(most, i+1-first)
	}
	return most
}

// TestHerd computes the figures of docs/results/herd.md and prints them with -v.
// They are the reason why a kubelet has no jitter.
func TestHerd(t *testing.T) {
	// Each process has another jitter seed. The mean of this many herds is nearly
	// the same for all seeds.
	herds, moments := 20, 100
	if testing.Short() {
		herds = 4 // near enough for the comparisons below, not for the figures
	}
	type figures struct {
		busiest   float64
		half, all time.Duration
	}
	// The dependency may come back at any time, except at the beginning.
	measure := func(initial, maximum, away time.Duration, factor float64) (f figures) {
		from := away / 5
		for herd := range herds {
			b := backoff.NewBackOffWithJitter(initial, maximum, factor)
			b.HasExpiredFunc = backoff.FlatReset(backoff.ContainerResetPeriod)
			starts := herdStarts(herd, b, away)
			f.busiest += float64(busiest(starts, from)) / float64(herds)
			for i := range time.Duration(moments) {
				half, all := recovered(starts, from+(away-from)*i/time.Duration(moments))
				f.half += half / time.Duration(herds*moments)
				f.all += all / time.Duration(herds*moments)
			}
		}
		return f
	}
	for _, tc := range []struct{ initial, maximum, away time.Duration }{
		{time.Second, time.Second, time.Minute},
		{time.Second, time.Minute, 5 * time.Minute},
		{time.Second, 5 * time.Minute, 5 * time.Minute},
		{10 * time.Second, 5 * time.Minute, 5 * time.Minute},
		{10 * time.Second, 5 * time.Minute, time.Hour},
	} {
		var all []figures
		for _, factor := range []float64{0, 0.5} {
			f := measure(tc.initial, tc.maximum, tc.away, factor)
			t.Logf("%v to %v, back within %v, jitter %g: at most %.0f starts in a second; half have recovered after %.1f s, all after %.1f s",
				tc.initial, tc.maximum, tc.away, factor, f.busiest, f.half.Seconds(), f.all.Seconds())
			all = append(all, f)
		}
		without, with := all[0], all[1]
		if without.busiest != herdSize || without.half != without.all {
			t.Errorf("%v to %v: %+v without jitter, want all at the same instant", tc.initial, tc.maximum, without)
		}
		if tc.initial == tc.maximum {
			if with != without {
				t.Errorf("%v to %v: %+v with jitter, want %+v, as without: no delay is longer than the maximum", tc.initial, tc.maximum, with, without)
			}
			continue
		}
		if with.busiest > herdSize/4 || with.all < without.all*5/4 {
			t.Errorf("%v to %v: %+v with jitter, %+v without, want fewer starts in a second and a later end", tc.initial, tc.maximum, with, without)
		}
	}
}
