// SPDX-License-Identifier: Apache-2.0

package backoff

import "time"

// Curve describes the delays of a key that is never reset. The k-th delay that is not
// zero is Initial doubled k-1 times, but at most Max.
type Curve struct {
	// Initial is the shortest delay that is not zero. If it is more than Max, all delays
	// are Max.
	Initial time.Duration
	// Max is the longest delay. With 0 or less, nothing waits.
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
	if attempt < first {
		return 0
	}
	return doubled(max(c.Initial, 0), max(c.Max, 0), attempt-first)
}

// doubled returns initial doubled n times, but at most limit. initial and limit are not
// negative.
func doubled(initial, limit time.Duration, n int) time.Duration {
	// The comparison shifts limit and not initial, so that it cannot overflow.
	if initial <= limit>>n {
		return initial << n
	}
	return limit
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
