// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/csv"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/backoff"
	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/fleet"
	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/plan"
)

const s = time.Second

func options(t *testing.T) fleet.Options {
	t.Helper()
	lives, err := plan.ParseLives("1@2s")
	require.NoError(t, err)
	return fleet.Options{
		Curves: []fleet.Curve{
			{Name: "default", Curve: backoff.Curve{Initial: 10 * s, Max: 300 * s}},
			{Name: `<b>&"x"`, Curve: backoff.Curve{Initial: 8 * s, Max: 8 * s}},
		},
		Nodes: 2, Pods: 5, Containers: 1, Lives: lives, Policy: v1.RestartPolicyAlways, Fail: 1, For: 10 * time.Minute, Seed: 1,
		Costs: fleet.Costs{RequestsPerRestart: 5, CPUPerRestart: 10 * time.Millisecond, CPUPerRequest: time.Millisecond, CPUIdle: 0.1, APIServerCPUPerRequest: 40 * time.Millisecond},
	}
}

func result(t *testing.T, o fleet.Options) *fleet.Result {
	t.Helper()
	r, err := fleet.Run(o, nil)
	require.NoError(t, err)
	return r
}

// The figures are those of restarts counted by hand: at 2, 14, 36, 78, 160 and 322 s with the
// default, and at 2, 12, 22 … s with the other curve.
func TestFigures(t *testing.T) {
	r := New(result(t, options(t)), nil, 0)
	a, b := r.Curves[0], r.Curves[1]
	assert.EqualValues(t, 60, a.Restarts)
	assert.Equal(t, 6.0, a.RestartsPerContainer)
	assert.Equal(t, 60.0, b.RestartsPerContainer)
	assert.Equal(t, 54.0, b.ExcessPerContainer)
	assert.Equal(t, 25.0, b.RequestsNode, "a restart of five pods in 10 s, with five requests each")
	assert.Equal(t, 25.0, b.RequestsNodeBusiest)
	assert.Equal(t, 50.0, b.RequestsFleet)
	assert.Equal(t, 50.0, a.RequestsFleetBusiest)
	assert.InDelta(t, 0.1+0.5*(0.01+5*0.001), b.CPU, 1e-9)
	assert.InDelta(t, 0.1+0.5*(0.01+5*0.001), a.CPUBusiest, 1e-9)
	assert.InDelta(t, 5*0.04, b.APIServerCPU, 1e-9)
	assert.InDelta(t, 1-14.0/600, a.Down, 1e-9)
	assert.Len(t, a.Series, 10)
	assert.Equal(t, Point{AfterSeconds: 60, RestartsPerContainer: 3, Requests: 25}, a.Series[0])
	assert.Equal(t, Point{AfterSeconds: 60, RestartsPerContainer: 6, ExcessPerContainer: 3, Requests: 50}, b.Series[0])
	assert.Equal(t, 600.0, a.Series[9].AfterSeconds)
	assert.Empty(t, a.Recoveries)
}

// Half of the containers exit at 62 s, restart at 62, 74, 96, 138 and 220 s, and wait until 382 s,
// 82 s after the outage.
func TestTable(t *testing.T) {
	o := options(t)
	o.Fail, o.Outages = 0, []fleet.Outage{{From: time.Minute, Length: 4 * time.Minute, Share: 0.5}}
	r := New(result(t, o), nil, 5*time.Minute)
	assert.Equal(t, `2 nodes of 5 pods, 10m; from 1m, a dependency of 50% is down for 4m: 1@2s; restart policy Always; seed 1
a restart: 5 requests, 10 ms CPU and 1 ms for each request; a kubelet without restarts: 0.1 CPU; of the API server 40 ms for each request

    CURVE  INITIAL  MAXIMUM  RESTARTS  EXCESS  REQUESTS/10s  BUSIEST  CPU  BUSIEST    DOWN  FLEET REQUESTS/10s  BUSIEST  API SERVER CPU
  default      10s       5m         3       -          1.25       15  0.1      0.1  25.83%                 2.5       25            0.01
  <b>&"x"       8s       8s      12.5    +9.5          5.21       15  0.1      0.1     16%                10.4       25            0.04

  BACK AFTER    CURVE  CONTAINERS    P50    P99  LONGEST  NEVER
          5m  default           5  1m22s  1m22s    1m22s      0
          5m  <b>&"x"           5     2s     2s       2s      0

  AFTER  default  <b>&"x"  EXCESS
     5m      2.5       12    +9.5
    10m        3     12.5    +9.5
`, string(r.Table()))
}

// CSV and JSON have all values of the table, without rounding.
func TestFormats(t *testing.T) {
	r := New(result(t, options(t)), nil, 5*time.Minute)
	data, err := r.CSV()
	require.NoError(t, err)
	rows, err := csv.NewReader(strings.NewReader(string(data))).ReadAll()
	require.NoError(t, err)
	assert.Equal(t, [][]string{
		{"after_seconds", "curve", "restarts_per_container", "excess_per_container", "requests_per_10s_fleet"},
		{"300", "default", "5", "0", "8.333333333333334"}, {"300", `<b>&"x"`, "30", "25", "50"},
		{"600", "default", "6", "0", "1.6666666666666667"}, {"600", `<b>&"x"`, "60", "54", "50"},
	}, rows)
	data, err = r.JSON()
	require.NoError(t, err)
	var decoded Report
	require.NoError(t, json.Unmarshal(data, &decoded))
	decoded.step = r.step
	assert.Equal(t, *r, decoded)
}

// The page needs no other file, and escapes names.
func TestHTML(t *testing.T) {
	o := options(t)
	o.Outages, o.Fail = []fleet.Outage{{From: time.Minute, Length: time.Minute, Share: 1}}, 0
	res := result(t, o)
	rec, err := fleet.Recommend(o, fleet.Budget{Requests: 10, Window: time.Minute}, o.Curves[1:])
	require.NoError(t, err)
	charts := Charts(res)
	assert.Len(t, charts, 4)
	page, err := New(res, rec, 0).HTML(charts)
	require.NoError(t, err)
	assert.NotContains(t, string(page), "<b>")
	assert.NotContains(t, string(page), "<?xml")
	assert.Equal(t, 4, strings.Count(string(page), "<svg"))
	assert.Contains(t, string(page), "lowest maximum within the budget: 8s")
	for _, link := range regexp.MustCompile(`(?i)(src|href|url|@import)\s*[=(]?\s*["']?[^\s"'>]*`).FindAllString(string(page), -1) {
		t.Errorf("the page refers to something: %s", link)
	}
	for _, url := range regexp.MustCompile(`https?://[^\s"']*`).FindAllString(string(page), -1) {
		assert.Contains(t, []string{"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}, url, "other than a namespace")
	}
	decoder := xml.NewDecoder(strings.NewReader(string(page)))
	decoder.Strict, decoder.AutoClose, decoder.Entity = false, []string{"meta"}, xml.HTMLEntity
	for {
		_, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
	}
}

func TestAdvice(t *testing.T) {
	margin, missing := 0.1236, -0.0421
	r := &Report{Recommendation: &Recommendation{
		BudgetRequests: 50, WindowSeconds: 300, Nodes: 3,
		Maximum: &Load{Seconds: 9, Requests: 43.82, CPU: 0.2, RequestsMargin: &margin}, Beyond: &Load{Seconds: 8, Requests: 52.1, CPU: 0.21, RequestsMargin: &missing},
	}}
	assert.Equal(t, []string{
		"budget: 50 requests/s of all nodes, in each 5m (simulated on 3 nodes)",
		"lowest maximum within the budget: 9s: 43.8 requests/s (margin 12.3%), 0.2 CPU",
		"next lower maximum, over the budget: 8s: 52.1 requests/s (4.3% over), 0.21 CPU",
	}, r.advice())
	r.Recommendation.Maximum = nil
	assert.Equal(t, "no maximum is within the budget: 8s: 52.1 requests/s (4.3% over), 0.21 CPU", r.advice()[1])
}

func TestSteps(t *testing.T) {
	for length, want := range map[time.Duration]time.Duration{
		10 * s: 10 * s, time.Hour: 5 * time.Minute, 24 * time.Hour: 2 * time.Hour, plan.Longest: 30 * 24 * time.Hour,
	} {
		assert.Equal(t, want, niceStep(length, 12), length)
	}
	assert.NoError(t, CheckStep(0, time.Hour))
	assert.NoError(t, CheckStep(30*s, time.Hour))
	assert.ErrorContains(t, CheckStep(15*s, time.Hour), "step: 15s: must be a multiple of 10s")
	assert.ErrorContains(t, CheckStep(-10*s, time.Hour), "step: -10s")
	assert.ErrorContains(t, CheckStep(2*time.Hour, time.Hour), "step: 2h0m0s")
	assert.ErrorContains(t, CheckStep(10*s, plan.Longest), "more than 100000 points")
	for f, want := range map[float64]string{0: "0", 0.004: "0", -0.001: "0", 3.14159: "3.14", 31.4159: "31.4", 314.159: "314", 31415.9: "31416", -2.5: "-2.5"} {
		assert.Equal(t, want, number(f))
	}
}
