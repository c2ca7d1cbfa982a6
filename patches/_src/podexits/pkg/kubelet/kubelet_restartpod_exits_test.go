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
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"k8s.io/kubernetes/pkg/kubelet/restartpod"
)

func newPodExitsForTest(ctx context.Context, relist func(types.UID), relistAll func()) *podExits {
	e := &podExits{ctx: ctx, clock: clock.RealClock{}, pods: newPodRestarts(clock.RealClock{}, nil, time.Second, time.Minute), relist: relist, relistAll: relistAll}
	e.start()
	return e
}

func TestPodExits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lock sync.Mutex
		var relisted []types.UID
		seen := func() []types.UID {
			synctest.Wait()
			lock.Lock()
			defer lock.Unlock()
			defer func() { relisted = nil }()
			return relisted
		}
		e := newPodExitsForTest(t.Context(), func(uid types.UID) {
			lock.Lock()
			defer lock.Unlock()
			relisted = append(relisted, uid)
		}, func() {
			lock.Lock()
			defer lock.Unlock()
			relisted = append(relisted, "all")
		})
		e.pods.set("a", &podRestart{})
		e.pods.set("b", &podRestart{})
		require.False(t, e.relistPod("other"), "it is not restarted in place")
		require.False(t, e.relistPod(""))
		require.Empty(t, seen())

		require.True(t, e.relistPod("a"))
		require.Equal(t, []types.UID{"a"}, seen(), "at once")

		for range 10 {
			require.True(t, e.relistPod("a"))
			require.True(t, e.relistPod("b"))
		}
		require.Empty(t, seen())
		time.Sleep(podExitPause)
		require.ElementsMatch(t, []types.UID{"a", "b"}, seen(), "exits in the pause are found together")
		time.Sleep(time.Second)
		require.Empty(t, seen())

		e.pods.get("a").stopping.Store(true)
		require.True(t, e.relistPod("a"))
		require.Empty(t, seen(), "the sync that stops containers sees their ends itself")
		e.pods.get("a").stopping.Store(false)

		// Many pods whose containers exit in the pause are relisted together.
		require.True(t, e.relistPod("a"))
		require.Equal(t, []types.UID{"a"}, seen())
		for n := range mostPodRelists + 1 {
			uid := types.UID(fmt.Sprint("many-", n))
			e.pods.set(uid, &podRestart{})
			e.relistPod(uid)
		}
		time.Sleep(podExitPause)
		require.Equal(t, []types.UID{"all"}, seen())

		// Many exits cause a few relists, the last one after the last exit.
		for range 99 {
			e.relistPod("a")
			time.Sleep(time.Millisecond)
		}
		require.LessOrEqual(t, len(seen()), 6)
		e.relistPod("a")
		time.Sleep(podExitPause)
		require.Equal(t, []types.UID{"a"}, seen())
	})
}

// The exits of a pod that may be restarted in place reach podExits.
func TestPodExitsHearOfExits(t *testing.T) {
	r, exits, relists := relistsTest(t)
	require.True(t, r.kubelet.exits.relistPod(r.pod.UID))
	require.Equal(t, r.pod.UID, <-relists)
	require.False(t, r.kubelet.exits.relistPod("other"))
	require.Same(t, exits.pods, r.kubelet.podRestarts)
}

func TestPodExitsStartOnce(t *testing.T) {
	testStartsOnce(t, func(ctx context.Context, e *exitsTest, relists plegForTest, pod types.UID) func() {
		exits := newPodExitsForTest(ctx, relists.relistPod, e.noteExit)
		exits.pods.set(pod, &podRestart{})
		e.relistPod = exits.relistPod
		relists.start(ctx)
		return func() { relists.relistPod(pod) }
	})
}

// relistsTest returns the test of a pod that runs, with the watch of its exits and the
// requests for relists.
func relistsTest(t *testing.T) (*restartTest, *podExits, <-chan types.UID) {
	r := newRestartTest(t, restartablePod(v1.ContainerRestartRuleActionRestartPod), nil)
	relists := make(chan types.UID)
	r.kubelet.pleg = relister{r.kubelet.pleg, relists}
	r.run()
	exits := r.kubelet.newPodExits(t.Context())
	r.kubelet.podRestarts.exits = exits
	return r, exits, relists
}

// A pod in Startup is relisted once, and late, if the runtime reports exits.
func TestOneRelistInStartupWithEvents(t *testing.T) {
	r, exits, relists := relistsTest(t)
	r.exit("x", 88)
	require.NoError(t, r.sync())
	require.Equal(t, restartpod.PhaseStartup, r.kubelet.podRestarts.get(r.pod.UID).plan.Phase)
	r.kubelet.exits.live.Store(true)
	exits.synced(r.pod.UID)
	require.Eventually(t, r.fake.fakeClock.HasWaiters, time.Minute, time.Millisecond)
	r.fake.fakeClock.Step(400 * time.Millisecond)
	require.Equal(t, r.pod.UID, <-relists)
	require.Eventually(t, exits.idle, time.Minute, time.Millisecond)
	require.False(t, r.fake.fakeClock.HasWaiters())
}

// idle reports whether synced relists no pod.
func (e *podExits) idle() bool {
	e.lock.Lock()
	defer e.lock.Unlock()
	return len(e.relists) == 0
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
	require.Eventually(t, exits.idle, time.Minute, time.Millisecond)
	require.False(t, r.fake.fakeClock.HasWaiters())
}
