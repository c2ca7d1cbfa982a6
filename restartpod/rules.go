// SPDX-License-Identifier: Apache-2.0

package restartpod

import (
	v1 "k8s.io/api/core/v1"
)

// ContainerRestartRuleActionRestartPod restarts the pod in place: KEP-5532,
// "API". Upstream has RestartAllContainers instead, which gives containers no
// time to stop.
const ContainerRestartRuleActionRestartPod v1.ContainerRestartRuleAction = "RestartPod"

// Gates are the feature gates that restart rules and policies depend on. The
// zero value is a node without restart rules.
type Gates struct {
	// ContainerRestartRules makes container-level restart policies and rules
	// count. Without it sidecars alone have a policy of their own.
	ContainerRestartRules bool
	// RestartPod is the gate RestartPodOnContainerExits.
	RestartPod bool
	// RestartAllContainers is the gate RestartAllContainersOnContainerExits.
	RestartAllContainers bool
}

// Kind is what a container is to its pod.
type Kind string

// The kinds. A sidecar is an init container with the restart policy Always.
const (
	KindInit      Kind = "init"
	KindSidecar   Kind = "sidecar"
	KindRegular   Kind = "container"
	KindEphemeral Kind = "ephemeral"
)

// Containers returns the containers of a pod in the order in which an
// Observation has them, without statuses: init containers and sidecars, regular
// containers, ephemeral containers, each as in the spec.
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

// match returns the action of the first rule whose exit codes match, and "" if
// there is none. A rule without exit codes, or with an operator other than
// In and NotIn, matches nothing. It keeps the behaviour of
// FindMatchingContainerRestartRule of pkg/api/v1/pod.
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

// OnExit returns what follows an exit of the container with exitCode: one of
// the three actions, or "" if the container is not started again. Where the
// matching rule does not count, because the gate of its action is off, the action
// is unknown, or it is for the whole pod and c.Status was stopped by the agent, the
// restart policy decides; a later rule does not. It corrects ContainerShouldRestart
// of pkg/api/v1/pod, which distinguishes neither of the whole-pod actions from
// Restart.
func (g Gates) OnExit(c *Container, exitCode int32) v1.ContainerRestartRuleAction {
	action := match(c.Rules, exitCode)
	stopped := c.Status != nil && c.Status.StoppedByAgent
	switch {
	case action == ContainerRestartRuleActionRestartPod && g.RestartPod && !stopped,
		action == v1.ContainerRestartRuleActionRestartAllContainers && g.RestartAllContainers && !stopped:
		return action
	case c.Kind == KindInit && exitCode == 0:
		// It is done, whatever its policy and rules say.
		return ""
	case action == v1.ContainerRestartRuleActionRestart,
		c.Policy == v1.ContainerRestartPolicyAlways,
		c.Policy == v1.ContainerRestartPolicyOnFailure && exitCode != 0:
		return v1.ContainerRestartRuleActionRestart
	}
	return ""
}
