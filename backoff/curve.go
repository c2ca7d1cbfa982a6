// SPDX-License-Identifier: Apache-2.0

package backoff

import "time"

// Curve describes the delays of a key that is never reset. The k-th delay is
// Initial doubled k-1 times, but at most Max.
type Curve struct {
	// Initial is the shortest delay that is not zero. Initial <= Max.
	Initial time.Duration
	// Max is the longest delay.
	Max time.Duration
	// DelayFirst makes the first restart wait for Initial. Otherwise it is
	// immediate, and the second waits for Initial.
	DelayFirst bool
}

// Delay returns how long the restart number attempt waits, counted from 1. It
// returns 0 for an attempt below 1, and always if Initial is 0 or less.
func (c Curve) Delay(attempt int) time.Duration {
	first := 1
	if !c.DelayFirst {
		first = 2
	}
	d := c.Initial
	if attempt < first || d <= 0 {
		return 0
	}
	for ; attempt > first && d < c.Max; attempt-- {
		if d > c.Max/2 {
			return c.Max
		}
		d *= 2
	}
	return min(d, max(c.Max, 0))
}

// Delays returns the delays up to the first one that equals Max. All later
// delays are Max too. It returns a single 0 if Initial is 0 or less.
func (c Curve) Delays() []time.Duration {
	var delays []time.Duration
	for attempt := 1; ; attempt++ {
		d := c.Delay(attempt)
		delays = append(delays, d)
		if d >= c.Max || c.Initial <= 0 {
			return delays
		}
	}
}
