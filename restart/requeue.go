// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"time"
)

// NextSync returns the delay after now until the next sync of a pod whose sync
// failed with err. retry is the ordinary delay after an error, jitter included.
// resync is the longest delay for a back-off alone. NextSync corrects completeWork
// in pkg/kubelet/pod_workers.go, which adds up to half of the delay as jitter and
// lets a back-off postpone the retry of other errors.
//
// If err has only back-offs, the delay is the time until the earliest end, but at
// most resync. If err also has other errors, the delay is at most retry. exact is
// true if the delay ends with a back-off: a late sync then means a late restart.
func NextSync(err error, retry, resync time.Duration, now time.Time) (delay time.Duration, exact bool) {
	end, found, others := expiration(err)
	if !found {
		return retry, false
	}
	limit := resync
	if others {
		limit = min(limit, retry)
	}
	if delay = max(end.Sub(now), 0); delay > limit {
		return limit, false
	}
	return delay, true
}
