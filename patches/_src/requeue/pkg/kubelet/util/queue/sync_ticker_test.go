//go:build go1.25

/*
Copyright The Kubernetes Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package queue

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// withFakeTime runs f in a bubble. That needs the timers of Go 1.23. A tree with an older
// go directive has them only if enabled.
func withFakeTime(t *testing.T, f func(*testing.T)) {
	t.Helper()
	t.Setenv("GODEBUG", "asynctimerchan=0")
	synctest.Test(t, f)
}

func TestSyncTicker(t *testing.T) {
	withFakeTime(t, func(t *testing.T) {
		ticker := &SyncTicker{}
		c, stop := ticker.Every(time.Second)
		defer stop()
		begin := time.Now()
		next := func(want time.Duration) {
			t.Helper()
			<-c
			assert.Equal(t, want, time.Since(begin))
		}

		next(time.Second)
		// Between two ticks of the period, exactly at the end of the delay.
		ticker.WakeAfter(300 * time.Millisecond)
		next(1300 * time.Millisecond)
		next(2 * time.Second)

		// The order of the calls does not matter.
		ticker.WakeAfter(500 * time.Millisecond)
		ticker.WakeAfter(200 * time.Millisecond)
		ticker.WakeAfter(700 * time.Millisecond)
		ticker.WakeAfter(200 * time.Millisecond)
		next(2200 * time.Millisecond)
		next(2500 * time.Millisecond)
		next(2700 * time.Millisecond)
		next(3 * time.Second)

		// At once, and in the past.
		ticker.WakeAfter(0)
		next(3 * time.Second)
		ticker.WakeAfter(-time.Second)
		next(3 * time.Second)

		// Ticks that nobody receives are merged into one.
		ticker.WakeAfter(100 * time.Millisecond)
		ticker.WakeAfter(200 * time.Millisecond)
		time.Sleep(300 * time.Millisecond)
		synctest.Wait()
		assert.Len(t, c, 1)
		next(3300 * time.Millisecond)
		next(4 * time.Second)
	})
}

// A pod that is synced repeatedly while it waits requests the same tick each time, and a
// full node requests many.
func TestSyncTickerMergesWakes(t *testing.T) {
	withFakeTime(t, func(t *testing.T) {
		ticker := &SyncTicker{}
		c, stop := ticker.Every(time.Hour)
		defer stop()
		pending := func() int {
			ticker.lock.Lock()
			defer ticker.lock.Unlock()
			return len(ticker.wakes)
		}
		for range 1000 {
			ticker.WakeAfter(time.Second)
		}
		assert.Equal(t, 1, pending())
		for i := range 1000 {
			ticker.WakeAfter(time.Duration(i) * 10 * time.Microsecond)
		}
		assert.LessOrEqual(t, pending(), 12)
		for range pending() {
			<-c
		}
		assert.Zero(t, pending())
	})
}

func TestSyncTickerWakesNotForTheLongestDelay(t *testing.T) {
	withFakeTime(t, func(t *testing.T) {
		ticker := &SyncTicker{}
		c, stop := ticker.Every(time.Hour)
		defer stop()
		ticker.WakeAfter(math.MaxInt64)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Empty(t, c)
		ticker.lock.Lock()
		defer ticker.lock.Unlock()
		ticker.timer.Stop()
	})
}

func TestSyncTickerStopsTwice(t *testing.T) {
	var ticker SyncTicker
	c, stop := ticker.Every(time.Hour)
	stop()
	stop()
	ticker.WakeAfter(0)
	<-c
}
