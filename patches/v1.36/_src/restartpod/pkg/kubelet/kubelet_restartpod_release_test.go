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
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/component-base/featuregate"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"k8s.io/kubernetes/pkg/features"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/pleg"
)

// What tests call here has other arguments from release to release.

type plegForTest struct {
	pleg.PodLifecycleEventGenerator
}

func newPLEGForTest(runtime kubecontainer.Runtime, events chan *pleg.PodLifecycleEvent, cache kubecontainer.Cache) plegForTest {
	duration := &pleg.RelistDuration{RelistPeriod: time.Second, RelistThreshold: time.Minute}
	return plegForTest{pleg.NewGenericPLEG(klog.New(nil), runtime, events, duration, cache, clock.RealClock{})}
}

func (p plegForTest) start(context.Context) { p.Start() }
func (p plegForTest) relist(uid types.UID)  { p.RequestRelist(uid) }

type relister struct {
	pleg.PodLifecycleEventGenerator
	relists chan types.UID
}

func (r relister) RequestRelist(uid types.UID) { r.relists <- uid }

func (r *restartTest) GetPod(context.Context, types.UID) (*kubecontainer.Pod, error) {
	if r.gone {
		return nil, kubecontainer.ErrPodNotFound
	}
	status := r.podStatus()
	pod := kubecontainer.ConvertPodStatusToRunningPod("test", status)
	for _, s := range status.ContainerStatuses {
		if s.State != kubecontainer.ContainerStateRunning {
			pod.Containers = append(pod.Containers, &kubecontainer.Container{ID: s.ID, Name: s.Name, State: s.State})
		}
	}
	return &pod, nil
}

// GetPodStatus has, as the real one, what the given pod names.
func (r *restartTest) GetPodStatus(_ context.Context, pod *kubecontainer.Pod) (*kubecontainer.PodStatus, error) {
	status := r.podStatus()
	status.ContainerStatuses = slices.DeleteFunc(status.ContainerStatuses, func(s *kubecontainer.Status) bool {
		return pod.FindContainerByName(s.Name) == nil
	})
	status.ActiveContainerStatuses = status.ContainerStatuses
	if len(pod.Sandboxes) == 0 {
		status.SandboxStatuses = nil
	}
	return status, nil
}

func (r *exitsRuntime) GetPod(context.Context, types.UID) (*kubecontainer.Pod, error) {
	pod := &kubecontainer.Pod{ID: r.uid, Timestamp: time.Now()}
	r.addContainers(pod)
	return pod, nil
}

func (r *exitsRuntime) GetPodStatus(_ context.Context, pod *kubecontainer.Pod) (*kubecontainer.PodStatus, error) {
	status := r.statusOf(func(id kubecontainer.ContainerID) bool { return pod.FindContainerByID(id) != nil })
	status.TimeStamp = pod.Timestamp
	return status, nil
}

// restartGates are the gates that a restartTest sets.
var restartGates = []featuregate.Feature{features.NodeDeclaredFeatures, features.RestartPodOnContainerExits, features.RestartAllContainersOnContainerExits}

func needsRestartAllContainers(*testing.T) {}

// actionToMeasure is the action whose restarts a test of metrics makes.
const actionToMeasure = v1.ContainerRestartRuleActionRestartAllContainers

func (r *restartTest) SyncPod(_ context.Context, pod *v1.Pod, podStatus *kubecontainer.PodStatus, _ []v1.Secret, _ *flowcontrol.Backoff, restartAllContainers bool) kubecontainer.PodSyncResult {
	return r.syncPod(pod, podStatus, restartAllContainers)
}

func shouldBeRestarted(container *v1.Container, pod *v1.Pod, podStatus *kubecontainer.PodStatus) bool {
	return kubecontainer.ShouldContainerBeRestarted(klog.New(nil), container, pod, podStatus)
}

func (c withoutPodCgroups) EnsureExists(klog.Logger, *v1.Pod) error { return c.err }

// hasPostSync tells whether SyncPod returns what is to be done after it.
const hasPostSync = true
