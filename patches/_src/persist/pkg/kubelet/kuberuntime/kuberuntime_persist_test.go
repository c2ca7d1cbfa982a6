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
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	testingclock "k8s.io/utils/clock/testing"

	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/backoff"
	"k8s.io/kubernetes/pkg/kubelet/restart"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// A restarted container carries its back-off, and the status of the instance
// returns it. A container that is started for the first time carries none.
func TestSyncPodSavesBackOff(t *testing.T) {
	for name, off := range map[string]bool{"strict": false, "not strict": true} {
		t.Run(name, func(t *testing.T) {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.KubeletStrictCrashLoopBackOff, !off)
			tCtx := ktesting.Init(t)
			fakeRuntime, fakeImage, m, err := runtimeManagerForTest(tCtx, &record.FakeRecorder{})
			require.NoError(t, err)
			pod, status := makeBasePodAndStatus()
			pod.Spec.Containers = pod.Spec.Containers[:1]
			pod.Spec.Containers[0].ImagePullPolicy = v1.PullIfNotPresent
			fakeImage.SetFakeImages([]string{"busybox"})
			sandbox := setFakePodForTest(t, m, fakeRuntime, pod)
			fakeRuntime.SetFakeContainers(nil)
			status.SandboxStatuses[0].Id = sandbox.Id
			setStatusesForTest(status)
			clock := testingclock.NewFakeClock(time.Now().UTC().Round(time.Second))
			backOff := flowcontrol.NewFakeBackOff(10*time.Second, 300*time.Second, clock)
			if !off {
				m.restartBackOff = restart.NewBackOff(clock, backoff.Curve{Initial: 10 * time.Second, Max: 300 * time.Second})
			}
			key := restart.Key(pod, &pod.Spec.Containers[0])
			for attempts := range 3 {
				want := ""
				if attempts > 0 && !off {
					since, err := json.Marshal(clock.Now())
					require.NoError(t, err)
					want = fmt.Sprintf(`{"key":%q,"attempts":%d,"since":%s}`, key, attempts, since)
				}
				result := m.syncPodForTest(tCtx, pod, status, backOff)
				require.NoError(t, result.Error())
				require.Len(t, fakeRuntime.Containers, 1)
				for id, c := range fakeRuntime.Containers {
					require.Equal(t, want, c.Annotations[restart.ContainerBackOffAnnotation])
					c.State = runtimeapi.ContainerState_CONTAINER_EXITED
					c.FinishedAt = clock.Now().UnixNano()
					s := m.statusForTest(tCtx, pod.UID, &c.ContainerStatus)
					require.Equal(t, want, s.ContainerBackOff)
					setStatusesForTest(status, s)
					delete(fakeRuntime.Containers, id)
				}
				clock.Step(20 * time.Second)
			}
		})
	}
}
