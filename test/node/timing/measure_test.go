// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
)

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

func TestMeasureWindow(t *testing.T) {
	run := Run{
		Starts: map[string][]float64{
			// Intervals 0.5 (no delay), 1.5 (began before the window), 2, 1, 3 (ends after it).
			"a": {9, 9.5, 11, 13, 14, 17},
			// Intervals 0.25 (no delay), 2.25.
			"b": {10, 10.25, 12.5},
		},
		From: 10.2, To: 15, CPU: 0.05,
		Requests: map[string]float64{"GET pods": 10, "PATCH pods": 5},
		Alone:    &Alone{Crashes: map[string][]float64{"c": {20, 21.125, 22.375}, "d": {20, 21.125}}},
	}
	f, err := measure([]Run{run}, Scenario{Curve: harness.Curve{Maximum: time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	// The restarts in the window are at 10.25, 11, 12.5, 13, 14.
	if f.Restarts != 5 {
		t.Errorf("Restarts = %d, want 5", f.Restarts)
	}
	if f.Interval.Count != 3 || !near(f.Interval.Mean, (2+1+2.25)/3) || f.Interval.Median != 2 || f.Interval.Worst != 2.25 {
		t.Errorf("Interval = %+v, want 2, 1 and 2.25", f.Interval)
	}
	if !near(f.Lateness.Mean, 2.25/3) || f.Lateness.Worst != 1.25 || f.Lateness.Least != 0 {
		t.Errorf("Lateness = %+v, want 1, 0 and 1.25", f.Lateness)
	}
	if f.First.Count != 2 || !near(f.First.Mean, 0.375) {
		t.Errorf("First = %+v, want 0.5 and 0.25", f.First)
	}
	if !near(f.CPUPerRestart, 10) {
		t.Errorf("CPUPerRestart = %v ms, want 10", f.CPUPerRestart)
	}
	if !near(f.RequestsPerRestart, 3) || !near(f.Requests["GET pods"], 2) || !near(f.Requests["PATCH pods"], 1) {
		t.Errorf("RequestsPerRestart = %v, %v, want 3: 2 GET, 1 PATCH", f.RequestsPerRestart, f.Requests)
	}
	if f.Alone.Count != 3 || f.Alone.Median != 0.125 || f.Alone.Worst != 0.25 {
		t.Errorf("Alone = %+v, want 0.125, 0.25 and 0.125", f.Alone)
	}
	if f.ByRestart != nil {
		t.Errorf("ByRestart = %v, want none where all delays are equal", f.ByRestart)
	}
}

// Each run has its own window on the same clock.
func TestMeasureRounds(t *testing.T) {
	runs := []Run{
		{Starts: map[string][]float64{"a": {9, 9.5, 11}}, From: 9, To: 15, CPU: 0.02, Requests: map[string]float64{"GET pods": 4}},
		{Starts: map[string][]float64{"a": {29, 29.5, 31.25, 60}}, From: 29, To: 35, CPU: 0.08, Requests: map[string]float64{"GET pods": 8}},
	}
	f, err := measure(runs, Scenario{Curve: harness.Curve{Maximum: time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	if f.Rounds != 2 || f.Restarts != 4 || f.Interval.Count != 2 || !near(f.Interval.Mean, (1.5+1.75)/2) {
		t.Errorf("figures = %+v, want 4 restarts in 2 rounds and the intervals 1.5 and 1.75", f)
	}
	if !near(f.Best.Lateness, 0.5) || !near(f.Best.CPUPerRestart, 10) {
		t.Errorf("best = %+v, want the first round: 0.5 s and 10 ms", f.Best)
	}
	if !near(f.CPUPerRestart, 25) || !near(f.RequestsPerRestart, 3) || !near(f.Requests["GET pods"], 3) {
		t.Errorf("figures = %+v, want 25 ms and 3 requests per restart", f)
	}
}

func TestMeasureDefaultCurve(t *testing.T) {
	run := Run{Starts: map[string][]float64{"a": {100, 100.7, 111, 132, 172.5, 253}}, To: 260}
	f, err := measure([]Run{run}, Scenario{})
	if err != nil {
		t.Fatal(err)
	}
	var delays []float64
	for _, s := range f.ByRestart {
		delays = append(delays, s.Delay)
	}
	if want := []float64{10, 20, 40, 80}; !slices.Equal(delays, want) {
		t.Fatalf("delays = %v, want %v", delays, want)
	}
	if !near(f.Lateness.Worst, 1) || !near(f.Lateness.Least, 0.3) || !near(f.Lateness.Mean, (0.3+1+0.5+0.5)/4) {
		t.Errorf("Lateness = %+v, want 0.3, 1, 0.5 and 0.5", f.Lateness)
	}
}

func TestMeasureRefuses(t *testing.T) {
	for name, run := range map[string]Run{
		"no start":         {},
		"only a free one":  {Starts: map[string][]float64{"a": {1, 2}}, To: 10},
		"all outside":      {Starts: map[string][]float64{"a": {1, 2, 3}}, From: 5, To: 10},
		"a clock that ran": {Starts: map[string][]float64{"a": {3, 2, 5, 6}}, To: 10},
	} {
		if f, err := measure([]Run{run}, Scenario{Curve: harness.Curve{Maximum: time.Second}}); err == nil {
			t.Errorf("%s: got %+v, want an error", name, f)
		}
	}
}

func TestParseStarts(t *testing.T) {
	got, err := parseStarts([]byte("10.50\n11.00\n12."))
	if err != nil || !slices.Equal(got, []float64{10.5, 11}) {
		t.Errorf("parseStarts = %v, %v, want 10.5 and 11 without the half line", got, err)
	}
	if _, err := parseStarts([]byte("10.50\nsoon\n")); err == nil || !strings.Contains(err.Error(), "start 2") {
		t.Errorf("parseStarts of nonsense: error %v, want one that names start 2", err)
	}
}
