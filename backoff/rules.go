// SPDX-License-Identifier: Apache-2.0

package backoff

import (
	"math"
	"time"
)

// ContainerResetPeriod is how long a container has to run for its next restart
// to count as a first one: 10 minutes, the "recovery threshold" of KEP-5593.
const ContainerResetPeriod = 10 * time.Minute

// FlatReset returns a rule for HasExpiredFunc that starts a key over after an
// event more than period after the key last advanced. As a key advances when
// its container starts and the event is the container's exit, what counts is
// how long the container ran and not how long it waited before. The kubelet's
// rule is FlatReset(ContainerResetPeriod).
func FlatReset(period time.Duration) func(eventTime, lastUpdate time.Time, maxDuration time.Duration) bool {
	return func(eventTime, lastUpdate time.Time, _ time.Duration) bool {
		return eventTime.Sub(lastUpdate) > period
	}
}

// ProportionalReset starts a key over after an event more than twice the
// maximal delay after the key last advanced. It is the default rule.
func ProportionalReset(eventTime, lastUpdate time.Time, maxDuration time.Duration) bool {
	period := time.Duration(math.MaxInt64)
	if maxDuration <= period/2 {
		period = 2 * maxDuration
	}
	return eventTime.Sub(lastUpdate) > period
}
