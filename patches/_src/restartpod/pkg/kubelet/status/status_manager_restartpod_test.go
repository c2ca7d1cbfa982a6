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

package status

import (
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
)

// The condition of a restart is set to False in the API even if the gate is off by
// then. Conditions that the kubelet does not write are left unchanged.
func TestMergePodStatusRestartConditions(t *testing.T) {
	for _, enabled := range []bool{true, false} {
		for _, conditionType := range setRestartGates(t, enabled) {
			inAPI := v1.PodStatus{Conditions: []v1.PodCondition{{Type: conditionType, Status: v1.ConditionTrue, Reason: "ContainerExited"}}}
			ended := v1.PodStatus{Conditions: []v1.PodCondition{{Type: conditionType, Status: v1.ConditionFalse, Reason: "ContainersStarted"}}}

			merged := mergePodStatus(&v1.Pod{}, inAPI, ended, true)
			_, c := podutil.GetPodCondition(&merged, conditionType)
			require.Equal(t, v1.ConditionFalse, c.Status, "%s, gates %t", conditionType, enabled)
			require.Len(t, merged.Conditions, 1)
			require.False(t, isPodStatusByKubeletEqual(&inAPI, &ended), "it is worth a write")

			merged = mergePodStatus(&v1.Pod{}, inAPI, v1.PodStatus{}, true)
			_, c = podutil.GetPodCondition(&merged, conditionType)
			kept := !enabled || conditionType == v1.PodRestarting
			require.Equal(t, kept, c != nil, "%s, gates %t: upstream's is the kubelet's alone with its gate on", conditionType, enabled)
		}
	}
}

// A condition of another component stays as it is in the API. The kubelet's copy may be
// stale.
func TestMergePodStatusConditionOfOthers(t *testing.T) {
	for _, enabled := range []bool{true, false} {
		for _, conditionType := range setRestartGates(t, enabled) {
			if enabled && conditionType == v1.AllContainersRestarting {
				continue // upstream's is the kubelet's alone
			}
			inAPI := v1.PodStatus{Conditions: []v1.PodCondition{{Type: conditionType, Status: v1.ConditionFalse, Reason: "Theirs"}}}
			stale := v1.PodStatus{Conditions: []v1.PodCondition{{Type: conditionType, Status: v1.ConditionTrue, Reason: "Theirs"}}}
			merged := mergePodStatus(&v1.Pod{}, inAPI, stale, true)
			require.Equal(t, inAPI.Conditions, merged.Conditions, "%s, gates %t", conditionType, enabled)
			require.True(t, isPodStatusByKubeletEqual(&inAPI, &stale), "it is worth no write")
			require.True(t, isPodStatusByKubeletEqual(&inAPI, &v1.PodStatus{}))

			ours := v1.PodStatus{Conditions: []v1.PodCondition{{Type: conditionType, Status: v1.ConditionTrue, Reason: "ContainerExited"}}}
			require.Equal(t, ours.Conditions, mergePodStatus(&v1.Pod{}, inAPI, ours, true).Conditions)
			require.False(t, isPodStatusByKubeletEqual(&inAPI, &ours))
		}
	}
}

// Containers leave the terminated state while the pod is being restarted. At other
// times their policies and rules decide.
func TestContainerStateTransitionInRestart(t *testing.T) {
	never := v1.ContainerRestartPolicyNever
	spec := &v1.PodSpec{RestartPolicy: v1.RestartPolicyNever, Containers: []v1.Container{{Name: "x"}, {
		Name: "y", RestartPolicy: &never, RestartPolicyRules: []v1.ContainerRestartRule{{
			Action:    v1.ContainerRestartRuleActionRestartPod,
			ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{88}},
		}},
	}}}
	status := func(state v1.ContainerState, restarting ...v1.ConditionStatus) *v1.PodStatus {
		s := &v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "x", State: state}}}
		for _, c := range restarting {
			s.Conditions = append(s.Conditions, v1.PodCondition{Type: v1.PodRestarting, Status: c, Reason: "ContainerExited"})
		}
		return s
	}
	terminated := v1.ContainerState{Terminated: &v1.ContainerStateTerminated{}}
	running := v1.ContainerState{Running: &v1.ContainerStateRunning{}}
	require.Error(t, checkContainerStateTransition(status(terminated), status(running), spec))
	require.Error(t, checkContainerStateTransition(status(terminated, v1.ConditionFalse), status(running, v1.ConditionFalse), spec))
	require.NoError(t, checkContainerStateTransition(status(terminated), status(running, v1.ConditionTrue), spec))
	require.NoError(t, checkContainerStateTransition(status(terminated, v1.ConditionTrue), status(running, v1.ConditionFalse), spec))
	theirs := status(terminated, v1.ConditionTrue)
	theirs.Conditions[0].Reason = "Theirs"
	require.Error(t, checkContainerStateTransition(theirs, status(running), spec))
}
