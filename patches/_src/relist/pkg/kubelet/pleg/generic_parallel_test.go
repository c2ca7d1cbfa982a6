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

package pleg

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	containertest "k8s.io/kubernetes/pkg/kubelet/container/testing"
	"k8s.io/kubernetes/test/utils/ktesting"
	"k8s.io/utils/clock"
)

// slowRuntime lists pods in any order, and takes a while to read the status of one,
// which says what was listed.
type slowRuntime struct {
	*containertest.FakeRuntime
	took time.Duration
	slow types.UID // takes a second

	lock      sync.Mutex
	listed    []*kubecontainer.Pod
	broken    sets.Set[types.UID]
	read      map[types.UID]int
	now, most int
}

func (r *slowRuntime) GetPods(context.Context, bool) ([]*kubecontainer.Pod, error) {
	r.lock.Lock()
	defer r.lock.Unlock()
	var pods []*kubecontainer.Pod
	for _, p := range r.listed {
		listed := *p
		listed.Containers, listed.Sandboxes = slices.Clone(p.Containers), slices.Clone(p.Sandboxes)
		for _, cs := range [][]*kubecontainer.Container{listed.Containers, listed.Sandboxes} {
			rand.Shuffle(len(cs), func(i, j int) { cs[i], cs[j] = cs[j], cs[i] })
		}
		pods = append(pods, &listed)
	}
	return pods, nil
}

func (r *slowRuntime) GetPodStatus(_ context.Context, pod *kubecontainer.Pod) (*kubecontainer.PodStatus, error) {
	r.lock.Lock()
	r.now++
	r.most = max(r.most, r.now)
	r.read[pod.ID]++
	r.lock.Unlock()
	time.Sleep(r.took)
	if pod.ID == r.slow {
		time.Sleep(time.Second)
	}
	r.lock.Lock()
	defer r.lock.Unlock()
	r.now--
	if r.broken.Has(pod.ID) {
		return nil, errors.New("broken")
	}
	status := &kubecontainer.PodStatus{ID: pod.ID}
	for _, c := range pod.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, &kubecontainer.Status{ID: c.ID, State: c.State})
	}
	slices.SortFunc(status.ContainerStatuses, func(a, b *kubecontainer.Status) int { return len(a.ID.ID) - len(b.ID.ID) })
	return status, nil
}

// relistedPLEG is a GenericPLEG of a slowRuntime that has no pod yet.
func relistedPLEG(took time.Duration) (*GenericPLEG, *slowRuntime, kubecontainer.Cache) {
	r := &slowRuntime{FakeRuntime: &containertest.FakeRuntime{}, took: took, broken: sets.New[types.UID](), read: map[types.UID]int{}}
	cache := kubecontainer.NewCache()
	duration := &RelistDuration{RelistPeriod: time.Second, RelistThreshold: time.Minute}
	return NewGenericPLEG(r, make(chan *PodLifecycleEvent, 10000), duration, cache, clock.RealClock{}).(*GenericPLEG), r, cache
}

func podOf(i int, states ...kubecontainer.State) *kubecontainer.Pod {
	pod := &kubecontainer.Pod{ID: types.UID(fmt.Sprint("pod-", i))}
	pod.Sandboxes = []*kubecontainer.Container{createTestContainer(fmt.Sprint("s", i), kubecontainer.ContainerStateRunning)}
	for n, s := range states {
		// Each has a name of its own length, by which statuses are sorted.
		pod.Containers = append(pod.Containers, createTestContainer(fmt.Sprintf("%d%*d", i, n+1, n), s))
	}
	return pod
}

func TestRelistReadsInParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tCtx := ktesting.Init(t)
		g, r, cache := relistedPLEG(10 * time.Millisecond)
		for i := range 10 * relistWorkers {
			r.listed = append(r.listed, podOf(i, kubecontainer.ContainerStateRunning))
		}
		began := time.Now()
		g.Relist(tCtx)
		require.Equal(t, 100*time.Millisecond, time.Since(began))
		require.Equal(t, relistWorkers, r.most)
		require.Len(t, r.read, 10*relistWorkers)
		require.Len(t, getEventsFromChannel(g.eventChannel), 2*10*relistWorkers)

		// One pod that changes is read alone, and no other is read again.
		r.listed[3].Containers[0] = createTestContainer("new", kubecontainer.ContainerStateRunning)
		g.Relist(tCtx)
		require.Equal(t, 10*relistWorkers+1, sum(maps.Values(r.read)))
		require.Equal(t, 2, r.read["pod-3"])
		g.Relist(tCtx)
		require.Equal(t, 10*relistWorkers+1, sum(maps.Values(r.read)))

		// Pods that are gone are not read.
		r.listed = nil
		g.Relist(tCtx)
		require.Equal(t, 10*relistWorkers+1, sum(maps.Values(r.read)))
		status, err := cache.Get("pod-3")
		require.NoError(t, err)
		require.Empty(t, status.ContainerStatuses)
		require.Nil(t, g.statusReads)
	})
}

// Events come while later pods are still being read.
func TestRelistSendsEventsEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tCtx := ktesting.Init(t)
		g, r, _ := relistedPLEG(10 * time.Millisecond)
		for i := range 4 * relistWorkers {
			r.listed = append(r.listed, podOf(i, kubecontainer.ContainerStateRunning))
		}
		began := time.Now()
		go g.Relist(tCtx)
		<-g.Watch()
		require.Equal(t, 10*time.Millisecond, time.Since(began))
		for range 2*len(r.listed) - 1 {
			<-g.Watch()
		}
	})
}

func TestRelistReinspectsWhatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tCtx := ktesting.Init(t)
		g, r, cache := relistedPLEG(0)
		for i := range 5 {
			r.listed = append(r.listed, podOf(i, kubecontainer.ContainerStateRunning))
		}
		r.broken.Insert("pod-1", "pod-4")
		g.Relist(tCtx)
		require.Len(t, getEventsFromChannel(g.eventChannel), 6)
		_, err := cache.Get("pod-4")
		require.EqualError(t, err, "broken")

		r.broken.Clear()
		g.Relist(tCtx)
		require.Len(t, getEventsFromChannel(g.eventChannel), 4)
		require.Equal(t, map[types.UID]int{"pod-0": 1, "pod-1": 2, "pod-2": 1, "pod-3": 1, "pod-4": 2}, r.read)

		// A pod that did not change is read again when that is asked for.
		g.RequestReinspect("pod-0")
		g.RequestReinspect("no-such-pod")
		g.Relist(tCtx)
		require.Equal(t, []*PodLifecycleEvent{{ID: "pod-0", Type: PodSync}}, getEventsFromChannel(g.eventChannel))
		require.Equal(t, 3, r.read["pod-0"]+r.read["pod-2"])
	})
}

// What is to be found by an inspection that is asked for may have happened after the
// read of a relist that goes on.
func TestRelistReinspectsAfterRead(t *testing.T) {
	for _, before := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			tCtx := ktesting.Init(t)
			g, r, cache := relistedPLEG(0)
			for i := range 5 {
				r.listed = append(r.listed, podOf(i, kubecontainer.ContainerStateRunning))
			}
			if before {
				// They are read because of that alone.
				g.Relist(tCtx)
				for i := range 5 {
					g.RequestReinspect(types.UID(fmt.Sprint("pod-", i)))
				}
			}
			getEventsFromChannel(g.eventChannel)
			clear(r.read)
			r.slow = "pod-1"
			go g.Relist(tCtx)
			synctest.Wait()
			// The slow one is waited for, so that it is asked for while it is read.
			reconciled := sets.New(r.slow)
			for _, e := range getEventsFromChannel(g.eventChannel) {
				reconciled.Insert(e.ID)
			}
			for _, p := range r.listed {
				g.RequestReinspect(p.ID)
			}
			time.Sleep(time.Second)
			synctest.Wait()
			for _, p := range r.listed {
				require.Equal(t, reconciled.Has(p.ID), r.read[p.ID] == 1, p.ID)
				_, err := cache.Get(p.ID)
				require.NoError(t, err)
			}
			g.Relist(tCtx)
			for _, p := range r.listed {
				require.Equal(t, 2, r.read[p.ID], p.ID)
			}
		})
	}
}

// A container that is listed twice does not stand for one that is gone.
func TestRelistOfContainersListedTwice(t *testing.T) {
	tCtx := ktesting.Init(t)
	g, r, _ := relistedPLEG(0)
	pod := podOf(0, kubecontainer.ContainerStateRunning, kubecontainer.ContainerStateRunning)
	r.listed = []*kubecontainer.Pod{pod}
	g.Relist(tCtx)
	require.Len(t, getEventsFromChannel(g.eventChannel), 3)
	gone := pod.Containers[1]
	pod.Containers[1] = pod.Containers[0]
	g.Relist(tCtx)
	require.Equal(t, []*PodLifecycleEvent{{ID: "pod-0", Type: ContainerDied, Data: gone.ID.ID}, {ID: "pod-0", Type: ContainerRemoved, Data: gone.ID.ID}},
		getEventsFromChannel(g.eventChannel))
}

// What relists find is what reconciling each record in turn finds.
func TestRelistFindsWhatEachRecordHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tCtx := ktesting.Init(t)
		random := rand.New(rand.NewPCG(1, 2))
		g, r, cache := relistedPLEG(time.Millisecond)
		inTurn, _, inTurnCache := relistedPLEG(0)
		inTurn.runtime = r
		states := []kubecontainer.State{kubecontainer.ContainerStateCreated, kubecontainer.ContainerStateRunning,
			kubecontainer.ContainerStateExited, kubecontainer.ContainerStateUnknown}
		for range 300 {
			r.listed = nil
			r.broken.Clear()
			for i := range 12 {
				if random.IntN(8) == 0 {
					continue
				}
				pod := podOf(i)
				for n := range random.IntN(4) {
					pod.Containers = append(pod.Containers, podOf(i, states[:n+1]...).Containers[n])
					pod.Containers[n].State = states[random.IntN(len(states))]
				}
				pod.Sandboxes[0].State = states[1+random.IntN(2)]
				r.listed = append(r.listed, pod)
				if random.IntN(10) == 0 {
					r.broken.Insert(pod.ID)
				}
			}
			g.Relist(tCtx)
			pods, err := r.GetPods(tCtx, true)
			require.NoError(t, err)
			inTurn.podRecords.setCurrent(pods)
			for uid := range inTurn.podRecords {
				inTurn.reconcilePodRecord(tCtx, uid)
			}
			verifyEvents(t, withData(getEventsFromChannel(inTurn.eventChannel)), withData(getEventsFromChannel(g.eventChannel)))
			for i := range 12 {
				uid := types.UID(fmt.Sprint("pod-", i))
				want, wantErr := inTurnCache.Get(uid)
				got, err := cache.Get(uid)
				require.Equal(t, wantErr, err)
				require.Equal(t, want, got)
			}
		}
	})
}

// withData has verifyEvents sort events that have no data.
func withData(events []*PodLifecycleEvent) []*PodLifecycleEvent {
	for _, e := range events {
		if e.Data == nil {
			e.Data = ""
		}
		e.Data = fmt.Sprint(e.Type, " ", e.Data)
	}
	return events
}

func sum(numbers func(func(int) bool)) (total int) {
	for n := range numbers {
		total += n
	}
	return total
}
