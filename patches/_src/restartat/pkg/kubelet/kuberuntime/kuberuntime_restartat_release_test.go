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
	testingclock "k8s.io/utils/clock/testing"

	"k8s.io/kubernetes/pkg/kubelet/asked"
	"k8s.io/kubernetes/pkg/kubelet/backoff"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/restart"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// The wait of a restart of the pod ends for all its containers, and not that of an ephemeral one.
func TestEndWaitOfPod(t *testing.T) {
	exit := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	tCtx := ktesting.Init(t)
	recorder := record.NewFakeRecorder(10)
	_, _, m, err := runtimeManagerForTest(tCtx, recorder)
	require.NoError(t, err)
	m.recorder = kubecontainer.FilterEventRecorder(m.recorder) // as in the kubelet
	clock := testingclock.NewFakeClock(exit.Add(30 * time.Second))
	m.restartBackOff = backoff.NewFakeBackOff(10*time.Second, 300*time.Second, clock)
	pods := backoff.NewFakeBackOff(10*time.Second, 300*time.Second, clock)
	UseRestarts(m, &asked.Restarts{}, pods)
	pod, _ := makeBasePodAndStatus()
	pod.Annotations = map[string]string{asked.RestartAtAnnotation: "2026-11-26T12:00:30Z"}
	pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}}}
	key := "pod/" + string(pod.UID)
	require.NoError(t, pods.Restore(key, backoff.KeyState{Attempts: 4, LastUpdate: exit.Add(-time.Minute), WaitingSince: exit}, clock.Now()))
	waits := kubecontainer.NewBackoffError(kubecontainer.ErrCrashLoopBackOff, exit.Add(80*time.Second))
	status := &kubecontainer.PodStatus{Restart: &kubecontainer.PodRestart{Waits: waits}}
	until := func(container *v1.Container) time.Duration {
		at, ok := restart.MinBackoffExpiration(m.endWait(tCtx, pod, container, status, waits))
		require.True(t, ok)
		return at.Sub(exit)
	}
	assert.Equal(t, 80*time.Second, until((*v1.Container)(&pod.Spec.EphemeralContainers[0].EphemeralContainerCommon)))
	assert.Equal(t, 30*time.Second, until(&pod.Spec.Containers[0]))
	assert.Equal(t, "Normal BackOffEnded Back-off of the pod's restart ends 50s early: annotation kubelet-backoff.github.io/restart-at is 2026-11-26T12:00:30Z", <-recorder.Events)
	assert.Empty(t, recorder.Events)
	assert.True(t, pods.Peek(key, exit, clock.Now()).Allowed)
}
