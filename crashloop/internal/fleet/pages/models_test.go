// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/backoff"
	"github.com/kubelet-backoff/kubelet-backoff/config"
	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/fleet"
	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/plan"
)

var update = flag.Bool("update", false, "write the pages instead of comparing with them")

// results is where the pages are.
const results = "../../../../docs/results"

const (
	ms = time.Millisecond
	s  = time.Second
	m  = time.Minute
)

// golden compares a file with data, or with -update writes it.
func golden(t *testing.T, name string, data []byte) {
	t.Helper()
	path := filepath.Join(results, name)
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, data, 0o644))
		return
	}
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(got, data), "%s is out of date: run make docs", name)
}

// node returns the curve of a node with a configuration.
func node(maximum time.Duration, reduced bool) fleet.Curve {
	settings := config.Settings{KubeletCrashLoopBackOffMax: true, ReduceDefaultCrashLoopBackOffDecay: reduced}
	if maximum > 0 {
		settings.MaxContainerRestartPeriod = &maximum
	}
	return fleet.Curve{Name: "node", Curve: config.Resolve(settings).Curve}
}

var today, reduced, least = node(0, false), node(0, true), node(1*s, false)

// curve returns a curve that no configuration of a kubelet need give.
func curve(initial, maximum time.Duration) fleet.Curve {
	return fleet.Curve{Name: fleet.Short(initial) + "/" + fleet.Short(maximum), Curve: backoff.Curve{Initial: initial, Max: maximum}}
}

// documented returns a curve in which the first restart waits too, as in the documentation and in
// most models of the KEPs.
func documented(c fleet.Curve) fleet.Curve {
	c.DelayFirst = true
	return c
}

// containers returns options for a node of 110 pods that fail after a run, with five requests per
// restart.
func containers(run, length time.Duration) fleet.Options {
	return fleet.Options{
		Nodes: 1, Pods: 110, Containers: 1, Lives: plan.Lives{{Code: 1, After: run}}, Policy: v1.RestartPolicyAlways, Fail: 1, For: length, Seed: 1,
		Costs: fleet.Costs{RequestsPerRestart: 5},
	}
}

// restarts returns the times of the restarts in two hours of a container that exits after a run.
func restarts(c fleet.Curve, run time.Duration) []time.Duration {
	times, err := fleet.Restarts(containers(run, 2*time.Hour), c)
	if err != nil {
		panic(err)
	}
	return times
}

// within counts the restarts at or after from and before to.
func within(times []time.Duration, from, to time.Duration) (n int) {
	for _, t := range times {
		if t >= from && t < to {
			n++
		}
	}
	return n
}

// until counts the restarts after from and at or before to.
func until(times []time.Duration, from, to time.Duration) int { return within(times, from+1, to+1) }

// steps returns the requests of 110 pods in each 10 s.
func steps(c fleet.Curve, run, length time.Duration) []float64 {
	o := containers(run, length)
	o.Curves = []fleet.Curve{c}
	r, err := fleet.Run(o, nil)
	if err != nil {
		panic(err)
	}
	list := make([]float64, len(r.Curves[0].Requests))
	for i, n := range r.Curves[0].Requests {
		list[i] = float64(n) / 1000
	}
	return list
}

func sum(list []float64) (total float64) {
	for _, n := range list {
		total += n
	}
	return total
}

// load is the JSON output of node-load.
type load struct {
	Command string
	Results []measurement
}

type measurement struct {
	Name     string
	Scenario struct {
		Mix           string
		Pods, Nodes   int
		Maximum, Life time.Duration
		Reduced       bool
		Window        time.Duration
	}
	Figures map[string]figures
}

type figures struct {
	Seconds, PerSecond, Ideal, RequestsPerRestart, RequestsPer10s, WarmUp, IdleAPIServer float64
	Restarts                                                                             int
	Requests, IdleRequestsPer10s                                                         map[string]float64
	Kubelet, APIServer                                                                   struct{ Cores float64 }
}

func readLoad(t testing.TB, path string) load {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	var l load
	require.NoError(t, json.Unmarshal(data, &l))
	return l
}

// of returns the figures of our kubelet in a scenario.
func (l load) of(t testing.TB, name string) figures {
	t.Helper()
	for _, r := range l.Results {
		if r.Name == name {
			return r.Figures["patched"]
		}
	}
	require.Fail(t, "load.json has no "+name)
	return figures{}
}
