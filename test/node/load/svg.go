// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"html"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/memcri"
)

// chart is a picture of lines, from zero on both axes.
type chart struct {
	name, title, x, y string
	lines             []line
}

type line struct {
	name   string
	points []point
}

type point struct{ x, y float64 }

// The size of a chart in pixels, and its colours in the order of the lines.
const (
	chartWidth, chartHeight              = 720, 400
	marginLeft, marginRight, marginAbove = 60, 20, 56
	marginBelow                          = 50
)

var colours = []string{"#888888", "#1565c0", "#2e7d32"}

// svg draws the chart.
func (c chart) svg() string {
	var out strings.Builder
	write := func(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }
	var width, height float64
	for _, l := range c.lines {
		for _, p := range l.points {
			width, height = max(width, p.x), max(height, p.y)
		}
	}
	xTicks, yTicks := ticks(width), ticks(height)
	width, height = xTicks[len(xTicks)-1], yTicks[len(yTicks)-1]
	px := func(x float64) float64 { return marginLeft + x/width*(chartWidth-marginLeft-marginRight) }
	py := func(y float64) float64 {
		return chartHeight - marginBelow - y/height*(chartHeight-marginAbove-marginBelow)
	}
	text := func(x, y float64, anchor, more, s string) {
		write(`<text x="%.1f" y="%.1f" text-anchor="%s"%s>%s</text>`, x, y, anchor, more, html.EscapeString(s))
	}
	write(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`, chartWidth, chartHeight)
	write(`<rect width="100%%" height="100%%" fill="white"/>`)
	text(chartWidth/2, 20, "middle", ` font-size="14"`, c.title)
	text(chartWidth/2, chartHeight-12, "middle", "", c.x)
	text(15, chartHeight/2, "middle", fmt.Sprintf(` transform="rotate(-90 15 %d)"`, chartHeight/2), c.y)
	for _, x := range xTicks {
		write(`<path d="M%.1f %.1fV%.1f" stroke="#dddddd"/>`, px(x), py(0), py(height))
		text(px(x), py(0)+16, "middle", "", fmt.Sprintf("%g", x))
	}
	for _, y := range yTicks {
		write(`<path d="M%.1f %.1fH%.1f" stroke="#dddddd"/>`, px(0), py(y), px(width))
		text(px(0)-6, py(y)+4, "end", "", fmt.Sprintf("%g", y))
	}
	for i, l := range c.lines {
		colour := colours[i%len(colours)]
		var path strings.Builder
		for j, p := range l.points {
			command := 'L'
			if j == 0 {
				command = 'M'
			}
			fmt.Fprintf(&path, "%c%.1f %.1f", command, px(p.x), py(p.y))
		}
		write(`<path d="%s" fill="none" stroke="%s" stroke-width="2"/>`, path.String(), colour)
		x := marginLeft + 110*i
		write(`<path d="M%d 40h24" stroke="%s" stroke-width="2"/>`, x, colour)
		text(float64(x+30), 44, "start", "", l.name)
	}
	write("</svg>")
	return out.String()
}

// ticks returns round numbers from zero to at least a limit.
func ticks(limit float64) []float64 {
	if limit <= 0 {
		limit = 1
	}
	step := math.Pow(10, math.Floor(math.Log10(limit)))
	for _, part := range []float64{0.2, 0.5, 1, 2} {
		if limit/(step*part) <= 6 {
			step *= part
			break
		}
	}
	all := []float64{0}
	for n := 1; all[len(all)-1] < limit*(1-1e-9); n++ {
		// A product has a smaller rounding error than a sum.
		all = append(all, math.Round(float64(n)*step*1e6)/1e6)
	}
	return all
}

// distribution returns the cumulative distribution of a sample. It uses only a part of
// a large sample, which is enough for a chart.
func distribution(sample []float64) (points []point) {
	sorted := slices.Sorted(slices.Values(sample))
	stride := max(1, len(sorted)/200)
	for i, v := range sorted {
		if i%stride == 0 || i == len(sorted)-1 {
			points = append(points, point{max(0, v), float64(i+1) * 100 / float64(len(sorted))})
		}
	}
	return points
}

// overTime returns the kubelet's cores over time, each as the mean of the previous
// second.
func overTime(samples []Sample) (points []point) {
	start := 0
	for _, s := range samples {
		for s.At.Sub(samples[start].At) > time.Second {
			start++
		}
		from := samples[start]
		if seconds := s.At.Sub(from.At).Seconds(); seconds >= 0.7 {
			points = append(points, point{s.At.Sub(samples[0].At).Seconds(), (s.Kubelet - from.Kubelet) / seconds})
		}
	}
	return points
}

// startsApart is the width of the steps in which a chart counts starts.
const startsApart = 250 * time.Millisecond

// startsOverTime returns the number of main containers that start in each step of the
// window.
func startsOverTime(run Run, s Scenario) []point {
	points := make([]point, int(run.To.Sub(run.From)/startsApart)+1)
	for i := range points {
		points[i].x = (time.Duration(i) * startsApart).Seconds()
	}
	for _, e := range run.Journal {
		if since := e.At.Sub(run.From); isMain(e, s) && e.What == memcri.Started && since >= 0 && e.At.Before(run.To) {
			points[since/startsApart].y++
		}
	}
	return points
}

// charts returns the charts of all results.
func charts(all []Result) (pictures []chart) {
	bySize := chart{"restarts", "Restarts per second, all pods fail at once", "pods", "restarts per second", nil}
	for _, r := range all {
		file := strings.ReplaceAll(r.Name, "/", "-")
		add := func(kind, title, x, y string, of func(Figures) []point) {
			c := chart{kind + "-" + file, fmt.Sprintf("%s, %d pods: %s", r.Scenario.Mix, r.Scenario.Pods, title), x, y, nil}
			for _, label := range r.Labels {
				c.lines = append(c.lines, line{label, of(r.Figures[label])})
			}
			pictures = append(pictures, c)
		}
		add("lateness", "how late restarts are", "seconds after the end of the back-off", "percent of restarts",
			func(f Figures) []point { return distribution(f.late) })
		if r.Scenario.Mix == onDependent {
			add("cpu", "what the kubelet uses", "seconds after the dependency went", "cores", func(f Figures) []point { return f.cpu })
			add("starts", fmt.Sprintf("starts in each %v", startsApart), "seconds after the dependency went", "starts", func(f Figures) []point { return f.starts })
		}
		if r.Scenario.Mix != allFail {
			continue
		}
		for i, label := range append(slices.Clone(r.Labels), "ideal") {
			if i >= len(bySize.lines) {
				bySize.lines = append(bySize.lines, line{name: label})
			}
			y := r.Figures[r.Labels[0]].Ideal
			if label != "ideal" {
				y = r.Figures[label].PerSecond
			}
			bySize.lines[i].points = append(bySize.lines[i].points, point{float64(r.Scenario.Pods), y})
		}
	}
	if len(bySize.lines) > 0 && len(bySize.lines[0].points) > 1 {
		pictures = append([]chart{bySize}, pictures...)
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
		if err := os.WriteFile(file, []byte(c.svg()), 0o644); err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}
