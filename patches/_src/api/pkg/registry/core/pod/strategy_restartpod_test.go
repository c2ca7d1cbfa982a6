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
	"github.com/stretchr/testify/require"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	podtest "k8s.io/kubernetes/pkg/api/pod/testing"
	api "k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/core/validation"
)

// Pods with and without RestartPod in an API server whose gate is on, then off,
// then on again (KEP-5532, "Feature Enablement and Rollback").
func TestRestartPodGateOnOffOn(t *testing.T) {
	// The declarative validation reads the version from it.
	ctx := genericapirequest.WithRequestInfo(genericapirequest.NewDefaultContext(), &genericapirequest.RequestInfo{APIVersion: "v1", Resource: "pods"})
	rule := api.ContainerRestartRule{
		Action:    api.ContainerRestartRuleActionRestartPod,
		ExitCodes: &api.ContainerRestartRuleOnExitCodes{Operator: api.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{88}},
	}
	with := func(name string, policy api.ContainerRestartPolicy) api.Container {
		return podtest.MakeContainer(name, podtest.SetContainerRestartPolicy(policy), func(c *api.Container) {
			c.RestartPolicyRules = []api.ContainerRestartRule{rule}
		})
	}
	terminated := api.ContainerState{Terminated: &api.ContainerStateTerminated{ExitCode: 1}}
	running := api.ContainerState{Running: &api.ContainerStateRunning{}}
	status := func(state api.ContainerState, restarting api.ConditionStatus) api.PodStatus {
		s := podtest.MakePodStatus(
			podtest.SetInitContainerStatuses(api.ContainerStatus{Name: "init", State: state}),
			podtest.SetContainerStatuses(api.ContainerStatus{Name: "ctr", State: state}),
		)
		s.QOSClass = api.PodQOSBestEffort
		s.Conditions = []api.PodCondition{{Type: api.PodRestarting, Status: restarting, Reason: "ContainerExited"}}
		return s
	}
	create := func(pod *api.Pod) (*api.Pod, error) {
		pod = pod.DeepCopy()
		rest.FillObjectMetaSystemFields(pod)
		err := rest.BeforeCreate(Strategy, ctx, pod)
		pod.ResourceVersion = "1"
		return pod, err
	}
	update := func(strategy rest.RESTUpdateStrategy, old *api.Pod, change func(*api.Pod)) (*api.Pod, error) {
		pod := old.DeepCopy()
		change(pod)
		err := rest.BeforeUpdate(strategy, ctx, pod, old.DeepCopy())
		return pod, err
	}
	label := func(pod *api.Pod) { pod.Labels = map[string]string{"a": "b"} }
	// A stored pod stays unchanged by other updates, and its status reports a
	// restart.
	stored := func(t *testing.T, pod *api.Pod) {
		t.Helper()
		got, err := update(Strategy, pod, label)
		require.NoError(t, err)
		assert.Equal(t, pod.Spec, got.Spec)
		exited, err := update(StatusStrategy, pod, func(pod *api.Pod) { pod.Status = status(terminated, api.ConditionTrue) })
		require.NoError(t, err)
		restarted, err := update(StatusStrategy, exited, func(pod *api.Pod) { pod.Status = status(running, api.ConditionFalse) })
		require.NoError(t, err)
		assert.Equal(t, pod.Spec, restarted.Spec)
		assert.Equal(t, status(running, api.ConditionFalse), restarted.Status)
	}

	never := podtest.SetRestartPolicy(api.RestartPolicyNever)
	for name, pod := range map[string]*api.Pod{
		"container": podtest.MakePod("pod", never,
			podtest.SetInitContainers(podtest.MakeContainer("init")),
			podtest.SetContainers(with("ctr", api.ContainerRestartPolicyNever))),
		"init container": podtest.MakePod("pod", never,
			podtest.SetInitContainers(with("init", api.ContainerRestartPolicyNever))),
		"sidecar": podtest.MakePod("pod", never,
			podtest.SetInitContainers(podtest.MakeContainer("init"), with("sidecar", api.ContainerRestartPolicyAlways))),
	} {
		t.Run(name, func(t *testing.T) {
			setRestartPodGates(t, true, true)
			one, err := create(pod)
			require.NoError(t, err)
			assert.Equal(t, pod.Spec, one.Spec)
			stored(t, one)

			setRestartPodGates(t, true, false)
			_, err = create(pod)
			assert.ErrorContains(t, err, "restartPolicyRules")
			stored(t, one)
			// With ContainerRestartRules off too, a new pod loses its rules,
			// and the stored pod keeps them.
			setRestartPodGates(t, false, false)
			got, err := create(pod)
			require.NoError(t, err)
			assert.False(t, validation.RestartActionInUse(&got.Spec, api.ContainerRestartRuleActionRestartPod))
			stored(t, one)

			setRestartPodGates(t, true, true)
			stored(t, one)
			two, err := create(pod)
			require.NoError(t, err)
			assert.Equal(t, one.Spec, two.Spec)
		})
	}

	t.Run("without the action", func(t *testing.T) {
		for _, gate := range []bool{true, false, true} {
			setRestartPodGates(t, true, gate)
			plain, err := create(podtest.MakePod("pod", never, podtest.SetInitContainers(podtest.MakeContainer("init"))))
			require.NoError(t, err)
			// The rules of a pod are immutable.
			_, err = update(Strategy, plain, func(pod *api.Pod) { pod.Spec.Containers[0] = with("ctr", api.ContainerRestartPolicyNever) })
			assert.ErrorContains(t, err, "spec: Forbidden")
			exited, err := update(StatusStrategy, plain, func(pod *api.Pod) { pod.Status = status(terminated, api.ConditionFalse) })
			require.NoError(t, err)
			_, err = update(StatusStrategy, exited, func(pod *api.Pod) { pod.Status = status(running, api.ConditionFalse) })
			assert.ErrorContains(t, err, "may not be transitioned to non-terminated state")
		}
	})
}
