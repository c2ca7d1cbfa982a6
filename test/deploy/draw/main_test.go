// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/xml"
	"html"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/stretchr/testify/require"

	"github.com/kubelet-backoff/kubelet-backoff/internal/chart"
	"github.com/kubelet-backoff/kubelet-backoff/test/deploy"
)

// Every panel is drawn, also from a recording of a kubelet that has done nothing.
func TestDraw(t *testing.T) {
	const dashboard = "../../../deploy/grafana/dashboard.json"
	d, err := deploy.ReadDashboard(dashboard)
	require.NoError(t, err)
	idle := filepath.Join(t.TempDir(), "idle.prom")
	require.NoError(t, os.WriteFile(idle, []byte("# scrape 2026-01-01T00:00:00Z\n# scrape 2026-01-01T00:00:15Z\n# scrape 2026-01-01T00:00:30Z\n"), 0o644))
	for name, recording := range map[string]string{"synthetic": "", "idle": idle} {
		t.Run(name, func(t *testing.T) {
			out := t.TempDir()
			require.NoError(t, run(dashboard, recording, out))
			files, err := filepath.Glob(out + "/*.svg")
			require.NoError(t, err)
			require.Len(t, files, len(d.Panels)+1)
			for _, file := range files {
				data, err := os.ReadFile(file)
				require.NoError(t, err)
				require.NoError(t, xml.Unmarshal(data, new(struct{})), file)
				require.NotContains(t, string(data), "NaN", file)
			}
			page, err := os.ReadFile(filepath.Join(out, "dashboard.svg"))
			require.NoError(t, err)
			for _, p := range d.Panels {
				require.Contains(t, string(page), "<title>"+html.EscapeString(p.Title)+"</title>")
			}
			if name == "idle" {
				require.Contains(t, strings.ToLower(string(page)), ">no data<")
			} else {
				require.Contains(t, string(page), ">100 ms<", "a logarithmic axis")
				require.Contains(t, string(page), ">12:30<", "the time of day")
				require.Contains(t, string(page), "fill-opacity", "a cell of the heat map")
			}
		})
	}
}

// A line has a gap where scrapes are missing.
func TestGaps(t *testing.T) {
	points := withGaps([]promql.FPoint{{T: 1000, F: 1}, {T: 2000, F: 2}, {T: 4000, F: 3}}, time.Second)
	require.Len(t, points, 4)
	require.True(t, math.IsNaN(points[2].X))
	require.Equal(t, chart.Point{X: 4, Y: 3}, points[3])
	require.Empty(t, withGaps(nil, time.Second))
}
