// SPDX-License-Identifier: Apache-2.0

// Package chart draws charts as SVG, for the command and for the tests that measure. Equal charts give equal bytes.
package chart

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Styles of series. Other+1, Other+2 and so on are styles too.
const (
	Stock = iota // the stock kubelet, or a curve that others are compared with
	Ours         // the patched kubelet, or the first of several other curves
	Other        // the first of all others
)

// colors are a grey, a blue, and the rest of the palette of Okabe and Ito, which most people with color blindness can distinguish.
// With the dashes everybody can distinguish the lines.
var (
	colors = []string{"#888888", "#1565c0", "#009e73", "#d55e00", "#cc79a7", "#333333", "#e69f00"}
	dashes = []string{"none", "none", "3 3", "9 3 3 3", "7 3"}
)

// Point is a value at a place on the X axis. A line has a gap at a point that is not finite, or not positive on a logarithmic axis.
type Point struct{ X, Y float64 }

// Series is a line through points in order of X.
type Series struct {
	Name   string
	Points []Point
	Steps  bool // draws each value as a horizontal line until the next point, instead of a slope
	Style  int  // selects the color and dashes; lines of one thing in several charts have the same
}

// Cell is a rectangle whose Shade is from 0, which is white, to 1, which is the color of its Style.
type Cell struct {
	X0, X1, Y0, Y1, Shade float64
	Style                 int
}

// Tick is a value on an axis, and its text.
type Tick struct {
	Value float64
	Label string
}

// Axis is an axis from Min, or from the lowest value if that is lower, to Max or the highest value. A Y axis goes on to round values.
type Axis struct {
	Label    string
	Min, Max float64
	Log      bool                 // The axis is logarithmic. It begins and ends at powers of ten, and ignores Min and Max.
	Elapsed  bool                 // The values are seconds. An X axis shows them in a unit that fits, which it adds to Label.
	Format   func(float64) string // returns the text of a value, which is the number without it
	Ticks    []Tick               // replace those at round values, unless it is nil
}

// Chart is a picture of lines or cells with a legend.
type Chart struct {
	Title  string
	X, Y   Axis
	Series []Series
	Cells  []Cell
	Text   string // replaces the axes and all in them, in large letters
	// Width and Height are in pixels. Without them, a chart has the usual size. It is higher if its legend needs the space.
	Width, Height float64
}

// The sizes of a chart in pixels. An em is the estimated width of a letter, as a part of the size of its font.
const (
	usualWidth, usualPlot, leastPlot         = 720, 290, 50
	above, below, edge, swatch, gap          = 36, 46, 14, 24, 6
	size, titleSize, leastSize, textSize, em = 12, 15, 9, 36, 0.6
	xApart, yApart                           = 70, 35 // from tick to tick, at least
)

// px is a coordinate as SVG has it.
type px float64

// String implements fmt.Stringer.
func (p px) String() string { return strconv.FormatFloat(math.Round(float64(p)*10)/10, 'f', -1, 64) }

// SVG returns an svg element with the charts one above the other.
func SVG(charts ...Chart) []byte {
	var out pen
	var titles []string
	var width, height float64
	for _, c := range charts {
		out.add(`<g transform="translate(0 %v)">`, px(height))
		w, h := c.draw(&out)
		out.add(`</g>`)
		width, height, titles = max(width, w), height+h, append(titles, escape(c.Title))
	}
	return []byte(fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%v" height="%v" viewBox="0 0 %[1]v %[2]v" role="img" `+
		`font-family="'Liberation Sans',Arial,Helvetica,sans-serif">
<title>%s</title>
<rect width="100%%" height="100%%" fill="white"/>
%s</svg>
`, px(width), px(height), strings.Join(titles, "; "), out.String()))
}

// pen writes elements.
type pen struct{ strings.Builder }

func (p *pen) add(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

// text writes a text of a size, which is cut if it is wider than the room for it.
func (p *pen) text(x, y, font, room float64, attributes, s string) {
	end, width := 0, 0.0
	for i, r := range s {
		if width+em*font <= room {
			end = i
		}
		if width += textWidth(string(r)) * font; width > room {
			s = s[:end] + "…"
			break
		}
	}
	p.add(`<text x="%v" y="%v" font-size="%v" %s>%s</text>`, px(x), px(y), px(font), attributes, escape(s))
}

// textWidth estimates the width of a text as a part of the size of its font. Ideographs are as wide as they are high.
func textWidth(s string) (width float64) {
	for _, r := range s {
		width += em
		if r >= 0x1100 {
			width += 1 - em
		}
	}
	return width
}

// escape returns a text for XML, which has no control characters.
func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // A Builder returns no errors.
	return b.String()
}

// draw writes a chart and returns its size.
func (c Chart) draw(out *pen) (width, height float64) {
	width = cmp.Or(c.Width, usualWidth)
	room := width - 2*edge
	out.text(width/2, 23, max(leastSize, min(titleSize, room/textWidth(c.Title+" "))), room, `text-anchor="middle"`, c.Title)
	top := c.legend(out, width)
	height = max(cmp.Or(c.Height, top+below+usualPlot), top+below+leastPlot)
	if c.Text != "" {
		out.text(width/2, (height+titleSize+textSize)/2, textSize, room, `text-anchor="middle" fill="#1b7a3d"`, c.Text)
		return width, height
	}
	x, y, empty := c.scales(height - top - below)
	y.from, y.to = height-below, top
	yTicks := c.Y.ticks(y, yApart)
	x.from, x.to = 4*edge, width-2*edge
	for _, t := range yTicks {
		x.from = min(max(x.from, edge+size+2*gap+textWidth(t.Label)*size), width/2)
	}
	if empty {
		yTicks = nil
		out.text((x.from+x.to)/2, (y.from+y.to)/2, size, room, `text-anchor="middle"`, "no data")
	}
	c.axes(out, x, y, c.X.ticks(x, xApart), yTicks)
	c.cells(out, x, y)
	for _, s := range c.Series {
		s.draw(out, x, y)
	}
	return width, height
}

// legend writes the names in rows below the title, and returns where the plot may begin.
func (c Chart) legend(out *pen, width float64) (top float64) {
	x, top := float64(edge), above
	for i, s := range c.Series {
		next := x + swatch + gap + textWidth(s.Name)*size
		if i == 0 || next > width-edge {
			next, x, top = next-x+edge, edge, top+size+gap
		}
		out.add(`<path d="M%v %vh%d" %s/>`, px(x), px(top-gap-4), swatch, s.stroke())
		out.text(x+swatch+gap, top-gap, size, width-edge-x-swatch-gap, `text-anchor="start"`, s.Name)
		x = next + swatch
	}
	return top + gap
}

// scale maps the values from lo to hi, or their logarithms, to coordinates.
type scale struct {
	lo, hi, from, to float64
	log              bool
}

func (s scale) at(v float64) float64 {
	if s.log {
		v = math.Log10(v)
	}
	return s.from + (v-s.lo)/(s.hi-s.lo)*(s.to-s.from)
}

// shows reports whether there is a place for a value. Beyond these limits, differences and logarithms are not exact.
func (s scale) shows(v float64) bool { return math.Abs(v) <= 1e100 && (!s.log || v >= 1e-100) }

// scales returns the scales for the values of a chart with a plot of this height, and whether it has no value.
func (c Chart) scales(height float64) (x, y scale, empty bool) {
	x = scale{lo: math.Inf(1), hi: math.Inf(-1), log: c.X.Log}
	y = scale{lo: math.Inf(1), hi: math.Inf(-1), log: c.Y.Log}
	var points []Point
	for _, s := range c.Series {
		points = append(points, s.Points...)
	}
	for _, cell := range c.Cells {
		points = append(points, Point{cell.X0, cell.Y0}, Point{cell.X1, cell.Y1})
	}
	for _, p := range points {
		if x.shows(p.X) && y.shows(p.Y) {
			x.lo, x.hi, y.lo, y.hi = min(x.lo, p.X), max(x.hi, p.X), min(y.lo, p.Y), max(y.hi, p.Y)
		}
	}
	empty = x.lo > x.hi
	c.X.end(&x)
	c.Y.end(&y)
	if !y.log && c.Y.Ticks == nil { // There is a tick at both ends.
		step := roundUp((y.hi - y.lo) * yApart / height)
		y.lo, y.hi = math.Floor(y.lo/step+1e-9)*step, math.Ceil(y.hi/step-1e-9)*step
	}
	return x, y, empty
}

// end sets the ends of a scale for an axis, so that they differ.
func (a Axis) end(s *scale) {
	if !a.Log {
		s.lo, s.hi = min(s.lo, a.Min), max(s.hi, a.Max, a.Min)
		if s.hi-s.lo <= max(1e-100, 1e-12*math.Abs(s.lo)) {
			s.hi = s.lo + max(1, 1e-6*math.Abs(s.lo))
		}
		return
	}
	if s.lo > s.hi {
		s.lo, s.hi = 1, 1
	}
	// The logarithm of a power of ten may be a little less than a whole number.
	s.lo = math.Floor(math.Log10(s.lo) + 1e-9)
	s.hi = max(s.lo+1, math.Ceil(math.Log10(s.hi)-1e-9))
}

// roundUp returns 1, 2 or 5 times a power of ten that is not less than a value.
func roundUp(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, by := range []float64{1, 2, 5} {
		if power*by >= v*(1-1e-9) {
			return power * by
		}
	}
	return power * 10
}

// unit returns how many seconds a unit of an axis is, and its name.
func (a Axis) unit(s scale) (float64, string) {
	switch {
	case !a.Elapsed:
		return 1, ""
	case s.hi <= 5*60:
		return 1, " (seconds)"
	case s.hi <= 3*3600:
		return 60, " (minutes)"
	case s.hi <= 4*86400:
		return 3600, " (hours)"
	}
	return 86400, " (days)"
}

// label returns the text of a value.
func (a Axis) label(v float64) string {
	suffix := ""
	if a.Format != nil {
		return a.Format(v)
	} else if math.Abs(v) >= 1e6 {
		v, suffix = v/1e6, " M"
	}
	return strconv.FormatFloat(v, 'g', 12, 64) + suffix // without the error of the last digits
}

// ticks returns the ticks of an axis, which are at least so many pixels apart.
func (a Axis) ticks(s scale, apart float64) (list []Tick) {
	most := max(1, math.Abs(s.to-s.from)/apart)
	unit, _ := a.unit(s)
	step := roundUp((s.hi - s.lo) / unit / most)
	switch {
	case a.Ticks != nil:
		half := math.Abs(s.to-s.from)/2 + 0.1 // of a pixel, for rounding
		return slices.DeleteFunc(slices.Clone(a.Ticks), func(t Tick) bool { return !(math.Abs(s.at(t.Value)-(s.from+s.to)/2) <= half) })
	case a.Log:
		for i := s.lo; i <= s.hi; i += math.Ceil((s.hi - s.lo) / most) {
			list = append(list, Tick{math.Pow(10, i), a.label(math.Pow(10, i))})
		}
	default:
		for i := int(math.Ceil(s.lo/unit/step - 1e-9)); float64(i)*step <= s.hi/unit+step*1e-9; i++ {
			list = append(list, Tick{float64(i) * step * unit, a.label(float64(i) * step)})
		}
	}
	return list
}

// axes draws the grid and all text beside it. It leaves out labels for which there is no room.
func (c Chart) axes(out *pen, x, y scale, xTicks, yTicks []Tick) {
	free := math.Inf(-1)
	for _, t := range xTicks {
		at, half := x.at(t.Value), textWidth(t.Label)*size/2
		out.add(`<path d="M%v %vV%v" stroke="#ddd"/>`, px(at), px(y.from), px(y.to))
		if at-half > free {
			out.text(at, y.from+16, size, 2*half, `text-anchor="middle"`, t.Label)
			free = at + half + gap
		}
	}
	free = math.Inf(1)
	for _, t := range yTicks {
		at := y.at(t.Value)
		out.add(`<path d="M%v %vH%v" stroke="#ddd"/>`, px(x.from), px(at), px(x.to))
		if at < free {
			out.text(x.from-gap, at+4, size, x.from-edge-size-gap, `text-anchor="end"`, t.Label)
			free = at - size
		}
	}
	out.add(`<path d="M%v %vV%vH%v" fill="none" stroke="#666"/>`, px(x.from), px(y.to), px(y.from), px(x.to))
	_, unit := c.X.unit(x)
	out.text((x.from+x.to)/2, y.from+36, size, x.to-x.from, `text-anchor="middle"`, c.X.Label+unit)
	middle := (y.from + y.to) / 2
	out.text(edge, middle, size, y.from-y.to, fmt.Sprintf(`text-anchor="middle" transform="rotate(-90 %d %v)"`, edge, px(middle)), c.Y.Label)
}

// cells draws the cells that are not white.
func (c Chart) cells(out *pen, x, y scale) {
	for _, cell := range c.Cells {
		if x.shows(cell.X0) && x.shows(cell.X1) && y.shows(cell.Y0) && y.shows(cell.Y1) && cell.Shade > 0 {
			x0, x1, y0, y1 := x.at(cell.X0), x.at(cell.X1), y.at(cell.Y0), y.at(cell.Y1)
			out.add(`<path d="M%v %vH%vV%vH%[1]vz" fill="%[6]s" fill-opacity="%[5]v"/>`, px(x0), px(y0), px(x1), px(y1), px(min(max(0.1, cell.Shade), 1)), colors[cell.Style%len(colors)])
		}
	}
}

func (s Series) stroke() string {
	return fmt.Sprintf(`fill="none" stroke="%s" stroke-width="2" stroke-dasharray="%s"`, colors[s.Style%len(colors)], dashes[s.Style%len(dashes)])
}

// draw draws the line, and a short stroke for a point between two gaps.
func (s Series) draw(out *pen, x, y scale) {
	var path strings.Builder
	length := 0 // of the line since the last gap, in points
	for _, p := range append(slices.Clip(s.Points), Point{X: math.NaN()}) {
		if x.shows(p.X) && y.shows(p.Y) {
			format := "L%v %v"
			if length++; length == 1 {
				format = "M%v %v"
			} else if s.Steps {
				format = "H%vV%v"
			}
			fmt.Fprintf(&path, format, px(x.at(p.X)), px(y.at(p.Y)))
			continue
		}
		if length == 1 {
			path.WriteString("m-2 0h4")
		}
		length = 0
	}
	if path.Len() > 0 {
		out.add(`<path d="%s" %s><title>%s</title></path>`, path.String(), s.stroke(), escape(s.Name))
	}
}
