// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/figures"
	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
)

const (
	// gateFirstStarts is the gate that the scenario firststarts enables in ours.
	gateFirstStarts = "KubeletFirstStartsFirst"
	// idleInnocents is the number of innocent pods that start before others crash, and
	// innocentPeriod the minimum interval between innocent pods.
	idleInnocents  = 8
	innocentPeriod = 2500 * time.Millisecond
	// innocentRatio is the limit for the start of an innocent pod while others crash, as
	// a multiple of its time on the idle node. restartRate is the minimum rate of
	// restarts, as a share of stock's.
	innocentRatio = 2
	restartRate   = 0.9
	// fewestRestarts is the minimum number of restarts of each pod, as a share of the
	// mean.
	fewestRestarts = 0.5
)

// innocents has the times from the creation of innocent pods to their start, in
// seconds.
type innocents struct {
	// Idle is for pods on the idle node, and Busy for pods while others crash.
	Idle []float64 `json:"idle"`
	Busy []float64 `json:"busy"`
}

// startInnocents starts one innocent pod after another until enough returns true for
// the number of started pods and the elapsed time.
func (m *measurement) startInnocents(api *harness.APIServer, phase string, enough func(n int, elapsed time.Duration) bool) (took []float64, err error) {
	began := time.Now()
	for n := 0; !enough(n, time.Since(began)); n++ {
		next := time.After(innocentPeriod)
		seconds, err := m.startInnocent(api, fmt.Sprintf("innocent-%s-%02d", phase, n+1))
		if err != nil {
			return nil, err
		}
		m.say("%s: an innocent pod started after %.2f s", phase, seconds)
		took = append(took, seconds)
		select {
		case <-next:
		case <-m.Context().Done():
			return nil, context.Cause(m.Context())
		}
	}
	return took, nil
}

// startInnocent creates a pod with a container that records its start and exits. It
// returns the time from the creation to the start, and deletes the pod.
func (m *measurement) startInnocent(api *harness.APIServer, name string) (float64, error) {
	pod := m.pods()[0]
	pod.Name = name
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	pod.Spec.Containers[0].Args = []string{"/starts/" + name}
	data, err := json.Marshal(pod)
	if err != nil {
		return 0, err
	}
	created, err := uptime()
	if err != nil {
		return 0, err
	}
	if err := api.Request(m.Context(), http.MethodPost, "/api/v1/namespaces/default/pods", data, nil); err != nil {
		return 0, err
	}
	// The recorded time is exact, even if it is read late.
	var started float64
	if err := harness.Await(m.Context(), "the start of "+name, time.Minute, func(context.Context) error {
		data, err := os.ReadFile(m.Path(startsDir, name))
		if err != nil {
			return err
		}
		starts, err := parseStarts(data)
		if err == nil && len(starts) == 0 {
			err = fmt.Errorf("%s has not started", name)
		}
		if err == nil {
			started = starts[0]
		}
		return err
	}); err != nil {
		return 0, err
	}
	if err := os.Remove(m.Path(startsDir, name)); err != nil {
		return 0, err
	}
	return started - created, api.Request(m.Context(), http.MethodDelete, "/api/v1/namespaces/default/pods/"+name, nil, nil)
}

// summarizeInnocents adds the figures of innocent pods in the runs.
func (f *Figures) summarizeInnocents(runs []Run) {
	if runs[0].Innocents == nil {
		return
	}
	var all innocents
	seconds := 0.0
	f.FewestRestarts = math.MaxInt
	for _, run := range runs {
		all.Idle = slices.Concat(all.Idle, run.Innocents.Idle)
		all.Busy = slices.Concat(all.Busy, run.Innocents.Busy)
		seconds += run.To - run.From
		for _, starts := range run.Starts {
			restarts := 0
			for _, t := range starts[min(1, len(starts)):] {
				if t >= run.From && t < run.To {
					restarts++
				}
			}
			f.FewestRestarts = min(f.FewestRestarts, restarts)
		}
	}
	f.InnocentIdle, f.Innocent = figures.Summarize(all.Idle), figures.Summarize(all.Busy)
	f.RestartRate = float64(f.Restarts) / seconds
}

// compareInnocents applies the criteria for innocent pods.
func compareInnocents(s Scenario, reference string, stock, ours Figures, criterion criterionFunc) {
	limit := restartRate * stock.RestartRate
	criterion(fmt.Sprintf("restarts per second at least %g of %s's", restartRate, reference), "/s",
		stock.RestartRate, ours.RestartRate, limit, ours.RestartRate >= limit)
	limit = fewestRestarts * float64(ours.Restarts) / float64(ours.Rounds*s.Pods)
	criterion(fmt.Sprintf("restarts of the pod that has fewest at least %g of the mean", fewestRestarts), "",
		float64(stock.FewestRestarts), float64(ours.FewestRestarts), limit, float64(ours.FewestRestarts) >= limit)
	if s.FirstStarts {
		limit := innocentRatio * ours.InnocentIdle.Median
		criterion(fmt.Sprintf("start of an innocent pod, median, at most %d times that on the idle node", innocentRatio), "s",
			stock.Innocent.Median, ours.Innocent.Median, limit, ours.Innocent.Median <= limit)
	}
}

// innocentRows returns the rows of a table for innocent pods.
func innocentRows() []row {
	return []row{
		{"restarts per second", "%.2f", func(f Figures) float64 { return f.RestartRate }},
		{"restarts of the pod that has fewest", "%.0f", func(f Figures) float64 { return float64(f.FewestRestarts) }},
		{"innocent pod, idle node, median", "%.2f s", func(f Figures) float64 { return f.InnocentIdle.Median }},
		{"innocent pod, idle node, worst", "%.2f s", func(f Figures) float64 { return f.InnocentIdle.Worst }},
		{"innocent pod, median", "%.2f s", func(f Figures) float64 { return f.Innocent.Median }},
		{"innocent pod, worst", "%.2f s", func(f Figures) float64 { return f.Innocent.Worst }},
	}
}
