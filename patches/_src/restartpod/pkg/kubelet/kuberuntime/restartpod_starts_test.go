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
	"fmt"
	"math/rand"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/record"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/backoff"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/restart"
	"k8s.io/kubernetes/pkg/kubelet/restartpod"
	"k8s.io/kubernetes/pkg/kubelet/restartpod/restartrules"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// A Machine plans the same starts as computePodActions, if that gets the pod status
// without the previous run.
func TestPlanStartIsWhatComputePodActionsStarts(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ContainerRestartRules, true)
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.RestartPodOnContainerExits, true)
	gates := restartpod.Gates{ContainerRestartRules: true, RestartPod: true, RestartAllContainers: true}
	tCtx := ktesting.Init(t)
	_, _, m, err := runtimeManagerForTest(tCtx, &record.FakeRecorder{})
	require.NoError(t, err)
	random := rand.New(rand.NewSource(1))
	start := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	policies := []v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever}
	own := []v1.ContainerRestartPolicy{v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyOnFailure, v1.ContainerRestartPolicyNever}
	actions := []v1.ContainerRestartRuleAction{
		v1.ContainerRestartRuleActionRestart, v1.ContainerRestartRuleActionRestartPod, v1.ContainerRestartRuleActionRestartAllContainers,
	}
	starts, startups, stops := 0, 0, 0
	for n := range 20000 {
		pod := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{UID: "u", Name: "p", Namespace: "n"},
			Spec:       v1.PodSpec{RestartPolicy: policies[random.Intn(len(policies))]},
		}
		container := func(name string) v1.Container {
			c := v1.Container{Name: name, Image: "i"}
			if random.Intn(2) == 0 {
				c.RestartPolicy = &own[random.Intn(len(own))]
				if random.Intn(2) == 0 {
					c.RestartPolicyRules = []v1.ContainerRestartRule{{
						Action:    actions[random.Intn(len(actions))],
						ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{3}},
					}}
				}
			}
			return c
		}
		for i := range random.Intn(3) {
			c := container(fmt.Sprintf("i%d", i))
			if c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways {
				c.RestartPolicyRules = nil
			}
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		}
		for i := range 1 + random.Intn(2) {
			pod.Spec.Containers = append(pod.Spec.Containers, container(fmt.Sprintf("c%d", i)))
		}

		// A restart is in Startup, or the pod is in its first run.
		machine := restartpod.New(backoff.NewBackOff(time.Second, time.Minute), pod, gates)
		containers := restartrules.Containers(&pod.Spec, gates)
		startup := random.Intn(2) == 0
		status := &kubecontainer.PodStatus{
			ID: pod.UID, Name: pod.Name, Namespace: pod.Namespace,
			SandboxStatuses: []*runtimeapi.PodSandboxStatus{{Id: "s", Metadata: &runtimeapi.PodSandboxMetadata{}, State: runtimeapi.PodSandboxState_SANDBOX_READY}},
		}
		old := map[string]bool{}
		// Containers start in order: no container has run after one that has not been
		// reached yet.
		turn := true
		for i := range containers {
			c := &containers[i]
			s := &kubecontainer.Status{ID: kubecontainer.ContainerID{Type: "test", ID: c.Name}, Name: c.Name, StartedAt: start.Add(time.Minute)}
			spec := kubecontainer.GetContainerSpec(pod, c.Name)
			s.Hash = kubecontainer.HashContainer(spec)
			switch state := random.Intn(5); {
			case !turn && (!startup || random.Intn(2) == 0), turn && state == 0:
				turn = turn && c.Kind == restartpod.KindRegular
				continue
			case !turn:
				s.StartedAt, s.State, s.ExitCode, s.FinishedAt = start.Add(-time.Minute), kubecontainer.ContainerStateExited, 88, start.Add(-time.Second)
				old[c.Name] = true
			case state == 1:
				s.State = kubecontainer.ContainerStateCreated
			case state == 2:
				s.State = kubecontainer.ContainerStateRunning
			default:
				s.State, s.ExitCode, s.FinishedAt = kubecontainer.ContainerStateExited, []int{0, 1, 3}[random.Intn(3)], start.Add(2*time.Minute)
			}
			switch c.Kind {
			case restartpod.KindInit:
				turn = turn && s.State == kubecontainer.ContainerStateExited && s.ExitCode == 0
			case restartpod.KindSidecar:
				turn = turn && s.State != kubecontainer.ContainerStateCreated
			}
			c.Status = &restart.ContainerStatus{
				ID: s.ID.String(), State: restart.ContainerState(s.State), Started: s.State == kubecontainer.ContainerStateRunning,
				ExitCode: int32(s.ExitCode), StartedAt: s.StartedAt, FinishedAt: s.FinishedAt,
			}
			// The kubelet caused this exit, so no rule for the whole pod applies.
			if s.State == kubecontainer.ContainerStateExited && !old[c.Name] && (random.Intn(2) == 0 || restartsPod(gates, c)) {
				c.Status.StoppedByAgent = true
				stops++
				spec.RestartPolicyRules = slices.Clone(spec.RestartPolicyRules)
				for j := range spec.RestartPolicyRules {
					if rule := &spec.RestartPolicyRules[j]; rule.Action != v1.ContainerRestartRuleActionRestart {
						rule.Action = ""
					}
				}
			}
			if !old[c.Name] {
				status.ContainerStatuses = append(status.ContainerStatuses, s)
			}
		}
		status.ActiveContainerStatuses = status.ContainerStatuses
		if startup {
			machine.Recover([]v1.PodCondition{{Type: restartpod.PodRestarting, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(start), Reason: restartpod.ReasonContainerExited}}, containers, start.Add(time.Hour))
		}
		plan := machine.Step(restartpod.Observation{Now: start.Add(time.Hour), Containers: containers})
		if plan.Phase == restartpod.PhaseTerminatingForRestart {
			continue
		}
		for i := range containers {
			require.Equal(t, old[containers[i].Name] && plan.Old != nil, plan.Old != nil && plan.Old[i])
		}
		if len(old) > 0 && plan.Old == nil {
			t.Fatalf("%d: the previous run is forgotten", n)
		}

		var want, got []string
		actions := m.podActions(tCtx, pod, status)
		if !actions.KillPod {
			for _, i := range actions.InitContainersToStart {
				want = append(want, pod.Spec.InitContainers[i].Name)
			}
			for _, i := range actions.ContainersToStart {
				want = append(want, pod.Spec.Containers[i].Name)
			}
		}
		for _, i := range startsOfRelease(containers, &plan) {
			got = append(got, containers[i].Name)
		}
		slices.Sort(want)
		slices.Sort(got)
		require.Equal(t, want, got, "pod %d: %+v\nstatuses: %+v", n, pod.Spec, statusesOf(containers))
		starts += len(got)
		if plan.Phase == restartpod.PhaseStartup {
			startups++
		}
	}
	require.Greater(t, starts, 1000)
	require.Greater(t, startups, 1000)
	require.Greater(t, stops, 1000)
}

func restartsPod(gates restartpod.Gates, c *restartpod.Container) bool {
	a := gates.OnExit(c, c.Status.ExitCode)
	return a != "" && a != restartpod.ActionRestart
}

func statusesOf(containers []restartpod.Container) (out []string) {
	for _, c := range containers {
		s := "nothing"
		if c.Status != nil {
			s = fmt.Sprintf("%s %d %s", c.Status.State, c.Status.ExitCode, c.Status.StartedAt.Format(time.TimeOnly))
		}
		out = append(out, c.Name+": "+s)
	}
	return out
}
