// SPDX-License-Identifier: Apache-2.0

package restartpod

import (
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	backoff "github.com/kubelet-backoff/kubelet-backoff/backoff"
	"github.com/kubelet-backoff/kubelet-backoff/restart"
)

// Machine controls the in-place restarts of one pod. Its methods must not be called
// concurrently.
type Machine struct {
	gates   Gates
	backoff *backoff.Backoff
	// key is the key of the pod's back-off, and pod is the pod's name.
	key, pod string

	phase Phase
	// conditions is the value of Plan.Conditions. The first one is True if and
	// only if phase is TerminatingForRestart or Startup; its type then depends on
	// the action. Plans share the slice, so every change makes a new one.
	conditions []v1.PodCondition
	// previous has the IDs of the instances of the previous run. In
	// TerminatingForRestart it has all instances.
	previous []string

	// The fields below are about the restart in progress, and stale without one.

	// since is when the restart began.
	since time.Time
	// stopSince is when this machine began to stop the previous run, or zero before
	// that. The grace period counts from it.
	stopSince time.Time
	// exitedAt is when the container that caused the restart exited. The back-off
	// counts from it.
	exitedAt time.Time
	// passed is true after the back-off has allowed the restart. It allows each
	// restart only once.
	passed bool
	// waiting is the containers' waiting state, set when the restart begins to wait
	// for the back-off.
	waiting *Waiting
}

// New returns the machine of a pod that is not being restarted. It reads the UID
// and the name of the pod.
//
// b must not be nil. It keeps the pod's back-off under the key "pod/" plus the UID, which is never the
// key of a container. Any number of pods may share b. If b delays first restarts,
// it delays the first restart of a pod too. Avoid that: KEP-5532 promises the same
// back-off as for containers, and its users rely on a fast first restart.
func New(b *backoff.Backoff, pod *v1.Pod, gates Gates) *Machine {
	return &Machine{gates: gates, backoff: b, key: "pod/" + string(pod.UID), pod: pod.Name, phase: PhaseRunning}
}

// BackOffKey returns the key of the pod's back-off. The key is known until the
// reset rule forgets it. An agent may store its state before it ends, and restore
// it before Recover.
func (m *Machine) BackOffKey() string { return m.key }

// State returns the phase and the conditions of the last Plan, or of Recover if
// there was no Step since.
func (m *Machine) State() (Phase, []v1.PodCondition) { return m.phase, m.conditions }

// Step returns the plan for an observation.
func (m *Machine) Step(o Observation) Plan {
	var p Plan
	if o.Deleted {
		if m.phase == PhaseTerminatingForRestart {
			m.rememberAll(&o)
		}
		if m.phase != PhaseDone && m.phase != PhaseFailed {
			m.becomeRunning(ReasonPodDeleted, o.Now)
		}
		p.Reason = "the pod is being deleted"
	} else {
		done, at := m.done(&o)
		if cause, action := m.cause(&o, done, at); cause != nil {
			m.becomeTerminating(cause, action, o.Now)
			p.Events = []Event{{v1.EventTypeNormal, EventPodRestarting, m.conditions[0].Message}}
		} else if done != "" {
			m.becomeDone(done, o.Now)
		}
		if m.phase == PhaseStartup && o.SandboxLost {
			m.becomeTerminatingAgain()
		}
		if m.phase == PhaseTerminatingForRestart {
			m.terminate(&o, &p)
		}
		if m.phase == PhaseStartup && o.Now.Unix() < m.since.Unix() && !m.begun(&o) {
			// The clock stepped back. Recover must not take what starts now for old.
			m.setSince(o.Now)
		}
		if m.phase != PhaseTerminatingForRestart {
			m.start(&o, &p)
		}
	}
	p.Phase, p.Conditions, p.Old = m.phase, m.conditions, m.oldStatuses(&o)
	return p
}

// done returns the phase of a pod that is done, and when it became so: PhaseDone when the
// last regular container ended for good, or PhaseFailed when an init container failed
// for good. It returns "" for a pod that is not done, or whose phase is not Running or
// Startup. What ended with the sandbox in Startup did not end for good.
func (m *Machine) done(o *Observation) (phase Phase, at time.Time) {
	if m.phase != PhaseRunning && m.phase != PhaseStartup || m.phase == PhaseStartup && o.SandboxLost {
		return "", at
	}
	// Initialization has reached the last init container with a status.
	var last *Container
	regular, begun, ended := 0, 0, 0
	for i := range o.Containers {
		c, s := &o.Containers[i], m.visible(o, i)
		switch {
		case c.Kind == KindRegular:
			regular++
			if s != nil {
				begun++
			}
			if exited(s) && m.gates.OnExit(c, s.ExitCode) == "" {
				ended++
				if s.FinishedAt.After(at) {
					at = s.FinishedAt
				}
			}
		case c.Kind != KindEphemeral && s != nil:
			last = c
		}
	}
	switch {
	case regular > 0 && ended == regular:
		return PhaseDone, at
	case begun == 0 && last != nil && last.Kind == KindInit && exited(last.Status) &&
		last.Status.ExitCode != 0 && m.gates.OnExit(last, last.Status.ExitCode) == "":
		return PhaseFailed, last.Status.FinishedAt
	}
	return "", time.Time{}
}

// cause returns the container whose exit triggers a restart, and the action of its
// rule. It returns nil if there is none. If the pod became done at that time, only
// earlier exits count. None does if that time is to come: the clock stepped back, and
// the exit may be the later one. The statuses may be a little newer than o.Now.
func (m *Machine) cause(o *Observation, done Phase, at time.Time) (cause *Container, action Action) {
	if m.phase != PhaseRunning && m.phase != PhaseStartup {
		return nil, ""
	}
	for i := range o.Containers {
		c := &o.Containers[i]
		if c.Kind == KindEphemeral || len(c.Rules) == 0 || !exited(m.visible(o, i)) {
			continue
		}
		if finished := c.Status.FinishedAt; done != "" && (finished.Unix() <= 0 || !finished.Before(at) || at.After(o.Now.Add(time.Second))) {
			continue
		}
		// The first exit is the cause. If several happened at the same time, the
		// first container in the spec is.
		if cause != nil && !c.Status.FinishedAt.Before(cause.Status.FinishedAt) {
			continue
		}
		switch a := m.gates.OnExit(c, c.Status.ExitCode); a {
		case ActionRestartPod, ActionRestartAllContainers:
			cause, action = c, a
		}
	}
	return cause, action
}

// terminate plans the end of the previous run. The phase becomes Startup when
// nothing of it runs and the back-off has passed.
func (m *Machine) terminate(o *Observation, p *Plan) {
	m.rememberAll(o)
	stopSince := m.stopSince
	if stopSince.IsZero() {
		stopSince = o.Now
		if !o.Held {
			m.stopSince = stopSince
		}
	} else if stopSince.After(o.Now) {
		// The clock stepped back. The grace period begins again, once.
		stopSince, m.stopSince = o.Now, o.Now
	}
	p.Kill, p.Next = o.stop(stopSince, m.conditions[0].Type == PodRestarting, ", the pod is being restarted")
	if p.Kill != nil {
		if !m.passed {
			// Otherwise the back-off may take the pod for a running one, and
			// forget its key.
			m.backoff.Exited(m.key, m.exitedAt, o.Now)
		}
		p.Reason = "containers of the previous run are being stopped"
		return
	}
	if !m.passed {
		d := m.backoff.Decide(m.key, m.exitedAt, o.Now)
		if !d.Allowed {
			if m.waiting == nil {
				restarting := "restarting pod " + m.pod + ": " + m.conditions[0].Message
				m.waiting = &Waiting{waitingInBackOff, "back-off " + d.Delay.String() + " " + restarting}
				p.Events = append(p.Events, Event{v1.EventTypeWarning, eventBackOff, "Back-off " + restarting +
					": waiting " + d.Delay.String() + ", next start at " + d.RetryAt.UTC().Format(time.RFC3339)})
			}
			p.Waiting, p.StartAt, p.Next = m.waiting, d.RetryAt, d.RetryAt
			p.Reason = "the pod waits for its back-off to pass"
			return
		}
	}
	m.becomeStartup(o)
}

// start plans the starts of the present run. It ends Startup when everything has
// started.
func (m *Machine) start(o *Observation, p *Plan) {
	switch m.phase {
	case PhaseDone:
		p.Reason = "all regular containers have ended for good"
		return
	case PhaseFailed:
		p.Reason = "an init container failed for good"
		return
	}
	initialized := m.starts(o, p)
	switch {
	case m.phase == PhaseStartup && initialized && m.allStarted(o):
		m.becomeRunning(ReasonContainersStarted, o.Now)
		p.Reason = "all containers have started"
	case m.phase == PhaseStartup:
		p.Reason = "the containers are being started"
	default:
		p.Reason = "no restart of the pod is in progress"
	}
}

// becomeTerminating begins a restart with the given action because the container
// cause exited.
func (m *Machine) becomeTerminating(cause *Container, action Action, now time.Time) {
	must(m.phase == PhaseRunning || m.phase == PhaseStartup, "a restart begins while one is being prepared, or after a failure")
	m.phase = PhaseTerminatingForRestart
	m.previous = nil
	m.since, m.stopSince = now, time.Time{}
	m.exitedAt = cause.Status.FinishedAt
	m.passed, m.waiting = false, nil
	c := v1.PodCondition{
		Type:               PodRestarting,
		Status:             v1.ConditionTrue,
		LastTransitionTime: metav1.NewTime(now),
		Reason:             ReasonContainerExited,
		Message:            causeMessage(cause),
	}
	if action == ActionRestartAllContainers {
		c.Type = AllContainersRestarting
	}
	m.setCondition(c)
}

// causeMessage returns the condition's message for a restart that the container
// caused.
func causeMessage(cause *Container) string {
	return "Container " + cause.Name + " exited with code " + strconv.Itoa(int(cause.Status.ExitCode)) + ", triggering pod restart"
}

// becomeTerminatingAgain repeats Startup because the sandbox and all started
// containers were lost. It is still the same restart, and the back-off has already
// allowed it. Containers that still run have a whole grace period.
func (m *Machine) becomeTerminatingAgain() {
	must(m.phase == PhaseStartup && m.passed, "Startup begins again before it began")
	m.phase = PhaseTerminatingForRestart
	m.stopSince = time.Time{}
}

// becomeStartup ends the wait for the previous run.
func (m *Machine) becomeStartup(o *Observation) {
	must(m.phase == PhaseTerminatingForRestart, "Startup begins without a restart")
	m.phase, m.passed, m.waiting = PhaseStartup, true, nil
	for i := range o.Containers {
		c := &o.Containers[i]
		must(!m.old(c) || !alive(c.Status), "Startup begins while the previous run goes on")
		if m.old(c) && c.Status.StartedAt.Unix() > m.since.Unix() {
			// This restart had already started the instance, but the sandbox was
			// lost, or the instance was not known to be new. Recover compares
			// whole seconds and must not take it for new.
			m.since = o.Now
		}
	}
	m.setSince(m.since)
}

// begun reports whether the present run has an instance.
func (m *Machine) begun(o *Observation) bool {
	for i := range o.Containers {
		if o.Containers[i].Kind != KindEphemeral && m.visible(o, i) != nil {
			return true
		}
	}
	return false
}

// setSince changes the time of the restart in progress, and that of its condition.
func (m *Machine) setSince(since time.Time) {
	m.since = since
	if c := m.conditions[0]; !c.LastTransitionTime.Time.Equal(since) {
		c.LastTransitionTime = metav1.NewTime(since)
		m.setCondition(c)
	}
}

// becomeRunning ends a restart, if one is in progress, for the given reason.
func (m *Machine) becomeRunning(reason string, now time.Time) {
	must(m.phase == PhaseStartup || reason != ReasonContainersStarted, "containers have started outside Startup")
	m.phase = PhaseRunning
	m.endCondition(reason, now)
}

// becomeDone ends a restart, if one is in progress, and all starts. phase is PhaseDone or
// PhaseFailed.
func (m *Machine) becomeDone(phase Phase, now time.Time) {
	must(m.phase == PhaseStartup || m.phase == PhaseRunning, "a pod is done while its previous run is stopped")
	m.phase = phase
	reason := ReasonContainersStarted
	if phase == PhaseFailed {
		reason = ReasonPodFailed
	}
	m.endCondition(reason, now)
}

// must panics on a transition that Step never makes. No observation can cause one.
func must(ok bool, otherwise string) {
	if !ok {
		panic("restartpod: " + otherwise)
	}
}

// endCondition sets a condition that is True to False.
func (m *Machine) endCondition(reason string, now time.Time) {
	if len(m.conditions) == 0 || m.conditions[0].Status != v1.ConditionTrue {
		return
	}
	c := m.conditions[0]
	c.Status, c.Reason, c.LastTransitionTime = v1.ConditionFalse, reason, metav1.NewTime(now)
	m.setCondition(c)
}

// setCondition makes c the newest condition. No other condition stays True.
func (m *Machine) setCondition(c v1.PodCondition) {
	conditions := append(make([]v1.PodCondition, 0, 2), c)
	for _, other := range m.conditions {
		if other.Type == c.Type || len(conditions) == 2 {
			continue
		}
		if other.Status == v1.ConditionTrue {
			other.Status, other.LastTransitionTime = v1.ConditionFalse, c.LastTransitionTime
		}
		conditions = append(conditions, other)
	}
	m.conditions = conditions
}

// rememberAll adds all instances to the previous run.
func (m *Machine) rememberAll(o *Observation) {
	for i := range o.Containers {
		m.remember(&o.Containers[i], len(o.Containers))
	}
	// Copies of a machine must not share what they append.
	m.previous = slices.Clip(m.previous)
}

// remember adds the container's instance, if there is one, to the previous run. more
// is a hint for the number of instances to add.
func (m *Machine) remember(c *Container, more int) {
	if c.Kind == KindEphemeral || c.Status == nil || c.Status.ID == "" || slices.Contains(m.previous, c.Status.ID) {
		return
	}
	if m.previous == nil {
		m.previous = make([]string, 0, more)
	}
	m.previous = append(m.previous, c.Status.ID)
}

// old reports whether the container's instance belongs to the previous run.
func (m *Machine) old(c *Container) bool {
	return c.Kind != KindEphemeral && c.Status != nil &&
		(m.phase == PhaseTerminatingForRestart || slices.Contains(m.previous, c.Status.ID))
}

// oldStatuses returns the value of Plan.Old.
func (m *Machine) oldStatuses(o *Observation) []bool {
	var old []bool
	for i := range o.Containers {
		if !m.old(&o.Containers[i]) {
			continue
		}
		if old == nil {
			old = make([]bool, len(o.Containers))
		}
		old[i] = true
	}
	return old
}

// visible returns the status of a container, or nil if it belongs to the previous
// run.
func (m *Machine) visible(o *Observation, i int) *restart.ContainerStatus {
	if c := &o.Containers[i]; !m.old(c) {
		return c.Status
	}
	return nil
}

// starts plans the starts of a pod, whether restarted or new: init containers and
// sidecars one after the other, then regular containers. It reports whether the pod
// has been initialized.
func (m *Machine) starts(o *Observation, p *Plan) (initialized bool) {
	// Initialization has reached the last init container with a status. The runtime
	// may have removed earlier ones.
	last, inits := -1, 0
	for i := range o.Containers {
		s := m.visible(o, i)
		switch o.Containers[i].Kind {
		case KindInit, KindSidecar:
			inits = i + 1
			if s != nil {
				last = i
			}
		case KindRegular:
			initialized = initialized || s != nil
		}
	}
	if initialized {
		m.startSidecars(o, p, inits)
	} else if initialized = m.startInit(o, p, last, inits); !initialized {
		return false
	}
	for i := range o.Containers {
		c, s := &o.Containers[i], m.visible(o, i)
		if c.Kind == KindRegular && (startable(s) || exited(s) && m.gates.OnExit(c, s.ExitCode) != "") {
			m.plan(o, p, i)
		}
	}
	return true
}

// startInit plans the next step of the pod's initialization, and reports whether that is
// complete. last is the last init container that has begun. It has not failed for good.
func (m *Machine) startInit(o *Observation, p *Plan, last, inits int) (initialized bool) {
	m.startSidecars(o, p, last)
	next := last + 1
	if last >= 0 {
		c, s := &o.Containers[last], m.visible(o, last)
		switch {
		case startable(s), c.Kind == KindSidecar && exited(s):
			next = last
		case c.Kind == KindSidecar:
			if !hasStarted(s) {
				return false
			}
		case !exited(s):
			return false
		case s.ExitCode != 0:
			next = last
		}
	}
	if next >= inits {
		return true
	}
	m.plan(o, p, next)
	return false
}

// startSidecars plans the start of the sidecars before end that do not run.
func (m *Machine) startSidecars(o *Observation, p *Plan, end int) {
	for i := 0; i < end; i++ {
		if o.Containers[i].Kind == KindSidecar && !alive(m.visible(o, i)) {
			m.plan(o, p, i)
		}
	}
}

// plan plans the start of a container. It ignores a container that runs or is
// ephemeral, which happens only in a contradictory observation.
func (m *Machine) plan(o *Observation, p *Plan, i int) {
	if c := &o.Containers[i]; c.Kind == KindEphemeral || alive(c.Status) {
		return
	}
	if p.Start == nil {
		p.Start = make([]int, 0, len(o.Containers))
	}
	p.Start = append(p.Start, i)
}

// allStarted reports whether all regular containers have started. The sidecars have
// then started too, because they come first.
func (m *Machine) allStarted(o *Observation) bool {
	for i := range o.Containers {
		if o.Containers[i].Kind == KindRegular && !hasStarted(m.visible(o, i)) {
			return false
		}
	}
	return true
}
