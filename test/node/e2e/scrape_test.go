// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// metrics are the metrics of a kubelet.
type metrics map[string]*dto.MetricFamily

// scrape reads the kubelet's metrics.
func (e *e2e) scrape(t *testing.T) metrics {
	t.Helper()
	text, err := e.fromKubelet("metrics").DoRaw(e.ctx)
	require.NoError(t, err)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	require.NoError(t, err)
	return families
}

// assertShape checks the metrics of restarts, with their types, labels and buckets.
func (m metrics) assertShape(t *testing.T) {
	t.Helper()
	for name, want := range restartMetrics {
		family, found := m[name]
		if !assert.True(t, found, "there is no metric %s", name) {
			continue
		}
		assert.Equal(t, want.kind, family.GetType(), "the type of %s", name)
		assert.True(t, strings.HasPrefix(family.GetHelp(), "[ALPHA] "), "the help of %s: %s", name, family.GetHelp())
		for _, series := range family.GetMetric() {
			var labels []string
			for _, l := range series.GetLabel() {
				labels = append(labels, l.GetName())
			}
			assert.ElementsMatch(t, want.labels, labels, "the labels of %s", name)
			if want.buckets != nil {
				var bounds []float64
				for _, b := range series.GetHistogram().GetBucket() {
					bounds = append(bounds, b.GetUpperBound())
				}
				assert.Equal(t, want.buckets, bounds[:min(len(bounds), len(want.buckets))], "the buckets of %s", name)
				assert.LessOrEqual(t, len(bounds), len(want.buckets)+1, "the buckets of %s, and one for all", name)
			}
		}
	}
	for name := range m {
		if strings.HasPrefix(name, "kubelet_restart_backoff") || strings.HasPrefix(name, "kubelet_pod_in_place") {
			assert.Contains(t, restartMetrics, name)
		}
	}
}

// series returns the series of a metric with these label values, in the order of
// restartMetrics. It returns nil if there is no such series, because nothing was counted.
func (m metrics) series(t *testing.T, name string, values ...string) *dto.Metric {
	t.Helper()
	family, found := m[name]
	require.True(t, found, "there is no metric %s", name)
	for _, series := range family.GetMetric() {
		matches := true
		for _, l := range series.GetLabel() {
			i := slices.Index(restartMetrics[name].labels, l.GetName())
			matches = matches && i >= 0 && values[i] == l.GetValue()
		}
		if matches {
			return series
		}
	}
	return nil
}

func (m metrics) value(t *testing.T, name string, values ...string) float64 {
	t.Helper()
	s := m.series(t, name, values...)
	return s.GetGauge().GetValue() + s.GetCounter().GetValue()
}

func (m metrics) histogram(t *testing.T, name string, values ...string) *dto.Histogram {
	t.Helper()
	return m.series(t, name, values...).GetHistogram()
}

// counts returns the number of samples in each bucket, not cumulative.
func counts(h *dto.Histogram) []uint64 {
	out := make([]uint64, len(restartMetrics[metricDelay].buckets))
	below := uint64(0)
	for i, b := range h.GetBucket() {
		if i < len(out) {
			out[i] = b.GetCumulativeCount() - below
			below = b.GetCumulativeCount()
		}
	}
	return out
}
