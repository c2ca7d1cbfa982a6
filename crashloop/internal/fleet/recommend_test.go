// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"encoding/json"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubelet-backoff/kubelet-backoff/backoff"
)

// maxima returns the curves with each maximum in whole seconds.
func maxima(greatest int) (list []Curve) {
	for n := range greatest {
		m := time.Duration(n+1) * s
		list = append(list, Curve{m.String(), backoff.Curve{Initial: min(10*s, m), Max: m}})
	}
	return list
}

// A run with the recommended maximum is within the budget in each window. A run with any lower
// maximum is not.
func TestRecommend(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Options)
		budget Budget
	}{
		{"requests", func(*Options) {}, Budget{Requests: 50, Window: 5 * time.Minute}},
		{"CPU", func(*Options) {}, Budget{CPU: 0.2, Window: 5 * time.Minute}},
		{"both", func(o *Options) { o.Lives = lives(t, "1@exp(20s)") }, Budget{Requests: 25, CPU: 0.065, Window: time.Minute}},
		{"an outage", func(o *Options) {
			o.Fail, o.Outages = 0, []Outage{{10 * time.Minute, 20 * time.Minute, 0.5}}
		}, Budget{Requests: 20, Window: 10 * time.Minute}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := small(t)
			o.Pods, o.Costs = 110, MeasuredCosts
			tc.change(&o)
			if testing.Short() && o.Outages == nil {
				o.For = 20 * time.Minute
			}
			all := maxima(300)
			r, err := Recommend(o, tc.budget, all)
			require.NoError(t, err)
			require.NotNil(t, r.Best)
			require.NotNil(t, r.Before)
			inside := func(c Curve) (Load, bool) {
				o := o
				o.Curves = []Curve{c}
				sums := simulated(t, o).Curves[0]
				l := Load{Curve: c}
				per := int(tc.budget.Window / Step)
				for from := 0; from < len(sums.Restarts); from += per {
					requests, restarts := 0.0, 0.0
					for i := from; i < min(from+per, len(sums.Restarts)); i++ {
						requests += float64(sums.Requests[i]) / 1000
						restarts += float64(sums.Restarts[i])
					}
					l.Requests = max(l.Requests, requests/tc.budget.Window.Seconds())
					l.CPU = max(l.CPU, o.CPU(restarts, requests, tc.budget.Window))
				}
				require.Equal(t, 1, o.Nodes, "CPU is a node's")
				return l, (tc.budget.Requests == 0 || l.Requests <= tc.budget.Requests) && (tc.budget.CPU == 0 || l.CPU <= tc.budget.CPU)
			}
			l, ok := inside(r.Best.Curve)
			assert.True(t, ok)
			assert.InDelta(t, l.Requests, r.Best.Requests, 1e-6)
			assert.InDelta(t, l.CPU, r.Best.CPU, 1e-6)
			for _, c := range all {
				if c.Max >= r.Best.Curve.Max {
					break
				}
				_, ok := inside(c)
				assert.False(t, ok, "%v is within the budget, too", c)
			}
			assert.Equal(t, r.Best.Curve.Max-s, r.Before.Curve.Max)
		})
	}
}

func TestRecommendEdges(t *testing.T) {
	o := small(t)
	o.Pods, o.Costs, o.For = 110, MeasuredCosts, 20*time.Minute
	// The first candidate is within the budget.
	r, err := Recommend(o, Budget{Requests: 1e9, Window: time.Minute}, maxima(300))
	require.NoError(t, err)
	assert.Equal(t, s, r.Best.Curve.Max)
	assert.Nil(t, r.Before)
	// No candidate is within the budget.
	r, err = Recommend(o, Budget{Requests: 0.001, Window: time.Minute}, maxima(300))
	require.NoError(t, err)
	assert.Nil(t, r.Best)
	assert.Equal(t, 300*s, r.Before.Curve.Max)
	// The load of many nodes is a multiple of the load of one.
	o.Nodes = 5000
	r, err = Recommend(o, Budget{Requests: 5000 * 50, Window: 5 * time.Minute}, maxima(300))
	require.NoError(t, err)
	o.Nodes = 1
	one, err := Recommend(o, Budget{Requests: 50, Window: 5 * time.Minute}, maxima(300))
	require.NoError(t, err)
	assert.Equal(t, one.Best.Curve, r.Best.Curve)
	assert.Equal(t, 2, r.Nodes)
	year := o
	year.For = 8760 * time.Hour
	_, err = Recommend(year, Budget{CPU: 1, Window: time.Minute}, maxima(300))
	assert.ErrorContains(t, err, "budget: in 8760h0m0s there are too many restarts")
	for want, b := range map[string]Budget{
		"one of them must be set":        {Window: time.Minute},
		"budget-requests: NaN":           {Requests: math.NaN(), Window: time.Minute},
		"budget-cpu: -1":                 {CPU: -1, Window: time.Minute},
		"must be more than a kubelet us": {CPU: MeasuredCosts.CPUIdle, Window: time.Minute},
		"budget-window: 15s: must be":    {CPU: 1, Window: 15 * s},
		"budget-window: 2h0m0s: must be": {CPU: 1, Window: 2 * time.Hour},
	} {
		_, err := Recommend(o, b, maxima(300))
		assert.ErrorContains(t, err, want)
	}
}

// figures is the part of a result of node-load that the test reads.
type figures struct {
	Results []struct {
		Name     string
		Scenario struct{ Pods int }
		Figures  map[string]struct {
			PerSecond, RequestsPer10s, IdleAPIServer float64
			Kubelet, APIServer                       struct{ Cores float64 }
			// Requests are per restart.
			Requests, IdleRequestsPer10s map[string]float64
		}
	}
}

// load is what restarts cost in a measurement: restarts, requests and requests without those for events per second, and processors
// of the kubelet, which include what it uses without restarts, and of the API server.
type load struct {
	name                                             string
	restarts, requests, statuses, kubelet, apiServer float64
}

// measured returns the results with at most 110 pods.
func measured(t *testing.T, file string) (all []load) {
	t.Helper()
	data, err := os.ReadFile("../../../docs/results/plan/" + file)
	require.NoError(t, err)
	var read figures
	require.NoError(t, json.Unmarshal(data, &read))
	for _, r := range read.Results {
		if r.Scenario.Pods > 110 {
			continue
		}
		f := r.Figures["patched"]
		l := load{name: r.Name, restarts: f.PerSecond, requests: f.RequestsPer10s / 10, kubelet: f.Kubelet.Cores, apiServer: f.APIServer.Cores - f.IdleAPIServer}
		l.statuses = l.requests - f.PerSecond*(f.Requests["POST events"]+f.Requests["PATCH events"])
		for kind, n := range f.IdleRequestsPer10s {
			l.requests -= n / 10
			if !strings.HasSuffix(kind, " events") {
				l.statuses -= n / 10
			}
		}
		all = append(all, l)
	}
	return all
}

// leastSquares returns the coefficients with which the sum for each row is closest to 1.
func leastSquares(rows [][]float64) (of []float64) {
	n := len(rows[0])
	m := make([][]float64, n) // the normal equations, with the right side in the last column
	for i := range m {
		m[i] = make([]float64, n+1)
		for _, row := range rows {
			for j, x := range row {
				m[i][j] += row[i] * x
			}
			m[i][n] += row[i]
		}
	}
	for i := range m {
		for k := range m {
			for j, f := n, m[k][i]/m[i][i]; k != i && j >= i; j-- {
				m[k][j] -= f * m[i][j]
			}
		}
	}
	for i := range m {
		of = append(of, m[i][n]/m[i][i])
	}
	return of
}

// MeasuredCosts are the costs in docs/results.
func TestMeasuredCosts(t *testing.T) {
	c := MeasuredCosts
	var kubelet, apiServer [][]float64
	for _, file := range []string{"load-1s.json", "load-4s.json", "load-10s.json"} {
		for _, l := range measured(t, file) {
			kubelet = append(kubelet, []float64{1 / l.kubelet, l.restarts / l.kubelet, l.requests / l.kubelet})
			apiServer = append(apiServer, []float64{l.requests / l.apiServer})
			if file == "load-1s.json" && l.name == "tenth/110" {
				assert.InDelta(t, l.statuses/l.restarts, c.RequestsPerRestart, 0.005, "RequestsPerRestart")
			}
		}
	}
	require.Len(t, kubelet, 9)
	of := leastSquares(kubelet)
	assert.InDelta(t, of[0], c.CPUIdle, 0.005, "CPUIdle")
	assert.InDelta(t, 1000*of[1], c.CPUPerRestart.Seconds()*1000, 0.051, "CPUPerRestart in ms")
	assert.InDelta(t, 1000*of[2], c.CPUPerRequest.Seconds()*1000, 0.051, "CPUPerRequest in ms")
	assert.InDelta(t, 1000*leastSquares(apiServer)[0], c.APIServerCPUPerRequest.Seconds()*1000, 0.051, "APIServerCPUPerRequest in ms")
}
