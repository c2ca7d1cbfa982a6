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
	"runtime"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/backoff"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/restart"
)

// FirstStarts is a runtime that delays restarts of containers for first starts.
type FirstStarts interface {
	// OnRestartTurn sets the function that syncs a pod when a delayed restart of one of
	// its containers may go on. The function returns false for a pod that starts no
	// containers.
	OnRestartTurn(sync func(types.UID) bool)
	// WasPutOff reports whether a restart that is being allowed was delayed before. key
	// is the key of the container's back-off.
	WasPutOff(key string) bool
}

// askAgain is when a delayed container is checked again. Its turn comes long before.
const askAgain = time.Minute

// putOffContainer is the action in the result of a delayed start. It is not
// StartContainer, from which the container's status is generated, so the status does not
// change.
const putOffContainer kubecontainer.SyncAction = "PutOffContainer"

// startOrder is a runtime service that gives priority to first starts. A restart that has
// to wait is delayed: its sync ends as if the container were in back-off, and the pod is
// synced again when its turn comes. Waiting in place would block the pod's worker, and
// with it the deletion and every change of the pod. The restart is delayed before
// doBackOff. So no grant has to be given back, and the whole wait counts as lateness.
type startOrder struct {
	internalapi.RuntimeService

	lock  sync.Mutex
	queue startQueue[startKey]
	sync  func(types.UID) bool
	timer *time.Timer
	// putOff has the restarts that are being decided and were delayed before.
	putOff map[string]bool
}

// startKey identifies the restart of the container with this back-off key. An empty
// back-off key stands for any first start of the pod.
type startKey struct {
	pod     types.UID
	backOff string
}

// firstStartsFirst returns a service that gives priority to first starts if the gate is
// on. Otherwise it returns service.
func firstStartsFirst(service internalapi.RuntimeService) internalapi.RuntimeService {
	if !utilfeature.DefaultFeatureGate.Enabled(features.KubeletFirstStartsFirst) {
		return service
	}
	// With one restart per CPU, the runtime is idle between the end of a restart and the
	// sync of the next pod. More than two do not give more restarts per second, because
	// a start mostly uses CPU time. They only slow down a concurrent first start.
	o := &startOrder{RuntimeService: service, sync: func(types.UID) bool { return false }, putOff: map[string]bool{}}
	o.queue.Limit = 2 * runtime.NumCPU()
	return o
}

func (m *kubeGenericRuntimeManager) startOrder() *startOrder {
	o, _ := m.runtimeService.(*startOrder)
	return o
}

// OnRestartTurn implements FirstStarts.
func (m *kubeGenericRuntimeManager) OnRestartTurn(sync func(types.UID) bool) {
	if o := m.startOrder(); o != nil {
		o.change(func(time.Time) { o.sync = sync })
	}
}

// WasPutOff implements FirstStarts.
func (m *kubeGenericRuntimeManager) WasPutOff(key string) bool {
	o := m.startOrder()
	if o == nil {
		return false
	}
	o.lock.Lock()
	defer o.lock.Unlock()
	return o.putOff[key]
}

// change changes the queue and then syncs the pods with a restart that may go on.
func (o *startOrder) change(change func(now time.Time)) {
	var (
		turns []startKey
		sync  func(types.UID) bool
	)
	func() {
		o.lock.Lock()
		defer o.lock.Unlock()
		now := time.Now()
		change(now)
		sync = o.sync
		for k, ok := o.queue.Next(now); ok; k, ok = o.queue.Next(now) {
			turns = append(turns, k)
		}
		at, ok := o.queue.Expiry(now)
		switch {
		case !ok:
		case o.timer == nil:
			o.timer = time.AfterFunc(at.Sub(now), func() {
				defer utilruntime.HandleCrash()
				o.change(func(time.Time) {})
			})
		default:
			o.timer.Reset(at.Sub(now))
		}
	}()
	for _, k := range turns {
		if !sync(k.pod) {
			o.end(k)
		}
	}
}

func (o *startOrder) begin(k startKey) {
	o.change(func(now time.Time) { o.queue.Begin(k, k.backOff == "", now) })
}

func (o *startOrder) end(k startKey) {
	o.change(func(time.Time) { o.queue.End(k) })
}

// syncStart is the current start of a pod's sync.
type syncStart struct {
	startKey
	// putOff has the names of the containers that the sync has delayed.
	putOff []string
}

type syncStartKey struct{}

func syncStartOf(ctx context.Context) *syncStart {
	s, _ := ctx.Value(syncStartKey{}).(*syncStart)
	return s
}

// startsOf returns a context for the starts of a pod's sync, and a function to call with
// the result at the end of the sync. After that call no start of the sync counts.
func (m *kubeGenericRuntimeManager) startsOf(ctx context.Context, pod *v1.Pod) (context.Context, func(*kubecontainer.PodSyncResult)) {
	o := m.startOrder()
	if o == nil {
		return ctx, func(*kubecontainer.PodSyncResult) {}
	}
	s := &syncStart{startKey: startKey{pod: pod.UID}}
	return context.WithValue(ctx, syncStartKey{}, s), func(result *kubecontainer.PodSyncResult) {
		o.end(s.startKey)
		o.end(startKey{pod: pod.UID})
		for _, r := range result.SyncResults {
			if name, ok := r.Target.(string); ok && r.Action == kubecontainer.StartContainer && slices.Contains(s.putOff, name) {
				r.Action = putOffContainer
			}
		}
	}
}

// doBackOffInTurn is strictDoBackOff for a container that may also have to wait for its
// turn after its back-off.
func (m *kubeGenericRuntimeManager) doBackOffInTurn(ctx context.Context, pod *v1.Pod, container *v1.Container, podStatus *kubecontainer.PodStatus, backOff *backoff.Backoff) (bool, string, error) {
	o, s := m.startOrder(), syncStartOf(ctx)
	if o == nil || s == nil {
		return m.strictDoBackOff(ctx, pod, container, podStatus, backOff)
	}
	if s.backOff != "" {
		// The previous start came to nothing.
		o.end(s.startKey)
		s.backOff = ""
	}
	now := backOff.Clock.Now()
	due := restart.Due(pod, container, CrashLoopStatuses(podStatus), backOff, now)
	if podStatus.Restart.InProgress() && !due {
		// A container may also wait in the new run, if its last start failed.
		_, ran := podStatus.Restart.LastCounts[container.Name]
		key := GetBackoffKey(pod, container)
		state, _ := backOff.Snapshot(key, now)
		due = ran && (!state.Due || backOff.Peek(key, time.Time{}, now).Allowed)
	}
	if !due {
		return m.strictDoBackOff(ctx, pod, container, podStatus, backOff)
	}
	k, ok := startKey{pod.UID, GetBackoffKey(pod, container)}, false
	o.change(func(now time.Time) {
		var waited bool
		if ok, waited = o.queue.Restart(k, now); waited {
			o.putOff[k.backOff] = true
		}
	})
	if !ok {
		klog.FromContext(ctx).V(3).Info("Restart of container is put off for other starts", "pod", klog.KObj(pod), "containerName", container.Name)
		s.putOff = append(s.putOff, container.Name)
		return true, "put off for other starts", restart.NewBackoffError(kubecontainer.ErrCrashLoopBackOff, now.Add(askAgain))
	}
	s.startKey = k
	defer o.change(func(time.Time) { delete(o.putOff, k.backOff) })
	isInBackOff, msg, err := m.strictDoBackOff(ctx, pod, container, podStatus, backOff)
	if isInBackOff {
		o.end(k)
		s.backOff = ""
	}
	return isInBackOff, msg, err
}

// RunPodSandbox implements internalapi.RuntimeService. The start continues after it with
// the first containers of the pod.
func (o *startOrder) RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, runtimeHandler string) (string, error) {
	if s := syncStartOf(ctx); s != nil {
		o.begin(s.startKey)
	}
	return o.RuntimeService.RunPodSandbox(ctx, config, runtimeHandler)
}

// CreateContainer implements internalapi.RuntimeService.
func (o *startOrder) CreateContainer(ctx context.Context, podSandboxID string, config *runtimeapi.ContainerConfig, sandboxConfig *runtimeapi.PodSandboxConfig) (string, error) {
	if s := syncStartOf(ctx); s != nil {
		o.begin(s.startKey)
	}
	return o.RuntimeService.CreateContainer(ctx, podSandboxID, config, sandboxConfig)
}

// StartContainer implements internalapi.RuntimeService. The start ends with it: a
// postStart hook may take any time.
func (o *startOrder) StartContainer(ctx context.Context, containerID string) error {
	if s := syncStartOf(ctx); s != nil {
		defer func() { o.end(s.startKey) }()
	}
	return o.RuntimeService.StartContainer(ctx, containerID)
}
