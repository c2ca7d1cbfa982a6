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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"
	testingclock "k8s.io/utils/clock/testing"

	"k8s.io/kubernetes/pkg/kubelet/asked"
	"k8s.io/kubernetes/pkg/kubelet/backoff"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/restart"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// A container waits for 80 s after an exit at 0 s, and the pod is synced at 30 s.
func TestSyncPodRestartAt(t *testing.T) {
	exit := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		annotation, value string
		off               bool
		until             time.Duration
		event             string
	}{
		"past":                {asked.RestartAtAnnotation, "2026-11-26T12:00:30Z", false, 30 * time.Second, "Normal BackOffEnded Back-off of container c ends 50s early: annotation kubelet-backoff.github.io/restart-at is 2026-11-26T12:00:30Z"},
		"of the container":    {asked.RestartAtPrefix + "c", "2026-11-26T12:00:30Z", false, 30 * time.Second, "Normal BackOffEnded Back-off of container c ends 50s early: annotation restart-at.kubelet-backoff.github.io/c is 2026-11-26T12:00:30Z"},
		"of another one":      {asked.RestartAtPrefix + "d", "2026-11-26T12:00:30Z", false, 80 * time.Second, ""},
		"to come":             {asked.RestartAtAnnotation, "2026-11-26T12:00:40Z", false, 40 * time.Second, ""},
		"before the exit":     {asked.RestartAtAnnotation, "2026-11-26T11:59:59Z", false, 80 * time.Second, ""},
		"not a time":          {asked.RestartAtAnnotation, "now", false, 80 * time.Second, `Warning InvalidAnnotation metadata.annotations[kubelet-backoff.github.io/restart-at]: Invalid value: "now": must be a time as in RFC 3339, such as 2026-11-26T12:00:00Z`},
		"with the gate off":   {asked.RestartAtAnnotation, "2026-11-26T12:00:30Z", true, 80 * time.Second, ""},
		"without the feature": {"restart-at", "2026-11-26T12:00:30Z", false, 80 * time.Second, ""},
	} {
		t.Run(name, func(t *testing.T) {
			tCtx := ktesting.Init(t)
			recorder := record.NewFakeRecorder(10)
			fakeRuntime, fakeImage, m, err := runtimeManagerForTest(tCtx, recorder)
			require.NoError(t, err)
			m.recorder = kubecontainer.FilterEventRecorder(m.recorder) // as in the kubelet
			clock := testingclock.NewFakeClock(exit.Add(30 * time.Second))
			m.restartBackOff = backoff.NewFakeBackOff(10*time.Second, 300*time.Second, clock)
			if !tc.off {
				UseRestarts(m, &asked.Restarts{}, nil)
			}
			pod, status := makeBasePodAndStatus()
			pod.Annotations = map[string]string{tc.annotation: tc.value}
			pod.Spec.Containers = pod.Spec.Containers[:1]
			container := &pod.Spec.Containers[0]
			container.Name, container.ImagePullPolicy = "c", v1.PullIfNotPresent
			fakeImage.SetFakeImages([]string{container.Image})
			require.NoError(t, m.restartBackOff.Restore(restart.Key(pod, container), backoff.KeyState{Attempts: 4, LastUpdate: exit.Add(-time.Minute), WaitingSince: exit}, clock.Now()))
			status.SandboxStatuses[0].Id = setFakePodForTest(t, m, fakeRuntime, pod).Id
			setStatusesForTest(status, &kubecontainer.Status{
				ID: kubecontainer.ContainerID{Type: "test", ID: "1"}, Name: "c", State: kubecontainer.ContainerStateExited,
				ExitCode: 1, FinishedAt: exit, Hash: kubecontainer.HashContainer(container),
			})
			sync := func() (time.Duration, bool) {
				result := m.syncPodForTest(tCtx, pod, status, flowcontrol.NewBackOff(time.Second, time.Minute))
				at, waits := restart.MinBackoffExpiration(result.Error())
				return at.Sub(exit), waits
			}
			until, waits := sync()
			require.True(t, waits)
			assert.Equal(t, tc.until, until)
			events := []string{<-recorder.Events} // that it waits
			for len(recorder.Events) > 0 {
				events = append(events, <-recorder.Events)
			}
			if tc.event == "" {
				assert.Len(t, events, 1)
			} else {
				assert.Equal(t, tc.event, events[1])
			}
			clock.SetTime(exit.Add(tc.until))
			if _, waits = sync(); tc.event == "" && tc.until < 80*time.Second {
				require.True(t, waits, "this sync ends the wait")
				_, waits = sync()
			}
			assert.False(t, waits)
		})
	}
}
