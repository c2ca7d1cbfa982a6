// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/record"

	"github.com/kubelet-backoff/kubelet-backoff/asked"
)

// An annotation ends the wait of a container, or of a restart of the pod, and the curve
// starts over.
func TestRestartAt(t *testing.T) {
	for name, spec := range map[string]string{
		"container": `containers: [{name: main}]`,
		"pod":       `containers: [{name: main, restartPolicy: Never, restartPolicyRules: [{action: RestartPod, exitCodes: {operator: In, values: [88]}}]}]`,
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(time.Second, 88)
			annotations, events := map[string]string(nil), record.NewFakeRecorder(100)
			a, err := New(Options{
				Pod: pod(t, spec), Runtime: s, Gates: allGates, Recorder: events, RestartAt: &asked.Restarts{},
				Annotations: func() map[string]string { return annotations },
			})
			require.NoError(t, err)
			s.drive(a, 400*time.Second)
			require.Equal(t, []time.Duration{0, 1, 12, 33, 74, 155, 316}, inSeconds(s.starts))
			annotations = map[string]string{asked.RestartAtAnnotation: s.begin.Add(450 * time.Second).Format(time.RFC3339)}
			s.drive(a, 100*time.Second)
			require.Equal(t, []time.Duration{450, 461, 482}, inSeconds(s.starts[7:]))
			var honored int
			for len(events.Events) > 0 {
				if strings.HasPrefix(<-events.Events, "Normal "+asked.EventBackOffEnded) {
					honored++
				}
			}
			require.Equal(t, 1, honored)
		})
	}
}

// Without RestartAt, an annotation has no effect.
func TestRestartAtOff(t *testing.T) {
	s := newScript(time.Second, 1)
	p := pod(t, `containers: [{name: main}]`)
	p.Annotations = map[string]string{asked.RestartAtAnnotation: s.begin.Add(100 * time.Second).Format(time.RFC3339)}
	s.drive(s.agent(t, p), 400*time.Second)
	require.Equal(t, []time.Duration{0, 1, 12, 33, 74, 155, 316}, inSeconds(s.starts))
}
