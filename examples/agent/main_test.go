// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// The second restart waits for a second, and the exit with 88 restarts the pod from its first init container.
const want = `0.0s setup starts
0.1s setup exits with 0
0.1s proxy starts
0.1s main starts
0.2s main exits with 1
0.2s main starts
0.3s main exits with 1
0.3s event Warning BackOff: Back-off restarting failed container main in pod worker_default(b36a0a9e): waiting 1s, next start at 2026-01-01T00:00:01Z
1.3s main starts
1.4s main exits with 88
1.4s event Normal PodRestarting: Container main exited with code 88, triggering pod restart
1.4s event Normal Killing: Stopping container proxy, the pod is being restarted
1.4s proxy exits with 143
1.4s setup starts
1.5s setup exits with 0
1.5s proxy starts
1.5s main starts
`

func TestRun(t *testing.T) {
	var out strings.Builder
	// To sleep moves a fake clock: the two seconds take no time.
	run(clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)), &out)
	if got := out.String(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}
