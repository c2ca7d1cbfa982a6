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

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"

	"k8s.io/kubernetes/pkg/kubelet/metrics"
	"k8s.io/kubernetes/pkg/kubelet/restart"
	"k8s.io/kubernetes/pkg/kubelet/restartpod"
)

// The kubelet is restarted in each phase of a restart, and the pod waits as long as
// without these restarts.
func TestPodBackOffSurvivesKubeletRestart(t *testing.T) {
	r := newRestartTest(t, restartablePod(v1.ContainerRestartRuleActionRestartPod), nil)
	clock := r.fake.fakeClock
	restartKubelet := func() {
		r.pod.Status = r.status()
		r.restartKubelet()
	}
	r.run()
	require.Empty(t, r.saved, "it was not restarted yet")
	for _, delay := range []time.Duration{0, 10 * time.Second, 20 * time.Second, 40 * time.Second} {
		clock.Step(2 * time.Second)
		restartKubelet() // while it runs
		require.NoError(t, r.sync())
		r.exit("x", 88)
		ends := clock.Now().Add(delay)
		restartKubelet() // before the trigger is seen
		err := r.sync()
		if delay > 0 {
			for range 3 {
				at, found := restart.MinBackoffExpiration(err)
				require.True(t, found, "%v", err)
				require.Equal(t, ends, at)
				clock.Step(delay / 4)
				restartKubelet() // while it waits
				err = r.sync()
			}
			clock.Step(delay / 4)
			restartKubelet()
			err = r.sync()
		}
		require.NoError(t, err)
		require.Equal(t, v1.ConditionTrue, r.condition(v1.PodRestarting).Status)
		clock.Step(2 * time.Second)
		restartKubelet() // in Startup, before anything has started
		require.NoError(t, r.sync())
		r.start("a")
		restartKubelet() // and after something has started
		require.NoError(t, r.sync())
		r.exit("a", 0)
		r.start("s", "x", "y")
		require.NoError(t, r.sync())
		require.Equal(t, v1.ConditionFalse, r.condition(v1.PodRestarting).Status)
	}
	// A run of more than ten minutes resets it.
	clock.Step(11 * time.Minute)
	restartKubelet()
	require.NoError(t, r.sync())
	r.exit("x", 88)
	require.NoError(t, r.sync())
}

// The clock was ahead when an instance of an earlier run was created, whose back-off
// is not the newest.
func TestPodBackOffAfterClockStep(t *testing.T) {
	r := newRestartTest(t, restartablePod(v1.ContainerRestartRuleActionRestartPod), nil)
	clock := r.fake.fakeClock
	r.run()
	for _, delay := range []time.Duration{0, 10 * time.Second, 20 * time.Second} {
		r.exit("x", 88)
		if delay > 0 {
			at, found := restart.MinBackoffExpiration(r.sync())
			require.True(t, found)
			require.Equal(t, clock.Now().Add(delay), at)
			clock.Step(delay)
		}
		require.NoError(t, r.sync())
		r.again()
		for _, s := range r.statuses {
			if s.Name == "x" && s.RestartCount == 1 && s.CreatedAt.Before(clock.Now().Add(time.Minute)) {
				s.CreatedAt = clock.Now().Add(time.Hour)
			}
		}
		r.pod.Status = r.status()
		r.restartKubelet()
		require.NoError(t, r.sync())
	}
}

// The kubelet was restarted when all containers had started, and did not see this.
func TestPodRestartEndsUnseen(t *testing.T) {
	metrics.Register()
	metrics.PodInPlaceRestarts.Reset()
	r := newRestartTest(t, restartablePod(v1.ContainerRestartRuleActionRestartPod), nil)
	r.run()
	r.exit("x", 88)
	require.NoError(t, r.sync())
	r.fake.fakeClock.Step(2 * time.Second)
	r.start("a")
	r.exit("a", 0)
	r.start("s", "x", "y")
	r.pod.Status = r.status()
	r.restartKubelet()
	require.NoError(t, r.sync())
	require.Equal(t, v1.ConditionFalse, r.condition(v1.PodRestarting).Status)
	got, err := testutil.GetCounterMetricValue(metrics.PodInPlaceRestarts.WithLabelValues("RestartPod", "Restarted"))
	require.NoError(t, err)
	require.Equal(t, 1.0, got)
}

// Housekeeping must not forget a back-off while containers are stopped for a
// restart.
func TestPodBackOffSurvivesGC(t *testing.T) {
	r := newRestartTest(t, restartablePod(v1.ContainerRestartRuleActionRestartPod), nil)
	clock := r.fake.fakeClock
	r.run()
	r.exit("x", 88)
	require.NoError(t, r.sync())
	r.again()
	clock.Step(590 * time.Second)
	r.exit("x", 88)
	exited := clock.Now()
	r.stopping = func() {
		clock.Step(20 * time.Second)
		r.kubelet.podRestarts.gc(func(types.UID) bool { return true })
	}
	err := r.sync()
	at, found := restart.MinBackoffExpiration(err)
	if found {
		require.Equal(t, exited.Add(10*time.Second), at)
	}
	require.Contains(t, r.saved, `"attempts":2`, "it did not start over")
}

// The annotation is not trusted.
func TestPodBackOffHostile(t *testing.T) {
	for value, want := range map[string]time.Duration{
		`{"key":"pod/12345678","attempts":2,"since":"9999-12-31T00:00:00Z"}`: 20 * time.Second,
		`{"key":"pod/12345678","attempts":2}`:                                20 * time.Second,
		`{"key":"pod/12345678","attempts":2147483647}`:                       300 * time.Second,
		`{"key":"pod/12345678","attempts":-2}`:                               0,
		`{"key":"pod/other","attempts":2}`:                                   0,
		`{`:                                                                  0,
	} {
		r := newRestartTest(t, restartablePod(v1.ContainerRestartRuleActionRestartPod), nil)
		r.saved = value
		r.start("a")
		r.exit("a", 0)
		r.start("s", "x", "y")
		r.fake.fakeClock.Step(time.Second)
		r.exit("x", 88)
		at, _ := restart.MinBackoffExpiration(r.sync())
		if want == 0 {
			require.Zero(t, at, value)
		} else {
			require.Equal(t, r.fake.fakeClock.Now().Add(want), at, value)
		}
	}
}

func TestPodRestartMetrics(t *testing.T) {
	metrics.Register()
	metrics.PodInPlaceRestarts.Reset()
	metrics.PodInPlaceRestartPhaseDuration.Reset()
	r := newRestartTest(t, restartablePod(actionToMeasure), nil)
	clock := r.fake.fakeClock
	r.run()
	r.exit("x", 88)
	require.NoError(t, r.sync())
	r.again() // two seconds later
	clock.Step(time.Second)
	r.exit("x", 88)
	require.Error(t, r.sync())
	clock.Step(10 * time.Second)
	require.NoError(t, r.sync())
	r.start("a")
	clock.Step(time.Second)
	r.exit("a", 88)
	require.Error(t, r.sync(), "triggered again before all had started")
	r.kubelet.endRestart(t.Context(), r.pod, r.podStatus())
	require.NoError(t, testutil.GatherAndCompare(legacyregistry.DefaultGatherer, strings.NewReader(strings.ReplaceAll(`
		# HELP kubelet_pod_in_place_restarts_total [ALPHA] Number of restarts of pods in place that have ended, by the action of the container restart rule and by outcome.
		# TYPE kubelet_pod_in_place_restarts_total counter
		kubelet_pod_in_place_restarts_total{action="ACTION",outcome="Deleted"} 1
		kubelet_pod_in_place_restarts_total{action="ACTION",outcome="Restarted"} 1
		kubelet_pod_in_place_restarts_total{action="ACTION",outcome="TriggeredAgain"} 1
	`, "ACTION", string(actionToMeasure))), "kubelet_pod_in_place_restarts_total"))
	for phase, want := range map[restartpod.Phase][2]float64{
		restartpod.PhaseTerminatingForRestart: {3, 10},
		restartpod.PhaseStartup:               {2, 3},
	} {
		h, err := testutil.GetHistogramVecFromGatherer(legacyregistry.DefaultGatherer, "kubelet_pod_in_place_restart_phase_duration_seconds", map[string]string{"phase": string(phase)})
		require.NoError(t, err)
		require.Equal(t, want, [2]float64{float64(h.GetAggregatedSampleCount()), h.GetAggregatedSampleSum()}, phase)
	}
}
