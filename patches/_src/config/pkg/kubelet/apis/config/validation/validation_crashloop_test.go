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

package validation_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"

	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	kubeletscheme "k8s.io/kubernetes/pkg/kubelet/apis/config/scheme"
	"k8s.io/kubernetes/pkg/kubelet/apis/config/validation"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// The cgroup version of the host does not matter for this test.
const minimalConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
`

func decodeConfig(t *testing.T, data string) *kubeletconfig.KubeletConfiguration {
	t.Helper()
	_, codecs, err := kubeletscheme.NewSchemeAndCodecs()
	require.NoError(t, err)
	kc, err := decodeForTest(ktesting.Init(t), codecs, []byte(data))
	require.NoError(t, err)
	return kc
}

// The maximum is optional with the gate on. With the gate off it has no effect,
// regardless of its value (KEP-5593, "Conflict resolution").
func TestMaxContainerRestartPeriodAndItsGate(t *testing.T) {
	for name, tc := range map[string]struct {
		gate   bool
		period *metav1.Duration
	}{
		"gate on, not set":       {true, nil},
		"gate off, not set":      {false, nil},
		"gate off, set":          {false, &metav1.Duration{Duration: 4 * time.Second}},
		"gate off, out of range": {false, &metav1.Duration{Duration: 301 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			kc := decodeConfig(t, minimalConfig)
			kc.FeatureGates = map[string]bool{"KubeletCrashLoopBackOffMax": tc.gate}
			kc.CrashLoopBackOff.MaxContainerRestartPeriod = tc.period
			assert.NoError(t, validation.ValidateKubeletConfiguration(kc, utilfeature.DefaultFeatureGate))
		})
	}
}

// A kubelet that does not know a field starts as if the field were missing
// (KEP-5593, "Version Skew Strategy").
func TestUnknownFieldsAreDropped(t *testing.T) {
	want := decodeConfig(t, minimalConfig)
	require.Nil(t, want.CrashLoopBackOff.MaxContainerRestartPeriod)
	for name, field := range map[string]string{
		"field":          "crashLoopBackOffs: {maxContainerRestartPeriod: 4s}\n",
		"field, case":    "crashloopbackoff: {maxContainerRestartPeriod: 4s}\n",
		"subfield":       "crashLoopBackOff: {maxSeconds: 4}\n",
		"subfield, case": "crashLoopBackOff: {maxcontainerrestartperiod: 4s}\n",
	} {
		t.Run(name, func(t *testing.T) {
			got := decodeConfig(t, minimalConfig+field)
			assert.Equal(t, want, got)
			assert.NoError(t, validation.ValidateKubeletConfiguration(got, utilfeature.DefaultFeatureGate))
		})
	}
}
