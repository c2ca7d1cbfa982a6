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
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	testingclock "k8s.io/utils/clock/testing"

	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/backoff"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// StartsInBackOff returns the containers that SyncPod will not start, and changes
// nothing.
func TestStartsInBackOff(t *testing.T) {
	start := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	tests := map[string]struct {
		mutate func(*v1.Pod, *kubecontainer.PodStatus)
		// after is the time since the exit. The delay is 10 s.
		after time.Duration
		off   bool
		want  bool
	}{
		"waits":            {after: 9 * time.Second, want: true},
		"the wait is over": {after: 10 * time.Second},
		"runs": {mutate: func(_ *v1.Pod, s *kubecontainer.PodStatus) {
			s.ContainerStatuses[0].State = kubecontainer.ContainerStateRunning
		}},
		"is not restarted": {mutate: func(p *v1.Pod, _ *kubecontainer.PodStatus) { p.Spec.RestartPolicy = v1.RestartPolicyNever }},
		"the sandbox is lost": {mutate: func(_ *v1.Pod, s *kubecontainer.PodStatus) {
			s.SandboxStatuses[0].State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
		}, after: 9 * time.Second, want: true},
		"the sandbox is lost for good": {mutate: func(p *v1.Pod, s *kubecontainer.PodStatus) {
			p.Spec.RestartPolicy = v1.RestartPolicyNever
			s.SandboxStatuses[0].State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
		}},
		"the gate is off":       {off: true},
		"the pod is deleted":    {mutate: func(p *v1.Pod, _ *kubecontainer.PodStatus) { p.DeletionTimestamp = &p.CreationTimestamp }},
		"its start is long ago": {mutate: func(_ *v1.Pod, s *kubecontainer.PodStatus) { s.ContainerStatuses[0].FinishedAt = start.Add(time.Hour) }, after: time.Hour},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.KubeletStrictCrashLoopBackOff, !tc.off)
			tCtx := ktesting.Init(t)
			recorder := record.NewFakeRecorder(10)
			_, _, m, err := runtimeManagerForTest(tCtx, recorder)
			require.NoError(t, err)
			pod, status := makeBasePodAndStatus()
			clock := testingclock.NewFakeClock(start)
			backOff := backoff.NewFakeBackOff(10*time.Second, 300*time.Second, clock)
			backOff.HasExpiredFunc = backoff.FlatReset(backoff.ContainerResetPeriod)
			if !tc.off {
				m.restartBackOff = backOff
			}
			c, s := &pod.Spec.Containers[0], status.ContainerStatuses[0]
			s.State, s.FinishedAt = kubecontainer.ContainerStateExited, start
			waiting, _, _ := m.doBackOffForTest(tCtx, pod, c, status, flowcontrol.NewBackOff(10*time.Second, 300*time.Second))
			require.False(t, waiting)
			s.RestartCount, s.StartedAt, s.FinishedAt = 1, start, start.Add(time.Second)
			clock.Step(time.Second + tc.after)
			if tc.mutate != nil {
				tc.mutate(pod, status)
			}
			want := 0
			if tc.want {
				want = 1
			}
			for range 3 {
				result := m.StartsInBackOff(tCtx, pod, status)
				require.Len(t, result.SyncResults, want)
				if want > 0 {
					require.Equal(t, c.Name, result.SyncResults[0].Target)
					require.Equal(t, "CrashLoopBackOff", result.SyncResults[0].Error.Error())
					require.Contains(t, result.SyncResults[0].Message, "back-off 10s restarting failed container="+c.Name)
				}
			}
			require.Empty(t, recorder.Events)
			if tc.want {
				waiting, message, _ := m.doBackOffForTest(tCtx, pod, c, status, flowcontrol.NewBackOff(10*time.Second, 300*time.Second))
				require.True(t, waiting)
				require.Equal(t, message, m.StartsInBackOff(tCtx, pod, status).SyncResults[0].Message)
			}
		})
	}
}
