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
	v1 "k8s.io/api/core/v1"

	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// The functions in this file depend on the Kubernetes release.

// presentInRestart returns its arguments: no pod is restarted.
func (kl *Kubelet) presentInRestart(pod *v1.Pod, podStatus *kubecontainer.PodStatus) (*v1.Pod, *kubecontainer.PodStatus) {
	return pod, podStatus
}

// restartsAllContainers reports whether an exit restarts all containers of the pod. In that
// case no container waits.
func restartsAllContainers(*v1.Pod, *kubecontainer.PodStatus) bool {
	return false
}
