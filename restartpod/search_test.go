// SPDX-License-Identifier: Apache-2.0

package restartpod

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"strings"
	"time"
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
		settled := st.deleted || st.machine.phase != PhaseTerminatingForRestart && st.machine.phase != PhaseStartup
		nodes = append(nodes, node{parent: parent, event: e, fair: -1, settled: settled})
		return id, true
	}
	first := state{world: s.start, left: left{
		int8(s.exits), int8(s.crashes), int8(s.deletions), int8(s.lostWrites), int8(s.lostSandboxes), int8(s.stops),
	}}
	first.node, _ = add(&first, -1, event{})
	var todo queue
	*todo.slot() = first
	todo.push()
	var events []event
	var stepped state
	var steps []state // after 0, 1 … actions of the next step
	for st := todo.pop(); st != nil; st = todo.pop() {
		if p := st.machine.phase; st.generation >= s.restarts && (p == PhaseRunning || p == PhaseDone) {
			continue
		}
		violated := func(invariant string, e event) (int, *violation) {
			nodes = append(nodes, node{parent: st.node, event: e})
			return len(seen), &violation{invariant, s.script(nodes, int32(len(nodes)-1))}
		}
		stepped, steps = *st, steps[:0]
		if broken := stepped.act(s, func() { steps = append(steps, stepped) }); broken != "" {
			return violated(broken, event{kind: eventStep})
		}
		fair := s.fair(st, stepped.changed(st))
		events = s.events(st, len(steps)-1, events[:0])
		for _, e := range events {
			after := todo.slot()
			switch e.kind {
			case eventStep, eventLostWrite:
				*after = stepped
			case eventCrash:
				*after = steps[e.actions]
			default:
				*after = *st
			}
			if broken := s.apply(after, st, e); broken != "" {
				return violated(broken, e)
			}
			id, fresh := add(after, st.node, e)
			if e == fair {
				nodes[st.node].fair = id
			}
			if fresh {
				after.node = id
				todo.push()
			}
		}
	}
	return len(seen), s.live(nodes)
}

// queue has the states that are still to be visited, in chunks, because copying millions of
// states when it grows takes longer than visiting them.
type queue struct {
	chunks, spare []*[512]state
	// read is the next state of the first chunk, and written the end of the last one.
	read, written int
}

// slot returns the place for a state, which push then adds.
func (q *queue) slot() *state {
	if len(q.chunks) == 0 || q.written == len(q.chunks[0]) {
		chunk := new([512]state)
		if n := len(q.spare); n > 0 {
			chunk, q.spare = q.spare[n-1], q.spare[:n-1]
		}
		q.chunks, q.written = append(q.chunks, chunk), 0
	}
	return &q.chunks[len(q.chunks)-1][q.written]
}

func (q *queue) push() { q.written++ }

// pop returns the state that was added first, or nil. It is valid until the next pop.
func (q *queue) pop() *state {
	if len(q.chunks) > 0 && q.read == len(q.chunks[0]) {
		q.spare = append(q.spare, q.chunks[0])
		q.chunks, q.read = q.chunks[1:], 0
	}
	if len(q.chunks) == 0 || len(q.chunks) == 1 && q.read == q.written {
		return nil
	}
	q.read++
	return &q.chunks[0][q.read-1]
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
// steps is whether a step changes something.
func (s *search) fair(st *state, steps bool) event {
	for i := range st.template {
		switch c := &st.containers[i]; {
		case c.alive() && c.killing:
			return event{kind: eventExit, container: int8(i), code: 137}
		case c.alive() && c.byAgent:
			return event{kind: eventExit, container: int8(i), code: 88}
		}
	}
	if steps {
		return event{kind: eventStep}
	}
	for i := range st.template {
		c := &st.containers[i]
		if c.alive() && !c.started {
			return event{kind: eventStarted, container: int8(i)}
		}
		if c.alive() && st.template[i].Kind == KindInit {
			return event{kind: eventExit, container: int8(i)}
		}
	}
	return event{kind: eventTick}
}

func (st *state) changed(before *state) bool {
	return st.machine.phase != before.machine.phase || st.containers != before.containers || st.conditions != before.conditions
}

// apply applies an event and returns the invariant that it violates, or "". The actions of the
// agent are those since before.
func (s *search) apply(st, before *state, e event) string {
	switch e.kind {
	case eventLostWrite:
		st.lostWrites--
		st.conditions = before.conditions
	case eventCrash:
		st.crashes--
		phase := st.machine.phase
		st.crash(st.gates)
		if s.mutate != nil && s.mutate.recover != nil {
			s.mutate.recover(&st.world)
		}
		if phase == PhaseTerminatingForRestart && st.machine.phase == PhaseStartup && !st.ambiguous {
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

// act steps the machine, checks the plan and carries out its actions. Writing the condition is
// one action. It calls each before the first action and after each one. It returns the violated
// invariant, or "".
func (st *state) act(s *search, each func()) (broken string) {
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
		return broken
	}
	each()
	if !w.written(p.Conditions) {
		w.writeConditions(p.Conditions)
		each()
	}
	for _, k := range p.Kill {
		w.kill(k)
		each()
	}
	for _, i := range p.Start {
		if broken := w.checkStart(i); broken != "" {
			return broken
		}
		w.start(i)
		each()
	}
	return ""
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
