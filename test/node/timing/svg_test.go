// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubelet-backoff/kubelet-backoff/internal/chart"
	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
)

func TestLateChart(t *testing.T) {
	of := func(label string, s Scenario, starts ...float64) subject {
		return subject{label, "", s, []Run{{Starts: map[string][]float64{"a": starts}}}}
	}
	low := Scenario{Curve: harness.Curve{Maximum: time.Second}}
	c := lateChart(low, of("stock", low, 100, 100, 102, 119, 130), of("ours", low, 50, 50, 51))
	want := []chart.Cell{
		// The first restart has no delay. The last wait goes on after the end of the chart.
		{X0: 0, X1: 1, Y0: 0.65, Y1: 1.35, Shade: 0.25, Style: chart.Stock},
		{X0: 1, X1: 2, Y0: 0.65, Y1: 1.35, Shade: 1, Style: chart.Stock},
		{X0: 2, X1: 3, Y0: 0.65, Y1: 1.35, Shade: 0.25, Style: chart.Stock},
		{X0: 3, X1: 19, Y0: 0.65, Y1: 1.35, Shade: 1, Style: chart.Stock},
		{X0: 19, X1: 20, Y0: 0.65, Y1: 1.35, Shade: 0.25, Style: chart.Stock},
		{X0: 0, X1: 1, Y0: -0.35, Y1: 0.35, Shade: 0.25, Style: chart.Ours},
	}
	if diff := cmp.Diff(want, c.Cells); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]chart.Tick{{Value: 0, Label: "patched: 2"}, {Value: 1, Label: "stock: 3"}}, c.Y.Ticks); diff != "" {
		t.Error(diff)
	}
	// On a curve that grows, the chart ends with the faster kubelet.
	curve := Scenario{}
	if c := lateChart(curve, of("stock", curve, 0, 0, 15, 40), of("ours", curve, 1, 1, 11, 31)); c.X.Max != 30 || len(c.Cells) != 3+2 {
		t.Errorf("ends at %v with %v, want 30 and two waits of each, the first of stock late", c.X.Max, c.Cells)
	}
}
