// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"math"
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
