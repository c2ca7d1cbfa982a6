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
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	testingclock "k8s.io/utils/clock/testing"

	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/backoff"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/restart"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// The images of a pod's volumes are pulled once in a sync that starts a container,
// and not in a sync in which all containers wait.
func TestImageVolumesWhileContainersWait(t *testing.T) {
	for name, tc := range map[string]struct {
		off bool
		// pulls is how often the volume's image is pulled: after the exits, while the
		// containers wait, and when they start.
		pulls [3]int
	}{
		"strict":     {pulls: [3]int{1, 0, 1}},
		"not strict": {off: true, pulls: [3]int{1, 1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ImageVolume, true)
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.KubeletStrictCrashLoopBackOff, !tc.off)
			tCtx := ktesting.Init(t)
			fakeRuntime, fakeImage, m, err := runtimeManagerForTest(tCtx, &record.FakeRecorder{})
			require.NoError(t, err)
			pod, status := makeBasePodAndStatus()
			pod.Spec.Containers = pod.Spec.Containers[:2]
			for i := range pod.Spec.Containers {
				pod.Spec.Containers[i].Image, pod.Spec.Containers[i].ImagePullPolicy = "busybox:latest", v1.PullIfNotPresent
			}
			pod.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "volume:1", PullPolicy: v1.PullAlways}}}}
			fakeImage.SetFakeImages([]string{"busybox:latest"})
			sandbox := setFakePodForTest(t, m, fakeRuntime, pod)
			status.SandboxStatuses[0].Id = sandbox.Id
			status.ContainerStatuses = status.ContainerStatuses[:2]
			clock := testingclock.NewFakeClock(time.Now())
			backOff := flowcontrol.NewFakeBackOff(10*time.Second, 300*time.Second, clock)
			if !tc.off {
				m.restartBackOff = restart.NewBackOff(clock, backoff.Curve{Initial: 10 * time.Second, Max: 300 * time.Second})
			}
			exit := func() {
				for _, s := range status.ContainerStatuses {
					s.State, s.StartedAt, s.FinishedAt = kubecontainer.ContainerStateExited, clock.Now(), clock.Now()
					s.RestartCount++
				}
				setStatusesForTest(status, status.ContainerStatuses...)
			}
			for i, want := range tc.pulls {
				if i < 2 {
					exit()
				}
				fakeImage.Called = nil
				result := m.syncPodForTest(tCtx, pod, status, backOff)
				pulls := 0
				for _, call := range fakeImage.Called {
					if call == "PullImage" {
						pulls++
					}
				}
				require.Equal(t, want, pulls, "sync %d: %v", i, result.Error())
				if i == 1 {
					require.ErrorIs(t, result.Error(), kubecontainer.ErrCrashLoopBackOff)
				}
				clock.Step(5 * time.Second)
				if i == 1 {
					clock.Step(5 * time.Second)
				}
			}
		})
	}
}
