// SPDX-License-Identifier: Apache-2.0

package main

import "fmt"

// Goal is what ours should reach beside the reference. It is printed and decides
// nothing: on a machine that does something else it says little.
type Goal struct {
	What    string  `json:"what"`
	Unit    string  `json:"unit,omitempty"`
	Limit   float64 `json:"limit"`
	Ours    float64 `json:"ours"`
	Reached bool    `json:"reached"`
}

const (
	// goalPods is the number of pods for which most goals are set, and fullPods
	// from which on a node is taken to be saturated.
	goalPods, fullPods = 110, 500
	// memoryMargin is how much more memory the kubelet may have, in bytes.
	memoryMargin = 5 * mebibyte
	// innocentMargin is how much longer than on the idle node an innocent pod's
	// start may take.
	innocentMargin = 1.2
)

// goals returns those of a scenario.
func (r Result) goals() (all []Goal) {
	if len(r.Labels) != 2 {
		return nil
	}
	reference, stock, ours := r.Labels[0], r.Figures[r.Labels[0]], r.Figures[r.Labels[1]]
	atMost := func(what, unit string, limit, ours float64) {
		all = append(all, Goal{what, unit, limit, ours, ours <= limit})
	}
	part := func(what string, limit float64, of func(Figures) float64) {
		if stock := of(stock); stock > 0 {
			atMost(fmt.Sprintf("%s at most %g of %s's", what, limit, reference), "", limit, of(ours)/stock)
		}
	}
	if r.Scenario.Mix == allFail && r.Scenario.Pods == goalPods {
		part("kubelet CPU per restart", 0.5, func(f Figures) float64 { return f.Kubelet.PerRestart })
		part("API requests per restart", 0.5, func(f Figures) float64 { return f.RequestsPerRestart })
		part("p99 lateness", 0.4, func(f Figures) float64 { return f.Lateness.P99 })
	}
	if r.Scenario.Mix == allFail && r.Scenario.Pods >= fullPods && stock.PerSecond > 0 {
		times := ours.PerSecond / stock.PerSecond
		all = append(all, Goal{fmt.Sprintf("restarts per second at least 1.7 times %s's", reference), "", 1.7, times, times >= 1.7})
	}
	atMost(fmt.Sprintf("start of an innocent pod not slower than with %s, p50", reference), "s", stock.Innocent.Median, ours.Innocent.Median)
	atMost("start of an innocent pod at most 20 % slower than on the idle node, p50", "s", innocentMargin*ours.Idle.Median, ours.Innocent.Median)
	atMost(fmt.Sprintf("kubelet memory at most 5 MB above %s's", reference), "MB",
		(stock.Kubelet.Memory+memoryMargin)/mebibyte, ours.Kubelet.Memory/mebibyte)
	return all
}

func (g Goal) String() string {
	verdict, unit := "missed", ""
	if g.Reached {
		verdict = "reached"
	}
	if g.Unit != "" {
		unit = " " + g.Unit
	}
	return fmt.Sprintf("%s: %.3f%s (limit %.3f%s), %s", g.What, g.Ours, unit, g.Limit, unit, verdict)
}
