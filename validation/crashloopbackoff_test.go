// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubelet-backoff/kubelet-backoff/config"
)

func maximum(d time.Duration) *time.Duration { return &d }

func TestValidateCrashLoopBackOff(t *testing.T) {
	tests := []struct {
		name    string
		period  *time.Duration
		gateOff bool
		reduced bool
		// want is the value in the error, or "" for no error.
		want string
	}{
		{name: "missing"},
		{name: "missing, gate off", gateOff: true},
		{name: "least", period: maximum(time.Second)},
		{name: "least, a nanosecond short", period: maximum(time.Second - 1), want: "999.999999ms"},
		{name: "sub-second", period: maximum(999 * time.Millisecond), want: "999ms"},
		{name: "with a sub-second part", period: maximum(1500 * time.Millisecond)},
		{name: "greatest", period: maximum(300 * time.Second)},
		{name: "greatest, a nanosecond over", period: maximum(300*time.Second + 1), want: "5m0.000000001s"},
		{name: "upstream truncates it", period: maximum(300*time.Second + 400*time.Microsecond), want: "5m0.0004s"},
		{name: "zero", period: maximum(0), want: "0s"},
		{name: "negative", period: maximum(-time.Second), want: "-1s"},
		{name: "least int", period: maximum(-1 << 63), want: "-2562047h47m16.854775808s"},
		{name: "greatest int", period: maximum(1<<63 - 1), want: "2562047h47m16.854775807s"},
		{name: "KEP-5593, invalid per node config, 301s", period: maximum(301 * time.Second), want: "5m1s"},
		{name: "KEP-4603 of 2024, invalid per node config, 301s", period: maximum(301 * time.Second), want: "5m1s"},
		{name: "KEP-4603 of 2024, invalid per node config, reduced, 301s", period: maximum(301 * time.Second), reduced: true, want: "5m1s"},
		{name: "not honored, so not wrong", period: maximum(301 * time.Second), gateOff: true},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			s := config.Settings{
				MaxContainerRestartPeriod:          tc.period,
				KubeletCrashLoopBackOffMax:         !tc.gateOff,
				ReduceDefaultCrashLoopBackOffDecay: tc.reduced,
			}
			errs := ValidateCrashLoopBackOff(s, field.NewPath("crashLoopBackOff"))
			if tc.want == "" {
				require.Empty(t, errs)
				return
			}
			require.Equal(t, field.ErrorList{field.Invalid(field.NewPath("crashLoopBackOff", "maxContainerRestartPeriod"), tc.want, "must be from 1s to 300s")}, errs)
		})
	}
}

func TestWarningsForCrashLoopBackOff(t *testing.T) {
	ignored := Warning{"crashLoopBackOff.maxContainerRestartPeriod", "not honored: the feature gate KubeletCrashLoopBackOffMax is off"}
	images := Warning{"", "image pulls have a separate back-off, 10s to 300s, which this configuration does not change"}
	tests := []struct {
		name string
		s    config.Settings
		want []Warning
	}{
		{"default", config.Settings{KubeletCrashLoopBackOffMax: true}, nil},
		{"the default, set", config.Settings{KubeletCrashLoopBackOffMax: true, MaxContainerRestartPeriod: maximum(300 * time.Second)}, nil},
		{"a maximum", config.Settings{KubeletCrashLoopBackOffMax: true, MaxContainerRestartPeriod: maximum(4 * time.Second)}, []Warning{images}},
		{"reduced decay", config.Settings{ReduceDefaultCrashLoopBackOffDecay: true}, []Warning{images}},
		{"gate off", config.Settings{MaxContainerRestartPeriod: maximum(4 * time.Second)}, []Warning{ignored}},
		{"gate off, reduced decay", config.Settings{ReduceDefaultCrashLoopBackOffDecay: true, MaxContainerRestartPeriod: maximum(4 * time.Second)}, []Warning{ignored, images}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.want, WarningsForCrashLoopBackOff(tc.s, field.NewPath("crashLoopBackOff")))
		})
	}
}

// A valid, honored maximum takes effect unchanged, and an invalid one would be
// changed.
func FuzzValidateCrashLoopBackOff(f *testing.F) {
	for _, n := range []int64{0, -1, 1, int64(time.Second), int64(300 * time.Second), -1 << 63, 1<<63 - 1} {
		f.Add(n, true, true)
		f.Add(n, false, false)
	}
	f.Fuzz(func(t *testing.T, n int64, max, reduced bool) {
		period := time.Duration(n)
		s := config.Settings{MaxContainerRestartPeriod: &period, KubeletCrashLoopBackOffMax: max, ReduceDefaultCrashLoopBackOffDecay: reduced}
		errs := ValidateCrashLoopBackOff(s, nil)
		c := config.Resolve(s)
		require.Equal(t, !max, len(errs) == 0 && c.Ignored)
		if max {
			require.Equal(t, len(errs) == 0, c.Max == period)
		}
		require.Equal(t, !max, c.Warning() != "")
		WarningsForCrashLoopBackOff(s, nil)
	})
}
