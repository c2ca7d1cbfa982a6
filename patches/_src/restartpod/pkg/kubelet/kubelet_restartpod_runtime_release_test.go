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

	"k8s.io/apimachinery/pkg/types"

	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// The test helpers in this file depend on the Kubernetes release.

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

// GetPodStatus returns only the containers and sandboxes of the given pod, like
// the real one.
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

// hasPostSync reports whether SyncPod returns a function to call after it.
const hasPostSync = true
