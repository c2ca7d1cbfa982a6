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
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"

	"k8s.io/kubernetes/pkg/features"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
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
		require.Nil(t, turns.begin(false, cpus))
	}
	first, second := turns.begin(false, cpus), turns.begin(false, cpus)
	require.Nil(t, turns.begin(true, cpus), "a first start does not wait")
	for range 2*cpus - 2 {
		turns.end(false, cpus)
		require.False(t, came(first), "fewer while a first start runs")
	}
	turns.end(false, cpus)
	require.True(t, came(first), "the one that came first")
	require.False(t, came(second))
	third := turns.begin(false, cpus)
	require.Equal(t, 2, turns.restarts)
	turns.leave(second)
	require.Equal(t, 3, turns.restarts, "it goes on without a turn")
	turns.leave(first)
	require.Equal(t, 3, turns.restarts, "it had its turn")
	turns.end(true, cpus)
	require.True(t, came(third), "no first start any more")
	require.False(t, came(second))
	require.Equal(t, 4, turns.restarts)

	var one startTurns
	require.Nil(t, one.begin(true, 1))
	require.Nil(t, one.begin(false, 1), "one at least")
	require.NotNil(t, one.begin(false, 1))
}

// A start is counted once, and ends once.
func TestTakeTurn(t *testing.T) {
	podStatus := &kubecontainer.PodStatus{ContainerStatuses: []*kubecontainer.Status{{Name: "ran"}}}
	restarting := &kubecontainer.PodStatus{Restart: &kubecontainer.PodRestart{LastCounts: map[string]int{"old": 1}}}
	var m kubeGenericRuntimeManager
	takes := map[string]struct {
		take             func() func()
		firsts, restarts int
	}{
		"new":                {func() func() { return m.takeTurn(&v1.Pod{}, podStatus, &v1.Container{Name: "new"}) }, 1, 0},
		"sandbox":            {func() func() { return m.takeFirstTurn(0) }, 1, 0},
		"sandbox again":      {func() func() { return m.takeFirstTurn(1) }, 0, 0},
		"ran":                {func() func() { return m.takeTurn(&v1.Pod{}, podStatus, &v1.Container{Name: "ran"}) }, 0, 1},
		"in a pod's restart": {func() func() { return m.takeTurn(&v1.Pod{}, restarting, &v1.Container{Name: "old"}) }, 0, 1},
	}
	counted := func() [2]int {
		m.lock.Lock()
		defer m.lock.Unlock()
		return [2]int{m.firsts, m.restarts}
	}
	for _, gate := range []bool{false, true} {
		featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.KubeletFirstStartsFirst, gate)
		for name, tc := range takes {
			end := tc.take()
			want := [2]int{}
			if gate {
				want = [2]int{tc.firsts, tc.restarts}
			}
			require.Equal(t, want, counted(), name)
			end()
			end()
			require.Eventually(t, func() bool { return counted() == [2]int{} }, 10*time.Second, time.Millisecond, name)
		}
	}
}

// A restart whose pod must be terminated does not wait on. Like every other one that goes
// on without a turn, it is counted until its end.
func TestTakeTurnOfTerminatedPod(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.KubeletFirstStartsFirst, true)
	turns := startTurns{restarts: 1 << 20}
	end := turns.take(false, longestStart, func() bool { return true })
	require.Equal(t, 1<<20+1, turns.restarts)
	require.Empty(t, turns.waiting)
	end()
	require.Equal(t, 1<<20, turns.restarts)
}

// The container that follows a sandbox finds the start of its pod still counted.
func TestSandboxCountsOn(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.KubeletFirstStartsFirst, true)
	var m kubeGenericRuntimeManager
	m.takeFirstTurn(0)()
	m.lock.Lock()
	defer m.lock.Unlock()
	require.Equal(t, 1, m.firsts)
}

func TestLongest(t *testing.T) {
	hook := func(l *v1.Lifecycle) time.Duration { return longest(&v1.Container{Lifecycle: l}) }
	require.Equal(t, longestStart, hook(nil))
	require.Equal(t, longestStart, hook(&v1.Lifecycle{PreStop: &v1.LifecycleHandler{}}))
	require.Equal(t, longestWithHook, hook(&v1.Lifecycle{PostStart: &v1.LifecycleHandler{}}))
}
