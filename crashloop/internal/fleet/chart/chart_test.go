// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"image/png"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func example(name string) Chart {
	return Chart{Title: "Restarts", X: "time", Y: "restarts", Lines: []Line{
		{Name: name, Steps: true, Points: []Point{{0, 0}, {time.Minute, 2}, {10 * time.Minute, 7}}},
		{Name: "nothing"},
	}}
}

// A drawing is well-formed with any name, has the same bytes each time, and is high enough for its
// legend.
func TestSVG(t *testing.T) {
	for _, name := range []string{"default", `<script>alert(1)</script>&"'`, strings.Repeat("long", 40), "日本"} {
		data, err := SVG(example(name), example("b"))
		require.NoError(t, err)
		again, err := SVG(example(name), example("b"))
		require.NoError(t, err)
		assert.Equal(t, data, again)
		decoder := xml.NewDecoder(bytes.NewReader(data))
		for {
			token, err := decoder.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			if start, ok := token.(xml.StartElement); ok {
				assert.NotEqual(t, "script", start.Name.Local)
			}
		}
		assert.Contains(t, string(data), "time (minutes)")
		assert.NotContains(t, string(data), "font-family:Liberation Sans;")
	}
}

func TestPNG(t *testing.T) {
	many := example("a")
	for i := range 60 {
		many.Lines = append(many.Lines, Line{Name: fmt.Sprint("curve ", i), Points: []Point{{0, 0}, {time.Hour, float64(i)}}})
	}
	one, err := PNG(example("a"))
	require.NoError(t, err)
	data, err := PNG(many)
	require.NoError(t, err)
	small, err := png.Decode(bytes.NewReader(one))
	require.NoError(t, err)
	large, err := png.Decode(bytes.NewReader(data))
	require.NoError(t, err)
	assert.Equal(t, small.Bounds().Dx(), large.Bounds().Dx())
	assert.Greater(t, large.Bounds().Dy(), 2*small.Bounds().Dy())
	// A chart without lines is valid, and NaN is an error.
	_, err = PNG(Chart{})
	assert.NoError(t, err)
	_, err = PNG(Chart{Title: "a", Lines: []Line{{Name: "b", Points: []Point{{0, math.NaN()}}}}})
	assert.ErrorContains(t, err, "a: b: ")
}

// Axes have a few round numbers.
func TestTicks(t *testing.T) {
	for high, want := range map[float64]string{
		1: "0 0.2 0.4 0.6 0.8 1", 60: "0 10 20 30 40 50 60", 24: "0 5 10 15 20", 7.5: "0 1 2 3 4 5 6 7", 5_800_000: "0 1 M 2 M 3 M 4 M 5 M", 0.002: "0 0.0005 0.001 0.0015 0.002",
	} {
		var got []string
		for _, tick := range (ticks{}).Ticks(0, high) {
			got = append(got, tick.Label)
		}
		assert.Equal(t, want, strings.Join(got, " "))
	}
}
