// SPDX-License-Identifier: Apache-2.0

package backoff

import "time"

// Curve is the delays of a key that is never reset: the k-th is Initial doubled
// k-1 times, and at most Max.
type Curve struct {
	// Initial is the least delay that is not zero. Initial <= Max.
	Initial time.Duration
	// Max is the greatest delay.
	Max time.Duration
	// DelayFirst makes the first restart wait for Initial. Otherwise it is
	// immediate, and the second waits for Initial.
	DelayFirst bool
}

// Delay returns what the restart number attempt waits, counted from 1. It is 0
// for an attempt below 1, and always if Initial is not above 0.
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

// Delays returns the delays up to the first that is Max. As every later one is
// Max too, they are the whole curve. They are 0 alone if Initial is not above 0.
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
