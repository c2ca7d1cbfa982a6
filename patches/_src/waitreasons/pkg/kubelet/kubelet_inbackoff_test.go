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
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	containertest "k8s.io/kubernetes/pkg/kubelet/container/testing"
	"k8s.io/kubernetes/pkg/kubelet/kuberuntime"
	"k8s.io/kubernetes/pkg/kubelet/restart"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// inBackOff is a runtime in which every exited container waits.
type inBackOff struct {
	*containertest.FakeRuntime
	asked int
}

func (r *inBackOff) StartsInBackOff(_ context.Context, pod *v1.Pod, podStatus *kubecontainer.PodStatus) (result kubecontainer.PodSyncResult) {
	r.asked++
	for _, s := range podStatus.ContainerStatuses {
		waits := kubecontainer.NewSyncResult(kubecontainer.StartContainer, s.Name)
		waits.Fail(kubecontainer.ErrCrashLoopBackOff, "back-off 10s")
		result.AddSyncResult(waits)
	}
	return result
}

// The first status after an exit shows whether the container waits.
func TestSyncPodShowsBackOffAtOnce(t *testing.T) {
	tests := map[string]struct {
		policy     v1.RestartPolicy
		rule       bool
		terminated bool
		waits      bool
	}{
		"restarts":                            {policy: v1.RestartPolicyAlways, waits: true},
		"does not":                            {policy: v1.RestartPolicyNever},
		"is terminating":                      {policy: v1.RestartPolicyAlways, terminated: true},
		"is about to be restarted as a whole": {policy: v1.RestartPolicyAlways, rule: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			logger, tCtx := ktesting.NewTestContext(t)
			fake := newTestKubelet(t, false)
			defer fake.Cleanup()
			kubelet, runtime := fake.kubelet, &inBackOff{FakeRuntime: fake.fakeRuntime}
			kubelet.containerRuntime = runtime
			pod := podWithUIDNameNsSpec("12345678", "foo", "new", v1.PodSpec{RestartPolicy: tc.policy, Containers: []v1.Container{{Name: "x"}, {Name: "y"}}})
			if tc.rule {
				restartAllForTest(t, &pod.Spec.Containers[0], 7)
			}
			kubelet.podManager.SetPods([]*v1.Pod{pod})
			kubelet.setPodStatusForTest(logger, pod, v1.PodStatus{Phase: v1.PodRunning})
			if tc.terminated {
				kubelet.podWorkers.(*fakePodWorkers).terminationRequested = map[types.UID]bool{pod.UID: true}
			}
			status := &kubecontainer.PodStatus{
				ID: pod.UID, Name: pod.Name, Namespace: pod.Namespace,
				ContainerStatuses: []*kubecontainer.Status{
					{ID: kubecontainer.ContainerID{Type: "test", ID: "x"}, Name: "x", State: kubecontainer.ContainerStateExited, ExitCode: 7, FinishedAt: time.Now()},
					{ID: kubecontainer.ContainerID{Type: "test", ID: "y"}, Name: "y", State: kubecontainer.ContainerStateRunning, StartedAt: time.Now()},
				},
				SandboxStatuses: []*runtimeapi.PodSandboxStatus{{Id: "s", Metadata: &runtimeapi.PodSandboxMetadata{}, State: runtimeapi.PodSandboxState_SANDBOX_READY}},
			}
			for range 2 {
				_, _, err := kubelet.syncPodForTest(tCtx, pod, status)
				if !tc.terminated {
					require.NoError(t, err)
				}
			}
			got, _ := kubelet.statusManager.GetPodStatus(pod.UID)
			require.NotNil(t, got.ContainerStatuses[1].State.Running)
			x := got.ContainerStatuses[0]
			if !tc.waits {
				if tc.rule {
					require.Zero(t, runtime.asked)
				} else {
					require.Equal(t, int32(7), x.State.Terminated.ExitCode)
				}
				return
			}
			require.Equal(t, &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 10s"}, x.State.Waiting)
			require.Equal(t, int32(7), x.LastTerminationState.Terminated.ExitCode)
			require.Equal(t, 1, runtime.asked, "once, until the container starts")
		})
	}
}

// A container that cannot be created keeps that reason while it waits.
func TestUpdateReasons(t *testing.T) {
	fake := newTestKubelet(t, false)
	defer fake.Cleanup()
	kubelet, now := fake.kubelet, fake.fakeClock.Now()
	waits := restart.NewBackoffError(kubecontainer.ErrCrashLoopBackOff, now.Add(10*time.Second))
	steps := []struct {
		after   time.Duration
		err     error
		message string
		want    string
	}{
		{0, restart.NewBackoffError(kuberuntime.ErrCreateContainer, now.Add(10*time.Second)), "no such device", "CreateContainerError: no such device"},
		{time.Second, waits, "back-off 10s", "CreateContainerError: no such device"},
		{8 * time.Second, waits, "back-off 10s", "CreateContainerError: no such device"},
		{time.Second, waits, "back-off 20s", "CrashLoopBackOff: back-off 20s"},
		{time.Second, restart.NewBackoffError(kubecontainer.ErrRunContainer, now.Add(30*time.Second)), "no such file", "RunContainerError: no such file"},
		{time.Second, waits, "back-off 20s", "CrashLoopBackOff: back-off 20s"},
		{time.Second, nil, "", ""},
	}
	for i, step := range steps {
		fake.fakeClock.Step(step.after)
		result := kubecontainer.NewSyncResult(kubecontainer.StartContainer, "x")
		result.Message = step.message
		result.Error = step.err
		kubelet.updateReasons("12345678", kubecontainer.PodSyncResult{SyncResults: []*kubecontainer.SyncResult{result}})
		got := ""
		if reason, ok := kubelet.reasonCache.Get("12345678", "x"); ok {
			got = reason.Err.Error() + ": " + reason.Message
		}
		require.Equal(t, step.want, got, i)
	}
}
