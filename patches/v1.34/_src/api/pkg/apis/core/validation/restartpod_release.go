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

// RestartPodInUse returns true if the pod uses something that only RestartPod
// allows: a rule with that action, or a sidecar with rules.
func RestartPodInUse(podSpec *core.PodSpec) bool {
	if podSpec == nil {
		return false
	}
	for _, c := range podSpec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == core.ContainerRestartPolicyAlways && len(c.RestartPolicyRules) > 0 {
			return true
		}
	}
	return RestartActionInUse(podSpec, core.ContainerRestartRuleActionRestartPod)
}

// restartRuleActions returns the actions that a restart rule may have.
func (opts PodValidationOptions) restartRuleActions() []core.ContainerRestartRuleAction {
	actions := []core.ContainerRestartRuleAction{core.ContainerRestartRuleActionRestart}
	if opts.AllowRestartPod {
		actions = append(actions, core.ContainerRestartRuleActionRestartPod)
	}
	return actions
}
