// SPDX-License-Identifier: Apache-2.0

package backoff

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// A Curve gives the delays of a Backoff.
func TestCurveAgreesWithBackoff(t *testing.T) {
	durations := []time.Duration{math.MinInt64, -1, 0, 1, time.Second, 10 * time.Second, 300 * time.Second, math.MaxInt64/2 + 1, math.MaxInt64}
	for _, initial := range durations {
		for _, limit := range durations {
			for _, first := range []bool{false, true} {
				c := Curve{Initial: initial, Max: limit, DelayFirst: first}
				b := NewBackOff(initial, limit)
				b.HasExpiredFunc, b.DelayFirstRestart = neverReset, first
				t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
					last := time.Duration(0)
					for attempt := 1; attempt <= 70; attempt++ {
						// The starts fail, so that no time passes.
						if attempt > 1 {
							b.Fail("a", start)
						}
						d := b.Decide("a", start, start)
						if d.Delay != c.Delay(attempt) {
							t.Fatalf("attempt %d waits %s, on the curve %s", attempt, d.Delay, c.Delay(attempt))
						}
						last = d.Delay
						if !d.Allowed {
							next(b, "a", start, start)
						}
					}
					delays := c.Delays()
					if delays[len(delays)-1] != last || c.Delay(math.MaxInt) != last || c.Delay(math.MinInt) != 0 {
						t.Errorf("the curve is %s and ends with %s, attempt 70 waits %s", delays, c.Delay(math.MaxInt), last)
					}
				})
			}
		}
	}
}
