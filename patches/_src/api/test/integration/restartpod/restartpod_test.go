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

// Package restartpod tests the gate of the container restart rule action RestartPod with
// an API server.
package restartpod

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/component-base/featuregate"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/utils/ptr"

	kubeapiservertesting "k8s.io/kubernetes/cmd/kube-apiserver/app/testing"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/test/integration/framework"
)

const (
	// restartAllContainers and its gate are in upstream's API from v1.35 on only.
	restartAllContainers     v1.ContainerRestartRuleAction = "RestartAllContainers"
	restartAllContainersGate featuregate.Feature           = "RestartAllContainersOnContainerExits"
)

// TestGate takes one etcd through API servers with the gate off, on, off and on again
// (KEP-5532, "Feature Enablement and Rollback").
func TestGate(t *testing.T) {
	storage := framework.SharedEtcd()
	run := func(name string, gate bool, test func(context.Context, *testing.T, clientset.Interface)) {
		require.True(t, t.Run(name, func(t *testing.T) {
			set := func(name featuregate.Feature, on bool) {
				featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, name, on)
			}
			set(features.ContainerRestartRules, true)
			set(features.RestartPodOnContainerExits, gate)
			// Its rules must not be what allows those of RestartPod, and the other way round.
			if _, known := utilfeature.DefaultMutableFeatureGate.GetAll()[restartAllContainersGate]; known {
				set(restartAllContainersGate, false)
			}
			server := kubeapiservertesting.StartTestServerOrDie(t, nil, framework.DefaultTestServerFlags(), storage)
			defer server.TearDownFn()
			client, err := clientset.NewForConfig(server.ClientConfig)
			require.NoError(t, err)
			test(t.Context(), t, client)
		}))
	}

	const ns = metav1.NamespaceDefault
	create := func(ctx context.Context, client clientset.Interface, pod *v1.Pod) (*v1.Pod, error) {
		return client.CoreV1().Pods(ns).Create(ctx, pod, metav1.CreateOptions{})
	}
	requireInvalid := func(t *testing.T, err error) {
		t.Helper()
		require.True(t, apierrors.IsInvalid(err), "the pod is rejected: %v", err)
		require.ErrorContains(t, err, "restartPolicyRules[0].action")
	}
	// requireUsable requires that the pod has its rule, and that its metadata and its
	// status can be updated: a restart in progress goes on.
	requireUsable := func(ctx context.Context, t *testing.T, client clientset.Interface, name, label string) {
		t.Helper()
		pods := client.CoreV1().Pods(ns)
		pod, err := pods.Get(ctx, name, metav1.GetOptions{})
		require.NoError(t, err)
		want := podWith(name, v1.ContainerRestartRuleActionRestartPod).Spec.Containers[0]
		requireRule := func(pod *v1.Pod) {
			t.Helper()
			require.Equal(t, want.RestartPolicy, pod.Spec.Containers[0].RestartPolicy)
			require.Equal(t, want.RestartPolicyRules, pod.Spec.Containers[0].RestartPolicyRules)
		}
		requireRule(pod)
		metav1.SetMetaDataLabel(&pod.ObjectMeta, "test", label)
		pod, err = pods.Update(ctx, pod, metav1.UpdateOptions{})
		require.NoError(t, err)
		requireRule(pod)

		for _, restarting := range []v1.ConditionStatus{v1.ConditionTrue, v1.ConditionFalse} {
			status := v1.ContainerStatus{Name: "ctr", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 88}}}
			if restarting == v1.ConditionFalse {
				// The policy of the container is Never, so only the action allows this.
				status.State = v1.ContainerState{Running: &v1.ContainerStateRunning{}}
			}
			pod.Status.ContainerStatuses = []v1.ContainerStatus{status}
			pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodRestarting, Status: restarting, Reason: "ContainerExited"}}
			pod, err = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
			require.NoError(t, err)
			requireRule(pod)
			require.Equal(t, restarting, pod.Status.Conditions[0].Status)
		}
	}

	run("off", false, func(ctx context.Context, t *testing.T, client clientset.Interface) {
		_, err := create(ctx, client, podWith("new", v1.ContainerRestartRuleActionRestartPod))
		requireInvalid(t, err)
		_, err = create(ctx, client, podWith("restarts-container", v1.ContainerRestartRuleActionRestart))
		require.NoError(t, err, "a rule with another action is allowed")
	})
	run("on", true, func(ctx context.Context, t *testing.T, client clientset.Interface) {
		pod, err := create(ctx, client, podWith("stored", v1.ContainerRestartRuleActionRestartPod))
		require.NoError(t, err)
		assert.Equal(t, v1.ContainerRestartRuleActionRestartPod, pod.Spec.Containers[0].RestartPolicyRules[0].Action)
		requireUsable(ctx, t, client, "stored", "on")
		_, err = create(ctx, client, podWith("restarts-all", restartAllContainers))
		requireInvalid(t, err)
	})
	run("off again", false, func(ctx context.Context, t *testing.T, client clientset.Interface) {
		requireUsable(ctx, t, client, "stored", "off")
		_, err := create(ctx, client, podWith("new", v1.ContainerRestartRuleActionRestartPod))
		requireInvalid(t, err)
	})
	run("on again", true, func(ctx context.Context, t *testing.T, client clientset.Interface) {
		requireUsable(ctx, t, client, "stored", "on-again")
		_, err := create(ctx, client, podWith("new", v1.ContainerRestartRuleActionRestartPod))
		require.NoError(t, err)
	})
}

func podWith(name string, action v1.ContainerRestartRuleAction) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PodSpec{
			RestartPolicy: v1.RestartPolicyNever,
			Containers: []v1.Container{{
				Name:          "ctr",
				Image:         "image",
				RestartPolicy: ptr.To(v1.ContainerRestartPolicyNever),
				RestartPolicyRules: []v1.ContainerRestartRule{{
					Action:    action,
					ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{88}},
				}},
			}},
		},
	}
}
