// SPDX-License-Identifier: Apache-2.0

package figures

import (
	"context"
	"fmt"
	"io"
	"net/http"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
)

// Requests returns the number of requests for pods and events that the server has
// answered, by verb and resource. After the pods are created, only the kubelet sends
// any, because there is no scheduler and no controller. It leaves out watches,
// because they count when they end, which does not depend on restarts.
func Requests(ctx context.Context, api *harness.APIServer) (counts map[string]float64, err error) {
	err = api.Request(ctx, http.MethodGet, "/metrics", nil, func(body io.Reader) error {
		families, err := ParseMetrics(body)
		if err != nil {
			return err
		}
		const metric = "apiserver_request_total"
		family, found := families[metric]
		if !found {
			return fmt.Errorf("kube-apiserver has no metric %s", metric)
		}
		counts = countRequests(family)
		return nil
	})
	return counts, err
}

// ParseMetrics reads metrics in Prometheus' text format.
func ParseMetrics(text io.Reader) (map[string]*dto.MetricFamily, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(text)
}

func countRequests(family *dto.MetricFamily) map[string]float64 {
	counts := map[string]float64{}
	for _, m := range family.GetMetric() {
		label := map[string]string{}
		for _, l := range m.GetLabel() {
			label[l.GetName()] = l.GetValue()
		}
		if r := label["resource"]; (r == "pods" || r == "events") && label["verb"] != "WATCH" {
			counts[label["verb"]+" "+r] += m.GetCounter().GetValue()
		}
	}
	return counts
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
