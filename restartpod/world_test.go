// SPDX-License-Identifier: Apache-2.0

package restartpod

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	backoff "github.com/kubelet-backoff/kubelet-backoff/backoff"
	"github.com/kubelet-backoff/kubelet-backoff/restart"
)

// A world is a pod on a node with its agent: the containers in the runtime, the
// conditions in the API, and the machine. Its methods are the possible events. The
// transcripts and the search share it.
//
// Worlds are copied by assignment: data that a world refers to is never changed.
type world struct {
	*pod
	now         time.Time
	machine     Machine
	backoff     backoff.KeyState
	backoffSet  bool
	containers  [maxContainers]instance
	conditions  [2]v1.PodCondition
	sandboxLost bool
	deleted     bool

	// The fields below are only for checks. The machine does not see them.

	// generation is the number of the pod's present run.
	generation int
	// triggered reports whether a container exited with a code that must restart the
	// pod, and the restart is still due.
	triggered bool
	// byTrigger reports whether such an exit caused this run.
	byTrigger bool
	// finished reports whether the pod is done: its regular containers ended for good, or an
	// init container failed for good, before any such exit.
	finished bool
	// triggeredAt is when the first such container exited.
	triggeredAt time.Time
	// restartAt is the earliest time with which Recover can distinguish the present run
	// from the previous one.
	restartAt time.Time
	// ambiguous reports whether a second restart is acceptable because of the moment at
	// which the agent ended.
	ambiguous bool
	// ended reports whether the agent ended after a deletion ended a restart. It is
	// then unknown which instances that restart had started.
	ended bool
	// inARow counts the restarts since the curve was last reset, and startedUpAt is
	// when the last of them started up.
	inARow      int
	startedUpAt time.Time
}

const maxContainers = 6

// pod holds what does not change while a pod exists.
type pod struct {
	template []Container
	grace    time.Duration
	gates    Gates
	// curve is the node's back-off. Its parameters follow.
	curve                 *backoff.Backoff
	initial, limit, reset time.Duration
	// probed reports whether a separate event marks a started container as Started.
	probed bool
	ids    [maxContainers][]string
	// observe uses these for its result, because an Observation is read at once.
	observed [maxContainers]Container
	statuses [maxContainers]restart.ContainerStatus
}

// instance is the newest instance of a container.
type instance struct {
	// number counts a container's instances from 1. 0 means none.
	number     int
	state      restart.ContainerState
	started    bool
	code       int32
	startedAt  time.Time
	finishedAt time.Time
	// killing reports whether its end was planned, and plannedExit whether it then
	// exited.
	killing, plannedExit bool
	// byAgent reports whether the agent stops it for its own reasons. The agent stores
	// this.
	byAgent bool
	// previous reports whether it belongs to the previous run.
	previous bool
	// generation is the world's generation when it was started.
	generation int
}

func (i *instance) alive() bool {
	return i.number > 0 && (i.state == restart.ContainerStateRunning || i.state == restart.ContainerStateUnknown)
}

func (i *instance) exited() bool {
	return i.number > 0 && i.state == restart.ContainerStateExited
}

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// podSpec is the spec of a pod with the rules of its containers by their names.
type podSpec struct {
	v1.PodSpec
	rules map[string][]Rule
}

func (s *podSpec) containers(gates Gates) []Container {
	return Containers(&s.PodSpec, gates, func(c *v1.Container) []Rule { return s.rules[c.Name] })
}

// newWorld returns a world with a pod of which nothing runs yet.
func newWorld(spec *podSpec, gates Gates, initial, limit, reset time.Duration) world {
	p := &pod{
		template: spec.containers(gates), gates: gates, grace: 30 * time.Second,
		initial: initial, limit: limit, reset: reset,
	}
	if spec.TerminationGracePeriodSeconds != nil {
		p.grace = time.Duration(*spec.TerminationGracePeriodSeconds) * time.Second
	}
	for i := range p.template {
		for n := 0; n < 64; n++ {
			p.ids[i] = append(p.ids[i], fmt.Sprintf("%s#%d", p.template[i].Name, n))
		}
	}
	p.curve = backoff.NewBackOff(initial, limit)
	p.curve.HasExpiredFunc = backoff.FlatReset(reset)
	return world{pod: p, now: epoch, machine: *p.newMachine(gates)}
}

func (p *pod) newMachine(gates Gates) *Machine {
	return New(p.curve, thePod, gates)
}

var thePod = &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod", UID: "uid"}}

// delay returns the delay of the k-th restart in a row.
func (p *pod) delay(k int) time.Duration {
	if k < 2 {
		return 0
	}
	d := p.initial
	for ; k > 2 && d < p.limit; k-- {
		d *= 2
	}
	return min(d, p.limit)
}

// observe returns what the agent sees.
func (w *world) observe() Observation {
	containers := w.observed[:len(w.template)]
	for i := range containers {
		containers[i] = w.template[i]
		c := &w.containers[i]
		if c.number == 0 {
			continue
		}
		w.statuses[i] = restart.ContainerStatus{
			ID: w.ids[i][c.number], State: c.state, Started: c.started, ExitCode: c.code,
			StartedAt: c.startedAt, FinishedAt: c.finishedAt, StoppedByAgent: c.byAgent,
		}
		containers[i].Status = &w.statuses[i]
	}
	return Observation{
		Now: w.now, Containers: containers, GracePeriod: w.grace,
		SandboxLost: w.sandboxLost, Deleted: w.deleted,
	}
}

// step steps the machine with the world's back-off.
func (w *world) step(o Observation) Plan {
	if w.backoffSet {
		if err := w.curve.Restore(w.machine.key, w.backoff, w.now); err != nil {
			panic(err)
		}
	} else {
		w.curve.DeleteEntry(w.machine.key)
	}
	p := w.machine.Step(o)
	w.backoff, w.backoffSet = w.curve.Snapshot(w.machine.key, w.now)
	return p
}

// writeConditions writes the plan's conditions to the API, which truncates times to
// whole seconds.
func (w *world) writeConditions(conditions []v1.PodCondition) {
	for _, c := range conditions {
		c.LastTransitionTime = metav1.NewTime(c.LastTransitionTime.Truncate(time.Second))
		w.conditions[conditionIndex(c)] = c
	}
}

// written reports whether the API already has the conditions.
func (w *world) written(conditions []v1.PodCondition) bool {
	for _, c := range conditions {
		had := &w.conditions[conditionIndex(c)]
		if had.Status != c.Status || had.Reason != c.Reason || had.Message != c.Message || had.LastTransitionTime.Unix() != c.LastTransitionTime.Unix() {
			return false
		}
	}
	return true
}

func conditionIndex(c v1.PodCondition) int {
	if c.Type == AllContainersRestarting {
		return 1
	}
	return 0
}

// began returns the message of the event for the beginning of a restart, or "".
func (p *Plan) began() string {
	for _, e := range p.Events {
		if e.Reason == EventPodRestarting {
			return e.Message
		}
	}
	return ""
}

// kill begins to stop a container.
func (w *world) kill(k Kill) {
	w.containers[k.Container].killing = true
}

// start starts a new instance of a container, in a new sandbox if necessary.
func (w *world) start(i int) {
	w.sandboxLost = false
	c := &w.containers[i]
	*c = instance{
		number: c.number + 1, state: restart.ContainerStateRunning, started: !w.probed,
		startedAt: w.now, generation: w.generation,
	}
}

// exit ends a running container.
func (w *world) exit(i int, code int32) {
	c := &w.containers[i]
	c.state, c.code, c.finishedAt, c.started = restart.ContainerStateExited, code, w.now, false
	c.plannedExit, c.killing = c.killing, false
	if !c.plannedExit && w.triggers(i) && !w.triggered && !w.finished {
		w.triggered, w.triggeredAt = true, w.now
	}
	w.finished = w.finished || !w.triggered && (w.done() || w.failed())
}

// triggers reports whether the container exited with a code that must restart the pod.
func (w *world) triggers(i int) bool {
	if !w.containers[i].exited() || w.template[i].Kind == KindEphemeral {
		return false
	}
	a := w.onExit(i)
	return a == ActionRestartPod || a == ActionRestartAllContainers
}

// onExit returns the action for the exit of the container. An exit that the agent
// caused does not restart the pod.
func (w *world) onExit(i int) Action {
	a := w.gates.OnExit(&w.template[i], w.containers[i].code)
	if w.containers[i].byAgent && a != ActionRestart {
		c := w.template[i]
		c.Rules = nil
		a = w.gates.OnExit(&c, w.containers[i].code)
	}
	return a
}

// crash ends the agent and starts it again. The machine and the back-off are lost. A
// container that was being killed keeps running.
func (w *world) crash(gates Gates) {
	// The start of this run is known only from the condition, and from an instance that
	// started in a later second.
	w.ambiguous = w.ambiguous || !w.written(w.machine.conditions)
	before := w.machine.phase
	if before != PhaseTerminatingForRestart {
		started := false
		for i := range w.template {
			if c := &w.containers[i]; c.number > 0 && c.generation == w.generation {
				started = true
				w.ambiguous = w.ambiguous || before == PhaseStartup && c.startedAt.Unix() <= w.restartAt.Unix()
			}
		}
		if !started && w.generation > 0 {
			// It has not begun.
			w.generation--
			w.triggered = w.triggered || w.byTrigger
			w.ambiguous = w.ambiguous || !w.byTrigger
		}
	}
	for i := range w.template {
		w.containers[i].killing = false
	}
	w.backoffSet, w.inARow = false, 0
	w.machine = *w.newMachine(gates)
	w.machine.Recover(w.conditions[:], w.observe().Containers, w.now)
	for _, c := range w.conditions {
		if c.Status == v1.ConditionTrue {
			w.restartAt = c.LastTransitionTime.Time
		}
	}
	w.ended = w.ended || len(w.machine.conditions) > 0 && w.machine.conditions[0].Reason == ReasonPodDeleted
}

// loseSandbox ends all containers with their sandbox.
func (w *world) loseSandbox() {
	for i := range w.template {
		if c := &w.containers[i]; c.alive() {
			c.killing = true
			w.exit(i, 255)
		}
	}
	w.sandboxLost = true
	// What ended with the sandbox in Startup starts again.
	w.finished = w.finished && w.machine.phase != PhaseStartup
}

// String formats the containers in one line.
func (w *world) String() string {
	var b strings.Builder
	for i := range w.template {
		c := &w.containers[i]
		if i > 0 {
			b.WriteString("  ")
		}
		switch {
		case c.number == 0:
			fmt.Fprintf(&b, "%s -", w.template[i].Name)
		case c.exited():
			fmt.Fprintf(&b, "%s exited(%d)", w.ids[i][c.number], c.code)
		case c.killing:
			fmt.Fprintf(&b, "%s stopping", w.ids[i][c.number])
		case !c.started:
			fmt.Fprintf(&b, "%s starting", w.ids[i][c.number])
		default:
			fmt.Fprintf(&b, "%s %s", w.ids[i][c.number], c.state)
		}
	}
	return b.String()
}

// describe formats a plan with one line for each action.
func (w *world) describe(p Plan) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", p.Phase, p.Reason)
	for _, e := range p.Events {
		fmt.Fprintf(&b, "  event %s %s: %s\n", e.Type, e.Reason, e.Message)
	}
	for _, c := range p.Conditions {
		if !w.written([]v1.PodCondition{c}) {
			fmt.Fprintf(&b, "  condition %s=%s %s: %s\n", c.Type, c.Status, c.Reason, c.Message)
		}
	}
	if p.Waiting != nil {
		fmt.Fprintf(&b, "  waiting %s: %s\n", p.Waiting.Reason, p.Waiting.Message)
	}
	for i, old := range p.Old {
		if old {
			fmt.Fprintf(&b, "  old %s\n", w.ids[i][w.containers[i].number])
		}
	}
	for _, k := range p.Kill {
		how := "SIGKILL"
		if k.Grace > 0 {
			how = fmt.Sprintf("SIGTERM, SIGKILL after %v", k.Grace)
		}
		if k.PreStop {
			how = "preStop, " + how
		}
		fmt.Fprintf(&b, "  kill %s: %s\n", k.ID, how)
	}
	for _, i := range p.Start {
		fmt.Fprintf(&b, "  start %s\n", w.template[i].Name)
	}
	if !p.StartAt.IsZero() {
		fmt.Fprintf(&b, "  start from +%v\n", p.StartAt.Sub(epoch))
	}
	if !p.Next.IsZero() {
		fmt.Fprintf(&b, "  next step at +%v\n", p.Next.Sub(epoch))
	}
	return b.String()
}
