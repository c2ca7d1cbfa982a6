// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"encoding/xml"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// element is one of a drawing.
type element struct {
	XMLName  xml.Name
	Attrs    []xml.Attr `xml:",any,attr"`
	Text     string     `xml:",chardata"`
	Children []element  `xml:",any"`
}

func (e element) attr(name string) string {
	for _, a := range e.Attrs {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

// all returns all elements of a name.
func (e element) all(name string) (list []element) {
	for _, child := range e.Children {
		if child.XMLName.Local == name {
			list = append(list, child)
		}
		list = append(list, child.all(name)...)
	}
	return list
}

// texts returns all texts in their order.
func (e element) texts() (list []string) {
	for _, text := range e.all("text") {
		list = append(list, text.Text)
	}
	return list
}

// lines returns the paths of series, by their names.
func (e element) lines() map[string]string {
	found := map[string]string{}
	for _, path := range e.all("path") {
		if titles := path.all("title"); len(titles) > 0 {
			found[titles[0].Text] = path.attr("d")
		}
	}
	return found
}

// parse returns a drawing, which is the same each time, and whose numbers are all finite.
func parse(t *testing.T, charts ...Chart) (svg element) {
	t.Helper()
	data := SVG(charts...)
	require.NoError(t, xml.Unmarshal(data, &svg), string(data))
	assert.Equal(t, string(data), string(SVG(charts...)))
	for _, path := range svg.all("path") {
		assert.NotRegexp(t, `NaN|Inf|e\+`, path.attr("d")+path.attr("fill-opacity"))
	}
	for _, text := range svg.all("text") {
		assert.NotRegexp(t, `NaN|Inf|e\+`, text.attr("x")+text.attr("y"))
		assert.NotRegexp(t, `NaN|Inf`, text.Text)
	}
	return svg
}

func one(points ...Point) Chart {
	return Chart{Title: "title", X: Axis{Label: "x"}, Y: Axis{Label: "y"}, Series: []Series{{Name: "a", Points: points}}}
}

var number = regexp.MustCompile(`-?[\d.]+`)

// numbers returns all numbers in a path.
func numbers(t *testing.T, path string) (list []float64) {
	t.Helper()
	for _, text := range number.FindAllString(path, -1) {
		n, err := strconv.ParseFloat(text, 64)
		require.NoError(t, err)
		list = append(list, n)
	}
	return list
}

// place returns where on an axis a tick has its text.
func place(t *testing.T, svg element, label, anchor, axis string) float64 {
	t.Helper()
	for _, text := range svg.all("text") {
		if text.Text == label && text.attr("text-anchor") == anchor {
			return numbers(t, text.attr(axis))[0]
		}
	}
	require.Fail(t, "no tick has this text", "%s in %q", label, svg.texts())
	return 0
}

// A point is where the ticks on both axes have its values.
func TestScale(t *testing.T) {
	svg := parse(t, one(Point{0, 0}, Point{50, 10}, Point{100, 40}))
	at := numbers(t, svg.lines()["a"])
	assert.InDelta(t, place(t, svg, "0", "middle", "x"), at[0], 0.11)
	assert.InDelta(t, place(t, svg, "100", "middle", "x"), at[4], 0.11)
	assert.InDelta(t, (at[0]+at[4])/2, at[2], 0.11)
	for i, label := range []string{"0", "10", "40"} {
		assert.InDelta(t, place(t, svg, label, "end", "y")-4, at[2*i+1], 0.11, label)
	}
	assert.Greater(t, at[1], at[3], "a larger value is higher")

	svg = parse(t, Chart{Y: Axis{Log: true}, Series: []Series{{Name: "a", Points: []Point{{0, 0.001}, {1, 0.1}, {2, 1000}, {3, 0}, {4, -1}}}}})
	at = numbers(t, svg.lines()["a"])
	assert.Len(t, at, 6, "0 and -1 have no logarithm")
	assert.InDelta(t, place(t, svg, "0.001", "end", "y")-4, at[1], 0.11)
	assert.InDelta(t, (at[1]*2+at[5])/3, at[3], 0.11)
	assert.InDelta(t, place(t, svg, "1000", "end", "y")-4, at[5], 0.11)

	elapsed := one(Point{0, 0}, Point{600, 37})
	elapsed.X.Elapsed = true
	svg = parse(t, elapsed)
	at = numbers(t, svg.lines()["a"])
	assert.InDelta(t, place(t, svg, "10", "middle", "x"), at[2], 0.11)
	assert.Contains(t, svg.texts(), "x (minutes)")
	top := place(t, svg, "40", "end", "y") - 4
	assert.Less(t, top, at[3], "the axis ends at a round value above the line")
	assert.Contains(t, string(SVG(elapsed)), fmt.Sprintf(` %vV350H692" fill="none"`, px(top)), "the line of the axis")

	steps := one(Point{0, 0}, Point{1, 1}, Point{2, 5})
	steps.Series[0].Steps = true
	assert.Regexp(t, `^M[\d.]+ [\d.]+H[\d.]+V[\d.]+H[\d.]+V[\d.]+$`, parse(t, steps).lines()["a"])
}

// Axes have a few round numbers, and a unit that fits their length.
func TestTicks(t *testing.T) {
	labels := func(a Axis, low, high float64) string {
		s := scale{lo: math.Inf(1), hi: math.Inf(-1), log: a.Log, from: 0, to: 500}
		s.lo, s.hi = low, high
		a.end(&s)
		var texts []string
		for _, tick := range a.ticks(s, 70) {
			texts = append(texts, tick.Label)
		}
		_, unit := a.unit(s)
		return strings.Join(texts, " ") + unit
	}
	for high, want := range map[float64]string{
		0: "0 0.2 0.4 0.6 0.8 1", 1: "0 0.2 0.4 0.6 0.8 1", 60: "0 10 20 30 40 50 60", 24: "0 5 10 15 20", 7.5: "0 2 4 6",
		5_800_000: "0 1 M 2 M 3 M 4 M 5 M", 0.002: "0 0.0005 0.001 0.0015 0.002", 1.34: "0 0.2 0.4 0.6 0.8 1 1.2",
	} {
		assert.Equal(t, want, labels(Axis{}, 0, high), high)
	}
	assert.Equal(t, "-4 -2 0 2 4 6", labels(Axis{}, -5, 7))
	assert.Equal(t, "0.001 0.01 0.1 1 10 100 1000", labels(Axis{Log: true}, 0.002, 900))
	assert.Equal(t, "10 100", labels(Axis{Log: true}, 50, 50))
	assert.Equal(t, "1e-12 1e-08 0.0001 1 10000 100 M 1000000 M", labels(Axis{Log: true}, 1e-12, 1e12))
	for end, want := range map[float64]string{
		300: "0 50 100 150 200 250 300 (seconds)", 1200: "0 5 10 15 20 (minutes)", 86400: "0 5 10 15 20 (hours)", 30 * 86400: "0 5 10 15 20 25 30 (days)",
	} {
		assert.Equal(t, want, labels(Axis{Elapsed: true}, 0, end))
	}
	assert.Equal(t, "0 ms, 200 ms, 400 ms, 600 ms,", labels(Axis{Format: func(v float64) string { return fmt.Sprintf("%.0f ms,", 1000*v) }}, 0, 0.75))
	svg := parse(t, Chart{X: Axis{Ticks: []Tick{{-1, "out"}, {5, "in"}, {math.NaN(), "nowhere"}}, Max: 10}, Series: one(Point{1, 1}).Series})
	assert.Contains(t, svg.texts(), "in")
	assert.NotContains(t, svg.texts(), "out")
}

// Names are escaped, and all that XML cannot have is replaced.
func TestNames(t *testing.T) {
	for _, name := range []string{`<script>alert(1)</script>&"'`, "日本", "a\x00\x1b\xffb", strings.Repeat("long ", 4000)} {
		c := one(Point{0, 0}, Point{1, 1})
		c.Title, c.X.Label, c.Y.Label, c.Series[0].Name = name, name, name, name
		svg := parse(t, c)
		assert.Empty(t, svg.all("script"))
		if len(name) < 100 {
			want := strings.NewReplacer("\x00", "\ufffd", "\x1b", "\ufffd", "\xff", "\ufffd").Replace(name)
			assert.Equal(t, want, svg.all("title")[0].Text, "the title is what readers of the screen say")
			assert.Contains(t, svg.lines(), want)
			assert.GreaterOrEqual(t, strings.Count(strings.Join(svg.texts(), "\n"), want), 4)
		}
		c.Text = name
		assert.Len(t, parse(t, c).texts(), 3)
	}
}

// Values that have no place are gaps. A chart without values says so.
func TestValues(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, points := range [][]Point{nil, {{nan, 1}}, {{1, nan}, {inf, 2}, {3, -inf}}, {{1e200, 1}}} {
		svg := parse(t, one(points...))
		assert.Contains(t, svg.texts(), "no data")
		assert.Contains(t, svg.texts(), "a", "the legend")
		assert.Empty(t, svg.lines())
	}
	log := one(Point{1, 0}, Point{2, -3})
	log.Y.Log = true
	assert.Contains(t, parse(t, log).texts(), "no data")

	svg := parse(t, one(Point{0, 1}, Point{1, nan}, Point{2, 2}, Point{3, 3}, Point{4, inf}, Point{5, 1}))
	line := svg.lines()["a"]
	assert.NotContains(t, svg.texts(), "no data")
	assert.Equal(t, 3, strings.Count(line, "M"))
	assert.Equal(t, 2, strings.Count(line, "m-2 0h4"), "a point between gaps is visible: %s", line)

	// Points in one place, a value that is always the same, and limits of floating point.
	for _, points := range [][]Point{
		{{0, 0}}, {{5, 5}}, {{7, -3}}, {{0, 5}, {1, 5}, {2, 5}}, {{0, 0}, {1, 0}}, {{0, 5e-324}}, {{0, 1e100}, {1, -1e100}}, {{1e18, 1e18}, {math.Nextafter(1e18, 2e18), 1e18}},
	} {
		for _, scaled := range []bool{false, true} {
			c := one(points...)
			c.Y.Log = scaled
			c.X.Min = points[0].X
			svg := parse(t, c)
			if !scaled {
				assert.NotEmpty(t, svg.lines()["a"])
			}
			assert.Greater(t, len(svg.texts()), 5, "ticks: %v", points)
			assert.Less(t, len(svg.texts()), 40, "ticks: %v", points)
		}
	}
	assert.Empty(t, parse(t).texts())
	assert.Contains(t, parse(t, Chart{}).texts(), "no data")
}

// No text is over another or out of the picture.
func TestRoom(t *testing.T) {
	for name, c := range map[string]Chart{
		"usual": one(Point{0, 0}, Point{1e7, 123456}),
		"small": {Title: strings.Repeat("small ", 20), Width: 250, Height: 150, Series: one(Point{0, 0}, Point{1e6 + 1, 1e-5}).Series},
		"log":   {Width: 300, Height: 200, X: Axis{Log: true}, Y: Axis{Log: true}, Series: one(Point{1e-30, 1e-50}, Point{1e30, 1e50}).Series},
		"ticks": {Y: Axis{Ticks: manyTicks()}, X: Axis{Ticks: manyTicks()}, Series: one(Point{0, 0}, Point{100, 100}).Series},
		"many":  {Title: "many", Series: manySeries(60)},
	} {
		t.Run(name, func(t *testing.T) {
			svg := parse(t, c)
			width, height := numbers(t, svg.attr("width"))[0], numbers(t, svg.attr("height"))[0]
			type box struct {
				left, right, top, bottom float64
				text                     string
			}
			var boxes []box
			for _, text := range svg.all("text") {
				x, y, font := numbers(t, text.attr("x"))[0], numbers(t, text.attr("y"))[0], numbers(t, text.attr("font-size"))[0]
				long := textWidth(text.Text) * font
				if text.attr("transform") != "" {
					continue // the label of the Y axis, in a column of its own
				}
				b := box{x, x + long, y - 0.75*font, y + 0.2*font, text.Text}
				switch text.attr("text-anchor") {
				case "middle":
					b.left, b.right = x-long/2, x+long/2
				case "end":
					b.left, b.right = x-long, x
				}
				assert.GreaterOrEqual(t, b.left, 0.0, b.text)
				assert.LessOrEqual(t, b.right, width, b.text)
				assert.LessOrEqual(t, b.bottom, height, b.text)
				for _, other := range boxes {
					over := b.left < other.right && other.left < b.right && b.top < other.bottom && other.top < b.bottom
					assert.False(t, over, "%q is over %q", b.text, other.text)
				}
				if long > 0 {
					boxes = append(boxes, b)
				}
			}
		})
	}
	few, many := parse(t, Chart{Series: manySeries(2)}), parse(t, Chart{Series: manySeries(60)})
	assert.Equal(t, few.attr("width"), many.attr("width"))
	assert.Greater(t, numbers(t, many.attr("height"))[0], numbers(t, few.attr("height"))[0]+100, "a legend with many rows makes a chart higher")
	two := parse(t, one(Point{0, 0}), one(Point{0, 0}))
	assert.Equal(t, 2*numbers(t, parse(t, one(Point{0, 0})).attr("height"))[0], numbers(t, two.attr("height"))[0])
}

func manyTicks() (list []Tick) {
	for i := range 100 {
		list = append(list, Tick{float64(i), fmt.Sprintf("tick %d", i)})
	}
	return list
}

func manySeries(n int) (list []Series) {
	for i := range n {
		list = append(list, Series{Name: fmt.Sprint("curve ", i), Style: i, Points: []Point{{0, 0}, {1, float64(i)}}})
	}
	return list
}

// Stock and ours differ in their colors, and are solid lines. The first styles differ.
func TestStyles(t *testing.T) {
	seen := map[string]bool{}
	for i := range 15 {
		seen[Series{Style: i}.stroke()] = true
	}
	assert.Len(t, seen, 15)
	assert.Contains(t, Series{Style: Stock}.stroke(), `stroke-dasharray="none"`)
	assert.Contains(t, Series{Style: Ours}.stroke(), `stroke-dasharray="none"`)
}

// Cells are where their values are, and darker if there is more in them.
func TestCells(t *testing.T) {
	svg := parse(t, Chart{X: Axis{Max: 10}, Y: Axis{Max: 10}, Cells: []Cell{
		{0, 4, 0, 5, 0, Stock}, {0, 4, 5, 10, 0.5, Stock}, {4, 10, 5, 10, 1, Ours}, {4, 10, 0, 5, 7, Ours}, {0, 1, 0, 1, math.NaN(), Stock}, {math.NaN(), 1, 0, 1, 1, Stock},
	}})
	assert.NotContains(t, svg.texts(), "no data")
	opacity := map[string][]float64{}
	for _, path := range svg.all("path") {
		if shade := path.attr("fill-opacity"); shade != "" {
			opacity[shade] = append(opacity[shade], numbers(t, path.attr("d"))...)
			assert.Equal(t, map[string]string{"0.5": colors[Stock], "1": colors[Ours]}[shade], path.attr("fill"))
		}
	}
	require.Len(t, opacity, 2)
	left, middle, right := place(t, svg, "0", "middle", "x"), place(t, svg, "4", "middle", "x"), place(t, svg, "10", "middle", "x")
	bottom, top := place(t, svg, "0", "end", "y")-4, place(t, svg, "10", "end", "y")-4
	assert.InDeltaSlice(t, []float64{left, (bottom + top) / 2, middle, top, left}, opacity["0.5"], 0.11)
	assert.InDeltaSlice(t, []float64{middle, (bottom + top) / 2, right, top, middle}, opacity["1"][:5], 0.11)
	assert.Len(t, opacity["1"], 10)
}
