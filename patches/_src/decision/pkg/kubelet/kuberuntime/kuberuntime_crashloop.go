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
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/flowcontrol"

	"k8s.io/kubernetes/pkg/kubelet/backoff"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/restart"
)

// containerBackOff holds the back-off of the node's containers.
type containerBackOff struct {
	// restartBackOff, if not nil, is used instead of the back-off that SyncPod gets.
	// The rules of pkg/kubelet/restart apply then.
	restartBackOff *backoff.Backoff
}

// UseBackOff makes the runtime manager use the back-off. Call it before the first
// sync.
func UseBackOff(runtime KubeGenericRuntime, b *backoff.Backoff) {
	runtime.(*kubeGenericRuntimeManager).restartBackOff = b
}

// doRestartBackOff is doBackOff with the rules of pkg/kubelet/restart. changes is what the
// sync does with the pod.
func (m *kubeGenericRuntimeManager) doRestartBackOff(ctx context.Context, pod *v1.Pod, container *v1.Container, podStatus *kubecontainer.PodStatus, backOff *flowcontrol.Backoff, changes podActions) (bool, string, error) {
	if m.restartBackOff == nil {
		return m.doClientGoBackOff(ctx, pod, container, podStatus, backOff)
	}
	if !regularContainersHavePolicies() &&
		slices.ContainsFunc(pod.Spec.Containers, func(c v1.Container) bool { return c.Name == container.Name }) {
		withoutPolicy := *container
		withoutPolicy.RestartPolicy = nil
		container = &withoutPolicy
	}
	statuses := CrashLoopStatuses(podStatus)
	for i, c := range podStatus.ContainerStatuses {
		killed, ok := changes.ContainersToKill[c.ID]
		// SyncPod kills without a reason what was changed or resized.
		statuses[i].Replaced = ok && killed.reason == ""
	}
	waits, message, err := restart.DoBackOff(ctx, m.recorderFor(ctx), pod, container, statuses, m.restartBackOff, m.restartBackOff.Clock.Now())
	if at, ok := restart.MinBackoffExpiration(err); ok {
		err = kubecontainer.NewBackoffError(kubecontainer.ErrCrashLoopBackOff, at)
	}
	return waits, message, err
}

// CrashLoopStatuses converts the statuses of a pod's instances for
// pkg/kubelet/restart.
func CrashLoopStatuses(podStatus *kubecontainer.PodStatus) []restart.ContainerStatus {
	statuses := make([]restart.ContainerStatus, 0, len(podStatus.ContainerStatuses))
	for _, c := range podStatus.ContainerStatuses {
		statuses = append(statuses, CrashLoopStatus(c))
	}
	return statuses
}

// CrashLoopStatus converts the status of an instance, without its ID.
func CrashLoopStatus(c *kubecontainer.Status) restart.ContainerStatus {
	return restart.ContainerStatus{
		Name: c.Name, State: restart.ContainerState(c.State), ExitCode: int32(c.ExitCode),
		StartedAt: c.StartedAt, FinishedAt: c.FinishedAt, RestartCount: c.RestartCount,
	}
}

// answerFailedStart updates the result of a start that doRestartBackOff allowed, if the
// start failed. A start that failed after something was created counts as an exit:
// its error becomes a BackoffError with the same text and the time of the next
// attempt. After any other failure the start does not count, and the error is
// unchanged.
func (m *kubeGenericRuntimeManager) answerFailedStart(pod *v1.Pod, container *v1.Container, result *kubecontainer.SyncResult) {
	if result.Error == nil || m.restartBackOff == nil {
		return
	}
	created := false
	for _, after := range []error{ErrCreateContainer, ErrPreStartHook, kubecontainer.ErrRunContainer, ErrPostStartHook} {
		created = created || errors.Is(result.Error, after)
	}
	err := restart.StartFailed(pod, container, created, result.Error, m.restartBackOff, m.restartBackOff.Clock.Now())
	if at, ok := restart.MinBackoffExpiration(err); ok && created {
		result.Error = kubecontainer.NewBackoffError(result.Error, at)
	}
}
