// SPDX-License-Identifier: Apache-2.0

package figures

import (
	"maps"
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
