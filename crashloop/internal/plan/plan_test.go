// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubelet-backoff/kubelet-backoff/agent/podspec"
	"github.com/kubelet-backoff/kubelet-backoff/backoff"
	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

var begin = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// options are those of a pod on a default node.
func options(t *testing.T, pod string) Options {
	t.Helper()
	p := &v1.Pod{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(pod), p))
	p.Name = "web"
	podspec.Default(p)
	return Options{
		Pod: p, Gates: restartpod.Gates{ContainerRestartRules: true, RestartPod: true, RestartAllContainers: true},
		Curve: backoff.Curve{Initial: 10 * time.Second, Max: 300 * time.Second}, Begin: begin, For: time.Hour,
	}
}

func (o Options) with(t *testing.T, name, lives string) Options {
	t.Helper()
	l, err := ParseLives(lives)
	require.NoError(t, err)
	o.Lives = map[string]Lives{name: l}
	return o
}

// text has a line for each entry.
func text(p *Plan) string {
	var b strings.Builder
	for _, e := range p.Entries {
		fmt.Fprintf(&b, "%v %s", e.Time.Sub(p.Begin), e.Kind)
		if e.Container != "" {
			fmt.Fprintf(&b, " %s", e.Container)
		}
		switch {
		case e.Kind == Start:
			fmt.Fprintf(&b, " %d", e.Restarts)
		case e.ExitCode != nil:
			fmt.Fprintf(&b, " %d", *e.ExitCode)
		case e.Until != nil:
			fmt.Fprintf(&b, " %vs until %v", e.DelaySeconds, e.Until.Sub(p.Begin))
		case e.Kind == PodEnd:
			fmt.Fprintf(&b, " %s", e.Message)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

const onePod = `spec: {containers: [{name: main, image: a}]}`

// The waits are the delays of the curve, and count from the exit.
func TestCurve(t *testing.T) {
	for _, curve := range []backoff.Curve{
		{Initial: 10 * time.Second, Max: 300 * time.Second},
		{Initial: time.Second, Max: time.Minute},
		{Initial: 4 * time.Second, Max: 4 * time.Second, DelayFirst: true},
	} {
		o := options(t, onePod).with(t, "main", "3@2s")
		o.Curve = curve
		p, err := Make(o)
		require.NoError(t, err)
		var exit time.Time
		attempt := 0
		for _, e := range p.Entries {
			switch {
			case e.Kind == Exit:
				exit = e.Time
			case e.Kind == Start && e.Restarts > 0:
				attempt++
				assert.Equal(t, attempt, e.Restarts)
				assert.Equal(t, curve.Delay(attempt), e.Time.Sub(exit), "%v, restart %d", curve, attempt)
			}
		}
		assert.Greater(t, attempt, 10)
	}
}

// podWaits is a pod that waits for its own back-off.
const podWaits = `
spec:
  restartPolicy: Never
  containers: [{name: main, restartPolicy: Never, restartPolicyRules: [{action: RestartPod, exitCodes: {operator: In, values: [42]}}]}]
status:
  startTime: "2026-01-01T11:00:00Z"
  conditions:
  - {type: PodRestarting, status: "True", lastTransitionTime: "2026-01-01T11:59:50Z", reason: ContainerExited, message: "Container main exited with code 42, triggering pod restart"}
  containerStatuses:
  - name: main
    restartCount: 2
    state: {waiting: {reason: CrashLoopBackOff, message: "back-off 20s restarting pod web: Container main exited with code 42, triggering pod restart"}}
    lastState: {terminated: {exitCode: 42, startedAt: "2026-01-01T11:59:40Z", finishedAt: "2026-01-01T11:59:50Z", containerID: a}}`

func TestMake(t *testing.T) {
	for _, tc := range []struct {
		name, pod, container, lives string
		recovers                    map[string]time.Duration
		length                      time.Duration
		want                        string
	}{
		{
			name: "a pod that never ran", length: 30 * time.Second,
			pod: `spec: {initContainers: [{name: setup}, {name: proxy, restartPolicy: Always}], containers: [{name: main}, {name: other}]}`,
			want: `
0s Start setup 0
1s Exit setup 0
1s Start proxy 0
1s Start main 0
1s Start other 0
2s Exit main 1
2s Start main 1
3s Exit main 1
3s Wait main 10s until 13s
13s Start main 2
14s Exit main 1
14s Wait main 20s until 34s
`,
		},
		{
			name: "it ends", pod: `spec: {restartPolicy: OnFailure, containers: [{name: main}]}`, container: "main", lives: "1@2s,0@3s", length: time.Hour,
			want: "0s Start main 0\n2s Exit main 1\n2s Start main 1\n5s Exit main 0\n5s PodEnd Succeeded\n",
		},
		{
			name: "it recovers", pod: onePod, container: "main", lives: "1@1s", recovers: map[string]time.Duration{"main": 20 * time.Second}, length: time.Hour,
			want: `
0s Start main 0
1s Exit main 1
1s Start main 1
2s Exit main 1
2s Wait main 10s until 12s
12s Start main 2
13s Exit main 1
13s Wait main 20s until 33s
33s Start main 3
`,
		},
		{
			name: "a long run", pod: onePod, container: "main", lives: "1@1s,1@1s,1@11m,1@1s", length: 12 * time.Minute,
			want: `
0s Start main 0
1s Exit main 1
1s Start main 1
2s Exit main 1
2s Wait main 10s until 12s
12s Start main 2
11m12s Exit main 1
11m12s Reset main
11m12s Start main 3
11m13s Exit main 1
11m13s Wait main 10s until 11m23s
11m23s Start main 4
11m24s Exit main 1
11m24s Wait main 20s until 11m44s
11m44s Start main 5
11m45s Exit main 1
11m45s Wait main 40s until 12m25s
`,
		},
		{
			name: "the pod is restarted", container: "main", lives: "42@5s", length: 30 * time.Second,
			pod: `
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 3
  initContainers: [{name: proxy, restartPolicy: Always}]
  containers: [{name: main, restartPolicy: Never, restartPolicyRules: [{action: RestartPod, exitCodes: {operator: In, values: [42]}}]}]`,
			want: `
0s Start proxy 0
0s Start main 0
5s Exit main 42
5s PodRestart
8s Exit proxy 137
8s Start proxy 1
8s Start main 1
13s Exit main 42
13s PodRestart
16s Exit proxy 137
16s PodWait 10s until 23s
23s Start proxy 2
23s Start main 2
28s Exit main 42
28s PodRestart
`,
		},
		{
			name: "a container waits", length: 4 * time.Minute,
			pod: `
spec: {containers: [{name: main}, {name: other}]}
status:
  phase: Running
  containerStatuses:
  - name: other
    restartCount: 1
    containerID: containerd://b
    state: {running: {startedAt: "2026-01-01T11:00:00Z"}}
  - name: main
    restartCount: 3
    state: {waiting: {reason: CrashLoopBackOff, message: back-off 40s restarting failed container=main pod=web_default(x)}}
    lastState: {terminated: {exitCode: 7, startedAt: "2026-01-01T11:59:45Z", finishedAt: "2026-01-01T11:59:50Z", containerID: "containerd://a"}}`,
			want: `
0s Wait main 40s until 30s
30s Start main 4
35s Exit main 7
35s Wait main 80s until 1m55s
1m55s Start main 5
2m0s Exit main 7
2m0s Wait main 160s until 4m40s
`,
		},
		{
			name: "the wait is over", length: time.Minute,
			pod: `
spec: {containers: [{name: main}]}
status:
  containerStatuses:
  - name: main
    restartCount: 3
    state: {waiting: {reason: CrashLoopBackOff, message: back-off 40s restarting failed container=main pod=web_default(x)}}
    lastState: {terminated: {exitCode: 7, startedAt: "2026-01-01T11:58:45Z", finishedAt: "2026-01-01T11:58:50Z"}}`,
			want: "0s Start main 4\n5s Exit main 7\n5s Wait main 80s until 1m25s\n",
		},
		{
			name: "a container runs", container: "main", lives: "1@1m30s", length: 2 * time.Minute,
			pod: `
spec: {containers: [{name: main}]}
status: {containerStatuses: [{name: main, restartCount: 2, state: {running: {startedAt: "2026-01-01T11:59:00Z"}}}]}`,
			want: "30s Exit main 1\n30s Wait main 20s until 50s\n50s Start main 3\n",
		},
		{
			name: "a container runs longer than before", length: time.Hour,
			pod: `
spec: {containers: [{name: main}]}
status:
  containerStatuses:
  - name: main
    restartCount: 2
    state: {running: {startedAt: "2026-01-01T11:00:00Z"}}
    lastState: {terminated: {exitCode: 2, startedAt: "2026-01-01T10:59:58Z", finishedAt: "2026-01-01T10:59:59Z"}}`,
			want: "",
		},
		{
			name: "the pod is being deleted", length: time.Hour,
			pod: `
metadata: {deletionTimestamp: "2026-01-01T11:59:59Z"}
spec: {containers: [{name: main}]}
status: {containerStatuses: [{name: main, state: {running: {startedAt: "2026-01-01T11:00:00Z"}}}]}`,
			want: "30s Exit main 137\n30s PodEnd Failed\n",
		},
		{
			name: "the pod waits", length: time.Minute, container: "main", lives: "runs",
			pod:  podWaits,
			want: "0s PodWait 20s until 10s\n10s Start main 3\n",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := options(t, tc.pod)
			if tc.container != "" {
				o = o.with(t, tc.container, tc.lives)
			}
			o.For, o.Recovers = tc.length, tc.recovers
			p, err := Make(o)
			require.NoError(t, err)
			assert.Equal(t, strings.TrimPrefix(tc.want, "\n"), text(p))
		})
	}
}

// A container that is stopped goes on until its script or its grace period ends.
func TestStop(t *testing.T) {
	for _, tc := range []struct{ action, lives, want string }{
		{"RestartPod", "runs", "6s Exit other 137\n"},
		{"RestartPod", "7@4s", "4s Exit other 7\n"},
		{"RestartAllContainers", "runs", "1s Exit other 137\n"},
	} {
		o := options(t, `spec: {terminationGracePeriodSeconds: 5, restartPolicy: Never, containers: [{name: main, restartPolicy: Never, restartPolicyRules: [{action: `+tc.action+`, exitCodes: {operator: In, values: [42]}}]}, {name: other}]}`)
		o = o.with(t, "other", tc.lives)
		o.Lives["main"] = Lives{{Code: 42, After: time.Second}, {Runs: true}}
		p, err := Make(o)
		require.NoError(t, err)
		assert.Contains(t, text(p), "0s Start other 0\n1s Exit main 42\n1s PodRestart\n"+tc.want)
	}
}

// A container is down while it waits, and not before its first start or after its end.
func TestSummary(t *testing.T) {
	for name, tc := range map[string]struct {
		pod, lives string
		want       []Summary
	}{
		// It runs from 0 to 10 s, and waits until 20 s.
		"waits": {
			`spec: {containers: [{name: main}, {name: other}]}`, "1@5s",
			[]Summary{{Name: "main", Restarts: 2, RanSeconds: 10, DownSeconds: 10}, {Name: "other", RanSeconds: 20}},
		},
		"completes": {
			`spec: {restartPolicy: OnFailure, initContainers: [{name: init}], containers: [{name: main}]}`, "1@1s,1@1s,0@1s",
			[]Summary{{Name: "init", RanSeconds: 1}, {Name: "main", Restarts: 2, RanSeconds: 3, DownSeconds: 10}},
		},
		// The pod restarts at 2 s, waits from 4 s to 14 s, and from 16 s on.
		"pod restarts": {
			`spec: {initContainers: [{name: init}], containers: [{name: main, restartPolicy: Never, restartPolicyRules: [{action: RestartPod, exitCodes: {operator: In, values: [42]}}]}]}`, "42@1s",
			[]Summary{{Name: "init", Restarts: 2, RanSeconds: 3, DownSeconds: 14}, {Name: "main", Restarts: 2, RanSeconds: 3, DownSeconds: 16}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t, tc.pod).with(t, "main", tc.lives)
			o.For = 20 * time.Second
			p, err := Make(o)
			require.NoError(t, err)
			assert.Equal(t, tc.want, p.Containers, text(p))
			assert.True(t, slices.IsSortedFunc(p.Entries, func(a, b Entry) int { return a.Time.Compare(b.Time) }), text(p))
		})
	}
}

// Sums are of the times to the nanosecond, and not of rounded ones.
func TestSummaryExact(t *testing.T) {
	o := options(t, `spec: {containers: [{name: main}, {name: other}]}`).with(t, "main", "1@1.1s")
	o.For = 2 * time.Hour
	p, err := Make(o)
	require.NoError(t, err)
	assert.Equal(t, 28, p.Containers[0].Restarts)
	assert.Equal(t, 31.9, p.Containers[0].RanSeconds)
	assert.Equal(t, 7168.1, p.Containers[0].DownSeconds)
}

// The same seed gives the same plan, and another one another.
func TestSeed(t *testing.T) {
	made := func(seed uint64) string {
		o := options(t, onePod).with(t, "main", "1@exp(30s),1@uniform(1s,9s)")
		o.Seed = seed
		p, err := Make(o)
		require.NoError(t, err)
		return text(p)
	}
	assert.Equal(t, made(1), made(1))
	assert.NotEqual(t, made(1), made(2))
}

func TestMakeErrors(t *testing.T) {
	for name, tc := range map[string]struct{ status, want string }{
		"negative":        {`{restartCount: -1, state: {running: {startedAt: "2026-01-01T11:00:00Z"}}}`, "status.containerStatuses[0].restartCount: Invalid value: -1: must be from 0 to 2147383647"},
		"both":            {`{state: {running: {}, terminated: {exitCode: 1}}}`, "status.containerStatuses[0].state: Forbidden: may have only one of waiting, running, terminated"},
		"backwards":       {`{state: {terminated: {startedAt: "2026-01-01T11:00:00Z", finishedAt: "2026-01-01T10:00:00Z"}}}`, "status.containerStatuses[0].state.terminated.finishedAt: Invalid value: \"2026-01-01T10:00:00Z\": must not be before startedAt, 2026-01-01T11:00:00Z"},
		"the future":      {`{lastState: {terminated: {startedAt: "2026-01-01T11:00:00Z", finishedAt: "2026-01-01T13:00:00Z"}}}`, "status.containerStatuses[0].lastState.terminated.finishedAt: Invalid value: \"2026-01-01T13:00:00Z\": must not be after the current time, 2026-01-01T12:00:00Z"},
		"not yet started": {`{state: {running: {startedAt: "2026-01-01T13:00:00Z"}}}`, "status.containerStatuses[0].state.running.startedAt: Invalid value"},
		"another curve": {
			`{state: {waiting: {message: "back-off 45s restarting failed container=main pod=web_default(x)"}}, lastState: {terminated: {startedAt: "2026-01-01T11:00:00Z", finishedAt: "2026-01-01T11:00:00Z"}}}`,
			`status.containerStatuses[0].state.waiting.message: Invalid value: "back-off 45s": must be a delay of the node's curve`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			status := strings.Replace(tc.status, "{", "{name: main, ", 1)
			_, err := Make(options(t, "spec: {containers: [{name: main}]}\nstatus: {containerStatuses: ["+status+"]}"))
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func TestParseLives(t *testing.T) {
	l, err := ParseLives("1@5s, 0@exp(1m),137@uniform(1s, 2s),runs")
	require.NoError(t, err)
	assert.Equal(t, Lives{
		{Code: 1, After: 5 * time.Second}, {After: time.Minute, Spread: Exponential},
		{Code: 137, After: time.Second, Until: 2 * time.Second, Spread: Uniform}, {Runs: true},
	}, l)
	for _, life := range l {
		again, err := ParseLives(life.String())
		require.NoError(t, err)
		assert.Equal(t, Lives{life}, again)
	}
	for text, want := range map[string]string{
		"":                  `"" must be CODE@AFTER, such as 1@5s, or "runs"`,
		"1":                 `"1" must be CODE@AFTER`,
		"256@1s":            `the exit code "256" must be a number from 0 to 255`,
		"-1@1s":             `the exit code "-1"`,
		"1@-1s":             `"-1s" must be a duration from 0s to 8760h0m0s`,
		"1@1000000h":        `"1000000h" must be a duration`,
		"1@exp(x)":          `"x" must be a duration`,
		"1@exp(1s,2s)":      "exp has one time",
		"1@uniform(1s)":     "uniform has two times",
		"1@uniform(2s,1s)":  "1s is less than 2s",
		"1@normal(1s)":      `"normal(1s)" must be a duration`,
		"1@1s,":             `"" must be CODE@AFTER`,
		"1@uniform(1s,2s":   "must be",
		"1@9999999999999ms": "must be a duration",
	} {
		_, err := ParseLives(text)
		assert.ErrorContains(t, err, want, text)
	}
}
