// SPDX-License-Identifier: Apache-2.0

package backoff

import (
	"math"
	"time"
)

// ContainerResetPeriod is 10 minutes, the "recovery threshold" of KEP-5593.
// After a run longer than this, the next restart of a container counts as a
// first one.
const ContainerResetPeriod = 10 * time.Minute

// FlatReset returns a rule for HasExpiredFunc. It resets a key on an event more
// than period after the key last advanced. A key advances when its container
// starts, and the event is the container's exit. So the rule measures how long
// the container ran, and not how long it waited before. The kubelet's rule is
// FlatReset(ContainerResetPeriod).
func FlatReset(period time.Duration) func(eventTime, lastUpdate time.Time, maxDuration time.Duration) bool {
	return func(eventTime, lastUpdate time.Time, _ time.Duration) bool {
		return eventTime.Sub(lastUpdate) > period
	}
}

// ProportionalReset is the default rule. It resets a key on an event more than
// twice the maximum delay after the key last advanced.
func ProportionalReset(eventTime, lastUpdate time.Time, maxDuration time.Duration) bool {
	period := time.Duration(math.MaxInt64)
	if maxDuration <= period/2 {
		period = 2 * maxDuration
	}
	return eventTime.Sub(lastUpdate) > period
}
