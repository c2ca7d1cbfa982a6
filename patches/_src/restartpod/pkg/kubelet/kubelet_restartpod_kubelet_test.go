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
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/featuregate"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"k8s.io/kubernetes/pkg/kubelet/cm"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	containertest "k8s.io/kubernetes/pkg/kubelet/container/testing"
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
	// lastStopped has for each container the instance that the kubelet stopped last, as
	// in the pod's directory.
	lastStopped map[string]string
	stoppedAt   restartpod.StopTime
	readStopped int
	// stop, if not nil, is what SyncPod does before it would start containers.
	stop func()
	// read, if not nil, runs before the runtime's statuses are read.
	read func()
	// held has the regular containers that do not start in the last SyncPod.
	held map[string]bool
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
	r.kubelet.podRestarts = newPodRestarts(r.fake.fakeClock, r, 10*time.Second, 300*time.Second)
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

func (r *restartTest) LastStopped(_ types.UID, name string) (string, restartpod.StopTime) {
	r.readStopped++
	return r.lastStopped[name], r.stoppedAt
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
	if r.stop != nil {
		r.stop()
	}
	r.held = map[string]bool{}
	for i := range r.pod.Spec.Containers {
		c := &r.pod.Spec.Containers[i]
		r.held[c.Name] = podStatus.Restart.Wait(r.pod, c) != nil
	}
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
	if r.read != nil {
		r.read()
	}
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

// terminate marks the pod as being terminated, as after its deletion.
func (r *restartTest) terminate() {
	r.kubelet.podWorkers.(*fakePodWorkers).terminationRequested = map[types.UID]bool{r.pod.UID: true}
}

type evictAfter struct{ *restartTest }

func (e evictAfter) ShouldEvict(*v1.Pod) lifecycle.ShouldEvictResponse {
	return lifecycle.ShouldEvictResponse{Evict: len(e.stopped) > 0, Reason: "DeadlineExceeded"}
}

// podKiller stops the containers and the sandbox of a pod that is killed.
type podKiller struct{ *restartTest }

func (k podKiller) KillPod(context.Context, *v1.Pod, kubecontainer.Pod, *int64) error {
	for _, s := range k.statuses {
		if s.State == kubecontainer.ContainerStateRunning {
			s.State, s.ExitCode, s.FinishedAt = kubecontainer.ContainerStateExited, 137, k.fake.fakeClock.Now()
		}
	}
	k.sandboxLost = true
	return nil
}

type failingStopper struct{ kuberuntime.ContainerStopper }

func (failingStopper) StopContainer(context.Context, *v1.Pod, kubecontainer.ContainerID, string, string, int64) error {
	return errors.New("no")
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

type cacheOf struct {
	kubecontainer.Cache
	r *restartTest
}

func (c cacheOf) Get(types.UID) (*kubecontainer.PodStatus, error) { return c.r.podStatus(), nil }

// staticPod makes pod a static pod whose mirror pod is not known.
func staticPod(pod *v1.Pod) *v1.Pod {
	pod.Annotations = map[string]string{kubetypes.ConfigSourceAnnotationKey: kubetypes.FileSource}
	return pod
}
