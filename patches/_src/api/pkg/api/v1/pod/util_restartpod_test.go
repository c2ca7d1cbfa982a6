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

package pod

import (
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
)

func restartRule(action v1.ContainerRestartRuleAction, exitCode int32) v1.ContainerRestartRule {
	return v1.ContainerRestartRule{
		Action:    action,
		ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{exitCode}},
	}
}

func restartingContainer(policy v1.ContainerRestartPolicy, rules ...v1.ContainerRestartRule) v1.Container {
	return v1.Container{RestartPolicy: &policy, RestartPolicyRules: rules}
}

func TestContainerShouldRestartWithRestartPod(t *testing.T) {
	const (
		never     = v1.ContainerRestartPolicyNever
		onFailure = v1.ContainerRestartPolicyOnFailure
		always    = v1.ContainerRestartPolicyAlways
	)
	restartPod := restartRule(v1.ContainerRestartRuleActionRestartPod, 42)
	for name, tc := range map[string]struct {
		container       v1.Container
		exitCode        int32
		gateOn, gateOff bool
	}{
		"matches":                           {container: restartingContainer(never, restartPod), exitCode: 42, gateOn: true},
		"matches, as second rule":           {container: restartingContainer(never, restartRule("Restart", 1), restartPod), exitCode: 42, gateOn: true},
		"does not match":                    {container: restartingContainer(never, restartPod), exitCode: 1},
		"matches exit code 0 of OnFailure":  {container: restartingContainer(onFailure, restartRule("RestartPod", 0)), exitCode: 0, gateOn: true},
		"matches, and so would the policy":  {container: restartingContainer(always, restartPod), exitCode: 42, gateOn: true, gateOff: true},
		"matches first, and a Restart does": {container: restartingContainer(never, restartPod, restartRule("Restart", 42)), exitCode: 42, gateOn: true},
	} {
		t.Run(name, func(t *testing.T) {
			pod := v1.PodSpec{RestartPolicy: v1.RestartPolicyNever, Containers: []v1.Container{tc.container}}
			setWholePodGates(t, true, false)
			assert.Equal(t, tc.gateOn, ContainerShouldRestart(tc.container, pod, tc.exitCode), "gate on")
			setWholePodGates(t, false, true)
			assert.Equal(t, tc.gateOff, ContainerShouldRestart(tc.container, pod, tc.exitCode), "gate off")
		})
	}
}

func TestPodCouldRestart(t *testing.T) {
	with := func(action v1.ContainerRestartRuleAction) []v1.Container {
		return []v1.Container{{}, restartingContainer(v1.ContainerRestartPolicyAlways, restartRule("Restart", 1), restartRule(action, 42))}
	}
	for name, tc := range map[string]struct {
		pod  *v1.PodSpec
		want bool
	}{
		"nil":                  {},
		"no rules":             {pod: &v1.PodSpec{InitContainers: []v1.Container{{}}, Containers: []v1.Container{{}}}},
		"init container":       {pod: &v1.PodSpec{InitContainers: with("RestartPod")}, want: true},
		"container":            {pod: &v1.PodSpec{Containers: with("RestartPod")}, want: true},
		"RestartAllContainers": {pod: &v1.PodSpec{InitContainers: with("RestartAllContainers"), Containers: with("RestartAllContainers")}},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.want, PodCouldRestart(tc.pod))
		})
	}
}

// A container that does not restart by itself can be restarted with its pod.
func TestIsContainerRestartableWithItsPod(t *testing.T) {
	with := func(action v1.ContainerRestartRuleAction) v1.Container {
		return restartingContainer(v1.ContainerRestartPolicyNever, restartRule(action, 42))
	}
	for name, pod := range map[string]func(v1.ContainerRestartRuleAction) v1.PodSpec{
		"rule of the container": func(a v1.ContainerRestartRuleAction) v1.PodSpec {
			return v1.PodSpec{Containers: []v1.Container{with(a)}}
		},
		"rule of another container": func(a v1.ContainerRestartRuleAction) v1.PodSpec {
			return v1.PodSpec{Containers: []v1.Container{{}, with(a)}}
		},
		"rule of an init container": func(a v1.ContainerRestartRuleAction) v1.PodSpec {
			return v1.PodSpec{InitContainers: []v1.Container{with(a)}, Containers: []v1.Container{{}}}
		},
	} {
		for _, tc := range []struct {
			action                           v1.ContainerRestartRuleAction
			restartPod, restartAllContainers bool
			want                             bool
		}{
			{action: v1.ContainerRestartRuleActionRestartPod, restartPod: true, want: true},
			{action: v1.ContainerRestartRuleActionRestartPod, restartAllContainers: true},
			{action: v1.ContainerRestartRuleActionRestartAllContainers, restartAllContainers: true, want: hasRestartAllContainers},
			{action: v1.ContainerRestartRuleActionRestartAllContainers, restartPod: true},
		} {
			t.Run(name+", "+string(tc.action), func(t *testing.T) {
				setWholePodGates(t, tc.restartPod, tc.restartAllContainers)
				spec := pod(tc.action)
				spec.RestartPolicy = v1.RestartPolicyNever
				assert.Equal(t, tc.want, IsContainerRestartable(spec, spec.Containers[0]))
			})
		}
	}
}
