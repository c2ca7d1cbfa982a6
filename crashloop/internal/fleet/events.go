// SPDX-License-Identifier: Apache-2.0

package fleet

import "time"

// client-go's EventSourceObjectSpamFilter lets so many events of a type through for a pod at once, and then one in spamPeriod.
// Before v1.32 it did not distinguish types.
const (
	spamBurst  = 25
	spamPeriod = 5 * time.Minute
)

// spamFilter lets the events of a type through, for one of a pod's containers. Containers are simulated one after another, so
// each has an equal share of what the filter of the pod lets through.
type spamFilter struct {
	// tokens is the number of events that the filter of the pod lets through.
	tokens float64
	at     time.Duration
}

// newSpamFilter returns the filter of a pod without events.
func newSpamFilter() spamFilter { return spamFilter{tokens: spamBurst} }

// pass returns how many of n events are sent. An event takes as many tokens as the pod has containers.
func (f *spamFilter) pass(n int, now time.Duration, containers int) (sent uint64) {
	f.tokens = min(spamBurst, f.tokens+float64(now-f.at)/float64(spamPeriod))
	f.at = now
	for each := float64(containers); n > 0 && f.tokens >= each; n-- {
		f.tokens -= each
		sent++
	}
	return sent
}
