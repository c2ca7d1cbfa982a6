// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/kubelet-backoff/kubelet-backoff/asked"
)

// The pod ends instead of a restart that is one too many.
func TestMaxRestarts(t *testing.T) {
	rule := `restartPolicy: Never, restartPolicyRules: [{action: RestartPod, exitCodes: {operator: In, values: [88]}}]`
	for name, tc := range map[string]struct {
		spec, max, what string
		starts          []time.Duration
		end             time.Duration
	}{
		"container":      {`containers: [{name: main}]`, "2", "Container main", []time.Duration{0, 1, 12}, 13},
		"none":           {`containers: [{name: main}]`, "0", "Container main", []time.Duration{0}, 1},
		"init container": {"initContainers: [{name: main}]\ncontainers: [{name: later}]", "1", "Container main", []time.Duration{0, 1}, 2},
		"pod":            {`containers: [{name: main, ` + rule + `}]`, "2", "The pod", []time.Duration{0, 1, 12}, 13},
		"no pod restart": {`containers: [{name: main, ` + rule + `}]`, "0", "The pod", []time.Duration{0}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s, events := newScript(time.Second, 88), record.NewFakeRecorder(100)
			p := pod(t, tc.spec)
			p.Annotations = map[string]string{asked.MaxRestartsAnnotation: tc.max}
			a, err := New(Options{Pod: p, Runtime: s, Gates: allGates, Recorder: events, MaxRestarts: &asked.Limits{}})
			require.NoError(t, err)
			require.True(t, s.drive(a, time.Hour))
			require.Equal(t, tc.starts, inSeconds(s.starts))
			require.Equal(t, tc.end*time.Second, s.now.Sub(s.begin))
			status := a.Status()
			require.Equal(t, v1.PodFailed, status.Phase)
			require.Equal(t, asked.ReasonRestartLimitExceeded, status.Reason)
			message := tc.what + " was restarted " + tc.max + " times in a row, and annotation kubelet-backoff.github.io/max-restarts allows " + tc.max
			require.Equal(t, message, status.Message)
			var warnings []string
			for len(events.Events) > 0 {
				if e := <-events.Events; e == "Warning RestartLimitExceeded "+message {
					warnings = append(warnings, e)
				}
			}
			require.Len(t, warnings, 1)
		})
	}
}

// Other containers are stopped, and one that has succeeded does not matter.
func TestMaxRestartsStopsOthers(t *testing.T) {
	s := newScript(0, 1)
	p := pod(t, "restartPolicy: OnFailure\ncontainers: [{name: a}, {name: b}, {name: c}]")
	p.Annotations = map[string]string{asked.MaxRestartsAnnotation: "0"}
	a, err := New(Options{Pod: p, Runtime: s, MaxRestarts: &asked.Limits{}})
	require.NoError(t, err)
	require.False(t, s.drive(a, time.Second))
	s.exit("b", 0)
	require.False(t, s.drive(a, time.Second))
	s.exit("c", 1)
	require.True(t, s.drive(a, time.Second))
	require.Equal(t, []string{"a", "b", "c"}, s.started)
	require.Equal(t, 1, s.stops)
	require.Equal(t, v1.PodFailed, a.Status().Phase)
	require.Equal(t, asked.ReasonRestartLimitExceeded, a.Status().Reason)
}

// An annotation that ends a wait counts first, as in the kubelet: it starts the curve over.
func TestMaxRestartsAndRestartAt(t *testing.T) {
	s, annotations := newScript(0, 1), map[string]string{asked.MaxRestartsAnnotation: "1"}
	a, err := New(Options{
		Pod: pod(t, `containers: [{name: main}]`), Runtime: s, MaxRestarts: &asked.Limits{}, RestartAt: &asked.Restarts{},
		Annotations: func() map[string]string { return annotations },
	})
	require.NoError(t, err)
	for n := 1; n <= 4; n++ {
		require.Equal(t, n == 4, s.drive(a, time.Second), n)
		if n < 4 {
			require.Len(t, s.starts, n)
			s.exit("main", 1)
		}
		if s.now = s.now.Add(10 * time.Millisecond); n == 2 {
			annotations[asked.RestartAtAnnotation] = s.now.Format(time.RFC3339Nano)
		}
	}
	require.Equal(t, asked.ReasonRestartLimitExceeded, a.Status().Reason)
}

// A pod that comes back with its UID is not over at once.
func TestMaxRestartsForgets(t *testing.T) {
	limits := &asked.Limits{}
	for range 2 {
		s := newScript(time.Second, 1)
		p := pod(t, `containers: [{name: main}]`)
		p.Annotations = map[string]string{asked.MaxRestartsAnnotation: "1"}
		a, err := New(Options{Pod: p, Runtime: s, MaxRestarts: limits})
		require.NoError(t, err)
		require.True(t, s.drive(a, time.Hour))
		require.Equal(t, []time.Duration{0, 1}, inSeconds(s.starts))
		require.Equal(t, asked.ReasonRestartLimitExceeded, a.Status().Reason)
	}
}
