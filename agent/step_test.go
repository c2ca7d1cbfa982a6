// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kubelet-backoff/kubelet-backoff/restart"
	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

// script is a runtime in virtual time. Only the runs of instances take time.
type script struct {
	now     time.Time
	ready   bool
	runs    time.Duration // the time that each instance runs; 0 is without end
	code    int32
	newest  map[string]Instance
	starts  []time.Duration
	started []string
	stops   int
	up      time.Duration // the time from a start until Exec succeeds
	begin   time.Time
}

func newScript(runs time.Duration, code int32) *script {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	return &script{now: begin, begin: begin, runs: runs, code: code, newest: map[string]Instance{}}
}

func (s *script) State(context.Context) (State, error) {
	return State{SandboxReady: s.ready, Instances: s.newest}, nil
}

func (s *script) CreateSandbox(context.Context) error {
	s.ready = true
	return nil
}

func (s *script) Start(_ context.Context, c *v1.Container, restarts int) (string, error) {
	id := fmt.Sprintf("%s#%d", c.Name, restarts)
	s.starts, s.started = append(s.starts, s.now.Sub(s.begin)), append(s.started, c.Name)
	s.newest[c.Name] = Instance{ContainerStatus: restart.ContainerStatus{ID: id, State: restart.ContainerStateRunning, StartedAt: s.now, RestartCount: restarts}}
	return id, nil
}

func (s *script) exit(name string, code int32) {
	i := s.newest[name]
	i.State, i.ExitCode, i.FinishedAt = restart.ContainerStateExited, code, s.now
	s.newest[name] = i
}

func (s *script) Stop(_ context.Context, id string, _ time.Duration) error {
	s.stops++
	if name, _, _ := strings.Cut(id, "#"); s.newest[name].State == restart.ContainerStateRunning {
		s.exit(name, 143)
	}
	return nil
}

func (s *script) Exec(_ context.Context, id string, _ []string) ([]byte, int, error) {
	name, _, _ := strings.Cut(id, "#")
	if s.now.Sub(s.newest[name].StartedAt) < s.up {
		return []byte("down"), 1, nil
	}
	return nil, 0, nil
}

func (s *script) Remove(context.Context) error { return nil }

func (s *script) Changed() <-chan struct{} { return nil }

// drive runs the pod for a time, and reports whether it is gone.
func (s *script) drive(a *Agent, d time.Duration) bool {
	for end := s.now.Add(d); ; {
		next, done := a.Step(context.Background(), s.now)
		if done {
			return true
		}
		for _, i := range s.newest {
			if i.State == restart.ContainerStateRunning && s.runs > 0 {
				next = earlier(next, i.StartedAt.Add(s.runs))
			}
		}
		if next.IsZero() || next.After(end) {
			s.now = end
			return false
		}
		s.now = next
		for name, i := range s.newest {
			if i.State == restart.ContainerStateRunning && s.runs > 0 && !s.now.Before(i.StartedAt.Add(s.runs)) {
				s.exit(name, s.code)
			}
		}
	}
}

func (s *script) agent(t *testing.T, p *v1.Pod) *Agent {
	t.Helper()
	a, err := New(Options{Pod: p, Runtime: s})
	require.NoError(t, err)
	return a
}

// A day of a crashing pod needs no clock and no goroutine. BenchmarkDay measures it.
func TestStep(t *testing.T) {
	s := newScript(time.Second, 1)
	a := s.agent(t, pod(t, `containers: [{name: main}]`))
	before := goruntime.NumGoroutine()
	require.False(t, s.drive(a, 24*time.Hour))
	require.LessOrEqual(t, goruntime.NumGoroutine(), before)
	// Each runs for a second, and waits for 0, 10, 20, 40, 80, 160, 300, 300 ... s.
	require.Equal(t, []time.Duration{0, 1, 12, 33, 74, 155, 316, 617, 918}, inSeconds(s.starts[:9]))
	require.Len(t, s.starts, 8+(86400-617)/301)

	a.Delete()
	require.True(t, s.drive(a, time.Minute))
	require.Equal(t, v1.PodFailed, a.Status().Phase)
}

func inSeconds(all []time.Duration) (list []time.Duration) {
	for _, d := range all {
		list = append(list, d/time.Second)
	}
	return list
}

// BenchmarkDay runs a crashing pod for a day.
func BenchmarkDay(b *testing.B) {
	p := pod(&testing.T{}, `containers: [{name: main}]`)
	b.ReportAllocs()
	for b.Loop() {
		s := newScript(time.Second, 1)
		a, err := New(Options{Pod: p, Runtime: s})
		require.NoError(b, err)
		s.drive(a, 24*time.Hour)
	}
}

// A startup probe first runs within a period after the start, not at once: a program
// that is up after 2.5 s passes at the second or third probe. If it is killed after the
// second one, the next start is at a tick.
func TestStartupProbe(t *testing.T) {
	for _, tc := range []struct {
		runs  time.Duration
		stops int
		last  string
	}{{0, 0, "main#0"}, {61300 * time.Millisecond, 0, "main#1"}, {61800 * time.Millisecond, 1, "main#2"}} {
		s := newScript(tc.runs, 1)
		s.up = 2500 * time.Millisecond
		s.drive(s.agent(t, pod(t, `
containers:
- name: main
  startupProbe: {exec: {command: [up]}, periodSeconds: 2, failureThreshold: 2}
  livenessProbe: {exec: {command: [up]}}`)), 100*time.Second)
		require.Equal(t, tc.stops, s.stops)
		require.Equal(t, tc.last, s.newest["main"].ID)
		require.Equal(t, restart.ContainerStateRunning, s.newest["main"].State)
	}
}

// Without a file, an agent goes on from the status that the caller has of an earlier one: a
// deadline counts from the pod's start, and a restart of the pod in progress is not repeated.
func TestEarlier(t *testing.T) {
	for _, after := range []time.Duration{0, 20 * time.Second} {
		s := newScript(0, 0)
		earlier := v1.PodStatus{StartTime: &metav1.Time{Time: s.begin.Add(-after)}}
		a, err := New(Options{Pod: pod(t, `{activeDeadlineSeconds: 30, containers: [{name: main}]}`), Runtime: s, Earlier: earlier})
		require.NoError(t, err)
		require.Equal(t, after > 0, s.drive(a, 15*time.Second), "it has ended")
	}
	s := newScript(0, 0)
	s.ready, s.newest["main"] = true, Instance{ContainerStatus: restart.ContainerStatus{ID: "a", State: restart.ContainerStateRunning, StartedAt: s.begin}}
	a, err := New(Options{Pod: pod(t, `containers: [{name: main}]`), Runtime: s, Earlier: v1.PodStatus{Conditions: []v1.PodCondition{{
		Type: restartpod.PodRestarting, Status: v1.ConditionTrue, LastTransitionTime: metav1.Time{Time: s.begin.Add(-time.Minute)},
	}}}})
	require.NoError(t, err)
	s.drive(a, time.Second)
	require.Zero(t, s.stops, "it is of the present run")
	require.Equal(t, v1.ConditionFalse, a.Status().Conditions[0].Status)
}

// A sync starts all containers that may start. The one that exited first is first, but
// after init containers and sidecars.
func TestStartOrder(t *testing.T) {
	s := newScript(0, 1)
	a := s.agent(t, pod(t, `
initContainers: [{name: proxy, restartPolicy: Always}]
containers: [{name: a}, {name: b}, {name: c}]`))
	s.drive(a, time.Second)
	for i, name := range []string{"c", "a", "b", "proxy"} {
		s.now = s.begin.Add(time.Duration(i+1) * time.Second)
		s.exit(name, 1)
	}
	s.started = nil
	s.drive(a, time.Second)
	require.Equal(t, []string{"proxy", "c", "a", "b"}, s.started)
}

// Options.Probe runs probes of all kinds.
func TestOptionsProbe(t *testing.T) {
	s := newScript(0, 1)
	var probed []string
	a, err := New(Options{
		Pod: pod(t, `
containers:
- {name: main, livenessProbe: {httpGet: {port: 80}, periodSeconds: 10, failureThreshold: 2, terminationGracePeriodSeconds: 5}}`), Runtime: s,
		Probe: func(ctx context.Context, instance string, probe *v1.Probe) (string, bool, error) {
			deadline, ok := ctx.Deadline()
			probed = append(probed, fmt.Sprintf("%s %v %t %d", instance, deadline.Sub(s.now), ok, probe.HTTPGet.Port.IntVal))
			return "", false, nil
		},
	})
	require.NoError(t, err)
	s.drive(a, 25*time.Second)
	require.Equal(t, []string{"main#0 1s true 80", "main#0 1s true 80"}, probed)
	require.Equal(t, "main#1", s.newest["main"].ID)
}

// Ticks count from the first sync, not from the start of the instance.
func TestTick(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, tc := range []struct{ after, want time.Duration }{
		{-time.Hour, 0}, {-1, 0}, {0, 10 * time.Second}, {1, 10 * time.Second}, {10*time.Second - 1, 10 * time.Second}, {10 * time.Second, 20 * time.Second},
	} {
		require.Equal(t, tc.want, tick(begin, 10*time.Second, begin.Add(tc.after)).Sub(begin), "after %v", tc.after)
	}
}

// A container that the agent has stopped restarts even if it exited with 0 and the
// policy is OnFailure. Its exit code stays.
func TestStoppedWithZero(t *testing.T) {
	s := newScript(0, 0)
	a := s.agent(t, pod(t, `{restartPolicy: OnFailure, containers: [{name: main}]}`))
	s.drive(a, time.Second)
	a.stopped["main#0"] = restartpod.StopTime{}
	s.exit("main", 0)
	state, _ := s.State(t.Context())
	a.observe(state)
	require.Zero(t, a.observation(s.now, state).Containers[0].Status.ExitCode)
	s.drive(a, time.Second)
	require.Equal(t, "main#1", s.newest["main"].ID)
}

// failingStop fails the first stops. graces has the grace periods of all.
type failingStop struct {
	*script
	fails  int
	graces []time.Duration
}

func (f *failingStop) Stop(ctx context.Context, id string, grace time.Duration) error {
	f.graces = append(f.graces, grace)
	if f.fails--; f.fails >= 0 {
		return errors.New("busy")
	}
	return f.script.Stop(ctx, id, grace)
}

// A clock that steps back lengthens neither a grace period nor the wait after a stop that
// failed, and the exit is no trigger. Neither is one long after a stop that goes on.
func TestStopAfterClockSteps(t *testing.T) {
	for _, tc := range []struct {
		hook  string
		fails int
		step  time.Duration
	}{
		{"", 1, -time.Hour},
		{"lifecycle: {preStop: {sleep: {seconds: 2}}}, ", 0, -time.Hour},
		{"", 1, time.Hour},
	} {
		f := &failingStop{script: newScript(0, 0), fails: tc.fails}
		f.up = time.Hour
		a, err := New(Options{Runtime: f, Gates: allGates, Pod: pod(t, `
restartPolicy: Never
containers: [{name: main, `+tc.hook+`livenessProbe: {exec: {command: [up]}}, restartPolicy: Never,
  restartPolicyRules: [{action: RestartPod, exitCodes: {operator: In, values: [143]}}]}]`)})
		require.NoError(t, err)
		for a.containers[0].stop == nil {
			f.drive(a, time.Second)
		}
		f.now = f.now.Add(tc.step)
		f.drive(a, 30*time.Second)
		require.Equal(t, 1, f.stops)
		require.LessOrEqual(t, f.graces[tc.fails], 30*time.Second)
		require.Equal(t, []string{"main"}, f.started)
	}
}

// What the agent knows of instances does not grow with each kill, lost sandbox or adopted
// instance.
func TestForget(t *testing.T) {
	s := newScript(0, 0)
	s.up = 1e6 * time.Hour // The probe always fails.
	a := s.agent(t, pod(t, `containers: [{name: main, livenessProbe: {exec: {command: [up]}}}, {name: other}]`))
	a.before["other#0"] = v1.ContainerStatus{}
	for range 300 {
		s.drive(a, time.Hour)
		s.ready = false
	}
	require.Greater(t, s.stops, 3000)
	require.LessOrEqual(t, len(a.stopped), 1)
	require.LessOrEqual(t, len(a.lost), 2)
	require.Empty(t, a.before)
}

// Run uses Options.Clock.
func TestRunByClock(t *testing.T) {
	c := clocktesting.NewFakeClock(newScript(0, 1).begin)
	r := failing{newScript(0, 1), c, make(chan struct{})}
	a, err := New(Options{Pod: pod(t, `containers: [{name: main}]`), Runtime: r, Clock: c})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan v1.PodPhase)
	go func() { done <- a.Run(ctx) }()
	<-r.started
	<-r.started // The first restart has no delay.
	for !c.HasWaiters() {
		goruntime.Gosched()
	}
	c.Step(10 * time.Second)
	<-r.started
	cancel()
	require.Equal(t, v1.PodRunning, <-done)
	require.Equal(t, []time.Duration{0, 0, 10}, inSeconds(r.starts))
}

// failing is a script whose containers exit as soon as they start.
type failing struct {
	*script
	clock   *clocktesting.FakeClock
	started chan struct{}
}

func (r failing) Start(ctx context.Context, c *v1.Container, restarts int) (string, error) {
	r.now = r.clock.Now()
	id, err := r.script.Start(ctx, c, restarts)
	r.exit(c.Name, 1)
	r.started <- struct{}{}
	return id, err
}

// The package gets the time only from Options.Clock and Step.
func TestNoClock(t *testing.T) {
	clock := regexp.MustCompile(`\btime\.(Now|Since|Until|After|AfterFunc|Sleep|Tick|NewTimer|NewTicker)\(|context\.With(Timeout|Deadline)`)
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		if !strings.HasSuffix(file, "_test.go") {
			require.Empty(t, clock.FindAllString(string(text), -1), file)
		}
	}
}
