// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
)

// readinessOf runs a pod in virtual time until it is deleted. It returns the times at which
// a container became ready or unready, and at which its probes ran. result has the result
// of a probe by its command and the seconds since the begin.
func readinessOf(t *testing.T, s *script, lasts time.Duration, spec string, result func(command string, at int) (bool, error)) string {
	t.Helper()
	var got strings.Builder
	last := map[string]bool{}
	a, err := New(Options{
		Pod: pod(t, spec), Runtime: s,
		Probe: func(_ context.Context, instance string, probe *v1.Probe) (string, bool, error) {
			ok, err := result(probe.Exec.Command[0], int(s.now.Sub(s.begin).Seconds()))
			fmt.Fprintf(&got, "%v %s %s %t\n", s.now.Sub(s.begin), instance, probe.Exec.Command[0], ok)
			return "", ok, err
		},
		Report: func(status Status) {
			for _, c := range status.Containers {
				if c.Ready != last[c.Name] {
					last[c.Name] = c.Ready
					fmt.Fprintf(&got, "%v %s ready=%t\n", s.now.Sub(s.begin), c.ID, c.Ready)
				}
			}
		},
	})
	require.NoError(t, err)
	s.drive(a, lasts)
	return got.String()
}

func TestReadiness(t *testing.T) {
	for _, tc := range []struct {
		name, spec string
		runs       time.Duration
		lasts      time.Duration
		result     func(command string, at int) (bool, error)
		want       string
	}{
		{
			name:  "a container without a probe is ready while it runs",
			spec:  `containers: [{name: main}]`,
			runs:  5 * time.Second,
			lasts: 15 * time.Second,
			want: `
				0s main#0 ready=true
				5s main#0 ready=false
				5s main#1 ready=true
				10s main#1 ready=false
			`,
		},
		{
			name:   "the thresholds count results in a row, an error is no result, and a restart resets them",
			spec:   `containers: [{name: main, readinessProbe: {exec: {command: [up]}, initialDelaySeconds: 3, successThreshold: 2, failureThreshold: 2}}]`,
			runs:   12 * time.Second,
			lasts:  20 * time.Second,
			result: func(_ string, at int) (bool, error) { return at != 4 && at != 8 && at != 10 && at != 11, when(at == 5) },
			want: `
				3s main#0 up true
				4s main#0 up false
				5s main#0 up true
				6s main#0 up true
				7s main#0 up true
				7s main#0 ready=true
				8s main#0 up false
				9s main#0 up true
				10s main#0 up false
				11s main#0 up false
				11s main#0 ready=false
				15s main#1 up true
				16s main#1 up true
				16s main#1 ready=true
				17s main#1 up true
				18s main#1 up true
				19s main#1 up true
				20s main#1 up true
			`,
		},
		{
			name: "readiness waits for the startup probe, runs at once then, and restarts nothing",
			spec: `
containers:
- name: main
  startupProbe: {exec: {command: [start]}, periodSeconds: 4}
  readinessProbe: {exec: {command: [ready]}, periodSeconds: 5}
  livenessProbe: {exec: {command: [live]}, periodSeconds: 4}`,
			lasts:  11 * time.Second,
			result: func(command string, at int) (bool, error) { return command != "ready" || at == 2 || at == 10, nil },
			want: `
				4s main#0 start true
				4s main#0 ready false
				5s main#0 ready false
				8s main#0 live true
				10s main#0 ready true
				10s main#0 ready=true
			`,
		},
		{
			name: "probes wait for the postStart hook",
			spec: `
containers:
- name: main
  lifecycle: {postStart: {sleep: {seconds: 3}}}
  readinessProbe: {exec: {command: [ready]}, periodSeconds: 2}
  livenessProbe: {exec: {command: [live]}}`,
			lasts:  5 * time.Second,
			result: func(string, int) (bool, error) { return true, nil },
			want: `
				4s main#0 live true
				4s main#0 ready true
				4s main#0 ready=true
				5s main#0 live true
			`,
		},
		{
			name: "an init container is ready after it succeeded, a sidecar is like a container",
			spec: `
initContainers:
- {name: proxy, restartPolicy: Always, readinessProbe: {exec: {command: [ready]}, periodSeconds: 3}}
- {name: setup}
containers: [{name: main}]`,
			runs:   4 * time.Second,
			lasts:  9 * time.Second,
			result: func(string, int) (bool, error) { return true, nil },
			want: `
				3s proxy#0 ready true
				3s proxy#0 ready=true
				4s proxy#0 ready=false
				4s setup#0 ready=true
				4s main#0 ready=true
				6s proxy#1 ready true
				6s proxy#1 ready=true
				8s proxy#1 ready=false
				8s main#0 ready=false
				8s main#1 ready=true
			`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, lines(tc.want), readinessOf(t, newScript(tc.runs, 0), tc.lasts, tc.spec, tc.result))
		})
	}
}

func when(is bool) error {
	if is {
		return errors.New("boom")
	}
	return nil
}

// While a container is stopped, its readiness probe goes on, and its liveness probe does not.
// Other containers wait for neither.
func TestReadinessWhileStopping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.lives["main"] = []life{{takes: 3 * time.Second}}
		n.exec["ready"] = func(context.Context) (int, error) {
			if time.Since(n.begin) > 3500*time.Millisecond {
				return 1, nil
			}
			return 0, nil
		}
		n.exec["live"] = func(context.Context) (int, error) { return 0, nil }
		var all []string
		a := n.agent(pod(t, `
containers: [{name: main, readinessProbe: {exec: {command: [ready]}}, livenessProbe: {exec: {command: [live]}}}]`), func(o *Options) {
			o.Report = func(s Status) {
				c := s.Containers[0]
				if line := fmt.Sprintf("%v ready=%t", time.Since(n.begin), c.Ready); len(all) == 0 || strings.Fields(all[len(all)-1])[1] != strings.Fields(line)[1] {
					all = append(all, line)
				}
			}
		})
		n.run(t, a, 2500*time.Millisecond)
		require.Equal(t, []string{"0s ready=false", "1s ready=true", "4s ready=false"}, all)
		require.Equal(t, lines(`
			0s sandbox 1
			0s start main#1 restarts=0
			1s exec main#1 live
			1s exec main#1 ready
			2s exec main#1 live
			2s exec main#1 ready
			2.5s Normal Killing: Stopping container main
			2.5s stop main#1 grace=30s
			3s exec main#1 ready
			4s Warning Unhealthy: Readiness probe failed: output
			4s exec main#1 ready
			5s Warning Unhealthy: Readiness probe failed: output
			5s exec main#1 ready
			5.5s exit main#1 code=143
			5.5s remove
		`), sorted(n.text()))
	})
}

// A probe that hangs is a failure, and blocks neither the other probe nor the stop.
func TestReadinessHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.exec["ready"] = func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() }
		n.exec["live"] = failTimes(0)
		a := n.agent(pod(t, `
containers: [{name: main, readinessProbe: {exec: {command: [ready]}, timeoutSeconds: 3, periodSeconds: 2}, livenessProbe: {exec: {command: [live]}}}]`))
		_, trace := n.run(t, a, 4500*time.Millisecond)
		require.Equal(t, lines(`
			0s sandbox 1
			0s start main#1 restarts=0
			1s exec main#1 live
			2s exec main#1 live
			2s exec main#1 ready
			3s exec main#1 live
			4s exec main#1 live
		`), sorted(trace))
		require.Contains(t, n.text(), "4.5s remove\n")
	})
}

// The next agent keeps a container ready until its probe fails, also a sidecar. It takes
// both kinds of statuses from a caller.
func TestReadinessAdopted(t *testing.T) {
	for _, saved := range []bool{true, false} {
		s := newScript(0, 0)
		p := pod(t, `
initContainers: [{name: proxy, restartPolicy: Always, startupProbe: {exec: {command: [up]}}, readinessProbe: {exec: {command: [up]}, failureThreshold: 2}}]
containers: [{name: main, readinessProbe: {exec: {command: [up]}, failureThreshold: 2}}]`)
		o := Options{Pod: p, Runtime: s}
		if saved {
			o.StatusFile = filepath.Join(t.TempDir(), "status.json")
		}
		first, err := New(o)
		require.NoError(t, err)
		s.drive(first, 1500*time.Millisecond)
		require.True(t, first.Status().Containers[0].Ready)
		require.False(t, first.Status().Containers[1].Ready)
		s.drive(first, 1500*time.Millisecond)
		require.True(t, first.Status().Containers[1].Ready)
		if !saved {
			yes := true
			o.Earlier.InitContainerStatuses = []v1.ContainerStatus{{ContainerID: "proxy#0", Started: &yes, Ready: true}}
			o.Earlier.ContainerStatuses = []v1.ContainerStatus{{ContainerID: "main#0", Ready: true}}
		}
		s.up = time.Hour
		var all []Status
		o.Report = func(s Status) { all = append(all, s) }
		second, err := New(o)
		require.NoError(t, err)
		s.drive(second, 500*time.Millisecond)
		for _, status := range all {
			for _, c := range status.Containers {
				require.True(t, c.Started)
				require.True(t, c.Ready)
			}
		}
		s.drive(second, time.Second)
		for _, c := range second.Status().Containers {
			require.True(t, c.Started)
			require.False(t, c.Ready)
		}
	}
}

// If the clock is set back, the next probe runs within its period, or its initial delay and
// its period, also for an instance that then has started in the future.
func TestProbeAfterClockStep(t *testing.T) {
	for _, wait := range []time.Duration{0, 4 * time.Second, time.Minute} {
		s := newScript(0, 0)
		probes := 0
		a, err := New(Options{
			Pod: pod(t, `
containers: [{name: main, livenessProbe: {exec: {command: [live]}, initialDelaySeconds: 3, periodSeconds: 5}, readinessProbe: {exec: {command: [ready]}, periodSeconds: 2}}]`),
			Runtime: s, Probe: func(context.Context, string, *v1.Probe) (string, bool, error) { probes++; return "", true, nil },
		})
		require.NoError(t, err)
		s.drive(a, wait)
		s.now, probes = s.now.Add(-time.Hour), 0
		s.drive(a, 8*time.Second)
		require.InDelta(t, 5, probes, 1, "after %v", wait)
	}
}

// A probe that hangs while the clock is set back has its timeout.
func TestProbeHangsAfterClockStep(t *testing.T) {
	a := newScript(0, 0).agent(t, pod(t, `containers: [{name: main, readinessProbe: {exec: {command: [ready]}}}]`))
	c := &a.containers[0]
	now := time.Unix(10000, 0)
	c.instance, c.probe = &Instance{}, &prober{started: true}
	cause := error(nil)
	w := &c.probe.workers[readiness]
	w.running = &attempt{cancel: func(err error) { cause = err }, deadline: now.Add(time.Hour)}
	require.Equal(t, now.Add(time.Second), a.probe(now, c, readiness, c.spec.ReadinessProbe))
	a.probe(now.Add(time.Second), c, readiness, c.spec.ReadinessProbe)
	require.Equal(t, context.DeadlineExceeded, cause)
}

// After a failed liveness probe no other one runs, even if the container cannot be stopped yet.
func TestFailedProbeEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.exec["live"] = failTimes(9)
		time.AfterFunc(500*time.Millisecond, func() { n.setError(errors.New("boom")) })
		time.AfterFunc(6*time.Second, func() { n.setError(nil) })
		_, trace := n.run(t, n.agent(pod(t, `containers: [{name: main, livenessProbe: {exec: {command: [live]}}}]`)), 5*time.Second)
		require.Equal(t, 1, strings.Count(trace, "exec main#1 live"))
	})
}
