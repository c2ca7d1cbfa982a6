// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/fleet"
	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/text"
)

// JSON returns the report as JSON.
func (r *Report) JSON() ([]byte, error) {
	var b bytes.Buffer
	err := text.WriteJSON(&b, "  ", r)
	return b.Bytes(), err
}

// CSV returns the series as CSV, with a line for each time and curve.
func (r *Report) CSV() ([]byte, error) {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	w.Write([]string{"after_seconds", "curve", "restarts_per_container", "excess_per_container", "requests_per_10s_fleet"})
	exact := func(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
	for i := range r.Curves[0].Series {
		for _, c := range r.Curves {
			p := c.Series[i]
			w.Write([]string{exact(p.AfterSeconds), c.Name, exact(p.RestartsPerContainer), exact(p.ExcessPerContainer), exact(p.Requests)})
		}
	}
	w.Flush()
	return b.Bytes(), w.Error()
}

// Table is a table for text and HTML.
type Table struct {
	Head []string
	Rows [][]string
}

// Table returns the report as text.
func (r *Report) Table() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\n%s\n", r.Workload, r.costs())
	for _, t := range r.tables() {
		if len(t.Rows) == 0 {
			continue
		}
		b.WriteByte('\n')
		w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
		for _, row := range append([][]string{t.Head}, t.Rows...) {
			fmt.Fprintln(w, strings.Join(row, "\t")+"\t")
		}
		w.Flush()
	}
	for _, line := range r.advice() {
		fmt.Fprintf(&b, "\n%s", line)
	}
	if r.Recommendation != nil {
		b.WriteByte('\n')
	}
	return b.Bytes()
}

// tables returns the sums, the recoveries and the series.
func (r *Report) tables() []Table {
	return []Table{r.sums(), r.recoveries(), r.overTime()}
}

func (r *Report) costs() string {
	c := r.Costs
	s := fmt.Sprintf("a restart: %s requests", number(c.RequestsPerRestart))
	if c.EventsPerRestart > 0 {
		s += fmt.Sprintf(" and up to %d for events", c.EventsPerRestart)
	}
	s += fmt.Sprintf(", %s ms CPU and %s ms for each request; a kubelet without restarts: %s CPU", number(1000*c.CPUSecondsPerRestart), number(1000*c.CPUSecondsPerRequest), number(c.CPUIdle))
	if r.Nodes > 1 {
		s += fmt.Sprintf("; of the API server %s ms for each request", number(1000*c.APIServerPerRequest))
	}
	var limits []string
	if c.RequestsPerSecond > 0 {
		limits = append(limits, number(c.RequestsPerSecond)+" requests/s")
	}
	if c.EventsPerSecond > 0 {
		limits = append(limits, number(c.EventsPerSecond)+" events/s")
	}
	if len(limits) > 0 {
		s += "; at most " + strings.Join(limits, " and ")
	}
	return s
}

func (r *Report) sums() Table {
	t := Table{Head: []string{"CURVE", "INITIAL", "MAXIMUM", "RESTARTS", "EXCESS", "REQUESTS/10s", "BUSIEST", "CPU", "BUSIEST", "DOWN"}}
	if r.Nodes > 1 {
		t.Head = append(t.Head, "FLEET REQUESTS/10s", "BUSIEST", "API SERVER CPU")
	}
	if r.completed() {
		t.Head = append(t.Head, "COMPLETED")
	}
	for i, c := range r.Curves {
		row := []string{
			c.Name, span(c.InitialSeconds), span(c.MaximumSeconds), number(c.RestartsPerContainer), r.excess(i, c.ExcessPerContainer),
			number(c.RequestsNode), number(c.RequestsNodeBusiest), number(c.CPU), number(c.CPUBusiest), fleet.Percent(c.Down),
		}
		if r.Nodes > 1 {
			row = append(row, number(c.RequestsFleet), number(c.RequestsFleetBusiest), number(c.APIServerCPU))
		}
		if r.completed() {
			row = append(row, strconv.FormatUint(c.Completed, 10))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func (r *Report) completed() bool {
	for _, c := range r.Curves {
		if c.Completed > 0 {
			return true
		}
	}
	return false
}

// excess formats the difference of a curve to the first one.
func (r *Report) excess(curve int, n float64) string {
	if curve == 0 {
		return "-"
	}
	if s := number(n); n > 0 && s != "0" {
		return "+" + s
	}
	return number(n)
}

func (r *Report) recoveries() Table {
	t := Table{Head: []string{"BACK AFTER", "CURVE", "CONTAINERS", "P50", "P99", "LONGEST", "NEVER"}}
	for i := range r.Curves[0].Recoveries {
		for _, c := range r.Curves {
			v := c.Recoveries[i]
			t.Rows = append(t.Rows, []string{
				span(v.BackSeconds), c.Name, strconv.FormatUint(v.Containers, 10), optional(v.P50), optional(v.P99), optional(v.Longest), strconv.FormatUint(v.Never, 10),
			})
		}
	}
	return t
}

// optional formats a time, or a dash if there is none.
func optional(seconds *float64) string {
	if seconds == nil {
		return "-"
	}
	return span(*seconds)
}

func (r *Report) overTime() Table {
	t := Table{Head: []string{"AFTER"}}
	for i, c := range r.Curves {
		if t.Head = append(t.Head, c.Name); i > 0 {
			t.Head = append(t.Head, "EXCESS")
		}
	}
	for i, p := range r.Curves[0].Series {
		row := []string{span(p.AfterSeconds)}
		for j, c := range r.Curves {
			if row = append(row, number(c.Series[i].RestartsPerContainer)); j > 0 {
				row = append(row, r.excess(j, c.Series[i].ExcessPerContainer))
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// advice returns the lines of the recommendation.
func (r *Report) advice() []string {
	rec := r.Recommendation
	if rec == nil {
		return nil
	}
	var limits []string
	if rec.BudgetRequests > 0 {
		limits = append(limits, number(rec.BudgetRequests)+" requests/s of all nodes")
	}
	if rec.BudgetCPU > 0 {
		limits = append(limits, number(rec.BudgetCPU)+" CPU of each kubelet")
	}
	nodes := "a node"
	if rec.Nodes > 1 {
		nodes = strconv.Itoa(rec.Nodes) + " nodes"
	}
	lines := []string{fmt.Sprintf("budget: %s, in each %s (simulated on %s)", strings.Join(limits, " and "), span(rec.WindowSeconds), nodes)}
	if rec.Maximum == nil {
		return append(lines, "no maximum is within the budget: "+rec.Beyond.text())
	}
	lines = append(lines, "lowest maximum within the budget: "+rec.Maximum.text())
	if rec.Beyond != nil {
		lines = append(lines, "next lower maximum, over the budget: "+rec.Beyond.text())
	}
	return lines
}

func (l *Load) text() string {
	s := span(l.Seconds) + ": "
	margin := func(m *float64) string {
		switch {
		case m == nil:
			return ""
		case *m < 0:
			return fmt.Sprintf(" (%s over)", fleet.Percent(roundUp(-*m)))
		}
		return fmt.Sprintf(" (margin %s)", fleet.Percent(math.Floor(*m*1000)/1000))
	}
	return s + number(l.Requests) + " requests/s" + margin(l.RequestsMargin) + ", " + number(l.CPU) + " CPU" + margin(l.CPUMargin)
}

func roundUp(share float64) float64 { return math.Ceil(share*1000) / 1000 }

// number formats f with three digits, or with all digits before the point if there are more.
func number(f float64) string {
	digits := 2
	for limit := 10.0; math.Abs(f) >= limit && digits > 0; limit *= 10 {
		digits--
	}
	s := strconv.FormatFloat(f, 'f', digits, 64)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	if s == "-0" {
		return "0"
	}
	return s
}

// span formats a duration, rounded to a millisecond.
func span(seconds float64) string {
	return fleet.Short(time.Duration(math.Round(seconds*1000)) * time.Millisecond)
}
