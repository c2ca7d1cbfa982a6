// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/figures"
)

// Result is a scenario with the figures of each kubelet, by its label.
type Result struct {
	Name     string   `json:"name"`
	Scenario Scenario `json:"scenario"`
	// Labels are the kubelets' in their order: the reference, and ours.
	Labels  []string           `json:"labels"`
	Figures map[string]Figures `json:"figures"`
	Note    string             `json:"note,omitempty"`
}

// row is one line of a table: a figure and what it is.
type row struct {
	what, format string
	of           func(Figures) float64
}

const mebibyte = 1 << 20

// rows returns the lines of a scenario's table.
func (r Result) rows() []row {
	var all []row
	add := func(what, format string, of func(Figures) float64) { all = append(all, row{what, format, of}) }
	summary := func(what, format string, of func(Figures) figures.Summary) {
		add(what+", p50", format, func(f Figures) float64 { return of(f).Median })
		add(what+", p99", format, func(f Figures) float64 { return of(f).P99 })
	}
	use := func(what string, of func(Figures) Use) {
		add(what+" CPU per restart", "%.2f ms", func(f Figures) float64 { return of(f).PerRestart })
		add(what+" CPU, mean", "%.2f cores", func(f Figures) float64 { return of(f).Cores })
		add(what+" CPU, most in 1 s", "%.2f cores", func(f Figures) float64 { return of(f).Peak })
	}
	// A line for each key that any kubelet has.
	each := func(format string, of func(Figures) map[string]float64) {
		keys := map[string]bool{}
		for _, f := range r.Figures {
			for k := range of(f) {
				keys[k] = true
			}
		}
		for _, k := range slices.Sorted(maps.Keys(keys)) {
			add("  "+k, format, func(f Figures) float64 { return of(f)[k] })
		}
	}
	herd := r.Scenario.Mix == onDependent
	add("restarts in the window", "%.0f", func(f Figures) float64 { return float64(f.Restarts) })
	if !herd {
		add("restarts per second", "%.1f", func(f Figures) float64 { return f.PerSecond })
		add("  ideal", "%.1f", func(f Figures) float64 { return f.Ideal })
	}
	if herd {
		summary("first restart (delay 0)", "%.3f s", func(f Figures) figures.Summary { return f.First })
		summary("time to recover", "%.3f s", func(f Figures) figures.Summary { return f.Recovery })
		add("time to recover, all", "%.3f s", func(f Figures) float64 { return f.Recovery.Worst })
	}
	summary("lateness", "%.3f s", func(f Figures) figures.Summary { return f.Lateness })
	use("kubelet", func(f Figures) Use { return f.Kubelet })
	add("kubelet memory, resident", "%.1f MB", func(f Figures) float64 { return f.Kubelet.Memory / mebibyte })
	add("kubelet memory, heap", "%.1f MB", func(f Figures) float64 { return f.Heap / mebibyte })
	use("API server", func(f Figures) Use { return f.APIServer })
	add("API server memory, resident", "%.1f MB", func(f Figures) float64 { return f.APIServer.Memory / mebibyte })
	add("runtime CPU, mean", "%.2f cores", func(f Figures) float64 { return f.Runtime.Cores })
	add("API requests per 10 s", "%.0f", func(f Figures) float64 { return f.RequestsPer10s })
	add("API requests per restart", "%.2f", func(f Figures) float64 { return f.RequestsPerRestart })
	each("%.2f", func(f Figures) map[string]float64 { return f.Requests })
	add("API requests that wait for the limit", "%.2f", func(f Figures) float64 { return f.Throttled })
	add("pod syncs per restart", "%.2f", func(f Figures) float64 { return f.Syncs })
	add("relists per second", "%.2f", func(f Figures) float64 { return f.Relists })
	add("CRI calls per restart", "%.2f", func(f Figures) float64 { return f.CallsPerRestart })
	each("%.2f", func(f Figures) map[string]float64 { return f.Calls })
	summary("start of an innocent pod", "%.3f s", func(f Figures) figures.Summary { return f.Innocent })
	add("  of them never started", "%.0f", func(f Figures) float64 { return float64(f.NotStarted) })
	add("  on the idle node, p50", "%.3f s", func(f Figures) float64 { return f.Idle.Median })
	add("warming up", "%.1f s", func(f Figures) float64 { return f.WarmUp })
	add("all restarts, by the runtime", "%.0f", func(f Figures) float64 { return float64(f.AllRestarts) })
	add("all restarts, by the API", "%.0f", func(f Figures) float64 { return float64(f.APIRestarts) })
	return all
}

// cells returns what the table has in a line: the figures, and their ratio.
func (r Result) cells(line row) (cells []string) {
	for _, label := range r.Labels {
		cells = append(cells, fmt.Sprintf(line.format, line.of(r.Figures[label])))
	}
	if len(r.Labels) == 2 {
		cells = append(cells, ratio(line.of(r.Figures[r.Labels[1]]), line.of(r.Figures[r.Labels[0]])))
	}
	return cells
}

// heads returns what is above the cells.
func (r Result) heads() []string {
	if len(r.Labels) == 2 {
		return append(slices.Clone(r.Labels), r.Labels[1]+"/"+r.Labels[0])
	}
	return r.Labels
}

func ratio(ours, stock float64) string {
	if stock == 0 {
		return "-"
	}
	return fmt.Sprintf("%.3f", ours/stock)
}

// print writes a scenario as a table.
func (r Result) print(w io.Writer) {
	fmt.Fprintf(w, "\n%s: %v\n", r.Name, r.Scenario)
	line := func(what string, cells []string) {
		fmt.Fprintf(w, "  %-38s", what)
		for _, c := range cells {
			fmt.Fprintf(w, " %12s", c)
		}
		fmt.Fprintln(w)
	}
	line("", r.heads())
	for _, l := range r.rows() {
		line(l.what, r.cells(l))
	}
	if r.Note != "" {
		fmt.Fprintf(w, "  %s\n", r.Note)
	}
}

// summary is what is said of a run when it has ended.
func (f Figures) summary() string {
	return fmt.Sprintf("%.1f restarts per second, p99 lateness %.3f s, kubelet CPU per restart %.2f ms, API requests per restart %.2f",
		f.PerSecond, f.Lateness.P99, f.Kubelet.PerRestart, f.RequestsPerRestart)
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
