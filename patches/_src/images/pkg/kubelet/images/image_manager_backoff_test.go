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

package images

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/util/flowcontrol"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	testingclock "k8s.io/utils/clock/testing"

	"k8s.io/kubernetes/pkg/features"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	ctest "k8s.io/kubernetes/pkg/kubelet/container/testing"
	"k8s.io/kubernetes/pkg/kubelet/restart"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// imageInBackOff returns the manager of an image that no registry has, and a function
// that ensures that the image exists, and reports whether it was pulled.
func imageInBackOff(t *testing.T) (fake *ctest.FakeRuntime, clock *testingclock.FakeClock, ensure func() (ref string, pulled bool, err error)) {
	tCtx := ktesting.Init(t)
	puller, fake, container := pullerForTest(t, pullerTestCase{containerImage: "missing_image", policy: v1.PullIfNotPresent})
	fake.ImageList = nil
	fake.Err = errors.New("no such image")
	clock = testingclock.NewFakeClock(time.Now())
	m := puller.(*imageManager)
	m.backOff = flowcontrol.NewFakeBackOff(10*time.Second, 300*time.Second, clock)
	timed := WithBackOffTime(m, m.backOff)
	pod := &v1.Pod{}
	pod.UID = "u"
	return fake, clock, func() (string, bool, error) {
		fake.CalledFunctions = nil
		ref, _, err := timed.EnsureImageExists(tCtx, nil, pod, container.Image, nil, &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{}}, "", container.ImagePullPolicy)
		return ref, slices.Contains(fake.CalledFunctions, "PullImage"), err
	}
}

// While an image is in back-off, the kubelet looks for it on the node after the time of
// an ordinary retry, and pulls it again when the back-off ends.
func TestWithBackOffTime(t *testing.T) {
	const retry, resync = 12 * time.Second, time.Minute
	_, clock, ensure := imageInBackOff(t)
	for _, delay := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
		delay *= time.Second
		_, pulled, err := ensure()
		require.True(t, pulled)
		require.Error(t, err)
		require.NotErrorIs(t, err, ErrImagePullBackOff)
		clock.Step(delay / 8)
		for left := delay - delay/8; left > 0; {
			_, pulled, err := ensure()
			require.False(t, pulled, "%v before the end of a back-off of %v", left, delay)
			require.ErrorIs(t, err, ErrImagePullBackOff)
			require.EqualError(t, err, "ImagePullBackOff", "the reason of the waiting state")
			at, found := restart.MinBackoffExpiration(err)
			require.True(t, found)
			require.WithinDuration(t, clock.Now().Add(left), at, 0)
			next, exact := restart.NextSync(err, retry, resync, clock.Now())
			require.Equal(t, min(retry, left), next, "%v before the end of a back-off of %v", left, delay)
			require.Equal(t, left <= retry, exact)
			clock.Step(next)
			left -= next
		}
	}
}

// An image that comes by another way than a pull is found in the next sync.
func TestImageArrivesInBackOff(t *testing.T) {
	fake, clock, ensure := imageInBackOff(t)
	_, pulled, err := ensure()
	require.True(t, pulled)
	require.Error(t, err)
	clock.Step(time.Second)
	_, _, err = ensure()
	require.ErrorIs(t, err, ErrImagePullBackOff)
	fake.ImageList, fake.Err = []kubecontainer.Image{{ID: "missing_image:latest"}}, nil
	ref, pulled, err := ensure()
	require.NoError(t, err)
	require.False(t, pulled)
	require.NotEmpty(t, ref)
}

// With the gate off, the error is upstream's.
func TestImageBackOffAsUpstream(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.KubeletStrictCrashLoopBackOff, false)
	_, clock, ensure := imageInBackOff(t)
	_, _, err := ensure()
	require.Error(t, err)
	clock.Step(time.Second)
	_, _, err = ensure()
	require.Equal(t, ErrImagePullBackOff, err)
}
