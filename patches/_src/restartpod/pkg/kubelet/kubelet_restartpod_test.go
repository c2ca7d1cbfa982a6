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
	"errors"
	"fmt"
	"math/rand"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/featuregate"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	containertest "k8s.io/kubernetes/pkg/kubelet/container/testing"
	"k8s.io/kubernetes/pkg/kubelet/crashloop"
	"k8s.io/kubernetes/pkg/kubelet/kuberuntime"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/kubernetes/pkg/kubelet/restartpod"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// restartTest is a pod on a kubelet. Its runtime stops containers on request, and
// otherwise the test controls them.
type restartTest struct {
	*containertest.FakeRuntime
	t       *testing.T
	kubelet *Kubelet
	fake    *TestKubelet
	pod     *v1.Pod

	lock     sync.Mutex
	statuses []*kubecontainer.Status
	// stopped has "name/grace" for each call of StopContainer.
	stopped []string
	// synced has the names of the containers in the status of the last SyncPod.
	synced []string
	syncs  int
	// counts are the restart counts of the instances that SyncPod did not see.
	counts map[string]int
	// sandboxLost makes the sandbox not ready.
	sandboxLost bool
	// hang makes StopContainer wait for the end of its context.
	hang bool
	// upstream is true if upstream's code handles RestartAllContainers.
	// restartingAll is the argument of the last SyncPod.
	upstream, restartingAll bool
	// gone makes GetPod find nothing.
	gone bool
	// syncedPod is the pod in the last call of SyncPod.
	syncedPod *v1.Pod
	// result is what SyncPod returns.
	result kubecontainer.PodSyncResult
	// saved is the pod's back-off as stored in started containers.
	saved string
	// stopping, if not nil, is called by each StopContainer.
	stopping func()
}

// restartablePod has the policy Never, an init container "a", a sidecar "s", and
// regular containers "x" and "y". A rule of each has action for exit code 88.
func restartablePod(action v1.ContainerRestartRuleAction) *v1.Pod {
	never, always := v1.ContainerRestartPolicyNever, v1.ContainerRestartPolicyAlways
	rules := []v1.ContainerRestartRule{{
		Action:    action,
		ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{88}},
	}}
	grace := int64(30)
	return podWithUIDNameNsSpec("12345678", "foo", "new", v1.PodSpec{
		RestartPolicy: v1.RestartPolicyNever, TerminationGracePeriodSeconds: &grace,
		InitContainers: []v1.Container{
			{Name: "a", RestartPolicy: &never, RestartPolicyRules: rules},
			{Name: "s", RestartPolicy: &always, RestartPolicyRules: rules},
		},
		Containers: []v1.Container{
			{Name: "x", RestartPolicy: &never, RestartPolicyRules: rules},
			{Name: "y", RestartPolicy: &never, RestartPolicyRules: rules},
		},
	})
}

func newRestartTest(t *testing.T, pod *v1.Pod, gates map[featuregate.Feature]bool) *restartTest {
	for _, name := range restartGates {
		value, set := gates[name]
		featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, name, value || !set)
	}
	fake := newTestKubelet(t, false)
	t.Cleanup(fake.Cleanup)
	r := &restartTest{FakeRuntime: fake.fakeRuntime, t: t, kubelet: fake.kubelet, fake: fake, pod: pod}
	r.kubelet.containerRuntime = r
	r.kubelet.recorder = record.NewFakeRecorder(100)
	r.kubelet.podManager.SetPods([]*v1.Pod{pod})
	r.restartKubelet()
	return r
}

// restartKubelet clears the kubelet's memory.
func (r *restartTest) restartKubelet() {
	r.kubelet.podRestarts = newPodRestarts(r.fake.fakeClock, r, nil, 10*time.Second, 300*time.Second)
}

func (r *restartTest) StopContainer(ctx context.Context, _ *v1.Pod, id kubecontainer.ContainerID, name, _ string, grace int64) error {
	if r.hang {
		<-ctx.Done()
		return ctx.Err()
	}
	r.lock.Lock()
	defer r.lock.Unlock()
	if r.stopping != nil {
		r.stopping()
	}
	r.stopped = append(r.stopped, fmt.Sprintf("%s/%d", name, grace))
	for _, s := range r.statuses {
		if s.ID == id {
			s.State, s.ExitCode, s.FinishedAt = kubecontainer.ContainerStateExited, 143, r.fake.fakeClock.Now()
		}
	}
	return nil
}

func (r *restartTest) syncPod(pod *v1.Pod, podStatus *kubecontainer.PodStatus, restartAllContainers bool) kubecontainer.PodSyncResult {
	assert.False(r.t, restartAllContainers && !r.upstream, "upstream's way of restarting")
	r.restartingAll = restartAllContainers
	r.syncs++
	r.synced, r.counts, r.syncedPod = nil, nil, pod
	for _, s := range podStatus.ContainerStatuses {
		r.synced = append(r.synced, s.Name)
	}
	result := r.result
	r.saved = ""
	if restart := podStatus.Restart; restart != nil {
		r.counts, r.saved = restart.LastCounts, restart.BackOff
		for i := range r.pod.Spec.InitContainers {
			if err := restart.Wait(r.pod, &r.pod.Spec.InitContainers[i]); err != nil {
				r.syncs--
				waits := kubecontainer.NewSyncResult(kubecontainer.StartContainer, r.pod.Spec.InitContainers[i].Name)
				waits.Fail(err, restart.Message)
				result.AddSyncResult(waits)
				break
			}
		}
	}
	return result
}

// podStatus returns the status from the runtime, the newest instances first.
func (r *restartTest) podStatus() *kubecontainer.PodStatus {
	r.lock.Lock()
	defer r.lock.Unlock()
	var statuses []*kubecontainer.Status
	for _, s := range slices.Backward(r.statuses) {
		copied := *s
		statuses = append(statuses, &copied)
	}
	sandboxState := runtimeapi.PodSandboxState_SANDBOX_READY
	if r.sandboxLost {
		sandboxState = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	}
	return &kubecontainer.PodStatus{
		ID: r.pod.UID, Name: r.pod.Name, Namespace: r.pod.Namespace, IPs: []string{"10.0.0.1"},
		ContainerStatuses: statuses, ActiveContainerStatuses: statuses,
		SandboxStatuses: []*runtimeapi.PodSandboxStatus{{
			Id: "sandbox", Metadata: &runtimeapi.PodSandboxMetadata{Attempt: 0}, State: sandboxState,
			Network: &runtimeapi.PodSandboxNetworkStatus{Ip: "10.0.0.1"},
		}},
	}
}

// start starts a new instance of each container.
func (r *restartTest) start(names ...string) {
	for _, name := range names {
		count := 0
		for _, s := range r.statuses {
			if s.Name == name {
				count++
			}
		}
		r.statuses = append(r.statuses, &kubecontainer.Status{
			ID: kubecontainer.ContainerID{Type: "test", ID: fmt.Sprintf("%s-%d", name, count)}, Name: name, RestartCount: count,
			State: kubecontainer.ContainerStateRunning, CreatedAt: r.fake.fakeClock.Now(), StartedAt: r.fake.fakeClock.Now(),
			PodBackOff: r.saved,
		})
	}
}

// exit ends the newest instance of a container.
func (r *restartTest) exit(name string, code int) {
	for _, s := range slices.Backward(r.statuses) {
		if s.Name == name {
			s.State, s.ExitCode, s.FinishedAt = kubecontainer.ContainerStateExited, code, r.fake.fakeClock.Now()
			return
		}
	}
	r.t.Fatalf("%s never ran", name)
}

func (r *restartTest) sync() error {
	_, tCtx := ktesting.NewTestContext(r.t)
	return r.syncContext(tCtx)
}

func (r *restartTest) syncContext(ctx context.Context) error {
	_, _, err := r.kubelet.syncPodForTest(ctx, r.pod, r.podStatus())
	return err
}

// status returns the pod's status as sent to the API server.
func (r *restartTest) status() v1.PodStatus {
	s, ok := r.kubelet.statusManager.GetPodStatus(r.pod.UID)
	require.True(r.t, ok)
	return s
}

func (r *restartTest) condition(t v1.PodConditionType) v1.PodCondition {
	for _, c := range r.status().Conditions {
		if c.Type == t {
			return c
		}
	}
	return v1.PodCondition{}
}

func (r *restartTest) container(name string) v1.ContainerStatus {
	s := r.status()
	for _, c := range append(slices.Clone(s.InitContainerStatuses), s.ContainerStatuses...) {
		if c.Name == name {
			return c
		}
	}
	r.t.Fatalf("no status of %s", name)
	return v1.ContainerStatus{}
}

func (r *restartTest) events() (events []string) {
	for {
		select {
		case e := <-r.kubelet.recorder.(*record.FakeRecorder).Events:
			events = append(events, e)
		default:
			return events
		}
	}
}

// run brings the pod to the state in which all containers run.
func (r *restartTest) run() {
	r.start("a")
	r.exit("a", 0)
	r.start("s", "x", "y")
	require.NoError(r.t, r.sync())
}

// again does the same in a restart.
func (r *restartTest) again() {
	r.fake.fakeClock.Step(2 * time.Second)
	r.run()
}

func TestRestartPod(t *testing.T) {
	r := newRestartTest(t, restartablePod(restartpod.ContainerRestartRuleActionRestartPod), nil)
	r.run()
	require.Equal(t, v1.PodRunning, r.status().Phase)
	require.Equal(t, v1.PodCondition{}, r.condition(v1.PodRestarting))

	r.exit("x", 88)
	require.NoError(t, r.sync())
	require.Equal(t, []string{"y/30", "s/30"}, r.stopped, "regular containers, then sidecars, each with its grace period")
	require.Equal(t, 2, r.syncs, "the worker is not given the pod once more, which may be an old one by now")
	require.Empty(t, r.synced, "the runtime manager sees a new pod")
	require.Equal(t, map[string]int{"a": 0, "s": 0, "x": 0, "y": 0}, r.counts)
	require.Contains(t, r.events(), "Normal PodRestarting Container x exited with code 88, triggering pod restart")
	c := r.condition(v1.PodRestarting)
	require.Equal(t, v1.ConditionTrue, c.Status)
	require.Equal(t, "ContainerExited", c.Reason)
	require.Equal(t, "Container x exited with code 88, triggering pod restart", c.Message)
	require.Equal(t, v1.PodRunning, r.status().Phase)
	for name, code := range map[string]int32{"a": 0, "s": 143, "x": 88, "y": 143} {
		s := r.container(name)
		require.Equal(t, &v1.ContainerStateWaiting{Reason: PodInitializing}, s.State.Waiting, name)
		require.Equal(t, code, s.LastTerminationState.Terminated.ExitCode, name)
		require.Equal(t, "test://"+name+"-0", s.LastTerminationState.Terminated.ContainerID, name)
		require.Equal(t, int32(0), s.RestartCount, name)
	}

	r.again()
	require.Equal(t, v1.ConditionFalse, r.condition(v1.PodRestarting).Status)
	require.Equal(t, "ContainersStarted", r.condition(v1.PodRestarting).Reason)
	require.Equal(t, v1.PodRunning, r.status().Phase)
	for _, name := range []string{"a", "s", "x", "y"} {
		require.Equal(t, int32(1), r.container(name).RestartCount, name)
	}
	require.Equal(t, int32(88), r.container("x").LastTerminationState.Terminated.ExitCode)
}

func TestRestartPodBackOff(t *testing.T) {
	r := newRestartTest(t, restartablePod(restartpod.ContainerRestartRuleActionRestartPod), nil)
	r.run()
	r.exit("x", 88)
	require.NoError(t, r.sync(), "the first restart is immediate")
	r.again()
	r.events()

	syncs, exited := r.syncs, r.fake.fakeClock.Now()
	r.stopped = nil
	r.exit("s", 88)
	for range 2 {
		_, tCtx := ktesting.NewTestContext(t)
		_, postSync, err := r.kubelet.syncPodForTest(tCtx, r.pod, r.podStatus())
		require.ErrorIs(t, err, kubecontainer.ErrCrashLoopBackOff)
		at, ok := crashloop.MinBackoffExpiration(err)
		require.True(t, ok)
		require.Equal(t, exited.Add(10*time.Second), at)
		require.Equal(t, syncs, r.syncs, "nothing is started")
		// After the first of these syncs the statuses must be read again.
		require.Equal(t, r.stopped == nil, crashloop.IsWaiting(err))
		require.Equal(t, r.stopped != nil && hasPostSync, postSync != nil)
		r.stopped = nil
	}
	require.Equal(t, []string{
		"Normal PodRestarting Container s exited with code 88, triggering pod restart",
		"Warning BackOff Back-off restarting pod foo: Container s exited with code 88, triggering pod restart: waiting 10s, next start at " +
			exited.Add(10*time.Second).UTC().Format(time.RFC3339),
	}, r.events(), "one event each, however often it is asked")
	require.Equal(t, v1.PodRunning, r.status().Phase)
	for _, name := range []string{"a", "s", "x", "y"} {
		require.Equal(t, &v1.ContainerStateWaiting{
			Reason:  "CrashLoopBackOff",
			Message: "back-off 10s restarting pod foo: Container s exited with code 88, triggering pod restart",
		}, r.container(name).State.Waiting, name)
	}

	r.fake.fakeClock.Step(10 * time.Second)
	require.NoError(t, r.sync())
	require.Equal(t, syncs+1, r.syncs)
	require.Equal(t, &v1.ContainerStateWaiting{Reason: PodInitializing}, r.container("x").State.Waiting, "what it waited for is over")
}

// A pod is over when its regular containers are, regardless of its sidecar. The
// runtime manager is not called, because before v1.37 it would start the sidecar
// again.
func TestRestartPodEndsWithItsSidecar(t *testing.T) {
	for _, restarting := range []bool{false, true} {
		t.Run(fmt.Sprintf("restarting %v", restarting), func(t *testing.T) {
			r := newRestartTest(t, restartablePod(restartpod.ContainerRestartRuleActionRestartPod), nil)
			r.run()
			if restarting {
				r.exit("x", 88)
				require.NoError(t, r.sync())
				r.fake.fakeClock.Step(2 * time.Second)
				r.start("a")
				r.exit("a", 0)
				r.start("s", "x", "y")
			}
			syncs := r.syncs
			for _, name := range []string{"s", "x", "y"} {
				r.exit(name, 0)
			}
			require.NoError(t, r.sync())
			require.Equal(t, v1.PodSucceeded, r.status().Phase)
			require.NotEqual(t, v1.ConditionTrue, r.condition(v1.PodRestarting).Status)
			require.Equal(t, syncs, r.syncs)
		})
	}
}

func TestRestartAllContainers(t *testing.T) {
	needsRestartAllContainers(t)
	r := newRestartTest(t, restartablePod(v1.ContainerRestartRuleActionRestartAllContainers), nil)
	r.run()
	require.Equal(t, v1.ConditionFalse, r.condition(v1.AllContainersRestarting).Status)
	r.exit("y", 88)
	require.NoError(t, r.sync())
	slices.Sort(r.stopped)
	require.Equal(t, []string{"s/0", "x/0"}, r.stopped, "all at once, and without a grace period")
	c := r.condition(v1.AllContainersRestarting)
	require.Equal(t, v1.ConditionTrue, c.Status)
	require.Equal(t, "Container y exited with code 88, triggering pod restart", c.Message)
	require.Equal(t, int32(88), r.container("y").LastTerminationState.Terminated.ExitCode)
	r.again()
	require.Equal(t, v1.ConditionFalse, r.condition(v1.AllContainersRestarting).Status)
	require.Equal(t, int32(1), r.container("y").RestartCount)

	r.exit("y", 88)
	require.ErrorIs(t, r.sync(), kubecontainer.ErrCrashLoopBackOff, "the second one waits")
}

func TestRestartPodTerminated(t *testing.T) {
	t.Run("while it stops containers", func(t *testing.T) {
		r := newRestartTest(t, restartablePod(restartpod.ContainerRestartRuleActionRestartPod), nil)
		r.run()
		syncs := r.syncs
		r.exit("x", 88)
		r.hang = true
		_, tCtx := ktesting.NewTestContext(t)
		ctx, cancel := context.WithCancel(tCtx)
		cancel()
		require.ErrorIs(t, r.syncContext(ctx), context.Canceled)
		require.Equal(t, syncs, r.syncs)
	})
	t.Run("while it waits", func(t *testing.T) {
		r := newRestartTest(t, restartablePod(restartpod.ContainerRestartRuleActionRestartPod), nil)
		r.run()
		r.exit("x", 88)
		require.NoError(t, r.sync())
		require.Equal(t, v1.ConditionTrue, r.condition(v1.PodRestarting).Status)
		r.terminate()
		_, tCtx := ktesting.NewTestContext(t)
		require.NoError(t, r.kubelet.SyncTerminatingPod(tCtx, r.pod, r.podStatus(), nil, nil))
		c := r.condition(v1.PodRestarting)
		require.Equal(t, v1.ConditionFalse, c.Status)
		require.Equal(t, "PodDeleted", c.Reason)
	})
	t.Run("after the kubelet was restarted", func(t *testing.T) {
		pod := restartablePod(restartpod.ContainerRestartRuleActionRestartPod)
		pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodRestarting, Status: v1.ConditionTrue, Reason: "ContainerExited"}}
		r := newRestartTest(t, pod, nil)
		r.start("a")
		r.exit("a", 0)
		r.terminate()
		_, tCtx := ktesting.NewTestContext(t)
		require.NoError(t, r.kubelet.SyncTerminatingPod(tCtx, r.pod, r.podStatus(), nil, nil))
		c := r.condition(v1.PodRestarting)
		require.Equal(t, v1.ConditionFalse, c.Status)
		require.Equal(t, "PodDeleted", c.Reason)
		require.False(t, c.LastTransitionTime.IsZero())
	})
	t.Run("at the trigger", func(t *testing.T) {
		r := newRestartTest(t, restartablePod(restartpod.ContainerRestartRuleActionRestartPod), nil)
		r.run()
		syncs := r.syncs
		r.exit("x", 88)
		r.terminate()
		require.ErrorIs(t, r.sync(), context.Canceled)
		require.Equal(t, syncs, r.syncs, "nothing is started")
		require.Empty(t, r.stopped, "the pod's own termination stops what runs")
		require.Empty(t, r.events())
		require.NotEqual(t, v1.ConditionTrue, r.condition(v1.PodRestarting).Status)
	})
}

// terminate marks the pod as being terminated, as after its deletion.
func (r *restartTest) terminate() {
	r.kubelet.podWorkers.(*fakePodWorkers).terminationRequested = map[types.UID]bool{r.pod.UID: true}
}

func TestRestartPodInitContainerFails(t *testing.T) {
	r := newRestartTest(t, restartablePod(restartpod.ContainerRestartRuleActionRestartPod), nil)
	r.run()
	r.exit("x", 88)
	require.NoError(t, r.sync())
	r.fake.fakeClock.Step(2 * time.Second)
	r.start("a")
	r.exit("a", 1)
	require.NoError(t, r.sync())
	require.Equal(t, v1.PodFailed, r.status().Phase)
	require.Equal(t, v1.ConditionFalse, r.condition(v1.PodRestarting).Status)
}

func TestRestartPodKubeletRestarts(t *testing.T) {
	tests := map[string]struct {
		// started has the containers of the new run that are running when the
		// kubelet ends.
		started []string
		// stopped has the containers that the next sync stops.
		stopped []string
		want    []string
	}{
		"before anything is started": {},
		"with some started":          {started: []string{"s", "x"}, want: []string{"x", "s", "a", "x", "s", "a"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRestartTest(t, restartablePod(restartpod.ContainerRestartRuleActionRestartPod), nil)
			r.run()
			r.exit("x", 88)
			require.NoError(t, r.sync())
			r.fake.fakeClock.Step(2 * time.Second)
			if tc.started != nil {
				r.start("a")
				r.exit("a", 0)
				r.start(tc.started...)
			}
			r.pod.Status = r.status()
			r.stopped, r.synced = nil, nil
			r.restartKubelet()
			require.NoError(t, r.sync())
			require.Equal(t, tc.stopped, r.stopped)
			require.Equal(t, tc.want, r.synced)
			require.Equal(t, v1.ConditionTrue, r.condition(v1.PodRestarting).Status)
			require.Equal(t, v1.PodRunning, r.status().Phase)
		})
	}
}

func TestRestartPodGates(t *testing.T) {
	t.Run("off", func(t *testing.T) {
		r := newRestartTest(t, restartablePod(restartpod.ContainerRestartRuleActionRestartPod), map[featuregate.Feature]bool{features.RestartPodOnContainerExits: false})
		r.run()
		r.exit("x", 88)
		require.NoError(t, r.sync())
		require.Empty(t, r.stopped)
		require.Equal(t, int32(88), r.container("x").State.Terminated.ExitCode)
		require.Equal(t, v1.PodCondition{}, r.condition(v1.PodRestarting))
		require.Nil(t, r.kubelet.podRestarts.get(r.pod.UID))
	})
	t.Run("off while it restarts", func(t *testing.T) {
		pod := restartablePod(restartpod.ContainerRestartRuleActionRestartPod)
		pod.Status.Conditions = []v1.PodCondition{{
			Type: v1.PodRestarting, Status: v1.ConditionTrue, Reason: "ContainerExited", LastTransitionTime: metav1.Now(),
		}}
		r := newRestartTest(t, pod, map[featuregate.Feature]bool{features.RestartPodOnContainerExits: false})
		r.pod.Status.Conditions[0].LastTransitionTime = metav1.NewTime(r.fake.fakeClock.Now().Add(time.Second))
		r.start("a")
		r.exit("a", 0)
		r.start("s", "x", "y")
		r.exit("x", 88)
		require.NoError(t, r.sync())
		require.Equal(t, []string{"y/30", "s/30"}, r.stopped, "it is finished")
		r.again()
		require.Equal(t, v1.ConditionFalse, r.condition(v1.PodRestarting).Status, "and written to the API")
	})
	t.Run("off, and no rule restarts the pod", func(t *testing.T) {
		pod := restartablePod("Restart")
		pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodRestarting, Status: v1.ConditionTrue, Reason: "Mine"}}
		r := newRestartTest(t, pod, map[featuregate.Feature]bool{features.RestartPodOnContainerExits: false})
		r.run()
		require.Empty(t, r.stopped)
		require.Equal(t, pod.Status.Conditions[0], r.condition(v1.PodRestarting), "it is not the kubelet's to change, and no reason to reconcile for ever")
	})
}

// If the sandbox is lost during a restart, Startup is repeated in the same sync,
// without another trigger and without a back-off. Containers that ran in the old
// sandbox do not fail the pod.
func TestRestartPodSandboxLost(t *testing.T) {
	r := newRestartTest(t, restartablePod(restartpod.ContainerRestartRuleActionRestartPod), nil)
	r.run()
	r.exit("x", 88)
	require.NoError(t, r.sync())
	r.fake.fakeClock.Step(2 * time.Second)
	r.start("a")
	r.exit("a", 255)
	r.events()
	r.sandboxLost = true
	syncs := r.syncs
	require.NoError(t, r.sync())
	require.Equal(t, syncs+1, r.syncs)
	require.Empty(t, r.synced, "the runtime manager sees a new pod")
	require.Equal(t, 1, r.counts["a"])
	require.Empty(t, r.events())
	require.Equal(t, v1.PodRunning, r.status().Phase)
	require.Equal(t, v1.ConditionTrue, r.condition(v1.PodRestarting).Status)
}

// A container whose startup probe passed before the kubelet was restarted is not
// probed again.
func TestRestartPodStartedBeforeKubelet(t *testing.T) {
	pod := restartablePod(restartpod.ContainerRestartRuleActionRestartPod)
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].StartupProbe = &v1.Probe{}
	}
	r := newRestartTest(t, pod, nil)
	r.run()
	r.exit("x", 88)
	require.NoError(t, r.sync())
	r.again()
	require.Equal(t, v1.ConditionTrue, r.condition(v1.PodRestarting).Status, "the startup probes have not passed")
	s := r.status()
	started := true
	for i := range s.ContainerStatuses {
		s.ContainerStatuses[i].Started = &started
	}
	logger, _ := ktesting.NewTestContext(t)
	r.kubelet.statusManager.SetPodStatus(logger, pod, s)
	r.pod.Status = s
	r.restartKubelet()
	require.NoError(t, r.sync())
	require.Equal(t, v1.ConditionFalse, r.condition(v1.PodRestarting).Status)
}

// The deadline of the pod may pass while its containers are being stopped.
func TestRestartPodFailsMeanwhile(t *testing.T) {
	r := newRestartTest(t, restartablePod(restartpod.ContainerRestartRuleActionRestartPod), nil)
	r.run()
	syncs := r.syncs
	r.exit("x", 88)
	r.kubelet.AddPodSyncHandler(evictAfter{r})
	require.ErrorContains(t, r.sync(), "Failed")
	require.Equal(t, syncs, r.syncs)
	require.Equal(t, v1.PodFailed, r.status().Phase)
}

type evictAfter struct{ *restartTest }

func (e evictAfter) ShouldEvict(*v1.Pod) lifecycle.ShouldEvictResponse {
	return lifecycle.ShouldEvictResponse{Evict: len(e.stopped) > 0, Reason: "DeadlineExceeded"}
}

func TestRestartPodForgets(t *testing.T) {
	r := newRestartTest(t, restartablePod(restartpod.ContainerRestartRuleActionRestartPod), nil)
	r.run()
	require.NotNil(t, r.kubelet.podRestarts.get(r.pod.UID))
	_, tCtx := ktesting.NewTestContext(t)
	r.kubelet.podManager.SetPods(nil)
	require.NoError(t, r.kubelet.HandlePodCleanups(tCtx))
	require.Nil(t, r.kubelet.podRestarts.get(r.pod.UID))
}

func TestRestartPodStopFails(t *testing.T) {
	r := newRestartTest(t, restartablePod(restartpod.ContainerRestartRuleActionRestartPod), nil)
	r.run()
	syncs := r.syncs
	r.exit("x", 88)
	r.kubelet.podRestarts.runtime = failingStopper{}
	err := r.sync()
	require.ErrorContains(t, err, "no")
	_, isBackOff := crashloop.MinBackoffExpiration(err)
	require.False(t, isBackOff)
	require.Equal(t, syncs, r.syncs)
}

type failingStopper struct{}

func (failingStopper) StopContainer(context.Context, *v1.Pod, kubecontainer.ContainerID, string, string, int64) error {
	return errors.New("no")
}

// An instance of the previous run remains the last state of a container that is not
// replaced, however the restart ends. It does not count for the pod's phase, nor as
// the present exit code.
func TestRestartPodPreviousRunStaysOver(t *testing.T) {
	begin := func(t *testing.T, code int) *restartTest {
		pod := restartablePod(restartpod.ContainerRestartRuleActionRestartPod)
		pod.Spec.Containers[0].RestartPolicyRules = []v1.ContainerRestartRule{{
			Action:    restartpod.ContainerRestartRuleActionRestartPod,
			ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{int32(code)}},
		}}
		r := newRestartTest(t, pod, nil)
		r.run()
		r.exit("x", code)
		require.NoError(t, r.sync())
		r.again()
		r.exit("x", code)
		require.ErrorIs(t, r.sync(), kubecontainer.ErrCrashLoopBackOff)
		return r
	}
	over := func(t *testing.T, r *restartTest, code int32) {
		for _, name := range []string{"a", "s", "x", "y"} {
			c := r.container(name)
			require.NotEqual(t, fmt.Sprintf("test://%s-1", name), containerIDOf(c.State), name)
			require.Equal(t, fmt.Sprintf("test://%s-1", name), c.LastTerminationState.Terminated.ContainerID, name)
		}
		require.Equal(t, code, r.container("x").LastTerminationState.Terminated.ExitCode)
	}
	for _, code := range []int32{0, 88} {
		t.Run(fmt.Sprintf("deleted in back-off after exit %d", code), func(t *testing.T) {
			r := begin(t, int(code))
			_, tCtx := ktesting.NewTestContext(t)
			r.terminate()
			require.NoError(t, r.kubelet.SyncTerminatingPod(tCtx, r.pod, r.podStatus(), nil, nil))
			require.Equal(t, v1.PodFailed, r.status().Phase)
			over(t, r, code)
			require.Equal(t, int32(137), r.container("x").State.Terminated.ExitCode, "it did not run any more")
			// The runtime's own final status may have fewer containers.
			require.NoError(t, r.kubelet.SyncTerminatedPod(tCtx, r.pod, r.podStatus()))
			require.Equal(t, v1.PodFailed, r.status().Phase)
			over(t, r, code)
		})
	}
	t.Run("deadline", func(t *testing.T) {
		r := begin(t, 88)
		r.kubelet.AddPodSyncHandler(evictAfter{r})
		require.Error(t, errOrTerminal(r))
		require.Equal(t, v1.PodFailed, r.status().Phase)
		over(t, r, 88)
	})
	t.Run("final failure", func(t *testing.T) {
		r := begin(t, 88)
		r.fake.fakeClock.Step(10 * time.Second)
		require.NoError(t, r.sync())
		r.fake.fakeClock.Step(2 * time.Second)
		r.start("a")
		r.exit("a", 1)
		require.NoError(t, r.sync())
		require.Equal(t, v1.PodFailed, r.status().Phase)
		require.Equal(t, int32(1), r.container("a").State.Terminated.ExitCode, "the failure is of the present run")
		for _, name := range []string{"s", "x", "y"} {
			require.NotNil(t, r.container(name).State.Waiting, name)
			require.Equal(t, fmt.Sprintf("test://%s-1", name), r.container(name).LastTerminationState.Terminated.ContainerID, name)
		}
	})
	t.Run("sandbox lost", func(t *testing.T) {
		r := begin(t, 88)
		r.sandboxLost = true
		require.ErrorIs(t, r.sync(), kubecontainer.ErrCrashLoopBackOff)
		require.Equal(t, v1.PodRunning, r.status().Phase)
		over(t, r, 88)
	})
}

func errOrTerminal(r *restartTest) error {
	_, tCtx := ktesting.NewTestContext(r.t)
	isTerminal, _, err := r.kubelet.syncPodForTest(tCtx, r.pod, r.podStatus())
	if isTerminal {
		err = errors.Join(err, errors.New("terminal"))
	}
	return err
}

func containerIDOf(s v1.ContainerState) string {
	if s.Terminated == nil {
		return ""
	}
	return s.Terminated.ContainerID
}

// The kubelet computes the phase of a pod in a restart from the present run: exits
// of the previous run make it neither Succeeded nor Failed.
func TestRestartPodPhaseOverRandomStatuses(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	ends := 0
	for range 150 {
		r := newRestartTest(t, restartablePod(restartpod.ContainerRestartRuleActionRestartPod), nil)
		r.run()
		for range 12 {
			r.fake.fakeClock.Step(time.Duration(random.Intn(20000)) * time.Millisecond)
			before := map[string]bool{}
			restarting := r.condition(v1.PodRestarting).Status == v1.ConditionTrue
			for _, s := range r.statuses {
				before[s.ID.String()] = restarting && !s.StartedAt.After(r.condition(v1.PodRestarting).LastTransitionTime.Time)
			}
			name := []string{"a", "s", "x", "y"}[random.Intn(4)]
			newestOf := func(name string) *kubecontainer.Status {
				for _, s := range slices.Backward(r.statuses) {
					if s.Name == name {
						return s
					}
				}
				return nil
			}
			newest, a, s := newestOf(name), newestOf("a"), newestOf("s")
			// Containers start in order.
			turn := name == "a" || !before[a.ID.String()] && a.State == kubecontainer.ContainerStateExited && a.ExitCode == 0 &&
				(name == "s" || !before[s.ID.String()])
			if newest.State == kubecontainer.ContainerStateRunning {
				r.exit(name, []int{0, 1, 88}[random.Intn(3)])
			} else if restarting && r.kubelet.podRestarts.get(r.pod.UID).plan.Phase == restartpod.PhaseStartup && before[newest.ID.String()] && turn {
				r.start(name)
			}
			_ = r.sync()
			phase := r.status().Phase
			if phase != v1.PodFailed && phase != v1.PodSucceeded {
				continue
			}
			ends++
			ended := 0
			for _, s := range r.podStatus().ContainerStatuses {
				if s.State == kubecontainer.ContainerStateExited && !before[s.ID.String()] && s.Name != "s" {
					ended++
				}
			}
			require.NotZero(t, ended, "%s without an exit of the present run", phase)
			require.NotEqual(t, v1.ConditionTrue, r.condition(v1.PodRestarting).Status)
			break
		}
	}
	require.NotZero(t, ends)
}

// A container that the kubelet itself stops does not restart the pod.
func TestRestartPodStoppedByKubelet(t *testing.T) {
	pod := restartablePod(restartpod.ContainerRestartRuleActionRestartPod)
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].RestartPolicyRules = []v1.ContainerRestartRule{{
			Action:    restartpod.ContainerRestartRuleActionRestartPod,
			ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpNotIn, Values: []int32{0}},
		}}
	}
	results := map[string]*kubecontainer.SyncResult{
		"killed":         {Action: kubecontainer.KillContainer, Target: "x"},
		"killed in vain": {Action: kubecontainer.KillContainer, Target: "x", Error: kubecontainer.ErrKillContainer},
		"postStart hook": {Action: kubecontainer.StartContainer, Target: "x", Error: crashloop.NewBackoffError(kuberuntime.ErrPostStartHook, time.Now())},
	}
	for name, result := range results {
		t.Run(name, func(t *testing.T) {
			r := newRestartTest(t, pod, nil)
			r.run()
			r.result.SyncResults = []*kubecontainer.SyncResult{result}
			if result.Action == kubecontainer.StartContainer {
				r.exit("x", 0)
			}
			_ = r.sync()
			r.result.SyncResults = nil
			if result.Action == kubecontainer.StartContainer {
				r.start("x")
			}
			r.exit("x", 137)
			for range 2 {
				require.NoError(t, r.sync())
				require.Empty(t, r.stopped)
				require.NotEqual(t, v1.ConditionTrue, r.condition(v1.PodRestarting).Status)
			}
			// An exit of its own restarts the pod.
			r.start("x")
			require.NoError(t, r.sync())
			require.Empty(t, r.kubelet.podRestarts.get(pod.UID).stopped, "what is gone is forgotten")
			r.exit("x", 137)
			require.NoError(t, r.sync())
			require.Equal(t, []string{"y/30", "s/30"}, r.stopped)
		})
	}
}

// A container that the kubelet stopped starts again by its policy and not by a rule
// for the whole pod. The same applies to the phase.
func TestRestartPodStoppedForGood(t *testing.T) {
	r := newRestartTest(t, restartablePod(restartpod.ContainerRestartRuleActionRestartPod), nil)
	r.run()
	r.result.SyncResults = []*kubecontainer.SyncResult{{Action: kubecontainer.KillContainer, Target: "x"}}
	require.NoError(t, r.sync())
	r.result.SyncResults = nil
	r.exit("x", 88)
	require.NoError(t, r.sync())
	restarts := func(name string) bool {
		return shouldBeRestarted(kubecontainer.GetContainerSpec(r.syncedPod, name), r.syncedPod, r.podStatus())
	}
	require.False(t, restarts("x"))
	r.kubelet.reasonCache.add(r.pod.UID, "x", kuberuntime.ErrPostStartHook, "it failed")
	require.NoError(t, r.sync())
	require.Equal(t, int32(88), r.container("x").State.Terminated.ExitCode, "it does not wait")
	require.Equal(t, restartpod.ContainerRestartRuleActionRestartPod, r.syncedPod.Spec.Containers[1].RestartPolicyRules[0].Action, "the rules of others count")
	require.Equal(t, restartpod.ContainerRestartRuleActionRestartPod, r.pod.Spec.Containers[0].RestartPolicyRules[0].Action)
	require.Equal(t, v1.PodRunning, r.status().Phase)
	r.exit("y", 0)
	r.exit("s", 0) // it ends after the last of the others
	require.NoError(t, r.sync())
	require.Equal(t, v1.PodFailed, r.status().Phase)
	require.Empty(t, r.stopped)
}

// Containers that run without the pod's cgroups are stopped. That is not an exit of
// their own.
func TestRestartPodWithoutCgroups(t *testing.T) {
	r := newRestartTest(t, restartablePod(restartpod.ContainerRestartRuleActionRestartPod), nil)
	r.run()
	r.kubelet.containerManager = withoutCgroups{r.kubelet.containerManager, nil}
	waits := kubecontainer.NewSyncResult(kubecontainer.StartContainer, "y")
	waits.Fail(crashloop.NewBackoffError(kubecontainer.ErrCrashLoopBackOff, time.Now()), "back-off")
	r.result.SyncResults = []*kubecontainer.SyncResult{waits}
	err := r.sync()
	require.ErrorIs(t, err, kubecontainer.ErrCrashLoopBackOff)
	require.False(t, crashloop.IsWaiting(err), "the statuses have to be read again")
	r.result.SyncResults = nil
	for _, name := range []string{"s", "x", "y"} {
		r.exit(name, 88)
	}
	require.NoError(t, r.sync())
	require.Empty(t, r.stopped)
	require.NotEqual(t, v1.ConditionTrue, r.condition(v1.PodRestarting).Status)
}

type withoutCgroups struct {
	cm.ContainerManager
	err error
}

func (c withoutCgroups) NewPodContainerManager() cm.PodContainerManager {
	return withoutPodCgroups{c.ContainerManager.NewPodContainerManager(), c.err}
}

type withoutPodCgroups struct {
	cm.PodContainerManager
	err error
}

func (withoutPodCgroups) Exists(*v1.Pod) bool { return false }

// A sync that fails while the pod waits does not extend the wait.
func TestRestartPodSyncFailsInBackOff(t *testing.T) {
	r := newRestartTest(t, restartablePod(restartpod.ContainerRestartRuleActionRestartPod), nil)
	r.run()
	r.exit("x", 88)
	require.NoError(t, r.sync())
	r.again()
	r.exit("x", 88)
	require.ErrorIs(t, r.sync(), kubecontainer.ErrCrashLoopBackOff)
	r.kubelet.containerManager = withoutCgroups{r.kubelet.containerManager, errors.New("no cgroup")}
	err := r.sync()
	require.ErrorContains(t, err, "no cgroup")
	at, found := crashloop.MinBackoffExpiration(err)
	require.True(t, found)
	require.Equal(t, r.fake.fakeClock.Now().Add(10*time.Second), at)
	require.False(t, crashloop.IsWaiting(err))
	// The phase needs nothing that is left of the pod.
	r.statuses = nil
	require.Error(t, r.sync())
	require.Equal(t, v1.PodRunning, r.status().Phase)
}

// A static pod that comes back has its previous run for as long as the runtime knows
// it.
func TestRestartPodComesBack(t *testing.T) {
	r := newRestartTest(t, staticPod(restartablePod(restartpod.ContainerRestartRuleActionRestartPod)), nil)
	r.run()
	_, tCtx := ktesting.NewTestContext(t)
	r.terminate()
	for _, name := range []string{"s", "x", "y"} {
		r.exit(name, 88)
	}
	r.kubelet.podCache = cacheOf{containertest.NewFakeCache(r), r}
	r.kubelet.podManager.SetPods(nil)
	require.NoError(t, r.kubelet.HandlePodCleanups(tCtx))
	require.NoError(t, r.kubelet.SyncTerminatedPod(tCtx, r.pod, r.podStatus()))
	require.NoError(t, r.kubelet.HandlePodCleanups(tCtx))
	r.kubelet.podManager.SetPods([]*v1.Pod{r.pod})
	r.kubelet.podWorkers.(*fakePodWorkers).terminationRequested = nil
	require.NoError(t, r.sync())
	require.NotEqual(t, v1.ConditionTrue, r.condition(v1.PodRestarting).Status)
	r.kubelet.podManager.SetPods(nil)
	r.statuses = nil
	require.NoError(t, r.kubelet.HandlePodCleanups(tCtx))
	require.Nil(t, r.kubelet.podRestarts.get(r.pod.UID))
}

type cacheOf struct {
	kubecontainer.Cache
	r *restartTest
}

func (c cacheOf) Get(types.UID) (*kubecontainer.PodStatus, error) { return c.r.podStatus(), nil }

// A failed hook affects only the instance that it stopped, and not the next one.
func TestRestartPodAfterFailedHook(t *testing.T) {
	r := newRestartTest(t, restartablePod(restartpod.ContainerRestartRuleActionRestartPod), nil)
	r.run()
	r.exit("x", 0)
	for _, err := range []error{kuberuntime.ErrPostStartHook, nil} {
		r.result.SyncResults = []*kubecontainer.SyncResult{{Action: kubecontainer.StartContainer, Target: "x", Error: err}}
		_ = r.sync()
	}
	r.result.SyncResults = nil
	// The instance of the failed hook has been removed in the meantime.
	r.start("x")
	require.NoError(t, r.sync())
	r.exit("x", 88)
	require.NoError(t, r.sync())
	require.Equal(t, []string{"y/30", "s/30"}, r.stopped)
}

// staticPod makes pod a static pod whose mirror pod is not known.
func staticPod(pod *v1.Pod) *v1.Pod {
	pod.Annotations = map[string]string{kubetypes.ConfigSourceAnnotationKey: kubetypes.FileSource}
	return pod
}

// The kubelet learns only from the runtime that a static pod has reached Startup.
func TestRestartStaticPodKubeletRestarts(t *testing.T) {
	t.Run("in Startup", func(t *testing.T) {
		r := newRestartTest(t, staticPod(restartablePod(restartpod.ContainerRestartRuleActionRestartPod)), nil)
		r.run()
		r.fake.fakeClock.Step(5 * time.Second)
		r.exit("x", 88)
		require.NoError(t, r.sync())
		r.fake.fakeClock.Step(2 * time.Second)
		r.start("a")
		r.events()
		r.stopped = nil
		r.restartKubelet()
		require.NoError(t, r.sync())
		require.Empty(t, r.stopped)
		require.Empty(t, r.events())
		require.Equal(t, []string{"a", "a"}, r.synced, "what was started is of the present run")
		require.Equal(t, v1.ConditionTrue, r.condition(v1.PodRestarting).Status)
		r.exit("a", 0)
		r.start("s", "x", "y")
		require.NoError(t, r.sync())
		require.Equal(t, v1.ConditionFalse, r.condition(v1.PodRestarting).Status)
	})
	t.Run("when all had been started", func(t *testing.T) {
		r := newRestartTest(t, staticPod(restartablePod(restartpod.ContainerRestartRuleActionRestartPod)), nil)
		r.run()
		r.exit("x", 88)
		require.NoError(t, r.sync())
		condition := r.condition(v1.PodRestarting)
		require.Equal(t, v1.ConditionTrue, condition.Status)
		r.fake.fakeClock.Step(2 * time.Second)
		r.start("a")
		r.exit("a", 0)
		r.start("s", "x", "y")
		r.restartKubelet()
		require.NoError(t, r.sync())
		mirrorPod := r.pod.DeepCopy()
		mirrorPod.UID = "mirror"
		mirrorPod.Annotations = map[string]string{kubetypes.ConfigSourceAnnotationKey: "api", kubetypes.ConfigMirrorAnnotationKey: r.pod.Annotations[kubetypes.ConfigHashAnnotationKey]}
		mirrorPod.Status.Conditions = []v1.PodCondition{condition}
		r.kubelet.podManager.AddPod(mirrorPod)
		require.NoError(t, r.sync())
		require.Equal(t, v1.ConditionFalse, r.condition(v1.PodRestarting).Status)
	})
	t.Run("before the trigger was seen", func(t *testing.T) {
		r := newRestartTest(t, staticPod(restartablePod(restartpod.ContainerRestartRuleActionRestartPod)), nil)
		r.run()
		r.fake.fakeClock.Step(5 * time.Second)
		r.exit("x", 88)
		r.events()
		r.restartKubelet()
		require.NoError(t, r.sync())
		require.Equal(t, []string{"y/30", "s/30"}, r.stopped)
		require.Len(t, r.events(), 1)
	})
}

// A static pod may change and keep its UID.
func TestRestartPodChanges(t *testing.T) {
	r := newRestartTest(t, staticPod(restartablePod(restartpod.ContainerRestartRuleActionRestartPod)), nil)
	r.run()
	r.pod = r.pod.DeepCopy()
	r.pod.Spec.Containers[0].RestartPolicyRules[0].ExitCodes.Values = []int32{99}
	r.exit("x", 88)
	require.NoError(t, r.sync())
	require.Empty(t, r.stopped, "the rule for 88 is gone")
	r.start("x")
	require.NoError(t, r.sync())
	r.exit("x", 99)
	require.NoError(t, r.sync())
	require.Equal(t, []string{"y/30", "s/30"}, r.stopped)
}

// A static pod that ran and ended, and whose UID runs again, is not in a restart.
func TestRestartPodRunsAgain(t *testing.T) {
	r := newRestartTest(t, staticPod(restartablePod(restartpod.ContainerRestartRuleActionRestartPod)), nil)
	r.run()
	_, tCtx := ktesting.NewTestContext(t)
	r.terminate()
	for _, name := range []string{"s", "x", "y"} {
		r.exit(name, 88)
	}
	require.NoError(t, r.kubelet.SyncTerminatingPod(tCtx, r.pod, r.podStatus(), nil, nil))
	r.kubelet.podWorkers.(*fakePodWorkers).terminationRequested = nil
	r.stopped = nil
	require.NoError(t, r.sync())
	require.Empty(t, r.stopped)
	require.NotEqual(t, v1.ConditionTrue, r.condition(v1.PodRestarting).Status)
}

// With the gate off, upstream's code handles RestartAllContainers.
func TestRestartAllContainersUpstream(t *testing.T) {
	needsRestartAllContainers(t)
	r := newRestartTest(t, restartablePod(v1.ContainerRestartRuleActionRestartAllContainers), nil)
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.KubeletRestartAllContainersBackOff, false)
	r.restartKubelet()
	r.upstream = true
	r.run()
	require.Equal(t, v1.ConditionFalse, r.condition(v1.AllContainersRestarting).Status)
	r.exit("y", 88)
	require.NoError(t, r.sync())
	require.Equal(t, v1.ConditionTrue, r.condition(v1.AllContainersRestarting).Status)
	require.True(t, r.restartingAll)
	require.Empty(t, r.stopped, "it is for the runtime manager")
	require.Nil(t, r.kubelet.podRestarts.get(r.pod.UID))
}

// It is not an error if the sandbox and containers are gone from the runtime.
func TestRestartPodGone(t *testing.T) {
	r := newRestartTest(t, restartablePod(restartpod.ContainerRestartRuleActionRestartPod), nil)
	r.run()
	r.exit("x", 88)
	r.gone = true
	require.NoError(t, r.sync())
	require.Equal(t, []string{"y/30"}, r.stopped)
	require.NotNil(t, r.kubelet.podRestarts.get(r.pod.UID))
}

// The relists in Startup come from one goroutine per pod and use the kubelet's
// clock.
func TestRelistInStartup(t *testing.T) {
	if !relistsOnePod {
		t.Skip("this PLEG looks at all pods, once a second")
	}
	r := newRestartTest(t, restartablePod(restartpod.ContainerRestartRuleActionRestartPod), nil)
	relists := make(chan types.UID)
	r.kubelet.pleg = relister{r.kubelet.pleg, relists}
	r.run()
	_, tCtx := ktesting.NewTestContext(t)
	r.kubelet.relistInStartup(tCtx, r.pod.UID)
	require.False(t, r.fake.fakeClock.HasWaiters(), "there is no restart")
	r.exit("x", 88)
	require.NoError(t, r.sync())
	p := r.kubelet.podRestarts.get(r.pod.UID)
	require.Equal(t, restartpod.PhaseStartup, p.plan.Phase)
	for range 3 {
		r.kubelet.relistInStartup(tCtx, r.pod.UID)
	}
	for n, after := range []time.Duration{50, 100, 200, 400} {
		require.Eventually(t, r.fake.fakeClock.HasWaiters, time.Minute, time.Millisecond)
		r.fake.fakeClock.Step(after * time.Millisecond)
		require.Equal(t, r.pod.UID, <-relists, n)
	}
	require.Eventually(t, func() bool { return !p.relisting.Load() }, time.Minute, time.Millisecond)
	require.False(t, r.fake.fakeClock.HasWaiters())
}
