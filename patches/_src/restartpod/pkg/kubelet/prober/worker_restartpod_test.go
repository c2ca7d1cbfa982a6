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

package prober

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"

	"k8s.io/kubernetes/pkg/features"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/prober/results"
	"k8s.io/kubernetes/pkg/probe"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// The workers of a container that has ended for good go on if a restart of the pod may
// start it again, and probe its next instance. Upstream would not add them in time.
func TestDoProbeEndedInRestartablePod(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ContainerRestartRules, true)
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.RestartPodOnContainerExits, true)
	never := v1.ContainerRestartPolicyNever
	rules := []v1.ContainerRestartRule{{
		Action:    v1.ContainerRestartRuleActionRestartPod,
		ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{88}},
	}}
	for _, probeType := range [...]probeType{liveness, readiness, startup} {
		for name, state := range map[string]v1.ContainerState{
			"completed": {Terminated: &v1.ContainerStateTerminated{}},
			"waiting":   {Waiting: &v1.ContainerStateWaiting{}},
		} {
			t.Run(fmt.Sprintf("%s, %s", probeType, name), func(t *testing.T) {
				logger, ctx := ktesting.NewTestContext(t)
				m := newTestManager()
				w := newTestWorker(m, probeType, v1.Probe{FailureThreshold: 1, SuccessThreshold: 1})
				w.pod.Spec.RestartPolicy = v1.RestartPolicyNever
				w.pod.Spec.Containers = append(w.pod.Spec.Containers, v1.Container{Name: "trigger", RestartPolicy: &never, RestartPolicyRules: rules})
				ended := getTestRunningStatus()
				ended.ContainerStatuses[0].State = state
				m.statusManager.SetPodStatus(logger, w.pod, ended)
				require.True(t, w.doProbe(ctx))

				again := getTestRunningStatusWithStarted(probeType != startup)
				again.ContainerStatuses[0].ContainerID = "test://again"
				again.Conditions = []v1.PodCondition{{Type: v1.PodRestarting, Status: v1.ConditionTrue, Reason: "ContainerExited"}}
				m.statusManager.SetPodStatus(logger, w.pod, again)
				m.prober.exec = fakeExecProber{probe.Failure, nil}
				require.True(t, w.doProbe(ctx))
				result, _ := resultsManager(m, probeType).Get(kubecontainer.ContainerID{Type: "test", ID: "again"})
				require.Equal(t, results.Failure, result)
			})
		}
	}
}

// A container that is stopped for a restart of the pod has no more liveness
// probes. A container that the restart started has them.
func TestDoProbeRestartPod(t *testing.T) {
	restarted := time.Now().Add(-time.Minute)
	tests := map[string]struct {
		condition v1.ConditionStatus
		reason    string
		started   time.Time
		probe     probeType
		want      results.Result
	}{
		"being stopped":                          {v1.ConditionTrue, "ContainerExited", restarted.Add(-time.Second), liveness, results.Success},
		"being stopped, readiness":               {v1.ConditionTrue, "ContainerExited", restarted.Add(-time.Second), readiness, results.Failure},
		"startup, the clock having stepped back": {v1.ConditionTrue, "ContainerExited", restarted.Add(-time.Second), startup, results.Failure},
		"in the same second":                     {v1.ConditionTrue, "ContainerExited", restarted, liveness, results.Failure},
		"started again":                          {v1.ConditionTrue, "ContainerExited", restarted.Add(time.Second), liveness, results.Failure},
		"restarted":                              {v1.ConditionFalse, "ContainersStarted", restarted.Add(-time.Second), liveness, results.Failure},
		"a condition of others":                  {v1.ConditionTrue, "Theirs", restarted.Add(-time.Second), liveness, results.Failure},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			logger, ctx := ktesting.NewTestContext(t)
			m := newTestManager()
			w := newTestWorker(m, tc.probe, v1.Probe{FailureThreshold: 1, SuccessThreshold: 1})
			status := getTestRunningStatus()
			hasStarted := tc.probe != startup
			status.ContainerStatuses[0].Started = &hasStarted
			status.ContainerStatuses[0].State.Running.StartedAt = metav1.NewTime(tc.started)
			status.Conditions = []v1.PodCondition{{Type: v1.PodRestarting, Status: tc.condition, Reason: tc.reason, LastTransitionTime: metav1.NewTime(restarted)}}
			m.statusManager.SetPodStatus(logger, w.pod, status)
			w.containerID = testContainerID
			resultsManager(m, tc.probe).Set(testContainerID, results.Success, w.pod)
			m.prober.exec = fakeExecProber{probe.Failure, nil}
			require.True(t, w.doProbe(ctx))
			got, _ := resultsManager(m, tc.probe).Get(testContainerID)
			require.Equal(t, tc.want, got)
		})
	}
}
