// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// An agent with a status file continues the back-offs of the one before it, in each state of a
// container, and whatever back-offs it has.
func TestNextAgentKeepsBackOff(t *testing.T) {
	for _, tc := range []struct {
		name, spec string
		code       int32
		// dies is when the first agent dies, and dead for how long no agent runs.
		dies, dead time.Duration
		want       []time.Duration
	}{
		// Without agents that die, they start at 0, 1, 12, 33, 74 and 155 s.
		{"while it waits", `containers: [{name: main}]`, 1, 40 * time.Second, time.Second, []time.Duration{0, 1, 12, 33, 74, 155}},
		{"while it runs", `containers: [{name: main}]`, 1, 33*time.Second + 500*time.Millisecond, 0, []time.Duration{0, 1, 12, 33, 74, 155}},
		{"for longer than the wait", `containers: [{name: main}]`, 1, 40 * time.Second, time.Minute, []time.Duration{0, 1, 12, 33, 100, 181}},
		{"restarts of the pod", `containers: [{name: main, restartPolicy: Never, restartPolicyRules: [{action: RestartPod, exitCodes: {operator: In, values: [88]}}]}]`,
			88, 40 * time.Second, time.Second, []time.Duration{0, 1, 12, 33, 74, 155}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "status.json")
			s := newScript(time.Second, tc.code)
			p := pod(t, tc.spec)
			another := func() *Agent {
				a, err := New(Options{Pod: p, Runtime: s, StatusFile: file, Gates: allGates})
				require.NoError(t, err)
				return a
			}
			require.False(t, s.drive(another(), tc.dies))
			s.now = s.now.Add(tc.dead)
			require.False(t, s.drive(another(), s.begin.Add(200*time.Second).Sub(s.now)))
			require.Equal(t, tc.want, inSeconds(s.starts))
		})
	}
}
