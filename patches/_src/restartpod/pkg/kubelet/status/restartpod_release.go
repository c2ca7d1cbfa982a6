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

package status

import (
	v1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"

	"k8s.io/kubernetes/pkg/features"
)

// restartPodEnabled reports whether a rule can have the action RestartPod.
func restartPodEnabled() bool {
	return utilfeature.DefaultFeatureGate.Enabled(features.RestartPodOnContainerExits)
}

// updateRestartTransitionTime sets the time of the condition AllContainersRestarting,
// unless it has the time of the exit that restarts the pod.
func updateRestartTransitionTime(status, oldStatus *v1.PodStatus) {
	if !utilfeature.DefaultFeatureGate.Enabled(features.KubeletRestartAllContainersBackOff) {
		updateLastTransitionTime(status, oldStatus, v1.AllContainersRestarting)
	}
}
