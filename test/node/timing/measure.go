// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/figures"
	"github.com/kubelet-backoff/kubelet-backoff/test/node/node"
)

// Run is what one kubelet did in one scenario, as observed.
type Run struct {
	Kubelet string `json:"kubelet"`
	Version string `json:"version"`
	// Starts has, for each pod, when its container started: seconds of uptime.
	Starts map[string][]float64 `json:"starts"`
	// Journals has, for each pod that is restarted as a whole, the events of its
	// containers. Such a run has no other observations.
	Journals map[string][]node.JournalEvent `json:"journals,omitempty"`
	// Alone is what a restart takes without a kubelet, where pods are restarted once or
	// lateness is compared.
	Alone *Alone `json:"alone,omitempty"`
	// Innocents is nil unless the scenario has innocent pods.
	Innocents *innocents `json:"innocents,omitempty"`
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
	// Rounds is how many runs these are the figures of.
	Rounds int `json:"rounds"`
	// Restarts is the number of restarts in the window, in all pods.
	Restarts int `json:"restarts"`
	// Interval and Lateness cover the restarts with their whole wait in the
	// window, except each pod's first one, which has no delay.
	Interval figures.Summary `json:"interval"`
	Lateness figures.Summary `json:"lateness"`
	// First covers each pod's first, free restart.
	First figures.Summary `json:"first"`
	// ByRestart is the mean interval of the second, third, … restart of a pod
	// beside the curve's delay. It is filled where the delays differ.
	ByRestart []Step `json:"byRestart,omitempty"`
	// PodRestart covers restarts of whole pods, from the exit of the trigger until
	// the last container has started again. All but Restarts is empty beside it.
	PodRestart figures.Summary `json:"podRestart,omitzero"`
	// Alone is the same, or where lateness is compared the lateness, without a kubelet, and
	// AloneStarts what of that the creations and starts of the containers took.
	Alone       figures.Summary `json:"alone,omitzero"`
	AloneStarts figures.Summary `json:"aloneStarts,omitzero"`
	// InnocentIdle and Innocent are how long after their creation innocent pods
	// started, on the idle node and while others crashed, RestartRate how many
	// restarts of the latter there were in a second, and FewestRestarts how many the
	// pod had in the window that had the fewest.
	InnocentIdle   figures.Summary `json:"innocentIdle,omitzero"`
	Innocent       figures.Summary `json:"innocent,omitzero"`
	RestartRate    float64         `json:"restartRate,omitempty"`
	FewestRestarts int             `json:"fewestRestarts,omitempty"`
	// CPUPerRestart is in milliseconds.
	CPUPerRestart float64 `json:"cpuPerRestart"`
	// Best has the least mean lateness and the least CPU per restart of any round.
	// What else the machine does only adds to them.
	Best               Best               `json:"best,omitzero"`
	RequestsPerRestart float64            `json:"requestsPerRestart,omitempty"`
	Requests           map[string]float64 `json:"requests,omitempty"`
}

// Best is the least of several rounds, in the units of Figures.
type Best struct {
	Lateness      float64 `json:"lateness"`
	CPUPerRestart float64 `json:"cpuPerRestart"`
}

// Step is one restart of the curve.
type Step struct {
	Delay    float64 `json:"delay"`
	Interval float64 `json:"interval"`
}

// measure reduces runs of one scenario to their figures.
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
			return Figures{}, errors.New("no restart with a delay lies in the measuring window")
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
	f.summarizeInnocents(runs)
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

// parseStarts reads the lines that crasher wrote. What follows the last line
// end is ignored: it may be half a line.
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
