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

package kuberuntime

import (
	"fmt"
	"math/rand"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// atSecond returns a time of the test.
func atSecond(seconds float64) time.Time {
	return time.Unix(1e9, 0).Add(time.Duration(seconds * float64(time.Second)))
}

// starter calls a startQueue.
type starter struct {
	t *testing.T
	q startQueue[string]
}

// restarts requests restarts that may all go on at once.
func (s *starter) restarts(seconds float64, keys ...string) {
	s.t.Helper()
	for _, k := range keys {
		ok, waited := s.q.Restart(k, atSecond(seconds))
		assert.True(s.t, ok, "restart %s", k)
		assert.False(s.t, waited, "restart %s waited", k)
	}
}

// putsOff requests restarts that all have to wait.
func (s *starter) putsOff(seconds float64, keys ...string) {
	s.t.Helper()
	for _, k := range keys {
		ok, _ := s.q.Restart(k, atSecond(seconds))
		assert.False(s.t, ok, "restart %s", k)
	}
}

// comes requests a restart that may go on after a wait.
func (s *starter) comes(seconds float64, k string) {
	s.t.Helper()
	ok, waited := s.q.Restart(k, atSecond(seconds))
	assert.True(s.t, ok, "restart %s", k)
	assert.True(s.t, waited, "restart %s waited", k)
}

// calls checks which restarts may go on.
func (s *starter) calls(seconds float64, want ...string) {
	s.t.Helper()
	var got []string
	for k, ok := s.q.Next(atSecond(seconds)); ok; k, ok = s.q.Next(atSecond(seconds)) {
		got = append(got, k)
	}
	assert.True(s.t, slices.Equal(want, got), "calls %v, want %v", got, want)
}

// expires checks when Next must be called if nothing happens.
func (s *starter) expires(now, want float64) {
	s.t.Helper()
	got, ok := s.q.Expiry(atSecond(now))
	assert.True(s.t, ok)
	assert.Equal(s.t, atSecond(want), got)
}

func newStarter(t *testing.T, limit int) *starter {
	return &starter{t, startQueue[string]{Limit: limit}}
}

func TestStartQueueBoundsRestarts(t *testing.T) {
	s := newStarter(t, 2)
	s.restarts(0, "a", "b")
	s.putsOff(0, "c", "d")
	s.calls(0)
	s.q.Begin("a", false, atSecond(0.1))
	s.q.Begin("b", false, atSecond(0.1))
	s.calls(0.1)
	s.q.End("b")
	s.calls(0.2, "c")
	s.putsOff(0.2, "b", "d")
	s.comes(0.3, "c")
	s.q.End("a")
	s.q.End("c")
	s.calls(0.4, "d", "b")
	s.comes(0.4, "b")
	s.comes(0.4, "d")
	s.q.End("b")
	s.q.End("d")
	s.restarts(0.5, "d")
}

func TestStartQueueIsInOrder(t *testing.T) {
	s := newStarter(t, 1)
	s.restarts(0, "first")
	s.putsOff(0.1, "a", "b", "c")
	s.putsOff(0.2, "b", "a") // A second request keeps its place.
	s.q.End("first")
	// A new request is behind the waiting ones, even if there is room.
	s.putsOff(0.3, "late", "first")
	for _, k := range []string{"a", "b", "c", "late", "first"} {
		s.calls(0.3, k)
		s.comes(0.3, k)
		s.q.End(k)
	}
	s.calls(0.3)
}

func TestStartQueueGivesWayToFirstStarts(t *testing.T) {
	for _, tc := range []struct{ limit, reduced int }{{0, 1}, {1, 1}, {2, 1}, {4, 1}, {7, 1}, {8, 2}} {
		s := newStarter(t, tc.limit)
		s.q.Begin("pod", true, atSecond(0))
		for i := range tc.reduced {
			s.restarts(0, fmt.Sprint("restart ", i))
		}
		s.putsOff(0, "a", "b", "c", "d", "e", "f", "g", "h")
		s.calls(0)
		s.q.End("pod")
		s.calls(0.1, []string{"a", "b", "c", "d", "e", "f", "g", "h"}[:max(tc.limit, 1)-tc.reduced]...)
	}
}

func TestStartQueueFirstStartFindsRestarts(t *testing.T) {
	s := newStarter(t, 2)
	s.restarts(0, "a", "b")
	s.putsOff(0, "c")
	s.q.Begin("pod", true, atSecond(0))
	s.q.End("a")
	s.calls(0) // b still runs.
	s.q.End("b")
	s.calls(0, "c")
}

func TestStartQueueDoesNotHang(t *testing.T) {
	t.Run("a first start", func(t *testing.T) {
		s := newStarter(t, 2)
		s.q.Begin("pod", true, atSecond(0))
		s.restarts(0, "a")
		s.q.Begin("a", false, atSecond(0.5))
		s.putsOff(1, "b")
		s.expires(1, 5)
		s.calls(4.9)
		s.calls(5, "b")
		s.q.End("pod")
	})
	t.Run("a first start, again and again", func(t *testing.T) {
		s := newStarter(t, 2)
		for i := range 10 {
			now, k := float64(10*i), fmt.Sprint(i)
			s.q.Begin("pod", true, atSecond(now))
			s.restarts(now, k)
			s.q.End(k)
			s.q.End("pod")
		}
	})
	t.Run("a restart that the runtime was asked for", func(t *testing.T) {
		s := newStarter(t, 1)
		s.restarts(0, "a")
		s.q.Begin("a", false, atSecond(0))
		s.putsOff(1, "b")
		s.expires(1, 5)
		s.calls(5, "b")
		s.comes(5, "b")
		s.q.End("a")
	})
	t.Run("a restart that pulls an image", func(t *testing.T) {
		s := newStarter(t, 1)
		s.restarts(0, "a")
		s.putsOff(0, "b")
		s.expires(0, 1)
		s.calls(1, "b")
		// It counts again when it reaches the runtime.
		s.q.Begin("a", false, atSecond(60))
		s.q.End("b")
		s.putsOff(60, "c")
		s.q.End("a")
		s.calls(60, "c")
	})
	t.Run("a restart whose turn it is", func(t *testing.T) {
		s := newStarter(t, 1)
		s.restarts(0, "a")
		s.putsOff(0, "b", "c")
		s.q.End("a")
		s.calls(0, "b")
		s.expires(0, 1)
		s.calls(1, "c")
		// It is late and may still go on.
		s.comes(2, "b")
		s.q.End("b")
		s.q.End("c")
		s.restarts(2, "a")
	})
	t.Run("a restart that is not made", func(t *testing.T) {
		s := newStarter(t, 1)
		s.restarts(0, "a")
		s.putsOff(0, "b", "c")
		s.q.End("a")
		s.calls(0, "b")
		s.q.End("b")
		s.calls(0, "c")
	})
}

func TestStartQueueForgets(t *testing.T) {
	s := newStarter(t, 1)
	for i := range 100 {
		now := float64(i)
		s.q.Restart(fmt.Sprint(i), atSecond(now))
		for _, ok := s.q.Next(atSecond(now)); ok; _, ok = s.q.Next(atSecond(now)) {
		}
	}
	s.calls(1000)
	s.restarts(1000, "a")
	assert.Len(t, s.q.starts, 1)
	assert.Empty(t, s.q.waiting)
	_, ok := s.q.Expiry(atSecond(1000))
	assert.False(t, ok)
}

// TestStartQueueSimulation makes restarts request, wait, hang, vanish and end at
// random.
func TestStartQueueSimulation(t *testing.T) {
	for seed := range int64(20) {
		r := rand.New(rand.NewSource(seed))
		limit := 1 + r.Intn(10)
		q := startQueue[int]{Limit: limit}
		now := atSecond(0)
		var queue []int               // the waiting restarts, in order
		counts := map[int]time.Time{} // the restarts that count, until when
		first := time.Time{}          // until when a first start counts
		for step := range 5000 {
			now = now.Add(time.Duration(r.Intn(50)) * time.Millisecond)
			for k, until := range counts {
				if !now.Before(until) {
					delete(counts, k)
				}
			}
			k := r.Intn(200)
			_, counted := counts[k]
			switch r.Intn(4) {
			case 0, 1:
				if ok, _ := q.Restart(k, now); ok {
					counts[k] = now.Add(comeLimit)
				} else if !slices.Contains(queue, k) {
					queue = append(queue, k)
				}
			case 2:
				switch {
				case step%7 == 0:
					q.Begin(-1, true, now)
					first = now.Add(startLimit)
				case step%7 == 1:
					q.End(-1)
					first = time.Time{}
				case counted && r.Intn(2) == 0:
					q.Begin(k, false, now)
					counts[k] = now.Add(startLimit)
				}
			case 3:
				for k := range counts {
					q.End(k)
					delete(counts, k)
					break
				}
			}
			bound := limit
			if now.Before(first) {
				bound = max(limit/4, 1)
			}
			for k, ok := q.Next(now); ok; k, ok = q.Next(now) {
				require.Equal(t, queue[0], k, "seed %d, step %d: the longest waiting is next", seed, step)
				queue = queue[1:]
				require.Less(t, len(counts), bound, "seed %d, step %d", seed, step)
				counts[k] = now.Add(comeLimit)
			}
			require.True(t, len(queue) == 0 || len(counts) >= bound, "seed %d, step %d: there is room", seed, step)
			require.Len(t, q.waiting, len(queue))
		}
	}
}

func TestStartQueueOfTenThousand(t *testing.T) {
	const n = 10000
	q := startQueue[int]{Limit: 4}
	now, going := atSecond(0), 0
	for k := range n {
		if ok, _ := q.Restart(k, now); ok {
			going++
		}
	}
	require.Equal(t, 4, going)
	ended := []int{0, 1, 2, 3}
	for len(ended) > 0 {
		k := ended[0]
		ended = ended[1:]
		q.Begin(k, false, now)
		q.End(k)
		now = now.Add(time.Millisecond)
		for k, ok := q.Next(now); ok; k, ok = q.Next(now) {
			ended = append(ended, k)
			going++
		}
	}
	assert.Equal(t, n, going)
	assert.Empty(t, q.starts)
}
