// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/kubelet-backoff/kubelet-backoff/restart"
)

// late is a script whose State is that of some time ago. Without an end of the delay the
// starts are lost.
type late struct {
	*script
	t      *testing.T
	delay  time.Duration
	shown  State
	states []State // after shown
	times  []time.Time
	// revives is true if State first shows an ended instance as running again.
	revives bool
}

func newLate(t *testing.T, s *script, delay time.Duration) *late {
	return &late{script: s, t: t, delay: delay}
}

func (l *late) State(ctx context.Context) (State, error) {
	now, _ := l.script.State(ctx)
	now.Instances = maps.Clone(now.Instances)
	l.states, l.times = append(l.states, now), append(l.times, l.now)
	for len(l.times) > 0 && !l.times[0].After(l.now.Add(-l.delay)) {
		l.shown, l.states, l.times = l.states[0], l.states[1:], l.times[1:]
	}
	shown := l.shown
	if l.revives {
		shown.Instances = maps.Clone(shown.Instances)
		for name, i := range shown.Instances {
			if i.State == restart.ContainerStateExited && now.Instances[name].ID != i.ID {
				i.State = restart.ContainerStateRunning
				shown.Instances[name] = i
			}
		}
	}
	return shown, nil
}

func (l *late) Start(ctx context.Context, c *v1.Container, restarts int) (string, error) {
	if len(l.starts) > 100 {
		l.t.Fatal("it starts again and again")
	}
	return l.script.Start(ctx, c, restarts)
}

// drive runs the pod with a step each second, as if Changed told of each state.
func (l *late) drive(a *Agent, d time.Duration) bool {
	for end := l.now.Add(d); l.now.Before(end); {
		if l.script.drive(a, time.Second) {
			return true
		}
	}
	return false
}

func (l *late) agent(t *testing.T, p *v1.Pod, change ...func(*Options)) *Agent {
	t.Helper()
	o := Options{Pod: p, Runtime: l, Gates: allGates}
	for _, f := range change {
		f(&o)
	}
	a, err := New(o)
	require.NoError(t, err)
	return a
}

// Every instance is started once, whatever State shows in between, and the order of
// containers and the back-off stay.
func TestLateState(t *testing.T) {
	for _, revives := range []bool{false, true} {
		l := newLate(t, newScript(20*time.Second, 0), 5*time.Second)
		l.revives = revives
		a := l.agent(t, pod(t, `{initContainers: [{name: setup}], containers: [{name: main}, {name: other}]}`), func(o *Options) {
			o.Report = func(s Status) {
				for _, c := range s.Containers {
					if c.Started && l.newest[c.Name].ID != c.ID || c.State.Running != nil && c.State.Running.StartedAt.Time != l.newest[c.Name].StartedAt && !revives {
						l.t.Errorf("%v %+v", l.now.Sub(l.begin), c)
					}
				}
			}
		})
		l.drive(a, 100*time.Second)
		require.Equal(t, []string{"setup", "main", "other", "main", "other", "main", "other"}, l.started)
		// An exit is seen after 5 s.
		require.Equal(t, []time.Duration{0, 25, 25, 50, 50, 80, 80}, inSeconds(l.starts))
		require.Equal(t, "main#2", l.newest["main"].ID)
	}
}

// A start that State never shows has failed after two minutes. The next attempts follow the
// curve.
func TestLostStart(t *testing.T) {
	s := newScript(0, 0)
	l := newLate(t, s, time.Hour)
	var events []string
	a := l.agent(t, pod(t, `containers: [{name: main, lifecycle: {postStart: {exec: {command: [a]}}}}]`), func(o *Options) {
		o.Recorder = recorder(func(format string) { events = append(events, format) })
	})
	l.script.drive(a, 6*time.Minute+time.Second) // Without Changed, too.
	require.Equal(t, []time.Duration{0, 120, 250}, inSeconds(s.starts))
	require.Contains(t, events, "Error: the runtime does not show the container that it has started")
	l.delay, l.states, l.times = 0, nil, nil
	l.drive(a, time.Minute)
	require.Len(t, s.starts, 3)
	require.True(t, a.Status().Containers[0].Started)

	// State goes on to show the instance before.
	s.exit("main", 1)
	l.drive(a, time.Second)
	l.delay, l.states, l.times = time.Hour, nil, nil
	s.starts = nil
	l.drive(a, 10*time.Minute)
	require.Len(t, s.starts, 3)
}

// An instance is that of a start if its ID or its number of restarts says so.
func TestLateStateShown(t *testing.T) {
	for name, change := range map[string]func(*Instance){
		"other IDs": func(i *Instance) { i.ID += "x" }, "no numbers": func(i *Instance) { i.RestartCount = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(time.Second, 1)
			a, err := New(Options{Pod: pod(t, `containers: [{name: main}]`), Runtime: shows{s, change}})
			require.NoError(t, err)
			s.drive(a, 4*time.Second)
			require.Equal(t, []time.Duration{0, 1}, inSeconds(s.starts))
			require.Equal(t, "CrashLoopBackOff", a.Status().Containers[0].State.Waiting.Reason)
		})
	}
}

// shows is a script that shows its instances otherwise.
type shows struct {
	*script
	change func(*Instance)
}

func (s shows) State(ctx context.Context) (State, error) {
	state, err := s.script.State(ctx)
	state.Instances = maps.Clone(state.Instances)
	for name, i := range state.Instances {
		s.change(&i)
		state.Instances[name] = i
	}
	return state, err
}

// The wait does not get longer if the clock is set back.
func TestLateStateAfterClockStep(t *testing.T) {
	s := newScript(0, 0)
	l := newLate(t, s, 0)
	a := l.agent(t, pod(t, `containers: [{name: main}]`))
	l.drive(a, time.Second)
	delete(s.newest, "main")
	a.containers[0].instance, a.containers[0].unseen = nil, &unseen{ID: "main#0", Until: s.now.Add(time.Hour)}
	l.drive(a, 3*time.Minute)
	require.Len(t, s.starts, 2)
}

// A pod is deleted while State is late: the container stops when State shows it, and a
// lost one holds up the pod for no longer than the grace period.
func TestLateStateOfDeleted(t *testing.T) {
	for _, tc := range []struct {
		delay, gone time.Duration
		deadline    bool
	}{{5 * time.Second, 10 * time.Second, false}, {time.Hour, 32 * time.Second, false}, {5 * time.Second, 10 * time.Second, true}} {
		l := newLate(t, newScript(0, 0), tc.delay)
		p := pod(t, `{initContainers: [{name: proxy, restartPolicy: Always}], containers: [{name: main}]}`)
		if tc.deadline {
			p.Spec.ActiveDeadlineSeconds = ptr.To[int64](2)
		}
		a := l.agent(t, p)
		l.drive(a, 2*time.Second)
		if !tc.deadline {
			a.Delete()
		}
		require.False(t, l.drive(a, time.Second))
		require.Equal(t, v1.PodPending, a.Status().Phase)
		for !l.drive(a, time.Second) {
		}
		require.Equal(t, tc.gone, l.now.Sub(l.begin))
		require.Equal(t, v1.PodFailed, a.Status().Phase)
		require.Len(t, l.starts, 1)
	}
}

// A pod restarts as a whole while State is late: each instance starts once.
func TestLateStateOfPodRestart(t *testing.T) {
	l := newLate(t, newScript(0, 0), 3*time.Second)
	a := l.agent(t, pod(t, `
containers:
- {name: main, restartPolicy: Always, restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [88]}}]}
- {name: crash}`))
	l.drive(a, 10*time.Second)
	l.exit("crash", 1)
	l.drive(a, 4*time.Second) // It has started again, and State does not show it.
	require.Len(t, l.starts, 3)
	l.exit("main", 88)
	l.drive(a, time.Minute)
	require.Equal(t, []string{"main", "crash", "crash", "main", "crash"}, l.started)
	require.Equal(t, 1, l.stops)
	require.Equal(t, restart.ContainerStateRunning, l.newest["crash"].State)
}

// The next agent knows of a start that State does not show yet.
func TestLateStateAdopted(t *testing.T) {
	for _, delay := range []time.Duration{10 * time.Second, time.Hour} {
		l := newLate(t, newScript(0, 0), delay)
		file := filepath.Join(t.TempDir(), "status.json")
		o := func(o *Options) { o.StatusFile = file }
		p := pod(t, `containers: [{name: main}]`)
		l.agent(t, p, o).Step(t.Context(), l.now) // It is killed right after the start.
		a := l.agent(t, p, o)
		l.drive(a, 119*time.Second)
		require.Len(t, l.starts, 1)
		l.drive(a, 10*time.Second)
		require.Len(t, l.starts, map[bool]int{true: 1, false: 2}[delay < time.Minute])
	}
}

// A start that State shows as created is not seen yet: the container is not started again, and
// its postStart hook runs. One that stays so has failed.
func TestLateStateCreated(t *testing.T) {
	for _, lasts := range []time.Duration{5 * time.Second, time.Hour} {
		s := newScript(0, 0)
		r := shows{s, func(i *Instance) {
			if s.now.Sub(i.StartedAt) < lasts {
				i.State = restart.ContainerStateCreated
			}
		}}
		a, err := New(Options{Pod: pod(t, `containers: [{name: main, lifecycle: {postStart: {sleep: {seconds: 3}}}}]`), Runtime: r})
		require.NoError(t, err)
		s.drive(a, 7*time.Second)
		require.False(t, a.Status().Containers[0].Started)
		s.drive(a, 2*time.Second)
		require.Equal(t, lasts < time.Minute, a.Status().Containers[0].Started)
		require.Len(t, s.starts, 1)
		s.drive(a, 236*time.Second)
		if lasts > time.Minute {
			require.Equal(t, []time.Duration{0, 120}, inSeconds(s.starts))
			require.Equal(t, "the runtime does not show the container that it has started", a.Status().Containers[0].State.Waiting.Message)
		}
	}
}

// A container that runs is running, even if its start returned an error.
func TestFailedStartRuns(t *testing.T) {
	for _, runs := range []time.Duration{0, 5 * time.Second} {
		s := newScript(runs, 0)
		a, err := New(Options{
			Pod:     pod(t, `{restartPolicy: Never, initContainers: [{name: proxy, restartPolicy: Always}], containers: [{name: main}]}`),
			Runtime: answers{s, errors.New("timed out")},
		})
		require.NoError(t, err)
		s.drive(a, 4*time.Second)
		require.Equal(t, []string{"proxy", "main"}, s.started)
		for _, c := range a.Status().Containers {
			require.True(t, c.Ready)
			require.Zero(t, c.RetryAt)
		}
		require.Equal(t, runs > 0, s.drive(a, 2*time.Second))
	}
}

// answers is a script that starts containers and then returns an error.
type answers struct {
	*script
	err error
}

func (s answers) Start(ctx context.Context, c *v1.Container, restarts int) (string, error) {
	_, _ = s.script.Start(ctx, c, restarts)
	return "", s.err
}

// Neither a start that waits for what is missing nor a sleep hook takes longer if the clock is
// set back.
func TestStartAfterClockStep(t *testing.T) {
	s := newScript(0, 0)
	p := pod(t, `{containers: [{name: main, lifecycle: {postStart: {sleep: {seconds: 5}}}}]}`)
	a, err := New(Options{Pod: p, Runtime: &missing{s, 1}})
	require.NoError(t, err)
	s.drive(a, 2*time.Second)
	s.now = s.now.Add(-time.Hour)
	s.drive(a, 11*time.Second)
	require.Len(t, s.starts, 1)
	s.now = s.now.Add(-time.Hour)
	s.drive(a, 6*time.Second)
	require.True(t, a.Status().Containers[0].Started)
}

// A container that exits by itself just before the agent stops it restarts the pod, although
// State shows the exit only afterwards.
func TestExitsBeforeStop(t *testing.T) {
	for before, want := range map[time.Duration]int{20 * time.Millisecond: 2, -20 * time.Millisecond: 1} {
		l := newLate(t, newScript(0, 0), 250*time.Millisecond)
		l.up = time.Hour
		a := l.agent(t, pod(t, `
restartPolicy: Never
containers:
- {name: main, livenessProbe: {exec: {command: [up]}}, restartPolicy: Never, restartPolicyRules: [{action: RestartPod, exitCodes: {operator: In, values: [88]}}]}`))
		for a.containers[0].stopAt.IsZero() {
			l.script.drive(a, 10*time.Millisecond)
		}
		l.script.drive(a, a.containers[0].stopAt.Sub(l.now)-before)
		l.exit("main", 88)
		l.drive(a, 2*time.Second)
		require.Len(t, l.started, want)
	}
}

// missing is a script whose first starts create nothing.
type missing struct {
	*script
	times int
}

func (m *missing) Start(ctx context.Context, c *v1.Container, restarts int) (string, error) {
	if m.times--; m.times >= 0 {
		return "", &WaitingError{Reason: "CreateContainerConfigError", Err: errors.New("no settings")}
	}
	return m.script.Start(ctx, c, restarts)
}

// An agent is killed in the start of a container. The next one knows of the starts before.
func TestKilledInStart(t *testing.T) {
	l := newLate(t, newScript(0, 0), 10*time.Second)
	file := filepath.Join(t.TempDir(), "status.json")
	p := pod(t, `containers: [{name: a}, {name: b}, {name: c}]`)
	o := Options{Pod: p, Runtime: dies{l, "c"}, StatusFile: file}
	a, err := New(o)
	require.NoError(t, err)
	require.Panics(t, func() { a.Step(t.Context(), l.now) })
	l.drive(l.agent(t, p, func(o *Options) { o.StatusFile = file }), time.Minute)
	require.Equal(t, []string{"a", "b", "c"}, l.started)
}

// dies panics in the start of a container.
type dies struct {
	*late
	container string
}

func (d dies) Start(ctx context.Context, c *v1.Container, restarts int) (string, error) {
	if c.Name == d.container {
		panic("killed")
	}
	return d.late.Start(ctx, c, restarts)
}

// recorder gets the messages of events.
type recorder func(message string)

func (r recorder) Eventf(_ runtime.Object, _, _, format string, args ...any) {
	r(fmt.Sprintf(format, args...))
}
