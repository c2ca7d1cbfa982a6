// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	"github.com/kubelet-backoff/kubelet-backoff/backoff"
	"github.com/kubelet-backoff/kubelet-backoff/kuberuntime"
	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

// life is what an instance of a container does. The zero value runs until it is
// told to stop, and ends at once then, with code 143.
type life struct {
	// exits says that it exits with code after the time runs.
	exits bool
	runs  time.Duration
	code  int32
	// takes is how long it takes to stop, after which it exits with stopCode, or
	// 143 if that is 0 and not stopsWell.
	takes     time.Duration
	stopCode  int32
	stopsWell bool
	// cannot is the error of a container that cannot be made. One that
	// cannotExecute is made.
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
	// stopErrs are the errors of the next calls of Stop.
	stopErrs []error
	// starting, if there is any, is what Start waits for, and startTakes how long it
	// takes.
	starting   chan struct{}
	startTakes time.Duration
	ended      map[string]chan struct{}
	sandboxes  int
	ready      bool
	err        error
	killed     bool
	changed    chan struct{}
	trace      []string
	// exec answers commands by their first word.
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

// kill ends the agent, and nothing that it has begun.
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
		Status:   restartpod.Status{ID: id, State: restartpod.StateRunning, StartedAt: time.Now()},
		Restarts: restarts,
	}
	n.ended[id] = make(chan struct{})
	if l.cannotExecute {
		i := Instance{Restarts: restarts, Reason: ReasonStartError, Message: "no such file"}
		i.ID, i.State, i.ExitCode, i.FinishedAt = id, restartpod.StateExited, ExitCodeStartError, time.Now()
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
	if i.ID != id || i.State == restartpod.StateExited {
		return
	}
	i.State, i.ExitCode, i.FinishedAt = restartpod.StateExited, code, time.Now()
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

// events is a recorder that writes what the kubelet's clients would
// see into a node's trace.
type events struct{ node *node }

func (e events) Eventf(object runtime.Object, eventType, reason, format string, args ...any) {
	e.node.mutex.Lock()
	defer e.node.mutex.Unlock()
	switch reason {
	case "Created", "Started", "Completed", "Error": // The trace has them from the runtime.
	default:
		// The trace has the delay, and with that the time of the next start.
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
		for _, probe := range []*v1.Probe{c.StartupProbe, c.LivenessProbe} {
			if probe != nil {
				probe.PeriodSeconds, probe.FailureThreshold = max(probe.PeriodSeconds, 1), max(probe.FailureThreshold, 1)
			}
		}
	}
	return p
}

var allGates = restartpod.Gates{ContainerRestartRules: true, RestartPod: true, RestartAllContainers: true}

// agent returns an agent of the pod on the node, with the curve of a default
// node.
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

// run runs a pod in a bubble whose time passes when nothing else happens, for
// the given time, after which it is deleted. It returns how the pod ended, and
// the trace, what follows from the deletion left out.
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

// lines cuts the indentation of a literal.
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

func TestRun(t *testing.T) {
	boom := errors.New("boom")
	missing := &WaitingError{Reason: "CreateContainerConfigError", Err: errors.New(`configmap "settings" not found`)}
	for _, tc := range []struct {
		name  string
		spec  string
		lives map[string][]life
		exec  map[string]func(context.Context) (int, error)
		// lasts is after what time the pod is deleted, if it has not ended.
		lasts time.Duration
		want  string
		phase v1.PodPhase
	}{
		{
			name: "all starts in order, a sidecar before what comes after it",
			spec: `
initContainers:
- {name: setup}
- {name: proxy, restartPolicy: Always, startupProbe: {exec: {command: [up]}, periodSeconds: 2, failureThreshold: 9}}
- {name: fetch}
containers:
- {name: a}
- {name: b}`,
			lives: map[string][]life{"setup": {exits(0, 3*time.Second)}, "fetch": {exits(0, time.Second)}},
			exec:  map[string]func(context.Context) (int, error){"up": failTimes(2)},
			lasts: 10 * time.Second,
			phase: v1.PodRunning,
			want: `
				0s sandbox 1
				0s start setup#1 restarts=0
				3s exit setup#1 code=0
				3s start proxy#1 restarts=0
				4s exec proxy#1 up
				4s Warning Unhealthy: Startup probe failed: output
				6s exec proxy#1 up
				6s Warning Unhealthy: Startup probe failed: output
				8s exec proxy#1 up
				8s start fetch#1 restarts=0
				9s exit fetch#1 code=0
				9s start a#1 restarts=0
				9s start b#1 restarts=0
			`,
		},
		{
			name:  "a container follows the curve",
			spec:  `containers: [{name: main}]`,
			lives: map[string][]life{"main": {exits(1, time.Second)}},
			lasts: 36 * time.Second,
			phase: v1.PodRunning,
			want: `
				0s sandbox 1
				0s start main#1 restarts=0
				1s exit main#1 code=1
				1s start main#2 restarts=1
				2s exit main#2 code=1
				2s Warning BackOff: Back-off restarting failed container main in pod p_default(u): waiting 10s
				12s start main#3 restarts=2
				13s exit main#3 code=1
				13s Warning BackOff: Back-off restarting failed container main in pod p_default(u): waiting 20s
				33s start main#4 restarts=3
				34s exit main#4 code=1
				34s Warning BackOff: Back-off restarting failed container main in pod p_default(u): waiting 40s
			`,
		},
		{
			name:  "one container's back-off delays no other's, and the pod succeeds when all have",
			spec:  `{restartPolicy: OnFailure, containers: [{name: a}, {name: b}]}`,
			lives: map[string][]life{"a": {exits(1, time.Second), exits(1, time.Second), exits(0, 0)}, "b": {exits(3, 5*time.Second), exits(0, 0)}},
			lasts: time.Minute,
			phase: v1.PodSucceeded,
			want: `
				0s sandbox 1
				0s start a#1 restarts=0
				0s start b#1 restarts=0
				1s exit a#1 code=1
				1s start a#2 restarts=1
				2s exit a#2 code=1
				2s Warning BackOff: Back-off restarting failed container a in pod p_default(u): waiting 10s
				5s exit b#1 code=3
				5s start b#2 restarts=1
				5s exit b#2 code=0
				12s start a#3 restarts=2
				12s exit a#3 code=0
				12s remove
			`,
		},
		{
			name: "RestartPod stops regular containers, then sidecars, and has a back-off of its own",
			spec: `
restartPolicy: Never
initContainers:
- {name: setup}
- {name: proxy, restartPolicy: Always}
- {name: logs, restartPolicy: Always}
containers:
- {name: main, restartPolicy: Never, restartPolicyRules: [{action: RestartPod, exitCodes: {operator: In, values: [88]}}]}
- {name: helper, lifecycle: {preStop: {exec: {command: [bye]}}}}`,
			lives: map[string][]life{
				"setup": {exits(0, 0)}, "main": {exits(88, time.Second), exits(88, time.Second), exits(0, time.Hour)},
				"helper": {{takes: 2 * time.Second}}, "logs": {{takes: time.Second}},
			},
			exec:  map[string]func(context.Context) (int, error){"bye": func(context.Context) (int, error) { return 1, nil }},
			lasts: 25 * time.Second,
			phase: v1.PodRunning,
			want: `
				0s sandbox 1
				0s start setup#1 restarts=0
				0s exit setup#1 code=0
				0s start proxy#1 restarts=0
				0s start logs#1 restarts=0
				0s start main#1 restarts=0
				0s start helper#1 restarts=0
				1s exit main#1 code=88
				1s Normal PodRestarting: Container main exited with code 88, triggering pod restart
				1s Normal Killing: Stopping container helper, the pod is being restarted
				1s exec helper#1 bye
				1s Warning FailedPreStopHook: PreStopHook failed
				1s stop helper#1 grace=30s
				3s exit helper#1 code=143
				3s Normal Killing: Stopping container logs, the pod is being restarted
				3s stop logs#1 grace=28s
				4s exit logs#1 code=143
				4s Normal Killing: Stopping container proxy, the pod is being restarted
				4s stop proxy#1 grace=27s
				4s exit proxy#1 code=143
				4s start setup#2 restarts=1
				4s exit setup#2 code=0
				4s start proxy#2 restarts=1
				4s start logs#2 restarts=1
				4s start main#2 restarts=1
				4s start helper#2 restarts=1
				5s exit main#2 code=88
				5s Normal PodRestarting: Container main exited with code 88, triggering pod restart
				5s Normal Killing: Stopping container helper, the pod is being restarted
				5s exec helper#2 bye
				5s Warning FailedPreStopHook: PreStopHook failed
				5s stop helper#2 grace=30s
				7s exit helper#2 code=143
				7s Normal Killing: Stopping container logs, the pod is being restarted
				7s stop logs#2 grace=28s
				8s exit logs#2 code=143
				8s Normal Killing: Stopping container proxy, the pod is being restarted
				8s stop proxy#2 grace=27s
				8s exit proxy#2 code=143
				8s Warning BackOff: Back-off restarting pod p: Container main exited with code 88, triggering pod restart: waiting 10s
				15s start setup#3 restarts=2
				15s exit setup#3 code=0
				15s start proxy#3 restarts=2
				15s start logs#3 restarts=2
				15s start main#3 restarts=2
				15s start helper#3 restarts=2
			`,
		},
		{
			name: "RestartAllContainers cuts short what is being stopped already",
			spec: `
containers:
- {name: main, restartPolicy: Always, restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [88]}}]}
- {name: hung, livenessProbe: {exec: {command: [up]}, initialDelaySeconds: 1}}`,
			lives: map[string][]life{"main": {exits(88, 3*time.Second), {}}, "hung": {{takes: time.Hour}}},
			exec:  map[string]func(context.Context) (int, error){"up": failTimes(1)},
			lasts: 5 * time.Second,
			phase: v1.PodRunning,
			want: `
				0s sandbox 1
				0s start main#1 restarts=0
				0s start hung#1 restarts=0
				1s exec hung#1 up
				1s Warning Unhealthy: Liveness probe failed: output
				1s Normal Killing: Container hung failed liveness probe, will be restarted
				1s stop hung#1 grace=30s
				3s exit main#1 code=88
				3s Normal PodRestarting: Container main exited with code 88, triggering pod restart
				3s stop hung#1 grace=0s
				3s exit hung#1 code=137
				3s start main#2 restarts=1
				3s start hung#2 restarts=1
				4s exec hung#2 up
				5s exec hung#2 up
			`,
		},
		{
			name: "a failed liveness probe restarts what exits with 0 then",
			spec: `
restartPolicy: OnFailure
containers:
- name: main
  livenessProbe: {exec: {command: [up]}, initialDelaySeconds: 2, periodSeconds: 3, failureThreshold: 2, terminationGracePeriodSeconds: 5}`,
			lives: map[string][]life{"main": {{stopsWell: true}}},
			exec:  map[string]func(context.Context) (int, error){"up": failTimes(100)},
			lasts: 12 * time.Second,
			phase: v1.PodRunning,
			want: `
				0s sandbox 1
				0s start main#1 restarts=0
				3s exec main#1 up
				3s Warning Unhealthy: Liveness probe failed: output
				6s exec main#1 up
				6s Warning Unhealthy: Liveness probe failed: output
				6s Normal Killing: Container main failed liveness probe, will be restarted
				6s stop main#1 grace=5s
				6s exit main#1 code=0
				6s start main#2 restarts=1
				9s exec main#2 up
				9s Warning Unhealthy: Liveness probe failed: output
				12s exec main#2 up
				12s Warning Unhealthy: Liveness probe failed: output
				12s Normal Killing: Container main failed liveness probe, will be restarted
				12s stop main#2 grace=5s
				12s exit main#2 code=0
				12s Warning BackOff: Back-off restarting failed container main in pod p_default(u): waiting 10s
			`,
		},
		{
			name: "a failed startup probe ends a pod that is never restarted; liveness waits for it",
			spec: `
restartPolicy: Never
containers:
- name: main
  startupProbe: {exec: {command: [up]}, failureThreshold: 2}
  livenessProbe: {exec: {command: [alive]}}`,
			exec:  map[string]func(context.Context) (int, error){"up": failTimes(100)},
			lasts: time.Minute,
			phase: v1.PodFailed,
			want: `
				0s sandbox 1
				0s start main#1 restarts=0
				1s exec main#1 up
				1s Warning Unhealthy: Startup probe failed: output
				2s exec main#1 up
				2s Warning Unhealthy: Startup probe failed: output
				2s Normal Killing: Container main failed startup probe
				2s stop main#1 grace=30s
				2s exit main#1 code=143
				2s remove
			`,
		},
		{
			name:  "a probe that takes too long has failed, one that cannot be run has not",
			spec:  `containers: [{name: main, livenessProbe: {exec: {command: [up]}, timeoutSeconds: 3, failureThreshold: 1}}]`,
			lives: map[string][]life{"main": {{stopCode: 7}}},
			exec: map[string]func(context.Context) (int, error){"up": inTurn(
				func(context.Context) (int, error) { return 0, boom },
				func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() },
				func(context.Context) (int, error) { return 0, nil },
			)},
			lasts: 6 * time.Second,
			phase: v1.PodRunning,
			want: `
				0s sandbox 1
				0s start main#1 restarts=0
				1s exec main#1 up
				1s Warning Unhealthy: Liveness probe errored and resulted in unknown state: boom
				2s exec main#1 up
				5s Warning Unhealthy: Liveness probe failed: command timed out after 3s
				5s Normal Killing: Container main failed liveness probe, will be restarted
				5s stop main#1 grace=30s
				5s exit main#1 code=7
				5s start main#2 restarts=1
				6s exec main#2 up
			`,
		},
		{
			name:  "what cannot be made follows the curve, whatever the policy",
			spec:  `{restartPolicy: Never, containers: [{name: main}]}`,
			lives: map[string][]life{"main": {{cannot: boom}, {cannot: boom}, {cannot: boom}, exits(0, 0)}},
			lasts: time.Minute,
			phase: v1.PodSucceeded,
			want: `
				0s sandbox 1
				0s cannot start main
				0s Warning Failed: Error: boom
				0s cannot start main
				0s Warning Failed: Error: boom
				0s Warning BackOff: Back-off restarting failed container main in pod p_default(u): waiting 10s
				10s cannot start main
				10s Warning Failed: Error: boom
				10s Warning BackOff: Back-off restarting failed container main in pod p_default(u): waiting 20s
				30s start main#1 restarts=0
				30s exit main#1 code=0
				30s remove
			`,
		},
		{
			name:  "an exit goes on with the curve of the starts that failed, which are no restarts",
			spec:  `containers: [{name: main}]`,
			lives: map[string][]life{"main": {{cannot: boom}, {cannot: boom}, {cannot: boom}, exits(1, 0), {cannot: boom}, {}}},
			lasts: 3 * time.Minute,
			phase: v1.PodRunning,
			want: `
				0s sandbox 1
				0s cannot start main
				0s Warning Failed: Error: boom
				0s cannot start main
				0s Warning Failed: Error: boom
				0s Warning BackOff: Back-off restarting failed container main in pod p_default(u): waiting 10s
				10s cannot start main
				10s Warning Failed: Error: boom
				10s Warning BackOff: Back-off restarting failed container main in pod p_default(u): waiting 20s
				30s start main#1 restarts=0
				30s exit main#1 code=1
				30s Warning BackOff: Back-off restarting failed container main in pod p_default(u): waiting 40s
				1m10s cannot start main
				1m10s Warning Failed: Error: boom
				1m10s Warning BackOff: Back-off restarting failed container main in pod p_default(u): waiting 1m20s
				2m30s start main#2 restarts=1
			`,
		},
		{
			name:  "an instance that was created and could not be started follows the curve too",
			spec:  `containers: [{name: main}]`,
			lives: map[string][]life{"main": {{cannotExecute: true}, {cannotExecute: true}, {cannot: boom}, {}}},
			lasts: time.Minute,
			phase: v1.PodRunning,
			want: `
				0s sandbox 1
				0s start main#1 restarts=0
				0s Warning Failed: Error: no such file
				0s start main#2 restarts=1
				0s Warning Failed: Error: no such file
				0s Warning BackOff: Back-off restarting failed container main in pod p_default(u): waiting 10s
				10s cannot start main
				10s Warning Failed: Error: boom
				10s Warning BackOff: Back-off restarting failed container main in pod p_default(u): waiting 20s
				30s start main#3 restarts=2
			`,
		},
		{
			name: "what is missing is looked for every ten seconds, and the curve does not advance",
			spec: `containers: [{name: main}, {name: other}]`,
			lives: map[string][]life{
				"main":  {{cannot: missing}, {cannot: missing}, {cannot: missing}, exits(1, 5*time.Second), {cannot: missing}, exits(1, 0)},
				"other": {exits(1, 3*time.Second)},
			},
			lasts: 45 * time.Second,
			phase: v1.PodRunning,
			want: `
				0s sandbox 1
				0s cannot start main
				0s Warning Failed: Error: CreateContainerConfigError: configmap "settings" not found
				0s start other#1 restarts=0
				3s exit other#1 code=1
				3s start other#2 restarts=1
				6s exit other#2 code=1
				6s Warning BackOff: Back-off restarting failed container other in pod p_default(u): waiting 10s
				10s cannot start main
				10s Warning Failed: Error: CreateContainerConfigError: configmap "settings" not found
				16s start other#3 restarts=2
				19s exit other#3 code=1
				19s Warning BackOff: Back-off restarting failed container other in pod p_default(u): waiting 20s
				20s cannot start main
				20s Warning Failed: Error: CreateContainerConfigError: configmap "settings" not found
				30s start main#1 restarts=0
				35s exit main#1 code=1
				35s cannot start main
				35s Warning Failed: Error: CreateContainerConfigError: configmap "settings" not found
				39s start other#4 restarts=3
				42s exit other#4 code=1
				42s Warning BackOff: Back-off restarting failed container other in pod p_default(u): waiting 40s
				45s start main#2 restarts=1
				45s exit main#2 code=1
				45s Warning BackOff: Back-off restarting failed container main in pod p_default(u): waiting 10s
			`,
		},
		{
			name: "what a failed probe has killed and exits with 0 has succeeded where it is not restarted",
			spec: `
restartPolicy: Never
containers: [{name: main, livenessProbe: {exec: {command: [up]}}}]`,
			lives: map[string][]life{"main": {{stopsWell: true}}},
			exec:  map[string]func(context.Context) (int, error){"up": failTimes(1)},
			lasts: time.Minute,
			phase: v1.PodSucceeded,
			want: `
				0s sandbox 1
				0s start main#1 restarts=0
				1s exec main#1 up
				1s Warning Unhealthy: Liveness probe failed: output
				1s Normal Killing: Container main failed liveness probe
				1s stop main#1 grace=30s
				1s exit main#1 code=0
				1s remove
			`,
		},
		{
			name: "rules do not see what a failed probe has killed as killed",
			spec: `
restartPolicy: OnFailure
containers:
- name: main
  livenessProbe: {exec: {command: [up]}}
  restartPolicy: OnFailure
  restartPolicyRules: [{action: RestartPod, exitCodes: {operator: In, values: [137]}}]`,
			lives: map[string][]life{"main": {{stopsWell: true}}},
			exec:  map[string]func(context.Context) (int, error){"up": failTimes(1)},
			lasts: 2500 * time.Millisecond,
			phase: v1.PodRunning,
			want: `
				0s sandbox 1
				0s start main#1 restarts=0
				1s exec main#1 up
				1s Warning Unhealthy: Liveness probe failed: output
				1s Normal Killing: Container main failed liveness probe, will be restarted
				1s stop main#1 grace=30s
				1s exit main#1 code=0
				1s start main#2 restarts=1
				2s exec main#2 up
			`,
		},
		{
			name: "what failed probes have killed restarts no pod, however often and with what code",
			spec: `
restartPolicy: OnFailure
containers:
- name: main
  livenessProbe: {exec: {command: [up]}, initialDelaySeconds: 1}
  restartPolicy: OnFailure
  restartPolicyRules: [{action: RestartPod, exitCodes: {operator: NotIn, values: [0]}}]`,
			exec:  map[string]func(context.Context) (int, error){"up": failTimes(2)},
			lives: map[string][]life{"main": {{}, {}, exits(3, 5500*time.Millisecond), {}}},
			lasts: 18 * time.Second,
			phase: v1.PodRunning,
			want: `
				0s sandbox 1
				0s start main#1 restarts=0
				1s exec main#1 up
				1s Warning Unhealthy: Liveness probe failed: output
				1s Normal Killing: Container main failed liveness probe, will be restarted
				1s stop main#1 grace=30s
				1s exit main#1 code=143
				1s start main#2 restarts=1
				2s exec main#2 up
				2s Warning Unhealthy: Liveness probe failed: output
				2s Normal Killing: Container main failed liveness probe, will be restarted
				2s stop main#2 grace=30s
				2s exit main#2 code=143
				2s Warning BackOff: Back-off restarting failed container main in pod p_default(u): waiting 10s
				12s start main#3 restarts=2
				13s exec main#3 up
				14s exec main#3 up
				15s exec main#3 up
				16s exec main#3 up
				17s exec main#3 up
				17.5s exit main#3 code=3
				17.5s Normal PodRestarting: Container main exited with code 3, triggering pod restart
				17.5s start main#4 restarts=3
			`,
		},
		{
			name: "a probe's period counts from its beginning, and its command has the static environment",
			spec: `
containers:
- name: main
  env: [{name: UP, value: slow}]
  livenessProbe: {exec: {command: [$(UP)]}, periodSeconds: 5, timeoutSeconds: 5, failureThreshold: 3}`,
			exec: map[string]func(context.Context) (int, error){
				"slow": func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() },
			},
			lasts: 20 * time.Second,
			phase: v1.PodRunning,
			want: `
				0s sandbox 1
				0s start main#1 restarts=0
				5s exec main#1 slow
				10s Warning Unhealthy: Liveness probe failed: command timed out after 5s
				10s exec main#1 slow
				15s Warning Unhealthy: Liveness probe failed: command timed out after 5s
				15s exec main#1 slow
				20s Warning Unhealthy: Liveness probe failed: command timed out after 5s
				20s Normal Killing: Container main failed liveness probe, will be restarted
				20s stop main#1 grace=30s
				20s exit main#1 code=143
				20s start main#2 restarts=1
			`,
		},
		{
			name: "without a grace period a failed probe runs no hook",
			spec: `
terminationGracePeriodSeconds: 0
containers:
- name: main
  lifecycle: {preStop: {exec: {command: [bye]}}}
  livenessProbe: {exec: {command: [up]}}`,
			exec:  map[string]func(context.Context) (int, error){"up": failTimes(1)},
			lasts: 1500 * time.Millisecond,
			phase: v1.PodRunning,
			want: `
				0s sandbox 1
				0s start main#1 restarts=0
				1s exec main#1 up
				1s Warning Unhealthy: Liveness probe failed: output
				1s Normal Killing: Container main failed liveness probe, will be restarted
				1s stop main#1 grace=2s
				1s exit main#1 code=143
				1s start main#2 restarts=1
			`,
		},
		{
			name: "an init container fails the pod, and the sidecar is stopped",
			spec: `
restartPolicy: Never
initContainers: [{name: proxy, restartPolicy: Always}, {name: setup}]
containers: [{name: main}]`,
			lives: map[string][]life{"setup": {exits(2, time.Second)}},
			lasts: time.Minute,
			phase: v1.PodFailed,
			want: `
				0s sandbox 1
				0s start proxy#1 restarts=0
				0s start setup#1 restarts=0
				1s exit setup#1 code=2
				1s Normal Killing: Stopping container proxy
				1s stop proxy#1 grace=30s
				1s exit proxy#1 code=143
				1s remove
			`,
		},
		{
			name: "the active deadline fails the pod",
			spec: `
activeDeadlineSeconds: 5
terminationGracePeriodSeconds: 3
containers: [{name: main}]`,
			lives: map[string][]life{"main": {{takes: time.Minute}}},
			lasts: time.Minute,
			phase: v1.PodFailed,
			want: `
				0s sandbox 1
				0s start main#1 restarts=0
				5s Normal DeadlineExceeded: Pod was active on the node longer than the specified deadline
				5s Normal Killing: Stopping container main
				5s stop main#1 grace=3s
				8s exit main#1 code=137
				8s remove
			`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode()
				if tc.lives != nil {
					n.lives = tc.lives
				}
				n.exec = tc.exec
				phase, trace := n.run(t, n.agent(pod(t, tc.spec)), tc.lasts)
				require.Equal(t, lines(tc.want), trace)
				require.Equal(t, tc.phase, phase)
			})
		})
	}
}

// failTimes is a command that fails n times and succeeds then.
func failTimes(n int) func(context.Context) (int, error) {
	return func(context.Context) (int, error) {
		n--
		if n >= 0 {
			return 1, nil
		}
		return 0, nil
	}
}

// inTurn is one after the other, and the last for ever.
func inTurn(list ...func(context.Context) (int, error)) func(context.Context) (int, error) {
	return func(ctx context.Context) (int, error) {
		f := list[0]
		if len(list) > 1 {
			list = list[1:]
		}
		return f(ctx)
	}
}

// A pod that is deleted has all preStop hooks run at once, as by the kubelet, and
// its sidecars stopped last.
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
			name:  "what is left after the grace period has two seconds more",
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

// sorted puts the lines of the same time, which have no order, in that of the
// alphabet.
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

// An agent that comes after one that was killed goes on where that was.
func TestAdopt(t *testing.T) {
	spec := `
restartPolicy: Never
initContainers:
- {name: setup}
- {name: proxy, restartPolicy: Always, startupProbe: {exec: {command: [up]}}}
containers:
- {name: main, restartPolicy: Never, restartPolicyRules: [{action: RestartPod, exitCodes: {operator: In, values: [88]}}]}
- {name: helper}`
	for _, tc := range []struct {
		name string
		// dies is when the first agent is killed; the next one begins a second later.
		dies time.Duration
		want string
	}{
		{
			name: "all run",
			dies: 2 * time.Second,
			want: `
				6s exit main#1 code=88
				6s Normal PodRestarting: Container main exited with code 88, triggering pod restart
				6s Normal Killing: Stopping container helper, the pod is being restarted
				6s stop helper#1 grace=30s
				9s exit helper#1 code=143
				9s Normal Killing: Stopping container proxy, the pod is being restarted
				9s stop proxy#1 grace=27s
				9s exit proxy#1 code=143
				9s start setup#2 restarts=1
				10s exit setup#2 code=0
				10s start proxy#2 restarts=1
				11s exec proxy#2 up
				11s start main#2 restarts=1
				11s start helper#2 restarts=1
			`,
		},
		{
			name: "the old generation is being stopped",
			dies: 6 * time.Second,
			want: `
				7s Normal Killing: Stopping container helper, the pod is being restarted
				7s stop helper#1 grace=29s
				9s exit helper#1 code=143
				9s Normal Killing: Stopping container proxy, the pod is being restarted
				9s stop proxy#1 grace=27s
				9s exit proxy#1 code=143
				9s start setup#2 restarts=1
				10s exit setup#2 code=0
				10s start proxy#2 restarts=1
				11s exec proxy#2 up
				11s start main#2 restarts=1
				11s start helper#2 restarts=1
			`,
		},
		{
			name: "the new generation is being started",
			dies: 9500 * time.Millisecond,
			want: `
				10s exit setup#2 code=0
				10.5s start proxy#2 restarts=1
				11.5s exec proxy#2 up
				11.5s start main#2 restarts=1
				11.5s start helper#2 restarts=1
			`,
		},
		{name: "the pod was restarted", dies: 20 * time.Second, want: ``},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode()
				n.exec["up"] = failTimes(0)
				n.lives = map[string][]life{
					"setup": {exits(0, time.Second)}, "main": {exits(88, 4*time.Second), {}}, "helper": {{takes: 3 * time.Second}, {takes: 3 * time.Second}},
				}
				file := filepath.Join(t.TempDir(), "status.json")
				o := func(o *Options) { o.StatusFile = file }
				first := n.agent(pod(t, spec), o)
				go first.Run(t.Context())
				<-time.After(tc.dies)
				synctest.Wait()
				n.kill()
				synctest.Wait()
				n.mutex.Lock()
				n.trace = nil
				n.mutex.Unlock()
				<-time.After(time.Second)
				_, trace := n.run(t, n.agent(pod(t, spec), o), 60*time.Second)
				require.Equal(t, lines(tc.want), strings.TrimPrefix(trace, "\n"))
			})
		})
	}
}

// A sandbox that is lost has the pod started again from its first init container,
// but where the restart policy is Never.
func TestSandboxLost(t *testing.T) {
	for policy, want := range map[v1.RestartPolicy]string{
		v1.RestartPolicyAlways: `
			2s Normal Killing: Stopping container proxy
			2s stop proxy#1 grace=0s
			2s exit proxy#1 code=137
			2s Normal SandboxChanged: Pod sandbox changed, it will be killed and re-created.
			2s sandbox 2
			2s start setup#2 restarts=1
			2s exit setup#2 code=0
			2s start proxy#2 restarts=1
			2s start main#2 restarts=1
		`,
		v1.RestartPolicyNever: `
			2s Normal Killing: Stopping container proxy
			2s stop proxy#1 grace=30s
			2s exit proxy#1 code=143
			2s remove
		`,
	} {
		t.Run(string(policy), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode()
				n.lives["setup"] = []life{exits(0, 0)}
				p := pod(t, `{initContainers: [{name: setup}, {name: proxy, restartPolicy: Always}], containers: [{name: main}]}`)
				p.Spec.RestartPolicy = policy
				time.AfterFunc(2*time.Second, func() {
					n.mutex.Lock()
					n.ready, n.trace = false, nil
					n.mutex.Unlock()
					n.end("main#1", 255)
				})
				_, trace := n.run(t, n.agent(p), 3*time.Second)
				require.Equal(t, "2s exit main#1 code=255\n"+lines(want), trace)
			})
		})
	}
}

// While the runtime does not answer nothing is decided, and it is told once.
func TestRuntimeError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.lives["main"] = []life{exits(1, 2500*time.Millisecond), {}}
		time.AfterFunc(time.Second, func() { n.setError(errors.New("connection refused")) })
		time.AfterFunc(6*time.Second, func() { n.setError(nil) })
		_, trace := n.run(t, n.agent(pod(t, `containers: [{name: main}]`)), 20*time.Second)
		require.Equal(t, lines(`
			0s sandbox 1
			0s start main#1 restarts=0
			2.5s exit main#1 code=1
			2.5s Warning FailedSync: connection refused
			6.5s start main#2 restarts=1
		`), trace)
	})
}

func (n *node) setError(err error) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	n.err = err
}

// The status has what people are told: states, waits, and how late restarts were.
func TestStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.lives["main"] = []life{exits(3, time.Second)}
		n.lives["setup"] = []life{exits(0, 0)}
		var all []Status
		a := n.agent(pod(t, `{initContainers: [{name: setup}], containers: [{name: main}]}`), func(o *Options) {
			o.Report = func(s Status) { all = append(all, s) }
		})
		n.run(t, a, 13*time.Second)
		i := slices.IndexFunc(all, func(s Status) bool { return !s.Containers[1].RetryAt.IsZero() })
		require.Positive(t, i)
		begin := n.begin
		exit := &v1.ContainerStateTerminated{
			ExitCode: 3, Reason: "Error", ContainerID: "main#2", StartedAt: metav1.NewTime(begin.Add(time.Second)), FinishedAt: metav1.NewTime(begin.Add(2 * time.Second)),
		}
		require.Equal(t, ContainerStatus{
			Name: "main", Kind: restartpod.KindRegular, ID: "main#2", Started: true, LastExit: exit, RetryAt: begin.Add(12 * time.Second),
			State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{
				Reason: "CrashLoopBackOff", Message: "back-off 10s restarting failed container=main pod=p_default(u)",
			}},
			Restarts: Restarts{Count: 1, Timed: 1},
		}, all[i].Containers[1])
		require.Equal(t, "PodInitializing", all[0].Containers[1].State.Waiting.Reason)
		require.Equal(t, v1.PodPending, all[0].Phase)
		require.Equal(t, v1.PodRunning, all[i].Phase)
		require.Equal(t, "Completed", all[i].Containers[0].State.Terminated.Reason)
		last := all[len(all)-1]
		require.True(t, last.Terminating)
		require.Equal(t, Restarts{Count: 2, Timed: 2, Waited: 10 * time.Second}, last.Containers[1].Restarts)
	})
}

// Why a container cannot be made is the reason of its waiting state.
func TestStatusOfWaitingError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.lives["main"] = []life{{cannot: &WaitingError{Reason: "ErrImagePull", Err: errors.New("no registry")}}}
		n.lives["other"] = []life{{cannot: errors.New("no space")}}
		var last Status
		a := n.agent(pod(t, `containers: [{name: main}, {name: other}]`), func(o *Options) {
			o.Report = func(s Status) {
				if !s.Terminating {
					last = s
				}
			}
		})
		n.run(t, a, 5*time.Second)
		require.Equal(t, &v1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "ErrImagePull: no registry"}, last.Containers[0].State.Waiting)
		require.Equal(t, &v1.ContainerStateWaiting{Reason: "CreateContainerError", Message: "no space"}, last.Containers[1].State.Waiting)
		require.Equal(t, n.begin.Add(10*time.Second), last.Containers[0].RetryAt)
		require.Equal(t, n.begin.Add(10*time.Second), last.Containers[1].RetryAt)
	})
}

// What could not be started is a restart, of which it is not known how late it
// was.
func TestStatusOfStartError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.lives["main"] = []life{exits(1, time.Second), {cannotExecute: true}}
		var last Status
		a := n.agent(pod(t, `containers: [{name: main}]`), func(o *Options) { o.Report = func(s Status) { last = s } })
		_, trace := n.run(t, a, 5*time.Second)
		require.Contains(t, trace, "1s Warning Failed: Error: no such file\n")
		require.Equal(t, Restarts{Count: 1}, last.Containers[0].Restarts)
		require.Equal(t, ReasonStartError, last.Containers[0].LastExit.Reason)
	})
}

// The waits after failed starts count as those after exits, each once. The time
// until what is missing is looked for again is no back-off.
func TestStatusOfFailedStarts(t *testing.T) {
	for _, tc := range []struct {
		name           string
		err            error
		starts, waited time.Duration
	}{
		{"created", errors.New("no space"), 31 * time.Second, 30 * time.Second},
		{"missing", &WaitingError{Reason: "CreateContainerConfigError", Err: errors.New("no settings")}, 21 * time.Second, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode()
				n.lives["main"] = []life{exits(1, time.Second), {cannot: tc.err}, {cannot: tc.err}, {}}
				var last Status
				a := n.agent(pod(t, `containers: [{name: main}]`), func(o *Options) { o.Report = func(s Status) { last = s } })
				_, trace := n.run(t, a, time.Minute)
				require.Contains(t, trace, fmt.Sprintf("%v start main#2 restarts=1\n", tc.starts))
				require.Equal(t, Restarts{Count: 1, Timed: 1, Waited: tc.waited}, last.Containers[0].Restarts)
			})
		})
	}
}

// A status file that cannot be read ends the agent before it does anything.
func TestStatusFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "status.json")
	require.NoError(t, os.WriteFile(file, []byte("{"), 0o600))
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		_, err := New(Options{Pod: pod(t, `containers: [{name: main}]`), Runtime: n, StatusFile: file})
		require.ErrorContains(t, err, file+": unexpected end of JSON input; remove it to have what was saved forgotten")
		require.Empty(t, n.trace)
	})
}

// A stop that fails is tried again, also where a probe had asked for it.
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

// The runtime does not know any more whether a container runs, or that there was
// one.
func TestUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.exec["up"] = failTimes(100)
		n.lives["gone"] = []life{{}, {cannot: errors.New("boom")}}
		time.AfterFunc(time.Second, func() {
			n.mutex.Lock()
			i := n.instances["main"]
			i.State = restartpod.StateUnknown
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

// A pod is deleted while a container of it is being started, or while it waits
// to be restarted: that is no failure of it.
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

// A deleted pod that was running is told to have the phase that the kubelet gives
// it: nothing is restarted any more, so exit codes alone count.
func TestPhaseOfDeletedPod(t *testing.T) {
	const restart = "restartPolicy: Never, restartPolicyRules: [{action: RestartPod, exitCodes: {operator: In, values: [0]}}]"
	for _, tc := range []struct {
		name  string
		spec  string
		lives map[string][]life
		// loses says that the sandbox is lost a second before the deletion.
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
			name:  "one that never started",
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
			name:  "what is of the previous run does not count as a success",
			spec:  `{restartPolicy: Never, containers: [{name: main, ` + restart + `}, {name: other}]}`,
			lives: map[string][]life{"main": {exits(0, time.Second)}, "other": {{stopsWell: true}}},
			want:  v1.PodFailed,
		},
		{
			name:  "an init container that is run again for a lost sandbox, and is final",
			spec:  `{initContainers: [{name: setup, restartPolicy: Never}], containers: [{name: main}]}`,
			lives: map[string][]life{"setup": {exits(0, 0), {}}, "main": {exits(0, time.Second)}},
			loses: true,
			want:  v1.PodFailed,
		},
		{
			name:  "an init container that is run again for a lost sandbox",
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

// What is over is the last state of a container and never its present one, and
// decides on nothing, however a restart of the pod ends.
func TestStatusOfPreviousRun(t *testing.T) {
	const spec = `
restartPolicy: Never
activeDeadlineSeconds: 5
containers: [{name: main, restartPolicy: Never, restartPolicyRules: [{action: RestartPod, exitCodes: {operator: In, values: [0]}}]}]`
	const message = "Container main exited with code 0, triggering pod restart"
	for _, tc := range []struct {
		name string
		// lasts is after what time the pod is deleted.
		lasts time.Duration
		phase v1.PodPhase
	}{
		{"deleted in back-off", 3 * time.Second, v1.PodRunning},
		{"deadline in back-off", time.Minute, v1.PodFailed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode()
				n.lives["main"] = []life{exits(0, time.Second)}
				var all []Status
				a := n.agent(pod(t, spec), func(o *Options) { o.Report = func(s Status) { all = append(all, s) } })
				phase, trace := n.run(t, a, tc.lasts)
				require.Contains(t, trace, "2s Warning BackOff: Back-off restarting pod p: "+message+": waiting 10s\n")
				require.Equal(t, tc.phase, phase)
				waited := false
				for _, s := range all {
					require.NotEqual(t, v1.PodSucceeded, s.Phase)
					c := s.Containers[0]
					if s.RetryAt.IsZero() && !s.Terminating {
						continue
					}
					// The container waits, for the back-off and after it for ever.
					require.Nil(t, c.State.Terminated)
					require.NotNil(t, c.LastExit)
					require.Equal(t, "main#2", c.LastExit.ContainerID)
					if !s.RetryAt.IsZero() {
						waited = true
						require.Equal(t, &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 10s restarting pod p: " + message}, c.State.Waiting)
					} else {
						require.Equal(t, "ContainerCreating", c.State.Waiting.Reason)
					}
				}
				require.True(t, waited)
				last := all[len(all)-1]
				require.True(t, last.Terminating)
				require.Equal(t, v1.ConditionFalse, last.Conditions[0].Status)
				require.Equal(t, restartpod.ReasonPodDeleted, last.Conditions[0].Reason)
			})
		})
	}
}

// At most one of the two conditions is True.
func TestStatusConditions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.lives["main"] = []life{exits(88, time.Second), exits(99, time.Second), {}}
		var all []Status
		a := n.agent(pod(t, `
containers:
- name: main
  restartPolicy: Always
  restartPolicyRules:
  - {action: RestartPod, exitCodes: {operator: In, values: [88]}}
  - {action: RestartAllContainers, exitCodes: {operator: In, values: [99]}}`), func(o *Options) { o.Report = func(s Status) { all = append(all, s) } })
		n.run(t, a, 20*time.Second)
		seen := map[v1.PodConditionType]bool{}
		for _, s := range all {
			var isTrue []v1.PodConditionType
			for _, c := range s.Conditions {
				if c.Status == v1.ConditionTrue {
					isTrue = append(isTrue, c.Type)
					seen[c.Type] = true
				}
			}
			require.LessOrEqual(t, len(isTrue), 1)
		}
		require.Equal(t, map[v1.PodConditionType]bool{restartpod.PodRestarting: true, v1.AllContainersRestarting: true}, seen)
		require.Len(t, all[len(all)-1].Conditions, 2)
	})
}

// What an agent was stopping for a failed probe when it was killed is no trigger
// for the next one.
func TestAdoptStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.exec["up"] = failTimes(1)
		n.lives["main"] = []life{{takes: 5 * time.Second}}
		file := filepath.Join(t.TempDir(), "status.json")
		o := func(o *Options) { o.StatusFile = file }
		spec := `
restartPolicy: Never
containers:
- name: main
  livenessProbe: {exec: {command: [up]}}
  restartPolicy: Always
  restartPolicyRules: [{action: RestartPod, exitCodes: {operator: NotIn, values: [0]}}]`
		first := n.agent(pod(t, spec), o)
		go first.Run(t.Context())
		<-time.After(2 * time.Second)
		synctest.Wait()
		n.kill()
		synctest.Wait()
		n.end("main#1", 137)
		_, trace := n.run(t, n.agent(pod(t, spec), o), 10*time.Second)
		require.Contains(t, trace, "2s exit main#1 code=137\n2s start main#2 restarts=1\n")
		require.NotContains(t, trace, "PodRestarting")
	})
}

// A pod that has failed stays so, whatever agent goes on with it.
func TestAdoptFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.lives = map[string][]life{"proxy": {{takes: 5 * time.Second}}, "setup": {exits(0, 0), exits(1, 0)}, "main": {exits(88, 0)}}
		n.lives["proxy"] = append(n.lives["proxy"], n.lives["proxy"][0])
		file := filepath.Join(t.TempDir(), "status.json")
		spec := `
restartPolicy: Never
initContainers: [{name: proxy, restartPolicy: Always}, {name: setup}]
containers: [{name: main, restartPolicy: Never, restartPolicyRules: [{action: RestartPod, exitCodes: {operator: In, values: [88]}}]}]`
		o := func(o *Options) { o.StatusFile = file }
		first := n.agent(pod(t, spec), o)
		go first.Run(t.Context())
		<-time.After(6 * time.Second) // The first generation takes 5 s to stop.
		synctest.Wait()
		require.Contains(t, n.text(), "exit setup#2 code=1\n")
		n.kill()
		synctest.Wait()
		phase, trace := n.run(t, n.agent(pod(t, spec), o), time.Hour)
		require.Equal(t, v1.PodFailed, phase)
		require.NotContains(t, trace, "start setup#3")
	})
}

// A pod that had succeeded before its sandbox was lost does not run again.
func TestSandboxLostAfterwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.instances["main"] = Instance{Status: restartpod.Status{ID: "main#1", State: restartpod.StateExited, FinishedAt: time.Now()}}
		phase, trace := n.run(t, n.agent(pod(t, `{restartPolicy: OnFailure, containers: [{name: main}]}`)), time.Minute)
		require.Equal(t, v1.PodSucceeded, phase)
		require.Equal(t, "0s remove\n", trace)
	})
}

// Containers that fail as soon as they are started all have their turn, those
// first that have waited longest, though starts take longer than their back-off.
func TestStartAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.startTakes = 100 * time.Millisecond
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", UID: "u"}}
		for i := range 100 {
			name := fmt.Sprintf("c%02d", i)
			p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: name})
			n.lives[name] = []life{exits(1, 0)}
		}
		b := kuberuntime.NewBackOff(clock.RealClock{}, backoff.Curve{Initial: time.Second, Max: time.Second})
		n.run(t, n.agent(p, func(o *Options) { o.ContainerBackOff = b }), 61*time.Second)
		for name := range n.lives {
			require.InDelta(t, 6, n.started[name], 1, name)
		}
	})
}

// The phase is Succeeded or Failed only when the sidecars have ended too.
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
