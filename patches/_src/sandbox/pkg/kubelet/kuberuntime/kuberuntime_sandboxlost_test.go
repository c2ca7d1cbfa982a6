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

package kuberuntime

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// After a reboot, a pod with the policy Never continues with the containers that
// have their own policy or rule. Upstream neither starts them nor ends the pod.
func TestComputePodActionsNeverWithoutSandbox(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	onFailure := v1.ContainerRestartPolicyOnFailure
	never := v1.ContainerRestartPolicyNever
	restartOn := func(code int32) []v1.ContainerRestartRule {
		return []v1.ContainerRestartRule{{
			Action:    v1.ContainerRestartRuleActionRestart,
			ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{code}},
		}}
	}
	tests := map[string]struct {
		mutate func(*v1.Pod)
		// statuses are the names of the containers that ran. Nil means all.
		statuses []string
		// init is the exit code of the container "init".
		init int
		// running is the container that still runs, or nil.
		running *int
		want    []int
	}{
		"all are done":               {mutate: func(*v1.Pod) {}},
		"one with the policy Always": {mutate: func(pod *v1.Pod) { pod.Spec.Containers[1].RestartPolicy = &always }, want: []int{1}},
		"one with a rule for its exit": {mutate: func(pod *v1.Pod) {
			pod.Spec.Containers[2].RestartPolicy, pod.Spec.Containers[2].RestartPolicyRules = &never, restartOn(255)
		}, want: []int{2}},
		"one with a rule for another exit": {mutate: func(pod *v1.Pod) {
			pod.Spec.Containers[2].RestartPolicy, pod.Spec.Containers[2].RestartPolicyRules = &never, restartOn(1)
		}},
		"none has run, a debug container has": {mutate: func(pod *v1.Pod) {
			pod.Spec.Containers[0].RestartPolicy = &never
		}, statuses: []string{"debug"}, want: []int{0, 1, 2}},
		"init is done, none has run, one with the policy Always": {mutate: func(pod *v1.Pod) {
			pod.Spec.InitContainers = []v1.Container{{Name: "init"}}
			pod.Spec.Containers[1].RestartPolicy = &always
		}, statuses: []string{"init"}, init: 0, want: []int{}},
		"init has failed, none has run, one with the policy Always": {mutate: func(pod *v1.Pod) {
			pod.Spec.InitContainers = []v1.Container{{Name: "init"}}
			pod.Spec.Containers[1].RestartPolicy = &always
		}, statuses: []string{"init"}, init: 1},
		"one with the policy OnFailure runs": {mutate: func(pod *v1.Pod) {
			pod.Spec.Containers[1].RestartPolicy = &onFailure
		}, running: ptr.To(1), want: []int{1}},
		"one with the policy OnFailure runs, after an init container": {mutate: func(pod *v1.Pod) {
			pod.Spec.InitContainers = []v1.Container{{Name: "init"}}
			pod.Spec.Containers[1].RestartPolicy = &onFailure
		}, running: ptr.To(1)},
		"one with the policy Always runs, after an init container": {mutate: func(pod *v1.Pod) {
			pod.Spec.InitContainers = []v1.Container{{Name: "init"}}
			pod.Spec.Containers[1].RestartPolicy = &always
		}, running: ptr.To(1), want: []int{}},
		"one with the policy Never runs": {mutate: func(pod *v1.Pod) {
			pod.Spec.Containers[1].RestartPolicy = &never
		}, running: ptr.To(1)},
		"one without a policy runs, another has the policy Always": {mutate: func(pod *v1.Pod) {
			pod.Spec.Containers[2].RestartPolicy = &always
		}, running: ptr.To(1), want: []int{2}},
		"a debug container has run, no own policies": {mutate: func(*v1.Pod) {}, statuses: []string{"debug"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			restartRulesForTest(t, true)
			tCtx := ktesting.Init(t)
			_, _, m, err := runtimeManagerForTest(tCtx, &record.FakeRecorder{})
			require.NoError(t, err)
			pod, status := makeBasePodAndStatus()
			pod.Spec.RestartPolicy = v1.RestartPolicyNever
			status.SandboxStatuses[0].State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
			for _, s := range status.ContainerStatuses {
				s.State, s.ExitCode, s.FinishedAt = kubecontainer.ContainerStateExited, 255, time.Now()
			}
			if tc.statuses != nil {
				status.ContainerStatuses = status.ContainerStatuses[:len(tc.statuses)]
				for i, name := range tc.statuses {
					status.ContainerStatuses[i].Name = name
					if name == "init" {
						status.ContainerStatuses[i].ExitCode = tc.init
					}
				}
			}
			if tc.running != nil {
				status.ContainerStatuses[*tc.running].State = kubecontainer.ContainerStateRunning
			}
			tc.mutate(pod)
			actions := m.podActions(tCtx, pod, status)
			require.True(t, actions.KillPod)
			require.Equal(t, tc.want != nil, actions.CreateSandbox)
			require.ElementsMatch(t, tc.want, actions.ContainersToStart)
		})
	}
}
