// SPDX-License-Identifier: Apache-2.0

package restartpod

import (
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/restart"
)

const (
	never     = PolicyNever
	onFailure = PolicyOnFailure
	always    = PolicyAlways

	restartOne           = ActionRestart
	restartPod           = ActionRestartPod
	restartAllContainers = ActionRestartAllContainers

	in    = OperatorIn
	notIn = OperatorNotIn
)

func rule(action Action, operator Operator, codes ...int32) Rule {
	return Rule{Action: action, Operator: operator, Values: codes}
}

func TestMatch(t *testing.T) {
	tests := map[string]struct {
		rules []Rule
		code  int32
		want  Action
	}{
		"no rules":                      {code: 1},
		"in the list":                   {rules: []Rule{rule(restartPod, in, 1, 2)}, code: 2, want: restartPod},
		"not in the list":               {rules: []Rule{rule(restartPod, in, 1, 2)}, code: 3},
		"NotIn, listed":                 {rules: []Rule{rule(restartPod, notIn, 0)}, code: 0},
		"NotIn, not listed":             {rules: []Rule{rule(restartPod, notIn, 0)}, code: 1, want: restartPod},
		"In without values":             {rules: []Rule{rule(restartPod, in)}, code: 0},
		"NotIn without values":          {rules: []Rule{rule(restartPod, notIn)}, code: 0, want: restartPod},
		"the first of two":              {rules: []Rule{rule(restartOne, in, 1), rule(restartPod, in, 1)}, code: 1, want: restartOne},
		"the second of two":             {rules: []Rule{rule(restartOne, in, 1), rule(restartPod, notIn, 1)}, code: 2, want: restartPod},
		"unknown operator is passed by": {rules: []Rule{rule(restartOne, "Exists", 1), rule(restartPod, in, 1)}, code: 1, want: restartPod},
		"no exit codes is passed by":    {rules: []Rule{{Action: restartOne}, rule(restartPod, in, 1)}, code: 1, want: restartPod},
		"action without meaning":        {rules: []Rule{rule("Reboot", in, 1)}, code: 1, want: "Reboot"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, match(test.rules, test.code))
		})
	}
}

func TestOnExit(t *testing.T) {
	both := []Rule{rule(restartPod, in, 88), rule(restartAllContainers, in, 99), rule(restartOne, in, 0, 88, 99)}
	tests := map[string]struct {
		// without is the gate that is off.
		without string
		stopped bool
		kind    Kind
		policy  v1.ContainerRestartPolicy
		rules   []Rule
		code    int32
		want    Action
	}{
		"Never":                          {policy: never, code: 1, want: ""},
		"OnFailure, failure":             {policy: onFailure, code: 1, want: restartOne},
		"OnFailure, success":             {policy: onFailure, code: 0, want: ""},
		"Always, success":                {policy: always, code: 0, want: restartOne},
		"sidecar, success":               {kind: KindSidecar, policy: always, code: 0, want: restartOne},
		"rule before Never":              {policy: never, rules: both, code: 88, want: restartPod},
		"rule before Always":             {policy: always, rules: both, code: 99, want: restartAllContainers},
		"rule Restart before Never":      {policy: never, rules: both, code: 0, want: restartOne},
		"no rule matches":                {policy: onFailure, rules: both, code: 1, want: restartOne},
		"gate off, Never":                {without: "RestartPod", policy: never, rules: both, code: 88, want: ""},
		"gate off, Always":               {without: "RestartPod", policy: always, rules: both, code: 88, want: restartOne},
		"other gate off":                 {without: "RestartAllContainers", policy: never, rules: both, code: 88, want: restartPod},
		"no rules, Never":                {without: "ContainerRestartRules", policy: never, rules: both, code: 0, want: ""},
		"no rules, RestartPod":           {without: "ContainerRestartRules", policy: onFailure, rules: both, code: 88, want: restartOne},
		"second gate off, Never":         {without: "RestartAllContainers", policy: never, rules: both, code: 99, want: ""},
		"second gate off, OnFailure":     {without: "RestartAllContainers", policy: onFailure, rules: both, code: 99, want: restartOne},
		"action without meaning":         {policy: never, rules: []Rule{rule("Reboot", in, 1)}, code: 1, want: ""},
		"init, success":                  {kind: KindInit, policy: onFailure, code: 0, want: ""},
		"init, success, Restart":         {kind: KindInit, policy: never, rules: both, code: 0, want: ""},
		"init, success, RestartPod":      {kind: KindInit, policy: never, rules: []Rule{rule(restartPod, in, 0)}, code: 0, want: restartPod},
		"init, success, gate off":        {without: "RestartPod", kind: KindInit, policy: never, rules: []Rule{rule(restartPod, in, 0)}, code: 0, want: ""},
		"init, failure, Never":           {kind: KindInit, policy: never, code: 1, want: ""},
		"init, failure, OnFailure":       {kind: KindInit, policy: onFailure, code: 1, want: restartOne},
		"init, failure, rule":            {kind: KindInit, policy: never, rules: both, code: 88, want: restartPod},
		"stopped, RestartPod":            {stopped: true, policy: never, rules: both, code: 88, want: ""},
		"stopped, RestartPod, by policy": {stopped: true, policy: onFailure, rules: both, code: 88, want: restartOne},
		"stopped, RestartAllContainers":  {stopped: true, policy: never, rules: []Rule{rule(restartAllContainers, in, 1)}, code: 1, want: ""},
		"stopped, no later rule":         {stopped: true, policy: never, rules: []Rule{rule(restartPod, in, 1), rule(restartOne, in, 1)}, code: 1, want: ""},
		"stopped, Restart":               {stopped: true, policy: never, rules: []Rule{rule(restartOne, in, 137)}, code: 137, want: restartOne},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			gates := allGates
			switch test.without {
			case "RestartPod":
				gates.RestartPod = false
			case "RestartAllContainers":
				gates.RestartAllContainers = false
			case "ContainerRestartRules":
				gates.ContainerRestartRules = false
			}
			kind := test.kind
			if kind == "" {
				kind = KindRegular
			}
			c := Container{Name: "c", Kind: kind, Policy: test.policy, Rules: test.rules, Status: &restart.ContainerStatus{StoppedByAgent: test.stopped}}
			assert.Equal(t, test.want, gates.OnExit(&c, test.code))
		})
	}
}

func TestContainersInOrder(t *testing.T) {
	own := always
	spec := &v1.PodSpec{
		RestartPolicy:  v1.RestartPolicyNever,
		Containers:     []v1.Container{{Name: "main"}, {Name: "helper"}},
		InitContainers: []v1.Container{{Name: "setup"}, {Name: "proxy", RestartPolicy: &own}, {Name: "fetch"}},
		EphemeralContainers: []v1.EphemeralContainer{
			{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}},
		},
	}
	assert.Equal(t, []Container{
		{Name: "setup", Kind: KindInit, Policy: never},
		{Name: "proxy", Kind: KindSidecar, Policy: always},
		{Name: "fetch", Kind: KindInit, Policy: never},
		{Name: "main", Kind: KindRegular, Policy: never},
		{Name: "helper", Kind: KindRegular, Policy: never},
		{Name: "debug", Kind: KindEphemeral, Policy: never},
	}, Containers(spec, Gates{}, nil))
}

func TestContainersPolicyAndRules(t *testing.T) {
	rules := []Rule{rule(restartPod, in, 88)}
	tests := map[string]struct {
		pod  v1.RestartPolicy
		kind Kind
		// own is the container's policy, or "" if it has none.
		own     v1.ContainerRestartPolicy
		gateOff bool
		want    v1.ContainerRestartPolicy
		noRules bool
	}{
		"the pod's, Always":               {pod: v1.RestartPolicyAlways, kind: KindRegular, want: always, noRules: true},
		"the pod's, OnFailure":            {pod: v1.RestartPolicyOnFailure, kind: KindRegular, want: onFailure, noRules: true},
		"the pod's, Never":                {pod: v1.RestartPolicyNever, kind: KindRegular, want: never, noRules: true},
		"pod without a policy":            {kind: KindRegular, want: always, noRules: true},
		"pod with an unknown policy":      {pod: "Sometimes", kind: KindRegular, want: always, noRules: true},
		"its own":                         {pod: v1.RestartPolicyAlways, kind: KindRegular, own: never, want: never},
		"its own, gate off":               {pod: v1.RestartPolicyAlways, kind: KindRegular, own: never, gateOff: true, want: always, noRules: true},
		"init, pod Always":                {pod: v1.RestartPolicyAlways, kind: KindInit, want: onFailure, noRules: true},
		"init, pod Never":                 {pod: v1.RestartPolicyNever, kind: KindInit, want: never, noRules: true},
		"init, its own":                   {pod: v1.RestartPolicyNever, kind: KindInit, own: onFailure, want: onFailure},
		"init, its own, gate off":         {pod: v1.RestartPolicyAlways, kind: KindInit, own: never, gateOff: true, want: onFailure, noRules: true},
		"sidecar in a pod Never":          {pod: v1.RestartPolicyNever, kind: KindSidecar, own: always, want: always},
		"sidecar in a pod Never, no gate": {pod: v1.RestartPolicyNever, kind: KindSidecar, own: always, gateOff: true, want: always, noRules: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := v1.Container{Name: "c"}
			if test.own != "" {
				c.RestartPolicy = &test.own
			}
			spec := &v1.PodSpec{RestartPolicy: test.pod}
			if test.kind == KindRegular {
				spec.Containers = []v1.Container{c}
			} else {
				spec.InitContainers = []v1.Container{c}
			}
			want := Container{Name: "c", Kind: test.kind, Policy: test.want, Rules: rules}
			if test.noRules {
				want.Rules = nil
			}
			assert.Equal(t, []Container{want}, Containers(spec, Gates{ContainerRestartRules: !test.gateOff}, func(*v1.Container) []Rule { return rules }))
		})
	}
}
