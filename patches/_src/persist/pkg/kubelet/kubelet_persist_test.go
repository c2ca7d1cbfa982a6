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
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"

	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/backoff"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/restart"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// In the first sync after a restart of the kubelet, a pod's containers wait as
// before.
func TestSyncPodRestoresBackOffs(t *testing.T) {
	curve := backoff.Curve{Initial: 10 * time.Second, Max: 300 * time.Second}
	for name, off := range map[string]bool{"strict": false, "not strict": true} {
		t.Run(name, func(t *testing.T) {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.KubeletStrictCrashLoopBackOff, !off)
			_, tCtx := ktesting.NewTestContext(t)
			fake := newTestKubelet(t, false)
			defer fake.Cleanup()
			kubelet, clock := fake.kubelet, fake.fakeClock
			always := v1.ContainerRestartPolicyAlways
			pod := podWithUIDNameNsSpec("12345678", "foo", "new", v1.PodSpec{
				InitContainers: []v1.Container{{Name: "s", RestartPolicy: &always}},
				Containers:     []v1.Container{{Name: "x"}, {Name: "y"}},
			})
			kubelet.podManager.SetPods([]*v1.Pod{pod})
			backOff := restart.NewBackOff(clock, curve)
			status := &kubecontainer.PodStatus{ID: pod.UID, Name: pod.Name, Namespace: pod.Namespace}
			keys := map[string]string{}
			for attempts, c := range []*v1.Container{&pod.Spec.Containers[1], &pod.Spec.Containers[0], &pod.Spec.InitContainers[0]} {
				key := restart.Key(pod, c)
				keys[c.Name] = key
				for range attempts {
					backOff.Next(key, clock.Now())
				}
				exited := clock.Now().Add(time.Second)
				status.ContainerStatuses = append(status.ContainerStatuses, &kubecontainer.Status{
					Name: c.Name, State: kubecontainer.ContainerStateExited, RestartCount: attempts, CreatedAt: clock.Now(),
					StartedAt: clock.Now(), FinishedAt: exited, ContainerBackOff: restart.SaveBackOff(backOff, key, clock.Now()),
				})
			}
			clock.Step(5 * time.Second)
			restored := restart.NewBackOff(clock, curve)
			if !off {
				kubelet.restartBackOff = restored
			}
			for range 2 {
				_, _, err := kubelet.syncPodForTest(tCtx, pod, status)
				require.NoError(t, err)
				for name, want := range map[string]time.Duration{"y": 0, "x": 6 * time.Second, "s": 16 * time.Second} {
					if off {
						want = 0
					}
					d := restored.Peek(keys[name], clock.Now().Add(-4*time.Second), clock.Now())
					require.Equal(t, max(want, 0), max(d.RetryAt.Sub(clock.Now()), 0), name)
				}
			}
		})
	}
}
