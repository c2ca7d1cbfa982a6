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
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	testingclock "k8s.io/utils/clock/testing"

	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/backoff"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	proberesults "k8s.io/kubernetes/pkg/kubelet/prober/results"
	"k8s.io/kubernetes/pkg/kubelet/restart"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// Each case is an exit after a first restart at 0 s. The delay is then 10 s.
func TestDoBackOffOfSecondRestart(t *testing.T) {
	start := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	earlier := &kubecontainer.Status{Name: "c", State: kubecontainer.ContainerStateExited, FinishedAt: start}
	tests := map[string]*kubecontainer.Status{
		"exited":                 {Name: "c", State: kubecontainer.ContainerStateExited, RestartCount: 1, FinishedAt: start.Add(30 * time.Second)},
		"killed in this sync":    {Name: "c", State: kubecontainer.ContainerStateRunning, RestartCount: 1},
		"exit time is not known": {Name: "c", State: kubecontainer.ContainerStateExited, RestartCount: 1, FinishedAt: time.Unix(0, 0)},
	}
	for name, status := range tests {
		t.Run(name, func(t *testing.T) {
			tCtx := ktesting.Init(t)
			recorder := record.NewFakeRecorder(10)
			_, _, m, err := runtimeManagerForTest(tCtx, recorder)
			require.NoError(t, err)
			tc := testingclock.NewFakeClock(start)
			m.restartBackOff = backoff.NewFakeBackOff(10*time.Second, 300*time.Second, tc)
			pod := &v1.Pod{
				ObjectMeta: metav1.ObjectMeta{UID: "u", Name: "p", Namespace: "n"},
				Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "i"}}},
			}
			ask := func(statuses ...*kubecontainer.Status) (bool, error) {
				waiting, _, err := m.doBackOffForTest(tCtx, pod, &pod.Spec.Containers[0], &kubecontainer.PodStatus{ContainerStatuses: statuses}, nil)
				return waiting, err
			}
			waiting, err := ask(earlier)
			require.False(t, waiting)
			require.NoError(t, err)

			tc.Step(30 * time.Second)
			for range 3 {
				waiting, err = ask(status, earlier)
				assert.True(t, waiting)
				assert.Equal(t, kubecontainer.NewBackoffError(kubecontainer.ErrCrashLoopBackOff, start.Add(40*time.Second)), err)
			}
			assert.True(t, errors.Is(err, kubecontainer.ErrCrashLoopBackOff))
			assert.Len(t, recorder.Events, 1)
		})
	}
}

// doBackOffForTest is doRestartBackOff in a sync that kills nothing but the pod.
func (m *kubeGenericRuntimeManager) doBackOffForTest(ctx context.Context, pod *v1.Pod, container *v1.Container, podStatus *kubecontainer.PodStatus, backOff *flowcontrol.Backoff) (bool, string, error) {
	return m.doRestartBackOff(ctx, pod, container, podStatus, backOff, podActions{})
}

// Only a container that failed, or whose pod was killed, waits after it was killed. One that was
// changed or resized starts at once, and its back-off starts over.
func TestDoBackOffOfReplaced(t *testing.T) {
	start := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		killed map[string]containerToKillInfo // by container
		state  kubecontainer.State
		waits  bool
	}{
		"replaced":       {map[string]containerToKillInfo{"foo1": {}}, kubecontainer.ContainerStateRunning, false},
		"another one":    {map[string]containerToKillInfo{"foo2": {}}, kubecontainer.ContainerStateRunning, true},
		"liveness probe": {map[string]containerToKillInfo{"foo1": {reason: reasonLivenessProbe}}, kubecontainer.ContainerStateRunning, true},
		"startup probe":  {map[string]containerToKillInfo{"foo1": {reason: reasonStartupProbe}}, kubecontainer.ContainerStateRunning, true},
		"unknown state":  {map[string]containerToKillInfo{"foo1": {reason: reasonUnknown}}, kubecontainer.ContainerStateUnknown, true},
		"the whole pod":  {nil, kubecontainer.ContainerStateRunning, true},
	} {
		t.Run(name, func(t *testing.T) {
			tCtx := ktesting.Init(t)
			_, _, m, err := runtimeManagerForTest(tCtx, record.NewFakeRecorder(10))
			require.NoError(t, err)
			m.restartBackOff = backoff.NewFakeBackOff(10*time.Second, 300*time.Second, testingclock.NewFakeClock(start))
			pod, status := makeBasePodAndStatus()
			status.ContainerStatuses[0].State = tc.state
			changes := podActions{ContainersToKill: map[kubecontainer.ContainerID]containerToKillInfo{}}
			for _, c := range status.ContainerStatuses {
				// A resized container may fail its probe while it stops.
				m.livenessManager.Set(c.ID, proberesults.Failure, pod)
				if info, ok := tc.killed[c.Name]; ok {
					changes.ContainersToKill[c.ID] = info
				}
			}
			m.restartBackOff.Decide(restart.Key(pod, &pod.Spec.Containers[0]), start, start)
			for range 4 {
				waits, _, _ := m.doRestartBackOff(tCtx, pod, &pod.Spec.Containers[0], status, nil, changes)
				require.Equal(t, tc.waits, waits)
			}
			_, known := m.restartBackOff.Snapshot(restart.Key(pod, &pod.Spec.Containers[0]), start)
			require.Equal(t, tc.waits, known)
		})
	}
}

// failingStarts is a runtime that fails at one of the two steps of a start.
type failingStarts struct {
	internalapi.RuntimeService
	create, start error
}

func (r *failingStarts) CreateContainer(ctx context.Context, sandboxID string, config *runtimeapi.ContainerConfig, sandboxConfig *runtimeapi.PodSandboxConfig) (string, error) {
	if r.create != nil {
		return "", r.create
	}
	return r.RuntimeService.CreateContainer(ctx, sandboxID, config, sandboxConfig)
}

func (r *failingStarts) StartContainer(ctx context.Context, id string) error {
	if r.start != nil {
		return r.start
	}
	return r.RuntimeService.StartContainer(ctx, id)
}

// failingConfig fails to generate the configuration of a container, for example
// because a ConfigMap is missing.
type failingConfig struct{ kubecontainer.RuntimeHelper }

func (failingConfig) GenerateRunContainerOptions(context.Context, *v1.Pod, *v1.Container, string, []string, kubecontainer.ImageVolumes) (*kubecontainer.RunContainerOptions, func(), error) {
	return nil, nil, errors.New("no such ConfigMap")
}

// A start that failed after something was created counts as an exit, even if the
// container never ran. A start that failed earlier is retried as usual.
func TestSyncPodFailedStart(t *testing.T) {
	start := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	const ordinary = 12 * time.Second
	tests := map[string]struct {
		fail func(*kubeGenericRuntimeManager)
		off  bool
		err  error
		// delays are the delays between attempts.
		delays []time.Duration
	}{
		"create": {
			fail: func(m *kubeGenericRuntimeManager) {
				m.runtimeService = &failingStarts{m.runtimeService, errors.New("no"), nil}
			},
			err:    ErrCreateContainer,
			delays: []time.Duration{0, 10 * time.Second, 20 * time.Second, 40 * time.Second},
		},
		"start": {
			fail: func(m *kubeGenericRuntimeManager) {
				m.runtimeService = &failingStarts{m.runtimeService, nil, errors.New("no")}
			},
			err:    kubecontainer.ErrRunContainer,
			delays: []time.Duration{0, 10 * time.Second, 20 * time.Second, 40 * time.Second},
		},
		"config": {
			fail:   func(m *kubeGenericRuntimeManager) { m.runtimeHelper = failingConfig{m.runtimeHelper} },
			err:    ErrCreateContainerConfig,
			delays: []time.Duration{ordinary, ordinary, ordinary, ordinary},
		},
		"create, not strict": {
			fail: func(m *kubeGenericRuntimeManager) {
				m.runtimeService = &failingStarts{m.runtimeService, errors.New("no"), nil}
			},
			off:    true,
			err:    ErrCreateContainer,
			delays: []time.Duration{ordinary, ordinary, ordinary, ordinary},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.KubeletStrictCrashLoopBackOff, !tc.off)
			tCtx := ktesting.Init(t)
			fakeRuntime, fakeImage, m, err := runtimeManagerForTest(tCtx, record.NewFakeRecorder(100))
			require.NoError(t, err)
			pod, status := makeBasePodAndStatus()
			pod.Spec.Containers = pod.Spec.Containers[:1]
			pod.Spec.Containers[0].ImagePullPolicy = v1.PullIfNotPresent
			fakeImage.SetFakeImages([]string{"busybox"})
			sandbox := setFakePodForTest(t, m, fakeRuntime, pod)
			status.SandboxStatuses[0].Id = sandbox.Id
			setStatusesForTest(status)
			tc.fail(m)
			clock := testingclock.NewFakeClock(start)
			if !tc.off {
				m.restartBackOff = backoff.NewFakeBackOff(10*time.Second, 300*time.Second, clock)
			}
			backOff := flowcontrol.NewFakeBackOff(10*time.Second, 300*time.Second, clock)

			for _, want := range tc.delays {
				result := m.syncPodForTest(tCtx, pod, status, backOff)
				r := result.SyncResults[len(result.SyncResults)-1]
				require.Equal(t, kubecontainer.StartContainer, r.Action)
				require.ErrorIs(t, r.Error, tc.err)
				require.Equal(t, tc.err.Error(), r.Error.Error(), "the reason in the status")
				delay := ordinary
				if at, ok := restart.MinBackoffExpiration(result.Error()); ok {
					delay = at.Sub(clock.Now())
				}
				require.Equal(t, want, delay)
				if delay > time.Second && want != ordinary {
					clock.Step(delay - time.Second)
					result := m.syncPodForTest(tCtx, pod, status, backOff)
					require.ErrorIs(t, result.Error(), kubecontainer.ErrCrashLoopBackOff, "before its time")
					delay = time.Second
				}
				clock.Step(delay)
			}
		})
	}
}

// A changed container starts in the sync that kills it. One that failed its probe waits.
func TestSyncPodAfterKill(t *testing.T) {
	start := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		kill func(*kubeGenericRuntimeManager, *v1.Pod, *kubecontainer.Status)
		want error
	}{
		"changed": {func(_ *kubeGenericRuntimeManager, _ *v1.Pod, s *kubecontainer.Status) { s.Hash++ }, nil},
		"liveness probe": {func(m *kubeGenericRuntimeManager, pod *v1.Pod, s *kubecontainer.Status) {
			m.livenessManager.Set(s.ID, proberesults.Failure, pod)
		}, kubecontainer.ErrCrashLoopBackOff},
	} {
		t.Run(name, func(t *testing.T) {
			tCtx := ktesting.Init(t)
			fakeRuntime, fakeImage, m, err := runtimeManagerForTest(tCtx, record.NewFakeRecorder(100))
			require.NoError(t, err)
			m.restartBackOff = backoff.NewFakeBackOff(10*time.Second, 300*time.Second, testingclock.NewFakeClock(start))
			pod, status := makeBasePodAndStatus()
			pod.Spec.Containers = pod.Spec.Containers[:1]
			c := &pod.Spec.Containers[0]
			c.ImagePullPolicy = v1.PullIfNotPresent
			fakeImage.SetFakeImages([]string{"busybox"})
			status.SandboxStatuses[0].Id = setFakePodForTest(t, m, fakeRuntime, pod).Id
			killed := status.ContainerStatuses[0]
			killed.Hash = kubecontainer.HashContainer(c)
			for id := range fakeRuntime.Containers {
				killed.ID.ID = id
			}
			setStatusesForTest(status, killed)
			m.restartBackOff.Decide(restart.Key(pod, c), start, start)
			tc.kill(m, pod, killed)
			result := m.syncPodForTest(tCtx, pod, status, flowcontrol.NewBackOff(time.Second, time.Minute))
			require.ErrorIs(t, result.Error(), tc.want)
			require.Contains(t, fakeRuntime.Called, "StopContainer")
			if tc.want == nil {
				require.Contains(t, fakeRuntime.Called, "StartContainer")
			}
		})
	}
}

// With the gate off, the back-off is upstream's: the wait after a kill counts from an
// older exit.
func TestDoBackOffNotStrict(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.KubeletStrictCrashLoopBackOff, false)
	tCtx := ktesting.Init(t)
	_, _, m, err := runtimeManagerForTest(tCtx, record.NewFakeRecorder(10))
	require.NoError(t, err)
	start := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	tc := testingclock.NewFakeClock(start)
	backOff := flowcontrol.NewFakeBackOff(10*time.Second, 300*time.Second, tc)
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: "u", Name: "p", Namespace: "n"},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "i"}}},
	}
	earlier := &kubecontainer.Status{Name: "c", State: kubecontainer.ContainerStateExited, FinishedAt: start}
	for _, statuses := range [][]*kubecontainer.Status{
		{earlier},
		{{Name: "c", State: kubecontainer.ContainerStateRunning, RestartCount: 1}, earlier},
	} {
		waiting, _, err := m.doBackOffForTest(tCtx, pod, &pod.Spec.Containers[0], &kubecontainer.PodStatus{ContainerStatuses: statuses}, backOff)
		require.NoError(t, err)
		require.False(t, waiting)
		tc.Step(30 * time.Second)
	}
}

// A killed container waits only if its restart is certain: by its own policy if the
// node honors it, and otherwise by the pod's.
func TestDoBackOffAfterAKill(t *testing.T) {
	always, onFailure := v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicy("OnFailure")
	tests := map[string]struct {
		pod        v1.RestartPolicy
		own        *v1.ContainerRestartPolicy
		init, gate bool
		waits      bool
	}{
		"its own Always":                    {pod: v1.RestartPolicyNever, own: &always, gate: true, waits: true},
		"its own Always, gate off":          {pod: v1.RestartPolicyNever, own: &always},
		"its own OnFailure":                 {pod: v1.RestartPolicyAlways, own: &onFailure, gate: true},
		"its own OnFailure, gate off":       {pod: v1.RestartPolicyAlways, own: &onFailure, waits: true},
		"sidecar, gate off":                 {pod: v1.RestartPolicyNever, own: &always, init: true, waits: true},
		"init container, gate off":          {pod: v1.RestartPolicyAlways, init: true},
		"init container OnFailure, no gate": {pod: v1.RestartPolicyAlways, own: &onFailure, init: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			restartRulesForTest(t, tc.gate)
			tCtx := ktesting.Init(t)
			_, _, m, err := runtimeManagerForTest(tCtx, record.NewFakeRecorder(10))
			require.NoError(t, err)
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u", Name: "p", Namespace: "n"}, Spec: v1.PodSpec{RestartPolicy: tc.pod}}
			c := v1.Container{Name: "c", Image: "i", RestartPolicy: tc.own}
			if tc.init {
				pod.Spec.InitContainers = []v1.Container{c}
			} else {
				pod.Spec.Containers = []v1.Container{c}
			}
			m.restartBackOff = backoff.NewFakeBackOff(10*time.Second, 300*time.Second, testingclock.NewFakeClock(time.Now()))
			status := &kubecontainer.PodStatus{ContainerStatuses: []*kubecontainer.Status{{Name: "c", State: kubecontainer.ContainerStateRunning}}}
			_, _, err = m.doBackOffForTest(tCtx, pod, &c, status, nil)
			require.NoError(t, err, "the first restart is immediate")
			waits, _, _ := m.doBackOffForTest(tCtx, pod, &c, status, nil)
			require.Equal(t, tc.waits, waits)
		})
	}
}
