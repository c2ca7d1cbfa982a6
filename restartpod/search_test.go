// SPDX-License-Identifier: Apache-2.0

package restartpod

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// The search visits everything that can happen to a world in breadth-first order.
// It checks every step of the agent against the invariants of the package comment.

// search is one search and its bounds.
type search struct {
	// start is the initial world.
	start world
	// tick is the amount by which time advances. Zero means a second.
	tick time.Duration
	// mutate changes the machine before a step, or the plan after it, to
	// simulate a faulty machine. Nil changes nothing.
	mutate *mutation
	// restarts is how many restarts of the pod are followed.
	restarts int
	// both makes containers exit with 99 too, for the other action.
	both bool
	// The others limit how often events that no restart needs may happen. Stops
	// are stops by the agent for its own reasons.
	exits, crashes, deletions, lostWrites, lostSandboxes, stops int
}

// mutation is a machine with one fault.
type mutation struct {
	before func(*world, *Observation)
	after  func(*world, *Plan)
	// recover replaces what happens when the agent starts again.
	recover func(*world)
}

// event is one event.
type event struct {
	kind      eventKind
	container int8
	code      int32
	// With a crash, the agent ends after this many of the plan's actions.
	actions int8
}

type eventKind int8

const (
	eventStep eventKind = iota
	eventCrash
	eventLostWrite
	eventExit
	eventStarted
	eventTick
	eventDelete
	eventLoseSandbox
	eventStop
)

// left is the remaining part of the limits.
type left struct {
	exits, crashes, deletions, lostWrites, lostSandboxes, stops int8
}

type node struct {
	parent int32
	event  event
	// fair is the next node if only expected events happen, or -1.
	fair int32
	// settled reports whether no restart is in progress.
	settled bool
}

type state struct {
	world
	left
	node int32
}

// violation is a violated invariant and the events that led to it.
type violation struct {
	invariant string
	script    string
}

func (v *violation) Error() string {
	return v.invariant + "\n" + v.script
}

// run searches until there is nothing new. It returns the number of worlds.
func (s *search) run() (worlds int, found *violation) {
	seed := maphash.MakeSeed()
	seen := map[uint64]int32{}
	var nodes []node
	var key []byte
	add := func(st *state, parent int32, e event) (id int32, fresh bool) {
		key = st.encode(key[:0], s.unit())
		sum := maphash.Bytes(seed, key)
		if id, ok := seen[sum]; ok {
			return id, false
		}
		id = int32(len(nodes))
		seen[sum] = id
		settled := st.deleted || st.machine.phase == PhaseRunning || st.machine.phase == PhaseFailed
		nodes = append(nodes, node{parent: parent, event: e, fair: -1, settled: settled})
		return id, true
	}
	first := state{world: s.start, left: left{
		int8(s.exits), int8(s.crashes), int8(s.deletions), int8(s.lostWrites), int8(s.lostSandboxes), int8(s.stops),
	}}
	first.node, _ = add(&first, -1, event{})
	frontier := []state{first}
	var events []event
	for len(frontier) > 0 {
		var next []state
		for i := range frontier {
			st := &frontier[i]
			if st.generation >= s.restarts && st.machine.phase == PhaseRunning {
				continue
			}
			fair, actions := s.fair(st)
			events = s.events(st, actions, events[:0])
			for _, e := range events {
				after := *st
				if broken := s.apply(&after, e); broken != "" {
					nodes = append(nodes, node{parent: st.node, event: e})
					return len(seen), &violation{broken, s.script(nodes, int32(len(nodes)-1))}
				}
				id, fresh := add(&after, st.node, e)
				if e == fair {
					nodes[st.node].fair = id
				}
				if fresh {
					after.node = id
					next = append(next, after)
				}
			}
		}
		frontier = next
	}
	return len(seen), s.live(nodes)
}

// live checks I9: fair events lead from every world to a settled one.
func (s *search) live(nodes []node) *violation {
	const unknown, onPath, good = 0, 1, 2
	mark := make([]int8, len(nodes))
	for i := range nodes {
		var path []int32
		at := int32(i)
		for at >= 0 && mark[at] == unknown && !nodes[at].settled {
			mark[at] = onPath
			path = append(path, at)
			at = nodes[at].fair
		}
		if at >= 0 && mark[at] == onPath {
			return &violation{"I9: it goes on for ever in a restart", s.script(nodes, at)}
		}
		for _, n := range path {
			mark[n] = good
		}
	}
	return nil
}

// events lists the possible events. actions is the number of actions in the next
// step.
func (s *search) events(st *state, actions int, events []event) []event {
	events = append(events, event{kind: eventStep})
	if st.lostWrites > 0 {
		events = append(events, event{kind: eventLostWrite})
	}
	if st.crashes > 0 {
		for n := 0; n <= actions; n++ {
			events = append(events, event{kind: eventCrash, actions: int8(n)})
		}
	}
	if st.deleted {
		return events
	}
	if st.deletions > 0 {
		events = append(events, event{kind: eventDelete})
	}
	if st.lostSandboxes > 0 && !st.sandboxLost {
		events = append(events, event{kind: eventLoseSandbox})
	}
	for i := range st.template {
		c := &st.containers[i]
		if !c.alive() || st.template[i].Kind == KindEphemeral {
			continue
		}
		exit := event{kind: eventExit, container: int8(i)}
		if !c.started {
			events = append(events, event{kind: eventStarted, container: int8(i)})
		}
		if c.killing {
			exit.code = 137
			events = append(events, exit)
			exit.code = 88
			events = append(events, exit)
			continue
		}
		if c.byAgent {
			exit.code = 88
			events = append(events, exit)
			continue
		}
		if st.stops > 0 && st.template[i].Kind != KindInit {
			events = append(events, event{kind: eventStop, container: int8(i)})
		}
		if st.template[i].Kind == KindInit || st.exits > 0 {
			events = append(events, exit)
		}
		if st.exits > 0 {
			exit.code = 1
			events = append(events, exit)
			exit.code = 88
			events = append(events, exit)
			if s.both {
				exit.code = 99
				events = append(events, exit)
			}
		}
	}
	return append(events, event{kind: eventTick})
}

// fair returns the next event if only expected events happen: a container that
// is being killed ends, the agent steps, init containers succeed, time passes.
// It also returns the number of actions in the next step.
func (s *search) fair(st *state) (e event, actions int) {
	after := *st
	actions, broken := after.act(s, -1, false)
	for i := range st.template {
		switch c := &st.containers[i]; {
		case c.alive() && c.killing:
			return event{kind: eventExit, container: int8(i), code: 137}, actions
		case c.alive() && c.byAgent:
			return event{kind: eventExit, container: int8(i), code: 88}, actions
		}
	}
	if broken == "" && after.changed(st) {
		return event{kind: eventStep}, actions
	}
	for i := range st.template {
		c := &st.containers[i]
		if c.alive() && !c.started {
			return event{kind: eventStarted, container: int8(i)}, actions
		}
		if c.alive() && st.template[i].Kind == KindInit {
			return event{kind: eventExit, container: int8(i)}, actions
		}
	}
	return event{kind: eventTick}, actions
}

func (st *state) changed(before *state) bool {
	return st.machine.phase != before.machine.phase || st.containers != before.containers || st.conditions != before.conditions
}

// apply applies an event and returns the invariant that it violates, or "".
func (s *search) apply(st *state, e event) string {
	switch e.kind {
	case eventStep:
		_, broken := st.act(s, -1, false)
		return broken
	case eventLostWrite:
		st.lostWrites--
		_, broken := st.act(s, -1, true)
		return broken
	case eventCrash:
		st.crashes--
		if _, broken := st.act(s, int(e.actions), false); broken != "" {
			return broken
		}
		before := st.machine.phase
		st.crash(st.gates)
		if s.mutate != nil && s.mutate.recover != nil {
			s.mutate.recover(&st.world)
		}
		if before == PhaseTerminatingForRestart && st.machine.phase == PhaseStartup && !st.ambiguous {
			return "I1: found in Startup before the previous run had ended"
		}
	case eventExit:
		i := int(e.container)
		if c := &st.containers[i]; !c.killing && !c.byAgent && (st.template[i].Kind != KindInit || e.code != 0) {
			st.exits--
		}
		st.exit(i, e.code)
	case eventStarted:
		st.containers[e.container].started = true
	case eventTick:
		st.now = st.now.Add(s.unit())
	case eventDelete:
		st.deletions--
		st.deleted = true
	case eventLoseSandbox:
		st.lostSandboxes--
		st.loseSandbox()
	case eventStop:
		st.stops--
		st.containers[e.container].byAgent = true
	}
	return ""
}

// unit returns the tick.
func (s *search) unit() time.Duration {
	return cmp.Or(s.tick, time.Second)
}

// act steps the machine, checks the plan and carries out its first limit actions,
// or all of them if limit is -1. Writing the condition is one action. It returns
// the number of actions carried out, and the violated invariant, or "".
func (st *state) act(s *search, limit int, loseWrite bool) (actions int, broken string) {
	w := &st.world
	before := w.machine.phase
	o := w.observe()
	if s.mutate != nil && s.mutate.before != nil {
		s.mutate.before(w, &o)
	}
	p := w.step(o)
	if s.mutate != nil && s.mutate.after != nil {
		s.mutate.after(w, &p)
	}
	if broken := w.checkPlan(before, &p); broken != "" {
		return 0, broken
	}
	if !w.written(p.Conditions) && actions != limit {
		actions++
		if !loseWrite {
			w.writeConditions(p.Conditions)
		}
	}
	for _, k := range p.Kill {
		if actions == limit {
			return actions, ""
		}
		actions++
		w.kill(k)
	}
	for _, i := range p.Start {
		if actions == limit {
			return actions, ""
		}
		actions++
		if broken := w.checkStart(i); broken != "" {
			return actions, broken
		}
		w.start(i)
	}
	return actions, ""
}

// checkPlan checks a plan and updates the bookkeeping. before is the phase before
// the step.
func (w *world) checkPlan(before Phase, p *Plan) string {
	restarting := p.Phase == PhaseTerminatingForRestart || p.Phase == PhaseStartup
	isTrue := false
	for i, c := range p.Conditions {
		if c.Status == v1.ConditionTrue {
			isTrue = true
			if i > 0 {
				return "I6: a condition beside the newest is True"
			}
		}
	}
	if w.deleted {
		if len(p.Kill) > 0 || len(p.Start) > 0 || p.Events != nil || isTrue {
			return "I8: a pod being deleted is restarted"
		}
		return w.checkOld(p)
	}
	if isTrue != restarting {
		return fmt.Sprintf("I6: that a condition is True is %v in %s", isTrue, p.Phase)
	}
	if message := p.began(); message != "" {
		if before == PhaseTerminatingForRestart {
			return "I3: an exit in TerminatingForRestart began a restart"
		}
		for i := range w.template {
			if c := &w.containers[i]; c.exited() && c.byAgent && message == w.trigger(i) && !w.triggers(i) {
				return "I12: the agent stopped what restarts the pod: " + message
			}
		}
		w.restartAt = w.now
		if !w.triggered && !w.ambiguous {
			return "I4: a restart begins without a trigger: " + message
		}
		if !w.isCause(message) {
			return "I7: not the exit that is the cause: " + message
		}
	}
	if p.Phase == PhaseFailed && before != PhaseFailed && !w.failed() {
		return "I3: the pod fails although no init container of this run did for good"
	}
	if p.Phase == PhaseTerminatingForRestart && len(p.Start) > 0 {
		return "I1: a container is to start in TerminatingForRestart"
	}
	for _, k := range p.Kill {
		if !restarting || !w.containers[k.Container].alive() {
			return "I1: to be killed without reason: " + k.ID
		}
	}
	if restarting {
		if end := w.apiPhase(p); end == v1.PodSucceeded || end == v1.PodFailed {
			return fmt.Sprintf("I10: the pod's API phase is %s in %s", end, p.Phase)
		}
		for i := range w.template {
			c := &w.containers[i]
			if p.Phase == PhaseTerminatingForRestart && c.exited() && w.template[i].Kind != KindEphemeral && (i >= len(p.Old) || !p.Old[i]) {
				return "I7: the exit code is not kept as last state: " + w.template[i].Name
			}
		}
	}
	if p.Phase == PhaseTerminatingForRestart {
		w.isPrevious()
	}
	if p.Phase == PhaseStartup && (before != PhaseStartup || p.began() != "" || w.sandboxLost) {
		if broken := w.startUp(); broken != "" {
			return broken
		}
	}
	if broken := w.checkOld(p); broken != "" {
		return broken
	}
	if before == PhaseStartup && p.Phase == PhaseRunning {
		for i := range w.template {
			if c := &w.containers[i]; w.template[i].Kind != KindEphemeral && c.generation != w.generation {
				return "I7: not restarted: " + w.template[i].Name
			}
		}
	}
	return ""
}

// isPrevious marks all instances as part of the previous run.
func (w *world) isPrevious() {
	for i := range w.template {
		if c := &w.containers[i]; c.number > 0 && w.template[i].Kind != KindEphemeral {
			c.previous = true
		}
	}
}

// checkOld checks which statuses belong to the previous run.
func (w *world) checkOld(p *Plan) string {
	for i := range w.template {
		switch old := i < len(p.Old) && p.Old[i]; {
		case w.ambiguous || old == w.containers[i].previous:
		case !old:
			return "I11: of the previous run, and present: " + w.template[i].Name
		case !w.ended:
			return "I11: of this run, and not present: " + w.template[i].Name
		}
	}
	return ""
}

// startUp checks the beginning of Startup.
func (w *world) startUp() string {
	for i := range w.template {
		if w.template[i].Kind != KindEphemeral && w.containers[i].alive() {
			return "I1: Startup while the previous run goes on: " + w.template[i].Name
		}
		if w.containers[i].startedAt.Unix() > w.restartAt.Unix() && w.template[i].Kind != KindEphemeral {
			w.restartAt = w.now
		}
	}
	w.isPrevious()
	w.generation++
	// Without its sandbox the pod starts up once more in the same restart.
	if !w.triggered && !w.ambiguous && !w.sandboxLost {
		return "I4: a restart without a trigger"
	}
	if w.triggered {
		if w.inARow > 0 && w.triggeredAt.Sub(w.startedUpAt) > w.reset {
			w.inARow = 0
		}
		w.inARow++
		if wait := w.now.Sub(w.triggeredAt); wait < w.delay(w.inARow) {
			return fmt.Sprintf("I5: restart %d in a row after %v", w.inARow, wait)
		}
		w.startedUpAt = w.now
	}
	w.byTrigger = w.triggered
	w.triggered, w.ambiguous = false, false
	return ""
}

// checkStart checks the start of a container before it happens.
func (w *world) checkStart(i int) string {
	c := &w.containers[i]
	name := w.template[i].Name
	if c.alive() {
		return "I1: started while it runs: " + name
	}
	if c.exited() && c.generation == w.generation && w.onExit(i) == "" && !w.ambiguous && !w.sandboxLost {
		return "I7: started twice in a restart: " + name
	}
	if w.done() && !w.ambiguous {
		return "I7: started in a pod that is done: " + name
	}
	for j := range w.template {
		other := &w.containers[j]
		if w.template[j].Kind == KindEphemeral {
			continue
		}
		if other.alive() && other.generation < w.generation {
			return fmt.Sprintf("I1: %s starts while the old %s runs", name, w.template[j].Name)
		}
		if j >= i || w.template[j].Kind == KindRegular {
			continue
		}
		// After a later container has started, a sidecar may be down for a while,
		// and an init container is done permanently.
		if other.generation != w.generation || w.template[j].Kind == KindInit && !(other.exited() && other.code == 0) {
			return fmt.Sprintf("I2: %s starts before %s is done", name, w.template[j].Name)
		}
	}
	return ""
}

// done reports whether all regular containers of the present run exited
// permanently.
func (w *world) done() bool {
	for i := range w.template {
		c := &w.containers[i]
		if w.template[i].Kind == KindRegular && (!c.exited() || c.previous || w.onExit(i) != "") {
			return false
		}
	}
	return true
}

// trigger returns the message of a restart that the container's exit caused.
func (w *world) trigger(i int) string {
	return fmt.Sprintf("Container %s exited with code %d, triggering pod restart", w.template[i].Name, w.containers[i].code)
}

// isCause reports whether the message names the earliest exit that must restart
// the pod.
func (w *world) isCause(message string) bool {
	var first *instance
	var want string
	for i := range w.template {
		c := &w.containers[i]
		if !w.triggers(i) {
			continue
		}
		this := w.trigger(i)
		if w.ambiguous && message == this {
			return true
		}
		if c.generation == w.generation && (first == nil || c.finishedAt.Before(first.finishedAt)) {
			first, want = c, this
		}
	}
	return message == want
}

// failed reports whether an init container of this run failed permanently.
func (w *world) failed() bool {
	for i := range w.template {
		c := &w.containers[i]
		if w.template[i].Kind == KindInit && c.exited() && c.code != 0 && c.generation == w.generation &&
			w.onExit(i) == "" {
			return true
		}
	}
	return false
}

// apiPhase returns the pod phase that an agent writes to the status. It ignores
// the previous run.
func (w *world) apiPhase(p *Plan) v1.PodPhase {
	regular, ended, succeeded := 0, 0, 0
	for i := range w.template {
		c := &w.containers[i]
		kind := w.template[i].Kind
		if kind == KindRegular {
			regular++
		}
		if !c.exited() || i < len(p.Old) && p.Old[i] || w.onExit(i) != "" {
			continue
		}
		switch {
		case kind == KindInit && c.code != 0:
			return v1.PodFailed
		case kind == KindRegular:
			ended++
			if c.code == 0 {
				succeeded++
			}
		}
	}
	switch {
	case ended < regular:
		return v1.PodRunning
	case succeeded == ended:
		return v1.PodSucceeded
	}
	return v1.PodFailed
}

// encode appends everything in the state that affects its future. Times are
// relative to now, and all times beyond a certain age are equal.
func (st *state) encode(b []byte, tick time.Duration) []byte {
	age := func(t time.Time) byte {
		oldest := byte(st.reset/tick) + 2
		if t.IsZero() {
			return 255
		}
		if d := st.now.Sub(t) / tick; d < time.Duration(oldest) {
			return byte(d)
		}
		return oldest
	}
	flag := func(v bool, bit int) byte {
		if v {
			return 1 << bit
		}
		return 0
	}
	// only returns the age of a time that matters, and a fixed value for any
	// other.
	only := func(matters bool, t time.Time) byte {
		if !matters {
			return 0
		}
		return age(t)
	}
	m := &st.machine
	terminating := m.phase == PhaseTerminatingForRestart
	// Conditions are read only after a crash.
	crashes := st.crashes > 0
	written := time.Time{}
	for i := range st.conditions {
		c := &st.conditions[i]
		isTrue := c.Status == v1.ConditionTrue
		if isTrue {
			written = c.LastTransitionTime.Time
		}
		if crashes {
			b = append(b, flag(isTrue, 0)|flag(c.Status == "", 1)|flag(c.Reason == ReasonPodFailed, 2))
		}
	}
	b = append(b, m.phase[0], byte(len(m.conditions)),
		only(terminating, m.since), only(terminating && !m.passed, m.exitedAt), only(crashes, written),
		flag(m.passed, 0)|flag(st.backoffSet, 1)|flag(st.sandboxLost, 2)|flag(st.deleted, 3)|
			flag(st.triggered, 4)|flag(st.ambiguous, 5)|flag(st.written(m.conditions), 6)|flag(st.byTrigger, 7),
		byte(st.generation), byte(min(st.inARow, 3)), only(st.triggered, st.triggeredAt), only(st.inARow > 0, st.startedUpAt),
		byte(st.exits), byte(st.crashes), byte(st.deletions), byte(st.lostWrites), byte(st.lostSandboxes), byte(st.stops),
		flag(st.ended, 0)|flag(st.now.Nanosecond() > 0, 1)|flag(st.restartAt.Unix() == m.since.Unix(), 2))
	if st.backoffSet {
		b = append(b, byte(min(st.backoff.Attempts, 3)), age(st.backoff.LastUpdate), age(st.backoff.WaitingSince))
	}
	for i := range st.template {
		c := &st.containers[i]
		if c.number == 0 {
			b = append(b, 0)
			continue
		}
		old := slices.Contains(m.previous, st.ids[i][c.number])
		b = append(b, 1, c.state[0], byte(c.code), only(st.triggers(i) && (c.generation == st.generation || crashes), c.finishedAt),
			flag(c.started, 0)|flag(c.killing, 1)|flag(c.plannedExit, 2)|flag(old, 3)|
				flag(c.generation == st.generation, 4)|
				flag(crashes && c.startedAt.Unix() < written.Unix(), 5)|
				flag(crashes && c.startedAt.Unix() == written.Unix(), 6)|
				flag(crashes && c.startedAt.Unix() <= m.since.Unix(), 7),
			flag(c.byAgent, 0)|flag(c.previous, 1)|flag(crashes && c.startedAt.Unix() <= st.restartAt.Unix(), 2)|
				flag(crashes && tick < time.Second && c.startedAt.After(m.since), 3))
	}
	return b
}

// script returns the events that lead to a node, in the format of the transcripts.
func (s *search) script(nodes []node, at int32) string {
	var events []event
	for ; nodes[at].parent >= 0; at = nodes[at].parent {
		events = append(events, nodes[at].event)
	}
	var b strings.Builder
	if at := s.start.now.Sub(epoch); at > 0 {
		fmt.Fprintf(&b, "tick %v\n", at)
	}
	for i := len(events) - 1; i >= 0; i-- {
		e := events[i]
		name := s.start.template[e.container].Name
		switch e.kind {
		case eventStep:
			b.WriteString("step\n")
		case eventCrash:
			fmt.Fprintf(&b, "step actions=%d\ncrash\n", e.actions)
		case eventLostWrite:
			b.WriteString("step lost-write\n")
		case eventExit:
			fmt.Fprintf(&b, "exit %s code=%d\n", name, e.code)
		case eventStarted:
			fmt.Fprintf(&b, "started %s\n", name)
		case eventTick:
			fmt.Fprintf(&b, "tick %v\n", s.unit())
		case eventDelete:
			b.WriteString("delete\n")
		case eventLoseSandbox:
			b.WriteString("lose-sandbox\n")
		case eventStop:
			fmt.Fprintf(&b, "stop %s\n", name)
		}
	}
	return b.String()
}
