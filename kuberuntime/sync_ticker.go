// SPDX-License-Identifier: Apache-2.0

package kuberuntime

import (
	"slices"
	"sync"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// SyncTicker wakes a sync loop at a steady pace and, beside that, exactly when
// a back-off ends. It takes the place of the kubelet's one-second ticker, on
// whose next tick a restart has to wait otherwise. Its zero value is ready for
// use. Its methods may be called concurrently.
type SyncTicker struct {
	once sync.Once
	// c has room for one tick. That is enough, because what a tick is for, to
	// look at all work that is due, need not be done twice.
	c chan time.Time

	// first is when the ticker was first used.
	first time.Time

	lock sync.Mutex
	// wakes are the ticks that WakeAfter asked for and that have not come, in their
	// order, as distances from first. However many they are, timer is the one timer,
	// for the first of them.
	wakes []time.Duration
	timer *time.Timer
}

// longestWake is how far ahead a wake can be: so far that it does not come, and no
// sum overflows.
const longestWake = 100 * 365 * 24 * time.Hour

// wakeUnit is what the times of wakes are multiples of, so that there are not more
// of them than can be told apart.
const wakeUnit = time.Millisecond

func (t *SyncTicker) init() {
	t.once.Do(func() { t.c, t.first = make(chan time.Time, 1), time.Now() })
}

func (t *SyncTicker) tick(now time.Time) {
	select {
	case t.c <- now:
	default:
	}
}

// Every returns the channel on which the ticks come, from now on also one each
// period until stop is called. A second call of stop does nothing.
func (t *SyncTicker) Every(period time.Duration) (c <-chan time.Time, stop func()) {
	t.init()
	ticker := time.NewTicker(period)
	stopped := make(chan struct{})
	go func() {
		defer utilruntime.HandleCrash()
		for {
			select {
			case now := <-ticker.C:
				t.tick(now)
			case <-stopped:
				return
			}
		}
	}()
	return t.c, sync.OnceFunc(func() {
		ticker.Stop()
		close(stopped)
	})
}

// WakeAfter makes a tick come after delay, at most a millisecond late. Ticks for the
// same millisecond are one.
func (t *SyncTicker) WakeAfter(delay time.Duration) {
	t.init()
	t.lock.Lock()
	defer t.lock.Unlock()
	at := (time.Since(t.first) + min(max(delay, 0), longestWake) + wakeUnit - 1).Truncate(wakeUnit)
	i, found := slices.BinarySearch(t.wakes, at)
	if found {
		return
	}
	if t.wakes = slices.Insert(t.wakes, i, at); i == 0 {
		t.arm()
	}
}

// arm sets the timer to the first of wakes. The caller holds the lock.
func (t *SyncTicker) arm() {
	delay := t.wakes[0] - time.Since(t.first)
	if t.timer == nil {
		t.timer = time.AfterFunc(delay, t.fire)
		return
	}
	t.timer.Reset(delay)
}

func (t *SyncTicker) fire() {
	defer utilruntime.HandleCrash()
	t.lock.Lock()
	defer t.lock.Unlock()
	now := time.Now()
	due := 0
	for due < len(t.wakes) && t.wakes[due] <= now.Sub(t.first) {
		due++
	}
	if due > 0 {
		t.wakes = slices.Delete(t.wakes, 0, due)
		t.tick(now)
	}
	if len(t.wakes) > 0 {
		t.arm()
	}
}
