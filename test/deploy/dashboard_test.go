// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/stretchr/testify/require"
)

const dashboardFile = "../../deploy/grafana/dashboard.json"

// metrics are those of a kubelet of this project.
var metrics = []string{
	"kubelet_restart_backoff_waiting_containers",
	"kubelet_restart_backoff_delay_seconds",
	"kubelet_restart_backoff_lateness_seconds",
	"kubelet_restart_backoff_resets_total",
	"kubelet_restart_backoff_keys",
	"kubelet_pod_in_place_restarts_total",
	"kubelet_pod_in_place_restart_phase_duration_seconds",
	"kubelet_restart_at_annotations_total",
	"kubelet_restart_limit_exceeded_pods_total",
	"kubelet_restart_curve_containers",
}

// others is the metric of upstream in the dashboard whose name looks like one of these.
const others = "kubelet_pod_worker_duration_seconds_bucket"

// named is what may be the name of one of them, or a misspelt one.
var named = regexp.MustCompile(`kubelet_(?:restart|pod)_[a-z_]+`)

// requireMetrics requires that a text names all metrics and no others.
func requireMetrics(t *testing.T, text string, all bool) {
	t.Helper()
	found := map[string]bool{}
	for _, name := range named.FindAllString(text, -1) {
		if name == others {
			continue
		}
		for _, suffix := range []string{"_bucket", "_count", "_sum"} {
			name = strings.TrimSuffix(name, suffix)
		}
		require.Contains(t, metrics, name)
		found[name] = true
	}
	if all {
		require.Len(t, found, len(metrics))
	}
}

func TestMetricsThatAreNamed(t *testing.T) {
	for file, all := range map[string]bool{dashboardFile: true, prometheusDir + "/rules.yaml": false} {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		requireMetrics(t, string(data), all)
	}
}

func TestDashboard(t *testing.T) {
	d, err := ReadDashboard(dashboardFile)
	require.NoError(t, err)
	require.NotEmpty(t, d.Title)
	require.NotEmpty(t, d.UID)
	variables := map[string]Variable{}
	for _, v := range d.Templating.List {
		variables[v.Name] = v
	}
	require.Equal(t, "datasource", variables["datasource"].Type)
	require.Equal(t, ".*", variables["node"].AllValue)
	requireMetrics(t, variables["node"].Definition, false)

	// Synthetic has all metrics of the project, and the recording has upstream's.
	synthetic, err := Synthetic()
	require.NoError(t, err)
	recording, err := ReadRecording("testdata/kubelet.prom.gz")
	require.NoError(t, err)
	var databases []*Database
	for _, scrapes := range [][]Scrape{synthetic, recording} {
		db, err := NewDatabase(scrapes)
		require.NoError(t, err)
		defer db.Close()
		databases = append(databases, db)
	}
	ids := map[int]bool{}
	cells := map[[2]int]string{}
	for _, p := range d.Panels {
		t.Run(p.Title, func(t *testing.T) {
			require.NotEmpty(t, p.Title)
			require.NotEmpty(t, p.Description)
			require.NotEmpty(t, p.FieldConfig.Defaults.Unit)
			require.NotEmpty(t, p.Targets)
			require.False(t, ids[p.ID], "the ID is another panel's")
			ids[p.ID] = true
			require.Equal(t, Datasource{Type: "prometheus", UID: "${datasource}"}, p.Datasource)
			require.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24)
			for x := range p.GridPos.W {
				for y := range p.GridPos.H {
					at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
					require.Empty(t, cells[at], "another panel is there")
					cells[at] = p.Title
				}
			}
			for _, target := range p.Targets {
				require.Equal(t, p.Datasource, target.Datasource)
				require.Contains(t, target.Expr, `instance=~"$node"`)
				var matrix promql.Matrix
				for _, db := range databases {
					expr := target.Expression(db.RateInterval())
					require.NotContains(t, expr, "$", "a variable without a value")
					matrix, err = db.Query(expr, db.Step())
					require.NoError(t, err, expr)
					if len(matrix) > 0 {
						break
					}
				}
				require.NotEmpty(t, matrix, target.Expr)
				legends := map[string]bool{}
				numbers := 0
				for _, series := range matrix {
					legend := target.Legend(series.Metric)
					require.NotEmpty(t, legend)
					require.NotContains(t, legend, "{{", "a label that the series lacks")
					require.False(t, legends[legend], "two series have the legend %q", legend)
					legends[legend] = true
					for _, point := range series.Floats {
						if !math.IsNaN(point.F) && !math.IsInf(point.F, 0) {
							numbers++
						}
					}
				}
				require.Positive(t, numbers, target.Expr)
			}
		})
	}
}

// The quantiles of crashloop status are those of Prometheus.
func TestStatusAgreesWithPrometheus(t *testing.T) {
	scrapes, err := Synthetic()
	require.NoError(t, err)
	db, err := NewDatabase(scrapes)
	require.NoError(t, err)
	defer db.Close()
	cmd := exec.Command("go", "run", "-C", "../..", "./crashloop", "status", "-o", "json")
	cmd.Stdin = bytes.NewReader(scrapes[len(scrapes)-1].Metrics)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	output, err := cmd.Output()
	require.NoError(t, err, stderr.String())
	type distribution struct{ P50, P99 *struct{ Seconds float64 } }
	var report struct {
		BackOffs []struct {
			Type             string
			Delays, Lateness distribution
		}
		InPlaceRestarts []struct {
			Action string
			Phases []struct {
				Phase    string
				Duration distribution
			}
		}
	}
	require.NoError(t, json.Unmarshal(output, &report))
	agree := func(metric, selector string, d distribution) {
		for q, got := range map[string]*struct{ Seconds float64 }{"0.5": d.P50, "0.99": d.P99} {
			matrix, err := db.Query("histogram_quantile("+q+", "+metric+"_bucket{"+selector+"})", 15*time.Second) // As Synthetic scrapes, so that the last is that scrape.
			require.NoError(t, err)
			require.Len(t, matrix, 1)
			require.NotNil(t, got)
			points := matrix[0].Floats
			require.InDelta(t, points[len(points)-1].F, got.Seconds, 1e-9, "%s of %s{%s}", q, metric, selector)
		}
	}
	require.Len(t, report.BackOffs, 2)
	for _, b := range report.BackOffs {
		agree("kubelet_restart_backoff_delay_seconds", `type="`+b.Type+`"`, b.Delays)
		agree("kubelet_restart_backoff_lateness_seconds", `type="`+b.Type+`"`, b.Lateness)
	}
	require.Len(t, report.InPlaceRestarts, 2)
	for _, r := range report.InPlaceRestarts {
		require.Len(t, r.Phases, 2)
		for _, p := range r.Phases {
			agree("kubelet_pod_in_place_restart_phase_duration_seconds", `action="`+r.Action+`",phase="`+p.Phase+`"`, p.Duration)
		}
	}
}

func TestRecording(t *testing.T) {
	path := filepath.Join(t.TempDir(), "recording.prom")
	at := time.Date(2026, 1, 1, 12, 0, 0, 5, time.UTC)
	var b bytes.Buffer
	text := "# HELP kubelet_restart_backoff_keys Keys.\n# TYPE kubelet_restart_backoff_keys gauge\nkubelet_restart_backoff_keys{type=\"pod\"} 1\n" +
		"# TYPE other gauge\nother{a=\"kubelet_restart_backoff_keys\"} 1\n"
	require.NoError(t, WriteScrape(&b, Scrape{At: at, Metrics: []byte(text)}))
	require.NoError(t, WriteScrape(&b, Scrape{At: at.Add(time.Second), Metrics: []byte(text)}))
	require.NoError(t, os.WriteFile(path, b.Bytes(), 0o644))
	got, err := ReadRecording(path)
	require.NoError(t, err)
	kept := []byte("# TYPE kubelet_restart_backoff_keys gauge\nkubelet_restart_backoff_keys{type=\"pod\"} 1\n")
	require.Equal(t, []Scrape{{at, kept}, {at.Add(time.Second), kept}}, got)

	for name, tc := range map[string]struct{ recording, want string }{
		"empty":      {"", "there are 0 scrapes in it, and it takes two to see a rate"},
		"one":        {"# scrape 2026-01-01T00:00:00Z\n", "there are 1 scrapes in it, and it takes two to see a rate"},
		"no time":    {"# scrape now\n", `line 1: parsing time "now"`},
		"no scrape":  {"a 1\n", "line 1: a recording begins with a line # scrape TIME"},
		"not sorted": {"# scrape 2026-01-01T00:00:01Z\na 1\n# scrape 2026-01-01T00:00:00Z\n", "line 3: it is not after the scrape before"},
	} {
		require.NoError(t, os.WriteFile(path, []byte(tc.recording), 0o644), name)
		_, err := ReadRecording(path)
		require.ErrorContains(t, err, path+": "+tc.want, name)
	}
	bad := []Scrape{{at, []byte("a 1\n")}, {at.Add(time.Second), []byte("a x\n")}}
	_, err = NewDatabase(bad)
	require.ErrorContains(t, err, "the scrape at 2026-01-01T12:00:01.000000005Z")
}
