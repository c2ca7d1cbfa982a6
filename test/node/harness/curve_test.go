// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"slices"
	"testing"
	"time"
)

func TestDelay(t *testing.T) {
	for _, tc := range []struct {
		name  string
		curve Curve
		want  []float64
	}{
		{"default", Curve{}, []float64{0, 10, 20, 40, 80, 160, 300, 300}},
		{"below the initial delay", Curve{Maximum: time.Second}, []float64{0, 1, 1, 1}},
		{"below the initial delay, 4s", Curve{Maximum: 4 * time.Second}, []float64{0, 4, 4, 4}},
		{"between two steps", Curve{Maximum: 25 * time.Second}, []float64{0, 10, 20, 25, 25}},
		{"on a step", Curve{Maximum: 20 * time.Second}, []float64{0, 10, 20, 20}},
		{"reduced", Curve{Reduced: true}, []float64{0, 1, 2, 4, 8, 16, 32, 60, 60}},
		{"reduced, with a maximum", Curve{Reduced: true, Maximum: 2 * time.Second}, []float64{0, 1, 2, 2}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []float64
			for n := range tc.want {
				got = append(got, tc.curve.Delay(n).Seconds())
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("Delay(%v, 0…%d) = %v, want %v", tc.curve, len(tc.want)-1, got, tc.want)
			}
		})
	}
	if got := (Curve{}).Delay(1 << 40); got != 300*time.Second {
		t.Errorf("Delay(0, 1<<40) = %v, want 300s", got)
	}
}
