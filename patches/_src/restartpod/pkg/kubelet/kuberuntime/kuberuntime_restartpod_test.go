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
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	apitest "k8s.io/cri-api/pkg/apis/testing"

	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/backoff"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	proberesults "k8s.io/kubernetes/pkg/kubelet/prober/results"
	"k8s.io/kubernetes/pkg/kubelet/restart"
	"k8s.io/kubernetes/pkg/kubelet/restartpod"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// stopRecorder records the timeouts of StopContainer.
type stopRecorder struct {
	internalapi.RuntimeService
	timeouts []int64
}

func (r *stopRecorder) StopContainer(_ context.Context, _ string, timeout int64) error {
	r.timeouts = append(r.timeouts, timeout)
	return nil
}

func TestStopContainer(t *testing.T) {
	tCtx := ktesting.Init(t)
	_, _, m, err := runtimeManagerForTest(tCtx, &record.FakeRecorder{})
	require.NoError(t, err)
	recorder := &stopRecorder{RuntimeService: m.runtimeService}
	m.runtimeService = recorder
	pod, status := makeBasePodAndStatus()
	for _, grace := range []int64{0, 1, 30} {
		require.NoError(t, m.StopContainer(tCtx, pod, status.ContainerStatuses[0].ID, "foo1", "stopping", grace))
	}
	// One second would not be enough for a container to end by itself.
	require.Equal(t, []int64{0, 2, 30}, recorder.timeouts)
}

// Only the stops that an exit may have caused wait for it.
func TestExitPause(t *testing.T) {
	for reason, waits := range map[containerKillReason]bool{
		reasonLivenessProbe: true, reasonStartupProbe: true, reasonFailedPostStartHook: true, reasonUnknown: false,
	} {
		require.Equal(t, waits, exitPause(reason) > 0, reason)
	}
}

// A container that has exited is not stopped, in a pod that a rule may restart. A stop would move
// FinishedAt, with CRI-O as with the fake runtime, and an exit from before it would count as one
// that the kubelet caused.
func TestStopAfterExit(t *testing.T) {
	tCtx := ktesting.Init(t)
	runtime, _, m, err := runtimeManagerForTest(tCtx, &record.FakeRecorder{})
	require.NoError(t, err)
	root := t.TempDir()
	m.runtimeHelper = podDirs{m.runtimeHelper, root}
	finished := time.Now().Add(-time.Second)
	for action, leaves := range map[v1.ContainerRestartRuleAction]bool{
		v1.ContainerRestartRuleActionRestart: false, v1.ContainerRestartRuleActionRestartPod: true, v1.ContainerRestartRuleActionRestartAllContainers: true,
	} {
		for _, reason := range []containerKillReason{reasonLivenessProbe, reasonStartupProbe, reasonFailedPostStartHook, reasonUnknown} {
			pod, _ := makeBasePodAndStatus()
			pod.UID = types.UID(fmt.Sprint(action, reason))
			pod.Spec.Containers[1].RestartPolicyRules = []v1.ContainerRestartRule{{Action: action}}
			require.NoError(t, os.Mkdir(filepath.Join(root, string(pod.UID)), 0o750))
			stop := func(state runtimeapi.ContainerState) (stopped bool) {
				c := &apitest.FakeContainer{ContainerStatus: runtimeapi.ContainerStatus{Id: "id", State: state, FinishedAt: finished.UnixNano()}}
				runtime.SetFakeContainers([]*apitest.FakeContainer{c})
				require.NoError(t, m.killContainer(tCtx, pod, kubecontainer.ContainerID{Type: "test", ID: "id"}, "foo1", "stopping", reason, nil, nil))
				return c.FinishedAt != finished.UnixNano()
			}
			require.Equal(t, leaves, !stop(runtimeapi.ContainerState_CONTAINER_EXITED), pod.UID)
			id, when := m.LastStopped(pod.UID, "foo1")
			require.Equal(t, leaves, id == "test://id" && !when.Ends(finished), pod.UID)
			require.True(t, stop(runtimeapi.ContainerState_CONTAINER_UNKNOWN), pod.UID)
			runtime.InjectError("ContainerStatus", errors.New("it does not answer"))
			runtime.InjectError("ContainerStatus", errors.New("it does not answer"))
			require.True(t, stop(runtimeapi.ContainerState_CONTAINER_EXITED), pod.UID)
			runtime.Errors = map[string][]error{}
		}
	}
}

// The stop of the last container leaves the sandbox of a pod that a rule may restart: the
// container may have exited by itself. Upstream's code restarts all containers also in a new
// sandbox.
func TestStopLeavesSandbox(t *testing.T) {
	tCtx := ktesting.Init(t)
	_, _, m, err := runtimeManagerForTest(tCtx, &record.FakeRecorder{})
	require.NoError(t, err)
	testStopLeavesSandbox(tCtx, t, m)
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.KubeletRestartAllContainersBackOff, false)
	testStopLeavesSandbox(tCtx, t, m)
}

func testStopLeavesSandbox(ctx context.Context, t *testing.T, m *kubeGenericRuntimeManager) {
	for action, leaves := range map[v1.ContainerRestartRuleAction]bool{
		v1.ContainerRestartRuleActionRestart: false, v1.ContainerRestartRuleActionRestartPod: true,
		v1.ContainerRestartRuleActionRestartAllContainers: utilfeature.DefaultFeatureGate.Enabled(features.KubeletRestartAllContainersBackOff),
	} {
		pod, status := makeBasePodAndStatus()
		pod.Spec.RestartPolicy = v1.RestartPolicyNever
		pod.Spec.Containers[1].RestartPolicyRules = []v1.ContainerRestartRule{{Action: action}}
		for _, s := range status.ContainerStatuses {
			m.livenessManager.Set(s.ID, proberesults.Failure, pod)
		}
		actions := m.podActions(ctx, pod, status)
		require.Equal(t, leaves, !actions.KillPod, action)
		require.Len(t, actions.ContainersToKill, 3)
		for _, s := range status.ContainerStatuses {
			s.State = kubecontainer.ContainerStateExited
		}
		require.True(t, m.podActions(ctx, pod, status).KillPod, action)
	}
}

// What the kubelet stops is known to the next kubelet, if it matters.
func TestLastStopped(t *testing.T) {
	tCtx := ktesting.Init(t)
	_, _, m, err := runtimeManagerForTest(tCtx, &record.FakeRecorder{})
	require.NoError(t, err)
	m.runtimeService = &stopRecorder{RuntimeService: m.runtimeService}
	root := t.TempDir()
	m.runtimeHelper = podDirs{m.runtimeHelper, root}
	dir := filepath.Join(root, "12345678")
	stop := func(pod *v1.Pod, id string) {
		require.NoError(t, m.killContainer(tCtx, pod, kubecontainer.ContainerID{Type: "test", ID: id}, "foo1", "stopping", reasonUnknown, nil, nil))
	}
	for _, action := range []v1.ContainerRestartRuleAction{v1.ContainerRestartRuleActionRestartPod, v1.ContainerRestartRuleActionRestartAllContainers} {
		pod, _ := makeBasePodAndStatus()
		hour := int64(3600)
		pod.Spec.TerminationGracePeriodSeconds = &hour
		pod.Spec.Containers[1].RestartPolicyRules = []v1.ContainerRestartRule{{Action: action}}
		if action == v1.ContainerRestartRuleActionRestartAllContainers && !podutil.AllContainersCouldRestart(&pod.Spec) {
			continue // not before v1.35
		}
		stop(pod, "early")
		require.NoDirExists(t, dir, "a pod that is gone stays so")

		require.NoError(t, os.MkdirAll(dir, 0o750))
		id, _ := m.LastStopped(pod.UID, "foo1")
		require.Empty(t, id)
		for _, id := range []string{"one", "a-longer-one", "two"} {
			stop(pod, id)
			got, when := m.LastStopped(pod.UID, "foo1")
			require.Equal(t, "test://"+id, got)
			require.WithinDuration(t, time.Now(), when.From, time.Minute)
			require.WithinDuration(t, restartpod.NewStopTime(restartpod.StopTime{}, time.Now(), time.Hour).Until, when.Until, time.Minute)
			stop(pod, id)
			_, again := m.LastStopped(pod.UID, "foo1")
			require.Equal(t, when.From, again.From, "the first attempt may have ended it")
		}
		file := filepath.Join(dir, stoppedDir, "foo1")
		require.NoError(t, os.WriteFile(file, []byte("test://two 2026-01-01T00:00:00.5Z 2026-01-01T00:01:00Z"), 0o640))
		stop(pod, "two")
		_, when := m.LastStopped(pod.UID, "foo1")
		require.WithinDuration(t, time.Now(), when.From, time.Minute, "the first attempt is long over")
		// The only rule of the pod does not apply to the last exit, and may apply to the next.
		pod.Spec.Containers[1].RestartPolicyRules[0].Action = ""
		stop(pod, "three")
		got, _ := m.LastStopped(pod.UID, "foo1")
		require.Equal(t, "test://three", got)
		id, _ = m.LastStopped(pod.UID, "foo2")
		require.Empty(t, id)
		written, err := os.ReadFile(file)
		require.NoError(t, err)
		for n := range written {
			// The kubelet, or the node, ended in the middle of the write.
			require.NoError(t, os.WriteFile(file, written[:n], 0o640))
			id, _ = m.LastStopped(pod.UID, "foo1")
			require.Empty(t, id)
		}
		require.NoError(t, os.RemoveAll(dir))
	}
	pod, _ := makeBasePodAndStatus()
	pod.Spec.Containers[1].RestartPolicyRules = []v1.ContainerRestartRule{{Action: v1.ContainerRestartRuleActionRestart}}
	require.NoError(t, os.MkdirAll(dir, 0o750))
	stop(pod, "one")
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries, "no rule restarts the pod")
}

// podDirs has the directories of pods below a root.
type podDirs struct {
	kubecontainer.RuntimeHelper
	root string
}

func (p podDirs) GetPodDir(uid types.UID) string { return filepath.Join(p.root, string(uid)) }

// A container of a restarted pod has the next restart count after its last
// instance, regardless of existing logs.
func TestSyncPodRestartCount(t *testing.T) {
	tCtx := ktesting.Init(t)
	fakeRuntime, fakeImage, m, err := runtimeManagerForTest(tCtx, &record.FakeRecorder{})
	require.NoError(t, err)
	pod, status := makeBasePodAndStatus()
	pod.Spec.RestartPolicy = v1.RestartPolicyNever
	fakeImage.SetFakeImages([]string{"busybox"})
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].ImagePullPolicy = v1.PullIfNotPresent
	}
	sandbox := setFakePodForTest(t, m, fakeRuntime, pod)
	status.SandboxStatuses[0].Id = sandbox.Id
	status.ContainerStatuses, status.ActiveContainerStatuses = nil, nil
	status.Restart = &kubecontainer.PodRestart{LastCounts: map[string]int{"foo1": 0, "foo2": 6, "foo3": 2}}
	before := map[string]bool{}
	for id := range fakeRuntime.Containers {
		before[id] = true
	}
	result := m.syncPodForTest(tCtx, pod, status, flowcontrol.NewBackOff(time.Second, time.Minute))
	require.NoError(t, result.Error())
	attempts := map[string]uint32{}
	for id, c := range fakeRuntime.Containers {
		if !before[id] {
			attempts[c.Metadata.Name] = c.Metadata.Attempt
		}
	}
	require.Equal(t, map[string]uint32{"foo1": 1, "foo2": 7, "foo3": 3}, attempts)
}

// While a pod waits for its back-off, only ephemeral containers start.
func TestSyncPodWaitsForPod(t *testing.T) {
	tCtx := ktesting.Init(t)
	fakeRuntime, fakeImage, m, err := runtimeManagerForTest(tCtx, &record.FakeRecorder{})
	require.NoError(t, err)
	pod, status := makeBasePodAndStatus()
	fakeImage.SetFakeImages([]string{"busybox"})
	sandbox := setFakePodForTest(t, m, fakeRuntime, pod)
	pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{
		Name: "debug", Image: "busybox", ImagePullPolicy: v1.PullIfNotPresent,
	}}}
	status.SandboxStatuses[0].Id = sandbox.Id
	status.ContainerStatuses, status.ActiveContainerStatuses = nil, nil
	at := time.Now().Add(10 * time.Second)
	status.Restart = &kubecontainer.PodRestart{Waits: kubecontainer.NewBackoffError(kubecontainer.ErrCrashLoopBackOff, at), Message: "back-off 10s"}
	before := map[string]bool{}
	for id := range fakeRuntime.Containers {
		before[id] = true
	}
	for _, backOff := range []*backoff.Backoff{m.restartBackOff, nil} {
		m.restartBackOff = backOff
		result := m.syncPodForTest(tCtx, pod, status, flowcontrol.NewBackOff(time.Second, time.Minute))
		require.ErrorIs(t, result.Error(), kubecontainer.ErrCrashLoopBackOff)
		got, _ := restart.MinBackoffExpiration(result.Error())
		require.Equal(t, at, got)
		var started []string
		for id, c := range fakeRuntime.Containers {
			if !before[id] {
				started = append(started, c.Metadata.Name)
				delete(fakeRuntime.Containers, id)
			}
		}
		require.Equal(t, []string{"debug"}, started)
	}
}
