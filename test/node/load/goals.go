// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"slices"
)

// Goal is a goal for ours, compared with the reference. It is only printed: on a
// machine with other load, a missed goal means little.
type Goal struct {
	// What names the goal. It is the same in all scenarios.
	What string `json:"what"`
	Unit string `json:"unit,omitempty"`
	// Limit is the maximum, or with AtLeast the minimum. Tolerance is how far chance
	// may exceed it.
	Limit     float64 `json:"limit"`
	AtLeast   bool    `json:"atLeast,omitempty"`
	Tolerance float64 `json:"tolerance,omitempty"`
	Ours      float64 `json:"ours"`
	Reached   bool    `json:"reached"`
}

const (
	// goalContainers is the number of containers for which some of the goals are set.
	goalContainers = 110
	// goalTimes is the goal for the ratio of the restarts, in scenarios where the ideal
	// is at least this multiple of the reference.
	goalTimes = 1.7
	// memoryMargin is how much more memory ours may use, in bytes.
	memoryMargin = 5 * mebibyte
	// healthyMargin is the goal for the ratio of a healthy pod's start to that on
	// the idle node.
	healthyMargin = 1.2
)

// goalNotes explain the goals.
const goalNotes = `Kubelet CPU and p99 lateness have a limit only with 110 containers. Restarts per second have one if the ideal is at least 1.7 times the
reference's rate, because otherwise it is out of reach. A healthy pod counts as slower than with the reference if the medians of its start differ
by more than twice the standard error of the difference. The standard error of a median is 0.93 of the interquartile range, divided by the
square root of the number of starts.`

// goals returns the goals of a scenario.
func (r Result) goals() (all []Goal) {
	if len(r.Labels) < 2 || r.Labels[0] == patched || r.Labels[1] != patched {
		return nil
	}
	reference := r.Labels[0]
	stock, ours := r.Figures[reference], r.Figures[patched]
	add := func(g Goal) {
		g.Reached = g.Ours <= g.Limit+g.Tolerance
		if g.AtLeast {
			g.Reached = g.Ours >= g.Limit
		}
		all = append(all, g)
	}
	part := func(what string, limit float64, of func(Figures) float64) {
		if stock := of(stock); stock > 0 {
			add(Goal{What: fmt.Sprintf("%s, ratio to %s", what, reference), Limit: limit, Ours: of(ours) / stock})
		}
	}
	// If the back-offs differ, lateness cannot be compared.
	alike := reference != "stock" || r.Scenario.forStock() == r.Scenario
	if r.Scenario.mains() == goalContainers {
		part("kubelet CPU per restart", 0.5, func(f Figures) float64 { return f.Kubelet.PerRestart })
	}
	part("API requests per restart", 0.5, func(f Figures) float64 { return f.RequestsPerRestart })
	if alike && stock.PerSecond > 0 && ours.Ideal >= goalTimes*stock.PerSecond {
		add(Goal{What: fmt.Sprintf("restarts per second, times %s's", reference), Limit: goalTimes, AtLeast: true, Ours: ours.PerSecond / stock.PerSecond})
	}
	if alike && r.Scenario.mains() == goalContainers {
		part("p99 lateness", 0.4, func(f Figures) float64 { return f.Lateness.P99 })
	}
	add(Goal{
		What: fmt.Sprintf("start of a healthy pod, p50, beside %s's", reference), Unit: "s", Limit: stock.Healthy.Median,
		Tolerance: 2 * math.Hypot(stock.HealthyError, ours.HealthyError), Ours: ours.Healthy.Median,
	})
	add(Goal{
		What: "start of a healthy pod, p50, times that on the idle node", Limit: healthyMargin,
		Ours: ours.Healthy.Median / ours.Idle.Median,
	})
	add(Goal{
		What: fmt.Sprintf("kubelet memory above %s's", reference), Unit: "MB", Limit: memoryMargin / mebibyte,
		Ours: (ours.Kubelet.Memory - stock.Kubelet.Memory) / mebibyte,
	})
	return all
}

// limit formats the goal's limit.
func (g Goal) limit() string {
	text := "at most "
	if g.AtLeast {
		text = "at least "
	}
	text += g.amount(g.Limit)
	if g.Tolerance > 0 {
		text += " + " + g.amount(g.Tolerance)
	}
	return text
}

func (g Goal) amount(v float64) string {
	if g.Unit == "" {
		return fmt.Sprintf("%.3f", v)
	}
	return fmt.Sprintf("%.3f %s", v, g.Unit)
}

func (g Goal) verdict() string {
	if g.Reached {
		return "reached"
	}
	return "missed"
}

func (g Goal) String() string {
	return fmt.Sprintf("%s: %s (%s), %s", g.What, g.amount(g.Ours), g.limit(), g.verdict())
}

// allGoals returns a table with a line for each goal and a column for each scenario
// with goals, and the number of goals that are reached, of all. A limit that is the
// same in all scenarios is in the line's first cell.
func allGoals(results []Result) (names []string, table [][]string, reached, of int) {
	var lines []string
	limits := map[string][]string{}
	for _, r := range results {
		if len(r.Goals) > 0 {
			names = append(names, r.Name)
		}
		for _, g := range r.Goals {
			if !slices.Contains(lines, g.What) {
				lines = append(lines, g.What)
			}
			if limit := g.limit(); !slices.Contains(limits[g.What], limit) {
				limits[g.What] = append(limits[g.What], limit)
			}
		}
	}
	for _, what := range lines {
		line := []string{what}
		same := len(limits[what]) == 1
		if same {
			line[0] += ": " + limits[what][0]
		}
		for _, r := range results {
			if len(r.Goals) == 0 {
				continue
			}
			cell := "–"
			if i := slices.IndexFunc(r.Goals, func(g Goal) bool { return g.What == what }); i >= 0 {
				g := r.Goals[i]
				cell = g.amount(g.Ours)
				if !same {
					cell += " (" + g.limit() + ")"
				}
				of++
				if g.Reached {
					reached++
				} else {
					cell += ", **missed**"
				}
			}
			line = append(line, cell)
		}
		table = append(table, line)
	}
	return names, table, reached, of
}
