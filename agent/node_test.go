// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/kubelet-backoff/kubelet-backoff/restart"
	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

// life is what an instance of a container does. The zero value runs until Stop, and then
// exits at once with code 143.
type life struct {
	// exits is true if it exits with code after runs.
	exits bool
	runs  time.Duration
	code  int32
	// takes is the time that it needs to stop. Then it exits with stopCode; 0 means
	// 143, except with stopsWell.
	takes     time.Duration
	stopCode  int32
	stopsWell bool
	// cannot is the error of Start, without a new instance. With cannotExecute there
	// is an instance, but it cannot be started.
	cannot        error
	cannotExecute bool
}

func exits(code int32, after time.Duration) life { return life{exits: true, code: code, runs: after} }

// node has a fake runtime. Its containers outlive agents.
type node struct {
	mutex     sync.Mutex
	begin     time.Time
	lives     map[string][]life
	instances map[string]Instance
	started   map[string]int
	// exitTime replaces the times of instances that have exited, unless it is nil.
	exitTime *time.Time
	// stopErrs are the errors of the next calls of Stop.
	stopErrs []error
	// Start waits for starting, if that is not nil, and then for startTakes: in virtual
	// time, because all tests run in bubbles of synctest.
	starting   chan struct{}
	startTakes time.Duration
	ended      map[string]chan struct{}
	sandboxes  int
	ready      bool
	err        error
	killed     bool
	changed    chan struct{}
	trace      []string
	// exec has the results of commands by their first word.
	exec map[string]func(ctx context.Context) (int, error)
}

func newNode() *node {
	return &node{
		begin: time.Now(), lives: map[string][]life{}, instances: map[string]Instance{}, started: map[string]int{},
		ended: map[string]chan struct{}{}, changed: make(chan struct{}, 1), exec: map[string]func(context.Context) (int, error){},
	}
}

func (n *node) tell(format string, args ...any) {
	n.trace = append(n.trace, fmt.Sprintf("%v ", time.Since(n.begin))+fmt.Sprintf(format, args...))
}

// kill ends the agent, but not its containers.
func (n *node) kill() {
	n.mutex.Lock()
	n.killed = true
	n.mutex.Unlock()
	n.changed <- struct{}{}
}

func (n *node) State(context.Context) (State, error) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	if n.killed {
		n.killed = false
		goruntime.Goexit()
	}
	s := State{SandboxReady: n.ready, IP: "127.0.0.1", Instances: map[string]Instance{}}
	for name, i := range n.instances {
		if n.exitTime != nil && i.State == restart.ContainerStateExited {
			i.StartedAt, i.FinishedAt = *n.exitTime, *n.exitTime
		}
		s.Instances[name] = i
	}
	return s, n.err
}

func (n *node) CreateSandbox(context.Context) error {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	n.sandboxes++
	n.ready = true
	n.tell("sandbox %d", n.sandboxes)
	return nil
}

func (n *node) Start(ctx context.Context, c *v1.Container, restarts int) (string, error) {
	if n.starting != nil {
		select {
		case <-n.starting:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	time.Sleep(n.startTakes)
	n.mutex.Lock()
	defer n.mutex.Unlock()
	var l life
	if lives := n.lives[c.Name]; len(lives) > 0 {
		l = lives[0]
		if len(lives) > 1 {
			n.lives[c.Name] = lives[1:]
		}
	}
	if l.cannot != nil {
		n.tell("cannot start %s", c.Name)
		return "", l.cannot
	}
	n.started[c.Name]++
	id := fmt.Sprintf("%s#%d", c.Name, n.started[c.Name])
	n.tell("start %s restarts=%d", id, restarts)
	n.instances[c.Name] = Instance{
		ContainerStatus: restart.ContainerStatus{ID: id, State: restart.ContainerStateRunning, StartedAt: time.Now(), RestartCount: restarts},
	}
	n.ended[id] = make(chan struct{})
	if l.cannotExecute {
		i := Instance{Reason: ReasonStartError, Message: "no such file"}
		i.RestartCount, i.ID, i.State, i.ExitCode, i.FinishedAt = restarts, id, restart.ContainerStateExited, ExitCodeStartError, time.Now()
		n.instances[c.Name] = i
	}
	if l.exits {
		time.AfterFunc(l.runs, func() { n.end(id, l.code) })
	}
	return id, nil
}

// end ends an instance if it runs.
func (n *node) end(id string, code int32) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	name, _, _ := strings.Cut(id, "#")
	i := n.instances[name]
	if i.ID != id || i.State == restart.ContainerStateExited {
		return
	}
	i.State, i.ExitCode, i.FinishedAt = restart.ContainerStateExited, code, time.Now()
	n.instances[name] = i
	n.tell("exit %s code=%d", id, code)
	close(n.ended[id])
	select {
	case n.changed <- struct{}{}:
	default:
	}
}

func (n *node) Stop(_ context.Context, id string, grace time.Duration) error {
	n.mutex.Lock()
	name, _, _ := strings.Cut(id, "#")
	var l life
	if lives := n.lives[name]; len(lives) > 0 {
		l = lives[0]
	}
	n.tell("stop %s grace=%v", id, grace)
	ended := n.ended[id]
	var err error
	if len(n.stopErrs) > 0 {
		err, n.stopErrs = n.stopErrs[0], n.stopErrs[1:]
	}
	n.mutex.Unlock()
	if err != nil {
		return err
	}
	if grace == 0 {
		n.end(id, 137)
		return nil
	}
	if l.takes == 0 {
		n.stopped(id, l)
	} else {
		time.AfterFunc(l.takes, func() { n.stopped(id, l) })
	}
	select {
	case <-ended:
	case <-time.After(grace):
		n.end(id, 137)
	}
	return nil
}

func (n *node) stopped(id string, l life) {
	code := l.stopCode
	if code == 0 && !l.stopsWell {
		code = 143
	}
	n.end(id, code)
}

func (n *node) Exec(ctx context.Context, id string, command []string) ([]byte, int, error) {
	f, ok := n.exec[command[0]]
	if !ok {
		return nil, 0, errors.New("no such command")
	}
	n.mutex.Lock()
	n.tell("exec %s %s", id, command[0])
	n.mutex.Unlock()
	code, err := f(ctx)
	return []byte("output"), code, err
}

func (n *node) Remove(context.Context) error {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	n.tell("remove")
	return nil
}

func (n *node) Changed() <-chan struct{} { return n.changed }

func (n *node) setError(err error) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	n.err = err
}

// events is a recorder that writes events into a node's trace.
type events struct{ node *node }

func (e events) Eventf(object runtime.Object, eventType, reason, format string, args ...any) {
	e.node.mutex.Lock()
	defer e.node.mutex.Unlock()
	switch reason {
	case "Created", "Started", "Completed", "Error": // The trace has them from the runtime.
	default:
		// The trace has the delay, from which the time of the next start follows.
		message, _, _ := strings.Cut(fmt.Sprintf(format, args...), ", next start at ")
		e.node.tell("%s %s: %s", eventType, reason, message)
	}
}

// pod reads the spec of a pod. Its probes fail sooner than by default.
func pod(t *testing.T, spec string) *v1.Pod {
	t.Helper()
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", UID: "u"}}
	require.NoError(t, yaml.UnmarshalStrict([]byte(spec), &p.Spec))
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		for _, probe := range []*v1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
			if probe != nil {
				probe.PeriodSeconds, probe.FailureThreshold = max(probe.PeriodSeconds, 1), max(probe.FailureThreshold, 1)
			}
		}
	}
	return p
}

var allGates = restartpod.Gates{ContainerRestartRules: true, RestartPod: true, RestartAllContainers: true}

// agent returns an agent of the pod with the default curve.
func (n *node) agent(p *v1.Pod, change ...func(*Options)) *Agent {
	o := Options{Pod: p, Gates: allGates, Runtime: n, Recorder: events{n}}
	for _, f := range change {
		f(&o)
	}
	a, err := New(o)
	if err != nil {
		panic(err)
	}
	return a
}

// run runs a pod in a bubble of synctest and deletes it after d, unless it has ended. It
// returns the result of Run, and the trace up to the deletion.
func (n *node) run(t *testing.T, a *Agent, d time.Duration) (v1.PodPhase, string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan v1.PodPhase)
	go func() { done <- a.Run(ctx) }()
	select {
	case phase := <-done:
		return phase, n.text()
	case <-time.After(d):
	}
	synctest.Wait()
	trace := n.text()
	cancel()
	return <-done, trace
}

func (n *node) text() string {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	return strings.Join(n.trace, "\n") + "\n"
}

// lines removes the indentation of a literal.
func lines(s string) string {
	s = strings.TrimPrefix(s, "\n")
	indent := s[:len(s)-len(strings.TrimLeft(s, "\t"))]
	var out []string
	for line := range strings.Lines(s) {
		if strings.TrimSpace(line) != "" {
			out = append(out, strings.TrimPrefix(line, indent))
		}
	}
	return strings.Join(out, "")
}

// sorted sorts lines with the same time, which may come in any order.
func sorted(trace string) string {
	var all, now []string
	at := ""
	for line := range strings.Lines(trace) {
		if t, _, _ := strings.Cut(line, " "); t != at {
			all, now, at = append(all, slices.Sorted(slices.Values(now))...), nil, t
		}
		now = append(now, line)
	}
	return strings.Join(append(all, slices.Sorted(slices.Values(now))...), "")
}

// failTimes is a command that fails n times and then succeeds.
func failTimes(n int) func(context.Context) (int, error) {
	return func(context.Context) (int, error) {
		n--
		if n >= 0 {
			return 1, nil
		}
		return 0, nil
	}
}

// inTurn runs one command after another. The last one repeats.
func inTurn(list ...func(context.Context) (int, error)) func(context.Context) (int, error) {
	return func(ctx context.Context) (int, error) {
		f := list[0]
		if len(list) > 1 {
			list = list[1:]
		}
		return f(ctx)
	}
}
