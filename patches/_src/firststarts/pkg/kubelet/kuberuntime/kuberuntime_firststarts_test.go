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
	for range 2 * cpus {
		require.Nil(t, turns.begin(false, cpus))
	}
	wait := turns.begin(false, cpus)
	require.NotNil(t, wait, "one too many")
	require.Nil(t, turns.begin(true, cpus), "a first start does not wait")
	turns.end(false)
	<-wait
	require.NotNil(t, turns.begin(false, cpus), "fewer while a first start runs")
	for range 2*cpus - 2 {
		turns.end(false)
	}
	require.Nil(t, turns.begin(false, cpus), "the second of two")
	wait = turns.begin(false, cpus)
	require.NotNil(t, wait)
	turns.end(true)
	<-wait
	require.Nil(t, turns.begin(false, cpus), "no first start any more")

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
		"sandbox":            {m.takeFirstTurn, 1, 0},
		"ran":                {func() func() { return m.takeTurn(&v1.Pod{}, podStatus, &v1.Container{Name: "ran"}) }, 0, 1},
		"in a pod's restart": {func() func() { return m.takeTurn(&v1.Pod{}, restarting, &v1.Container{Name: "old"}) }, 0, 1},
	}
	for _, gate := range []bool{false, true} {
		featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.KubeletFirstStartsFirst, gate)
		for name, tc := range takes {
			end := tc.take()
			want := [2]int{}
			if gate {
				want = [2]int{tc.firsts, tc.restarts}
			}
			require.Equal(t, want, [2]int{m.firsts, m.restarts}, name)
			end()
			end()
			require.Equal(t, [2]int{}, [2]int{m.firsts, m.restarts}, name)
		}
	}
}

// A restart whose pod must be terminated does not wait on.
func TestTakeTurnOfTerminatedPod(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.KubeletFirstStartsFirst, true)
	turns := startTurns{restarts: 1 << 20}
	waiting := make(chan struct{})
	go func() {
		defer close(waiting)
		turns.take(false, func() bool { return true })()
	}()
	require.Eventually(t, func() bool {
		turns.lock.Lock()
		defer turns.lock.Unlock()
		return turns.ended != nil
	}, time.Minute, time.Millisecond)
	turns.end(false)
	<-waiting
	require.Equal(t, 1<<20-1, turns.restarts, "it is not counted")
}
