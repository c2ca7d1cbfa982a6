// SPDX-License-Identifier: Apache-2.0

// Command draw draws the panels of the dashboard from a recording, each as a
// picture and all of them as dashboard.svg. Without a recording it takes
// synthetic data:
//
//	go run -C test/deploy ./draw --recording "$PWD/recording.prom" --out "$PWD/_output/dashboard"
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/prometheus/promql"

	"github.com/kubelet-backoff/kubelet-backoff/internal/chart"
	"github.com/kubelet-backoff/kubelet-backoff/test/deploy"
)

func main() {
	dashboard := flag.String("dashboard", "../../deploy/grafana/dashboard.json", "the dashboard")
	recording := flag.String("recording", "", "what record has written; without it the data are synthetic")
	out := flag.String("out", "", "the folder for the pictures")
	flag.Parse()
	if *out == "" || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "usage: draw [--dashboard FILE] [--recording FILE] --out DIR")
		os.Exit(2)
	}
	if err := run(*dashboard, *recording, *out); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// column and row are the size of a cell of the grid in pixels, and gap is what is free around a panel in the page.
const column, row, gap = 54, 36, 3

func run(dashboard, recording, out string) (err error) {
	d, err := deploy.ReadDashboard(dashboard)
	if err != nil {
		return err
	}
	var scrapes []deploy.Scrape
	if recording == "" {
		scrapes, err = deploy.Synthetic()
	} else {
		scrapes, err = deploy.ReadRecording(recording)
	}
	if err != nil {
		return err
	}
	db, err := deploy.NewDatabase(scrapes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	var page strings.Builder
	bottom := 0
	for _, p := range d.Panels {
		c, err := panel(db, p)
		if err != nil {
			return fmt.Errorf("panel %q: %w", p.Title, err)
		}
		svg := chart.SVG(c)
		if err := os.WriteFile(filepath.Join(out, fmt.Sprintf("%02d-%s.svg", p.ID, fileName(p.Title))), svg, 0o644); err != nil {
			return err
		}
		fmt.Fprintf(&page, "<g transform=\"translate(%d %d)\">\n%s</g>\n", p.GridPos.X*column+gap, p.GridPos.Y*row+gap, svg)
		bottom = max(bottom, (p.GridPos.Y+p.GridPos.H)*row)
	}
	head := fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d">`, 24*column, bottom)
	whole := head + "\n<title>The dashboard</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#e8e8e8\"/>\n" + page.String() + "</svg>\n"
	return os.WriteFile(filepath.Join(out, "dashboard.svg"), []byte(whole), 0o644)
}

func fileName(title string) string {
	return strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(title)), "-")
}

// named is a series with its legend.
type named struct {
	name   string
	points []promql.FPoint
	le     float64
}

// panel returns the chart of a panel.
func panel(db *deploy.Database, p deploy.Panel) (chart.Chart, error) {
	var series []named
	for _, t := range p.Targets {
		matrix, err := db.Query(t.Expression(db.RateInterval()), db.Step())
		if err != nil {
			return chart.Chart{}, err
		}
		for _, s := range matrix {
			le, _ := strconv.ParseFloat(s.Metric.Get("le"), 64)
			series = append(series, named{t.Legend(s.Metric), s.Floats, le})
		}
	}
	field := p.FieldConfig.Defaults
	c := chart.Chart{Title: p.Title, Width: float64(p.GridPos.W*column - 2*gap), Height: float64(p.GridPos.H*row - 2*gap)}
	if p.Type == "stat" {
		c.Text = last(p, series)
		return c, nil
	}
	start, end := db.Range()
	c.X = chart.Axis{Min: seconds(start.UnixMilli()), Max: seconds(end.UnixMilli()), Ticks: clock(start, end)}
	c.Y = chart.Axis{
		Label: field.Custom.AxisLabel, Log: field.Custom.ScaleDistribution.Type == "log",
		Format: func(v float64) string { return withUnit(v, field.Unit, -1) },
	}
	if p.Type == "heatmap" {
		heatMap(&c, series, db.Step())
		return c, nil
	}
	for i, s := range series {
		c.Series = append(c.Series, chart.Series{Name: s.name, Style: chart.Ours + i, Points: withGaps(s.points, db.Step())})
	}
	return c, nil
}

func seconds(milliseconds int64) float64 { return float64(milliseconds) / 1000 }

// last returns the last value.
func last(p deploy.Panel, series []named) string {
	value, decimals := "No data", -1
	if d := p.FieldConfig.Defaults.Decimals; d != nil {
		decimals = *d
	}
	for _, s := range series {
		for _, point := range s.points {
			if !math.IsNaN(point.F) {
				value = withUnit(point.F, p.FieldConfig.Defaults.Unit, decimals)
			}
		}
	}
	return value
}

// withGaps returns the points of a line with gaps where it has no value.
func withGaps(values []promql.FPoint, step time.Duration) (points []chart.Point) {
	for i, v := range values {
		if i > 0 && v.T-values[i-1].T > step.Milliseconds()*3/2 {
			points = append(points, chart.Point{X: math.NaN()})
		}
		points = append(points, chart.Point{X: seconds(v.T), Y: v.F})
	}
	return points
}

// heatMap adds how much is in each bucket.
func heatMap(c *chart.Chart, series []named, step time.Duration) {
	slices.SortFunc(series, func(a, b named) int { return cmp.Compare(a.le, b.le) })
	c.Y = chart.Axis{Label: "delay up to", Min: -0.5, Ticks: []chart.Tick{}}
	below := map[int64]float64{} // what the buckets below have, by time
	most := 1.0
	for i, s := range series {
		label, at := withUnit(s.le, "s", -1), float64(i)
		if math.IsInf(s.le, 1) {
			label = "more"
		}
		c.Y.Ticks = append(c.Y.Ticks, chart.Tick{Value: at, Label: label})
		for _, point := range s.points {
			// The root lets little be seen beside much.
			shade := math.Sqrt(max(0, point.F-below[point.T]))
			below[point.T] = point.F
			most = max(most, shade)
			x, half := seconds(point.T), step.Seconds()/2
			c.Cells = append(c.Cells, chart.Cell{X0: max(c.X.Min, x-half), X1: min(c.X.Max, x+half), Y0: at - 0.5, Y1: at + 0.5, Shade: shade, Style: chart.Other + 1})
		}
	}
	for i := range c.Cells {
		c.Cells[i].Shade /= most
	}
}

// clock has five to ten ticks at round times.
func clock(start, end time.Time) (ticks []chart.Tick) {
	format := "15:04"
	if end.Sub(start) < 10*time.Minute {
		format = "15:04:05"
	}
	every := time.Second
	for _, every = range []time.Duration{1, 5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 86400} {
		if every *= time.Second; end.Sub(start)/every <= 8 {
			break
		}
	}
	for t := start.Truncate(every); !t.After(end); t = t.Add(every) {
		ticks = append(ticks, chart.Tick{Value: seconds(t.UnixMilli()), Label: t.UTC().Format(format)})
	}
	return ticks
}

// withUnit is a value as Grafana has it, with as many digits after the point as
// there are decimals, or with three digits if that is negative.
func withUnit(value float64, unit string, decimals int) string {
	suffix := ""
	if unit == "s" {
		suffix = " s"
		if value != 0 && math.Abs(value) < 1 {
			value, suffix = value*1000, " ms"
		}
	}
	if decimals >= 0 {
		return strconv.FormatFloat(value, 'f', decimals, 64) + suffix
	}
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(value, 'g', 3, 64), 64)
	if err != nil {
		return "?" // There is no such number.
	}
	return strconv.FormatFloat(rounded, 'f', -1, 64) + suffix
}
