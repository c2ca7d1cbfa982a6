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

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/kuberuntime"
	"k8s.io/kubernetes/pkg/kubelet/restart"
)

// restoreBackOffs restores the back-off of a pod's containers after a restart of the
// kubelet. It does nothing for a container with a known back-off.
func (kl *Kubelet) restoreBackOffs(ctx context.Context, pod *v1.Pod, podStatus *kubecontainer.PodStatus) {
	backOff := kl.restartBackOff
	if backOff == nil {
		return
	}
	statuses := kuberuntime.CrashLoopStatuses(podStatus)
	for i, s := range podStatus.ContainerStatuses {
		statuses[i].BackOff = s.ContainerBackOff
	}
	podutil.VisitContainers(&pod.Spec, podutil.InitContainers|podutil.Containers, func(container *v1.Container, _ podutil.ContainerType) bool {
		if restart.RestoreBackOff(pod, container, statuses, backOff, backOff.Clock.Now()) {
			klog.FromContext(ctx).V(2).Info("Restored back-off of container", "pod", klog.KObj(pod), "podUID", pod.UID, "containerName", container.Name)
		}
		return true
	})
}
