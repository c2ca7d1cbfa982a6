// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/fleet"
)

// caused is what the restarts of a measurement cause: requests per 10 s, without and for events, and processors of the API server.
type caused struct{ statuses, events, apiServer float64 }

func (c caused) requests() float64 { return c.statuses + c.events }

// caused subtracts what there was before, when only healthy pods started. At the limits of a kubelet, the requests of healthy pods take
// the place of others, so these are not subtracted there.
func (r measurement) caused() (c caused) {
	f := r.Figures["patched"]
	var idle caused
	for kind, n := range f.Requests {
		*c.of(kind) += n * f.PerSecond * 10
	}
	for kind, n := range f.IdleRequestsPer10s {
		*idle.of(kind) += n
	}
	atLimit := 0.98 * 10 * float64(max(1, r.Scenario.Nodes))
	if c.statuses < atLimit*fleet.MeasuredCosts.RequestLimit {
		c.statuses -= idle.statuses
	}
	if c.events < atLimit*fleet.MeasuredCosts.EventLimit {
		c.events -= idle.events
	}
	c.apiServer = f.APIServer.Cores - f.IdleAPIServer
	return c
}

// of returns the sum to which the requests of a kind belong.
func (c *caused) of(kind string) *float64 {
	if strings.HasSuffix(kind, " events") {
		return &c.events
	}
	return &c.statuses
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
	c := fleet.MeasuredCosts
	var kubelet [][]float64
	var all caused
	for _, file := range measuredFiles {
		for _, r := range readLoad(t, filepath.Join(results, "plan", file+".json")).Results {
			if r.Scenario.Pods > 110 {
				continue
			}
			f, of := r.Figures["patched"], r.caused()
			cores, requests := f.Kubelet.Cores, of.requests()/10
			kubelet = append(kubelet, []float64{1 / cores, f.PerSecond / cores, requests / cores})
			all.statuses += of.statuses
			all.events += of.events
			all.apiServer += of.apiServer
			if r.Name == "tenth/110" && r.Scenario.Maximum == s {
				assert.InDelta(t, of.statuses/10/f.PerSecond, c.RequestsPerRestart, 0.005, "RequestsPerRestart")
			}
		}
	}
	require.Len(t, kubelet, 9)
	of := leastSquares(kubelet)
	assert.InDelta(t, of[0], c.CPUIdle, 0.005, "CPUIdle")
	assert.InDelta(t, 1000*of[1], c.CPUPerRestart.Seconds()*1000, 0.051, "CPUPerRestart in ms")
	assert.InDelta(t, 1000*of[2], c.CPUPerRequest.Seconds()*1000, 0.051, "CPUPerRequest in ms")
	assert.InDelta(t, 1e4*all.apiServer/all.requests(), c.APIServerCPUPerRequest.Seconds()*1000, 0.051, "APIServerCPUPerRequest in ms")
}
