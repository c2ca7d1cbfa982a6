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
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"

	"k8s.io/kubernetes/pkg/features"
	containertest "k8s.io/kubernetes/pkg/kubelet/container/testing"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// orderedRuntime records its callbacks.
type orderedRuntime struct {
	*containertest.FakeRuntime
	sync func(types.UID) bool
}

func (r *orderedRuntime) OnRestartTurn(sync func(types.UID) bool) { r.sync = sync }
func (r *orderedRuntime) WasPutOff(string) bool                   { return false }

func TestPutFirstStartsFirst(t *testing.T) {
	tCtx := ktesting.Init(t)
	fake := newTestKubelet(t, false)
	defer fake.Cleanup()
	kl, runtime := fake.kubelet, &orderedRuntime{}
	kl.containerRuntime = runtime
	kl.putFirstStartsFirst(tCtx)
	require.Nil(t, runtime.sync, "with the gate off")

	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.KubeletFirstStartsFirst, true)
	kl.putFirstStartsFirst(tCtx)
	var synced []types.UID
	workers := kl.podWorkers.(*fakePodWorkers)
	workers.syncPodFn = syncPodFnForTest(func(pod *v1.Pod) {
		synced = append(synced, pod.UID)
	})
	for _, uid := range []types.UID{"a", "deleted"} {
		kl.podManager.AddPod(&v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid, Name: string(uid), Namespace: "n"}})
	}
	workers.terminationRequested = map[types.UID]bool{"deleted": true}
	require.True(t, runtime.sync("a"))
	require.False(t, runtime.sync("deleted"))
	require.False(t, runtime.sync("unknown"))
	require.Equal(t, []types.UID{"a"}, synced)
}

// The sync loop may pass a new pod to the worker while the callback passes the old
// one.
func TestRestartTurnOfChangedPod(t *testing.T) {
	tCtx := ktesting.Init(t)
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.KubeletFirstStartsFirst, true)
	fake := newTestKubelet(t, false)
	defer fake.Cleanup()
	kl, runtime := fake.kubelet, &orderedRuntime{}
	kl.containerRuntime = runtime
	kl.putFirstStartsFirst(tCtx)
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "a", Name: "a", Namespace: "n"}}
	kl.podManager.AddPod(pod)
	var synced []*v1.Pod
	workers := kl.podWorkers.(*fakePodWorkers)
	workers.syncPodFn = syncPodFnForTest(func(pod *v1.Pod) {
		if len(synced) == 0 {
			// The newer pod came first.
			changed := pod.DeepCopy()
			changed.Generation++
			kl.podManager.UpdatePod(changed)
			synced = append(synced, changed)
		}
		synced = append(synced, pod)
	})
	require.True(t, runtime.sync("a"))
	require.Len(t, synced, 3)
	require.Equal(t, int64(1), synced[2].Generation, "the last is the newest")
}
