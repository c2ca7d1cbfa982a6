// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubelet-backoff/kubelet-backoff/asked"
)

// A status does not show which exits were ignored. The plan uses the last one, and says what it
// assumes.
func TestMakeCurves(t *testing.T) {
	const spec = "spec: {containers: [{name: main}]}\n"
	status := func(restarts, state, last string) string {
		return spec + "status: {phase: Running, containerStatuses: [{name: main, containerID: 'c://b', restartCount: " + restarts +
			", state: {" + state + "}, lastState: {terminated: {containerID: 'c://a', startedAt: '2026-01-01T11:59:20Z', finishedAt: '2026-01-01T11:59:50Z', exitCode: " + last + "}}}]}"
	}
	waiting := func(delay string) string {
		return "waiting: {reason: CrashLoopBackOff, message: 'back-off " + delay + " restarting failed container=main pod=web_default(x)'}"
	}
	const running = "running: {startedAt: '2026-01-01T11:59:50Z'}"
	for _, tc := range []struct{ name, value, pod, lives, want, note string }{
		{"new", "ignore=0", spec, "0@300ms,0@300ms,1@300ms,1@300ms", "0s Start main 0\n300ms Exit main 0\n300ms Start main 1\n600ms Exit main 0\n600ms Wait main 0.7s until 1.3s\n" +
			"1.3s Start main 2\n1.6s Exit main 1\n1.6s Wait main 0.7s until 2.3s\n2.3s Start main 3\n2.6s Exit main 1\n2.6s Wait main 10s until 12.6s\n", ""},
		{"runs after an exit that is ignored", "ignore=0", status("500", running, "0"), "1@20s", "10s Exit main 1\n10s Start main 501\n30s Exit main 1\n30s Wait main 10s until 40s\n", ""},
		{"runs after a failure", "ignore=0", status("4", running, "1"), "1@20s", "10s Exit main 1\n10s Wait main 80s until 1m30s\n", "does not say which restarts of main were after exits that are ignored"},
		{"waits for the rest of a second", "ignore=0", status("500", waiting("642ms"), "0"), "0@90s", "0s Start main 501\n", ""},
		{"waits for the rest of a second after a failure", "ignore=0", status("500", waiting("642ms"), "1"), "1@20s", "0s Start main 501\n20s Exit main 1\n20s Wait main 10s until 30s\n", ""},
		{"waits on another curve", "initial=3s,max=30s", status("5", waiting("40s"), "1"), "1@90s", "0s Wait main 30s until 20s\n20s Start main 6\n", "not a delay of its annotation"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := options(t, tc.pod).with(t, "main", tc.lives)
			o.Curves, o.For = true, 30*time.Second
			o.Pod.Annotations = map[string]string{asked.CurvePrefix + "main": tc.value}
			p, err := Make(o)
			require.NoError(t, err)
			assert.Contains(t, text(p), tc.want)
			if tc.note == "" {
				assert.Empty(t, p.Notes)
			} else {
				require.Len(t, p.Notes, 1)
				assert.Contains(t, p.Notes[0], tc.note)
			}
		})
	}
}
