// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/restart"
)

// After a deletion all preStop hooks run at once, as in the kubelet, and sidecars stop
// last.
func TestDelete(t *testing.T) {
	for _, tc := range []struct {
		name  string
		takes time.Duration
		want  string
	}{
		{
			name:  "within the grace period",
			takes: 6 * time.Second,
			want: `
				5s exit sleepy#1 code=143
				5s stop sleepy#1 grace=6s
				7s exit slow#1 code=143
				7s stop logs#1 grace=4s
				8s exit logs#1 code=143
				8s exit proxy#1 code=143
				8s remove
				8s stop proxy#1 grace=3s
			`,
		},
		{
			name:  "containers left after the grace period get two more seconds",
			takes: time.Hour,
			want: `
				5s exit sleepy#1 code=143
				5s stop sleepy#1 grace=6s
				11s exit proxy#1 code=143
				11s exit slow#1 code=137
				11s stop logs#1 grace=2s
				11s stop proxy#1 grace=2s
				12s exit logs#1 code=143
				12s remove
			`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode()
				n.exec["bye"] = func(context.Context) (int, error) { <-time.After(2 * time.Second); return 0, nil }
				n.lives = map[string][]life{"slow": {{takes: tc.takes}}, "logs": {{takes: time.Second}}}
				a := n.agent(pod(t, `
terminationGracePeriodSeconds: 10
initContainers:
- {name: proxy, restartPolicy: Always, lifecycle: {preStop: {exec: {command: [bye]}}}}
- {name: logs, restartPolicy: Always}
containers:
- {name: main}
- {name: slow}
- {name: sleepy, lifecycle: {preStop: {sleep: {seconds: 4}}}}`))
				phase, _ := n.run(t, a, time.Second)
				require.Equal(t, v1.PodRunning, phase)
				trace := n.text()
				require.Equal(t, lines(`
					1s Normal Killing: Stopping container logs
					1s Normal Killing: Stopping container main
					1s Normal Killing: Stopping container proxy
					1s Normal Killing: Stopping container sleepy
					1s Normal Killing: Stopping container slow
					1s exec proxy#1 bye
					1s exit main#1 code=143
					1s stop main#1 grace=10s
					1s stop slow#1 grace=10s
				`)+lines(tc.want), sorted(trace[strings.Index(trace, "1s Normal Killing"):]))
			})
		})
	}
}

// A deletion during a start or a back-off is not a failure of the pod.
func TestDeleteWhile(t *testing.T) {
	t.Run("a container starts", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := newNode()
			n.starting = make(chan struct{})
			phase, _ := n.run(t, n.agent(pod(t, `containers: [{name: main}, {name: other}]`)), time.Minute)
			require.Equal(t, v1.PodRunning, phase)
			require.Equal(t, lines(`
				0s sandbox 1
				1m0s remove
			`), n.text())
		})
	})
	t.Run("the pod waits for its back-off", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := newNode()
			n.lives["proxy"] = []life{exits(88, time.Second)}
			phase, trace := n.run(t, n.agent(pod(t, `
restartPolicy: Never
initContainers:
- {name: proxy, restartPolicy: Always, restartPolicyRules: [{action: RestartPod, exitCodes: {operator: In, values: [88]}}]}
containers: [{name: main}]`)), 5*time.Second)
			require.Contains(t, trace, "Back-off restarting pod p")
			require.Equal(t, v1.PodRunning, phase)
		})
	})
}

// A deleted pod gets the phase that the kubelet gives it: nothing restarts, so only exit
// codes count.
func TestPhaseOfDeletedPod(t *testing.T) {
	const restart = "restartPolicy: Never, restartPolicyRules: [{action: RestartPod, exitCodes: {operator: In, values: [0]}}]"
	for _, tc := range []struct {
		name  string
		spec  string
		lives map[string][]life
		// loses is true if the sandbox is lost a second before the deletion.
		loses bool
		want  v1.PodPhase
	}{
		{
			name: "killed by the deletion",
			spec: `containers: [{name: main}]`,
			want: v1.PodFailed,
		},
		{
			name:  "exits with 0 when it is stopped",
			spec:  `containers: [{name: main}]`,
			lives: map[string][]life{"main": {{stopsWell: true}}},
			want:  v1.PodSucceeded,
		},
		{
			name:  "one of two exits with 0",
			spec:  `containers: [{name: main}, {name: other}]`,
			lives: map[string][]life{"main": {{stopsWell: true}}},
			want:  v1.PodFailed,
		},
		{
			name:  "in back-off after a failure",
			spec:  `containers: [{name: main}]`,
			lives: map[string][]life{"main": {exits(1, time.Second)}},
			want:  v1.PodFailed,
		},
		{
			name:  "in back-off after a success",
			spec:  `containers: [{name: main}]`,
			lives: map[string][]life{"main": {exits(0, time.Second)}},
			want:  v1.PodSucceeded,
		},
		{
			name:  "a container that never started",
			spec:  `containers: [{name: main}, {name: other}]`,
			lives: map[string][]life{"main": {{stopsWell: true}}, "other": {{cannot: errors.New("boom")}}},
			want:  v1.PodFailed,
		},
		{
			name:  "during its init containers",
			spec:  `{initContainers: [{name: setup}], containers: [{name: main}]}`,
			lives: map[string][]life{"setup": {{stopsWell: true}}},
			want:  v1.PodFailed,
		},
		{
			name:  "the exit codes of sidecars do not count",
			spec:  `{initContainers: [{name: proxy, restartPolicy: Always}], containers: [{name: main}]}`,
			lives: map[string][]life{"main": {{stopsWell: true}}, "proxy": {{stopCode: 7}}},
			want:  v1.PodSucceeded,
		},
		{
			name:  "an exit of the previous run is no success",
			spec:  `{restartPolicy: Never, containers: [{name: main, ` + restart + `}, {name: other}]}`,
			lives: map[string][]life{"main": {exits(0, time.Second)}, "other": {{stopsWell: true}}},
			want:  v1.PodFailed,
		},
		{
			name:  "an init container that runs again after a lost sandbox, with policy Never",
			spec:  `{initContainers: [{name: setup, restartPolicy: Never}], containers: [{name: main}]}`,
			lives: map[string][]life{"setup": {exits(0, 0), {}}, "main": {exits(0, time.Second)}},
			loses: true,
			want:  v1.PodFailed,
		},
		{
			name:  "an init container that runs again after a lost sandbox",
			spec:  `{initContainers: [{name: setup}], containers: [{name: main}]}`,
			lives: map[string][]life{"setup": {exits(0, 0), {}}, "main": {exits(0, time.Second)}},
			loses: true,
			want:  v1.PodSucceeded,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode()
				n.lives = tc.lives
				if tc.loses {
					time.AfterFunc(4*time.Second, func() {
						n.mutex.Lock()
						defer n.mutex.Unlock()
						n.ready = false
						n.changed <- struct{}{}
					})
				}
				var last Status
				a := n.agent(pod(t, tc.spec), func(o *Options) {
					o.Report = func(s Status) {
						last = s
						if slices.ContainsFunc(s.Containers, func(c ContainerStatus) bool { return c.State.Running != nil }) {
							require.Contains(t, []v1.PodPhase{v1.PodPending, v1.PodRunning}, s.Phase)
						}
					}
				})
				phase, _ := n.run(t, a, 5*time.Second)
				require.Equal(t, v1.PodRunning, phase)
				require.Equal(t, tc.want, last.Phase)
			})
		})
	}
}

// The phase is Succeeded or Failed only after the sidecars have ended.
func TestPhaseWithSidecars(t *testing.T) {
	for code, want := range map[int32]v1.PodPhase{0: v1.PodSucceeded, 3: v1.PodFailed} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode()
			n.lives["main"] = []life{exits(code, time.Second)}
			n.lives["proxy"] = []life{{takes: 5 * time.Second}}
			phases := map[v1.PodPhase]time.Duration{}
			a := n.agent(pod(t, `{restartPolicy: Never, initContainers: [{name: proxy, restartPolicy: Always}], containers: [{name: main}]}`), func(o *Options) {
				o.Report = func(s Status) {
					if _, ok := phases[s.Phase]; !ok {
						phases[s.Phase] = time.Since(n.begin)
					}
				}
			})
			phase, _ := n.run(t, a, time.Minute)
			require.Equal(t, want, phase)
			require.Equal(t, map[v1.PodPhase]time.Duration{v1.PodPending: 0, v1.PodRunning: 0, want: 6 * time.Second}, phases)
		})
	}
}

// The agent retries a failed stop, also one after a failed probe.
func TestStopError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.exec["up"] = failTimes(1)
		n.stopErrs = []error{errors.New("busy"), errors.New("busy")}
		_, trace := n.run(t, n.agent(pod(t, `containers: [{name: main, livenessProbe: {exec: {command: [up]}, periodSeconds: 2}}]`)), 5*time.Second)
		require.Equal(t, lines(`
			0s sandbox 1
			0s start main#1 restarts=0
			2s exec main#1 up
			2s Warning Unhealthy: Liveness probe failed: output
			2s Normal Killing: Container main failed liveness probe, will be restarted
			2s stop main#1 grace=30s
			2s Warning FailedKillPod: error killing pod: busy
			3s stop main#1 grace=29s
			4s stop main#1 grace=28s
			4s exit main#1 code=143
			4s start main#2 restarts=1
		`), trace)
	})
}

// The runtime no longer knows whether one container runs, and does not know another.
func TestUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.exec["up"] = failTimes(100)
		n.lives["gone"] = []life{{}, {cannot: errors.New("boom")}}
		time.AfterFunc(time.Second, func() {
			n.mutex.Lock()
			i := n.instances["main"]
			i.State = restart.ContainerStateUnknown
			n.instances["main"] = i
			delete(n.instances, "gone")
			n.trace = nil
			n.mutex.Unlock()
			n.changed <- struct{}{}
		})
		_, trace := n.run(t, n.agent(pod(t, `
containers:
- {name: main}
- {name: gone, livenessProbe: {exec: {command: [up]}, initialDelaySeconds: 2}}`)), 3*time.Second)
		require.Equal(t, lines(`
			1s Normal Killing: Container is in "unknown" state, try killing it before restart
			1s Warning BackOff: Back-off restarting failed container gone in pod p_default(u): waiting 10s
			1s Warning Failed: Error: boom
			1s Warning Failed: Error: boom
			1s cannot start gone
			1s cannot start gone
			1s exit main#1 code=143
			1s start main#2 restarts=1
			1s stop main#1 grace=30s
		`), sorted(trace))
	})
}
