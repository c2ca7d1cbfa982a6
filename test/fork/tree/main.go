// SPDX-License-Identifier: Apache-2.0

// Command fork stands for a fork of a kubelet-like agent. Its container runs for some time and crashes, a few times
// over, on a fake clock; it prints how long each restart waits.
package main

import (
	"fmt"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	// This line was "k8s.io/client-go/util/flowcontrol", and no other has changed.
	flowcontrol "github.com/kubelet-backoff/kubelet-backoff/backoff"
)

func main() {
	clock := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	backOff := flowcontrol.NewFakeBackOff(10*time.Second, 300*time.Second, clock)
	for _, run := range []time.Duration{time.Second, time.Second, time.Second, time.Second, 580 * time.Second} {
		clock.Step(run)
		exit := clock.Now()
		for backOff.IsInBackOffSince("pod/main", exit) {
			clock.Step(time.Second)
			backOff.GC()
		}
		fmt.Printf("ran for %v, restarts after %v\n", run, clock.Since(exit))
		backOff.Next("pod/main", exit)
	}
}
