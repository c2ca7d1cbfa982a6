// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/figures"
	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
)

// Run has the observations of one kubelet in one scenario.
type Run struct {
	Kubelet string `json:"kubelet"`
	Version string `json:"version"`
	// Starts has the start times of each pod's container, in seconds of uptime.
	Starts map[string][]float64 `json:"starts"`
	// Journals has the events of the containers of each pod that is restarted as a
	// whole. Such a run has no other observations.
	Journals map[string][]harness.JournalEvent `json:"journals,omitempty"`
	// Alone has the same restarts without a kubelet, in scenarios that compare lateness
	// or restart each pod once.
	Alone *Alone `json:"alone,omitempty"`
	// Replaced has the times, in seconds, from the deletion of a pod until all containers of
	// a new one have started, in scenarios that restart each pod once and have an API server.
	Replaced []float64 `json:"replaced,omitempty"`
	// HealthyPods is nil unless the scenario has healthy pods.
	HealthyPods *healthyPods `json:"healthyPods,omitempty"`
	// From and To bound the measuring window, in seconds of uptime.
	From float64 `json:"from"`
	To   float64 `json:"to"`
	// CPU is the processor time in seconds that the kubelet used in the window.
	CPU float64 `json:"cpu"`
	// Requests counts the kubelet's API requests in the window, keyed by verb
	// and resource ("GET pods"). It is nil without an API server.
	Requests map[string]float64 `json:"requests,omitempty"`
}

// Figures is the result of a Run. Times are in seconds, except CPU times.
type Figures struct {
	// Rounds is the number of runs.
	Rounds int `json:"rounds"`
	// Restarts is the number of restarts in the window, in all pods.
	Restarts int `json:"restarts"`
	// Interval and Lateness cover the restarts with their whole wait in the
	// window, except each pod's first one, which has no delay.
	Interval figures.Summary `json:"interval"`
	Lateness figures.Summary `json:"lateness"`
	// First covers each pod's first restart, which has no delay.
	First figures.Summary `json:"first"`
	// ByRestart has the mean interval of the second, third, … restart of a pod, with the
	// curve's delay. It is empty if all delays are equal.
	ByRestart []Step `json:"byRestart,omitempty"`
	// PodRestart covers restarts of whole pods, from the exit of the trigger until
	// the last container has started again. Then all other fields except Restarts are
	// empty.
	PodRestart figures.Summary `json:"podRestart,omitzero"`
	// Alone is PodRestart without a kubelet, or the lateness without a kubelet in
	// scenarios that compare lateness. AloneStarts is the part of it in which the runtime
	// created and started containers.
	Alone       figures.Summary `json:"alone,omitzero"`
	AloneStarts figures.Summary `json:"aloneStarts,omitzero"`
	// Replaced covers pods that were deleted and created again instead.
	Replaced figures.Summary `json:"replaced,omitzero"`
	// HealthyIdle and Healthy are the times from the creation of healthy pods to
	// their start, on the idle node and while others crashed. RestartRate is the number
	// of restarts of the others per second, and FewestRestarts the minimum number of
	// restarts of a pod in the window.
	HealthyIdle    figures.Summary `json:"healthyIdle,omitzero"`
	Healthy        figures.Summary `json:"healthy,omitzero"`
	RestartRate    float64         `json:"restartRate,omitempty"`
	FewestRestarts int             `json:"fewestRestarts,omitempty"`
	// CPUPerRestart is in milliseconds.
	CPUPerRestart float64 `json:"cpuPerRestart"`
	// Best has the lowest mean lateness and the lowest CPU per restart of any round.
	// Other load on the machine can only increase these figures.
	Best               Best               `json:"best,omitzero"`
	RequestsPerRestart float64            `json:"requestsPerRestart,omitempty"`
	Requests           map[string]float64 `json:"requests,omitempty"`
}

// Best has the lowest figures of several rounds, in the units of Figures.
type Best struct {
	Lateness      float64 `json:"lateness"`
	CPUPerRestart float64 `json:"cpuPerRestart"`
}

// Step is one restart of the curve.
type Step struct {
	Delay    float64 `json:"delay"`
	Interval float64 `json:"interval"`
}

// measure returns the figures of the runs of a scenario.
func measure(runs []Run, s Scenario) (Figures, error) {
	if s.Action != "" {
		return measureRestarts(runs, s)
	}
	var (
		f                        = Figures{Rounds: len(runs)}
		intervals, lates, firsts []float64
		alone                    []float64
		steps                    = map[int][]float64{}
		cpu                      float64
		requests                 map[string]float64
	)
	for i, run := range runs {
		if run.Alone != nil {
			for _, starts := range run.Alone.Crashes {
				for i := 1; i < len(starts); i++ {
					alone = append(alone, starts[i]-starts[i-1]-aloneDelay.Seconds())
				}
			}
		}
		earlier, restarts := len(lates), f.Restarts
		for pod, starts := range run.Starts {
			if !slices.IsSorted(starts) {
				return Figures{}, fmt.Errorf("pod %s: start times are not in order: %v", pod, starts)
			}
			for i := 1; i < len(starts); i++ {
				from, to := starts[i-1], starts[i]
				interval := to - from
				n := i - 1
				if n == 0 {
					firsts = append(firsts, interval)
				}
				if to >= run.From && to < run.To {
					f.Restarts++
				}
				if n == 0 || from < run.From || to > run.To {
					continue
				}
				intervals = append(intervals, interval)
				lates = append(lates, interval-s.Delay(n).Seconds())
				steps[n] = append(steps[n], interval)
			}
		}
		if len(lates) == earlier {
			return Figures{}, errors.New("the measuring window has no restart with a delay")
		}
		best := Best{figures.Summarize(lates[earlier:]).Mean, run.CPU * 1000 / float64(f.Restarts-restarts)}
		if i == 0 {
			f.Best = best
		}
		f.Best = Best{min(f.Best.Lateness, best.Lateness), min(f.Best.CPUPerRestart, best.CPUPerRestart)}
		cpu += run.CPU
		for kind, count := range run.Requests {
			if requests == nil {
				requests = map[string]float64{}
			}
			requests[kind] += count
		}
	}
	f.Interval, f.Lateness, f.First = figures.Summarize(intervals), figures.Summarize(lates), figures.Summarize(firsts)
	f.Alone = figures.Summarize(alone)
	if s.Maximum == 0 {
		for n := 1; len(steps[n]) > 0; n++ {
			f.ByRestart = append(f.ByRestart, Step{s.Delay(n).Seconds(), figures.Summarize(steps[n]).Mean})
		}
	}
	f.summarizeHealthyPods(runs)
	f.CPUPerRestart = cpu * 1000 / float64(f.Restarts)
	if requests != nil {
		f.Requests = map[string]float64{}
		for kind, count := range requests {
			f.Requests[kind] = count / float64(f.Restarts)
			f.RequestsPerRestart += f.Requests[kind]
		}
	}
	return f, nil
}

// parseStarts parses the lines that crasher wrote. It ignores an incomplete last line.
func parseStarts(data []byte) ([]float64, error) {
	var starts []float64
	for {
		line, rest, complete := bytes.Cut(data, []byte("\n"))
		if !complete {
			return starts, nil
		}
		t, err := strconv.ParseFloat(string(line), 64)
		if err != nil {
			return nil, fmt.Errorf("start %d: %w", len(starts)+1, err)
		}
		starts = append(starts, t)
		data = rest
	}
}
