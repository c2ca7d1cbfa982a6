// SPDX-License-Identifier: Apache-2.0

package restartrules

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
	"github.com/kubelet-backoff/kubelet-backoff/validation"
)

const (
	always    = v1.ContainerRestartPolicyAlways
	onFailure = v1.ContainerRestartPolicyOnFailure
	never     = v1.ContainerRestartPolicyNever

	restart              = v1.ContainerRestartRuleActionRestart
	restartAllContainers = v1.ContainerRestartRuleActionRestartAllContainers
	restartPod           = actionRestartPod

	in    = v1.ContainerRestartRuleOnExitCodesOpIn
	notIn = v1.ContainerRestartRuleOnExitCodesOpNotIn
)

var (
	gatesOff  = Options{}
	rulesOnly = Options{Gates: restartpod.Gates{ContainerRestartRules: true}}
	withAll   = Options{Gates: restartpod.Gates{ContainerRestartRules: true, RestartAllContainers: true}}
	withPod   = Options{Gates: restartpod.Gates{ContainerRestartRules: true, RestartPod: true}}
	gatesOn   = Options{Gates: restartpod.Gates{ContainerRestartRules: true, RestartAllContainers: true, RestartPod: true}}
)

func rule(action v1.ContainerRestartRuleAction, operator v1.ContainerRestartRuleOnExitCodesOperator, codes ...int32) v1.ContainerRestartRule {
	return v1.ContainerRestartRule{Action: action, ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: operator, Values: codes}}
}

// container returns a container with the policy, or without a policy if it is "".
func container(policy v1.ContainerRestartPolicy, rules ...v1.ContainerRestartRule) v1.Container {
	c := v1.Container{Name: "c", RestartPolicyRules: rules}
	if policy != "" {
		c.RestartPolicy = &policy
	}
	return c
}

func initPod(c v1.Container) *v1.PodSpec {
	return &v1.PodSpec{InitContainers: []v1.Container{c}, Containers: []v1.Container{{Name: "main"}}}
}

func regularPod(c v1.Container) *v1.PodSpec {
	return &v1.PodSpec{Containers: []v1.Container{c}}
}

func ephemeralPod(c v1.Container) *v1.PodSpec {
	return &v1.PodSpec{EphemeralContainers: []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon(c)}}}
}

// codes returns the exit codes from 0 to n-1.
func codes(n int) []int32 {
	values := make([]int32, n)
	for i := range values {
		values[i] = int32(i)
	}
	return values
}

func TestValidate(t *testing.T) {
	const (
		path     = "spec.containers[0]"
		initPath = "spec.initContainers[0]"
		rulePath = path + ".restartPolicyRules[0]"
	)
	windows := func(spec *v1.PodSpec) *v1.PodSpec {
		spec.OS = &v1.PodOS{Name: v1.Windows}
		return spec
	}
	for _, tc := range []struct {
		name string
		spec *v1.PodSpec
		opts Options
		want field.ErrorList
	}{
		{name: "nothing set", spec: regularPod(container("")), opts: gatesOff},
		{name: "restart policy of the pod", spec: &v1.PodSpec{RestartPolicy: v1.RestartPolicyOnFailure}, opts: gatesOff},
		{name: "unknown restart policy of the pod", spec: &v1.PodSpec{RestartPolicy: "always"}, opts: gatesOn,
			want: field.ErrorList{field.NotSupported[string](field.NewPath("spec.restartPolicy"), v1.RestartPolicy("always"), nil)}},

		// Regular containers.
		{name: "container policy Always", spec: regularPod(container(always)), opts: rulesOnly},
		{name: "container policy OnFailure", spec: regularPod(container(onFailure)), opts: rulesOnly},
		{name: "container policy Never", spec: regularPod(container(never)), opts: rulesOnly},
		{name: "container policy Always with rules", spec: regularPod(container(always, rule(restart, in, 1))), opts: rulesOnly},
		{name: "container policy, gates off", spec: regularPod(container(always)), opts: gatesOff,
			want: field.ErrorList{field.Forbidden(field.NewPath(path+".restartPolicy"), "")}},
		{name: "container rules, gates off", spec: regularPod(container(never, rule(restart, in, 42))), opts: gatesOff,
			want: field.ErrorList{field.Forbidden(field.NewPath(path+".restartPolicy"), ""), field.Forbidden(field.NewPath(path+".restartPolicyRules"), "")}},
		{name: "actions without ContainerRestartRules", spec: regularPod(container("", rule(restartPod, in, 42))),
			opts: Options{Gates: restartpod.Gates{RestartAllContainers: true, RestartPod: true}},
			want: field.ErrorList{field.Forbidden(field.NewPath(path+".restartPolicyRules"), "")}},
		{name: "unknown container policy", spec: regularPod(container("onFailure")), opts: gatesOn,
			want: field.ErrorList{field.NotSupported[string](field.NewPath(path+".restartPolicy"), v1.ContainerRestartPolicy("onFailure"), nil)}},
		{name: "empty container policy", spec: regularPod(v1.Container{RestartPolicy: ptr.To[v1.ContainerRestartPolicy]("")}), opts: gatesOn,
			want: field.ErrorList{field.NotSupported[string](field.NewPath(path+".restartPolicy"), v1.ContainerRestartPolicy(""), nil)}},
		{name: "rules without a policy", spec: regularPod(container("", rule(restart, in, 42))), opts: gatesOn,
			want: field.ErrorList{field.Required(field.NewPath(path+".restartPolicy"), "")}},

		// Actions.
		{name: "Restart", spec: regularPod(container(never, rule(restart, in, 42))), opts: rulesOnly},
		{name: "RestartAllContainers", spec: regularPod(container(never, rule(restartAllContainers, notIn, 0))), opts: withAll},
		{name: "RestartPod", spec: regularPod(container(never, rule(restartPod, in, 88))), opts: withPod},
		{name: "RestartAllContainers, its gate off", spec: regularPod(container(never, rule(restartAllContainers, in, 42))), opts: withPod,
			want: field.ErrorList{field.NotSupported[string](field.NewPath(rulePath+".action"), restartAllContainers, nil)}},
		{name: "RestartPod, its gate off", spec: regularPod(container(never, rule(restartPod, in, 42))), opts: withAll,
			want: field.ErrorList{field.NotSupported[string](field.NewPath(rulePath+".action"), restartPod, nil)}},
		{name: "near miss of an action", spec: regularPod(container(never, rule("restartPod", in, 42))), opts: gatesOn,
			want: field.ErrorList{field.NotSupported[string](field.NewPath(rulePath+".action"), v1.ContainerRestartRuleAction("restartPod"), nil)}},
		{name: "no action", spec: regularPod(container(never, rule("", in, 42))), opts: gatesOn,
			want: field.ErrorList{field.NotSupported[string](field.NewPath(rulePath+".action"), v1.ContainerRestartRuleAction(""), nil)}},

		// Exit codes.
		{name: "no exitCodes", spec: regularPod(container(never, v1.ContainerRestartRule{Action: restart})), opts: gatesOn,
			want: field.ErrorList{field.Required(field.NewPath(rulePath+".exitCodes"), "")}},
		{name: "near miss of an operator", spec: regularPod(container(never, rule(restart, "in", 42))), opts: gatesOn,
			want: field.ErrorList{field.NotSupported[string](field.NewPath(rulePath+".exitCodes.operator"), v1.ContainerRestartRuleOnExitCodesOperator("in"), nil)}},
		{name: "no operator", spec: regularPod(container(never, rule(restart, "", 42))), opts: gatesOn,
			want: field.ErrorList{field.NotSupported[string](field.NewPath(rulePath+".exitCodes.operator"), v1.ContainerRestartRuleOnExitCodesOperator(""), nil)}},
		{name: "255 exit codes", spec: regularPod(container(never, rule(restart, in, codes(255)...))), opts: gatesOn},
		{name: "256 exit codes", spec: regularPod(container(never, rule(restart, in, codes(256)...))), opts: gatesOn,
			want: field.ErrorList{field.TooMany(field.NewPath(rulePath+".exitCodes.values"), 256, 255)}},
		{name: "no exit codes", spec: regularPod(container(never, rule(restart, notIn))), opts: gatesOn,
			want: field.ErrorList{field.Required(field.NewPath(rulePath+".exitCodes.values"), "")}},
		{name: "least and greatest exit code", spec: regularPod(container(never, rule(restart, in, 0, 255))), opts: gatesOn},
		{name: "exit codes out of range", spec: regularPod(container(never, rule(restart, in, -1, 0, 256))), opts: gatesOn,
			want: field.ErrorList{
				field.Invalid(field.NewPath(rulePath+".exitCodes.values[0]"), int32(-1), ""),
				field.Invalid(field.NewPath(rulePath+".exitCodes.values[2]"), int32(256), ""),
			}},
		{name: "exit codes of Windows", spec: windows(regularPod(container(never, rule(restart, in, -1073741819)))), opts: gatesOn},
		{name: "exit codes of Windows, by node selector", opts: gatesOn,
			spec: &v1.PodSpec{NodeSelector: map[string]string{v1.LabelOSStable: "windows"}, Containers: []v1.Container{container(never, rule(restart, in, 259))}}},
		{name: "duplicate exit codes", spec: regularPod(container(never, rule(restart, in, 3, 4, 3))), opts: gatesOn,
			want: field.ErrorList{field.Duplicate(field.NewPath(rulePath+".exitCodes.values[2]"), int32(3))}},
		{name: "duplicate exit codes on Windows", spec: windows(regularPod(container(never, rule(restart, in, 300, 300)))), opts: gatesOn,
			want: field.ErrorList{field.Duplicate(field.NewPath(rulePath+".exitCodes.values[1]"), int32(300))}},

		// Numbers of rules, and several errors at once.
		{name: "20 rules", spec: regularPod(container(never, slices.Repeat([]v1.ContainerRestartRule{rule(restart, in, 42)}, 20)...)), opts: gatesOn},
		{name: "21 rules", spec: regularPod(container(never, slices.Repeat([]v1.ContainerRestartRule{{}}, 21)...)), opts: gatesOn,
			want: field.ErrorList{field.TooMany(field.NewPath(path+".restartPolicyRules"), 21, 20)}},
		{name: "an error in each of two rules", spec: regularPod(container(never, rule(restart, in, 1), rule("a", in, 2), rule(restart, "b", 3))), opts: gatesOn,
			want: field.ErrorList{
				field.NotSupported[string](field.NewPath(path+".restartPolicyRules[1].action"), v1.ContainerRestartRuleAction("a"), nil),
				field.NotSupported[string](field.NewPath(path+".restartPolicyRules[2].exitCodes.operator"), v1.ContainerRestartRuleOnExitCodesOperator("b"), nil),
			}},

		// Init containers.
		{name: "init container", spec: initPod(container("")), opts: gatesOff},
		{name: "init container with a policy", spec: initPod(container(onFailure)), opts: rulesOnly},
		{name: "init container with a policy, gates off", spec: initPod(container(never)), opts: gatesOff,
			want: field.ErrorList{field.NotSupported[string](field.NewPath(initPath+".restartPolicy"), never, nil)}},
		{name: "init container with rules", spec: initPod(container(never, rule(restart, in, 42))), opts: rulesOnly},
		{name: "init container with rules, gates off", spec: initPod(container("", rule(restart, in, 42))), opts: gatesOff,
			want: field.ErrorList{field.Forbidden(field.NewPath(initPath+".restartPolicyRules"), "")}},
		{name: "init container with rules and no policy", spec: initPod(container("", rule(restartAllContainers, in, 1))), opts: withAll,
			want: field.ErrorList{field.Required(field.NewPath(initPath+".restartPolicy"), "")}},
		{name: "init container with an unknown policy", spec: initPod(container("ALWAYS")), opts: gatesOn,
			want: field.ErrorList{field.NotSupported[string](field.NewPath(initPath+".restartPolicy"), v1.ContainerRestartPolicy("ALWAYS"), nil)}},
		{name: "init container with RestartPod", spec: initPod(container(onFailure, rule(restartPod, in, 42))), opts: withPod},

		// Sidecars.
		{name: "sidecar, gates off", spec: initPod(container(always)), opts: gatesOff},
		{name: "sidecar with rules, gates off", spec: initPod(container(always, rule(restart, in, 1))), opts: gatesOff,
			want: field.ErrorList{field.Forbidden(field.NewPath(initPath+".restartPolicyRules"), "")}},
		{name: "sidecar with rules, ContainerRestartRules alone", spec: initPod(container(always, rule(restart, in, 1))), opts: rulesOnly,
			want: field.ErrorList{field.Forbidden(field.NewPath(initPath+".restartPolicyRules"), "")}},
		{name: "sidecar with RestartAllContainers", spec: initPod(container(always, rule(restartAllContainers, in, 1))), opts: withAll},
		{name: "sidecar with RestartPod", spec: initPod(container(always, rule(restartPod, in, 88))), opts: withPod},
		{name: "sidecar with Restart", spec: initPod(container(always, rule(restart, in, 1))), opts: withPod},
		{name: "sidecar with a rule that is not valid", spec: initPod(container(always, rule(restartPod, in, 88))), opts: withAll,
			want: field.ErrorList{field.NotSupported[string](field.NewPath(initPath+".restartPolicyRules[0].action"), restartPod, nil)}},

		// Ephemeral containers.
		{name: "ephemeral container", spec: ephemeralPod(container("")), opts: gatesOff},
		{name: "ephemeral container with a policy", spec: ephemeralPod(container(never)), opts: gatesOn,
			want: field.ErrorList{field.Forbidden(field.NewPath("spec.ephemeralContainers[0].restartPolicy"), "")}},
		{name: "ephemeral container with rules", spec: ephemeralPod(container("", rule(restart, in, 1))), opts: gatesOn,
			want: field.ErrorList{field.Forbidden(field.NewPath("spec.ephemeralContainers[0].restartPolicyRules"), "")}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := Validate(tc.spec, field.NewPath("spec"), tc.opts)
			require.Len(t, got, len(tc.want), "%v", got)
			for i := range got {
				got[i].Detail, tc.want[i].Detail = "", ""
				assert.Equal(t, tc.want[i], got[i])
			}
		})
	}
}

// TestMissingGateIsNamed checks that the error names the gate to enable.
func TestMissingGateIsNamed(t *testing.T) {
	for _, tc := range []struct {
		name string
		spec *v1.PodSpec
		opts Options
		want []string
	}{
		{"policy of an init container", initPod(container(never)), gatesOff,
			[]string{`spec.initContainers[0].restartPolicy: Unsupported value: "Never": supported values: "Always"; needs the feature gate ContainerRestartRules`}},
		{"policy and rules of a container", regularPod(container(never, rule(restart, in, 1))), gatesOff,
			[]string{
				"spec.containers[0].restartPolicy: Forbidden: may not be set for a container that is not a sidecar; needs the feature gate ContainerRestartRules",
				"spec.containers[0].restartPolicyRules: Forbidden: may not be set; needs the feature gate ContainerRestartRules",
			}},
		{"rules of a sidecar", initPod(container(always, rule(restart, in, 1))), rulesOnly,
			[]string{"spec.initContainers[0].restartPolicyRules: Forbidden: may not be set for a sidecar; needs the feature gate RestartAllContainersOnContainerExits or RestartPodOnContainerExits"}},
		{"RestartAllContainers", regularPod(container(never, rule(restartAllContainers, in, 1))), rulesOnly,
			[]string{`spec.containers[0].restartPolicyRules[0].action: Unsupported value: "RestartAllContainers": supported values: "Restart"; needs the feature gate RestartAllContainersOnContainerExits`}},
		{"RestartPod", regularPod(container(never, rule(restartPod, in, 1))), withAll,
			[]string{`spec.containers[0].restartPolicyRules[0].action: Unsupported value: "RestartPod": supported values: "Restart", "RestartAllContainers"; needs the feature gate RestartPodOnContainerExits`}},
		{"near miss", regularPod(container(never, rule("restartPod", in, 1))), withAll,
			[]string{`spec.containers[0].restartPolicyRules[0].action: Unsupported value: "restartPod": supported values: "Restart", "RestartAllContainers"`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, err := range Validate(tc.spec, field.NewPath("spec"), tc.opts) {
				got = append(got, err.Error())
			}
			assert.Equal(t, tc.want, got)
		})
	}
}

func TestWarnings(t *testing.T) {
	idle := func(containers string, rule int) validation.Warning {
		return validation.Warning{Field: fmt.Sprintf("spec.%s[0].restartPolicyRules[%d]", containers, rule), Detail: "has no effect: the result of each exit code is the same without this rule"}
	}
	onWindows := regularPod(container(never, rule(restart, in, 1), rule(restart, in, 1)))
	onWindows.NodeSelector = map[string]string{v1.LabelOSStable: "windows"}
	for _, tc := range []struct {
		name  string
		spec  *v1.PodSpec
		gates restartpod.Gates
		want  []validation.Warning
	}{
		{"no rules", regularPod(container(never)), gatesOn.Gates, nil},
		{"rules that matter", regularPod(container(never, rule(restart, in, 1), rule(restartPod, notIn, 0))), gatesOn.Gates, nil},
		{"exit codes taken by an earlier rule", regularPod(container(never, rule(restart, in, 1, 2), rule(restartPod, in, 2))), gatesOn.Gates,
			[]validation.Warning{idle("containers", 1)}},
		{"everything taken by earlier rules", regularPod(container(never, rule(restart, notIn, 3), rule(restartPod, in, 3), rule(restartAllContainers, notIn, 7))), gatesOn.Gates,
			[]validation.Warning{idle("containers", 2)}},
		{"what the policy does anyway", regularPod(container(onFailure, rule(restart, in, 42))), gatesOn.Gates,
			[]validation.Warning{idle("containers", 0)}},
		{"an exception from a later rule", regularPod(container(onFailure, rule(restart, in, 42), rule(restartPod, notIn, 0))), gatesOn.Gates, nil},
		{"of three equal rules the last two", regularPod(container(never, slices.Repeat([]v1.ContainerRestartRule{rule(restart, in, 1)}, 3)...)), gatesOn.Gates,
			[]validation.Warning{idle("containers", 1), idle("containers", 2)}},
		{"an init container that succeeds is done", initPod(container(never, rule(restart, in, 0))), gatesOn.Gates,
			[]validation.Warning{idle("initContainers", 0)}},
		{"ContainerRestartRules off", regularPod(container(never, rule(restart, in, 1), rule(restart, in, 1))), gatesOff.Gates, []validation.Warning{
			{Field: "spec.containers[0].restartPolicy", Detail: "ignored by a kubelet without the feature gate ContainerRestartRules: the policy of the pod counts"},
			{Field: "spec.containers[0].restartPolicyRules", Detail: "ignored by a kubelet without the feature gate ContainerRestartRules: restart policies alone count"},
		}},
		{"rules of a sidecar, ContainerRestartRules off", initPod(container(always, rule(restartPod, in, 1))), gatesOff.Gates, []validation.Warning{
			{Field: "spec.initContainers[0].restartPolicyRules", Detail: "ignored by a kubelet without the feature gate ContainerRestartRules: restart policies alone count"},
		}},
		{"RestartPod off", regularPod(container(never, rule(restartPod, in, 1), rule(restart, notIn, 0))), withAll.Gates, []validation.Warning{
			{Field: "spec.containers[0].restartPolicyRules[0]", Detail: "ignored by a kubelet without the feature gate RestartPodOnContainerExits: for its exit codes restartPolicy counts, and no later rule"},
		}},
		{"RestartAllContainers off", initPod(container(never, rule(restartAllContainers, in, 1))), withPod.Gates, []validation.Warning{
			{Field: "spec.initContainers[0].restartPolicyRules[0]", Detail: "ignored by a kubelet without the feature gate RestartAllContainersOnContainerExits: for its exit codes restartPolicy counts, and no later rule"},
		}},
		{"too many rules", regularPod(container(never, slices.Repeat([]v1.ContainerRestartRule{rule(restart, in, 1)}, 21)...)), gatesOn.Gates, nil},
		{"Windows", onWindows, gatesOn.Gates, nil},
		{"ephemeral container", ephemeralPod(container(never, rule(restart, in, 1))), gatesOn.Gates, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			assert.Equal(t, tc.want, Warnings(tc.spec, field.NewPath("spec"), tc.gates))
		})
	}
}

// FuzzValidate searches for specs that make the validation panic,
// or that pass but exceed a limit.
func FuzzValidate(f *testing.F) {
	for _, spec := range []*v1.PodSpec{
		regularPod(container(never, rule(restart, in, 42), rule(restartPod, notIn, 0, 1))),
		initPod(container(always, rule(restartAllContainers, in, codes(255)...))),
		regularPod(container("", rule("", "", -1, 1, 1, 256))),
		regularPod(container(onFailure, slices.Repeat([]v1.ContainerRestartRule{{}}, 21)...)),
		ephemeralPod(container(never)),
	} {
		data, err := json.Marshal(spec)
		require.NoError(f, err)
		for gates := range uint8(8) {
			f.Add(data, gates)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, gates uint8) {
		var spec v1.PodSpec
		if json.Unmarshal(data, &spec) != nil {
			return
		}
		opts := Options{Gates: restartpod.Gates{ContainerRestartRules: gates&1 != 0, RestartAllContainers: gates&2 != 0, RestartPod: gates&4 != 0}}
		Warnings(&spec, field.NewPath("spec"), opts.Gates)
		if len(Validate(&spec, field.NewPath("spec"), opts)) > 0 {
			return
		}
		windows := spec.OS != nil && spec.OS.Name == "windows" || spec.NodeSelector["kubernetes.io/os"] == "windows"
		for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
			if len(c.RestartPolicyRules) == 0 {
				continue
			}
			require.True(t, opts.ContainerRestartRules)
			require.NotNil(t, c.RestartPolicy)
			require.LessOrEqual(t, len(c.RestartPolicyRules), 20)
			for _, r := range c.RestartPolicyRules {
				switch r.Action {
				case "Restart":
				case "RestartAllContainers":
					require.True(t, opts.RestartAllContainers)
				case "RestartPod":
					require.True(t, opts.RestartPod)
				default:
					t.Fatalf("action %q passes", r.Action)
				}
				require.NotNil(t, r.ExitCodes)
				require.Contains(t, []string{"In", "NotIn"}, string(r.ExitCodes.Operator))
				require.NotEmpty(t, r.ExitCodes.Values)
				require.LessOrEqual(t, len(r.ExitCodes.Values), 255)
				sorted := slices.Sorted(slices.Values(r.ExitCodes.Values))
				require.Len(t, slices.Compact(slices.Clone(sorted)), len(sorted), "an exit code twice")
				require.True(t, windows || sorted[0] >= 0 && sorted[len(sorted)-1] <= 255, "out of range: %v", sorted)
			}
		}
		for _, c := range spec.EphemeralContainers {
			require.Nil(t, c.RestartPolicy)
			require.Empty(t, c.RestartPolicyRules)
		}
	})
}
