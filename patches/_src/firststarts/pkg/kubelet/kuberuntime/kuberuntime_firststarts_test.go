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
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"k8s.io/kubernetes/pkg/apis/scheduling"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/backoff"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/restart"
)

func TestStartTurns(t *testing.T) {
	const cpus = 4
	var turns startTurns
	came := func(turn chan struct{}) bool {
		select {
		case <-turn:
			return true
		default:
			return false
		}
	}
	for range 4 * cpus {
		require.Nil(t, turns.begin(true, cpus))
	}
	first, second := turns.begin(true, cpus), turns.begin(true, cpus)
	require.Nil(t, turns.begin(false, cpus), "a first start does not wait")
	for range 4*cpus - 2 {
		turns.end(true, cpus)
		require.False(t, came(first), "fewer during a first start")
	}
	turns.end(true, cpus)
	require.True(t, came(first), "the one that came first")
	require.False(t, came(second))
	third := turns.begin(true, cpus)
	require.Equal(t, 2, turns.restarts)
	turns.leave(second)
	require.Equal(t, 3, turns.restarts, "it is made without a turn")
	turns.leave(first)
	require.Equal(t, 3, turns.restarts, "it had its turn")
	turns.end(false, cpus)
	require.True(t, came(third), "no first start any more")
	require.False(t, came(second))
	require.Equal(t, 4, turns.restarts)

	var one startTurns
	require.Nil(t, one.begin(false, 1))
	require.Nil(t, one.begin(true, 1), "one at least")
	require.NotNil(t, one.begin(true, 1))
}

// crashingManager is a runtime manager that has counted two restarts of the container crashing, and
// one of the container restarted.
func crashingManager(pod *v1.Pod) *kubeGenericRuntimeManager {
	now := time.Now()
	b := backoff.NewFakeBackOff(time.Second, time.Minute, testingclock.NewFakeClock(now))
	for _, name := range []string{"restarted", "crashing", "crashing"} {
		b.Next(restart.Key(pod, &v1.Container{Name: name}), now)
	}
	return &kubeGenericRuntimeManager{containerBackOff: containerBackOff{b}, podStateProvider: newFakePodStateProvider()}
}

func (t *startTurns) counted() [2]int {
	t.lock.Lock()
	defer t.lock.Unlock()
	return [2]int{t.firsts, t.restarts}
}

// A start is counted once, and ends once.
func TestTakeTurn(t *testing.T) {
	pod, critical := &v1.Pod{}, &v1.Pod{Spec: v1.PodSpec{Priority: ptr.To(scheduling.SystemCriticalPriority)}}
	m := crashingManager(pod)
	ran := &kubecontainer.PodStatus{ContainerStatuses: []*kubecontainer.Status{{Name: "restarted"}, {Name: "crashing"}}}
	restarting := &kubecontainer.PodStatus{ContainerStatuses: ran.ContainerStatuses, Restart: &kubecontainer.PodRestart{LastCounts: map[string]int{}}}
	takeTurn := func(pod *v1.Pod, status *kubecontainer.PodStatus, name string) func() {
		end, err := m.takeTurn(pod, status, &v1.Container{Name: name})
		require.NoError(t, err)
		return end
	}
	takes := map[string]struct {
		take func() func()
		want [2]int
	}{
		"new":                {func() func() { return takeTurn(pod, ran, "new") }, [2]int{1, 0}},
		"sandbox":            {func() func() { return m.takeFirstTurn(pod, 0) }, [2]int{1, 0}},
		"sandbox again":      {func() func() { return m.takeFirstTurn(pod, 1) }, [2]int{}},
		"restarted once":     {func() func() { return takeTurn(pod, ran, "restarted") }, [2]int{}},
		"crashing":           {func() func() { return takeTurn(pod, ran, "crashing") }, [2]int{0, 1}},
		"critical":           {func() func() { return takeTurn(critical, ran, "crashing") }, [2]int{}},
		"in a pod's restart": {func() func() { return takeTurn(pod, restarting, "crashing") }, [2]int{}},
	}
	for _, gate := range []bool{false, true} {
		featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.KubeletFirstStartsFirst, gate)
		for name, tc := range takes {
			want := tc.want
			if !gate {
				want = [2]int{}
			}
			end := tc.take()
			require.Equal(t, want, m.counted(), name)
			end()
			end()
			require.Eventually(t, func() bool { return m.counted() == [2]int{} }, 10*time.Second, time.Millisecond, name)
		}
	}
}

// The start of a sandbox counts until the first container of its pod starts.
func TestTakeFirstTurn(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.KubeletFirstStartsFirst, true)
	pod, other := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "pod"}}, &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "other"}}
	m := crashingManager(pod)
	ended := 0
	m.sandboxes.Store(pod.UID, func() { ended++ })
	for i, pod := range []*v1.Pod{other, pod, pod} {
		_, err := m.takeTurn(pod, &kubecontainer.PodStatus{}, &v1.Container{Name: "first"})
		require.NoError(t, err)
		require.Equal(t, min(i, 1), ended)
	}
	require.Equal(t, [2]int{3, 0}, m.counted(), "the containers count")

	m.takeFirstTurn(other, 0)()
	_, ok := m.sandboxes.Load(other.UID)
	require.True(t, ok)
	require.Eventually(t, func() bool {
		_, ok := m.sandboxes.Load(other.UID)
		return !ok
	}, 10*time.Second, time.Millisecond, "a container that never starts")
}

// A restart that waits is made at its turn.
func TestTakeWaits(t *testing.T) {
	turns := startTurns{restarts: 4 * runtime.NumCPU()}
	made := make(chan func())
	go func() { made <- turns.take(true, func() bool { return false }) }()
	require.Eventually(t, func() bool {
		turns.lock.Lock()
		defer turns.lock.Unlock()
		return len(turns.waiting) == 1
	}, 5*time.Second, time.Millisecond)
	turns.end(true, runtime.NumCPU())
	select {
	case end := <-made:
		require.Equal(t, [2]int{0, 4 * runtime.NumCPU()}, turns.counted())
		end()
		require.Equal(t, [2]int{0, 4*runtime.NumCPU() - 1}, turns.counted())
	case <-time.After(longestTurn / 2):
		t.Error("no turn")
	}
}

// A container whose pod must be terminated does not wait, is not started and does not count.
func TestTakeTurnOfTerminatedPod(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.KubeletFirstStartsFirst, true)
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "pod"}}
	m := crashingManager(pod)
	m.restarts = 1 << 20
	m.podStateProvider.(*fakePodStateProvider).removed[pod.UID] = struct{}{}
	ran := &kubecontainer.PodStatus{ContainerStatuses: []*kubecontainer.Status{{Name: "crashing"}}}
	for _, name := range []string{"crashing", "new"} {
		_, err := m.takeTurn(pod, ran, &v1.Container{Name: name})
		require.ErrorIs(t, err, errPodTerminating)
		require.Equal(t, [2]int{0, 1 << 20}, m.counted())
		require.Empty(t, m.waiting)
	}
}
