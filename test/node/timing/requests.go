// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/node"
)

// requests returns how many requests for pods and events the server has
// answered, by verb and resource. Nobody but the kubelet makes any, once the
// pods are created: there is no scheduler and no controller. A watch is counted
// when it ends, which has nothing to do with restarts.
func requests(ctx context.Context, api *node.APIServer) (map[string]float64, error) {
	var families map[string]*dto.MetricFamily
	err := api.Request(ctx, http.MethodGet, "/metrics", nil, func(body io.Reader) (err error) {
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err = parser.TextToMetricFamilies(body)
		return err
	})
	if err != nil {
		return nil, err
	}
	const metric = "apiserver_request_total"
	family, found := families[metric]
	if !found {
		return nil, fmt.Errorf("kube-apiserver has no metric %s", metric)
	}
	return countRequests(family), nil
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

// increase is what was added between two counts.
func increase(before, after map[string]float64) map[string]float64 {
	d := map[string]float64{}
	for kind, count := range after {
		if grown := count - before[kind]; grown > 0 {
			d[kind] = grown
		}
	}
	return d
}
