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
	"k8s.io/client-go/util/flowcontrol"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	testingclock "k8s.io/utils/clock/testing"

	"k8s.io/kubernetes/pkg/kubelet/crashloop"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// The error of an image in back-off holds the end of the back-off, and the image is
// pulled again at that time.
func TestWithBackOffTime(t *testing.T) {
	tCtx := ktesting.Init(t)
	puller, fakeRuntime, container := pullerForTest(t, pullerTestCase{containerImage: "missing_image", policy: v1.PullIfNotPresent})
	fakeRuntime.ImageList = nil
	fakeRuntime.Err = errors.New("no such image")
	clock := testingclock.NewFakeClock(time.Now())
	m := puller.(*imageManager)
	m.backOff = flowcontrol.NewFakeBackOff(10*time.Second, 300*time.Second, clock)
	timed := WithBackOffTime(m, m.backOff)
	pod := &v1.Pod{}
	pod.UID = "u"
	ensure := func() error {
		fakeRuntime.CalledFunctions = nil
		_, _, err := timed.EnsureImageExists(tCtx, nil, pod, container.Image, nil, &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{}}, "", container.ImagePullPolicy)
		return err
	}
	pulled := func() bool { return slices.Contains(fakeRuntime.CalledFunctions, "PullImage") }
	for _, delay := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
		delay *= time.Second
		err := ensure()
		require.True(t, pulled())
		require.Error(t, err)
		require.NotErrorIs(t, err, ErrImagePullBackOff)
		ends := clock.Now().Add(delay)
		for range 3 {
			clock.Step(delay / 4)
			err := ensure()
			require.False(t, pulled())
			at, found := crashloop.MinBackoffExpiration(err)
			require.True(t, found)
			require.WithinDuration(t, ends, at, 0)
			require.ErrorIs(t, err, ErrImagePullBackOff)
			require.EqualError(t, err, "ImagePullBackOff", "the reason of the waiting state")
		}
		clock.Step(delay / 4)
	}
}
