// SPDX-License-Identifier: Apache-2.0

package harness

import "time"

// GateMaximum is the gate for a maximum. It is off by default before v1.35.
const GateMaximum = "KubeletCrashLoopBackOffMax"

// GateReduced is the gate for the reduced curve. Stock kubelets have it since v1.33.
const GateReduced = "ReduceDefaultCrashLoopBackOffDecay"

// Curve is the configuration of a kubelet's back-off.
type Curve struct {
	// Maximum is crashLoopBackOff.maxContainerRestartPeriod; zero leaves it unset.
	Maximum time.Duration `json:"maximum"`
	// Reduced switches GateReduced on.
	Reduced bool `json:"reduced"`
}

// Delay returns the curve's delay before restart n, counted from 0. It does not use
// the library, because a bug there would then change the expectation as well as the
// behavior.
func (c Curve) Delay(n int) time.Duration {
	if n <= 0 {
		return 0
	}
	d, limit := 10*time.Second, 300*time.Second
	if c.Reduced {
		d, limit = time.Second, time.Minute
	}
	if c.Maximum > 0 {
		limit = c.Maximum
	}
	for range n - 1 {
		if d >= limit {
			break
		}
		d *= 2
	}
	return min(d, limit)
}
