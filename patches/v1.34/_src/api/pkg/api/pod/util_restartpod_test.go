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
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"

	podtest "k8s.io/kubernetes/pkg/api/pod/testing"
	api "k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/features"
)

// An update may use what the old object uses: the action, and rules on sidecars, which
// only the gate of the action allows.
func TestValidationOptionsForRestartPod(t *testing.T) {
	with := func(policy api.ContainerRestartPolicy, action api.ContainerRestartRuleAction) api.Container {
		c := podtest.MakeContainer("c", podtest.SetContainerRestartPolicy(policy))
		c.RestartPolicyRules = []api.ContainerRestartRule{{
			Action:    action,
			ExitCodes: &api.ContainerRestartRuleOnExitCodes{Operator: api.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
		}}
		return c
	}
	container := func(action api.ContainerRestartRuleAction) *api.PodSpec {
		return &api.PodSpec{Containers: []api.Container{with(api.ContainerRestartPolicyNever, action)}}
	}
	initContainer := func(action api.ContainerRestartRuleAction) *api.PodSpec {
		return &api.PodSpec{InitContainers: []api.Container{with(api.ContainerRestartPolicyNever, action)}}
	}
	sidecar := func(action api.ContainerRestartRuleAction) *api.PodSpec {
		return &api.PodSpec{InitContainers: []api.Container{with(api.ContainerRestartPolicyAlways, action)}}
	}
	const (
		restart    = api.ContainerRestartRuleActionRestart
		restartPod = api.ContainerRestartRuleActionRestartPod
	)
	type gates struct{ rules, pod bool }
	type allowed struct{ rules, pod bool }
	for name, tc := range map[string]struct {
		gates gates
		old   *api.PodSpec
		want  allowed
	}{
		"new object, gates off":                   {gates{}, nil, allowed{}},
		"new object, rules on":                    {gates{rules: true}, nil, allowed{rules: true}},
		"new object, RestartPod on":               {gates{rules: true, pod: true}, nil, allowed{rules: true, pod: true}},
		"old without rules":                       {gates{}, &api.PodSpec{Containers: []api.Container{{}}}, allowed{}},
		"old with Restart":                        {gates{rules: true}, container(restart), allowed{rules: true}},
		"old with RestartPod":                     {gates{rules: true}, container(restartPod), allowed{rules: true, pod: true}},
		"old with RestartPod, rules off":          {gates{}, container(restartPod), allowed{rules: true, pod: true}},
		"old init container with RestartPod":      {gates{}, initContainer(restartPod), allowed{rules: true, pod: true}},
		"old sidecar with RestartPod":             {gates{}, sidecar(restartPod), allowed{rules: true, pod: true}},
		"old sidecar with Restart":                {gates{}, sidecar(restart), allowed{rules: true, pod: true}},
		"old sidecar with Restart, RestartPod on": {gates{rules: true, pod: true}, sidecar(restart), allowed{rules: true, pod: true}},
	} {
		t.Run(name, func(t *testing.T) {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ContainerRestartRules, tc.gates.rules)
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.RestartPodOnContainerExits, tc.gates.pod)
			opts := GetValidationOptionsFromPodSpecAndMeta(nil, tc.old, nil, nil)
			got := allowed{opts.AllowContainerRestartPolicyRules, opts.AllowRestartPod}
			assert.Equal(t, tc.want, got)
		})
	}
}
