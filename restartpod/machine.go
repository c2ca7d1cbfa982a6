// SPDX-License-Identifier: Apache-2.0

package restartpod

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	backoff "github.com/kubelet-backoff/kubelet-backoff/backoff"
)

// Machine is the restart of one pod. Its methods are not to be called
// concurrently.
type Machine struct {
	gates   Gates
	backoff *backoff.Backoff
	key     string

	phase Phase
	// condition is what Plan.Condition returns. Its status is True if and only if
	// phase is TerminatingForRestart or Startup, and its type is then that of the
	// action.
	condition v1.PodCondition
	// What follows is of the restart in progress, and stale without one.

	// since is when it began. The grace period counts from it.
	since time.Time
	// exitedAt is when the container that is the cause exited. The back-off
	// counts from it.
	exitedAt time.Time
	// passed says that the back-off let it pass, which it is asked for once.
	passed bool
	// old has the IDs of the old generation's instances in Startup, by the
	// container's index; "" where there is none.
	old []string
}

// New returns the machine of a pod that is not being restarted.
//
// The pod's back-off is kept in b under Key(uid), and any number of pods may
// share b. A b that delays the first restart delays that of a pod too: KEP-5532
// promises the container's back-off, and its users rely on a fast first restart,
// so b had better have DelayFirstRestart false.
func New(b *backoff.Backoff, uid types.UID, gates Gates) *Machine {
	return &Machine{gates: gates, backoff: b, key: Key(uid), phase: PhaseRunning}
}

// Key is the key of a pod's back-off. None that kuberuntime.Key makes for a
// container is the same.
func Key(uid types.UID) string {
	return "pod/" + string(uid)
}

// Recover puts a new machine in the phase that the pod was in when the agent
// ended, going by the pod's conditions and the statuses of its containers
// (KEP-5532, "Kubelet and Node Restarts"). A restart in progress is finished
// though its gate may be off by now, for the pod has lost containers already.
func (m *Machine) Recover(conditions []v1.PodCondition, containers []Container) {
	for i := range conditions {
		c := &conditions[i]
		if c.Type != PodRestarting && c.Type != v1.AllContainersRestarting {
			continue
		}
		// The one that is True, or else the newer one.
		if m.condition.Type == "" || c.Status == v1.ConditionTrue ||
			m.condition.Status != v1.ConditionTrue && m.condition.LastTransitionTime.Before(&c.LastTransitionTime) {
			m.condition = *c
		}
	}
	if m.condition.Status != v1.ConditionTrue {
		if m.condition.Reason == ReasonPodFailed {
			// Or else the exit that was the cause would begin a restart again.
			m.phase = PhaseFailed
		}
		return
	}
	m.since = m.condition.LastTransitionTime.Time
	m.exitedAt = m.since

	m.old = make([]string, len(containers))
	oldAlive, started := false, false
	for i := len(containers) - 1; i >= 0; i-- {
		c := &containers[i]
		if c.Kind == KindEphemeral || c.Status == nil {
			continue
		}
		// The condition's time has whole seconds. An instance of the same second
		// counts as old, because an old one that ran on would be worse than a new
		// one that is stopped; but not an init container or sidecar where a
		// container that starts after it is new.
		at, since := c.Status.StartedAt.Unix(), m.since.Unix()
		if at > since || at == since && started && c.Kind != KindRegular {
			started = true
			continue
		}
		m.old[i] = c.Status.ID
		oldAlive = oldAlive || c.Status.alive()
	}
	m.phase = PhaseTerminatingForRestart
	if started && !oldAlive {
		m.phase, m.passed = PhaseStartup, true
	}
}

// Step returns what to do about what is seen.
func (m *Machine) Step(o Observation) Plan {
	if o.Deleted {
		m.finish(o.Now, PhaseRunning, ReasonPodDeleted)
		return Plan{Phase: m.phase, Condition: m.condition, Reason: "the pod is being deleted"}
	}
	event := m.trigger(&o)
	if m.phase == PhaseStartup && o.SandboxLost {
		// What was started went with the sandbox. It is the same restart still.
		m.phase = PhaseTerminatingForRestart
	}
	var p Plan
	if m.phase == PhaseTerminatingForRestart && !m.terminate(&o, &p) {
		p.Reason = "containers of the old generation are being stopped"
		if p.Kill == nil {
			p.Reason = "the pod waits for its back-off to pass"
		}
	} else {
		m.start(&o, &p)
	}
	p.Phase, p.Condition, p.Event = m.phase, m.condition, event
	return p
}

// trigger begins a restart if an exit asks for one, and returns the event.
func (m *Machine) trigger(o *Observation) string {
	if m.phase != PhaseRunning && m.phase != PhaseStartup {
		return ""
	}
	var cause *Container
	var action v1.ContainerRestartRuleAction
	for i := range o.Containers {
		c := &o.Containers[i]
		if c.Kind == KindEphemeral || len(c.Rules) == 0 || !m.visible(o, i).exited() {
			continue
		}
		// The first exit is the cause, and of those at the same time that of the
		// container that comes first in the spec.
		if cause != nil && !c.Status.FinishedAt.Before(cause.Status.FinishedAt) {
			continue
		}
		switch a := m.gates.OnExit(c, c.Status.ExitCode); a {
		case ContainerRestartRuleActionRestartPod, v1.ContainerRestartRuleActionRestartAllContainers:
			cause, action = c, a
		}
	}
	if cause == nil {
		return ""
	}
	m.phase = PhaseTerminatingForRestart
	m.since = o.Now
	m.exitedAt = cause.Status.FinishedAt
	m.passed = false
	m.condition = v1.PodCondition{
		Type:               PodRestarting,
		Status:             v1.ConditionTrue,
		LastTransitionTime: metav1.NewTime(o.Now),
		Reason:             ReasonContainerExited,
		Message:            fmt.Sprintf("Container %s exited with code %d, triggering pod restart", cause.Name, cause.Status.ExitCode),
	}
	if action == v1.ContainerRestartRuleActionRestartAllContainers {
		m.condition.Type = v1.AllContainersRestarting
	}
	return m.condition.Message
}

// terminate plans the end of the old generation. It returns true, the phase
// being Startup, once nothing of it runs and the back-off has passed.
func (m *Machine) terminate(o *Observation, p *Plan) bool {
	p.Old = make([]bool, len(o.Containers))
	for i := range o.Containers {
		c := &o.Containers[i]
		p.Old[i] = c.Kind != KindEphemeral && c.Status != nil
	}
	p.Kill, p.Next = o.stop(m.since, m.condition.Type == PodRestarting)
	if p.Kill != nil {
		return false
	}
	if !m.passed {
		d := m.backoff.DecideAt(m.key, m.exitedAt, o.Now)
		if !d.Allowed {
			p.StartAt, p.Next = d.RetryAt, d.RetryAt
			return false
		}
		m.passed = true
	}
	m.phase = PhaseStartup
	m.old = make([]string, len(o.Containers))
	for i := range o.Containers {
		c := &o.Containers[i]
		if !p.Old[i] {
			continue
		}
		m.old[i] = c.Status.ID
		if c.Status.StartedAt.After(m.since) {
			// It was started by this restart already, but the sandbox was lost, or
			// it was not known to be new. Recover is to find it old.
			m.since = o.Now
			m.condition.LastTransitionTime = metav1.NewTime(o.Now)
		}
	}
	return true
}

// start plans the starts of the present generation, and ends Startup when all
// of it has started or cannot.
func (m *Machine) start(o *Observation, p *Plan) {
	if m.phase == PhaseFailed {
		p.Reason = "an init container failed for good"
		return
	}
	if m.phase == PhaseStartup {
		p.Old = m.oldStatuses(o, p.Old)
	}
	initialized, failed := m.starts(o, p)
	switch {
	case failed:
		m.finish(o.Now, PhaseFailed, ReasonPodFailed)
		p.Reason = "an init container failed for good"
		p.Start, p.Old = nil, nil
	case m.phase == PhaseStartup && initialized && m.allStarted(o):
		m.finish(o.Now, PhaseRunning, ReasonContainersStarted)
		p.Reason = "all containers have started"
		p.Old = nil
	case m.phase == PhaseStartup:
		p.Reason = "the new generation is being started"
	default:
		p.Reason = "no restart of the pod is in progress"
	}
}

// oldStatuses returns which statuses are of the old generation, in old if that
// is not nil.
func (m *Machine) oldStatuses(o *Observation, old []bool) []bool {
	if old == nil {
		old = make([]bool, len(o.Containers))
	}
	for i := range old {
		old[i] = o.Containers[i].Status != nil && m.visible(o, i) == nil
	}
	return old
}

// visible returns the status of a container, or nil if that is of the old
// generation.
func (m *Machine) visible(o *Observation, i int) *Status {
	s := o.Containers[i].Status
	if m.phase == PhaseStartup && s != nil && i < len(m.old) && m.old[i] == s.ID && s.ID != "" {
		return nil
	}
	return s
}

// starts plans what to start by the rules for a pod of any age: init containers
// one after the other, sidecars among them, then regular containers. It returns
// whether the pod has been initialized, and whether it has failed to.
func (m *Machine) starts(o *Observation, p *Plan) (initialized, failed bool) {
	// The last init container with a status is how far initialization is. Those
	// before it may be gone from the runtime.
	last, inits, regular, ended := -1, 0, 0, 0
	for i := range o.Containers {
		c, s := &o.Containers[i], m.visible(o, i)
		switch c.Kind {
		case KindInit, KindSidecar:
			inits = i + 1
			if s != nil {
				last = i
			}
		case KindRegular:
			regular++
			initialized = initialized || s.alive() || s.exited()
			if s.exited() && m.gates.OnExit(c, s.ExitCode) == "" {
				ended++
			}
		}
	}
	if regular > 0 && ended == regular {
		// The pod is done: a sidecar that ended stays so.
		return true, false
	}
	if !initialized {
		if initialized, failed = m.startInit(o, p, last, inits); failed {
			return false, true
		}
	} else {
		m.startSidecars(o, p, inits)
	}
	if !initialized {
		return false, false
	}
	for i := range o.Containers {
		c, s := &o.Containers[i], m.visible(o, i)
		if c.Kind == KindRegular && (s.startable() || s.exited() && m.gates.OnExit(c, s.ExitCode) != "") {
			m.plan(o, p, i)
		}
	}
	return true, false
}

// startInit plans the next step of the initialization of a pod, of which the
// init container at last has begun.
func (m *Machine) startInit(o *Observation, p *Plan, last, inits int) (initialized, failed bool) {
	m.startSidecars(o, p, last)
	next := last + 1
	if last >= 0 {
		c, s := &o.Containers[last], m.visible(o, last)
		switch {
		case s.startable(), c.Kind == KindSidecar && s.exited():
			next = last
		case c.Kind == KindSidecar:
			if !s.hasStarted() {
				return false, false
			}
		case !s.exited():
			return false, false
		case s.ExitCode != 0:
			if m.gates.OnExit(c, s.ExitCode) == "" {
				return false, true
			}
			next = last
		}
	}
	if next >= inits {
		return true, false
	}
	m.plan(o, p, next)
	return false, false
}

// startSidecars plans the start of those sidecars before the container at end
// that do not run.
func (m *Machine) startSidecars(o *Observation, p *Plan, end int) {
	for i := 0; i < end; i++ {
		if o.Containers[i].Kind == KindSidecar && !m.visible(o, i).alive() {
			m.plan(o, p, i)
		}
	}
}

// plan plans the start of a container. An observation that contradicts itself may
// have one there that runs, or is ephemeral.
func (m *Machine) plan(o *Observation, p *Plan, i int) {
	if c := &o.Containers[i]; c.Kind == KindEphemeral || c.Status.alive() {
		return
	}
	if p.Start == nil {
		p.Start = make([]int, 0, len(o.Containers))
	}
	p.Start = append(p.Start, i)
}

// allStarted says that all regular containers have started. Sidecars have then,
// as they come before.
func (m *Machine) allStarted(o *Observation) bool {
	for i := range o.Containers {
		if o.Containers[i].Kind == KindRegular && !m.visible(o, i).hasStarted() {
			return false
		}
	}
	return true
}

// finish ends a restart, if one is in progress.
func (m *Machine) finish(now time.Time, phase Phase, reason string) {
	m.phase = phase
	if m.condition.Status != v1.ConditionTrue {
		return
	}
	m.condition.Status = v1.ConditionFalse
	m.condition.LastTransitionTime = metav1.NewTime(now)
	m.condition.Reason = reason
}
