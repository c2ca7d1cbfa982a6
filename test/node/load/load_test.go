// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubelet-backoff/kubelet-backoff/internal/chart"
	"github.com/kubelet-backoff/kubelet-backoff/test/node/figures"
	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
	"github.com/kubelet-backoff/kubelet-backoff/test/node/memcri"
)

// usual is the scenario of the default flags.
var usual = Scenario{Mix: allFail, Pods: 2, Curve: harness.Curve{Maximum: time.Second}, Life: 20 * time.Millisecond, Window: 30 * time.Second}

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// at returns a time, in seconds after the start.
func at(seconds float64) time.Time {
	return start.Add(time.Duration(math.Round(seconds*1000)) * time.Millisecond)
}

// lives returns the journal of a container that alternately starts and exits.
func lives(pod string, times ...float64) (journal []memcri.Event) {
	for i, t := range times {
		what := memcri.Started
		if i%2 == 1 {
			what = memcri.Exited
		}
		journal = append(journal, memcri.Event{At: at(t), UID: pod, Pod: pod, Container: mainContainer, What: what})
	}
	return journal
}

// join merges journals.
func join(journals ...[]memcri.Event) []memcri.Event {
	all := slices.Concat(journals...)
	slices.SortStableFunc(all, func(a, b memcri.Event) int { return a.At.Compare(b.At) })
	return all
}

func TestSelectScenarios(t *testing.T) {
	names := func(only, pods string) string {
		all, err := selectScenarios(only, pods, usual, 12*time.Second)
		if err != nil {
			return err.Error()
		}
		var names []string
		for _, s := range all {
			names = append(names, s.name()+" "+s.Window.String())
		}
		return strings.Join(names, ", ")
	}
	for _, tc := range []struct{ only, pods, want string }{
		{"", "", "all-fail/30 30s, all-fail/110 30s, all-fail/500 30s, half/110 30s, tenth/110 30s, sidecars/110 30s, dense/11 30s, restartpod/110 30s, dependency/110 12s"},
		{"dependency, half", "30,60", "half/30 30s, half/60 30s, dependency/30 12s, dependency/60 12s"},
		{"all-fail/5,tenth", "40", "all-fail/5 30s, tenth/40 30s"},
		{"all-fail/5,all-fail/6", "", "all-fail/5 30s, all-fail/6 30s"},
		{"none", "", `no mix is named "none": must be one of all-fail, half, tenth, sidecars, dense, restartpod, dependency`},
		{"half/x", "", `--only "half/x": "x" is not a number of pods`},
		{"half", "0", `--pods "0": "0" is not a number of pods`},
		{"tenth", "9", "tenth: one in ten of 9 pods is none"},
	} {
		assert.Equal(t, tc.want, names(tc.only, tc.pods), "--only %q --pods %q", tc.only, tc.pods)
	}
}

func TestPodsOfNodes(t *testing.T) {
	s := usual
	s.Mix, s.Pods, s.Nodes = allFail, 6, 3
	pods := map[string]int{}
	for _, pod := range s.pods() {
		pods[pod.Spec.NodeName]++
	}
	assert.Equal(t, map[string]int{"node-1": 2, "node-2": 2, "node-3": 2}, pods)
}

func TestPodsOfMixes(t *testing.T) {
	for _, m := range mixes {
		s := usual
		s.Mix, s.Pods, s.Action = m.name, 20, harness.ActionRestartPod
		seen, crashing := map[string]bool{}, 0
		for _, pod := range s.pods() {
			assert.False(t, seen[pod.Name], "two pods are named %s", pod.Name)
			seen[pod.Name] = true
			assert.Equal(t, harness.KubeletName(0), pod.Spec.NodeName)
			for _, c := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
				for _, text := range c.Args {
					life, err := memcri.ParseLife(text)
					require.NoError(t, err)
					if s.measures(pod.Name, c.Name) && life.Exits {
						crashing++
						assert.Equal(t, s.Life, life.Sleep)
						assert.Equal(t, m.name == onDependent, life.Needs == dependency)
					}
				}
			}
		}
		assert.Len(t, seen, 20)
		assert.Equal(t, s.crashing(), crashing, "pods of %s that crash", m.name)
	}
	assert.False(t, isMain(memcri.Event{Pod: healthy(1).Name, Container: mainContainer}, usual))
	rule := Scenario{Mix: restartPod, Pods: 1, Action: harness.ActionRestartPod}.forStock().pods()[0].Spec.Containers[0].RestartPolicyRules[0]
	assert.Equal(t, corev1.ContainerRestartRuleActionRestartAllContainers, rule.Action)
}

func TestMeasure(t *testing.T) {
	run := Run{
		Version: "v1", Created: at(0), From: at(10), To: at(20), End: at(22), Heap: 3,
		Journal: join(
			// The restarts are: without a delay, before the window; 1.5 s and 1.25 s after exits; after the window.
			lives("all-fail-001", 1, 1.1, 1.2, 1.3, 11.5, 11.6, 12.85, 19, 25),
			// The restart without a delay is in the window, 0.5 s after the exit.
			lives("all-fail-002", 9, 9.5, 10, 10.5, 12.5, 13),
			lives("healthy-001", 0.5), lives("healthy-002", 13.25),
		),
		Samples: []Sample{
			{At: at(10), Kubelet: 1, APIServer: 5, All: 10, Stolen: 3, KubeletMemory: 10},
			{At: at(10.5), Kubelet: 1.25, APIServer: 5, KubeletMemory: 30},
			{At: at(11), Kubelet: 1.75, APIServer: 5, KubeletMemory: 20},
			{At: at(11.5), Kubelet: 2.25, APIServer: 5.5, KubeletMemory: 20},
			{At: at(20), Kubelet: 3, APIServer: 6, All: 18, Stolen: 5, KubeletMemory: 20},
		},
		Requests: map[string]float64{"GET pods": 8, "PATCH pods": 4},
		Idle:     Idle{Seconds: 5, APIServer: 0.5, Requests: map[string]float64{"PATCH pods": 2}},
		Metrics:  map[string]float64{metricSyncs: 16, metricRelists: 5, metricThrottled: 20},
		Calls:    map[string]memcri.Calls{"StartContainer": {Count: 4}, "ContainerStatus": {Count: 20}},
		HealthyPods: []Healthy{
			{Name: "healthy-001", Created: at(0.25), Idle: true}, {Name: "healthy-002", Created: at(13)}, {Name: "healthy-003", Created: at(19)},
		},
		APIRestarts: 6, Restarts: 7,
	}
	f, err := measure(run, usual)
	require.NoError(t, err)
	assert.Equal(t, 4, f.Restarts)
	assert.InDelta(t, 0.4, f.PerSecond, 1e-9)
	assert.InDelta(t, 2/1.02, f.Ideal, 1e-9)
	// The lateness does not include the delay of 1 s: 9.2, 0.25 and 1.
	assert.Equal(t, 3, f.Lateness.Count)
	assert.InDelta(t, 0.25, f.Lateness.Least, 1e-9)
	assert.InDelta(t, 9.2, f.Lateness.Worst, 1e-9)
	assert.InDelta(t, 1, f.Lateness.Median, 1e-9)
	assert.Equal(t, 1, f.First.Count)
	assert.InDelta(t, 0.5, f.First.Mean, 1e-9)
	assert.InDelta(t, 500, f.Kubelet.PerRestart, 1e-9)
	assert.InDelta(t, 0.2, f.Kubelet.Cores, 1e-9)
	assert.InDelta(t, 1, f.Kubelet.Peak, 1e-9)
	assert.EqualValues(t, 30, f.Kubelet.Memory)
	assert.InDelta(t, 0.1, f.APIServer.Cores, 1e-9)
	assert.InDelta(t, 0.5, f.Others, 1e-9)
	assert.InDelta(t, 0.2, f.Stolen, 1e-9)
	assert.InDelta(t, 3, f.RequestsPerRestart, 1e-9)
	assert.InDelta(t, 12, f.RequestsPer10s, 1e-9)
	assert.Equal(t, map[string]float64{"GET pods": 2, "PATCH pods": 1}, f.Requests)
	assert.Equal(t, map[string]float64{"PATCH pods": 4}, f.IdleRequestsPer10s)
	assert.InDelta(t, 0.1, f.IdleAPIServer, 1e-9)
	assert.Equal(t, map[string]float64{"StartContainer": 1, "ContainerStatus": 5}, f.Calls)
	assert.InDelta(t, 6, f.CallsPerRestart, 1e-9)
	assert.InDelta(t, 4, f.Syncs, 1e-9)
	assert.InDelta(t, 0.5, f.Relists, 1e-9)
	assert.InDelta(t, 2, f.Throttled, 1e-9)
	assert.InDelta(t, 0.25, f.Idle.Mean, 1e-9)
	assert.InDelta(t, 0.25, f.Healthy.Least, 1e-9)
	assert.InDelta(t, 3, f.Healthy.Worst, 1e-9, "waited until the end, in vain")
	assert.Equal(t, 1, f.NotStarted)
	assert.InDelta(t, 0.93*(3-0.25)/math.Sqrt2, f.HealthyError, 1e-9)
	assert.InDelta(t, 10, f.WarmUp, 1e-9)
	assert.Equal(t, []int{6, 7}, []int{f.APIRestarts, f.AllRestarts})

	run.Journal = append(lives("all-fail-001", 11), lives("all-fail-001", 12)...)
	_, err = measure(run, usual)
	assert.EqualError(t, err, "pod all-fail-001: main was started at 2026-01-02 03:04:17 +0000 UTC, while it ran")
	run.Journal = nil
	_, err = measure(run, usual)
	assert.EqualError(t, err, "the measuring window has no restart")
}

// The first two are on time and late in the runtime; the third waits for everything.
func TestLatest(t *testing.T) {
	journal := lives("all-fail-001", 1, 2, 2, 3, 4, 5, 6.5, 7, 10)
	for i, times := range map[int][2]float64{2: {2, 2}, 4: {3.5, 4}, 6: {5.25, 6.25}, 8: {8.5, 9.25}} {
		journal[i].Told, journal[i].Asked = at(times[0]), at(times[1])
	}
	f, err := measure(Run{From: at(0), To: at(20), Journal: journal}, usual)
	require.NoError(t, err)
	assert.InDelta(t, 2, f.Lateness.Worst, 1e-9)
	assert.Equal(t, Parts{All: 2, Exit: 0.5, Kubelet: 0.75, Runtime: 0.75}, f.Latest)
	all := make([]Parts, 101)
	for i := range all {
		all[i].All, all[i].Runtime = float64(i), float64(i)
	}
	assert.Equal(t, Parts{All: 99.5, Runtime: 99.5}, latest(all))
	assert.Zero(t, latest(nil))
}

// A stock kubelet restarts pods as a whole without a delay.
func TestMeasureRestartPod(t *testing.T) {
	s := usual
	s.Mix, s.Action = restartPod, harness.ActionRestartPod
	run := Run{From: at(10), To: at(20), Journal: lives("restartpod-001", 1, 2, 3, 9, 10.75)}
	f, err := measure(run, s)
	require.NoError(t, err)
	assert.InDelta(t, 0.75, f.Lateness.Mean, 1e-9)
	f, err = measure(run, s.forStock())
	require.NoError(t, err)
	assert.InDelta(t, 1.75, f.Lateness.Mean, 1e-9)
}

// The delays of a reduced curve grow in the window, so there is no ideal rate.
func TestMeasureReduced(t *testing.T) {
	s := usual
	s.Curve = harness.Curve{Reduced: true, Maximum: time.Minute}
	f, err := measure(Run{From: at(4), To: at(20), Journal: lives("all-fail-001", 1, 1.1, 1.1, 1.2, 2.2, 5, 7.5, 8, 12.25)}, s)
	require.NoError(t, err)
	assert.Zero(t, f.Ideal)
	// The delays are 2 and 4 s.
	assert.InDelta(t, 0.5, f.Lateness.Worst, 1e-9)
	assert.InDelta(t, 0.25, f.Lateness.Least, 1e-9)
	m := measurement{task: task{Scenario: s}}
	config, err := m.kubeletConfig(1)
	require.NoError(t, err)
	assert.Contains(t, config, "  ReduceDefaultCrashLoopBackOffDecay: true\n")
}

func TestMeasureHerd(t *testing.T) {
	s := usual
	s.Mix = onDependent
	// The dependency is down from 10 to 14. Moments count from 12 on: one pod starts at
	// 12.5 and 14.5, the other at 13, 14 and 15.
	run := Run{
		From: at(10), Back: at(14), To: at(16),
		Journal: join(lives("dependency-001", 1, 10, 10.5, 10.6, 12.5, 12.6, 14.5), lives("dependency-002", 1, 10, 11, 11.1, 13, 13.1, 14, 14.1, 15)),
	}
	f, err := measure(run, s)
	require.NoError(t, err)
	assert.Zero(t, f.Ideal)
	assert.InDelta(t, 0.5, f.Recovered, 1e-9, "since 14")
	assert.InDelta(t, 0, f.RecoveredHalf, 1e-9)
	assert.Equal(t, 20, f.RecoveryOfAll.Count)
	assert.Equal(t, 40, f.Recovery.Count)
	// After 12.6 the first of these pods starts 1.9 later, at 14.5.
	assert.InDelta(t, 1.9, f.RecoveryOfAll.Worst, 1e-9)
	assert.InDelta(t, 0, f.Recovery.Least, 1e-9)
	assert.Equal(t, 2, f.First.Count)
	assert.Equal(t, 2, countRunning(run.Journal, s))
	assert.Equal(t, 1, countRunning(run.Journal[:len(run.Journal)-1], s))
	require.Len(t, f.starts, 6*4+1)
	assert.Equal(t, []chart.Point{{X: 0, Y: 0}, {X: 0.25, Y: 0}, {X: 0.5, Y: 1}, {X: 0.75, Y: 0}, {X: 1, Y: 1}}, f.starts[:5])
}

// Containers of one pod count one by one.
func TestMeasureDense(t *testing.T) {
	s := usual
	s.Mix, s.Pods = dense, 1
	second := lives("dense-001", 1, 10, 10.5, 10.6, 12.5)
	for i := range second {
		second[i].Container = mainContainer + "-2"
	}
	run := Run{From: at(10), To: at(16), Journal: join(lives("dense-001", 1, 10, 11, 11.1, 13), second)}
	f, err := measure(run, s)
	require.NoError(t, err)
	assert.Equal(t, 4, f.Restarts)
	assert.Equal(t, 2, f.First.Count)
	assert.Equal(t, 2, countRunning(run.Journal, s))
}

// The peaks do not include the first restarts after the loss of the dependency.
func TestHerdPeaks(t *testing.T) {
	s := usual
	s.Mix = onDependent
	run := Run{
		From: at(10), Back: at(17), To: at(19),
		Samples: []Sample{
			{At: at(10), Kubelet: 1}, {At: at(11), Kubelet: 2}, {At: at(15), Kubelet: 2}, {At: at(16), Kubelet: 2.25}, {At: at(17), Kubelet: 2.75},
			{At: at(18), Kubelet: 3.5}, {At: at(19), Kubelet: 3.6},
		},
		Journal: join(
			lives("dependency-001", 1, 10, 10.2, 10.3, 15.9, 16, 16.9),
			lives("dependency-002", 1, 10, 10.2, 10.3, 16.5, 16.6, 18),
			lives("dependency-003", 1, 10, 10.2, 10.3, 18.2),
		),
	}
	f, err := measure(run, s)
	require.NoError(t, err)
	assert.InDelta(t, 1, f.Kubelet.Peak, 1e-9)
	assert.InDelta(t, 0.5, f.PeakAway, 1e-9)
	assert.InDelta(t, 0.75, f.PeakBack, 1e-9)
	assert.Equal(t, 2, f.Busiest, "16.9 and 15.9 are not the same second")
	assert.InDelta(t, 1, f.RecoveredHalf, 1e-9)
	assert.InDelta(t, 1.2, f.Recovered, 1e-9)
}

func TestErrorOfMedian(t *testing.T) {
	assert.Zero(t, errorOfMedian(nil))
	assert.Zero(t, errorOfMedian([]float64{3}))
	assert.InDelta(t, 0.93*2/2, errorOfMedian([]float64{4, 1, 3, 2}), 1e-9, "of 1 and 3")
}

func TestMedianOfRounds(t *testing.T) {
	rounds := []Figures{
		{Version: "v1", Restarts: 10, Kubelet: Use{PerRestart: 5}, Lateness: figures.Summary{P99: 3}, Requests: map[string]float64{"GET pods": 1, "PATCH pods": 6}, late: []float64{1}, amid: []float64{1, 2}, HealthyError: 7},
		{Version: "v1", Restarts: 12, Kubelet: Use{PerRestart: 9}, Lateness: figures.Summary{P99: 1}, Requests: map[string]float64{"GET pods": 3}, late: []float64{2}, cpu: []chart.Point{{X: 1, Y: 2}}, amid: []float64{3, 4}},
		{Version: "v1", Restarts: 11, Kubelet: Use{PerRestart: 4}, Lateness: figures.Summary{P99: 2}, Requests: map[string]float64{"GET pods": 2, "PATCH pods": 4}, late: []float64{3}, cpu: []chart.Point{{X: 3, Y: 4}}},
	}
	assert.Equal(t, Figures{
		Version: "v1", Restarts: 11, Kubelet: Use{PerRestart: 5}, Lateness: figures.Summary{P99: 2},
		Requests: map[string]float64{"GET pods": 2, "PATCH pods": 4}, Calls: map[string]float64{}, Costs: map[string]float64{}, Waits: map[string]float64{}, IdleRequestsPer10s: map[string]float64{}, late: []float64{1, 2, 3}, amid: []float64{1, 2, 3, 4}, HealthyError: 0.93, cpu: []chart.Point{{X: 3, Y: 4}},
	}, median(rounds))
	assert.Equal(t, 1.0, rounds[0].Requests["GET pods"])
	assert.Equal(t, 2.0, rounds[2].Requests["GET pods"])
}

func TestKubeletConfig(t *testing.T) {
	s := usual
	s.Pods, s.Action = 500, harness.ActionRestartPod
	m := &measurement{task: task{Scenario: s, Gates: "A=true, B=false", Profile: "/x"}}
	text, err := m.kubeletConfig(1234)
	require.NoError(t, err)
	var config struct {
		Address                   string
		Port, MaxPods             int
		EnableContentionProfiling bool
		FeatureGates              map[string]bool
		CrashLoopBackOff          struct{ MaxContainerRestartPeriod string }
	}
	require.NoError(t, yaml.Unmarshal([]byte(text), &config))
	assert.Equal(t, "127.0.0.1", config.Address)
	assert.Equal(t, 1234, config.Port)
	assert.Greater(t, config.MaxPods, 500)
	assert.True(t, config.EnableContentionProfiling)
	assert.Equal(t, "1s", config.CrashLoopBackOff.MaxContainerRestartPeriod)
	assert.Equal(t, map[string]bool{"A": true, "B": false, harness.GateRestartPod: true}, config.FeatureGates)
	m = &measurement{task: task{Scenario: usual}}
	text, err = m.kubeletConfig(1234)
	require.NoError(t, err)
	assert.NotContains(t, text, "featureGates")
	assert.NotContains(t, text, "enableContentionProfiling")
}

func TestCommand(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"--stock", "/x", "--apiserver", "/y", "--keep", "-o", "json", "--svg", "d"}, "make node-load"},
		{[]string{"--ours", "/x", "--pods", "30,110", "--only", "half"}, "hack/node-load.sh --only half --pods 30,110"},
		{[]string{"--sources", "/x", "--network", "--reduced=false", "--pods", "30"}, "hack/node-load.sh --network --pods 30 --reduced=false"},
	} {
		var o options
		f := o.flags()
		require.NoError(t, f.Parse(tc.args))
		assert.Equal(t, tc.want, command(f))
	}
}

// Only one mix measures jitter.
func TestSubjects(t *testing.T) {
	for _, m := range mixes {
		s := Scenario{Mix: m.name}
		assert.True(t, subject{label: patched}.runs(s))
		assert.Equal(t, m.name == onDependent, subject{label: jittered}.runs(s))
	}
}

func TestRefusedFlags(t *testing.T) {
	for _, tc := range []struct{ args, want string }{
		{"x", `load takes no argument, but got "x"`},
		{"-o yaml", `-o "yaml": the formats are text and json`},
		{"--seconds 0", "--seconds 0: must be positive"},
		{"--rounds 0", "--rounds 0: must be positive"},
		{"--outage -1", "--outage -1: must be positive"},
		{"--stock a --base b", "--stock and --base exclude each other"},
		{"--gates A", `--gates "A": "A" is not GATE=true or GATE=false`},
		{"--only x", `no mix is named "x"`},
		{"--apiserver a", "no kubelet: set --stock, --base, --ours or --jittered"},
	} {
		err := execute(t.Context(), strings.Fields(tc.args), io.Discard)
		assert.ErrorContains(t, err, tc.want, tc.args)
	}
	var o options
	f := o.flags()
	f.SetOutput(io.Discard)
	assert.True(t, errors.Is(f.Parse([]string{"-h"}), flag.ErrHelp))
}

func TestField(t *testing.T) {
	assert.Equal(t, "a CPU", field([]byte("processor\t: 0\nmodel name\t: a CPU\n"), "model name"))
	assert.Equal(t, "", field([]byte("x: y\n"), "z"))
	assert.Equal(t, "6.1", field([]byte("6.1\n"), ""))
	assert.Equal(t, "load/a.svg", relative("/docs/results/load.md", "/docs/results/load/a.svg"))
}
