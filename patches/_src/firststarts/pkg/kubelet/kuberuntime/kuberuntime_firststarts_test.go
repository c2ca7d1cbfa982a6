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
	for range 2 * cpus {
		require.Nil(t, turns.begin(true, cpus))
	}
	first, second := turns.begin(true, cpus), turns.begin(true, cpus)
	require.Nil(t, turns.begin(false, cpus), "a first start does not wait")
	for range 2*cpus - 2 {
		turns.end(true, cpus)
		require.False(t, came(first), "fewer during another start")
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
	require.True(t, came(third), "no other start any more")
	require.False(t, came(second))
	require.Equal(t, 4, turns.restarts)

	var one startTurns
	require.Nil(t, one.begin(false, 1))
	require.Nil(t, one.begin(true, 1), "one at least")
	require.NotNil(t, one.begin(true, 1))
}

// crashingManager is a runtime manager whose back-off has made a start of "crashing" wait, and has
// allowed one restart of "restarted".
func crashingManager(pod *v1.Pod) *kubeGenericRuntimeManager {
	now := time.Now()
	b := backoff.NewFakeBackOff(time.Second, time.Minute, testingclock.NewFakeClock(now))
	b.Next(restart.Key(pod, &v1.Container{Name: "restarted"}), now)
	b.Next(restart.Key(pod, &v1.Container{Name: "crashing"}), now)
	b.Next(restart.Key(pod, &v1.Container{Name: "crashing"}), now)
	return &kubeGenericRuntimeManager{containerBackOff: containerBackOff{b}, podStateProvider: newFakePodStateProvider()}
}

func (t *startTurns) counted() [2]int {
	t.lock.Lock()
	defer t.lock.Unlock()
	return [2]int{t.others, t.restarts}
}

// A start is counted once, and ends once.
func TestTakeTurn(t *testing.T) {
	pod, critical := &v1.Pod{}, &v1.Pod{Spec: v1.PodSpec{Priority: ptr.To(scheduling.SystemCriticalPriority)}}
	m := crashingManager(pod)
	var status kubecontainer.PodStatus
	takeTurn := func(pod *v1.Pod, status *kubecontainer.PodStatus, name string) func() {
		end, err := m.takeTurn(pod, status, &v1.Container{Name: name})
		require.NoError(t, err)
		return end
	}
	takes := map[string]struct {
		take func() func()
		want [2]int
	}{
		"new":                       {func() func() { return takeTurn(pod, &status, "new") }, [2]int{1, 0}},
		"sandbox":                   {func() func() { return m.takeFirstTurn(0) }, [2]int{1, 0}},
		"sandbox again":             {func() func() { return m.takeFirstTurn(1) }, [2]int{}},
		"restarted without a delay": {func() func() { return takeTurn(pod, &status, "restarted") }, [2]int{1, 0}},
		"crashing":                  {func() func() { return takeTurn(pod, &status, "crashing") }, [2]int{0, 1}},
		"critical":                  {func() func() { return takeTurn(critical, &status, "crashing") }, [2]int{1, 0}},
		"in a pod's restart": {func() func() {
			return takeTurn(pod, &kubecontainer.PodStatus{Restart: &kubecontainer.PodRestart{LastCounts: map[string]int{}}}, "crashing")
		}, [2]int{1, 0}},
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

// A restart whose pod must be terminated is not made, also if its turn comes at the same time, and
// is not counted.
func TestTakeTurnOfTerminatedPod(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.KubeletFirstStartsFirst, true)
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "pod"}}
	m := crashingManager(pod)
	m.restarts = 1 << 20
	m.podStateProvider.(*fakePodStateProvider).removed[pod.UID] = struct{}{}
	_, err := m.takeTurn(pod, &kubecontainer.PodStatus{}, &v1.Container{Name: "crashing"})
	require.ErrorIs(t, err, kubecontainer.ErrCrashLoopBackOff)
	require.Equal(t, [2]int{0, 1 << 20}, m.counted())
	require.Empty(t, m.waiting)

	turn := make(chan struct{})
	asked := 0
	require.False(t, wait(turn, func() bool {
		if asked++; asked == 1 {
			close(turn)
		}
		return asked > 1
	}))
}

// The container that follows a sandbox finds the start of its pod still counted.
func TestSandboxCountsOn(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.KubeletFirstStartsFirst, true)
	var m kubeGenericRuntimeManager
	m.takeFirstTurn(0)()
	require.Equal(t, [2]int{1, 0}, m.counted())
}
