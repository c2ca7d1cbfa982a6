// SPDX-License-Identifier: Apache-2.0

package restartpod

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	backoff "github.com/kubelet-backoff/kubelet-backoff/backoff"
)

// A world is a pod on a node with its agent: the containers as the runtime has
// them, the conditions as the API has them, and the machine. Its methods are
// what can happen. The transcripts and the search share it.
//
// Worlds are copied by assignment: nothing that one refers to is written to
// after it was made.
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

	// What follows is for checking alone: no part of it is visible to the machine.

	// generation is how often the pod was started up again.
	generation int
	// triggered reports whether a container exited that is to restart the pod, and has
	// not done so.
	triggered bool
	// byTrigger reports whether this run was started up because of that.
	byTrigger bool
	// triggeredAt is when the first such container exited.
	triggeredAt time.Time
	// restartAt is the time by which Recover tells the present run from the
	// previous one, where it need not be later.
	restartAt time.Time
	// ambiguous reports whether the agent ended at a moment from which it may rightly
	// come back to a second restart.
	ambiguous bool
	// ended reports whether the agent ended after a deletion had ended a restart: which
	// instances that restart had started is no longer known.
	ended bool
	// inARow counts the restarts since the curve was last at its beginning, and
	// startedUpAt is when the last of them started up.
	inARow      int
	startedUpAt time.Time
}

const maxContainers = 6

// pod is what does not change while a pod exists.
type pod struct {
	template []Container
	grace    time.Duration
	gates    Gates
	// curve is the node's back-off, with its parameters beside it.
	curve                 *backoff.Backoff
	initial, limit, reset time.Duration
	// probed reports whether a started container is Started by an event of its own.
	probed bool
	ids    [maxContainers][]string
	// What observe returns is made of these: an Observation is read at once.
	observed [maxContainers]Container
	statuses [maxContainers]Status
}

// instance is the newest instance of a container.
type instance struct {
	// number counts a container's instances from 1; 0 is none.
	number     int
	state      State
	started    bool
	code       int32
	startedAt  time.Time
	finishedAt time.Time
	// killing reports whether its end was planned, and plannedExit that it exited then.
	killing, plannedExit bool
	// byAgent reports whether the agent stops it for a reason of its own. The agent
	// stores that.
	byAgent bool
	// previous reports whether it is of the previous run.
	previous bool
	// generation is the world's generation when it was started.
	generation int
}

func (i *instance) alive() bool {
	return i.number > 0 && (i.state == StateRunning || i.state == StateUnknown)
}

func (i *instance) exited() bool {
	return i.number > 0 && i.state == StateExited
}

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// newWorld returns the world of a pod of which nothing runs yet.
func newWorld(spec *v1.PodSpec, gates Gates, initial, limit, reset time.Duration) world {
	p := &pod{
		template: Containers(spec, gates), gates: gates, grace: 30 * time.Second,
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
	return New(p.curve, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod", UID: "uid"}}, gates)
}

// delay is the delay of the k-th restart in a row.
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
		w.statuses[i] = Status{
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

// step steps the machine. The back-off is the world's for that time.
func (w *world) step(o Observation) Plan {
	if w.backoffSet {
		if err := w.curve.RestoreAt(w.machine.key, w.backoff, w.now); err != nil {
			panic(err)
		}
	} else {
		w.curve.DeleteEntry(w.machine.key)
	}
	p := w.machine.Step(o)
	w.backoff, w.backoffSet = w.curve.SnapshotAt(w.machine.key, w.now)
	return p
}

// writeConditions has the API take the plan's conditions, with whole seconds.
func (w *world) writeConditions(conditions []v1.PodCondition) {
	for _, c := range conditions {
		c.LastTransitionTime = metav1.NewTime(c.LastTransitionTime.Truncate(time.Second))
		w.conditions[conditionIndex(c)] = c
	}
}

// written reports whether the API has the conditions already.
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
	if c.Type == v1.AllContainersRestarting {
		return 1
	}
	return 0
}

// began returns the message of the event that a restart begins, or "".
func (p *Plan) began() string {
	for _, e := range p.Events {
		if e.Reason == EventPodRestarting {
			return e.Message
		}
	}
	return ""
}

// kill begins the end of a container.
func (w *world) kill(k Kill) {
	w.containers[k.Container].killing = true
}

// start starts a new instance of a container, in a new sandbox if need be.
func (w *world) start(i int) {
	w.sandboxLost = false
	c := &w.containers[i]
	*c = instance{
		number: c.number + 1, state: StateRunning, started: !w.probed,
		startedAt: w.now, generation: w.generation,
	}
}

// exit ends a running container.
func (w *world) exit(i int, code int32) {
	c := &w.containers[i]
	c.state, c.code, c.finishedAt, c.started = StateExited, code, w.now, false
	c.plannedExit, c.killing = c.killing, false
	if !c.plannedExit && w.triggers(i) && !w.triggered {
		w.triggered, w.triggeredAt = true, w.now
	}
}

// triggers reports whether the container exited with a code that is to restart the pod.
func (w *world) triggers(i int) bool {
	if !w.containers[i].exited() || w.template[i].Kind == KindEphemeral {
		return false
	}
	a := w.onExit(i)
	return a == ContainerRestartRuleActionRestartPod || a == v1.ContainerRestartRuleActionRestartAllContainers
}

// onExit is what follows the exit of a container. No rule restarts the pod for an
// exit that the agent caused.
func (w *world) onExit(i int) v1.ContainerRestartRuleAction {
	c := w.template[i]
	a := w.gates.OnExit(&c, w.containers[i].code)
	if w.containers[i].byAgent && a != v1.ContainerRestartRuleActionRestart {
		c.Rules = nil
		a = w.gates.OnExit(&c, w.containers[i].code)
	}
	return a
}

// crash ends the agent and starts it again: of the machine nothing is left, nor
// of the back-off. What was being killed goes on running.
func (w *world) crash(gates Gates) {
	// That this run was started is known only by the condition, and by an instance
	// that started in a later second.
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
	w.machine.Recover(w.conditions[:], w.observe().Containers)
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
}

// String shows the containers in a line.
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

// describe shows a plan, a line for each thing to do.
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
