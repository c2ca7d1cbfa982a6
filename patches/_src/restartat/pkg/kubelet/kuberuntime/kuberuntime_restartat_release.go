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
	v1 "k8s.io/api/core/v1"

	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/restartpod"
)

// podBackOffKey returns the key of the pod's back-off if the pod is being restarted, and
// whether the container waits for that. One that is only held in this sync does not.
func podBackOffKey(pod *v1.Pod, container *v1.Container, podStatus *kubecontainer.PodStatus) (key string, waits bool) {
	r := podStatus.Restart
	waits = r != nil && r.Waits != nil && r.Wait(pod, container) != nil
	if waits || r.InProgress() {
		key = restartpod.New(nil, pod, restartpod.Gates{}).BackOffKey()
	}
	return key, waits
}
