// SPDX-License-Identifier: Apache-2.0

package restartpod

import (
	"strings"
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

// The reasons of the conditions. ReasonContainerExited is the KEP's and goes with
// True, the others with False. A condition that is False with ReasonContainerExited
// is of a restart that goes on under the condition of the other type.
const (
	ReasonContainerExited   = "ContainerExited"
	ReasonContainersStarted = "ContainersStarted"
	ReasonPodFailed         = "PodFailed"
	ReasonPodDeleted        = "PodDeleted"
)

// EventPodRestarting is the reason of the event with which a restart begins.
const EventPodRestarting = "PodRestarting"

// The reasons of the other event, and of the waiting state.
const (
	// Those of a container in back-off are the same: events and sync_result.go of
	// pkg/kubelet.
	eventBackOff     = "BackOff"
	waitingInBackOff = "CrashLoopBackOff"
)

// MinimumGracePeriod is the least time that a container has to stop, however much
// of the pod's grace period those before it took, as in killContainer of
// pkg/kubelet/kuberuntime.
const MinimumGracePeriod = 2 * time.Second

// Plan is what to do now. An agent does it in the order of the fields, and
// before the next step. Nothing that a plan refers to changes later.
type Plan struct {
	Phase Phase
	// Conditions are the conditions of the types PodRestarting and
	// AllContainersRestarting to write to the pod's status, as they are: that of
	// the newest restart first, and then that of the other type if the pod has it.
	// At most one is True, in TerminatingForRestart and Startup exactly one. The
	// list is empty until the first restart. ObservedGeneration is the agent's to
	// set. LastTransitionTime is to be kept: it moves, the status staying True,
	// when a restart in Startup begins another one or loses its sandbox. Conditions
	// are written before containers are killed or started; where that fails, an
	// agent goes on, at the risk that the pod is restarted a second time if the
	// agent is.
	Conditions []v1.PodCondition
	// Events are to be recorded on the pod, as they are. Each is in one plan: that
	// a restart begins, and that it has to wait for the pod's back-off.
	Events []Event
	// Waiting is the waiting state of the pod's containers, ephemeral ones
	// excepted, while the pod's back-off is all that is waited for, and else nil.
	Waiting *Waiting
	// Old has for each container of the Observation whether its status is of the
	// pod's previous run: the container's last state, and not its present one.
	// Restart policies, the pod's API phase and the container's own back-off are
	// not to see it. It is so in every phase, until the container has a newer
	// instance: also after the restart ended with the pod's deletion, its deadline
	// or its failure. It is nil when no status is of the previous run.
	Old []bool
	// Kill lists what to stop now, all at once. It is nil in all phases
	// except TerminatingForRestart. A container is in it until its end is seen: an
	// agent skips what it is already stopping.
	Kill []Kill
	// Start lists containers to start, as indexes in Observation.Containers, in
	// this order, once the sandbox is ready: those whose turn it is and that have
	// not run in the present run of the pod, and those that exited and are to be
	// restarted, which may have to wait for a back-off of their own. It is empty
	// in TerminatingForRestart and Failed. The kubelet has the same from
	// computePodActions, given a pod status without the previous run.
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

// Event is an event of the pod: type, reason and message as in v1.Event.
type Event struct {
	Type, Reason, Message string
}

// Waiting is why a container does not run, as in v1.ContainerStateWaiting.
type Waiting struct {
	Reason, Message string
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
	// Message is that of the event Killing of the container.
	Message string
}

// Stop returns what to stop now of a pod that is being stopped since that time,
// and when to ask again if nothing changes before, which is zero for never. It
// returns nil once nothing is left. Regular and init containers are stopped
// first, then the sidecars from the last to the first, and when the grace period
// is over all that are left. It is the order in which a restart of the pod stops
// them, for an agent that deletes the pod: it corrects terminationOrdering of
// pkg/kubelet/kuberuntime, which runs the preStop hooks of sidecars while regular
// containers still run. Ephemeral containers are no part of it.
func (o *Observation) Stop(since time.Time) (kills []Kill, next time.Time) {
	return o.stop(since, true, "")
}

// stop is Stop; without gracefully, all are killed at once. Messages end with why.
func (o *Observation) stop(since time.Time, gracefully bool, why string) (kills []Kill, next time.Time) {
	const stopping = "Stopping container "
	sidecar, alive, others, length := -1, 0, false, 0
	for i := range o.Containers {
		c := &o.Containers[i]
		if c.Kind == KindEphemeral || !c.Status.alive() {
			continue
		}
		alive++
		length += len(stopping) + len(c.Name) + len(why)
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
	var messages strings.Builder // One allocation has them all.
	messages.Grow(length)
	for i := range o.Containers {
		c := &o.Containers[i]
		if c.Kind == KindEphemeral || !c.Status.alive() {
			continue
		}
		if inOrder && c.Kind == KindSidecar && (others || i != sidecar) {
			continue
		}
		from := messages.Len()
		messages.WriteString(stopping)
		messages.WriteString(c.Name)
		messages.WriteString(why)
		k.Container, k.ID, k.Message = i, c.Status.ID, messages.String()[from:]
		kills = append(kills, k)
	}
	return kills, next
}
