// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubelet-backoff/kubelet-backoff/asked"
	"github.com/kubelet-backoff/kubelet-backoff/backoff"
)

// A container has the back-off that an annotation asks for, and the others that of the node.
func TestCurves(t *testing.T) {
	for name, tc := range map[string]struct {
		value string
		code  int32
		want  []time.Duration
	}{
		"curve":      {"initial=2s,max=5s", 1, []time.Duration{0, 1, 4, 9, 15, 21, 27}},
		"ignore":     {"ignore=1", 1, []time.Duration{0, 1, 2, 3, 4, 5, 6}},
		"not that":   {"ignore=2", 1, []time.Duration{0, 1, 12}},
		"is invalid": {"max=0s", 1, []time.Duration{0, 1, 12}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(time.Second, tc.code)
			p := pod(t, `containers: [{name: main}]`)
			p.Annotations = map[string]string{asked.CurvePrefix + "main": tc.value}
			a, err := New(Options{Pod: p, Runtime: s, Curves: asked.NewCurves(backoff.Curve{Initial: 10 * time.Second, Max: 300 * time.Second})})
			require.NoError(t, err)
			s.drive(a, 30*time.Second)
			starts := inSeconds(s.starts)
			require.Equal(t, tc.want, starts[:len(tc.want)])
		})
	}
}
