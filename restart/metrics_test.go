// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
)

// A start that is given back and allowed again is one restart. A restart after a kill
// is one too.
func TestRestartsAreCountedOnce(t *testing.T) {
	a := newAgent(t)
	m := &delays{}
	a.backOff.SetMetrics(m)
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

func (*delays) KeyAdded()   {}
func (*delays) KeyRemoved() {}
func (*delays) KeyReset()   {}
func (d *delays) RestartAllowed(_ string, delay, late time.Duration) {
	d.delays = append(d.delays, delay.Seconds())
	if delay > 0 {
		d.lateness = append(d.lateness, late.Seconds())
	}
}
