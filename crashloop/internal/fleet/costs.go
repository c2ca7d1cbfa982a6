// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"time"
)

// Costs are the costs of restarts for a node.
type Costs struct {
	// RequestsPerRestart is the number of API requests that the kubelet sends for a restart, without those for events.
	RequestsPerRestart float64
	// EventsPerRestart is the number of events of a restart, for each of which the kubelet sends a request. One is the warning
	// BackOff, the others are normal events of the start. client-go lets only the first events of a pod through.
	EventsPerRestart int
	// RequestLimit is the maximum number of API requests per second without those for events, or 0 for no limit. Statuses above it
	// wait, and the kubelet merges those of a pod.
	RequestLimit float64
	// EventLimit is the maximum number of requests for events per second, or 0 for no limit. Up to 1000 events
	// wait.
	EventLimit float64
	// CPUPerRestart is the CPU time that the kubelet uses for a restart, without its API requests.
	CPUPerRestart time.Duration
	// CPUPerRequest is the CPU time that the kubelet uses for an API request.
	CPUPerRequest time.Duration
	// CPUIdle is the number of processors that the kubelet uses without restarts of containers.
	CPUIdle float64
	// APIServerCPUPerRequest is the CPU time that the API server uses for an API request.
	APIServerCPUPerRequest time.Duration
}

// MeasuredCosts are the rounded costs of the patched kubelet in docs/results/plan. A test compares them with load-1s.json, load-4s.json
// and load-10s.json. RequestsPerRestart is from the mix tenth/110 with a maximum of 1 s, in which no request waits for the client's
// limits. The CPU values are from all mixes of at most 110 pods: those of the kubelet have the least squares of relative errors,
// and that of the API server is the mean of all requests. The limits are the defaults of kubeAPIQPS and eventRecordQPS of a
// KubeletConfiguration.
var MeasuredCosts = Costs{
	RequestsPerRestart:     2,
	EventsPerRestart:       4,
	RequestLimit:           50,
	EventLimit:             50,
	CPUPerRestart:          4200 * time.Microsecond,
	CPUPerRequest:          300 * time.Microsecond,
	CPUIdle:                0.04,
	APIServerCPUPerRequest: 2500 * time.Microsecond,
}

func (c Costs) validate() error {
	for _, cost := range []struct {
		name  string
		value float64
	}{
		{"requests-per-restart", c.RequestsPerRestart}, {"events-per-restart", float64(c.EventsPerRestart)}, {"request-limit", c.RequestLimit}, {"event-limit", c.EventLimit},
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

// CPU returns how many processors the kubelet uses for restarts and API requests in a period,
// including CPUIdle.
func (c Costs) CPU(restarts, requests float64, in time.Duration) float64 {
	return c.CPUIdle + (restarts*c.CPUPerRestart.Seconds()+requests*c.CPUPerRequest.Seconds())/in.Seconds()
}
