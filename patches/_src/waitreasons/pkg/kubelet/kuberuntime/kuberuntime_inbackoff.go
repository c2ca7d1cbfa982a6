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

	v1 "k8s.io/api/core/v1"

	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/restart"
)

// BackOffRuntime is a runtime that can report in advance which containers have to
// wait.
type BackOffRuntime interface {
	// StartsInBackOff returns the results that SyncPod would have for exited
	// containers that it would not start now because of their back-off. It starts
	// and kills nothing, and begins no wait.
	StartsInBackOff(ctx context.Context, pod *v1.Pod, podStatus *kubecontainer.PodStatus) kubecontainer.PodSyncResult
}

func (m *kubeGenericRuntimeManager) StartsInBackOff(ctx context.Context, pod *v1.Pod, podStatus *kubecontainer.PodStatus) (result kubecontainer.PodSyncResult) {
	backOff := m.restartBackOff
	if backOff == nil {
		return result
	}
	changes := m.podActions(ctx, pod, podStatus)
	if changes.KillPod && !changes.CreateSandbox {
		return result
	}
	starts := make([]*v1.Container, 0, len(changes.InitContainersToStart)+len(changes.ContainersToStart))
	for _, i := range changes.InitContainersToStart {
		starts = append(starts, &pod.Spec.InitContainers[i])
	}
	for _, i := range changes.ContainersToStart {
		starts = append(starts, &pod.Spec.Containers[i])
	}
	statuses, now := CrashLoopStatuses(podStatus), backOff.Clock.Now()
	for _, container := range starts {
		if s := podStatus.FindContainerStatusByName(container.Name); s == nil || s.State != kubecontainer.ContainerStateExited {
			continue
		}
		if waiting, message := restart.InBackOff(pod, container, statuses, backOff, now); waiting {
			r := kubecontainer.NewSyncResult(kubecontainer.StartContainer, container.Name)
			r.Fail(kubecontainer.ErrCrashLoopBackOff, message)
			result.AddSyncResult(r)
		}
	}
	return result
}
