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

	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
)

// podRestarting reports whether a pod is being restarted because of a rule with the
// action RestartPod, regardless of the gate.
func podRestarting(status *v1.PodStatus) bool {
	_, c := podutil.GetPodCondition(status, v1.PodRestarting)
	return c != nil && c.Status == v1.ConditionTrue
}
