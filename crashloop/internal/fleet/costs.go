// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"time"
)

// Costs are the costs of restarts for a node.
type Costs struct {
	// RequestsPerRestart is the number of API requests that the kubelet sends for a restart.
	RequestsPerRestart float64
	// RequestLimit is the maximum number of API requests per second, or 0 for no limit. Requests
	// above it do not count, because the kubelet merges statuses and drops events.
	RequestLimit float64
	// CPUPerRestart is the CPU time that the kubelet uses for a restart, without its API requests.
	CPUPerRestart time.Duration
	// CPUPerRequest is the CPU time that the kubelet uses for an API request.
	CPUPerRequest time.Duration
	// CPUIdle is the number of processors that the kubelet uses without restarts.
	CPUIdle float64
	// APIServerCPUPerRequest is the CPU time that the API server uses for an API request.
	APIServerCPUPerRequest time.Duration
}

// MeasuredCosts are the rounded costs of the patched kubelet in docs/results. A test compares them
// with load.json and plan/load-10s.json. RequestsPerRestart and APIServerCPUPerRequest are from
// the mix tenth/110 with a maximum of 1 s, in which no request waits for the client's limits. The
// three CPU values of the kubelet are those with which CPU returns what tenth/110 used with a
// maximum of 10 s, all-fail/110 with 1 s, and a weighted mean of tenth/110 with 1 s and all-fail/110
// with 10 s, which have as many restarts. The limit is the sum of kubeAPIQPS and eventRecordQPS of a
// KubeletConfiguration, each 50 by default.
var MeasuredCosts = Costs{
	RequestsPerRestart:     4.67,
	RequestLimit:           100,
	CPUPerRestart:          4900 * time.Microsecond,
	CPUPerRequest:          1100 * time.Microsecond,
	CPUIdle:                0.05,
	APIServerCPUPerRequest: 3800 * time.Microsecond,
}

func (c Costs) validate() error {
	for _, cost := range []struct {
		name  string
		value float64
	}{
		{"requests-per-restart", c.RequestsPerRestart}, {"request-limit", c.RequestLimit},
		{"cpu-per-restart in seconds", c.CPUPerRestart.Seconds()}, {"cpu-per-request in seconds", c.CPUPerRequest.Seconds()}, {"cpu-idle", c.CPUIdle},
		{"apiserver-cpu-per-request in seconds", c.APIServerCPUPerRequest.Seconds()},
	} {
		if !(cost.value >= 0 && cost.value <= mostCost) {
			return fmt.Errorf("%s: %v: must be from 0 to %.0f", cost.name, cost.value, mostCost)
		}
	}
	return nil
}

// milli returns a number in thousandths. The sum of integers does not depend on their order.
func milli(n float64) uint64 { return uint64(n*1000 + 0.5) }

// millis returns how many API requests, in thousandths, a node sends for restarts in a period.
func (c Costs) millis(restarts uint64, in time.Duration) uint64 {
	n := restarts * milli(c.RequestsPerRestart)
	if c.RequestLimit > 0 {
		n = min(n, milli(c.RequestLimit*in.Seconds()))
	}
	return n
}

// CPU returns how many processors the kubelet uses for restarts and API requests in a period,
// including CPUIdle.
func (c Costs) CPU(restarts, requests float64, in time.Duration) float64 {
	return c.CPUIdle + (restarts*c.CPUPerRestart.Seconds()+requests*c.CPUPerRequest.Seconds())/in.Seconds()
}

// Requests returns how many API requests a node sends for restarts in a period.
func (c Costs) Requests(restarts uint64, in time.Duration) float64 {
	return float64(c.millis(restarts, in)) / 1000
}
