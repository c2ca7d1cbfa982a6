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
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
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
	"k8s.io/kubernetes/pkg/kubelet/restartpod"
)

const exitEvent = runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT

// exitsTest is an exitWatch with a runtime whose event streams the test fills. It
// needs a synctest bubble and uses its clock.
type exitsTest struct {
	*podRestarts
	watch   *exitWatch
	streams chan chan<- *runtimeapi.ContainerEventResponse
	open    atomic.Int32

	// recorded guards the fields below. Timers of the bubble order nothing for the race
	// detector.
	recorded sync.Mutex
	relisted []types.UID
	opened   []time.Time
}

func newExitsTest(ctx context.Context) *exitsTest {
	e := &exitsTest{streams: make(chan chan<- *runtimeapi.ContainerEventResponse, 1)}
	e.podRestarts = newPodRestarts(clock.RealClock{}, nil, time.Second, time.Minute)
	e.watch = &exitWatch{
		ctx:   ctx,
		clock: clock.RealClock{},
		pods:  e.podRestarts,
		stream: func(ctx context.Context, events chan *runtimeapi.ContainerEventResponse) error {
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
		},
		relist: func(uid types.UID) {
			e.recorded.Lock()
			defer e.recorded.Unlock()
			e.relisted = append(e.relisted, uid)
		},
	}
	e.exits = e.watch
	return e
}

// seen returns the relists since its last call, after all goroutines have blocked.
func (e *exitsTest) seen() []types.UID {
	synctest.Wait()
	e.recorded.Lock()
	defer e.recorded.Unlock()
	defer func() { e.relisted = nil }()
	return e.relisted
}

func event(t runtimeapi.ContainerEventType, uid types.UID) *runtimeapi.ContainerEventResponse {
	return &runtimeapi.ContainerEventResponse{ContainerEventType: t, PodSandboxStatus: &runtimeapi.PodSandboxStatus{
		Metadata: &runtimeapi.PodSandboxMetadata{Uid: string(uid)},
	}}
}

func TestExitWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newExitsTest(t.Context())
		synctest.Wait()
		require.Zero(t, e.open.Load(), "no pod needs it")
		require.False(t, e.watch.live.Load())

		e.set("a", &podRestart{})
		e.set("b", &podRestart{})
		stream := <-e.streams
		require.EqualValues(t, 1, e.open.Load())
		require.False(t, e.watch.live.Load(), "the runtime may have no events")
		stream <- event(runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT, "a")
		stream <- event(runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT, "a")
		stream <- event(exitEvent, "other")
		stream <- &runtimeapi.ContainerEventResponse{ContainerEventType: exitEvent}
		require.Empty(t, e.seen())
		require.True(t, e.watch.live.Load())

		// At once.
		stream <- event(exitEvent, "a")
		require.Equal(t, []types.UID{"a"}, e.seen())

		// Exits soon after that are found together.
		for range 10 {
			stream <- event(exitEvent, "a")
			stream <- event(exitEvent, "b")
		}
		require.Empty(t, e.seen())
		time.Sleep(relistPause)
		require.ElementsMatch(t, []types.UID{"a", "b"}, e.seen())
		time.Sleep(time.Second)
		require.Empty(t, e.seen())

		// The sync that stops containers sees their ends itself.
		e.get("a").stopping.Store(true)
		stream <- event(exitEvent, "a")
		require.Empty(t, e.seen())
		e.get("a").stopping.Store(false)

		// Many exits cause a few relists, the last one after the last event.
		for range 99 {
			stream <- event(exitEvent, "a")
			time.Sleep(time.Millisecond)
		}
		require.LessOrEqual(t, len(e.seen()), 6)
		stream <- event(exitEvent, "a")
		time.Sleep(relistPause)
		require.Equal(t, []types.UID{"a"}, e.seen())

		// Without pods it ends with the next event. It starts again with the next
		// pod.
		e.gc(func(types.UID) bool { return false })
		stream <- event(exitEvent, "a")
		require.Empty(t, e.seen())
		require.Zero(t, e.open.Load())
		require.False(t, e.watch.live.Load())
		e.set("c", &podRestart{})
		stream = <-e.streams
		stream <- event(exitEvent, "c")
		require.Equal(t, []types.UID{"c"}, e.seen())
	})
}

// A runtime without events, or one that is gone, is asked less and less often.
func TestExitWatchReconnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newExitsTest(t.Context())
		e.set("a", &podRestart{})
		begin := time.Now()
		for time.Since(begin) < time.Hour {
			close(<-e.streams)
			synctest.Wait()
			require.Zero(t, e.open.Load())
			require.False(t, e.watch.live.Load())
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

		// After a long connection the first retry comes soon.
		stream := <-e.streams
		stream <- event(exitEvent, "a")
		time.Sleep(time.Hour)
		require.True(t, e.watch.live.Load())
		require.Equal(t, []types.UID{"a"}, e.seen())
		close(stream)
		synctest.Wait()
		require.False(t, e.watch.live.Load())
		time.Sleep(1100 * time.Millisecond)
		stream = <-e.streams
		stream <- event(exitEvent, "a")
		require.Equal(t, []types.UID{"a"}, e.seen())
	})
}

// The bubble fails if a goroutine does not end.
func TestExitWatchEndsWithTheKubelet(t *testing.T) {
	for _, reconnecting := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			e := newExitsTest(ctx)
			e.set("a", &podRestart{})
			stream := <-e.streams
			stream <- event(exitEvent, "a")
			if reconnecting {
				close(stream)
			}
			synctest.Wait()
			cancel()
			synctest.Wait()
			require.Zero(t, e.open.Load())
			require.False(t, e.watch.live.Load())
		})
	}
}

// eventless is a runtime that counts the requests for its events.
type eventless struct {
	internalapi.RuntimeService
	asked chan struct{}
}

func (e eventless) GetContainerEvents(ctx context.Context, _ chan *runtimeapi.ContainerEventResponse, _ func(runtimeapi.RuntimeService_GetContainerEventsClient)) error {
	klog.FromContext(ctx).Error(nil, "would be logged with each attempt")
	e.asked <- struct{}{}
	<-ctx.Done()
	return ctx.Err()
}

// The runtime is asked for events only for a pod that may be restarted, and not
// with EventedPLEG.
func TestExitWatchAndGates(t *testing.T) {
	const restartPod, restartAll = v1.ContainerRestartRuleActionRestartPod, v1.ContainerRestartRuleActionRestartAllContainers
	for _, tc := range []struct {
		name   string
		action v1.ContainerRestartRuleAction
		gates  map[featuregate.Feature]bool
		want   bool
	}{
		{"RestartPod", restartPod, nil, true},
		{"RestartPod, off", restartPod, map[featuregate.Feature]bool{features.RestartPodOnContainerExits: false}, false},
		{"RestartPod, evented PLEG", restartPod, map[featuregate.Feature]bool{features.EventedPLEG: true}, false},
		{"RestartAllContainers", restartAll, nil, true},
		{"RestartAllContainers, upstream's", restartAll, map[featuregate.Feature]bool{features.KubeletRestartAllContainersBackOff: false}, false},
		{"restarts of containers alone", v1.ContainerRestartRuleActionRestart, nil, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.action == restartAll {
				needsRestartAllContainers(t)
			}
			for name, value := range tc.gates {
				featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, name, value)
			}
			r := newRestartTest(t, restartablePod(tc.action), tc.gates)
			runtime := eventless{asked: make(chan struct{})}
			r.kubelet.runtimeService = runtime
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			r.kubelet.podRestarts = newPodRestarts(r.fake.fakeClock, r, 10*time.Second, 300*time.Second)
			exits := r.kubelet.newExitWatch(ctx)
			r.kubelet.podRestarts.exits = exits
			r.run()
			require.Equal(t, tc.want, exits.running)
			if tc.want {
				<-runtime.asked
			}
		})
	}
}

// relistsTest returns the test of a pod that runs, with the watch of its exits and the
// requests for relists.
func relistsTest(t *testing.T) (*restartTest, *exitWatch, <-chan types.UID) {
	r := newRestartTest(t, restartablePod(v1.ContainerRestartRuleActionRestartPod), nil)
	relists := make(chan types.UID)
	r.kubelet.pleg = relister{r.kubelet.pleg, relists}
	r.run()
	exits := r.kubelet.newExitWatch(t.Context())
	r.kubelet.podRestarts.exits = exits
	return r, exits, relists
}

// A pod in Startup is not relisted repeatedly if the runtime reports exits.
func TestNoRelistInStartupWithEvents(t *testing.T) {
	r, exits, _ := relistsTest(t)
	r.exit("x", 88)
	require.NoError(t, r.sync())
	require.Equal(t, restartpod.PhaseStartup, r.kubelet.podRestarts.get(r.pod.UID).plan.Phase)
	exits.live.Store(true)
	exits.synced(r.pod.UID)
	_, relisting := exits.relists.Load(r.pod.UID)
	require.False(t, relisting)
}

// The relists in Startup come from one goroutine per pod and use the kubelet's
// clock.
func TestRelistInStartup(t *testing.T) {
	r, exits, relists := relistsTest(t)
	exits.synced(r.pod.UID)
	require.False(t, r.fake.fakeClock.HasWaiters(), "there is no restart")
	r.exit("x", 88)
	require.NoError(t, r.sync())
	require.Equal(t, restartpod.PhaseStartup, r.kubelet.podRestarts.get(r.pod.UID).plan.Phase)
	exits.synced(r.pod.UID)
	require.Eventually(t, r.fake.fakeClock.HasWaiters, time.Minute, time.Millisecond)
	// Each further request begins the delays again, after the one that is running.
	for range 2 {
		exits.synced(r.pod.UID)
	}
	for n, after := range []time.Duration{50, 50, 100, 200, 400} {
		require.Eventually(t, r.fake.fakeClock.HasWaiters, time.Minute, time.Millisecond)
		r.fake.fakeClock.Step(after * time.Millisecond)
		require.Equal(t, r.pod.UID, <-relists, n)
	}
	require.Eventually(t, func() bool { _, relisting := exits.relists.Load(r.pod.UID); return !relisting }, time.Minute, time.Millisecond)
	require.False(t, r.fake.fakeClock.HasWaiters())
}

// With the real PLEG and worker, hints come at any time or get lost. No container
// is started based on a status from before its last start, and every container is
// started again.
func TestExitWatchStartsOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		// lost is the percentage of events that are lost.
		lost int
		// mean and worst limit how long a container waits for its next start.
		mean, worst time.Duration
	}{
		"all events":  {0, 100 * time.Millisecond, 500 * time.Millisecond},
		"some events": {50, time.Second, 1200 * time.Millisecond},
		"no events":   {100, time.Second, 1200 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), klog.New(nil)))
				const uid = types.UID("pod")
				r := &exitsRuntime{FakeRuntime: &containertest.FakeRuntime{}, t: t, uid: uid, random: rand.New(rand.NewSource(1))}
				cache := kubecontainer.NewCache()
				events := make(chan *pleg.PodLifecycleEvent, 1000)
				relists := newPLEGForTest(r, events, cache)
				e := newExitsTest(ctx)
				e.watch.relist = relists.relist
				e.set(uid, &podRestart{})
				stream := <-e.streams
				r.ended = func() {
					r.doze(50 * time.Millisecond)
					if int(r.chance(100)) >= tc.lost && ctx.Err() == nil {
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
				}, func() { relists.relist(uid) })
				relists.start(ctx)
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

				cancel()
				synctest.Wait()
				p.podLock.Lock()
				close(p.podUpdates[uid])
				delete(p.podUpdates, uid)
				p.podLock.Unlock()
				time.Sleep(2 * time.Second)
				relists.PodLifecycleEventGenerator.(*pleg.GenericPLEG).Stop()
				time.Sleep(2 * time.Second)
				synctest.Wait()

				total, worst := time.Duration(0), time.Duration(0)
				for _, d := range r.late {
					total, worst = total+d, max(worst, d)
				}
				mean := total / time.Duration(len(r.late))
				t.Logf("%d syncs, %d starts, again after %v on average, %v at most", syncs, r.starts, mean, worst)
				assert.Greater(t, r.starts, 300)
				assert.LessOrEqual(t, mean, tc.mean)
				assert.LessOrEqual(t, worst, tc.worst)
			})
		})
	}
}
