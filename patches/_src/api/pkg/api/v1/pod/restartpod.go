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

package pod

import (
	v1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"

	"k8s.io/kubernetes/pkg/features"
)

// PodCouldRestart returns true if a container of the pod has a rule with the
// action RestartPod, regardless of the feature gate. It corresponds to
// AllContainersCouldRestart for RestartAllContainers. The two are separate
// because AllContainersCouldRestart decides which pods have the condition
// AllContainersRestarting.
func PodCouldRestart(pod *v1.PodSpec) bool {
	if pod == nil {
		return false
	}
	for container := range ContainerIter(pod, InitContainers|Containers) {
		for _, rule := range container.RestartPolicyRules {
			if rule.Action == v1.ContainerRestartRuleActionRestartPod {
				return true
			}
		}
	}
	return false
}

// WholePodRestartable returns true if the exit of a container can restart all
// containers of the pod.
func WholePodRestartable(pod *v1.PodSpec) bool {
	return utilfeature.DefaultFeatureGate.Enabled(features.RestartPodOnContainerExits) && PodCouldRestart(pod) ||
		utilfeature.DefaultFeatureGate.Enabled(features.RestartAllContainersOnContainerExits) && AllContainersCouldRestart(pod)
}
