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

package kubelet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/record"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	testingclock "k8s.io/utils/clock/testing"

	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/asked"
	"k8s.io/kubernetes/pkg/kubelet/backoff"
	"k8s.io/kubernetes/pkg/kubelet/restart"
)

// A container has the curve of its annotation with the gate, and that of the node without.
func TestNoteCurves(t *testing.T) {
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: "u1", Annotations: map[string]string{asked.CurvePrefix + "a": "initial=2s,max=300s", asked.CurvePrefix + "b": "initial=0s"}},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "a"}, {Name: "b"}}},
	}
	for on, want := range map[bool][]time.Duration{true: {2 * time.Second, 10 * time.Second}, false: {10 * time.Second, 10 * time.Second}} {
		featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.KubeletRestartBackOffAnnotation, on)
		recorder, clock := record.NewFakeRecorder(10), testingclock.NewFakeClock(now)
		kl := &Kubelet{recorder: recorder, clock: clock}
		kl.restartBackOff = restart.NewBackOff(clock, backoff.Curve{Initial: 10 * time.Second, Max: time.Minute})
		kl.honorCurves(10*time.Second, time.Minute)
		kl.noteCurves(pod)
		for i, delay := range want {
			key := restart.Key(pod, &pod.Spec.Containers[i])
			require.True(t, kl.restartBackOff.Decide(key, now, now).Allowed)
			assert.Equal(t, delay, kl.restartBackOff.Decide(key, now.Add(1), now.Add(1)).Delay, "gate %t, container %d", on, i)
		}
		require.Len(t, recorder.Events, map[bool]int{true: 1}[on])
		if on {
			assert.Contains(t, <-recorder.Events, "Warning InvalidAnnotation metadata.annotations[restart-backoff.kubelet-backoff.github.io/b]")
			assert.Equal(t, 1, kl.curves.Count(now))
		}
	}
}
