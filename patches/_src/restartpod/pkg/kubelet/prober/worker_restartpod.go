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

package prober

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"

	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/status"
)

// stopsForRestart reports whether a container that has been running since startedAt
// is about to be stopped because the pod is being restarted. The times have whole
// seconds: a container that started in the second of the restart may belong to the
// new run.
func stopsForRestart(podStatus *v1.PodStatus, startedAt metav1.Time) bool {
	withBackOff := utilfeature.DefaultFeatureGate.Enabled(features.KubeletRestartAllContainersBackOff)
	for _, c := range podStatus.Conditions {
		if (c.Type == v1.PodRestarting || c.Type == v1.AllContainersRestarting && withBackOff) &&
			c.Status == v1.ConditionTrue && status.IsPodRestartCondition(&c) && startedAt.Unix() < c.LastTransitionTime.Unix() {
			return true
		}
	}
	return false
}
