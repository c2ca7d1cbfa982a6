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
	"slices"
	"sync"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// SyncTicker wakes a sync loop at a fixed period and also exactly at the end of a
// back-off. It replaces the kubelet's one-second ticker, with which a restart waits
// for the next tick. The zero value is ready for use. The methods are safe for
// concurrent use.
type SyncTicker struct {
	once sync.Once
	// c has room for one tick. One is enough: the receiver of a tick handles all
	// work that is due.
	c chan time.Time

	// first is when the ticker was first used.
	first time.Time

	lock sync.Mutex
	// wakes are the pending ticks of WakeAfter, sorted, as distances from first.
	// timer is the only timer and is set for the first of them.
	wakes []time.Duration
	timer *time.Timer
}

// longestWake limits how far in the future a wake can be. Such a wake never happens,
// and no sum overflows.
const longestWake = 100 * 365 * 24 * time.Hour

// wakeUnit is the resolution of wakes. It limits their number.
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

// Every returns the channel of the ticks. From now on there is also a tick every
// period until stop is called. stop may be called more than once.
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

// WakeAfter schedules a tick after delay, at most a millisecond late. There is one
// tick per millisecond.
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
