// SPDX-License-Identifier: Apache-2.0

package restartpod

import (
	"cmp"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/restart"
)

// smallPod returns a pod whose containers all have rules: action for exit code
// 88, and RestartAllContainers for 99. Its container names have one letter each:
// a and b are init containers, s is a sidecar between them, x and y are regular
// containers.
func smallPod(policy v1.RestartPolicy, action Action, containers string) *podSpec {
	grace := int64(1)
	spec := &podSpec{rules: map[string][]Rule{}}
	spec.RestartPolicy, spec.TerminationGracePeriodSeconds = policy, &grace
	own := v1.ContainerRestartPolicy(policy)
	if own == PolicyAlways {
		// An init container with the policy Always would be a sidecar.
		own = PolicyOnFailure
	}
	always := PolicyAlways
	for _, name := range containers {
		spec.rules[string(name)] = []Rule{
			{Action: action, Operator: OperatorIn, Values: []int32{88}},
			{Action: ActionRestartAllContainers, Operator: OperatorIn, Values: []int32{99}},
		}
		c := v1.Container{Name: string(name), RestartPolicy: &own}
		switch name {
		case 's':
			c.RestartPolicy = &always
			fallthrough
		case 'a', 'b':
			spec.InitContainers = append(spec.InitContainers, c)
		default:
			if policy == v1.RestartPolicyAlways {
				c.RestartPolicy = &always
			}
			spec.Containers = append(spec.Containers, c)
		}
	}
	return spec
}

var allGates = Gates{ContainerRestartRules: true, RestartPod: true, RestartAllContainers: true}

// smallWorld returns a smallPod on a node with a short curve, so that time
// matters little: 0, 1, 2, 2 … s, and a reset after more than 3 s. It begins
// within a second, because the API truncates the condition's time to whole
// seconds.
func smallWorld(spec *podSpec) world {
	w := newWorld(spec, allGates, 1*time.Second, 2*time.Second, 3*time.Second)
	w.now = w.now.Add(500 * time.Millisecond)
	return w
}

// underRace reports whether the race detector is on. It makes a search ten times
// as slow, so the search is shortened. The search has no concurrency.
var underRace bool

// unlessRace returns the containers of a pod, or fewer with the race detector: a
// second container of a kind multiplies the number of worlds.
func unlessRace(containers, fewer string) string {
	if underRace {
		return fewer
	}
	return containers
}

func TestInvariants(t *testing.T) {
	const restartPod, restartAll = ActionRestartPod, ActionRestartAllContainers
	five := unlessRace("asbxy", "asx")
	probed := smallWorld(smallPod("Never", restartPod, "asx"))
	probed.pod.probed = true
	searches := []struct {
		name string
		search
	}{
		{"all containers exit", search{start: smallWorld(smallPod("Never", restartPod, five)), exits: 3}},
		{"the agent crashes", search{start: smallWorld(smallPod("Never", restartPod, five)), exits: 2, crashes: 1, deletions: 1, lostWrites: 1}},
		{"the agent crashes, OnFailure", search{start: smallWorld(smallPod("OnFailure", restartPod, five)), exits: 2, crashes: 1}},
		{"the agent crashes, Always", search{start: smallWorld(smallPod("Always", restartPod, five)), exits: 3, crashes: 1}},
		{"the agent crashes, RestartAllContainers", search{start: smallWorld(smallPod("Never", restartAll, five)), exits: 2, crashes: 1}},
		{"the sandbox is lost", search{start: smallWorld(smallPod("Never", restartPod, five)), exits: 2, crashes: 1, lostSandboxes: 1}},
		{"startup probes", search{start: probed, exits: 3, crashes: 1}},
		{"both actions", search{start: smallWorld(smallPod("Never", restartPod, "asx")), exits: 3, crashes: 1, both: true}},
		{"the agent crashes twice, sidecar", search{start: smallWorld(smallPod("Never", restartPod, "asx")), exits: 3, crashes: 2, deletions: 1, lostWrites: 1}},
		{"the agent crashes twice, Always", search{start: smallWorld(smallPod("Always", restartPod, "abx")), exits: 3, crashes: 2, deletions: 1, lostWrites: 1}},
		{"half seconds", search{start: smallWorld(smallPod("Never", restartPod, unlessRace("asx", "ax"))), tick: 500 * time.Millisecond, exits: 2, crashes: 1, lostSandboxes: 1}},
		{"the agent stops containers", search{start: smallWorld(smallPod("Never", restartPod, "sx")), exits: 2, crashes: 1, stops: 2, deletions: 1}},
	}
	// With the default percentage, garbage collection is most of the work. The
	// memory limit keeps parallel searches from growing the heap to 7 GB.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(4 << 30))
	var total atomic.Int64
	t.Run("searches", func(t *testing.T) {
		for _, tc := range searches {
			t.Run(tc.name, func(t *testing.T) {
				t.Parallel()
				s := tc.search
				s.restarts = cmp.Or(s.restarts, 2)
				if underRace || testing.Short() {
					s.restarts, s.exits, s.crashes, s.deletions, s.lostWrites = 1, 1, min(s.crashes, 1), 0, 0
					t.Log("with -race or -short: one restart, one exit and one crash only")
				}
				worlds, broken := s.run()
				if broken != nil {
					t.Fatal(broken)
				}
				total.Add(int64(worlds))
				t.Logf("%s: %d worlds", tc.name, worlds)
			})
		}
	})
	t.Logf("%d worlds in all, no violation", total.Load())
}

// TestInvariantsBite proves that the search finds faults: for each invariant it
// runs a machine that violates it.
func TestInvariantsBite(t *testing.T) {
	restarting := func(w *world, p Phase) bool { return w.machine.phase == p }
	mutations := []struct {
		invariant, name string
		mutation
		bounds func(*search)
	}{
		{"I1", "the end of sidecars is not waited for", mutation{before: func(w *world, o *Observation) {
			for i := range o.Containers {
				if c := o.Containers[i]; restarting(w, PhaseTerminatingForRestart) && c.Kind == KindSidecar && c.Status != nil {
					c.Status.State = restart.ContainerStateExited
				}
			}
		}}, nil},
		{"I2", "a container is started with the init container before it", mutation{after: func(w *world, p *Plan) {
			if len(p.Start) == 1 && p.Start[0] == 0 {
				p.Start = append(p.Start, 1)
			}
		}}, nil},
		{"I3", "an exit triggers in whatever phase", mutation{before: func(w *world, _ *Observation) {
			if restarting(w, PhaseTerminatingForRestart) {
				w.machine.phase, w.machine.previous = PhaseRunning, nil
			}
		}}, nil},
		{"I3", "an init container that was killed has failed", mutation{after: func(w *world, p *Plan) {
			if restarting(w, PhaseTerminatingForRestart) && w.containers[2].plannedExit {
				w.machine.phase = PhaseFailed
				w.machine.endCondition(ReasonPodFailed, w.now)
				p.Phase, p.Conditions = w.machine.phase, w.machine.conditions
			}
		}}, nil},
		{"I4", "the condition alone decides after a crash, as upstream", mutation{recover: func(w *world) {
			if c := w.machine.conditions; len(c) > 0 && c[0].Status == v1.ConditionTrue {
				w.machine.phase, w.machine.passed = PhaseTerminatingForRestart, false
			}
		}}, func(s *search) { s.deletions = 0 }},
		{"I4", "a container of the previous run triggers in Startup", mutation{before: func(w *world, _ *Observation) {
			if restarting(w, PhaseStartup) {
				w.machine.previous = nil
			}
		}}, nil},
		{"I5", "there is no back-off, as upstream", mutation{before: func(w *world, _ *Observation) {
			w.machine.passed = true
		}}, nil},
		{"I6", "the condition is False from Startup on, as upstream", mutation{after: func(w *world, p *Plan) {
			if restarting(w, PhaseStartup) {
				p.Conditions = slices.Clone(p.Conditions)
				p.Conditions[0].Status = v1.ConditionFalse
			}
		}}, nil},
		{"I7", "the cause's exit code is 137, as upstream", mutation{after: func(w *world, p *Plan) {
			for i := range p.Events {
				p.Events[i].Message = strings.Replace(p.Events[i].Message, "code 88", "code 137", 1)
			}
		}}, nil},
		{"I7", "the first init container runs twice", mutation{after: func(w *world, p *Plan) {
			if restarting(w, PhaseStartup) && w.containers[0].exited() && (p.Old == nil || !p.Old[0]) {
				p.Start = []int{0}
			}
		}}, nil},
		{"I8", "the deletion is not looked at, as upstream", mutation{before: func(_ *world, o *Observation) {
			o.Deleted = false
		}}, nil},
		{"I9", "sidecars are not killed", mutation{after: func(w *world, p *Plan) {
			p.Kill = slices.DeleteFunc(p.Kill, func(k Kill) bool { return w.template[k.Container].Kind == KindSidecar })
		}}, func(s *search) { s.restarts, s.exits, s.crashes, s.deletions = 1, 1, 0, 0 }},
		{"I10", "the previous run counts in Startup", mutation{after: func(w *world, p *Plan) {
			if restarting(w, PhaseStartup) && p.Old != nil && !p.Old[0] {
				p.Old = nil
				w.ambiguous = true // I11 is not checked
			}
		}}, nil},
		{"I1", "Recover compares nanoseconds", mutation{recover: func(w *world) {
			o := w.observe()
			for i := range o.Containers {
				if s := o.Containers[i].Status; s != nil && s.StartedAt.After(s.StartedAt.Truncate(time.Second)) {
					// A time after the whole second is after the condition.
					s.StartedAt = s.StartedAt.Add(time.Second)
				}
			}
			w.machine = *w.newMachine(w.gates)
			w.machine.Recover(w.conditions[:], o.Containers, w.now)
		}}, nil},
		{"I4", "Startup that begins again compares nanoseconds", mutation{after: func(w *world, p *Plan) {
			m := &w.machine
			for i := range w.containers {
				if c := &w.containers[i]; p.Phase == PhaseStartup && w.sandboxLost && c.number > 0 && c.startedAt.After(m.since) {
					m.since = w.now
					p.Conditions = slices.Clone(p.Conditions)
					p.Conditions[0].LastTransitionTime.Time = w.now
					m.conditions = p.Conditions
				}
			}
		}}, func(s *search) {
			s.start = smallWorld(smallPod("Never", ActionRestartPod, "ax"))
			s.tick, s.exits, s.deletions, s.lostSandboxes = 500*time.Millisecond, 1, 0, 1
		}},
		{"I13", "sidecars of a pod that is done are restarted", mutation{after: func(w *world, p *Plan) {
			if restarting(w, PhaseDone) && !w.deleted && p.Start == nil && w.containers[1].exited() {
				p.Start = []int{1}
			}
		}}, nil},
		{"I13", "an exit triggers in a pod that is done", mutation{before: func(w *world, o *Observation) {
			if restarting(w, PhaseDone) {
				w.machine.phase = PhaseRunning
			}
			for i := range o.Containers {
				if c := &o.Containers[i]; c.Kind == KindRegular && exited(c.Status) {
					c.Status.FinishedAt = w.now
				}
			}
		}}, nil},
		{"I13", "an exit triggers after an init container failed for good", mutation{before: func(w *world, o *Observation) {
			if restarting(w, PhaseFailed) {
				w.machine.phase = PhaseRunning
			}
			for i := range o.Containers {
				if c := &o.Containers[i]; c.Kind == KindInit && exited(c.Status) {
					c.Status.FinishedAt = w.now
				}
			}
		}}, nil},
		{"I4", "no exit of a sidecar triggers", mutation{before: func(_ *world, o *Observation) {
			for i := range o.Containers {
				if o.Containers[i].Kind == KindSidecar {
					o.Containers[i].Rules = nil
				}
			}
		}}, func(s *search) { s.exits, s.crashes = 1, 0 }},
		{"I11", "the previous run is present after a deletion", mutation{after: func(w *world, p *Plan) {
			if w.deleted {
				p.Old = nil
			}
		}}, nil},
		{"I11", "the previous run is present after a failure", mutation{after: func(w *world, p *Plan) {
			if restarting(w, PhaseFailed) {
				p.Old = nil
			}
		}}, nil},
		{"I11", "after a crash, the previous run is present in a pod that failed", mutation{recover: func(w *world) {
			if restarting(w, PhaseFailed) {
				w.machine.previous = nil
			}
		}}, nil},
		{"I11", "after a crash, the previous run is present in a pod being deleted", mutation{recover: func(w *world) {
			if w.ended {
				w.machine.previous = nil
			}
		}}, nil},
		{"I12", "a rule answers what the agent stopped", mutation{before: func(_ *world, o *Observation) {
			for i := range o.Containers {
				if s := o.Containers[i].Status; s != nil {
					s.StoppedByAgent = false
				}
			}
		}}, func(s *search) { s.stops = 1 }},
	}
	for _, tc := range mutations {
		t.Run(tc.invariant+" "+tc.name, func(t *testing.T) {
			s := search{
				start:    smallWorld(smallPod("Never", ActionRestartPod, "asbx")),
				restarts: 2, exits: 2, crashes: 1, deletions: 1,
				mutate: &tc.mutation,
			}
			if tc.bounds != nil {
				tc.bounds(&s)
			}
			worlds, broken := s.run()
			if broken == nil {
				t.Fatalf("not found in %d worlds", worlds)
			}
			if !strings.HasPrefix(broken.invariant, tc.invariant+":") {
				t.Fatalf("found another violation: %v", broken)
			}
			t.Logf("after %d worlds, %v", worlds, broken)
		})
	}
}
