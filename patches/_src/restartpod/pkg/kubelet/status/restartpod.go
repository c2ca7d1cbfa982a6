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
	"k8s.io/kubernetes/pkg/kubelet/restartpod"
)

// IsPodRestartCondition reports whether a kubelet set the condition for a restart of the
// pod. The reason decides and not a gate: a kubelet that starts with the gate off ends
// a restart that is in progress, and a condition of this type from elsewhere is not
// the kubelet's.
func IsPodRestartCondition(c *v1.PodCondition) bool {
	if c.Type != v1.PodRestarting && c.Type != v1.AllContainersRestarting {
		return false
	}
	switch c.Reason {
	case restartpod.ReasonContainerExited, restartpod.ReasonContainersStarted, restartpod.ReasonPodFailed, restartpod.ReasonPodDeleted:
		return true
	}
	return false
}

// podRestarting reports whether a pod is being restarted because of a rule with the
// action RestartPod.
func podRestarting(status *v1.PodStatus) bool {
	_, c := podutil.GetPodCondition(status, v1.PodRestarting)
	return c != nil && c.Status == v1.ConditionTrue && IsPodRestartCondition(c)
}
