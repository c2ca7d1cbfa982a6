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
	"k8s.io/client-go/tools/record"
	testingclock "k8s.io/utils/clock/testing"

	"k8s.io/kubernetes/pkg/kubelet/asked"
	"k8s.io/kubernetes/pkg/kubelet/backoff"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/restart"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// The restarts of the pod count whether the pod waits or was allowed to start. They do not count
// when it is not being restarted.
func TestMaxRestartsOfPod(t *testing.T) {
	exit := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		max             string
		waits, progress bool
		exceeds         bool
	}{
		"waits":              {"2", true, true, true},
		"may wait":           {"3", true, true, false},
		"starts":             {"1", false, true, true},
		"may start":          {"2", false, true, false},
		"is not restarted":   {"1", false, false, false},
		"waits, not allowed": {"0", true, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			tCtx := ktesting.Init(t)
			_, _, m, err := runtimeManagerForTest(tCtx, record.NewFakeRecorder(10))
			require.NoError(t, err)
			clock := testingclock.NewFakeClock(exit.Add(5 * time.Second))
			m.restartBackOff = backoff.NewFakeBackOff(10*time.Second, 300*time.Second, clock)
			pods, limits := backoff.NewFakeBackOff(10*time.Second, 300*time.Second, clock), &asked.Limits{}
			UseLimits(m, limits, pods)
			pod, _ := makeBasePodAndStatus()
			pod.Annotations = map[string]string{asked.MaxRestartsAnnotation: tc.max}
			state := backoff.KeyState{Attempts: 2, LastUpdate: exit.Add(-time.Minute)}
			status := &kubecontainer.PodStatus{Restart: &kubecontainer.PodRestart{}}
			var answer error
			if tc.progress {
				status.Restart.LastCounts = map[string]int{}
			}
			if tc.waits {
				state.WaitingSince = exit
				status.Restart.Waits = kubecontainer.NewBackoffError(kubecontainer.ErrCrashLoopBackOff, exit.Add(20*time.Second))
				answer = status.Restart.Waits
			}
			require.NoError(t, pods.Restore("pod/"+string(pod.UID), state, clock.Now()))
			waits, answer := m.giveUp(tCtx, pod, &pod.Spec.Containers[0], status, tc.waits, answer)
			assert.Equal(t, tc.waits || tc.exceeds, waits)
			assert.Equal(t, tc.exceeds, limits.Exceeded(pod.UID) != "")
			if at, ok := restart.MinBackoffExpiration(answer); tc.exceeds {
				assert.True(t, ok)
				assert.Equal(t, clock.Now(), at)
			}
		})
	}
}

// A container that is held in a sync waits for no back-off, neither its own nor that of the pod.
func TestMaxRestartsHeld(t *testing.T) {
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	tCtx := ktesting.Init(t)
	_, _, m, err := runtimeManagerForTest(tCtx, record.NewFakeRecorder(10))
	require.NoError(t, err)
	clock := testingclock.NewFakeClock(now)
	m.restartBackOff = backoff.NewFakeBackOff(10*time.Second, 300*time.Second, clock)
	pods, limits := backoff.NewFakeBackOff(10*time.Second, 300*time.Second, clock), &asked.Limits{}
	UseLimits(m, limits, pods)
	pod, _ := makeBasePodAndStatus()
	pod.Annotations = map[string]string{asked.MaxRestartsAnnotation: "1"}
	require.NoError(t, pods.Restore("pod/"+string(pod.UID), backoff.KeyState{Attempts: 2, LastUpdate: now}, now))
	require.NoError(t, m.restartBackOff.Restore(restart.Key(pod, &pod.Spec.Containers[0]), backoff.KeyState{Attempts: 1, LastUpdate: now}, now))
	hold := kubecontainer.NewBackoffError(kubecontainer.ErrCrashLoopBackOff, now)
	status := &kubecontainer.PodStatus{Restart: &kubecontainer.PodRestart{Hold: func(string) *kubecontainer.BackoffError { return hold }}}
	waits, answer := m.giveUp(tCtx, pod, &pod.Spec.Containers[0], status, true, hold)
	require.True(t, waits)
	require.Equal(t, hold, answer)
	require.Empty(t, limits.Exceeded(pod.UID))
}
