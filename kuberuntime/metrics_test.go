// SPDX-License-Identifier: Apache-2.0

package kuberuntime

import (
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"

	backoff "github.com/kubelet-backoff/kubelet-backoff/backoff"
)

// A start that is given back and allowed again is one restart. A restart after a kill
// is one too.
func TestRestartsAreCountedOnce(t *testing.T) {
	a := newAgent(t)
	m := &delays{}
	a.backOff.SetMetrics("c", m)
	a.pod.Spec.RestartPolicy = v1.RestartPolicyOnFailure
	a.starts(0, running(0))
	for i := range 5 {
		a.starts(20+float64(i), exited(1, 1))
		a.lacks(20 + float64(i))
	}
	assert.Equal(t, &delays{delays: []float64{0, 10}, lateness: []float64{9}}, m)
	a.starts(30, exited(1, 1))
	a.fails(31, 51)
	a.starts(51, exited(1, 1))
	assert.Equal(t, &delays{delays: []float64{0, 10, 20}, lateness: []float64{9, 0}}, m)
}

type delays struct{ delays, lateness []float64 }

type observed struct{ values *[]float64 }

func (o observed) Observe(v float64) { *o.values = append(*o.values, v) }

func (d *delays) NewKeysMetric(string) backoff.GaugeMetric         { return nil }
func (d *delays) NewDelayMetric(string) backoff.HistogramMetric    { return observed{&d.delays} }
func (d *delays) NewLatenessMetric(string) backoff.HistogramMetric { return observed{&d.lateness} }
func (d *delays) NewResetsMetric(string) backoff.CounterMetric     { return nil }
