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

package validation

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/util/validation/field"

	podtest "k8s.io/kubernetes/pkg/api/pod/testing"
	"k8s.io/kubernetes/pkg/apis/core"
)

func restartingContainer(name string, policy core.ContainerRestartPolicy, actions ...core.ContainerRestartRuleAction) core.Container {
	var rules []core.ContainerRestartRule
	for _, action := range actions {
		rules = append(rules, core.ContainerRestartRule{
			Action:    action,
			ExitCodes: &core.ContainerRestartRuleOnExitCodes{Operator: core.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
		})
	}
	return podtest.MakeContainer(name, podtest.SetContainerRestartPolicy(policy), func(c *core.Container) { c.RestartPolicyRules = rules })
}

func errorStrings(errs field.ErrorList) []string {
	var s []string
	for _, err := range errs {
		s = append(s, err.Error())
	}
	return s
}

func TestValidateRestartPodAction(t *testing.T) {
	const (
		never      = core.ContainerRestartPolicyNever
		always     = core.ContainerRestartPolicyAlways
		restart    = core.ContainerRestartRuleActionRestart
		restartPod = core.ContainerRestartRuleActionRestartPod
		restartAll = core.ContainerRestartRuleAction("RestartAllContainers")
	)
	var (
		none = PodValidationOptions{AllowContainerRestartPolicyRules: true}
		pod  = PodValidationOptions{AllowContainerRestartPolicyRules: true, AllowRestartPod: true}
	)
	container := func(c core.Container) core.PodSpec {
		return podtest.MakePodSpec(podtest.SetContainers(c))
	}
	initContainer := func(c core.Container) core.PodSpec {
		return podtest.MakePodSpec(podtest.SetInitContainers(c))
	}
	for name, tc := range map[string]struct {
		spec core.PodSpec
		opts PodValidationOptions
		// all also allows RestartAllContainers.
		all  bool
		want []string
	}{
		"container": {spec: container(restartingContainer("c", never, restartPod)), opts: pod},
		"container, not allowed": {
			spec: container(restartingContainer("c", never, restartPod)), opts: none,
			want: []string{`spec.containers[0].restartPolicyRules[0].action: Unsupported value: "RestartPod": supported values: "Restart"`},
		},
		"container, only RestartAllContainers allowed": {
			spec: container(restartingContainer("c", never, restart, restartPod)), opts: none, all: true,
			want: []string{`spec.containers[0].restartPolicyRules[1].action: Unsupported value: "RestartPod": supported values: "Restart", "RestartAllContainers"`},
		},
		"container, RestartAllContainers where only RestartPod is allowed": {
			spec: container(restartingContainer("c", never, restartAll)), opts: pod,
			want: []string{`spec.containers[0].restartPolicyRules[0].action: Unsupported value: "RestartAllContainers": supported values: "Restart", "RestartPod"`},
		},
		"container, all three actions": {spec: container(restartingContainer("c", never, restart, restartPod, restartAll)), opts: pod, all: true},
		"init container":               {spec: initContainer(restartingContainer("c", never, restartPod)), opts: pod},
		"init container, not allowed": {
			spec: initContainer(restartingContainer("c", never, restartPod)), opts: none,
			want: []string{`spec.initContainers[0].restartPolicyRules[0].action: Unsupported value: "RestartPod": supported values: "Restart"`},
		},
		"sidecar":               {spec: initContainer(restartingContainer("c", always, restartPod)), opts: pod},
		"sidecar, Restart rule": {spec: initContainer(restartingContainer("c", always, restart)), opts: pod},
		"sidecar, not allowed": {
			spec: initContainer(restartingContainer("c", always, restartPod)), opts: none,
			want: []string{`spec.initContainers[0].restartPolicyRules: Forbidden: restartPolicyRules are not allowed for init containers with restart policy Always`},
		},
		"sidecar, only RestartAllContainers allowed": {
			spec: initContainer(restartingContainer("c", always, restartPod)), opts: none, all: true,
			want: []string{`spec.initContainers[0].restartPolicyRules[0].action: Unsupported value: "RestartPod": supported values: "Restart", "RestartAllContainers"`},
		},
		"sidecar, RestartAllContainers where only RestartPod is allowed": {
			spec: initContainer(restartingContainer("c", always, restartAll)), opts: pod,
			want: []string{`spec.initContainers[0].restartPolicyRules[0].action: Unsupported value: "RestartAllContainers": supported values: "Restart", "RestartPod"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.all {
				allowRestartAllContainers(t, &tc.opts)
			}
			// Twice, because the sets of supported actions are shared.
			for range 2 {
				errs := ValidatePodSpec(&tc.spec, nil, field.NewPath("spec"), tc.opts)
				assert.Equal(t, tc.want, errorStrings(errs))
			}
		})
	}
}

// Any container except an ephemeral one may leave the terminated state in a pod
// that RestartPod could have restarted.
func TestStateTransitionsWithRestartPod(t *testing.T) {
	const (
		never      = core.ContainerRestartPolicyNever
		always     = core.ContainerRestartPolicyAlways
		restartPod = core.ContainerRestartRuleActionRestartPod
		forbidden  = "Forbidden: may not be transitioned to non-terminated state"
	)
	spec := func(init, sidecar, container []core.ContainerRestartRuleAction) core.PodSpec {
		return podtest.MakePodSpec(
			podtest.SetRestartPolicy(core.RestartPolicyNever),
			podtest.SetInitContainers(restartingContainer("init", never, init...), restartingContainer("sidecar", always, sidecar...)),
			podtest.SetContainers(restartingContainer("ctr", never, container...), podtest.MakeContainer("other")),
			podtest.SetEphemeralContainers(core.EphemeralContainer{EphemeralContainerCommon: core.EphemeralContainerCommon(podtest.MakeContainer("debug"))}),
		)
	}
	status := func(state core.ContainerState) core.PodStatus {
		return podtest.MakePodStatus(
			podtest.SetInitContainerStatuses(core.ContainerStatus{Name: "init", State: state}, core.ContainerStatus{Name: "sidecar", State: state}),
			podtest.SetContainerStatuses(core.ContainerStatus{Name: "ctr", State: state}, core.ContainerStatus{Name: "other", State: state}),
			podtest.SetEphemeralContainerStatuses(core.ContainerStatus{Name: "debug", State: state}),
		)
	}
	ephemeral := "status.ephemeralContainerStatuses[0].state: " + forbidden
	without := []string{
		"status.containerStatuses[0].state: " + forbidden,
		"status.containerStatuses[1].state: " + forbidden,
		"status.initContainerStatuses[0].state: " + forbidden,
		ephemeral,
	}
	rule := []core.ContainerRestartRuleAction{restartPod}
	allowed := PodValidationOptions{AllowContainerRestartPolicyRules: true, AllowRestartPod: true}
	for name, tc := range map[string]struct {
		spec core.PodSpec
		opts PodValidationOptions
		want []string
	}{
		"rule of an init container": {spec(rule, nil, nil), allowed, []string{ephemeral}},
		"rule of a sidecar":         {spec(nil, rule, nil), allowed, []string{ephemeral}},
		"rule of a container":       {spec(nil, nil, rule), allowed, []string{ephemeral}},
		"no such rule":              {spec(nil, nil, nil), allowed, without},
		"RestartPod not allowed":    {spec(nil, nil, rule), PodValidationOptions{AllowContainerRestartPolicyRules: true}, without},
		"rules not allowed":         {spec(nil, nil, rule), PodValidationOptions{AllowRestartPod: true}, without},
	} {
		t.Run(name, func(t *testing.T) {
			// Exit code 1 matches no rule, because the exit code of the container
			// that restarted the pod may never have been reported.
			oldPod := podtest.MakePod("pod", podtest.SetResourceVersion("1"), podtest.SetStatus(status(core.ContainerState{Terminated: &core.ContainerStateTerminated{ExitCode: 1}})))
			oldPod.Spec = tc.spec
			for _, state := range []core.ContainerState{{Running: &core.ContainerStateRunning{}}, {Waiting: &core.ContainerStateWaiting{}}} {
				newPod := oldPod.DeepCopy()
				newPod.Status = status(state)
				newPod.Status.Conditions = []core.PodCondition{{Type: core.PodRestarting, Status: core.ConditionTrue, Reason: "ContainerExited"}}
				assert.Equal(t, tc.want, errorStrings(ValidatePodStatusUpdate(newPod, oldPod, tc.opts)))
			}
		})
	}
}
