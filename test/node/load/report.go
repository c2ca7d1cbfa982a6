// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/figures"
	"github.com/kubelet-backoff/kubelet-backoff/test/node/memcri"
)

// Result is a scenario with the figures of each kubelet, by its label.
type Result struct {
	Name     string   `json:"name"`
	Scenario Scenario `json:"scenario"`
	// Labels are the labels of the kubelets in order: the reference, ours, and ours with jitter.
	Labels  []string           `json:"labels"`
	Figures map[string]Figures `json:"figures"`
	Goals   []Goal             `json:"goals,omitempty"`
	Note    string             `json:"note,omitempty"`
}

// Report is a whole measurement.
type Report struct {
	Machine Machine `json:"machine"`
	// Command is the command that repeats the measurement.
	Command  string            `json:"command"`
	Runtime  memcri.Options    `json:"runtime"`
	Versions map[string]string `json:"versions"`
	Results  []Result          `json:"results"`
}

// row is a line of a table: the name of a figure, and a function that returns it.
type row struct {
	what, format string
	of           func(Figures) float64
}

const mebibyte = 1 << 20

// rows returns the lines of a scenario's table.
func (r Result) rows() []row {
	var all []row
	add := func(what, format string, of func(Figures) float64) { all = append(all, row{what, format, of}) }
	// known adds a line unless it is 0 for each kubelet, which means that it was not measured or does not exist.
	known := func(what, format string, of func(Figures) float64) {
		for _, f := range r.Figures {
			if of(f) != 0 {
				add(what, format, of)
				return
			}
		}
	}
	summary := func(what, format string, of func(Figures) figures.Summary) {
		add(what+", p50", format, func(f Figures) float64 { return of(f).Median })
		add(what+", p99", format, func(f Figures) float64 { return of(f).P99 })
	}
	use := func(what string, of func(Figures) Use) {
		add(what+" CPU per restart", "%.2f ms", func(f Figures) float64 { return of(f).PerRestart })
		add(what+" CPU, mean", "%.2f cores", func(f Figures) float64 { return of(f).Cores })
		add(what+" CPU, most in 1 s", "%.2f cores", func(f Figures) float64 { return of(f).Peak })
	}
	// each adds a line for each key that any kubelet has.
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
	// largest does the same, with the largest first.
	largest := func(format, what string, of func(Figures) map[string]float64) {
		sums := map[string]float64{}
		for _, f := range r.Figures {
			for k, v := range of(f) {
				sums[k] += v
			}
		}
		for _, k := range slices.SortedFunc(maps.Keys(sums), func(a, b string) int { return cmp.Or(cmp.Compare(sums[b], sums[a]), cmp.Compare(a, b)) }) {
			add("  "+what+": "+k, format, func(f Figures) float64 { return of(f)[k] })
		}
	}
	herd := r.Scenario.Mix == onDependent
	add("restarts in the window", "%.0f", func(f Figures) float64 { return float64(f.Restarts) })
	if !herd {
		add("restarts per second", "%.1f", func(f Figures) float64 { return f.PerSecond })
		known("  ideal", "%.1f", func(f Figures) float64 { return f.Ideal })
	}
	if herd {
		summary("first restart (delay 0)", "%.3f s", func(f Figures) figures.Summary { return f.First })
		add("starts, most in 1 s", "%.0f", func(f Figures) float64 { return float64(f.Busiest) })
		add("time until half have recovered", "%.3f s", func(f Figures) float64 { return f.RecoveredHalf })
		add("time until all have recovered", "%.3f s", func(f Figures) float64 { return f.Recovered })
		summary("  at any moment", "%.3f s", func(f Figures) figures.Summary { return f.RecoveryOfAll })
		summary("time until one has", "%.3f s", func(f Figures) figures.Summary { return f.Recovery })
	}
	add("lateness, minimum", "%.3f s", func(f Figures) float64 { return f.Lateness.Least })
	summary("lateness", "%.3f s", func(f Figures) figures.Summary { return f.Lateness })
	add("lateness, worst", "%.3f s", func(f Figures) float64 { return f.Lateness.Worst })
	known("lateness, mean of the latest 1 %", "%.3f s", func(f Figures) float64 { return f.Latest.All })
	known("  until the kubelet reads the exit", "%.3f s", func(f Figures) float64 { return f.Latest.Exit })
	known("  until the kubelet creates the container", "%.3f s", func(f Figures) float64 { return f.Latest.Kubelet })
	known("  until the container runs", "%.3f s", func(f Figures) float64 { return f.Latest.Runtime })
	use("kubelet", func(f Figures) Use { return f.Kubelet })
	if herd {
		add("  during the outage, after 5 s", "%.2f cores", func(f Figures) float64 { return f.PeakAway })
		add("  after recovery", "%.2f cores", func(f Figures) float64 { return f.PeakBack })
	}
	largest("%.3f ms", "per restart, by the profile", func(f Figures) map[string]float64 { return f.Costs })
	largest("%.1f ms", "waits per restart", func(f Figures) map[string]float64 { return f.Waits })
	add("kubelet memory, resident", "%.1f MB", func(f Figures) float64 { return f.Kubelet.Memory / mebibyte })
	add("kubelet memory, heap", "%.1f MB", func(f Figures) float64 { return f.Heap / mebibyte })
	use("API server", func(f Figures) Use { return f.APIServer })
	known("  before pods crash", "%.2f cores", func(f Figures) float64 { return f.IdleAPIServer })
	add("API server memory, resident", "%.1f MB", func(f Figures) float64 { return f.APIServer.Memory / mebibyte })
	add("runtime CPU, mean", "%.2f cores", func(f Figures) float64 { return f.Runtime.Cores })
	add("all other CPU, mean", "%.2f cores", func(f Figures) float64 { return f.Others })
	add("CPU steal, mean", "%.2f cores", func(f Figures) float64 { return f.Stolen })
	add("API requests per 10 s", "%.0f", func(f Figures) float64 { return f.RequestsPer10s })
	known("  before pods crash", "%.0f", func(f Figures) (sum float64) {
		for _, n := range f.IdleRequestsPer10s {
			sum += n
		}
		return sum
	})
	add("API requests per restart", "%.2f", func(f Figures) float64 { return f.RequestsPerRestart })
	each("%.2f", func(f Figures) map[string]float64 { return f.Requests })
	known("duration of an API request, p50", "%.1f ms", func(f Figures) float64 { return f.RequestMedian })
	known("duration of an API request, p99", "%.1f ms", func(f Figures) float64 { return f.RequestP99 })
	add("API requests that wait for the limit", "%.2f", func(f Figures) float64 { return f.Throttled })
	add("pod syncs per restart", "%.2f", func(f Figures) float64 { return f.Syncs })
	add("relists per second", "%.2f", func(f Figures) float64 { return f.Relists })
	add("CRI calls per restart", "%.2f", func(f Figures) float64 { return f.CallsPerRestart })
	each("%.2f", func(f Figures) map[string]float64 { return f.Calls })
	summary("start of a healthy pod", "%.3f s", func(f Figures) figures.Summary { return f.Healthy })
	add("  of them never started", "%.0f", func(f Figures) float64 { return float64(f.NotStarted) })
	add("  on the idle node, p50", "%.3f s", func(f Figures) float64 { return f.Idle.Median })
	add("warming up", "%.1f s", func(f Figures) float64 { return f.WarmUp })
	add("all restarts, by the runtime", "%.0f", func(f Figures) float64 { return float64(f.AllRestarts) })
	add("all restarts, by the API", "%.0f", func(f Figures) float64 { return float64(f.APIRestarts) })
	return all
}

// cells returns the cells of a line: the figures, and the ratio of ours to the reference.
// The jittered kubelet has no ratio, so that the line fits a page.
func (r Result) cells(line row) (cells []string) {
	for _, label := range r.Labels {
		cells = append(cells, fmt.Sprintf(line.format, line.of(r.Figures[label])))
	}
	if len(r.Labels) > 1 {
		cells = append(cells, ratio(line.of(r.Figures[r.Labels[1]]), line.of(r.Figures[r.Labels[0]])))
	}
	return cells
}

// heads returns the column headers.
func (r Result) heads() []string {
	heads := slices.Clone(r.Labels)
	if len(r.Labels) > 1 {
		heads = append(heads, r.Labels[1]+"/"+r.Labels[0])
	}
	return heads
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
		fmt.Fprintf(w, "  %-41s", what)
		for _, c := range cells {
			fmt.Fprintf(w, " %12s", c)
		}
		fmt.Fprintln(w)
	}
	line("", r.heads())
	for _, l := range r.rows() {
		line(l.what, r.cells(l))
	}
	for _, g := range r.Goals {
		fmt.Fprintf(w, "  goal  %v\n", g)
	}
	if r.Note != "" {
		fmt.Fprintf(w, "  %s\n", r.Note)
	}
}

// summary returns a line about a run, to print at its end.
func (f Figures) summary() string {
	return fmt.Sprintf("%.1f restarts per second, p99 lateness %.3f s, kubelet CPU per restart %.2f ms, API requests per restart %.2f",
		f.PerSecond, f.Lateness.P99, f.Kubelet.PerRestart, f.RequestsPerRestart)
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// markdown writes the report for docs/results. The paths of pictures are relative to
// the report.
func (r Report) markdown(w io.Writer, pictures []string) {
	fmt.Fprintf(w, `<!-- SPDX-License-Identifier: Apache-2.0 -->
<!-- Written by: %s -->

# What restarts cost on a full node

These are measurements with a real kubelet, kube-apiserver and etcd. The container runtime keeps its containers in memory and takes a
fixed time for each call, so the figures show the kubelet and not the runtime. Each scenario ran with one kubelet after another, in one run.
Figures of several rounds are medians.

* command: `+"`%s`"+`, on %s
* machine: %v
* with: %s, etcd %s
* runtime: %v
`, r.Command, r.Command, r.Machine.Date, r.Machine, r.Machine.APIServer, r.Machine.Etcd, r.Runtime)
	for _, label := range slices.Sorted(maps.Keys(r.Versions)) {
		fmt.Fprintf(w, "* %s: %s\n", label, r.Versions[label])
	}
	if len(r.Results) == 0 {
		return
	}
	tableHead := func(cells []string) {
		fmt.Fprint(w, "|")
		for _, c := range cells {
			fmt.Fprintf(w, " %s |", c)
		}
		fmt.Fprint(w, "\n|---|")
		for range cells[1:] {
			fmt.Fprint(w, "---:|")
		}
		fmt.Fprintln(w)
	}
	// The jittered kubelet has one mix only.
	labels := slices.MaxFunc(r.Results, func(a, b Result) int { return len(a.Labels) - len(b.Labels) }).Labels
	if names, table, reached, of := allGoals(r.Results); of > 0 {
		fmt.Fprintf(w, "\n## Goals\n\n%d of %d are reached. %s\n", reached, of, goalNotes)
		const columns = 4
		for i := 0; i < len(names); i += columns {
			end := min(i+columns, len(names))
			fmt.Fprintln(w)
			tableHead(append([]string{"goal"}, names[i:end]...))
			for _, line := range table {
				cells := line[1+i : 1+end]
				if slices.ContainsFunc(cells, func(c string) bool { return c != "–" }) {
					fmt.Fprintf(w, "| %s | %s |\n", line[0], strings.Join(cells, " | "))
				}
			}
		}
	}
	fmt.Fprintf(w, "\n## In short\n\nEach as %s:\n\n", strings.Join(labels, " / "))
	each := func(result Result, format string, of func(Figures) float64) string {
		var cells []string
		for _, label := range result.Labels {
			cells = append(cells, fmt.Sprintf(format, of(result.Figures[label])))
		}
		return strings.Join(cells, " / ")
	}
	tableHead([]string{"mix/pods", "restarts per second (ideal)", "lateness, p99", "kubelet CPU per restart", "API requests per restart"})
	for _, result := range r.Results {
		ideal := ""
		if i := result.Figures[result.Labels[len(result.Labels)-1]].Ideal; i > 0 {
			ideal = fmt.Sprintf(" (%.1f)", i)
		}
		fmt.Fprintf(w, "| %s | %s%s | %s s | %s ms | %s |\n", result.Name,
			each(result, "%.1f", func(f Figures) float64 { return f.PerSecond }), ideal,
			each(result, "%.2f", func(f Figures) float64 { return f.Lateness.P99 }),
			each(result, "%.2f", func(f Figures) float64 { return f.Kubelet.PerRestart }),
			each(result, "%.2f", func(f Figures) float64 { return f.RequestsPerRestart }))
	}
	fmt.Fprintln(w)
	tableHead([]string{"mix/pods", "start of a healthy pod, p50", "on the idle node, p50"})
	for _, result := range r.Results {
		fmt.Fprintf(w, "| %s | %s s | %s s |\n", result.Name,
			each(result, "%.2f", func(f Figures) float64 { return f.Healthy.Median }),
			each(result, "%.2f", func(f Figures) float64 { return f.Idle.Median }))
	}
	for _, p := range pictures {
		fmt.Fprintf(w, "\n![%s](%s)\n", strings.TrimSuffix(path.Base(p), ".svg"), p)
	}
	for _, result := range r.Results {
		fmt.Fprintf(w, "\n## %s\n\n%v.", result.Name, result.Scenario)
		if result.Note != "" {
			fmt.Fprintf(w, " Note: %s", result.Note)
		}
		fmt.Fprint(w, "\n\n")
		tableHead(append([]string{""}, result.heads()...))
		for _, l := range result.rows() {
			what := l.what
			if trimmed := strings.TrimLeft(what, " "); trimmed != what {
				what = "– " + trimmed
			}
			fmt.Fprintf(w, "| %s | %s |\n", what, strings.Join(result.cells(l), " | "))
		}
		if len(result.Goals) > 0 {
			fmt.Fprintln(w, "\nGoals:")
			fmt.Fprintln(w)
		}
		for _, g := range result.Goals {
			fmt.Fprintf(w, "* %v\n", g)
		}
	}
}
