// SPDX-License-Identifier: Apache-2.0

package figures

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
)

// Requests returns the number of requests for pods and events that the server has
// answered, by verb and resource, and how long it took for them. After the pods are created, only the kubelet sends
// any, because there is no scheduler and no controller. It leaves out watches,
// because they count when they end, which does not depend on restarts.
func Requests(ctx context.Context, api *harness.APIServer) (counts map[string]float64, d Durations, err error) {
	err = api.Request(ctx, http.MethodGet, "/metrics", nil, func(body io.Reader) error {
		families, err := ParseMetrics(body)
		if err != nil {
			return err
		}
		for _, metric := range []string{metricRequests, metricDurations} {
			if families[metric] == nil {
				return fmt.Errorf("kube-apiserver has no metric %s", metric)
			}
		}
		counts, d = countRequests(families[metricRequests]), durations(families[metricDurations])
		return nil
	})
	return counts, d, err
}

// The metrics of kube-apiserver that Requests reads.
const (
	metricRequests  = "apiserver_request_total"
	metricDurations = "apiserver_request_duration_seconds"
)

// Durations has the number of requests that a server has answered within each time in seconds.
type Durations map[float64]float64

func durations(family *dto.MetricFamily) Durations {
	d := Durations{}
	for _, m := range family.GetMetric() {
		if kind(m) != "" {
			for _, b := range m.GetHistogram().GetBucket() {
				d[b.GetUpperBound()] += float64(b.GetCumulativeCount())
			}
		}
	}
	return d
}

// Quantile estimates a quantile of the requests since earlier, as Prometheus does: it takes durations as evenly spread between
// two bounds. It is 0 if there were none.
func (d Durations) Quantile(q float64, earlier Durations) float64 {
	bounds := slices.Sorted(maps.Keys(d))
	if len(bounds) == 0 {
		return 0
	}
	since := func(bound float64) float64 { return d[bound] - earlier[bound] }
	rank, below, lower := q*since(bounds[len(bounds)-1]), 0.0, 0.0
	for _, bound := range bounds {
		if n := since(bound); n > 0 && n >= rank {
			if math.IsInf(bound, 1) {
				return lower
			}
			return lower + (bound-lower)*(rank-below)/(n-below)
		}
		below, lower = since(bound), bound
	}
	return 0
}

// ParseMetrics reads metrics in Prometheus' text format.
func ParseMetrics(text io.Reader) (map[string]*dto.MetricFamily, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(text)
}

func countRequests(family *dto.MetricFamily) map[string]float64 {
	counts := map[string]float64{}
	for _, m := range family.GetMetric() {
		if k := kind(m); k != "" {
			counts[k] += m.GetCounter().GetValue()
		}
	}
	return counts
}

// kind returns the verb and the resource of requests that Requests counts, and otherwise "".
func kind(m *dto.Metric) string {
	label := map[string]string{}
	for _, l := range m.GetLabel() {
		label[l.GetName()] = l.GetValue()
	}
	if r := label["resource"]; (r == "pods" || r == "events") && label["verb"] != "WATCH" {
		return label["verb"] + " " + r
	}
	return ""
}

// Increase returns the differences of two counts.
func Increase(before, after map[string]float64) map[string]float64 {
	d := map[string]float64{}
	for kind, count := range after {
		if grown := count - before[kind]; grown > 0 {
			d[kind] = grown
		}
	}
	return d
}
