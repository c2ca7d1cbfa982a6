// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/figures"
)

func TestHealthyPods(t *testing.T) {
	runs := []Run{
		{
			Starts: map[string][]float64{"a": {1, 2, 11, 13, 21}, "b": {1, 3, 12}}, From: 10, To: 20,
			HealthyPods: &healthyPods{Idle: []float64{0.4, 0.6}, Busy: []float64{0.7}},
		},
		{
			Starts: map[string][]float64{"a": {5, 6, 7, 9}, "b": {5, 7, 9}}, From: 0, To: 10,
			HealthyPods: &healthyPods{Idle: []float64{0.5}, Busy: []float64{0.7, 0.7}},
		},
	}
	s := Scenario{Pods: 2, Healthy: true}
	f, err := measure(runs, s)
	if err != nil {
		t.Fatal(err)
	}
	if f.HealthyIdle.Median != 0.5 || f.Healthy.Median != 0.7 || f.RestartRate != 0.4 || f.FewestRestarts != 1 {
		t.Errorf("healthy pods after %g s, idle %g s; %g restarts/s, fewest %d; want 0.7, 0.5, 0.4, 1",
			f.Healthy.Median, f.HealthyIdle.Median, f.RestartRate, f.FewestRestarts)
	}
	for _, tc := range []struct {
		what string
		ours func(*Figures)
		want bool
	}{
		{"as they are", func(*Figures) {}, true},
		{"late healthy pods", func(f *Figures) { f.Healthy.Median = 0.8 }, false},
		{"one late healthy pod", func(f *Figures) { f.Healthy.Worst = 1.3 }, false},
		{"fewer restarts", func(f *Figures) { f.RestartRate *= 0.8 }, false},
		{"a pod that starves", func(f *Figures) { f.FewestRestarts = 0 }, false},
	} {
		ours := f
		tc.ours(&ours)
		if got := passed([]Comparison{compare(s, "stock", f, ours)}); got != tc.want {
			t.Errorf("%s: passed = %v, want %v", tc.what, got, tc.want)
		}
	}
}

// Only the time on the idle node decides on init containers.
func TestInitContainers(t *testing.T) {
	s := Scenario{Pods: 1, Healthy: true, Inits: 5, InitRatio: 0.4}
	stock := Figures{HealthyIdle: figures.Summary{Median: 5}, RestartRate: 1}
	for median, want := range map[float64]bool{1.9: true, 2.1: false} {
		c := []Comparison{compare(s, "stock", stock, Figures{HealthyIdle: figures.Summary{Median: median}})}
		if got := passed(c); got != want || len(c[0].Criteria) != 1 {
			t.Errorf("%g s: passed = %v with %d criteria, want %v with one", median, got, len(c[0].Criteria), want)
		}
	}
}
