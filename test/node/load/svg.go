// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kubelet-backoff/kubelet-backoff/internal/chart"
	"github.com/kubelet-backoff/kubelet-backoff/test/node/memcri"
)

// picture is a chart and the name of its file.
type picture struct {
	name string
	chart.Chart
}

// styles are those of the lines.
var styles = map[string]int{"stock": chart.Stock, patched: chart.Ours, jittered: chart.Other, "ideal": chart.Other + 1, "base": chart.Other + 2}

// draw returns a chart without lines.
func draw(name, title, x, y string) picture {
	return picture{name, chart.Chart{Title: title, X: chart.Axis{Label: x}, Y: chart.Axis{Label: y}}}
}

// distribution returns the cumulative distribution of a sample. It uses only a part of
// a large sample, which is enough for a chart.
func distribution(sample []float64) (points []chart.Point) {
	sorted := slices.Sorted(slices.Values(sample))
	stride := max(1, len(sorted)/200)
	for i, v := range sorted {
		if i%stride == 0 || i == len(sorted)-1 {
			points = append(points, chart.Point{X: max(0, v), Y: float64(i+1) * 100 / float64(len(sorted))})
		}
	}
	return points
}

// overTime returns the kubelet's cores over time, each as the mean of the previous
// second.
func overTime(samples []Sample) (points []chart.Point) {
	start := 0
	for _, s := range samples {
		for s.At.Sub(samples[start].At) > time.Second {
			start++
		}
		from := samples[start]
		if seconds := s.At.Sub(from.At).Seconds(); seconds >= 0.7 {
			points = append(points, chart.Point{X: s.At.Sub(samples[0].At).Seconds(), Y: (s.Kubelet - from.Kubelet) / seconds})
		}
	}
	return points
}

// startsApart is the width of the steps in which a chart counts starts.
const startsApart = 250 * time.Millisecond

// startsOverTime returns the number of main containers that start in each step of the
// window.
func startsOverTime(run Run, s Scenario) []chart.Point {
	points := make([]chart.Point, int(run.To.Sub(run.From)/startsApart)+1)
	for i := range points {
		points[i].X = (time.Duration(i) * startsApart).Seconds()
	}
	for _, e := range run.Journal {
		if since := e.At.Sub(run.From); isMain(e, s) && e.What == memcri.Started && since >= 0 && e.At.Before(run.To) {
			points[since/startsApart].Y++
		}
	}
	return points
}

// charts returns the charts of all results.
func charts(all []Result) (pictures []picture) {
	bySize := draw("restarts", "Restarts per second, all pods fail at once", "pods", "restarts per second")
	for _, r := range all {
		file := strings.ReplaceAll(r.Name, "/", "-")
		add := func(kind, title, x, y string, of func(Figures) []chart.Point) {
			c := draw(kind+"-"+file, fmt.Sprintf("%s, %d pods: %s", r.Scenario.Mix, r.Scenario.Pods, title), x, y)
			for _, label := range r.Labels {
				c.Series = append(c.Series, chart.Series{Name: label, Points: of(r.Figures[label]), Style: styles[label]})
			}
			pictures = append(pictures, c)
		}
		add("lateness", "how late restarts are", "seconds after the end of the back-off", "percent of restarts",
			func(f Figures) []chart.Point { return distribution(f.late) })
		if r.Scenario.Mix == onDependent {
			add("cpu", "what the kubelet uses", "seconds after the dependency went", "cores", func(f Figures) []chart.Point { return f.cpu })
			add("starts", fmt.Sprintf("starts in each %v", startsApart), "seconds after the dependency went", "starts", func(f Figures) []chart.Point { return f.starts })
		}
		if r.Scenario.Mix != allFail {
			continue
		}
		for i, label := range append(slices.Clone(r.Labels), "ideal") {
			if i >= len(bySize.Series) {
				bySize.Series = append(bySize.Series, chart.Series{Name: label, Style: styles[label]})
			}
			y := r.Figures[r.Labels[0]].Ideal
			if label != "ideal" {
				y = r.Figures[label].PerSecond
			}
			bySize.Series[i].Points = append(bySize.Series[i].Points, chart.Point{X: float64(r.Scenario.Pods), Y: y})
		}
	}
	if len(bySize.Series) > 0 && len(bySize.Series[0].Points) > 1 {
		pictures = append([]picture{bySize}, pictures...)
	}
	return pictures
}

// writeCharts writes the charts to a folder and returns the paths of the files.
func writeCharts(dir string, all []Result) (files []string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	for _, c := range charts(all) {
		file := filepath.Join(dir, c.name+".svg")
		if err := os.WriteFile(file, chart.SVG(c.Chart), 0o644); err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}
