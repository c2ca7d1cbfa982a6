// SPDX-License-Identifier: Apache-2.0

package restartpod

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Recover sets a new machine to the pod's phase from before the agent ended. It
// derives the phase from the pod's conditions and the statuses of its containers
// (KEP-5532, "Kubelet and Node Restarts"). A restart in progress is completed even
// if its gate is now off, because the pod has already lost containers. A pod that is
// done is found by its containers, also if it was never restarted.
//
// The grace period of a restart in progress begins again with the next Step. As after
// a deletion, the agent does not know whether it has told the containers to stop.
//
// The condition of a restart that has ended holds the time of the end and not of
// the beginning. If the pod's deletion ended the restart, all older instances
// therefore count as part of the previous run. This includes instances that
// Startup had started. The pod does not run again.
func (m *Machine) Recover(conditions []v1.PodCondition, containers []Container, now time.Time) {
	for i := range conditions {
		if t := conditions[i].Type; t == PodRestarting || t == AllContainersRestarting {
			m.conditions = append(m.conditions, conditions[i])
		}
	}
	defer m.recoverDone(containers, now)
	if len(m.conditions) == 0 {
		return
	}
	// The condition that is True comes first. If both have the same status, the
	// newer one comes first.
	slices.SortStableFunc(m.conditions, func(a, b v1.PodCondition) int {
		if aTrue := a.Status == v1.ConditionTrue; aTrue != (b.Status == v1.ConditionTrue) {
			if aTrue {
				return -1
			}
			return 1
		}
		return b.LastTransitionTime.Compare(a.LastTransitionTime.Time)
	})
	c := m.conditions[0]
	m.setCondition(c)
	switch {
	case c.Status == v1.ConditionTrue:
		m.recoverRestart(containers, now)
	case c.Reason == ReasonPodFailed:
		// In any other phase the exit that was the cause would trigger another
		// restart.
		m.phase = PhaseFailed
		m.recoverFailed(containers)
	case c.Reason == ReasonPodDeleted:
		for i := range containers {
			if s := containers[i].Status; s != nil && s.StartedAt.Unix() <= c.LastTransitionTime.Unix() {
				m.remember(&containers[i], len(containers))
			}
		}
	}
}

// recoverDone is Recover for a pod that is done, as its containers show. Step decides if
// one of them triggers a restart instead.
func (m *Machine) recoverDone(containers []Container, now time.Time) {
	o := &Observation{Now: now, Containers: containers}
	if m.phase != PhaseRunning {
		return
	}
	done, at := m.done(o)
	if cause, _ := m.cause(o, done, at); done != "" && cause == nil {
		m.phase = done
	}
}

// recoverRestart is Recover for a restart in progress.
func (m *Machine) recoverRestart(containers []Container, now time.Time) {
	m.since = m.conditions[0].LastTransitionTime.Time
	m.exitedAt = m.since
	// If the condition is in the future and an instance started after it, the clock
	// stepped back in Startup. Nothing of the previous run is alive then.
	begun := m.since.Unix() > now.Unix() && slices.ContainsFunc(containers, func(c Container) bool {
		return c.Kind != KindEphemeral && c.Status != nil && c.Status.StartedAt.Unix() > m.since.Unix()
	})
	previousAlive, started := false, false
	for i := len(containers) - 1; i >= 0; i-- {
		c := &containers[i]
		if c.Kind == KindEphemeral || c.Status == nil {
			continue
		}
		if exited(c.Status) && causeMessage(c) == m.conditions[0].Message {
			// The back-off counts from this time, which is more precise than the
			// condition's.
			m.exitedAt = c.Status.FinishedAt
		}
		// The condition's time has whole seconds. An instance that started in the
		// same second counts as part of the previous run. Otherwise one of the
		// previous run might keep running, which is worse than stopping one of the
		// present run. The exception is an init container or sidecar if a
		// container that starts after it belongs to the present run. An ended one
		// cannot keep running, so it is excepted even if it started earlier: the
		// clock may have stepped back.
		//
		// If the clock stepped back while the restart was in progress, Startup wrote the
		// condition again. An instance from before the step then seems to have started
		// in the future.
		at, since := c.Status.StartedAt.Unix(), m.since.Unix()
		if at > now.Unix() && since <= now.Unix() {
			at = since
		}
		if at > since || begun && alive(c.Status) || started && c.Kind != KindRegular && (at == since || !alive(c.Status)) {
			started = true
			continue
		}
		m.remember(c, len(containers))
		previousAlive = previousAlive || alive(c.Status)
	}
	m.phase = PhaseTerminatingForRestart
	if started && !previousAlive {
		m.phase, m.passed = PhaseStartup, true
	}
}

// recoverFailed is Recover for a pod that failed permanently in Startup. The first
// init container that failed belongs to the present run, and so do those before it.
// Later containers belong to the previous run.
func (m *Machine) recoverFailed(containers []Container) {
	failed := false
	for i := range containers {
		c := &containers[i]
		if failed || c.Kind == KindRegular {
			m.remember(c, len(containers))
		} else if s := c.Status; c.Kind == KindInit && exited(s) && s.ExitCode != 0 {
			failed = m.gates.OnExit(c, s.ExitCode) == ""
		}
	}
}
