// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/kubelet-backoff/kubelet-backoff/internal/chart"
)

// pictured are the scenarios of a picture.
var pictured = []string{"max1s", "default"}

// restartsShown is the number of restarts in a picture if all delays are equal and no restart is late.
const restartsShown = 20

// lateChart returns a chart with a row for each kubelet. A row has the time in which the scenario's only container waited for
// its back-off, and in which it was late, from its first exit to its restarts.
func lateChart(s Scenario, subjects ...subject) chart.Chart {
	c := chart.Chart{
		Title:  "A container that exits at once, " + s.curve(),
		X:      chart.Axis{Label: "time since the first exit; pale: back-off, dark: late", Elapsed: true},
		Y:      chart.Axis{Min: -0.5, Max: float64(len(subjects)) - 0.5, Ticks: []chart.Tick{}},
		Height: 160,
	}
	c.X.Max = restartsShown * s.Maximum.Seconds()
	if s.Maximum == 0 {
		// Each kubelet makes the same number of restarts, and the chart ends where the first one has made them.
		c.X.Max = time.Hour.Seconds()
		for _, subject := range subjects {
			starts := subject.starts()
			c.X.Max = min(c.X.Max, starts[len(starts)-1]-starts[0])
		}
	}
	for row, subject := range subjects {
		starts, label, style, restarts := subject.starts(), subject.label, chart.Stock, 0
		if row > 0 {
			label, style = "patched", chart.Ours
		}
		y := float64(len(subjects) - 1 - row)
		for i := 1; i < len(starts); i++ {
			exit, end, start := starts[i-1]-starts[0], starts[i-1]-starts[0]+subject.scenario.Delay(i-1).Seconds(), starts[i]-starts[0]
			if start <= c.X.Max {
				restarts++
			}
			for _, part := range []struct{ from, to, shade float64 }{{exit, end, 0.25}, {end, start, 1}} {
				if to := min(part.to, c.X.Max); part.from < to {
					c.Cells = append(c.Cells, chart.Cell{X0: part.from, X1: to, Y0: y - 0.35, Y1: y + 0.35, Shade: part.shade, Style: style})
				}
			}
		}
		c.Y.Ticks = append(c.Y.Ticks, chart.Tick{Value: y, Label: fmt.Sprintf("%s: %d", label, restarts)})
	}
	slices.Reverse(c.Y.Ticks)
	c.Y.Label = "restarts"
	return c
}

// starts returns the start times of the only container in the first run.
func (s *subject) starts() []float64 {
	for _, starts := range s.runs[0].Starts {
		return starts
	}
	return nil
}
