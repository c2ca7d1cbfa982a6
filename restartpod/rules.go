// SPDX-License-Identifier: Apache-2.0

package restartpod

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// The restart policies of a container, with the values of the API. The oldest supported
// k8s.io/api has their type and not all of the constants.
const (
	PolicyAlways    v1.ContainerRestartPolicy = "Always"
	PolicyOnFailure v1.ContainerRestartPolicy = "OnFailure"
	PolicyNever     v1.ContainerRestartPolicy = "Never"
)

// Action is what a restart rule demands. Its values are those of the API's
// ContainerRestartRuleAction, which k8s.io/api has since v0.34.
type Action string

const (
	// ActionRestart restarts the container (KEP-5307).
	ActionRestart Action = "Restart"
	// ActionRestartPod restarts the pod in place (KEP-5532, "API").
	ActionRestartPod Action = "RestartPod"
	// ActionRestartAllContainers is what upstream has in place of RestartPod. It
	// gives containers no time to stop.
	ActionRestartAllContainers Action = "RestartAllContainers"
)

// Operator relates an exit code to the values of a rule.
type Operator string

// The operators, with the values of the API.
const (
	OperatorIn    Operator = "In"
	OperatorNotIn Operator = "NotIn"
)

// Rule is a restart rule of a container. It corresponds to ContainerRestartRule of the
// API.
type Rule struct {
	Action   Action
	Operator Operator
	// Values are the exit codes that Operator is about.
	Values []int32
}

// Gates are the feature gates for restart rules and policies. The zero value is a
// node without restart rules.
type Gates struct {
	// ContainerRestartRules enables container-level restart policies and rules.
	// Without it, only sidecars have their own policy.
	ContainerRestartRules bool
	// RestartPod is the gate RestartPodOnContainerExits. Like RestartAllContainers, it has
	// no effect without ContainerRestartRules.
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
// spec. The function rules returns the restart rules of a container, which only newer
// versions of k8s.io/api have. Nil means that no container has any. As in KEP-5307, a
// container has rules only if it has a restart policy of its own too.
func Containers(spec *v1.PodSpec, gates Gates, rules func(*v1.Container) []Rule) []Container {
	containers := make([]Container, 0, len(spec.InitContainers)+len(spec.Containers)+len(spec.EphemeralContainers))
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		kind := KindInit
		if c.RestartPolicy != nil && *c.RestartPolicy == PolicyAlways {
			kind = KindSidecar
		}
		containers = append(containers, gates.container(spec, kind, c, rules))
	}
	for i := range spec.Containers {
		containers = append(containers, gates.container(spec, KindRegular, &spec.Containers[i], rules))
	}
	for i := range spec.EphemeralContainers {
		containers = append(containers, Container{
			Name: spec.EphemeralContainers[i].Name, Kind: KindEphemeral, Policy: PolicyNever,
		})
	}
	return containers
}

func (g Gates) container(spec *v1.PodSpec, kind Kind, c *v1.Container, rules func(*v1.Container) []Rule) Container {
	container := Container{Name: c.Name, Kind: kind, Policy: PolicyAlways}
	switch spec.RestartPolicy {
	case v1.RestartPolicyNever, v1.RestartPolicyOnFailure:
		container.Policy = v1.ContainerRestartPolicy(spec.RestartPolicy)
	}
	if c.RestartPolicy != nil && (g.ContainerRestartRules || kind == KindSidecar) {
		switch own := *c.RestartPolicy; own {
		case PolicyNever, PolicyOnFailure, PolicyAlways:
			container.Policy = own
		}
	}
	if g.ContainerRestartRules && c.RestartPolicy != nil && rules != nil {
		container.Rules = rules(c)
	}
	if kind == KindInit && container.Policy == PolicyAlways {
		container.Policy = PolicyOnFailure
	}
	return container
}

// match returns the action of the first rule that matches the exit code, and "" if
// there is none. A rule with an operator other than In and NotIn never matches. It
// behaves like FindMatchingContainerRestartRule of pkg/api/v1/pod.
func match(rules []Rule, exitCode int32) Action {
	for _, r := range rules {
		listed := slices.Contains(r.Values, exitCode)
		if r.Operator == OperatorIn && listed || r.Operator == OperatorNotIn && !listed {
			return r.Action
		}
	}
	return ""
}

// OnExit returns the action for an exit of the container with exitCode: one of the
// three actions, or "" if the container is not started again. The first matching
// rule decides. The restart policy decides instead in three cases: the gate
// ContainerRestartRules or that of the rule's action is off, the action is unknown, or the action is for the whole pod
// and the agent stopped the container (Status.StoppedByAgent). A later rule never
// decides. OnExit corrects ContainerShouldRestart of pkg/api/v1/pod, which treats
// the actions for the whole pod like Restart.
func (g Gates) OnExit(c *Container, exitCode int32) Action {
	action := Action("")
	if g.ContainerRestartRules {
		action = match(c.Rules, exitCode)
	}
	stopped := c.Status != nil && c.Status.StoppedByAgent
	switch {
	case action == ActionRestartPod && g.RestartPod && !stopped,
		action == ActionRestartAllContainers && g.RestartAllContainers && !stopped:
		return action
	case c.Kind == KindInit && exitCode == 0:
		// It is done, regardless of its policy and rules.
		return ""
	case action == ActionRestart,
		c.Policy == PolicyAlways,
		c.Policy == PolicyOnFailure && exitCode != 0:
		return ActionRestart
	}
	return ""
}
