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

	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/features"
)

// stillInitialized returns the condition Initialized of a pod whose init containers were
// complete before and are not complete now. A restart of the pod leaves it initialized.
// Later releases do this themselves.
func stillInitialized(pod *v1.Pod, oldPodStatus *v1.PodStatus) *v1.PodCondition {
	if !utilfeature.DefaultFeatureGate.Enabled(features.RestartPodOnContainerExits) {
		return nil
	}
	_, c := podutil.GetPodCondition(oldPodStatus, v1.PodInitialized)
	if c == nil || c.Status != v1.ConditionTrue {
		return nil
	}
	return &v1.PodCondition{
		Type:               v1.PodInitialized,
		ObservedGeneration: podutil.CalculatePodConditionObservedGeneration(oldPodStatus, pod.Generation, v1.PodInitialized),
		Status:             v1.ConditionTrue,
	}
}
