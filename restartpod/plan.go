// SPDX-License-Identifier: Apache-2.0

package restartpod

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// Phase is how far the restart of a pod is. The package comment has the table.
type Phase string

// The phases.
const (
	PhaseRunning               Phase = "Running"
	PhaseTerminatingForRestart Phase = "TerminatingForRestart"
	PhaseStartup               Phase = "Startup"
	PhaseFailed                Phase = "Failed"
)

// PodRestarting is the type of the condition for the action RestartPod: KEP-5532,
// "PodCondition PodRestarting". That for RestartAllContainers is upstream's
// v1.AllContainersRestarting.
const PodRestarting v1.PodConditionType = "PodRestarting"

// The reasons of the condition. ReasonContainerExited is the KEP's and goes with
// True, the others with False.
const (
	ReasonContainerExited   = "ContainerExited"
	ReasonContainersStarted = "ContainersStarted"
	ReasonPodFailed         = "PodFailed"
	ReasonPodDeleted        = "PodDeleted"
)

// EventReason is the reason of the event that Plan.Event is the message of.
const EventReason = "PodRestarting"

// MinimumGracePeriod is what a container has at least to stop, however much of
// the pod's grace period those before it took, as in killContainer of
// pkg/kubelet/kuberuntime.
const MinimumGracePeriod = 2 * time.Second

// Plan is what to do now. An agent does it in the order of the fields, and
// before the next step.
type Plan struct {
	Phase Phase
	// Condition is the condition as it is to be in the pod's status. It is zero
	// until the first restart. It holds for its own type: any other condition
	// of the types PodRestarting and AllContainersRestarting is to be False. Its
	// LastTransitionTime is to be kept as it is: it moves, the status being True
	// all the time, when a restart begins anew. It is written before containers
	// are killed or started; where that fails, an agent goes on, at the risk that
	// the pod is restarted a second time if the agent is.
	Condition v1.PodCondition
	// Event is the message of an event to record, or "". It is set in the step
	// that begins a restart.
	Event string
	// Old has for each container of the Observation whether its status is of the
	// old generation: the container's last state, and no state of the present
	// pod. Restart policies, the pod's API phase and the container's own
	// back-off are not to see it. It is nil when no status is.
	Old []bool
	// Kill lists what is to be stopped now, all at once. It is nil but in
	// TerminatingForRestart. A container is in it until its end is seen: an agent
	// passes over what it is already stopping.
	Kill []Kill
	// Start lists containers to start, as indexes in Observation.Containers, in
	// this order, once the sandbox is ready: those that have not run in this
	// generation and whose turn it is, and those that exited and are to be
	// restarted, which may have to wait for a back-off of their own. It is empty
	// in TerminatingForRestart and Failed. The kubelet has the same from
	// computePodActions, given a pod status without the old generation.
	Start []int
	// StartAt is when the pod's back-off has passed, while that is all that is
	// waited for, and else zero.
	StartAt time.Time
	// Next is when to step the machine again if nothing changes before; zero
	// means never.
	Next time.Time
	// Reason says in words why this is the plan.
	Reason string
}

// Kill is the end of a container.
type Kill struct {
	// Container is an index in Observation.Containers.
	Container int
	// ID is the instance's ID.
	ID string
	// PreStop says to run the preStop hook first, within Grace.
	PreStop bool
	// Grace is the time from now to SIGKILL. With 0 there is no SIGTERM either.
	Grace time.Duration
}

// Stop returns what is to be stopped now of a pod that is being stopped since
// that time, and when to ask again if nothing changes before, which is zero for
// never. There is nothing left when it returns nil. Regular and init containers
// are stopped first, then the sidecars from the last to the first, and when the
// grace period is over all that are left. It is the order in which a restart of
// the pod stops them, for an agent that deletes the pod: it corrects
// terminationOrdering of pkg/kubelet/kuberuntime, which runs the preStop hooks of
// sidecars while regular containers run still. Ephemeral containers are no part
// of it.
func (o *Observation) Stop(since time.Time) (kills []Kill, next time.Time) {
	return o.stop(since, true)
}

// stop is Stop; without gracefully, all are killed at once.
func (o *Observation) stop(since time.Time, gracefully bool) (kills []Kill, next time.Time) {
	sidecar, alive, others := -1, 0, false
	for i := range o.Containers {
		c := &o.Containers[i]
		if c.Kind == KindEphemeral || !c.Status.alive() {
			continue
		}
		alive++
		if c.Kind == KindSidecar {
			sidecar = i
		} else {
			others = true
		}
	}
	if alive == 0 {
		return nil, time.Time{}
	}
	var k Kill
	inOrder := false
	if gracefully {
		// A clock that stepped back gives nobody more than the grace period.
		left := min(since.Add(o.GracePeriod).Sub(o.Now), o.GracePeriod)
		if inOrder = left > 0; inOrder {
			next = o.Now.Add(left)
		}
		k.PreStop, k.Grace = true, max(left, MinimumGracePeriod)
	}
	kills = make([]Kill, 0, alive)
	for i := range o.Containers {
		c := &o.Containers[i]
		if c.Kind == KindEphemeral || !c.Status.alive() {
			continue
		}
		if inOrder && c.Kind == KindSidecar && (others || i != sidecar) {
			continue
		}
		k.Container, k.ID = i, c.Status.ID
		kills = append(kills, k)
	}
	return kills, next
}
