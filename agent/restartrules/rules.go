// SPDX-License-Identifier: Apache-2.0

package restartrules

import (
	v1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

// Of returns the restart rules of a container. A rule without exit codes has no
// operator, so it never matches.
func Of(c *v1.Container) []restartpod.Rule {
	var rules []restartpod.Rule
	for _, r := range c.RestartPolicyRules {
		rule := restartpod.Rule{Action: restartpod.Action(r.Action)}
		if r.ExitCodes != nil {
			rule.Operator, rule.Values = restartpod.Operator(r.ExitCodes.Operator), r.ExitCodes.Values
		}
		rules = append(rules, rule)
	}
	return rules
}

// Containers returns restartpod.Containers of the spec, with the rules in it.
func Containers(spec *v1.PodSpec, gates restartpod.Gates) []restartpod.Container {
	return restartpod.Containers(spec, gates, Of)
}
