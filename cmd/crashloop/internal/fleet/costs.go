// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"time"
)

// Costs are what restarts cost a node.
type Costs struct {
	// RequestsPerRestart is how many API requests the kubelet makes for a restart.
	RequestsPerRestart float64
	// RequestLimit is how many API requests the kubelet makes in a second at most, or 0 for no
	// limit. What is above it is left out: the kubelet merges statuses and drops events.
	RequestLimit float64
	// CPUPerRestart is what the kubelet needs of a processor for a restart.
	CPUPerRestart time.Duration
	// CPUIdle is how many processors the kubelet needs without restarts.
	CPUIdle float64
}

// MeasuredCosts are the costs of the patched kubelet in docs/results/load.json, rounded. A test
// derives them from there again. RequestsPerRestart is from the mix tenth/110, in which nothing
// waits for the client's limits. The CPU is the straight line through the mixes tenth/110 and
// all-fail/110. The limit is the sum of kubeAPIQPS and eventRecordQPS of a KubeletConfiguration,
// each 50 by default.
var MeasuredCosts = Costs{
	RequestsPerRestart: 4.05,
	RequestLimit:       100,
	CPUPerRestart:      5400 * time.Microsecond,
	CPUIdle:            0.12,
}

func (c Costs) validate() error {
	for _, cost := range []struct {
		name  string
		value float64
	}{
		{"requests per restart", c.RequestsPerRestart}, {"request limit", c.RequestLimit},
		{"CPU per restart in seconds", c.CPUPerRestart.Seconds()}, {"idle CPU", c.CPUIdle},
	} {
		if !(cost.value >= 0 && cost.value <= mostCost) {
			return fmt.Errorf("%s: %v: must be from 0 to %.0f", cost.name, cost.value, mostCost)
		}
	}
	return nil
}

// milli is a number in thousandths. Sums of integers are the same in any order.
func milli(n float64) uint64 { return uint64(n*1000 + 0.5) }

// millis is how many API requests, in thousandths, a node makes for restarts in a time.
func (c Costs) millis(restarts uint64, in time.Duration) uint64 {
	n := restarts * milli(c.RequestsPerRestart)
	if c.RequestLimit > 0 {
		n = min(n, milli(c.RequestLimit*in.Seconds()))
	}
	return n
}

// CPU is how many processors the kubelet needs for restarts in a time, what it needs without them
// included.
func (c Costs) CPU(restarts float64, in time.Duration) float64 {
	return c.CPUIdle + restarts*c.CPUPerRestart.Seconds()/in.Seconds()
}

// Requests is how many API requests a node makes for restarts in a time.
func (c Costs) Requests(restarts uint64, in time.Duration) float64 {
	return float64(c.millis(restarts, in)) / 1000
}
