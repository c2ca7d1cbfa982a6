// SPDX-License-Identifier: Apache-2.0

package restartrules

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubelet-backoff/kubelet-backoff/config"
	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
	"github.com/kubelet-backoff/kubelet-backoff/validation"
)

// The limits of a container's rules (KEP-5307). An exit code on Linux is one byte.
const (
	maxRestartPolicyRules = 20
	maxExitCodesPerRule   = 255
	greatestExitCode      = 255
)

var (
	podRestartPolicies       = []v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever}
	containerRestartPolicies = []v1.ContainerRestartPolicy{v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyNever, v1.ContainerRestartPolicyOnFailure}
	exitCodesOperators       = []v1.ContainerRestartRuleOnExitCodesOperator{v1.ContainerRestartRuleOnExitCodesOpIn, v1.ContainerRestartRuleOnExitCodesOpNotIn}
)

// actionRestartPod is the action that upstream lacks.
const actionRestartPod = v1.ContainerRestartRuleAction(restartpod.ActionRestartPod)

// gatesOfActions maps each action to the gate that it needs in addition to
// ContainerRestartRules.
var gatesOfActions = map[v1.ContainerRestartRuleAction]string{
	v1.ContainerRestartRuleActionRestartAllContainers: config.RestartAllContainersOnContainerExits,
	actionRestartPod: config.RestartPodOnContainerExits,
}

// Options controls which restart policies and rules of containers are
// valid. The zero value allows only restartPolicy Always on an init container,
// which makes it a sidecar.
type Options struct {
	// Gates enable the fields that depend on them. RestartAllContainers and
	// RestartPod each allow their action, and allow rules on sidecars (KEP-5532,
	// user story 2). Without ContainerRestartRules they have no effect.
	restartpod.Gates
}

// actions returns the actions that the gates allow.
func actions(gates restartpod.Gates) []v1.ContainerRestartRuleAction {
	actions := []v1.ContainerRestartRuleAction{v1.ContainerRestartRuleActionRestart}
	if gates.RestartAllContainers {
		actions = append(actions, v1.ContainerRestartRuleActionRestartAllContainers)
	}
	if gates.RestartPod {
		actions = append(actions, actionRestartPod)
	}
	return actions
}

// Validate validates restartPolicy of the pod, and restartPolicy
// and restartPolicyRules of its containers. An API server with the same gates
// (pkg/apis/core/validation) accepts these fields if they pass here. There are
// two differences. Without ContainerRestartRules an API server drops the fields
// that are forbidden here. A restartPolicy of the pod that is not set is valid
// here, because defaulting sets it.
//
// Exit codes are validated more strictly than upstream. A rule must have at least one exit code, without duplicates, each between
// 0 and 255. On Windows there is no range. spec.os or the node selector
// identifies a Windows pod.
func Validate(spec *v1.PodSpec, fldPath *field.Path, opts Options) field.ErrorList {
	var errs field.ErrorList
	if spec.RestartPolicy != "" && !slices.Contains(podRestartPolicies, spec.RestartPolicy) {
		errs = append(errs, field.NotSupported(fldPath.Child("restartPolicy"), spec.RestartPolicy, podRestartPolicies))
	}
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		errs = append(errs, validateContainer(c, true, isWindows(spec), fldPath.Child("initContainers").Index(i), opts)...)
	}
	for i := range spec.Containers {
		c := &spec.Containers[i]
		errs = append(errs, validateContainer(c, false, isWindows(spec), fldPath.Child("containers").Index(i), opts)...)
	}
	for i := range spec.EphemeralContainers {
		c, path := &spec.EphemeralContainers[i], fldPath.Child("ephemeralContainers").Index(i)
		if c.RestartPolicy != nil {
			errs = append(errs, field.Forbidden(path.Child("restartPolicy"), "may not be set for an ephemeral container, which never restarts"))
		}
		if len(c.RestartPolicyRules) > 0 {
			errs = append(errs, field.Forbidden(path.Child("restartPolicyRules"), "may not be set for an ephemeral container, which never restarts"))
		}
	}
	return errs
}

func validateContainer(c *v1.Container, init, windows bool, fldPath *field.Path, opts Options) field.ErrorList {
	var errs field.ErrorList
	policyPath, rulesPath := fldPath.Child("restartPolicy"), fldPath.Child("restartPolicyRules")
	sidecar := init && isSidecar(c)

	if !opts.ContainerRestartRules {
		if init && c.RestartPolicy != nil && !sidecar {
			errs = append(errs, needsGate(config.ContainerRestartRules,
				field.NotSupported(policyPath, *c.RestartPolicy, []v1.ContainerRestartPolicy{v1.ContainerRestartPolicyAlways})))
		}
		if !init && c.RestartPolicy != nil {
			errs = append(errs, needsGate(config.ContainerRestartRules, field.Forbidden(policyPath, "may not be set for a container that is not a sidecar")))
		}
		if len(c.RestartPolicyRules) > 0 {
			errs = append(errs, needsGate(config.ContainerRestartRules, field.Forbidden(rulesPath, "may not be set")))
		}
		return errs
	}

	switch {
	case c.RestartPolicy == nil && len(c.RestartPolicyRules) > 0:
		errs = append(errs, field.Required(policyPath, "must be set where restartPolicyRules is: it is for the exits that no rule matches"))
	case c.RestartPolicy != nil && !slices.Contains(containerRestartPolicies, *c.RestartPolicy):
		errs = append(errs, field.NotSupported(policyPath, *c.RestartPolicy, containerRestartPolicies))
	case sidecar && len(c.RestartPolicyRules) > 0 && !opts.RestartAllContainers && !opts.RestartPod:
		return append(errs, needsGate(config.RestartAllContainersOnContainerExits+" or "+config.RestartPodOnContainerExits,
			field.Forbidden(rulesPath, "may not be set for a sidecar")))
	}
	// The items of a list that is too long are not validated. This limits the
	// number of errors.
	if n := len(c.RestartPolicyRules); n > maxRestartPolicyRules {
		return append(errs, field.TooMany(rulesPath, n, maxRestartPolicyRules))
	}
	for i := range c.RestartPolicyRules {
		errs = append(errs, validateRule(&c.RestartPolicyRules[i], rulesPath.Index(i), windows, opts)...)
	}
	return errs
}

func validateRule(rule *v1.ContainerRestartRule, fldPath *field.Path, windows bool, opts Options) field.ErrorList {
	var errs field.ErrorList
	if actions := actions(opts.Gates); !slices.Contains(actions, rule.Action) {
		err := field.NotSupported(fldPath.Child("action"), rule.Action, actions)
		if gate, known := gatesOfActions[rule.Action]; known {
			err = needsGate(gate, err)
		}
		errs = append(errs, err)
	}
	path := fldPath.Child("exitCodes")
	if rule.ExitCodes == nil {
		return append(errs, field.Required(path, "a rule is about exit codes"))
	}
	if !slices.Contains(exitCodesOperators, rule.ExitCodes.Operator) {
		errs = append(errs, field.NotSupported(path.Child("operator"), rule.ExitCodes.Operator, exitCodesOperators))
	}
	values := rule.ExitCodes.Values
	if n := len(values); n > maxExitCodesPerRule {
		return append(errs, field.TooMany(path.Child("values"), n, maxExitCodesPerRule))
	}
	return append(errs, validateExitCodes(values, windows, path.Child("values"))...)
}

// validateExitCodes has the checks that upstream lacks.
func validateExitCodes(values []int32, windows bool, fldPath *field.Path) field.ErrorList {
	if len(values) == 0 {
		return field.ErrorList{field.Required(fldPath, "at least one exit code")}
	}
	var errs field.ErrorList
	seen := sets.New[int32]()
	for i, code := range values {
		switch {
		case seen.Has(code):
			errs = append(errs, field.Duplicate(fldPath.Index(i), code))
		case !windows && (code < 0 || code > greatestExitCode):
			errs = append(errs, field.Invalid(fldPath.Index(i), code, "no container exits with it: "+utilvalidation.InclusiveRangeError(0, greatestExitCode)))
		}
		seen.Insert(code)
	}
	return errs
}

// needsGate adds the gate to enable to the error.
func needsGate(gate string, err *field.Error) *field.Error {
	err.Detail = fmt.Sprintf("%s; needs the feature gate %s", err.Detail, gate)
	return err
}

// Warnings returns warnings about a pod on a kubelet with the
// gates. It warns about policies and rules that the kubelet ignores. In a valid
// spec it also warns about redundant rules: without them, every exit code has
// the same result. Of several equivalent rules, it names the later ones. For
// Windows it does not check for redundant rules, because there are too many exit
// codes.
func Warnings(spec *v1.PodSpec, fldPath *field.Path, gates restartpod.Gates) []validation.Warning {
	var warnings []validation.Warning
	effective := Containers(spec, gates)
	for i, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		path := fldPath.Child("initContainers").Index(i)
		if n := len(spec.InitContainers); i >= n {
			path = fldPath.Child("containers").Index(i - n)
		}
		rulesPath := path.Child("restartPolicyRules")
		if !gates.ContainerRestartRules {
			if c.RestartPolicy != nil && effective[i].Kind != restartpod.KindSidecar {
				warnings = append(warnings, ignored(path.Child("restartPolicy"), config.ContainerRestartRules, "the policy of the pod counts"))
			}
			if len(c.RestartPolicyRules) > 0 {
				warnings = append(warnings, ignored(rulesPath, config.ContainerRestartRules, "restart policies alone count"))
			}
			continue
		}
		if len(c.RestartPolicyRules) > maxRestartPolicyRules {
			continue
		}
		idle := idleRules(effective[i], isWindows(spec), gates)
		for r, rule := range c.RestartPolicyRules {
			gate, known := gatesOfActions[rule.Action]
			switch {
			case known && !slices.Contains(actions(gates), rule.Action):
				warnings = append(warnings, ignored(rulesPath.Index(r), gate, "for its exit codes restartPolicy counts, and no later rule"))
			case idle.Has(r):
				warnings = append(warnings, validation.Warning{Field: rulesPath.Index(r).String(), Detail: "has no effect: the result of each exit code is the same without this rule"})
			}
		}
	}
	return warnings
}

func ignored(fldPath *field.Path, gate, instead string) validation.Warning {
	return validation.Warning{Field: fldPath.String(), Detail: fmt.Sprintf("ignored by a kubelet without the feature gate %s: %s", gate, instead)}
}

// idleRules returns the indexes of the redundant rules. Without all of them,
// every exit code has the same result.
func idleRules(c restartpod.Container, windows bool, gates restartpod.Gates) sets.Set[int] {
	idle := sets.New[int]()
	if windows {
		return idle
	}
	for r := len(c.Rules) - 1; r >= 0; r-- {
		without := c
		without.Rules = slices.Delete(slices.Clone(c.Rules), r, r+1)
		if equivalent(&c, &without, gates) {
			idle.Insert(r)
			c = without
		}
	}
	return idle
}

// equivalent reports whether every exit code has the same result for a and b.
func equivalent(a, b *restartpod.Container, gates restartpod.Gates) bool {
	for code := int32(0); code <= greatestExitCode; code++ {
		if gates.OnExit(a, code) != gates.OnExit(b, code) {
			return false
		}
	}
	return true
}

func isSidecar(initContainer *v1.Container) bool {
	return initContainer.RestartPolicy != nil && *initContainer.RestartPolicy == v1.ContainerRestartPolicyAlways
}

// isWindows reports whether the pod declares that it runs on Windows, where an
// exit code has 32 bits.
func isWindows(spec *v1.PodSpec) bool {
	return spec.OS != nil && spec.OS.Name == v1.Windows || spec.NodeSelector[v1.LabelOSStable] == string(v1.Windows)
}
