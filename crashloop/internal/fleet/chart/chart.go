// SPDX-License-Identifier: Apache-2.0

// Package chart draws lines over time as SVG and PNG. Equal charts give equal bytes.
package chart

import (
	"bytes"
	"fmt"
	"image/color"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Point is a value at a time.
type Point struct {
	After time.Duration
	Value float64
}

// Line is a series of points in order of time.
type Line struct {
	Name   string
	Points []Point
	// Steps draws each value as a horizontal line until the next point, instead of a slope.
	Steps bool
	// Style selects the color and dashes. Lines of one curve in several charts have the same Style.
	Style int
}

// Chart is a set of lines over the same time.
type Chart struct {
	Title, X, Y string
	Lines       []Line
	// Least is the minimum for the upper end of the Y axis.
	Least float64
}

// The size of a chart. It is higher if it has more lines than the legend can show.
const (
	width   = 20 * vg.Centimeter
	height  = 8.5 * vg.Centimeter
	perLine = 14 * vg.Length(1)
	margin  = 0.35 * vg.Centimeter
	// most is the maximum number of characters of a name in the legend.
	most = 26
)

// colors are the palette of Okabe and Ito, which most people with color blindness can
// distinguish. With the dashes everybody can distinguish the lines.
var colors = []color.Color{
	color.RGBA{0x00, 0x72, 0xb2, 0xff}, color.RGBA{0xd5, 0x5e, 0x00, 0xff}, color.RGBA{0x00, 0x9e, 0x73, 0xff}, color.RGBA{0xcc, 0x79, 0xa7, 0xff},
	color.RGBA{0x33, 0x33, 0x33, 0xff}, color.RGBA{0x56, 0xb4, 0xe9, 0xff}, color.RGBA{0xe6, 0x9f, 0x00, 0xff},
}

var dashes = [][]vg.Length{nil, {6, 3}, {2, 2}, {8, 3, 2, 3}, {12, 4}}

// SVG returns the charts one above the other.
func SVG(charts ...Chart) ([]byte, error) {
	canvas := vgsvg.New(width, total(charts))
	if err := render(draw.New(canvas), charts); err != nil {
		return nil, err
	}
	data, err := encode(canvas)
	// Where Liberation Sans is not installed, fonts with the same metrics have these names.
	return bytes.ReplaceAll(data, []byte("font-family:Liberation Sans;"), []byte("font-family:'Liberation Sans',Arial,Helvetica,sans-serif;")), err
}

// PNG returns the charts one above the other.
func PNG(charts ...Chart) ([]byte, error) {
	canvas := vgimg.NewWith(vgimg.UseWH(width, total(charts)), vgimg.UseDPI(144))
	if err := render(draw.New(canvas), charts); err != nil {
		return nil, err
	}
	return encode(vgimg.PngCanvas{Canvas: canvas})
}

func encode(w io.WriterTo) ([]byte, error) {
	var b bytes.Buffer
	_, err := w.WriteTo(&b)
	return b.Bytes(), err
}

func (c Chart) height() vg.Length {
	return max(height, perLine*vg.Length(len(c.Lines))+2*vg.Centimeter)
}

func total(charts []Chart) (sum vg.Length) {
	for _, c := range charts {
		sum += c.height()
	}
	return sum
}

func render(canvas draw.Canvas, charts []Chart) error {
	canvas.SetColor(color.White)
	canvas.Fill(canvas.Rectangle.Path())
	top := vg.Length(0)
	for _, c := range charts {
		bottom := canvas.Max.Y - canvas.Min.Y - top - c.height()
		part := draw.Crop(canvas, margin, -margin, bottom+margin, -top-margin)
		if err := c.draw(part); err != nil {
			return err
		}
		top += c.height()
	}
	return nil
}

func (c Chart) draw(canvas draw.Canvas) error {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.Title, c.X, c.Y
	p.Title.Padding = 0.25 * vg.Centimeter
	legend := plot.NewLegend()
	legend.Top, legend.Left = true, true
	legend.Padding = 2
	legend.ThumbnailWidth = 0.9 * vg.Centimeter
	sans(&p.Title.TextStyle.Font, 12)
	sans(&legend.TextStyle.Font, 9.5)
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		sans(&axis.Label.TextStyle.Font, 10)
		sans(&axis.Tick.Label.Font, 9)
		axis.Padding = 0
	}
	unit, name := unitOf(c.longest())
	p.X.Label.Text = strings.TrimSpace(c.X + " (" + name + ")")
	grid := plotter.NewGrid()
	for _, style := range []*draw.LineStyle{&grid.Vertical, &grid.Horizontal} {
		style.Color, style.Width, style.Dashes = color.Gray{0xe0}, 0.5, nil
	}
	p.Add(grid)
	for _, line := range c.Lines {
		points := make(plotter.XYs, len(line.Points))
		for j, point := range line.Points {
			points[j] = plotter.XY{X: float64(point.After) / float64(unit), Y: point.Value}
		}
		if len(points) == 0 {
			points = plotter.XYs{{}}
		}
		drawn, err := plotter.NewLine(points)
		if err != nil {
			return fmt.Errorf("%s: %s: %w", c.Title, line.Name, err)
		}
		if line.Steps {
			drawn.StepStyle = plotter.PostStep
		}
		drawn.Color, drawn.Width, drawn.Dashes = colors[line.Style%len(colors)], 1.4, dashes[line.Style%len(dashes)]
		p.Add(drawn)
		legend.Add(shortened(line.Name), drawn)
	}
	p.X.Min, p.Y.Min = 0, min(0, p.Y.Min)
	p.Y.Max = max(p.Y.Max*1.05, c.Least)
	if p.Y.Max <= p.Y.Min {
		p.Y.Max = p.Y.Min + 1
	}
	if p.X.Max <= 0 {
		p.X.Max = 1
	}
	p.X.Tick.Marker, p.Y.Tick.Marker = ticks{}, ticks{}
	size := legend.Rectangle(canvas).Size()
	p.Draw(draw.Crop(canvas, 0, -size.X-0.5*vg.Centimeter, 0, 0))
	legend.Draw(draw.Crop(canvas, canvas.Max.X-canvas.Min.X-size.X, 0, 0, -0.9*vg.Centimeter))
	return nil
}

func sans(f *font.Font, size vg.Length) { f.Variant, f.Size = "Sans", size }

// shortened returns the name, cut to fit the legend.
func shortened(name string) string {
	if utf8.RuneCountInString(name) > most {
		name = string([]rune(name)[:most-1]) + "…"
	}
	return name
}

// longest returns the last time of a chart.
func (c Chart) longest() (d time.Duration) {
	for _, line := range c.Lines {
		if n := len(line.Points); n > 0 {
			d = max(d, line.Points[n-1].After)
		}
	}
	return d
}

// unitOf returns a unit for an axis of this length, and its name.
func unitOf(d time.Duration) (time.Duration, string) {
	switch {
	case d <= 5*time.Minute:
		return time.Second, "seconds"
	case d <= 3*time.Hour:
		return time.Minute, "minutes"
	case d <= 4*24*time.Hour:
		return time.Hour, "hours"
	}
	return 24 * time.Hour, "days"
}

// ticks puts about seven ticks at multiples of 1, 2 or 5 times a power of ten.
type ticks struct{}

// Ticks implements plot.Ticker.
func (ticks) Ticks(low, high float64) (list []plot.Tick) {
	step := math.Pow(10, math.Floor(math.Log10((high-low)/4)))
	for _, by := range []float64{2, 5, 10} {
		if (high-low)/step > 8 {
			step = math.Pow(10, math.Floor(math.Log10((high-low)/4))) * by
		}
	}
	for i := math.Ceil(low / step); i*step <= high*(1+1e-9); i++ {
		value := i * step
		text := strconv.FormatFloat(math.Round(value*1e6)/1e6, 'f', -1, 64)
		if math.Abs(value) >= 1e6 {
			text = strconv.FormatFloat(math.Round(value/1e4)/100, 'f', -1, 64) + " M"
		}
		list = append(list, plot.Tick{Value: value, Label: text})
	}
	return list
}
