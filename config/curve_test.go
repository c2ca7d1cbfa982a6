// SPDX-License-Identifier: Apache-2.0

package config

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	backoff "github.com/kubelet-backoff/kubelet-backoff/backoff"
)

func settingsMax(d time.Duration) *time.Duration { return &d }

// The conflict tables of the KEPs, row by row. In some rows the column
// "Effective initial value" has the configured maximum instead of the initial
// value. The prose above each table lowers the initial value to a smaller
// maximum, and never raises it; newCrashLoopBackOff of pkg/kubelet does the
// same. These rows follow prose and code. The rows with 301 s, which the
// kubelet rejects at start, are tests of the validation.
func TestResolveConflictTables(t *testing.T) {
	const (
		disabled    = time.Duration(-1) // the gate KubeletCrashLoopBackOffMax
		proseAsCode = "prose and newCrashLoopBackOff: a maximum above the initial value leaves it alone"
	)
	tests := []struct {
		kep, scenario string
		reduced       bool
		// max is the column KubeletCrashLoopBackOffMax. In the earlier KEPs its
		// name is EnableKubeletCrashLoopBackoffMax.
		max time.Duration
		// table is the column "Effective initial value".
		table time.Duration
		// initial differs from table exactly if instead gives the reason.
		initial, wantMax         time.Duration
		instead                  string
		initialReason, maxReason Reason
	}{
		{"5593", "today's behavior", false, disabled, 10 * time.Second,
			10 * time.Second, 300 * time.Second, "", ReasonDefault, ReasonDefault},
		{"5593", "faster per node config", false, 2 * time.Second, 2 * time.Second,
			2 * time.Second, 2 * time.Second, "", ReasonClamped, ReasonPerNodeMaximum},
		{"5593", "slower per node config, 10s", false, 10 * time.Second, 10 * time.Second,
			10 * time.Second, 10 * time.Second, "", ReasonDefault, ReasonPerNodeMaximum},
		{"5593", "slower per node config, 11s", false, 11 * time.Second, 11 * time.Second,
			10 * time.Second, 11 * time.Second, proseAsCode, ReasonDefault, ReasonPerNodeMaximum},
		{"5593", "slower per node config, 300s", false, 300 * time.Second, 300 * time.Second,
			10 * time.Second, 300 * time.Second, proseAsCode, ReasonDefault, ReasonPerNodeMaximum},

		{"4603 of 2024", "today's behavior", false, disabled, 10 * time.Second,
			10 * time.Second, 300 * time.Second, "", ReasonDefault, ReasonDefault},
		{"4603 of 2024", "new default only", true, disabled, 1 * time.Second,
			1 * time.Second, 60 * time.Second, "", ReasonReducedDecay, ReasonReducedDecay},
		{"4603 of 2024", "faster per node config", false, 2 * time.Second, 2 * time.Second,
			2 * time.Second, 2 * time.Second, "", ReasonClamped, ReasonPerNodeMaximum},
		{"4603 of 2024", "faster per node config, reduced", true, 2 * time.Second, 2 * time.Second,
			1 * time.Second, 2 * time.Second, proseAsCode, ReasonReducedDecay, ReasonPerNodeMaximum},
		{"4603 of 2024", "slower per node config, reduced, 10s", true, 10 * time.Second, 10 * time.Second,
			1 * time.Second, 10 * time.Second, proseAsCode, ReasonReducedDecay, ReasonPerNodeMaximum},
		{"4603 of 2024", "slower per node config, reduced, 300s", true, 300 * time.Second, 300 * time.Second,
			1 * time.Second, 300 * time.Second, proseAsCode, ReasonReducedDecay, ReasonPerNodeMaximum},
		{"4603 of 2024", "slower per node config, 11s", false, 11 * time.Second, 11 * time.Second,
			10 * time.Second, 11 * time.Second, proseAsCode, ReasonDefault, ReasonPerNodeMaximum},
		{"4603 of 2024", "slower per node config, 300s", false, 300 * time.Second, 300 * time.Second,
			10 * time.Second, 300 * time.Second, proseAsCode, ReasonDefault, ReasonPerNodeMaximum},

		{"4603", "today's behavior", false, disabled, 10 * time.Second,
			10 * time.Second, 300 * time.Second, "", ReasonDefault, ReasonDefault},
		{"4603", "new default only", true, disabled, 1 * time.Second,
			1 * time.Second, 60 * time.Second, "", ReasonReducedDecay, ReasonReducedDecay},
		{"4603", "faster per node config", true, 2 * time.Second, 2 * time.Second,
			1 * time.Second, 2 * time.Second, proseAsCode, ReasonReducedDecay, ReasonPerNodeMaximum},
		{"4603", "slower per node config, 10s", true, 10 * time.Second, 10 * time.Second,
			1 * time.Second, 10 * time.Second, proseAsCode, ReasonReducedDecay, ReasonPerNodeMaximum},
		{"4603", "slower per node config, 300s", true, 300 * time.Second, 300 * time.Second,
			1 * time.Second, 300 * time.Second, proseAsCode, ReasonReducedDecay, ReasonPerNodeMaximum},
	}
	for _, tc := range tests {
		t.Run("KEP-"+tc.kep+"/"+tc.scenario, func(t *testing.T) {
			require.Equal(t, tc.table != tc.initial, tc.instead != "", "the row says why it leaves the table")
			s := Settings{ReduceDefaultCrashLoopBackOffDecay: tc.reduced}
			if tc.max != disabled {
				s.KubeletCrashLoopBackOffMax = true
				s.MaxContainerRestartPeriod = settingsMax(tc.max)
			}
			require.Equal(t, Curve{
				Curve:         backoff.Curve{Initial: tc.initial, Max: tc.wantMax},
				InitialReason: tc.initialReason, MaxReason: tc.maxReason,
			}, Resolve(s), tc.instead)
		})
	}
}

// The prose around the tables, and cases that the KEPs leave out.
func TestResolve(t *testing.T) {
	defaults := Curve{Curve: backoff.Curve{Initial: DefaultInitial, Max: DefaultMax}, InitialReason: ReasonDefault, MaxReason: ReasonDefault}
	reduced := Curve{Curve: backoff.Curve{Initial: ReducedInitial, Max: ReducedMax}, InitialReason: ReasonReducedDecay, MaxReason: ReasonReducedDecay}
	ignored := func(c Curve) Curve { c.Ignored = true; return c }
	perNode := func(initial, max time.Duration, reason Reason) Curve {
		return Curve{Curve: backoff.Curve{Initial: initial, Max: max}, InitialReason: reason, MaxReason: ReasonPerNodeMaximum}
	}
	tests := []struct {
		name string
		s    Settings
		want Curve
	}{
		{"a maximum of 1s, the KEPs' example", Settings{KubeletCrashLoopBackOffMax: true, MaxContainerRestartPeriod: settingsMax(time.Second)},
			perNode(time.Second, time.Second, ReasonClamped)},
		{"a maximum of 1s, reduced: nothing to lower", Settings{KubeletCrashLoopBackOffMax: true, ReduceDefaultCrashLoopBackOffDecay: true, MaxContainerRestartPeriod: settingsMax(time.Second)},
			perNode(time.Second, time.Second, ReasonReducedDecay)},
		{"gate on without a maximum", Settings{KubeletCrashLoopBackOffMax: true}, defaults},
		{"gate on without a maximum, reduced", Settings{KubeletCrashLoopBackOffMax: true, ReduceDefaultCrashLoopBackOffDecay: true}, reduced},
		{"gate off with a maximum", Settings{MaxContainerRestartPeriod: settingsMax(4 * time.Second)}, ignored(defaults)},
		{"gate off with a maximum, reduced", Settings{ReduceDefaultCrashLoopBackOffDecay: true, MaxContainerRestartPeriod: settingsMax(4 * time.Second)}, ignored(reduced)},
		{"below the range", Settings{KubeletCrashLoopBackOffMax: true, MaxContainerRestartPeriod: settingsMax(-time.Second)},
			perNode(time.Second, time.Second, ReasonClamped)},
		{"above the range", Settings{KubeletCrashLoopBackOffMax: true, MaxContainerRestartPeriod: settingsMax(301 * time.Second)},
			perNode(10*time.Second, 300*time.Second, ReasonDefault)},
		{"first restart delayed", Settings{KubeletDelayFirstContainerRestart: true},
			Curve{Curve: backoff.Curve{Initial: DefaultInitial, Max: DefaultMax, DelayFirst: true}, InitialReason: ReasonDefault, MaxReason: ReasonDefault}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			got := Resolve(tc.s)
			require.Equal(t, tc.want, got)
			require.Equal(t, got.Ignored, got.Warning() != "", "Warning exactly when something is ignored")
		})
	}
}

func TestCurveDelays(t *testing.T) {
	s := func(seconds ...int) []time.Duration {
		delays := make([]time.Duration, 0, len(seconds))
		for _, n := range seconds {
			delays = append(delays, time.Duration(n)*time.Second)
		}
		return delays
	}
	tests := []struct {
		name string
		s    Settings
		want []time.Duration
	}{
		{"default", Settings{}, s(0, 10, 20, 40, 80, 160, 300)},
		{"first restart delayed", Settings{KubeletDelayFirstContainerRestart: true}, s(10, 20, 40, 80, 160, 300)},
		{"reduced decay", Settings{ReduceDefaultCrashLoopBackOffDecay: true}, s(0, 1, 2, 4, 8, 16, 32, 60)},
		{"maximum below the initial value", Settings{KubeletCrashLoopBackOffMax: true, MaxContainerRestartPeriod: settingsMax(4 * time.Second)}, s(0, 4)},
		{"maximum that is no doubling", Settings{KubeletCrashLoopBackOffMax: true, MaxContainerRestartPeriod: settingsMax(25 * time.Second)}, s(0, 10, 20, 25)},
		{"maximum equal to the first delay", Settings{KubeletCrashLoopBackOffMax: true, KubeletDelayFirstContainerRestart: true, MaxContainerRestartPeriod: settingsMax(time.Second)}, s(1)},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			c := Resolve(tc.s)
			require.Equal(t, tc.want, c.Delays())
			for i, d := range tc.want {
				require.Equal(t, d, c.Delay(i+1), "attempt %d", i+1)
			}
			require.Equal(t, c.Max, c.Delay(len(tc.want)+1))
			require.Equal(t, c.Max, c.Delay(math.MaxInt))
			require.Zero(t, c.Delay(0))
			require.Zero(t, c.Delay(math.MinInt))
		})
	}
}

func TestCurveString(t *testing.T) {
	c := Resolve(Settings{KubeletCrashLoopBackOffMax: true, MaxContainerRestartPeriod: settingsMax(4 * time.Second)})
	require.Equal(t, "[0s 4s] … (initial 4s: Clamped, maximum 4s: PerNodeMaximum)", c.String())
}
