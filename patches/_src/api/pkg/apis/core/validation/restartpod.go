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

package validation

import (
	"k8s.io/kubernetes/pkg/apis/core"
)

// RestartActionInUse returns true if a container of the pod has a rule with the
// action.
func RestartActionInUse(podSpec *core.PodSpec, action core.ContainerRestartRuleAction) bool {
	if podSpec == nil {
		return false
	}
	for _, containers := range [][]core.Container{podSpec.InitContainers, podSpec.Containers} {
		for _, container := range containers {
			for _, rule := range container.RestartPolicyRules {
				if rule.Action == action {
					return true
				}
			}
		}
	}
	return false
}

// podCouldRestart returns true if a rule could have restarted the pod. Any
// container, including init containers, may then leave the terminated state,
// regardless of its restart policy and exit code. It does not check whether a
// rule did restart the pod: the exit of that rule's container may be missing
// from every written status.
func (opts PodValidationOptions) podCouldRestart(podSpec *core.PodSpec) bool {
	return opts.AllowContainerRestartPolicyRules && opts.AllowRestartPod && RestartActionInUse(podSpec, core.ContainerRestartRuleActionRestartPod)
}
