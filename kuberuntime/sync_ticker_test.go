// SPDX-License-Identifier: Apache-2.0

package kuberuntime

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	testingclock "k8s.io/utils/clock/testing"
)

func TestSyncTicker(t *testing.T) {
	tc := testingclock.NewFakeClock(now)
	ticker := &SyncTicker{Clock: tc}
	c, stop := ticker.Every(time.Second)
	defer stop()

	tc.Step(time.Second)
	assert.Equal(t, now.Add(time.Second), <-c, "the period")

	// Between two ticks of the period, exactly at the end of the delay.
	ticker.WakeAfter(300 * time.Millisecond)
	tc.Step(299 * time.Millisecond)
	assert.Empty(t, c)
	tc.Step(time.Millisecond)
	assert.Equal(t, now.Add(1300*time.Millisecond), <-c)

	// Ticks that nobody receives become one.
	ticker.WakeAfter(100 * time.Millisecond)
	ticker.WakeAfter(200 * time.Millisecond)
	tc.Step(200 * time.Millisecond)
	assert.Len(t, c, 1)
	<-c
	assert.Empty(t, c)
}

func TestSyncTickerZeroValue(t *testing.T) {
	var ticker SyncTicker
	c, stop := ticker.Every(time.Hour)
	defer stop()
	ticker.WakeAfter(0)
	<-c
}
