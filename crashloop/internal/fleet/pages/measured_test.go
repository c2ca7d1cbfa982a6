// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/fleet"
	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/plan"
)

// prediction is the plan for a scenario of node-load.
type prediction struct {
	restarts, requests, cores float64
	// apiServer is the number of processors that the API server uses.
	apiServer float64
}

// settling is how long node-load waits before the window, when every container has had two restarts.
const settling = 5 * s

// predict simulates the nodes of a scenario in the window of the measurement.
func predict(t *testing.T, r measurement) (p prediction, ok bool) {
	t.Helper()
	sc := r.Scenario
	share, each := 1.0, 1
	switch sc.Mix {
	case "all-fail", "half":
	case "tenth":
		share = 0.1
	case "sidecars":
		share, each = 0.5, 2
	default:
		return p, false
	}
	c, nodes := node(sc.Maximum, sc.Reduced), max(1, sc.Nodes)
	require.Zero(t, sc.Pods%nodes, "%s: pods that do not have equal shares of the nodes", r.Name)
	window := max(sc.Window.Truncate(fleet.Step), fleet.Step)
	begin := max(time.Duration(r.Figures["patched"].WarmUp*float64(s)).Round(fleet.Step), fleet.Step)
	o := fleet.Options{
		Curves: []fleet.Curve{c}, Nodes: nodes, Pods: sc.Pods / nodes, Containers: each, Lives: plan.Lives{{Code: 1, After: sc.Life}},
		Policy: v1.RestartPolicyAlways, Fail: share, Seed: 1, Costs: fleet.MeasuredCosts, For: begin + window,
		// The pods were created one after another.
		Stagger: max(begin-settling-c.Delay(1)-c.Delay(2)-3*sc.Life, s),
	}
	result, err := fleet.Run(o, nil)
	require.NoError(t, err)
	sums := result.Curves[0]
	for step := int(begin / fleet.Step); step < len(sums.Restarts); step++ {
		p.restarts += float64(sums.Restarts[step]) / window.Seconds()
		p.requests += float64(sums.Requests[step]) / 1000 * fleet.Step.Seconds() / window.Seconds()
	}
	p.cores = o.CPU(p.restarts, p.requests/10, s)
	p.apiServer = p.requests / 10 * o.APIServerCPUPerRequest.Seconds()
	return p, true
}

// measuredFiles are measurements with different maxima.
var measuredFiles = []string{"load-1s", "load-4s", "load-10s"}

// The predictions are close to the measurements, except where the node was at its limits.
func TestMeasured(t *testing.T) {
	var b bytes.Buffer
	b.WriteString(`<!-- SPDX-License-Identifier: Apache-2.0 -->
<!-- Written by: make docs -->

# Predicted and measured

This page compares the predictions of ` + "`crashloop plan fleet`" + ` for a node with measurements of the patched kubelet: with a maximum of 1 s in [plan/load-1s.md](plan/load-1s.md), and
with 4 s and 10 s in [plan/load-4s.md](plan/load-4s.md) and [plan/load-10s.md](plan/load-10s.md), which begin with their commands. The
requests of a restart come from tenth/110 with a maximum of 1 s, and the CPU from all rows of at most 110 pods. The restarts depend only on the curve.
Each figure is predicted / measured. A plan has only what restarts cause. So what the API server had to do before the crashing pods, when only healthy pods
started, is subtracted, except from requests at the kubelet's limits.

| mix/pods, maximum | restarts/s | requests per 10 s | CPU of the kubelet | CPU of the API server | why they differ |
|---|---:|---:|---:|---:|---|
`)
	least, most := math.Inf(1), 0.0 // milliseconds of the API server for a request
	for _, file := range measuredFiles {
		for _, r := range readLoad(t, filepath.Join(results, "plan", file+".json")).Results {
			f := r.Figures["patched"]
			p, ok := predict(t, r)
			require.True(t, ok, r.Name)
			c := r.caused()
			least, most = min(least, 1e4*c.apiServer/c.requests()), max(most, 1e4*c.apiServer/c.requests())
			why := ""
			if r.Scenario.Pods > 110 {
				why = "both cores were busy: a plan does not model the limits of a node"
			} else {
				assert.InEpsilon(t, f.PerSecond, p.restarts, 0.1, "%s: restarts", r.Name)
				within := 0.2
				if r.Name == "tenth/110" && r.Scenario.Maximum == s {
					within = 0.25 // all-fail/110 with 10 s has as many restarts and more requests, and uses less CPU.
				}
				assert.InEpsilon(t, f.Kubelet.Cores, p.cores, within, "%s: CPU", r.Name)
				assert.InEpsilon(t, c.requests(), p.requests, 0.15, "%s: requests", r.Name)
				// A request takes less of the API server in some mixes than in others.
				assert.InEpsilon(t, c.apiServer, p.apiServer, 0.4, "%s: CPU of the API server", r.Name)
			}
			fmt.Fprintf(&b, "| %s, %s | %.1f / %.1f | %.0f / %.0f | %.2f / %.2f | %.2f / %.2f | %s |\n",
				r.Name, fleet.Short(r.Scenario.Maximum), p.restarts, f.PerSecond, p.requests, c.requests(), p.cores, f.Kubelet.Cores, p.apiServer, c.apiServer, why)
		}
	}
	fmt.Fprintf(&b, "\nIn these rows, a request takes the API server from %.1f to %.1f ms.\n", least, most)
	writeFleet(t, &b)
	writeHerd(t, &b)
	writeRecommended(t, &b)
	golden(t, "plan.md", b.Bytes())
}

// writeFleet compares the load of several nodes on their API server.
func writeFleet(t *testing.T, b *bytes.Buffer) {
	t.Helper()
	b.WriteString(`
In [plan/fleet.md](plan/fleet.md), several kubelets share an API server. Its CPU is that of ` + "`API SERVER CPU`" + ` in a plan. So many kubelets on one machine need
` + "`sysctl fs.inotify.max_user_instances=512`" + `; the default is 128. The harness checks that first.

| nodes | mix/pods, maximum | requests per 10 s | CPU of the API server in cores |
|---:|---|---:|---:|
`)
	for _, r := range readLoad(t, results+"/plan/fleet.json").Results {
		p, ok := predict(t, r)
		require.True(t, ok, r.Name)
		c := r.caused()
		assert.InEpsilon(t, c.requests(), p.requests, 0.2, "%s: requests", r.Name)
		assert.InEpsilon(t, c.apiServer, p.apiServer, 0.2, "%s: CPU of the API server", r.Name)
		fmt.Fprintf(b, "| %d | %s, %s | %.0f / %.0f | %.2f / %.2f |\n",
			r.Scenario.Nodes, r.Name, fleet.Short(r.Scenario.Maximum), p.requests, c.requests(), p.apiServer, c.apiServer)
	}
}

// writeRecommended writes the recommended maxima for some budgets.
func writeRecommended(t *testing.T, b *bytes.Buffer) {
	t.Helper()
	b.WriteString(`
## Recommended maxima

For a node of 110 pods whose containers all exit after 20 ms, and limits for the kubelet's CPU in each five minutes, as in
` + "`crashloop plan fleet --exit 1@20ms --budget-cpu 0.3`" + `. Keep at least the
margin by which measured CPU exceeds the prediction in the first table.

| CPU limit | lowest maximum | CPU | margin | CPU of the next lower maximum |
|---:|---:|---:|---:|---:|
`)
	o := fleet.Options{
		Nodes: 1, Pods: 110, Containers: 1, Lives: plan.Lives{{Code: 1, After: 20 * ms}}, Policy: v1.RestartPolicyAlways, Fail: 1, For: time.Hour, Seed: 1,
		Costs: fleet.MeasuredCosts,
	}
	if testing.Short() && !*update {
		o.For = 10 * m // The first two windows have most restarts.
	}
	var candidates []fleet.Curve
	for d := s; d <= 5*m; d += s {
		c := node(d, false)
		c.Name = fleet.Short(d)
		candidates = append(candidates, c)
	}
	o.Curves = candidates[:1]
	for _, cpu := range []float64{0.7, 0.5, 0.3, 0.2, 0.15} {
		r, err := fleet.Recommend(o, fleet.Budget{CPU: cpu, Window: 5 * m}, candidates)
		require.NoError(t, err)
		if r.Best == nil {
			fmt.Fprintf(b, "| %.2f | none | | | %.3f |\n", cpu, r.Before.CPU)
			continue
		}
		before := "-"
		if r.Before != nil {
			before = fmt.Sprintf("%.3f", r.Before.CPU)
		}
		fmt.Fprintf(b, "| %.2f | %s | %.3f | %.1f %% | %s |\n", cpu, r.Best.Curve.Name, r.Best.CPU, 100*(cpu-r.Best.CPU)/cpu, before)
	}
	assert.True(t, slices.IsSortedFunc(candidates, func(a, b fleet.Curve) int { return int(a.Max - b.Max) }))
}

// writeHerd compares the restarts measured in herd.md with those of a simulated outage.
func writeHerd(t *testing.T, b *bytes.Buffer) {
	t.Helper()
	page, err := os.ReadFile(results + "/herd.md")
	require.NoError(t, err)
	row := regexp.MustCompile(`(?m)^\| restarts \| (\d+) \| \d+ \| (\d+) \|`).FindStringSubmatch(string(page))
	require.Len(t, row, 3)
	b.WriteString(`
In the runs of [herd.md](herd.md), 110 pods fail while the service that they need is down, and recover after that:

| maximum | outage | restarts, predicted | measured |
|---:|---:|---:|---:|
`)
	for i, herd := range []struct{ maximum, away time.Duration }{{1 * s, 60 * s}, {300 * s, 300 * s}} {
		o := fleet.Options{
			Curves: []fleet.Curve{node(herd.maximum, false)}, Nodes: 1, Pods: 110, Containers: 1, Lives: plan.Lives{{Code: 1, After: 20 * ms}},
			Policy: v1.RestartPolicyAlways, For: 20 * m, Seed: 1, Outages: []fleet.Outage{{From: s, Length: herd.away, Share: 1}},
		}
		result, err := fleet.Run(o, nil)
		require.NoError(t, err)
		measured, err := strconv.ParseFloat(row[i+1], 64)
		require.NoError(t, err)
		predicted := float64(result.Curves[0].Total())
		assert.InEpsilon(t, measured, predicted, 0.1)
		fmt.Fprintf(b, "| %s | %s | %.0f | %.0f |\n", fleet.Short(herd.maximum), fleet.Short(herd.away), predicted, measured)
	}
}
