// SPDX-License-Identifier: Apache-2.0

package figures

import (
	"maps"
	"math"
	"strings"
	"testing"
)

func TestCountRequests(t *testing.T) {
	const text = `# TYPE apiserver_request_total counter
apiserver_request_total{code="200",resource="pods",subresource="",verb="GET"} 3
apiserver_request_total{code="404",resource="pods",subresource="",verb="GET"} 1
apiserver_request_total{code="200",resource="pods",subresource="status",verb="PATCH"} 5
apiserver_request_total{code="200",resource="pods",subresource="",verb="WATCH"} 7
apiserver_request_total{code="201",resource="events",subresource="",verb="POST"} 2
apiserver_request_total{code="200",resource="leases",subresource="",verb="PUT"} 9
`
	families, err := ParseMetrics(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	got := countRequests(families["apiserver_request_total"])
	if want := map[string]float64{"GET pods": 4, "PATCH pods": 5, "POST events": 2}; !maps.Equal(got, want) {
		t.Errorf("countRequests = %v, want %v", got, want)
	}
	before := map[string]float64{"GET pods": 1, "POST events": 2}
	if got, want := Increase(before, got), map[string]float64{"GET pods": 3, "PATCH pods": 5}; !maps.Equal(got, want) {
		t.Errorf("Increase = %v, want %v", got, want)
	}
}

func TestDurations(t *testing.T) {
	const text = `# TYPE apiserver_request_duration_seconds histogram
apiserver_request_duration_seconds_bucket{resource="pods",verb="PATCH",le="0.01"} 10
apiserver_request_duration_seconds_bucket{resource="pods",verb="PATCH",le="0.1"} 30
apiserver_request_duration_seconds_bucket{resource="pods",verb="PATCH",le="+Inf"} 30
apiserver_request_duration_seconds_bucket{resource="events",verb="POST",le="0.01"} 50
apiserver_request_duration_seconds_bucket{resource="events",verb="POST",le="0.1"} 50
apiserver_request_duration_seconds_bucket{resource="events",verb="POST",le="+Inf"} 54
apiserver_request_duration_seconds_bucket{resource="pods",verb="WATCH",le="0.01"} 0
apiserver_request_duration_seconds_bucket{resource="pods",verb="WATCH",le="0.1"} 0
apiserver_request_duration_seconds_bucket{resource="pods",verb="WATCH",le="+Inf"} 90
`
	families, err := ParseMetrics(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	d := durations(families["apiserver_request_duration_seconds"])
	if want := (Durations{0.01: 60, 0.1: 80, math.Inf(1): 84}); !maps.Equal(d, want) {
		t.Errorf("durations = %v, want %v", d, want)
	}
	earlier := Durations{0.01: 20, 0.1: 20, math.Inf(1): 20}
	for _, tc := range []struct {
		q       float64
		earlier Durations
		want    float64
	}{
		{0.5, earlier, 0.008},  // 32 of 64, and 40 are below 0.01
		{0.75, earlier, 0.046}, // 48: 8 of the 20 from 0.01 to 0.1
		{0.99, earlier, 0.1},   // more than the last bound
		{0.5, nil, 0.007},
		{0.5, d, 0},
	} {
		if got := d.Quantile(tc.q, tc.earlier); math.Abs(got-tc.want) > 1e-9 {
			t.Errorf("Quantile(%v, %v) = %v, want %v", tc.q, tc.earlier, got, tc.want)
		}
	}
	if got := (Durations{}).Quantile(0.5, nil); got != 0 {
		t.Errorf("Quantile without requests = %v, want 0", got)
	}
}
