// SPDX-License-Identifier: Apache-2.0

package kuberuntime

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// SyncTicker wakes a sync loop at a steady pace and, beside that, exactly when
// a back-off ends. It takes the place of the kubelet's one-second ticker, on
// whose next tick a restart has to wait otherwise. Its zero value is ready for
// use on the real clock.
type SyncTicker struct {
	// Clock may be set before the first use.
	Clock clock.WithTickerAndDelayedExecution

	once sync.Once
	// c has room for one tick. That is enough, because what a tick is for, to
	// look at all work that is due, need not be done twice.
	c chan time.Time
}

func (t *SyncTicker) init() {
	t.once.Do(func() {
		if t.Clock == nil {
			t.Clock = clock.RealClock{}
		}
		t.c = make(chan time.Time, 1)
	})
}

func (t *SyncTicker) tick(now time.Time) {
	select {
	case t.c <- now:
	default:
	}
}

// Every returns the channel on which the ticks come, from now on also one each
// period until stop is called, which is to be done once.
func (t *SyncTicker) Every(period time.Duration) (c <-chan time.Time, stop func()) {
	t.init()
	ticker := t.Clock.NewTicker(period)
	stopped := make(chan struct{})
	go func() {
		for {
			select {
			case now := <-ticker.C():
				t.tick(now)
			case <-stopped:
				return
			}
		}
	}()
	return t.c, func() {
		ticker.Stop()
		close(stopped)
	}
}

// WakeAfter makes one tick come after delay.
func (t *SyncTicker) WakeAfter(delay time.Duration) {
	t.init()
	at := t.Clock.Now().Add(delay)
	t.Clock.AfterFunc(delay, func() { t.tick(at) })
}
