// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
)

// The labels of the reference: an unpatched kubelet, or another patched one.
const (
	stockLabel = "stock"
	baseLabel  = "base"
)

// Comparison compares the two kubelets in a scenario.
type Comparison struct {
	Scenario Scenario `json:"scenario"`
	// Reference is stockLabel or baseLabel. The fields Stock are those of this kubelet.
	Reference string      `json:"reference"`
	Stock     Figures     `json:"stock"`
	Ours      Figures     `json:"ours"`
	Criteria  []Criterion `json:"criteria"`
	Goals     []Outcome   `json:"goals"`
}

// Criterion is one condition that decides whether the measurement passes.
type Criterion struct {
	What  string  `json:"what"`
	Stock float64 `json:"stock"`
	Ours  float64 `json:"ours"`
	Limit float64 `json:"limit"`
	Unit  string  `json:"unit"`
	Pass  bool    `json:"pass"`
}

// Outcome is an absolute goal and our figure.
type Outcome struct {
	What    string  `json:"what"`
	Unit    string  `json:"unit"`
	Limit   float64 `json:"limit"`
	Ours    float64 `json:"ours"`
	Reached bool    `json:"reached"`
}

// tooEarly is the tolerance for early restarts. Start times are truncated to a
// hundredth of a second, so the difference of two can be that much too short. The
// rest is for the runtime's clock, from which the kubelet counts.
const tooEarly = 0.03

// enoughRestarts is the minimum number of restarts of each kubelet for CPU per
// restart to be a criterion. With fewer restarts, the kubelet's periodic work costs
// more than the restarts: with 4s (10 to 14 restarts) and with the default curve (4)
// the figure is noise. With 1s both kubelets have more, even standalone.
const enoughRestarts = 20

// The limits for ours, as a share of base's. They apply to the best rounds of both,
// because other load on the machine makes runs of the same kubelet differ by more.
const (
	costRatio      = 1.02
	latenessRatio  = 1.1
	latenessMargin = 0.01
)

// compare applies the criteria and the goals of a scenario. The reference is the label
// of the kubelet with the figures stock.
func compare(s Scenario, reference string, stock, ours Figures) Comparison {
	c := Comparison{Scenario: s, Reference: reference, Stock: stock, Ours: ours}
	criterion := func(what, unit string, stock, ours, limit float64, pass bool) {
		c.Criteria = append(c.Criteria, Criterion{what, stock, ours, limit, unit, pass})
	}
	switch {
	case s.Action != "":
		compareRestarts(s, reference, stock, ours, criterion)
	case s.Healthy:
		compareHealthyPods(s, reference, stock, ours, criterion)
	case reference == baseLabel:
		compareCost(s, stock, ours, criterion)
	default:
		compareIntervals(s, stock, ours, criterion)
	}
	for _, g := range s.goals {
		v := g.of(ours)
		c.Goals = append(c.Goals, Outcome{g.What, g.Unit, g.Limit, v, v <= g.Limit})
	}
	return c
}

// criterionFunc adds a criterion to a comparison.
type criterionFunc func(what, unit string, stock, ours, limit float64, pass bool)

// compareCost applies the criteria for the additional cost of ours over base.
func compareCost(s Scenario, base, ours Figures, criterion criterionFunc) {
	limit := latenessRatio*base.Best.Lateness + latenessMargin
	criterion("mean lateness not above base's", "s",
		base.Best.Lateness, ours.Best.Lateness, limit, ours.Best.Lateness <= limit)
	criterion("no restart before its delay has passed", "s",
		base.Lateness.Least, ours.Lateness.Least, -tooEarly, ours.Lateness.Least >= -tooEarly)
	if min(base.Restarts, ours.Restarts) >= enoughRestarts {
		limit := costRatio * base.Best.CPUPerRestart
		criterion(fmt.Sprintf("kubelet CPU per restart at most %g of base's", costRatio), "ms",
			base.Best.CPUPerRestart, ours.Best.CPUPerRestart, limit, ours.Best.CPUPerRestart <= limit)
	}
	if s.API {
		limit := costRatio * base.RequestsPerRestart
		criterion(fmt.Sprintf("API requests per restart at most %g of base's", costRatio), "",
			base.RequestsPerRestart, ours.RequestsPerRestart, limit, ours.RequestsPerRestart > 0 && ours.RequestsPerRestart <= limit)
	}
}

// compareIntervals applies the criteria for restarts of containers.
func compareIntervals(s Scenario, stock, ours Figures, criterion criterionFunc) {
	// The interval includes the time in which the runtime creates and starts a container,
	// which depends on the machine and is the same for both.
	runtime := min(stock.Alone.Mean, ours.Alone.Mean)
	stockMean, oursMean := stock.Lateness.Mean-runtime, ours.Lateness.Mean-runtime
	limit := s.LatenessRatio * stockMean
	criterion(fmt.Sprintf("mean lateness beyond the runtime's at most %g of stock's", s.LatenessRatio), "s",
		stockMean, oursMean, limit, oursMean <= limit)
	// Without this criterion, a kubelet without a back-off would pass.
	criterion("no restart before its delay has passed", "s",
		stock.Lateness.Least, ours.Lateness.Least, -tooEarly, ours.Lateness.Least >= -tooEarly)
	if min(stock.Restarts, ours.Restarts) >= enoughRestarts {
		criterion("kubelet CPU per restart not above stock's", "ms",
			stock.CPUPerRestart, ours.CPUPerRestart, stock.CPUPerRestart, ours.CPUPerRestart <= stock.CPUPerRestart)
	}
	if s.API {
		// Every restart has requests, so a figure of 0 means that they were not
		// counted.
		counted := stock.RequestsPerRestart > 0 && ours.RequestsPerRestart > 0
		atMost := func(what string, limit float64) {
			criterion("API requests per restart "+what, "", stock.RequestsPerRestart, ours.RequestsPerRestart, limit,
				counted && ours.RequestsPerRestart <= limit)
		}
		atMost("not above stock's", stock.RequestsPerRestart)
		if s.RequestLimit > 0 {
			atMost(fmt.Sprintf("at most %g", s.RequestLimit), s.RequestLimit)
		}
	}
}

// passed reports whether every criterion of every comparison holds.
func passed(comparisons []Comparison) bool {
	for _, c := range comparisons {
		if slices.ContainsFunc(c.Criteria, func(c Criterion) bool { return !c.Pass }) {
			return false
		}
	}
	return true
}

// row is a line of a table: the name of a figure, and a function that returns it.
type row struct {
	what, format string
	of           func(Figures) float64
}

// rows returns the rows to print for a scenario. The steps of the curve and the kinds
// of requests are those in f.
func rows(s Scenario, f ...Figures) []row {
	if s.Action != "" {
		return restartRows(s)
	}
	var out []row
	if s.Healthy {
		out = healthyRows()
	}
	out = append(out,
		row{"restarts in the window", "%.0f", func(f Figures) float64 { return float64(f.Restarts) }},
	)
	if s.Maximum == 0 {
		for i := range f[0].ByRestart {
			out = append(out, row{
				fmt.Sprintf("restart %d, delay %g s: interval", i+2, f[0].ByRestart[i].Delay), "%.2f s",
				func(f Figures) float64 {
					if i >= len(f.ByRestart) {
						return 0
					}
					return f.ByRestart[i].Interval
				},
			})
		}
	} else {
		out = append(out,
			row{"interval, mean", "%.3f s", func(f Figures) float64 { return f.Interval.Mean }},
			row{"interval, median", "%.3f s", func(f Figures) float64 { return f.Interval.Median }},
			row{"interval, p99", "%.3f s", func(f Figures) float64 { return f.Interval.P99 }},
			row{"interval, worst", "%.3f s", func(f Figures) float64 { return f.Interval.Worst }},
		)
	}
	out = append(out,
		row{"lateness, mean", "%.3f s", func(f Figures) float64 { return f.Lateness.Mean }},
		row{"lateness, worst", "%.3f s", func(f Figures) float64 { return f.Lateness.Worst }},
		row{"lateness without a kubelet, mean", "%.3f s", func(f Figures) float64 { return f.Alone.Mean }},
		row{"first restart (delay 0), mean", "%.3f s", func(f Figures) float64 { return f.First.Mean }},
		row{"first restart (delay 0), worst", "%.3f s", func(f Figures) float64 { return f.First.Worst }},
		row{"kubelet CPU per restart", "%.1f ms", func(f Figures) float64 { return f.CPUPerRestart }},
	)
	if f[0].Rounds > 1 {
		out = append(out,
			row{"best round: lateness, mean", "%.3f s", func(f Figures) float64 { return f.Best.Lateness }},
			row{"best round: kubelet CPU per restart", "%.1f ms", func(f Figures) float64 { return f.Best.CPUPerRestart }},
		)
	}
	if s.API {
		out = append(out, row{"API requests per restart", "%.2f", func(f Figures) float64 { return f.RequestsPerRestart }})
		kinds := map[string]bool{}
		for _, f := range f {
			for kind := range f.Requests {
				kinds[kind] = true
			}
		}
		for _, kind := range slices.Sorted(maps.Keys(kinds)) {
			out = append(out, row{"  " + kind, "%.2f", func(f Figures) float64 { return f.Requests[kind] }})
		}
	}
	return out
}

// tableRow is the format of a line of a table: what, stock, ours, ratio.
const tableRow = "  %-36s %11s %11s %11s\n"

// printComparison writes one scenario as a table, its criteria and its goals.
func printComparison(w io.Writer, c Comparison) {
	fmt.Fprintf(w, "\n%s: %v\n", c.Scenario.Name, c.Scenario)
	fmt.Fprintf(w, tableRow, "", c.Reference, "ours", "ours/"+c.Reference)
	for _, r := range rows(c.Scenario, c.Stock, c.Ours) {
		stock, ours := r.of(c.Stock), r.of(c.Ours)
		fmt.Fprintf(w, tableRow, r.what, fmt.Sprintf(r.format, stock), fmt.Sprintf(r.format, ours), ratio(ours, stock))
	}
	for _, k := range c.Criteria {
		verdict := "FAIL"
		if k.Pass {
			verdict = "pass"
		}
		fmt.Fprintf(w, "  %s  %s: %s %s, ours %s, limit %s\n", verdict, k.What, c.Reference,
			figure(k.Stock, k.Unit), figure(k.Ours, k.Unit), figure(k.Limit, k.Unit))
	}
	for _, g := range c.Goals {
		verdict := "missed"
		if g.Reached {
			verdict = "reached"
		}
		fmt.Fprintf(w, "  goal  %s at most %s: %s, %s (does not decide)\n",
			g.What, figure(g.Limit, g.Unit), figure(g.Ours, g.Unit), verdict)
	}
}

// printFigures writes the figures of a single kubelet.
func printFigures(w io.Writer, s Scenario, f Figures) {
	fmt.Fprintf(w, "\n%s: %v\n", s.Name, s)
	for _, r := range rows(s, f) {
		fmt.Fprintf(w, "  %-36s %11s\n", r.what, fmt.Sprintf(r.format, r.of(f)))
	}
}

// printVerdict prints the result of a whole measurement.
func printVerdict(w io.Writer, comparisons []Comparison) {
	held, all := 0, 0
	for _, c := range comparisons {
		for _, k := range c.Criteria {
			all++
			if k.Pass {
				held++
			}
		}
	}
	verdict := "FAIL"
	if held == all {
		verdict = "PASS"
	}
	fmt.Fprintf(w, "\n%s: %d of %d criteria hold in %d scenarios\n", verdict, held, all, len(comparisons))
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func figure(v float64, unit string) string {
	if unit == "" {
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3f %s", v, unit)
}

func ratio(ours, stock float64) string {
	if stock == 0 {
		return "-"
	}
	return fmt.Sprintf("%.3f", ours/stock)
}
