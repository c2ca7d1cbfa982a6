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

package kubelet

import (
	"context"
	"errors"
	"math/rand"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"k8s.io/kubernetes/pkg/features"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	containertest "k8s.io/kubernetes/pkg/kubelet/container/testing"
	"k8s.io/kubernetes/pkg/kubelet/pleg"
)

const exitEvent = runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT

// exitsTest is an exitWatch with a runtime whose event streams the test fills. It
// needs a synctest bubble and uses its clock.
type exitsTest struct {
	exitWatch
	streams chan chan<- *runtimeapi.ContainerEventResponse
	open    atomic.Int32
	// takes is how long a relist takes.
	takes time.Duration
	// waits is true while a pod worker waits for a newer status.
	waits atomic.Bool

	// recorded guards the fields below. Timers of the bubble order nothing for the race
	// detector.
	recorded sync.Mutex
	relists  int
	opened   []time.Time
}

func newExitsTest() *exitsTest {
	e := &exitsTest{streams: make(chan chan<- *runtimeapi.ContainerEventResponse, 1)}
	e.stream = func(ctx context.Context, events chan *runtimeapi.ContainerEventResponse) error {
		e.recorded.Lock()
		e.opened = append(e.opened, time.Now())
		e.recorded.Unlock()
		e.open.Add(1)
		defer e.open.Add(-1)
		stream := make(chan *runtimeapi.ContainerEventResponse)
		e.streams <- stream
		for {
			select {
			case event, ok := <-stream:
				if !ok {
					return errors.New("broken")
				}
				events <- event // like the real runtime, it ignores the context in the meantime
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	e.relist = func(context.Context) {
		e.recorded.Lock()
		e.relists++
		e.recorded.Unlock()
		time.Sleep(e.takes)
	}
	e.awaited = e.waits.Load
	return e
}

// seen returns the number of relists since its last call, after all goroutines have
// blocked.
func (e *exitsTest) seen() int {
	synctest.Wait()
	e.recorded.Lock()
	defer e.recorded.Unlock()
	defer func() { e.relists = 0 }()
	return e.relists
}

func event(t runtimeapi.ContainerEventType, uid types.UID) *runtimeapi.ContainerEventResponse {
	return &runtimeapi.ContainerEventResponse{ContainerEventType: t, PodSandboxStatus: &runtimeapi.PodSandboxStatus{
		Metadata: &runtimeapi.PodSandboxMetadata{Uid: string(uid)},
	}}
}

func TestExitWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newExitsTest()
		e.start(t.Context(), clock.RealClock{})
		stream := <-e.streams
		require.False(t, e.live.Load(), "the runtime may have no events")
		stream <- event(runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT, "a")
		stream <- event(runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT, "a")
		stream <- event(runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT, "a")
		require.Zero(t, e.seen(), "nothing exited")
		require.True(t, e.live.Load())

		stream <- event(exitEvent, "a")
		require.Equal(t, 1, e.seen(), "at once")
		time.Sleep(2 * exitRelistPause)
		require.Zero(t, e.seen(), "nobody waits")
		e.waits.Store(true) // the end of the sync in which the container exited
		time.Sleep(exitRelistPause)
		require.Equal(t, 1, e.seen())
		e.waits.Store(false)
		time.Sleep(exitRelistPause + exitLook/2)
		require.Zero(t, e.seen())
		stream <- event(exitEvent, "a")
		require.Equal(t, 1, e.seen(), "at once, between two looks")
		time.Sleep(exitRelistPause + exitFollowed + exitLook)
		e.waits.Store(true) // a sync that has nothing to do with the exit
		time.Sleep(time.Minute)
		require.Zero(t, e.seen())

		stream <- &runtimeapi.ContainerEventResponse{ContainerEventType: exitEvent}
		require.Equal(t, 1, e.seen(), "an exit without a pod")
		time.Sleep(time.Minute)
		require.InDelta(t, exitFollowed/(exitLook+exitRelistPause), e.seen(), 1)
		e.waits.Store(false)

		// Many exits are found together, the last one by a relist after it.
		for range 500 {
			stream <- event(exitEvent, "a")
			stream <- event(exitEvent, "b")
			time.Sleep(time.Millisecond)
		}
		require.InDelta(t, 500*time.Millisecond/exitRelistPause, e.seen(), 1)
		stream <- event(exitEvent, "a")
		time.Sleep(time.Minute)
		require.InDelta(t, 2, e.seen(), 1)

		// The events are read during a relist. The pause is as long as the relist.
		e.takes = 2 * time.Second
		e.waits.Store(true)
		for range 500 {
			stream <- event(exitEvent, "a")
		}
		for second, relists := range []int{1, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0} {
			require.Equal(t, relists, e.seen(), second)
			time.Sleep(time.Second)
		}
	})
}

func TestExitWatchLeavesOutPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newExitsTest()
		e.relistPod = func(uid types.UID) bool { return uid == "a" }
		e.start(t.Context(), clock.RealClock{})
		stream := <-e.streams
		stream <- event(exitEvent, "a")
		time.Sleep(time.Second)
		require.Zero(t, e.seen(), "it is relisted alone")
		stream <- event(exitEvent, "b")
		require.Equal(t, 1, e.seen())
	})
}

// A runtime without events, or one that is gone, is asked less and less often.
func TestExitWatchReconnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newExitsTest()
		e.start(t.Context(), clock.RealClock{})
		begin := time.Now()
		for time.Since(begin) < time.Hour {
			close(<-e.streams)
			synctest.Wait()
			require.Zero(t, e.open.Load())
			require.False(t, e.live.Load())
		}
		e.recorded.Lock()
		opened := slices.Clone(e.opened)
		e.recorded.Unlock()
		delay := time.Second
		for i := range len(opened) - 1 {
			require.InDelta(t, delay, opened[i+1].Sub(opened[i]), 0.11*float64(delay), i)
			delay = min(2*delay, 5*time.Minute)
		}
		require.Less(t, len(opened), 25)

		// After a stream with an event, the first retry comes soon, each time.
		stream := <-e.streams
		for range 9 {
			stream <- event(exitEvent, "a")
			time.Sleep(time.Minute)
			require.True(t, e.live.Load())
			require.Equal(t, 1, e.seen())
			close(stream)
			synctest.Wait()
			require.False(t, e.live.Load())
			time.Sleep(1100 * time.Millisecond)
			stream = <-e.streams
		}
	})
}

// The bubble fails if a goroutine does not end.
func TestExitWatchEndsWithTheKubelet(t *testing.T) {
	for _, reconnecting := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			e := newExitsTest()
			e.start(ctx, clock.RealClock{})
			stream := <-e.streams
			stream <- event(exitEvent, "a")
			if reconnecting {
				close(stream)
			}
			synctest.Wait()
			cancel()
			synctest.Wait()
			require.Zero(t, e.open.Load())
			require.False(t, e.live.Load())
		})
	}
}

// eventless is a runtime without events that counts the requests for them.
type eventless struct {
	internalapi.RuntimeService
	asked *atomic.Int32
}

func (e eventless) GetContainerEvents(ctx context.Context, _ chan *runtimeapi.ContainerEventResponse, _ func(runtimeapi.RuntimeService_GetContainerEventsClient)) error {
	klog.FromContext(ctx).Error(nil, "would be logged with each attempt")
	e.asked.Add(1)
	return errors.New("unimplemented")
}

func TestExitWatchAndGates(t *testing.T) {
	for name, tc := range map[string]struct {
		gates map[featuregate.Feature]bool
		want  int32
	}{
		"default":      {nil, 1},
		"off":          {map[featuregate.Feature]bool{features.KubeletRelistOnExit: false}, 0},
		"evented PLEG": {map[featuregate.Feature]bool{features.EventedPLEG: true}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			for name, value := range tc.gates {
				featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, name, value)
			}
			synctest.Test(t, func(t *testing.T) {
				runtime := eventless{asked: &atomic.Int32{}}
				cache := kubecontainer.NewCache()
				kl := &Kubelet{clock: clock.RealClock{}, runtimeService: runtime, podCache: cache}
				kl.startExitWatch(t.Context())
				synctest.Wait()
				require.Equal(t, tc.want, runtime.asked.Load())
				if tc.want == 0 {
					return
				}
				require.False(t, kl.exits.awaited())
				go func() { _, _ = cache.GetNewerThan("pod", time.Now()) }()
				synctest.Wait()
				require.True(t, kl.exits.awaited())
				cache.UpdateTime(time.Now().Add(time.Second))
			})
		})
	}
}

// testStartsOnce runs a pod of two containers that exit again and again, with the real
// PLEG and pod worker, while the runtime's events get lost, come late or come twice.
// No container may be started based on a status from before its last start, and every
// container must be started again. After a sync, synced is called.
func testStartsOnce(t *testing.T, connect func(ctx context.Context, e *exitsTest, relists plegForTest, pod types.UID) (synced func())) {
	for name, tc := range map[string]struct {
		// lost, late and twice are percentages of the events. With brief, there is one
		// container, and it exits before the sync that starts it ends.
		lost, late, twice int64
		brief             bool
		// mean and worst limit how long a container waits for its next start.
		mean, worst time.Duration
	}{
		"all events, brief":  {0, 0, 0, true, 300 * time.Millisecond, 500 * time.Millisecond},
		"all events":         {0, 0, 0, false, 150 * time.Millisecond, 500 * time.Millisecond},
		"all events twice":   {0, 0, 100, false, 150 * time.Millisecond, 500 * time.Millisecond},
		"late, out of order": {0, 50, 50, false, 500 * time.Millisecond, 1200 * time.Millisecond},
		"some events":        {50, 0, 0, false, time.Second, 1200 * time.Millisecond},
		"no events":          {100, 0, 0, false, time.Second, 1200 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), klog.New(nil)))
				const uid = types.UID("pod")
				r := &exitsRuntime{FakeRuntime: &containertest.FakeRuntime{}, t: t, uid: uid, random: rand.New(rand.NewSource(1)), names: []string{"a", "b"}, lives: 300 * time.Millisecond}
				if tc.brief {
					r.names, r.lives = r.names[:1], 5*time.Millisecond
				}
				cache := kubecontainer.NewCache()
				events := make(chan *pleg.PodLifecycleEvent, 1000)
				relists := newPLEGForTest(r, events, cache)
				e := newExitsTest()
				e.awaited = func() bool { return kubecontainer.IsAwaited(cache) }
				synced := connect(ctx, e, relists, uid)
				e.start(ctx, clock.RealClock{})
				stream := <-e.streams
				r.ended = func() {
					if !tc.brief {
						r.doze(50 * time.Millisecond)
					}
					if r.chance(100) < tc.lost {
						return
					}
					if r.chance(100) < tc.late {
						r.doze(3 * time.Second)
					}
					for n := int64(0); n < 1 || n < 2 && r.chance(100) < tc.twice; n++ {
						select {
						case stream <- event(exitEvent, uid):
						case <-ctx.Done():
						}
					}
				}
				p := podWorkersForTest(klog.New(nil))
				p.clock, p.podCache = clock.RealClock{}, cache
				syncs := 0
				p.podSyncer = syncerForTest(func(podStatus *kubecontainer.PodStatus) error {
					syncs++
					r.sync(podStatus)
					return nil
				}, synced)
				pod := newNamedPod(string(uid), "ns", "pod", false)
				update := func() { p.updatePodForTest(ctx, pod) }
				update()
				go func() {
					for {
						select {
						case <-events:
							update()
						case <-ctx.Done():
							return
						}
					}
				}()
				time.Sleep(5 * time.Minute)
				r.lock.Lock()
				late := slices.Clone(r.late)
				r.lock.Unlock()

				cancel()
				synctest.Wait()
				p.podLock.Lock()
				close(p.podUpdates[uid])
				delete(p.podUpdates, uid)
				p.podLock.Unlock()
				relists.Stop()
				for range 2 {
					// The worker waits for the next relist.
					time.Sleep(2 * time.Second)
					relists.relist(ctx)
				}
				time.Sleep(2 * time.Second)
				synctest.Wait()

				total, worst := time.Duration(0), time.Duration(0)
				for _, d := range late {
					total, worst = total+d, max(worst, d)
				}
				mean := total / time.Duration(len(late))
				t.Logf("%d syncs, %d starts, again after %v on average, %v at most", syncs, r.starts, mean, worst)
				assert.Greater(t, r.starts, 300)
				assert.LessOrEqual(t, mean, tc.mean)
				assert.LessOrEqual(t, worst, tc.worst)
			})
		})
	}
}

func TestExitWatchStartsOnce(t *testing.T) {
	testStartsOnce(t, func(ctx context.Context, e *exitsTest, relists plegForTest, _ types.UID) func() {
		// Stands in for the lock of the PLEG, on which a bubble cannot wait.
		lock := make(chan struct{}, 1)
		e.relist = func(ctx context.Context) {
			lock <- struct{}{}
			relists.relist(ctx)
			<-lock
		}
		go wait.UntilWithContext(ctx, e.relist, time.Second)
		return func() {}
	})
}
