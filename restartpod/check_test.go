// SPDX-License-Identifier: Apache-2.0

package restartpod

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
)

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
		if w.finished && !w.ambiguous {
			return "I13: a pod that is done is restarted: " + message
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
	if isDone := p.Phase == PhaseDone || p.Phase == PhaseFailed; !w.ambiguous && (isDone && !w.done() && !w.failed() || !isDone && w.finished) {
		return fmt.Sprintf("I13: that the pod is done is %v in %s", w.finished, p.Phase)
	}
	if !restarting && w.triggered && !w.ambiguous && !w.endedAt().Equal(w.triggeredAt) {
		return "I4: a trigger without a restart"
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
	w.triggered, w.finished, w.ambiguous = false, false, false
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
	if (w.finished || w.done()) && !w.ambiguous {
		return "I13: started in a pod that is done: " + name
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

// endedAt returns when the last container exited, of those whose exits make a pod done.
func (w *world) endedAt() (at time.Time) {
	for i := range w.template {
		if c := &w.containers[i]; c.exited() && w.onExit(i) == "" && c.finishedAt.After(at) {
			at = c.finishedAt
		}
	}
	return at
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
