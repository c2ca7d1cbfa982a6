// SPDX-License-Identifier: Apache-2.0

// Command draw draws the panels of the dashboard from a recording, each as a
// picture and all of them as dashboard.png. Without a recording it takes
// synthetic data:
//
//	go run -C test/deploy ./draw --recording "$PWD/recording.prom" --out "$PWD/_output/dashboard"
package main

import (
	"errors"
	"flag"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/prometheus/promql"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/palette/brewer"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"

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

func run(dashboard, recording, out string) (err error) {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
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
	bottom := 0
	for _, p := range d.Panels {
		bottom = max(bottom, p.GridPos.Y+p.GridPos.H)
	}
	const width, unit = 24 * column, row
	page := draw.New(vgimg.New(width, vg.Length(bottom)*unit))
	page.SetColor(color.Gray{Y: 0xe8})
	page.Fill(page.Rectangle.Path())
	for _, p := range d.Panels {
		fn, err := panel(db, p)
		if err != nil {
			return fmt.Errorf("panel %q: %w", p.Title, err)
		}
		w, h := vg.Length(p.GridPos.W)*column, vg.Length(p.GridPos.H)*row
		single := vgimg.New(w, h)
		fn(draw.New(single))
		if err := save(single, filepath.Join(out, fmt.Sprintf("%02d-%s.png", p.ID, fileName(p.Title)))); err != nil {
			return err
		}
		x, top := vg.Length(p.GridPos.X)*column, page.Max.Y-vg.Length(p.GridPos.Y)*row
		const gap = 3
		fn(draw.Crop(page, x+gap, x+w-gap-page.Max.X, top-h+gap, top-gap-page.Max.Y))
	}
	return save(page.Canvas.(*vgimg.Canvas), filepath.Join(out, "dashboard.png"))
}

// column and row are the size of a cell of the grid.
const column, row vg.Length = 45, 28

func fileName(title string) string {
	return strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(title)), "-")
}

func save(c *vgimg.Canvas, path string) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = vgimg.PngCanvas{Canvas: c}.WriteTo(f)
	return err
}

// named is a series with its legend.
type named struct {
	name   string
	points []promql.FPoint
	le     float64
}

// panel returns what draws a panel.
func panel(db *deploy.Database, p deploy.Panel) (func(draw.Canvas), error) {
	var series []named
	for _, t := range p.Targets {
		matrix, err := db.Query(t.Expression(db.RateInterval()), db.Step())
		if err != nil {
			return nil, err
		}
		for _, s := range matrix {
			le, _ := strconv.ParseFloat(s.Metric.Get("le"), 64)
			series = append(series, named{t.Legend(s.Metric), s.Floats, le})
		}
	}
	if p.Type == "stat" {
		return func(c draw.Canvas) { stat(c, p, series) }, nil
	}
	plt := plot.New()
	plt.Title.Text, plt.Title.TextStyle.Font.Size, plt.Title.Padding = p.Title, 11, 6
	plt.Y.Label.Text = p.FieldConfig.Defaults.Custom.AxisLabel
	start, end := db.Range()
	format := "15:04"
	if end.Sub(start) < 10*time.Minute {
		format = "15:04:05"
	}
	plt.X.Tick.Marker = plot.TimeTicks{Format: format, Ticker: plot.TickerFunc(timeTicks)}
	plt.Y.Tick.Marker = unitTicks{p.FieldConfig.Defaults.Unit, plot.DefaultTicks{}}
	for _, style := range []*draw.TextStyle{&plt.X.Tick.Label, &plt.Y.Tick.Label, &plt.Y.Label.TextStyle, &plt.Legend.TextStyle} {
		style.Font.Size = 8
	}
	var err error
	if p.Type == "heatmap" {
		err = heatMap(plt, series)
	} else {
		err = lines(plt, p, series, db.Step())
	}
	if err != nil {
		return nil, err
	}
	plt.X.Min, plt.X.Max = float64(start.UnixMilli())/1000, float64(end.UnixMilli())/1000
	return func(c draw.Canvas) {
		c.SetColor(color.White)
		c.Fill(c.Rectangle.Path())
		plt.Draw(draw.Crop(c, 8, -14, 6, -8))
	}, nil
}

// stat draws the last value in large letters.
func stat(c draw.Canvas, p deploy.Panel, series []named) {
	c.SetColor(color.White)
	c.Fill(c.Rectangle.Path())
	value := "No data"
	for _, s := range series {
		for _, point := range s.points {
			if !math.IsNaN(point.F) {
				decimals := -1
				if d := p.FieldConfig.Defaults.Decimals; d != nil {
					decimals = *d
				}
				value = withUnit(point.F, p.FieldConfig.Defaults.Unit, decimals)
			}
		}
	}
	style := plot.New().Title.TextStyle
	style.Handler, style.XAlign, style.YAlign = plot.DefaultTextHandler, text.XCenter, text.YTop
	style.Font.Size = 11
	c.FillText(style, vg.Point{X: c.Center().X, Y: c.Max.Y - 6}, p.Title)
	style.Font.Size, style.YAlign, style.Color = 30, text.YCenter, color.RGBA{G: 0x80, B: 0x30, A: 0xff}
	c.FillText(style, vg.Point{X: c.Center().X, Y: c.Center().Y - 10}, value)
}

var colors = []color.Color{
	color.RGBA{0x1f, 0x77, 0xb4, 0xff}, color.RGBA{0xff, 0x7f, 0x0e, 0xff}, color.RGBA{0x2c, 0xa0, 0x2c, 0xff}, color.RGBA{0xd6, 0x27, 0x28, 0xff},
	color.RGBA{0x94, 0x67, 0xbd, 0xff}, color.RGBA{0x8c, 0x56, 0x4b, 0xff}, color.RGBA{0xe3, 0x77, 0xc2, 0xff}, color.RGBA{0x7f, 0x7f, 0x7f, 0xff},
}

// lines draws each series, with gaps where it has no value.
func lines(plt *plot.Plot, p deploy.Panel, series []named, step time.Duration) error {
	plt.Add(grid())
	log := p.FieldConfig.Defaults.Custom.ScaleDistribution.Type == "log"
	low, high := math.Inf(1), math.Inf(-1)
	for i, s := range series {
		var parts []plotter.XYs
		var last int64
		for _, point := range s.points {
			if math.IsNaN(point.F) || log && point.F <= 0 {
				continue
			}
			low, high = min(low, point.F), max(high, point.F)
			if len(parts) == 0 || point.T-last > step.Milliseconds()*3/2 {
				parts = append(parts, nil)
			}
			part := &parts[len(parts)-1]
			*part = append(*part, plotter.XY{X: float64(point.T) / 1000, Y: point.F})
			last = point.T
		}
		line := &plotter.Line{LineStyle: draw.LineStyle{Color: colors[i%len(colors)], Width: 1.2}}
		for _, part := range parts {
			if len(part) == 1 {
				dot, err := plotter.NewScatter(part)
				if err != nil {
					return err
				}
				dot.GlyphStyle = draw.GlyphStyle{Color: line.Color, Radius: 1.6, Shape: draw.CircleGlyph{}}
				plt.Add(dot)
				continue
			}
			plt.Add(&plotter.Line{XYs: part, LineStyle: line.LineStyle})
		}
		plt.Legend.Add(s.name, line)
	}
	plt.Legend.Padding = 2
	plt.Legend.Top, plt.Legend.Left, plt.Legend.XOffs, plt.Legend.YOffs, plt.Legend.ThumbnailWidth = true, true, 6, -2, 14
	switch {
	case log && low <= high:
		plt.Y.Scale, plt.Y.Tick.Marker = plot.LogScale{}, unitTicks{p.FieldConfig.Defaults.Unit, plot.LogTicks{Prec: -1}}
		plt.Y.Min, plt.Y.Max = math.Pow(10, math.Floor(math.Log10(low))), math.Pow(10, math.Floor(math.Log10(high))+1)
	case log:
		plt.Y.Min, plt.Y.Max, plt.Y.Tick.Marker = 0, 1, plot.ConstantTicks{{Value: 0.5, Label: "no data"}}
	case p.FieldConfig.Defaults.Min != nil:
		plt.Y.Min = *p.FieldConfig.Defaults.Min
		plt.Y.Max = max(high*1.25, plt.Y.Min+1e-9) // The legend is above the lines.
		if math.IsInf(high, -1) || high <= plt.Y.Min {
			plt.Y.Max = plt.Y.Min + 1
		}
	}
	return nil
}

func grid() *plotter.Grid {
	g := plotter.NewGrid()
	g.Vertical.Color, g.Horizontal.Color = color.Gray{Y: 0xe4}, color.Gray{Y: 0xe4}
	return g
}

// heatMap draws how much is in each bucket.
func heatMap(plt *plot.Plot, series []named) error {
	slices.SortFunc(series, func(a, b named) int {
		if a.le < b.le {
			return -1
		}
		return 1
	})
	g := &cells{series: series}
	if len(series) == 0 || len(series[0].points) < 2 {
		return nil
	}
	palette, err := brewer.GetPalette(brewer.TypeSequential, "Oranges", 9)
	if err != nil {
		return err
	}
	h := plotter.NewHeatMap(g, palette)
	h.Min = 0.01 // Cells with nothing in them stay white.
	h.Underflow, h.NaN = color.White, color.White
	h.Max = max(h.Max, 1)
	plt.Add(h)
	plt.Y.Label.Text = "delay up to"
	var ticks plot.ConstantTicks
	for i, s := range series {
		label := withUnit(s.le, "s", -1)
		if math.IsInf(s.le, 1) {
			label = "more"
		}
		ticks = append(ticks, plot.Tick{Value: float64(i), Label: label})
	}
	plt.Y.Tick.Marker = ticks
	return nil
}

// cells is the grid of a heat map: how much is in a bucket and in none below it.
type cells struct{ series []named }

// Dims returns the numbers of columns and rows.
func (c *cells) Dims() (columns, rows int) { return len(c.series[0].points), len(c.series) }

// X returns the time of a column.
func (c *cells) X(column int) float64 { return float64(c.series[0].points[column].T) / 1000 }

// Y returns a row.
func (c *cells) Y(row int) float64 { return float64(row) }

// Z returns what is in a cell, as its root, so that little is seen beside much.
func (c *cells) Z(column, row int) float64 {
	value := func(row int) float64 {
		if row < 0 || column >= len(c.series[row].points) {
			return 0
		}
		return c.series[row].points[column].F
	}
	return math.Sqrt(max(0, value(row)-value(row-1)))
}

// timeTicks has five to ten ticks at round times.
func timeTicks(low, high float64) []plot.Tick {
	every := 1.0
	for _, every = range []float64{1, 5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 86400} {
		if (high-low)/every <= 9 {
			break
		}
	}
	var ticks []plot.Tick
	for t := math.Ceil(low/every) * every; t <= high; t += every {
		ticks = append(ticks, plot.Tick{Value: t, Label: "t"})
	}
	return ticks
}

// unitTicks has the ticks of another with the unit.
type unitTicks struct {
	unit   string
	ticker plot.Ticker
}

// Ticks is plot.Ticker's.
func (u unitTicks) Ticks(low, high float64) []plot.Tick {
	ticks := u.ticker.Ticks(low, high)
	for i, tick := range ticks {
		if tick.Label != "" {
			ticks[i].Label = withUnit(tick.Value, u.unit, -1)
		}
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
