// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/figures"
	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
)

func TestGoals(t *testing.T) {
	var all []string
	for _, r := range example().Results {
		for _, g := range r.Goals {
			all = append(all, r.Name+" "+g.String())
		}
	}
	assert.Equal(t, []string{
		"all-fail/110 kubelet CPU per restart, ratio to stock: 0.500 (at most 0.500), reached",
		"all-fail/110 API requests per restart, ratio to stock: 0.500 (at most 0.500), reached",
		"all-fail/110 restarts per second, times stock's: 2.000 (at least 1.700), reached",
		"all-fail/110 p99 lateness, ratio to stock: 0.500 (at most 0.400), missed",
		"all-fail/110 start of a healthy pod, p50, beside stock's: 0.110 s (at most 0.100 s + 0.003 s), missed",
		"all-fail/110 start of a healthy pod, p50, times that on the idle node: 1.100 (at most 1.200), reached",
		"all-fail/110 kubelet memory above stock's: 0.000 MB (at most 5.000 MB), reached",
		"all-fail/500 API requests per restart, ratio to stock: 0.500 (at most 0.500), reached",
		"all-fail/500 restarts per second, times stock's: 2.000 (at least 1.700), reached",
	}, all[:9])
}

// Each goal applies only to some scenarios.
func TestWhereGoalsBind(t *testing.T) {
	const cpu, requests, restarts, late = "kubelet CPU per restart", "API requests per restart", "restarts per second", "p99 lateness"
	for _, tc := range []struct {
		s                Scenario
		reference        string
		perSecond, ideal float64
		want             []string
	}{
		{Scenario{Mix: half, Pods: 110}, "stock", 50, 107, []string{cpu, requests, restarts, late}},
		{Scenario{Mix: allFail, Pods: 30}, "stock", 50, 107, []string{requests, restarts}},
		{Scenario{Mix: allFail, Pods: 110}, "stock", 80, 107, []string{cpu, requests, late}},
		{Scenario{Mix: onDependent, Pods: 110}, "stock", 50, 0, []string{cpu, requests, late}},
		{Scenario{Mix: restartPod, Pods: 110, Action: harness.ActionRestartPod}, "stock", 50, 107, []string{cpu, requests}},
		{Scenario{Mix: restartPod, Pods: 110, Action: harness.ActionRestartPod}, "base", 50, 107, []string{cpu, requests, restarts, late}},
	} {
		f := Figures{PerSecond: tc.perSecond, Ideal: tc.ideal, RequestsPerRestart: 1, Kubelet: Use{PerRestart: 1}, Lateness: figures.Summary{P99: 1}}
		r := Result{Scenario: tc.s, Labels: []string{tc.reference, patched, jittered}, Figures: map[string]Figures{tc.reference: f, patched: f}}
		var got []string
		for _, g := range r.goals() {
			what, _, _ := strings.Cut(g.What, ",")
			got = append(got, what)
		}
		assert.Equal(t, append(tc.want, "start of a healthy pod", "start of a healthy pod", "kubelet memory above "+tc.reference+"'s"), got, "%s, %v", tc.reference, tc.s)
	}
	for _, labels := range [][]string{{patched}, {patched, jittered}, {"stock"}, {"stock", jittered}} {
		assert.Empty(t, Result{Labels: labels}.goals(), labels)
	}
}

// A pod counts as slower than with the reference only if chance cannot explain it.
func TestToleranceOfHealthy(t *testing.T) {
	beside := func(ours float64) Goal {
		r := Result{Labels: []string{"stock", patched}, Figures: map[string]Figures{
			"stock": {Healthy: figures.Summary{Median: 0.1}, HealthyError: 0.003},
			patched: {Healthy: figures.Summary{Median: ours}, HealthyError: 0.004},
		}}
		return r.goals()[0]
	}
	assert.InDelta(t, 0.01, beside(0.1).Tolerance, 1e-9)
	assert.True(t, beside(0.1099).Reached)
	assert.False(t, beside(0.1101).Reached)
}

// A limit that differs between scenarios is in the cell of each figure.
func TestTableOfGoals(t *testing.T) {
	names, table, reached, of := allGoals([]Result{
		{Name: "a", Goals: []Goal{{What: "x", Limit: 1, Ours: 0.5, Reached: true}, {What: "y", Limit: 1, AtLeast: true, Ours: 0.5}}},
		{Name: "b"},
		{Name: "c", Goals: []Goal{{What: "x", Limit: 2, Ours: 3, Unit: "s"}}},
	})
	assert.Equal(t, []string{"a", "c"}, names)
	assert.Equal(t, [][]string{
		{"x", "0.500 (at most 1.000)", "3.000 s (at most 2.000 s), **missed**"},
		{"y: at least 1.000", "0.500, **missed**", "–"},
	}, table)
	assert.Equal(t, []int{1, 3}, []int{reached, of})
}
