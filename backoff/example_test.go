// SPDX-License-Identifier: Apache-2.0

package backoff_test

import (
	"fmt"
	"time"

	"github.com/kubelet-backoff/kubelet-backoff/backoff"
)

// An agent asks before each restart and passes the time of the exit. If the
// restart is not allowed, the agent asks again at RetryAt.
func ExampleBackoff_Decide() {
	b := backoff.NewBackOff(10*time.Second, 300*time.Second)
	b.HasExpiredFunc = backoff.FlatReset(backoff.ContainerResetPeriod)

	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	exit := now
	for range 7 {
		d := b.Decide("pod-uid/container", exit, now)
		if !d.Allowed {
			fmt.Printf("restart %d waits %s\n", d.Attempt, d.Delay)
			now = d.RetryAt
			continue
		}
		fmt.Printf("restart %d at %s\n", d.Attempt, now.Format(time.TimeOnly))
		exit = now // it exits at once
	}
	// Output:
	// restart 1 at 12:00:00
	// restart 2 waits 10s
	// restart 2 at 12:00:10
	// restart 3 waits 20s
	// restart 3 at 12:00:30
	// restart 4 waits 40s
	// restart 4 at 12:01:10
}
