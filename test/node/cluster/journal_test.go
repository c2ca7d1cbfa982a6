// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/memcri"
)

// instance names a container of a pod.
type instance struct{ uid, container string }

// counts returns how often each container has started, and which run at the end of a
// journal.
func counts(journal []memcri.Event) (starts map[instance]int, running map[instance]bool) {
	starts, running = map[instance]int{}, map[instance]bool{}
	for _, e := range journal {
		i := instance{e.UID, e.Container}
		if e.What == memcri.Started {
			starts[i]++
			running[i] = true
		} else {
			delete(running, i)
		}
	}
	return starts, running
}

// exits returns how often each container has exited.
func exits(journal []memcri.Event) map[instance]int {
	all := map[instance]int{}
	for _, e := range journal {
		if e.What == memcri.Exited {
			all[instance{e.UID, e.Container}]++
		}
	}
	return all
}

// ended returns the journal of a runtime whose containers all end at a time.
func ended(journal []memcri.Event, at time.Time) []memcri.Event {
	last := map[instance]memcri.Event{}
	for _, e := range journal {
		last[instance{e.UID, e.Container}] = e
	}
	for _, e := range last {
		if e.What == memcri.Started {
			e.At, e.What, e.Code = at, memcri.Exited, 137
			journal = append(journal, e)
		}
	}
	return journal
}

// twice returns an error for the first container that starts while another instance of
// it runs, in the journal of a node; and for the first pod that starts while another pod of
// its name runs, in that of all nodes.
func twice(journal []memcri.Event) error {
	running := map[instance]bool{}
	pods := map[string]map[instance]bool{}
	for _, e := range journal {
		i := instance{e.UID, e.Container}
		if e.What == memcri.Exited {
			delete(running, i)
			delete(pods[e.Pod], i)
			continue
		}
		if running[i] {
			return fmt.Errorf("%v: container %s of pod %s was started while it ran", e.At, e.Container, e.Pod)
		}
		for other := range pods[e.Pod] {
			if other.uid != e.UID {
				return fmt.Errorf("%v: container %s of pod %s was started while a container %s of another pod of that name ran", e.At, e.Container, e.Pod, other.container)
			}
		}
		running[i] = true
		if pods[e.Pod] == nil {
			pods[e.Pod] = map[instance]bool{}
		}
		pods[e.Pod][i] = true
	}
	return nil
}

func TestJournal(t *testing.T) {
	at := time.Unix(1000, 0)
	event := func(uid, container, what string) memcri.Event {
		return memcri.Event{At: at, UID: uid, Pod: "store-0", Container: container, What: what}
	}
	started := event("1", "main", memcri.Started)
	exited := event("1", "main", memcri.Exited)
	starts, running := counts([]memcri.Event{started, exited, started, event("1", "other", memcri.Started), event("1", "other", memcri.Exited)})
	assert.Equal(t, map[instance]int{{"1", "main"}: 2, {"1", "other"}: 1}, starts)
	assert.Equal(t, map[instance]bool{{"1", "main"}: true}, running)

	assert.Equal(t, map[instance]int{{"1", "main"}: 1}, exits([]memcri.Event{started, exited, started}))
	_, running = counts(ended([]memcri.Event{started, exited, started}, at))
	assert.Empty(t, running)
	assert.Len(t, ended([]memcri.Event{started, exited}, at), 2)

	assert.NoError(t, twice([]memcri.Event{started, exited, started, event("1", "other", memcri.Started), exited, event("1", "other", memcri.Exited), event("2", "main", memcri.Started)}))
	assert.ErrorContains(t, twice([]memcri.Event{started, started}), "while it ran")
	assert.ErrorContains(t, twice([]memcri.Event{started, event("2", "main", memcri.Started)}), "another pod of that name")
}
