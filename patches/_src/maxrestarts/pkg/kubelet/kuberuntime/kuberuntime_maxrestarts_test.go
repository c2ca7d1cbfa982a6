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
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/component-base/metrics/legacyregistry"
	testingclock "k8s.io/utils/clock/testing"

	"k8s.io/kubernetes/pkg/kubelet/asked"
	"k8s.io/kubernetes/pkg/kubelet/backoff"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/metrics"
	"k8s.io/kubernetes/pkg/kubelet/restart"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// A container that was restarted twice has exited at 0 s, and the pod is synced at 5 s.
func TestSyncPodMaxRestarts(t *testing.T) {
	exit := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	metrics.RegisterRestartLimit()
	for name, tc := range map[string]struct {
		max             string
		off, first      bool
		until           time.Duration
		exceeded, event string
	}{
		"exceeded": {max: "2", until: 5 * time.Second,
			exceeded: "Container c was restarted 2 times in a row, and annotation kubelet-backoff.github.io/max-restarts allows 2"},
		"the first restart": {max: "0", first: true, until: 5 * time.Second,
			exceeded: "Container c was restarted 0 times in a row, and annotation kubelet-backoff.github.io/max-restarts allows 0"},
		"not exceeded": {max: "3", until: 20 * time.Second},
		"gate off":     {max: "2", off: true, until: 20 * time.Second},
		"no number": {max: "two", until: 20 * time.Second,
			event: `Warning InvalidAnnotation metadata.annotations[kubelet-backoff.github.io/max-restarts]: Invalid value: "two": must be a number of restarts, such as 5`},
	} {
		t.Run(name, func(t *testing.T) {
			tCtx := ktesting.Init(t)
			recorder := record.NewFakeRecorder(10)
			fakeRuntime, fakeImage, m, err := runtimeManagerForTest(tCtx, recorder)
			require.NoError(t, err)
			m.recorder = kubecontainer.FilterEventRecorder(m.recorder) // as in the kubelet
			clock := testingclock.NewFakeClock(exit.Add(5 * time.Second))
			m.restartBackOff = backoff.NewFakeBackOff(10*time.Second, 300*time.Second, clock)
			limits := &asked.Limits{}
			if !tc.off {
				UseLimits(m, limits, nil)
			}
			pod, status := makeBasePodAndStatus()
			pod.Annotations = map[string]string{asked.MaxRestartsAnnotation: tc.max}
			pod.Spec.Containers = pod.Spec.Containers[:1]
			container := &pod.Spec.Containers[0]
			container.Name, container.ImagePullPolicy = "c", v1.PullIfNotPresent
			fakeImage.SetFakeImages([]string{container.Image})
			if !tc.first {
				require.NoError(t, m.restartBackOff.Restore(restart.Key(pod, container), backoff.KeyState{Attempts: 2, LastUpdate: exit.Add(-time.Minute)}, clock.Now()))
			}
			status.SandboxStatuses[0].Id = setFakePodForTest(t, m, fakeRuntime, pod).Id
			setStatusesForTest(status, &kubecontainer.Status{
				ID: kubecontainer.ContainerID{Type: "test", ID: "1"}, Name: "c", State: kubecontainer.ContainerStateExited,
				ExitCode: 1, FinishedAt: exit, Hash: kubecontainer.HashContainer(container),
			})
			before := ended(t)
			for range 2 {
				result := m.syncPodForTest(tCtx, pod, status, flowcontrol.NewBackOff(time.Second, time.Minute))
				at, waits := restart.MinBackoffExpiration(result.Error())
				require.True(t, waits)
				assert.Equal(t, tc.until, at.Sub(exit))
			}
			assert.Equal(t, tc.exceeded, limits.Exceeded(pod.UID))
			want := 0.0
			if tc.exceeded != "" {
				want, tc.event = 1, "Warning RestartLimitExceeded "+tc.exceeded
			}
			assert.Equal(t, want, ended(t)-before)
			var events []string
			for len(recorder.Events) > 0 {
				if e := <-recorder.Events; !strings.HasPrefix(e, "Warning BackOff ") {
					events = append(events, e)
				}
			}
			assert.Equal(t, tc.event, strings.Join(events, "\n"), "once")
		})
	}
}

// The starts of an ephemeral container that fail are no restarts.
func TestMaxRestartsEphemeral(t *testing.T) {
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	tCtx := ktesting.Init(t)
	_, _, m, err := runtimeManagerForTest(tCtx, record.NewFakeRecorder(10))
	require.NoError(t, err)
	m.restartBackOff = backoff.NewFakeBackOff(10*time.Second, 300*time.Second, testingclock.NewFakeClock(now))
	limits := &asked.Limits{}
	UseLimits(m, limits, nil)
	pod, status := makeBasePodAndStatus()
	pod.Annotations = map[string]string{asked.MaxRestartsAnnotation: "0"}
	for name, exceeds := range map[string]bool{"debug": false, pod.Spec.Containers[0].Name: true} {
		container := pod.Spec.Containers[0]
		container.Name = name
		pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}}}
		m.restartBackOff.Fail(restart.Key(pod, &container), now)
		_, _ = m.giveUp(tCtx, pod, &container, status, true, nil)
		require.Equal(t, exceeds, limits.Exceeded(pod.UID) != "", name)
		limits.Forget(pod.UID)
	}
}

func ended(t *testing.T) float64 {
	families, err := legacyregistry.DefaultGatherer.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == "kubelet_restart_limit_exceeded_pods_total" {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	require.Fail(t, "no such metric")
	return 0
}
