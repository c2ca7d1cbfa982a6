// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-base/featuregate"
	"k8s.io/utils/cpuset"

	"github.com/kubelet-backoff/kubelet-backoff/agent/podspec"
	"github.com/kubelet-backoff/kubelet-backoff/agent/restartrules"
	"github.com/kubelet-backoff/kubelet-backoff/asked"
	"github.com/kubelet-backoff/kubelet-backoff/backoff"
	"github.com/kubelet-backoff/kubelet-backoff/config"
	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/text"
	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

// podReport is the report of a pod, or of the pod template of an object.
type podReport struct {
	File string `json:"file"`
	// Object is the kind, namespace and name of the object in the manifest.
	Object     string            `json:"object"`
	Containers []containerReport `json:"containers"`
	// MaxRestarts is how many restarts in a row of a container, or of the pod, are allowed
	// before the pod fails. It is missing if there is no limit.
	MaxRestarts *int `json:"maxRestarts,omitempty"`
}

type containerReport struct {
	Name string          `json:"name"`
	Kind restartpod.Kind `json:"kind"`
	// RestartPolicy is the effective restart policy.
	RestartPolicy v1.ContainerRestartPolicy `json:"restartPolicy"`
	// Exits ends with an entry for all other exit codes.
	Exits []exitReport `json:"exits"`
	// BackOff is missing if the container has that of the node.
	BackOff *ownBackOff `json:"backOff,omitempty"`
}

// ownBackOff is the back-off that a container asks for.
type ownBackOff struct {
	// Delays lists the delays of the first restarts, as those of the node.
	Delays []metav1.Duration `json:"delays"`
	Reset  metav1.Duration   `json:"reset"`
	// IgnoredExitCodes are the exit codes that are no failure and restart the container.
	IgnoredExitCodes []int32 `json:"ignoredExitCodes,omitempty"`
}

func (r *report) ownBackOff(rules *backoff.KeyRules, restarts func(exitCode int32) bool) *ownBackOff {
	if rules == nil {
		return nil
	}
	own := &ownBackOff{Reset: metav1.Duration{Duration: rules.Reset}}
	for _, code := range rules.Ignored {
		if restarts(code) {
			own.IgnoredExitCodes = append(own.IgnoredExitCodes, code)
		}
	}
	for _, d := range (backoff.Curve{Initial: rules.Initial, Max: rules.Max, DelayFirst: r.curve.DelayFirst}).Delays() {
		own.Delays = append(own.Delays, metav1.Duration{Duration: d})
	}
	return own
}

// exitReport is the result of an exit.
type exitReport struct {
	// ExitCodes is missing in the entry for all other exit codes.
	ExitCodes []int `json:"exitCodes,omitempty"`
	// Action is missing if the container is not restarted.
	Action restartpod.Action `json:"action,omitempty"`
	Result string            `json:"result"`
}

// restartGates returns the gates for restart rules.
func restartGates(gate featuregate.FeatureGate) restartpod.Gates {
	return restartpod.Gates{
		ContainerRestartRules: gate.Enabled(config.ContainerRestartRules),
		RestartPod:            gate.Enabled(config.RestartPodOnContainerExits),
		RestartAllContainers:  gate.Enabled(config.RestartAllContainersOnContainerExits),
	}
}

var allRestartGates = restartpod.Gates{ContainerRestartRules: true, RestartPod: true, RestartAllContainers: true}

// asks reports whether pods may ask for another back-off by the annotations that a gate is for.
func asks(gate featuregate.FeatureGate, annotations featuregate.Feature) bool {
	return gate.Enabled(annotations) && gate.Enabled(config.KubeletStrictCrashLoopBackOff)
}

// warnOfAnnotations adds warnings of annotations that have no effect, in which a pod asks for
// another back-off.
func (r *report) warnOfAnnotations(p podManifest, gate featuregate.FeatureGate) {
	template := strings.TrimSuffix(p.path.String(), "spec")
	for _, err := range slices.Concat(asked.ValidateRestartAt(p.pod), asked.ValidateMaxRestarts(p.pod), asked.ValidateCurves(p.pod)) {
		r.Warnings = append(r.Warnings, newIssue(p.file, p.object, template+err.Field, err.ErrorBody()))
	}
	ignored := func(names []string, without featuregate.Feature) {
		if !gate.Enabled(config.KubeletStrictCrashLoopBackOff) {
			without = config.KubeletStrictCrashLoopBackOff
		}
		if len(names) > 0 && !gate.Enabled(without) {
			r.Warnings = append(r.Warnings, newIssue(p.file, p.object, template+"metadata.annotations", strings.Join(names, ", ")+": ignored without the feature gate "+string(without)))
		}
	}
	ignored(asked.RestartAtAnnotations(p.pod), config.KubeletRestartAtAnnotation)
	ignored(asked.CurveAnnotations(p.pod), config.KubeletRestartBackOffAnnotation)
	if p.pod.Annotations[asked.MaxRestartsAnnotation] != "" {
		ignored([]string{asked.MaxRestartsAnnotation}, config.KubeletMaxRestartsAnnotation)
	}
}

func (r *report) addPod(p podManifest, gate featuregate.FeatureGate) {
	gates, spec := restartGates(gate), &p.pod.Spec
	_, errs := p.validate(gates, podspec.Support{})
	for _, err := range errs {
		r.Errors = append(r.Errors, p.newErrorIssue(err))
	}
	// If the rules are invalid with all gates too, their results are undefined, and the
	// report could be very long.
	if len(restartrules.Validate(spec, p.path, restartrules.Options{Gates: allRestartGates})) > 0 {
		return
	}
	for _, w := range restartrules.Warnings(spec, p.path, gates) {
		r.Warnings = append(r.Warnings, newIssue(p.file, p.object, w.Field, w.Detail))
	}
	pod := podReport{File: p.file, Object: p.object, Containers: []containerReport{}}
	if n, err := strconv.Atoi(p.pod.Annotations[asked.MaxRestartsAnnotation]); err == nil && asks(gate, config.KubeletMaxRestartsAnnotation) && len(asked.ValidateMaxRestarts(p.pod)) == 0 {
		pod.MaxRestarts = &n
	}
	for _, c := range restartrules.Containers(spec, gates) {
		container := containerReport{Name: c.Name, Kind: c.Kind, RestartPolicy: c.Policy, Exits: exitReports(&c, gates)}
		if asks(gate, config.KubeletRestartBackOffAnnotation) {
			container.BackOff = r.ownBackOff(asked.RulesOf(p.pod, c.Name, r.curve), func(code int32) bool { return gates.OnExit(&c, code) != "" })
		}
		pod.Containers = append(pod.Containers, container)
	}
	r.Pods = append(r.Pods, pod)
}

// exitReports groups exit codes by their result. All exit codes that no rule lists have the
// same result, except 0.
func exitReports(c *restartpod.Container, gates restartpod.Gates) []exitReport {
	listed := sets.New[int32](0)
	for _, rule := range c.Rules {
		listed.Insert(rule.Values...)
	}
	unlisted := int32(1)
	for listed.Has(unlisted) {
		unlisted++
	}
	after := func(exitCode int32) exitReport {
		action := gates.OnExit(c, exitCode)
		return exitReport{Action: action, Result: result(c.Kind, exitCode, action)}
	}
	others := after(unlisted)
	var exits []exitReport
	for _, code := range sets.List(listed) {
		exit := after(code)
		if exit.Result == others.Result {
			continue
		}
		i := slices.IndexFunc(exits, func(e exitReport) bool { return e.Result == exit.Result })
		if i < 0 {
			i = len(exits)
			exits = append(exits, exit)
		}
		exits[i].ExitCodes = append(exits[i].ExitCodes, int(code))
	}
	return append(exits, others)
}

func result(kind restartpod.Kind, exitCode int32, action restartpod.Action) string {
	switch action {
	case restartpod.ActionRestart:
		return "restarts"
	case restartpod.ActionRestartPod:
		return "the pod restarts in place"
	case restartpod.ActionRestartAllContainers:
		return "the pod restarts in place, without a grace period"
	}
	switch {
	case kind != restartpod.KindInit:
		return "stays terminated"
	case exitCode == 0:
		return "is done"
	default:
		return "the pod fails"
	}
}

func writePod(b *bytes.Buffer, pod podReport) {
	fmt.Fprintf(b, "\n%s in %s\n", text.Printable(pod.Object), text.Printable(pod.File))
	tab := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, "  CONTAINER\tKIND\tPOLICY\tEXIT CODE\tRESULT")
	for _, c := range pod.Containers {
		name, kind, policy := text.Cell(c.Name), string(c.Kind), string(c.RestartPolicy)
		for i, exit := range c.Exits {
			codes := strings.ReplaceAll(cpuset.New(exit.ExitCodes...).String(), ",", ", ") // 1, 3-5
			switch {
			case len(c.Exits) == 1:
				codes = "any"
			case i == len(c.Exits)-1:
				codes = "any other"
			}
			fmt.Fprintf(tab, "  %s\t%s\t%s\t%s\t%s\n", name, kind, policy, codes, exit.Result)
			name, kind, policy = "", "", ""
		}
	}
	tab.Flush()
	for _, c := range pod.Containers {
		if own := c.BackOff; own != nil {
			fmt.Fprintf(b, "  Back-off of %s: %s", text.Printable(c.Name), delays(own.Delays))
			fmt.Fprintf(b, ", reset after %s", text.Seconds(own.Reset.Duration))
			if len(own.IgnoredExitCodes) > 0 {
				fmt.Fprintf(b, ", ignores %s", strings.Trim(fmt.Sprint(own.IgnoredExitCodes), "[]"))
			}
			b.WriteString("\n")
		}
	}
	if pod.MaxRestarts != nil {
		fmt.Fprintf(b, "  After %d restarts in a row of a container or of the pod, the pod fails.\n", *pod.MaxRestarts)
	}
}
