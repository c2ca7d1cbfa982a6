// SPDX-License-Identifier: Apache-2.0

package restartpod

import (
	v1 "k8s.io/api/core/v1"
)

// ContainerRestartRuleActionRestartPod restarts the pod in place (KEP-5532, "API").
// Upstream has RestartAllContainers instead, which gives containers no time to
// stop.
const ContainerRestartRuleActionRestartPod v1.ContainerRestartRuleAction = "RestartPod"

// Gates are the feature gates for restart rules and policies. The zero value is a
// node without restart rules.
type Gates struct {
	// ContainerRestartRules enables container-level restart policies and rules.
	// Without it, only sidecars have their own policy.
	ContainerRestartRules bool
	// RestartPod is the gate RestartPodOnContainerExits.
	RestartPod bool
	// RestartAllContainers is the gate RestartAllContainersOnContainerExits.
	RestartAllContainers bool
}

// Kind is the kind of a container in its pod.
type Kind string

// The kinds. A sidecar is an init container with the restart policy Always.
const (
	KindInit      Kind = "init"
	KindSidecar   Kind = "sidecar"
	KindRegular   Kind = "container"
	KindEphemeral Kind = "ephemeral"
)

// Containers returns the containers of a pod in the order of
// Observation.Containers, without statuses: first init containers and sidecars,
// then regular containers, then ephemeral containers, each in the order of the
// spec.
func Containers(spec *v1.PodSpec, gates Gates) []Container {
	containers := make([]Container, 0, len(spec.InitContainers)+len(spec.Containers)+len(spec.EphemeralContainers))
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		kind := KindInit
		if c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways {
			kind = KindSidecar
		}
		containers = append(containers, gates.container(spec, kind, c))
	}
	for i := range spec.Containers {
		containers = append(containers, gates.container(spec, KindRegular, &spec.Containers[i]))
	}
	for i := range spec.EphemeralContainers {
		containers = append(containers, Container{
			Name: spec.EphemeralContainers[i].Name, Kind: KindEphemeral, Policy: v1.ContainerRestartPolicyNever,
		})
	}
	return containers
}

func (g Gates) container(spec *v1.PodSpec, kind Kind, c *v1.Container) Container {
	container := Container{Name: c.Name, Kind: kind, Policy: v1.ContainerRestartPolicyAlways}
	switch spec.RestartPolicy {
	case v1.RestartPolicyNever, v1.RestartPolicyOnFailure:
		container.Policy = v1.ContainerRestartPolicy(spec.RestartPolicy)
	}
	if c.RestartPolicy != nil && (g.ContainerRestartRules || kind == KindSidecar) {
		switch own := *c.RestartPolicy; own {
		case v1.ContainerRestartPolicyNever, v1.ContainerRestartPolicyOnFailure, v1.ContainerRestartPolicyAlways:
			container.Policy = own
		}
	}
	if g.ContainerRestartRules && c.RestartPolicy != nil {
		container.Rules = c.RestartPolicyRules
	}
	if kind == KindInit && container.Policy == v1.ContainerRestartPolicyAlways {
		container.Policy = v1.ContainerRestartPolicyOnFailure
	}
	return container
}

// match returns the action of the first rule that matches the exit code, and "" if
// there is none. A rule without exit codes, or with an operator other than In and
// NotIn, never matches. It behaves like FindMatchingContainerRestartRule of
// pkg/api/v1/pod.
func match(rules []v1.ContainerRestartRule, exitCode int32) v1.ContainerRestartRuleAction {
	for i := range rules {
		on := rules[i].ExitCodes
		if on == nil {
			continue
		}
		listed := false
		for _, value := range on.Values {
			listed = listed || value == exitCode
		}
		switch on.Operator {
		case v1.ContainerRestartRuleOnExitCodesOpIn:
			if listed {
				return rules[i].Action
			}
		case v1.ContainerRestartRuleOnExitCodesOpNotIn:
			if !listed {
				return rules[i].Action
			}
		}
	}
	return ""
}

// OnExit returns the action for an exit of the container with exitCode: one of the
// three actions, or "" if the container is not started again. The first matching
// rule decides. The restart policy decides instead in three cases: the gate of the
// rule's action is off, the action is unknown, or the action is for the whole pod
// and the agent stopped the container (Status.StoppedByAgent). A later rule never
// decides. OnExit corrects ContainerShouldRestart of pkg/api/v1/pod, which treats
// the actions for the whole pod like Restart.
func (g Gates) OnExit(c *Container, exitCode int32) v1.ContainerRestartRuleAction {
	action := match(c.Rules, exitCode)
	stopped := c.Status != nil && c.Status.StoppedByAgent
	switch {
	case action == ContainerRestartRuleActionRestartPod && g.RestartPod && !stopped,
		action == v1.ContainerRestartRuleActionRestartAllContainers && g.RestartAllContainers && !stopped:
		return action
	case c.Kind == KindInit && exitCode == 0:
		// It is done, regardless of its policy and rules.
		return ""
	case action == v1.ContainerRestartRuleActionRestart,
		c.Policy == v1.ContainerRestartPolicyAlways,
		c.Policy == v1.ContainerRestartPolicyOnFailure && exitCode != 0:
		return v1.ContainerRestartRuleActionRestart
	}
	return ""
}
