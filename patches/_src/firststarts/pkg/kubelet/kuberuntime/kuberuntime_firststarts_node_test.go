//go:build go1.25

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
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/record"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/backoff"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/restart"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// observedRuntime calls create and start in the calls of these names. They may block
// or fail.
type observedRuntime struct {
	internalapi.RuntimeService
	create, start func(types.UID) error
	lock          sync.Mutex
	pods          map[string]types.UID
}

func (r *observedRuntime) CreateContainer(ctx context.Context, sandboxID string, config *runtimeapi.ContainerConfig, sandboxConfig *runtimeapi.PodSandboxConfig) (string, error) {
	uid := types.UID(sandboxConfig.Metadata.Uid)
	if r.create != nil {
		if err := r.create(uid); err != nil {
			return "", err
		}
	}
	id, err := r.RuntimeService.CreateContainer(ctx, sandboxID, config, sandboxConfig)
	r.lock.Lock()
	defer r.lock.Unlock()
	r.pods[id] = uid
	return id, err
}

func (r *observedRuntime) StartContainer(ctx context.Context, id string) error {
	r.lock.Lock()
	uid := r.pods[id]
	r.lock.Unlock()
	if r.start != nil {
		if err := r.start(uid); err != nil {
			return err
		}
	}
	return r.RuntimeService.StartContainer(ctx, id)
}

// orderedNode is a runtime manager with pods whose containers crash.
type orderedNode struct {
	t       *testing.T
	ctx     context.Context
	m       *kubeGenericRuntimeManager
	runtime *observedRuntime
	backOff *backoff.Backoff
	events  chan string
	lock    sync.Mutex
	turns   []types.UID
	deleted map[types.UID]bool
}

// withOrderedNode runs test in a bubble. The runtime manager is created outside
// because it has goroutines that do not end.
func withOrderedNode(t *testing.T, limit int, test func(*testing.T, *orderedNode)) {
	_, fakeImage, m, err := runtimeManagerForTest(ktesting.Init(t), record.NewFakeRecorder(0))
	require.NoError(t, err)
	fakeImage.SetFakeImages([]string{"busybox"})
	synctest.Test(t, func(t *testing.T) { test(t, newOrderedNode(t, m, limit)) })
}

func newOrderedNode(t *testing.T, m *kubeGenericRuntimeManager, limit int) *orderedNode {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.KubeletFirstStartsFirst, true)
	ctx := ktesting.InitCtx(context.Background(), t)
	recorder := record.NewFakeRecorder(10000)
	m.recorder = recorder
	n := &orderedNode{t: t, ctx: ctx, m: m, events: recorder.Events, deleted: map[types.UID]bool{}}
	n.runtime = &observedRuntime{RuntimeService: m.runtimeService, pods: map[string]types.UID{}}
	m.runtimeService = firstStartsFirst(n.runtime)
	m.startOrder().queue.Limit = limit
	n.backOff = backoff.NewBackOff(time.Second, time.Second)
	m.OnRestartTurn(func(uid types.UID) bool {
		n.lock.Lock()
		defer n.lock.Unlock()
		if n.deleted[uid] {
			return false
		}
		n.turns = append(n.turns, uid)
		return true
	})
	return n
}

// crashed returns a pod whose only container has exited.
func crashed(uid types.UID) (*v1.Pod, *kubecontainer.PodStatus) {
	pod, status := makeBasePodAndStatus()
	pod.UID, pod.Name, status.ID, status.Name = uid, string(uid), uid, string(uid)
	pod.Spec.Containers = pod.Spec.Containers[:1]
	pod.Spec.Containers[0].ImagePullPolicy = v1.PullIfNotPresent
	status.SandboxStatuses[0].Id = string(uid)
	status.ContainerStatuses = status.ContainerStatuses[:1]
	status.ActiveContainerStatuses = nil
	s := status.ContainerStatuses[0]
	s.State, s.StartedAt, s.FinishedAt = kubecontainer.ContainerStateExited, time.Now(), time.Now()
	return pod, status
}

// fresh returns a pod whose container has not run yet.
func fresh(uid types.UID) (*v1.Pod, *kubecontainer.PodStatus) {
	pod, status := crashed(uid)
	status.ContainerStatuses = nil
	return pod, status
}

func (n *orderedNode) sync(pod *v1.Pod, status *kubecontainer.PodStatus) error {
	result := n.m.syncPodForTest(n.ctx, pod, status, n.backOff)
	return result.Error()
}

// starts checks that a sync of the pod starts its container.
func (n *orderedNode) starts(pod *v1.Pod, status *kubecontainer.PodStatus) {
	n.t.Helper()
	require.NoError(n.t, n.sync(pod, status))
}

// putsOff checks that a sync of the pod delays the start and does nothing else: it
// grants nothing, records no event and has no result that changes the status.
func (n *orderedNode) putsOff(pod *v1.Pod, status *kubecontainer.PodStatus) {
	n.t.Helper()
	before, events := n.backOff.Get(GetBackoffKey(pod, &pod.Spec.Containers[0])), len(n.events)
	result := n.m.syncPodForTest(n.ctx, pod, status, n.backOff)
	err := result.Error()
	require.ErrorIs(n.t, err, kubecontainer.ErrCrashLoopBackOff)
	require.True(n.t, restart.OnlyBackOff(err))
	require.Equal(n.t, before, n.backOff.Get(GetBackoffKey(pod, &pod.Spec.Containers[0])), "nothing is granted")
	require.Len(n.t, n.events, events)
	for _, r := range result.SyncResults {
		require.NotEqual(n.t, kubecontainer.StartContainer, r.Action, "it would be the reason in the status")
	}
}

// wantTurns checks which pods have been synced because of their turn.
func (n *orderedNode) wantTurns(want ...types.UID) {
	n.t.Helper()
	synctest.Wait()
	n.lock.Lock()
	defer n.lock.Unlock()
	require.Equal(n.t, want, n.turns)
	n.turns = nil
}

// wantIdle checks that no start counts.
func (n *orderedNode) wantIdle() {
	n.t.Helper()
	o := n.m.startOrder()
	for i := range o.queue.Limit {
		k := startKey{types.UID(fmt.Sprint(i)), "k"}
		ok, _ := o.queue.Restart(k, time.Now())
		require.True(n.t, ok)
		defer o.queue.End(k)
	}
	require.Empty(n.t, o.putOff)
}

// hanging starts crashed pods. These starts block until release is called.
func (n *orderedNode) hanging(uids ...types.UID) (release func()) {
	held := make(chan struct{})
	n.runtime.start = func(types.UID) error { <-held; return nil }
	for _, uid := range uids {
		go n.starts(crashed(uid))
	}
	synctest.Wait()
	return func() {
		n.runtime.start = nil
		close(held)
	}
}

// askingClock calls ask whenever its time is read.
type askingClock struct {
	clock.Clock
	ask func()
}

func (c askingClock) Now() time.Time {
	c.ask()
	return c.Clock.Now()
}
