// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubelet-backoff/kubelet-backoff/internal/chart"
	"github.com/kubelet-backoff/kubelet-backoff/test/node/figures"
	"github.com/kubelet-backoff/kubelet-backoff/test/node/memcri"
)

// example returns a report in which every part is present.
func example() Report {
	f := func(scale float64) Figures {
		return Figures{
			Restarts: 100, PerSecond: 50 * scale, Ideal: 107.8, Lateness: figures.Summary{Median: 1 / scale, P99: 2 / scale},
			Kubelet:            Use{PerRestart: 10 / scale, Cores: 0.5, Peak: 0.7, Memory: 100 * mebibyte},
			Requests:           map[string]float64{"GET pods": 3 / scale},
			RequestsPerRestart: 3 / scale,
			Calls:              map[string]float64{"ContainerStatus": 5 / scale},
			Healthy:            figures.Summary{Median: 0.09 + 0.01*scale},
			HealthyError:       0.001,
			Idle:               figures.Summary{Median: 0.1},
			IdleAPIServer:      0.02,
			late:               []float64{0.1 * scale, 0.3},
			cpu:                []chart.Point{{X: 0, Y: 0}, {X: 1, Y: 0.5}},
			starts:             []chart.Point{{X: 0, Y: 2}, {X: 1, Y: 0}},
			Costs:              map[string]float64{"small": 1, "large": 8 / scale},
			Waits:              map[string]float64{"runtime": 5},
			Throttled:          1,
			NotStarted:         1,
			Busiest:            60,
			PeakBack:           0.25,
		}
	}
	r := Report{Command: "make node-load", Machine: Machine{Date: "2026-01-02"}, Runtime: memcri.Options{Sandbox: 40 * time.Millisecond, Slots: 4}, Versions: map[string]string{"stock": "v1.37.1", patched: "v1.37.1+x"}}
	for _, s := range []Scenario{{Mix: allFail, Pods: 110}, {Mix: allFail, Pods: 500}, {Mix: onDependent, Pods: 110}} {
		s.Maximum, s.Window = time.Second, 30*time.Second
		result := Result{Name: s.name(), Scenario: s, Labels: []string{"stock", patched}, Figures: map[string]Figures{"stock": f(1), patched: f(2)}, Note: "a note."}
		if s.Mix == onDependent {
			result.Labels = append(result.Labels, jittered)
			result.Figures[jittered] = f(4)
		}
		result.Goals = result.goals()
		r.Results = append(r.Results, result)
	}
	return r
}

func TestReport(t *testing.T) {
	report := example()
	var text, markdown, js bytes.Buffer
	for _, r := range report.Results {
		r.print(&text)
	}
	for _, want := range []string{
		"all-fail/110: 110 pods, all fail at once; maximum 1s, a run of 0s, 30s\n",
		"                                                   stock      patched patched/stock\n",
		"  kubelet CPU per restart                       10.00 ms      5.00 ms        0.500\n",
		"    per restart, by the profile: large          8.000 ms     4.000 ms        0.500\n" +
			"    per restart, by the profile: small          1.000 ms     1.000 ms        1.000\n" +
			"    waits per restart: runtime                    5.0 ms       5.0 ms        1.000\n",
		"    GET pods                                        3.00         1.50        0.500\n",
		"    ContainerStatus                                 5.00         2.50        0.500\n",
		"  goal  p99 lateness, ratio to stock: 0.500 (at most 0.400), missed\n",
		"  a note.\n",
		"                                                   stock      patched     jittered patched/stock\n",
		"  starts, most in 1 s                                 60           60           60        1.000\n",
		"  time until half have recovered",
		"  time until all have recovered",
		"    after recovery                            0.25 cores   0.25 cores   0.25 cores        1.000\n",
	} {
		assert.Contains(t, text.String(), want)
	}
	report.markdown(&markdown, []string{"load/restarts.svg"})
	for _, want := range []string{
		"* patched: v1.37.1+x\n* stock: v1.37.1\n",
		"* command: `make node-load`, on 2026-01-02\n",
		"* runtime: 40ms for a sandbox, 0s to create a container, 0s to start it, 0s to stop; at most 4 of these at once\n",
		"## Goals\n\n14 of 19 are reached. Kubelet CPU",
		"| goal | all-fail/110 | all-fail/500 | dependency/110 |\n|---|---:|---:|---:|\n| kubelet CPU per restart, ratio to stock: at most 0.500 | 0.500 | – | 0.500 |\n",
		"| p99 lateness, ratio to stock: at most 0.400 | 0.500, **missed** |",
		"| start of a healthy pod, p50, beside stock's: at most 0.100 s + 0.003 s | 0.110 s, **missed** |",
		"## In short\n\nEach as stock / patched / jittered:",
		"| all-fail/110 | 50.0 / 100.0 (107.8) | 2.00 / 1.00 s | 10.00 / 5.00 ms | 3.00 / 1.50 |\n",
		"| all-fail/110 | 0.10 / 0.11 s | 0.10 / 0.10 s |\n",
		"![restarts](load/restarts.svg)",
		"## dependency/110\n\n110 pods, all run, fail during the outage of a dependency, and recover after it; maximum 1s, a run of 0s, outage of 30s. Note: a note.\n",
		"| | stock | patched | patched/stock |\n|---|---:|---:|---:|\n",
		"| | stock | patched | jittered | patched/stock |\n|---|---:|---:|---:|---:|\n",
		"| – GET pods | 3.00 | 1.50 | 0.500 |\n",
	} {
		assert.Contains(t, strings.ReplaceAll(markdown.String(), "|  |", "| |"), want)
	}
	// A table has at most four scenarios, and only their goals.
	many := report
	many.Results = append(report.Results[:1:1], report.Results[1], report.Results[1], report.Results[1], report.Results[1])
	many.Results[4].Name = "all-fail/600"
	var wide bytes.Buffer
	many.markdown(&wide, nil)
	assert.Contains(t, wide.String(), "| goal | all-fail/110 | all-fail/500 | all-fail/500 | all-fail/500 |\n")
	_, second, _ := strings.Cut(wide.String(), "| goal | all-fail/600 |\n")
	second, _, _ = strings.Cut(second, "## In short")
	assert.NotContains(t, second, "kubelet CPU per restart", "with 500 pods it has no limit")
	assert.Contains(t, second, "API requests per restart")
	require.NoError(t, printJSON(&js, report))
	var again Report
	require.NoError(t, json.Unmarshal(js.Bytes(), &again))
	assert.Equal(t, report.Results[0].Goals, again.Results[0].Goals)
	assert.Equal(t, report.Results[0].Figures[patched].Kubelet, again.Results[0].Figures[patched].Kubelet)
}

func TestReportFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	report := example()
	require.NoError(t, report.write(options{report: filepath.Join(dir, "load.md"), svg: filepath.Join(dir, "load")}))
	text, err := os.ReadFile(filepath.Join(dir, "load.md"))
	require.NoError(t, err)
	assert.Contains(t, string(text), "](load/lateness-all-fail-110.svg)\n")
	data, err := os.ReadFile(filepath.Join(dir, "load.json"))
	require.NoError(t, err)
	assert.True(t, json.Valid(data))
}

func TestCharts(t *testing.T) {
	dir := t.TempDir()
	files, err := writeCharts(dir, example().Results)
	require.NoError(t, err)
	var names []string
	for _, f := range files {
		names = append(names, filepath.Base(f))
		data, err := os.ReadFile(f)
		require.NoError(t, err)
		assert.NotContains(t, string(data), "NaN")
		for d := xml.NewDecoder(bytes.NewReader(data)); ; {
			_, err := d.Token()
			if err == io.EOF {
				break
			}
			require.NoError(t, err, f)
		}
	}
	assert.Equal(t, []string{
		"restarts.svg", "lateness-all-fail-110.svg", "lateness-all-fail-500.svg", "lateness-dependency-110.svg", "cpu-dependency-110.svg", "starts-dependency-110.svg",
	}, names)
	by := charts(example().Results)[0]
	assert.Equal(t, []chart.Series{
		{Name: "stock", Style: chart.Stock, Points: []chart.Point{{X: 110, Y: 50}, {X: 500, Y: 50}}},
		{Name: patched, Style: chart.Ours, Points: []chart.Point{{X: 110, Y: 100}, {X: 500, Y: 100}}},
		{Name: "ideal", Style: chart.Other + 1, Points: []chart.Point{{X: 110, Y: 107.8}, {X: 500, Y: 107.8}}},
	}, by.Series)
	assert.Equal(t, []chart.Point{{X: 0, Y: 100. / 3}, {X: 1, Y: 200. / 3}, {X: 2, Y: 100}}, distribution([]float64{2, -1, 1}))
	assert.Len(t, distribution(make([]float64, 1000)), 201)
	assert.Empty(t, overTime(nil))
}
