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
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/klog/v2/ktesting"

	"k8s.io/kubernetes/pkg/features"
	kubeletconfiginternal "k8s.io/kubernetes/pkg/kubelet/apis/config"
	backoffconfig "k8s.io/kubernetes/pkg/kubelet/backoff/config"
)

func configWithMaximum(period time.Duration) *kubeletconfiginternal.KubeletConfiguration {
	kubeCfg := &kubeletconfiginternal.KubeletConfiguration{}
	if period != 0 {
		kubeCfg.CrashLoopBackOff.MaxContainerRestartPeriod = &metav1.Duration{Duration: period}
	}
	return kubeCfg
}

// The maximum is optional. If it is not set, the gates determine it.
func TestResolveCrashLoopBackOffWithoutMaximum(t *testing.T) {
	tests := map[string]struct {
		maxGate, reduced bool
		max, initial     time.Duration
	}{
		"default":                 {true, false, 300 * time.Second, 10 * time.Second},
		"reduced decay":           {true, true, 60 * time.Second, time.Second},
		"gate off":                {false, false, 300 * time.Second, 10 * time.Second},
		"reduced decay, gate off": {false, true, 60 * time.Second, time.Second},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.KubeletCrashLoopBackOffMax, tc.maxGate)
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ReduceDefaultCrashLoopBackOffDecay, tc.reduced)
			max, initial := resolveCrashLoopBackOff(configWithMaximum(0))
			assert.Equal(t, tc.max, max)
			assert.Equal(t, tc.initial, initial)
		})
	}
	assert.Equal(t, backoffconfig.DefaultMax, maximumForE2E, "what e2e tests take for the maximum")
}

func TestCrashLoopBackOffCurveDelaysFirst(t *testing.T) {
	for _, enabled := range []bool{false, true} {
		featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.KubeletDelayFirstContainerRestart, enabled)
		assert.Equal(t, enabled, crashLoopBackOffCurve(configWithMaximum(0), utilfeature.DefaultFeatureGate).DelayFirst)
	}
}

func TestLogCrashLoopBackOff(t *testing.T) {
	const warning = `warning="crashLoopBackOff.maxContainerRestartPeriod is set and not honored`
	tests := map[string]struct {
		maxGate bool
		period  time.Duration
		line    string
		warns   bool
	}{
		"default":              {true, 0, `delays="[0s 10s 20s 40s 1m20s 2m40s 5m0s]" initial="10s" initialReason="Default" maximum="5m0s" maximumReason="Default"`, false},
		"maximum":              {true, 4 * time.Second, `delays="[0s 4s]" initial="4s" initialReason="Clamped" maximum="4s" maximumReason="PerNodeMaximum"`, false},
		"maximum, gate off":    {false, 4 * time.Second, `delays="[0s 10s 20s 40s 1m20s 2m40s 5m0s]" initial="10s" initialReason="Default" maximum="5m0s" maximumReason="Default"`, true},
		"gate off, no maximum": {false, 0, `delays="[0s 10s 20s 40s 1m20s 2m40s 5m0s]" initial="10s" initialReason="Default" maximum="5m0s" maximumReason="Default"`, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.KubeletCrashLoopBackOffMax, tc.maxGate)
			logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
			LogCrashLoopBackOff(logger, configWithMaximum(tc.period))
			lines := strings.Split(strings.TrimSpace(logger.GetSink().(ktesting.Underlier).GetBuffer().String()), "\n")
			assert.Contains(t, lines[0], "Container restart back-off")
			assert.Contains(t, lines[0], tc.line)
			if !tc.warns {
				assert.Len(t, lines, 1)
				return
			}
			require.Len(t, lines, 2)
			assert.Contains(t, lines[1], warning)
			assert.Contains(t, lines[1], `maxContainerRestartPeriod="4s"`)
		})
	}
}
