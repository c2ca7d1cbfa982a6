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

package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"

	"k8s.io/kubernetes/pkg/kubelet/backoff"
)

func TestRestartBackOffMetrics(t *testing.T) {
	now := time.Now()
	b := backoff.NewBackOff(10*time.Second, 300*time.Second)
	b.HasExpiredFunc = backoff.FlatReset(backoff.ContainerResetPeriod)
	MeasureRestartBackOff(b, RestartBackOffPod)
	Register() // registered later, as in the kubelet
	for _, step := range []struct{ event, now time.Duration }{{0, 0}, {1, 2}, {1, 14}, {700, 700}} {
		b.Decide("a", now.Add(step.event*time.Second), now.Add(step.now*time.Second))
	}
	require.NoError(t, testutil.GatherAndCompare(legacyregistry.DefaultGatherer, strings.NewReader(`
		# HELP kubelet_restart_backoff_keys [ALPHA] Number of containers (type container) and pods (type pod) whose restart back-off is known.
		# TYPE kubelet_restart_backoff_keys gauge
		kubelet_restart_backoff_keys{type="container"} 0
		kubelet_restart_backoff_keys{type="pod"} 1
		# HELP kubelet_restart_backoff_resets_total [ALPHA] Number of restart back-offs that started over after a long run, or were forgotten long after the last restart.
		# TYPE kubelet_restart_backoff_resets_total counter
		kubelet_restart_backoff_resets_total{type="container"} 0
		kubelet_restart_backoff_resets_total{type="pod"} 1
	`), "kubelet_restart_backoff_keys", "kubelet_restart_backoff_resets_total"))
	for name, want := range map[string][2]float64{
		"kubelet_restart_backoff_delay_seconds":    {3, 10},
		"kubelet_restart_backoff_lateness_seconds": {1, 3},
	} {
		h, err := testutil.GetHistogramVecFromGatherer(legacyregistry.DefaultGatherer, name, map[string]string{"type": "pod"})
		require.NoError(t, err)
		require.Equal(t, want, [2]float64{float64(h.GetAggregatedSampleCount()), h.GetAggregatedSampleSum()}, name)
	}
}
