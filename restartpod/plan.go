// SPDX-License-Identifier: Apache-2.0

package restartpod

import (
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Phase is the phase of a pod's restart. The package comment has the table.
type Phase string

// The phases.
const (
	PhaseRunning               Phase = "Running"
	PhaseTerminatingForRestart Phase = "TerminatingForRestart"
	PhaseStartup               Phase = "Startup"
	PhaseDone                  Phase = "Done"
	PhaseFailed                Phase = "Failed"
)

// The types of the condition of a pod that is being restarted.
const (
	// PodRestarting is for the action RestartPod (KEP-5532, "PodCondition
	// PodRestarting").
	PodRestarting v1.PodConditionType = "PodRestarting"
	// AllContainersRestarting is for the action RestartAllContainers. k8s.io/api has
	// it since v0.35.
	AllContainersRestarting v1.PodConditionType = "AllContainersRestarting"
)

// The reasons of the conditions. ReasonContainerExited is defined in the KEP and is
// set with True. The others are set with False. A condition that is False with
// ReasonContainerExited belongs to a restart that continues under the condition of
// the other type.
const (
	ReasonContainerExited   = "ContainerExited"
	ReasonContainersStarted = "ContainersStarted"
	ReasonPodFailed         = "PodFailed"
	ReasonPodDeleted        = "PodDeleted"
)

// EventPodRestarting is the reason of the event that is recorded when a restart
// begins.
const EventPodRestarting = "PodRestarting"

// The reasons of the other event, and of the waiting state.
const (
	// They are the same as for a container in back-off: events and sync_result.go
	// of pkg/kubelet.
	eventBackOff     = "BackOff"
	waitingInBackOff = "CrashLoopBackOff"
)

// MinimumGracePeriod is the minimum time that a container gets to stop, even if
// others have used up the pod's grace period. It is the same as in killContainer of
// pkg/kubelet/kuberuntime.
const MinimumGracePeriod = 2 * time.Second

// Plan is what to do now. The agent must carry it out in the order of the fields
// and before the next step. The data of a plan never changes later.
type Plan struct {
	Phase Phase
	// Conditions are the conditions of the types PodRestarting and
	// AllContainersRestarting. Write them to the pod's status as they are, except
	// that the agent sets ObservedGeneration. The condition of the newest restart
	// comes first. The condition of the other type follows if the pod has one.
	// Exactly one is True in TerminatingForRestart and Startup, and none in the
	// other phases. The list is empty until the first restart. Keep
	// LastTransitionTime. It changes while the status stays True if another restart
	// begins in Startup, or if the sandbox is lost there. Write the conditions
	// before killing or starting containers. If that fails, the agent goes on. If
	// the agent is then restarted, the pod may be restarted a second time.
	Conditions []v1.PodCondition
	// Events must be recorded on the pod as they are. Each event is in one plan
	// only: that a restart begins, and that it has to wait for the pod's back-off.
	Events []Event
	// Waiting is the waiting state of the pod's containers, except ephemeral ones.
	// It is set while the plan waits only for the pod's back-off, and nil
	// otherwise.
	Waiting *Waiting
	// Old reports for each container of the Observation whether its status belongs
	// to the previous run. Once such an instance has exited, its status is the
	// container's last state and not its current state. Hide it from restart policies, from the pod's API phase and
	// from the container's own back-off. This holds in every phase until the
	// container has a newer instance, even if the restart ended with the pod's
	// deletion, deadline or failure. Old is nil if no status belongs to the
	// previous run.
	Old []bool
	// Kill lists the containers to stop now, all at once. It is nil in all phases
	// except TerminatingForRestart. A container stays in the list until its end is
	// seen, so the agent must skip those that it is already stopping.
	Kill []Kill
	// Start lists the containers to start, in order, as indexes in
	// Observation.Containers. Start them when the sandbox is ready. The list has
	// the next containers that have not run in the present run. It also has
	// containers that exited and must be restarted; these may have to wait for
	// their own back-off. The list is empty in TerminatingForRestart, Done and Failed.
	// The kubelet gets the same list from computePodActions if the pod status omits
	// the previous run.
	Start []int
	// StartAt is the end of the pod's back-off while the plan waits only for that,
	// and zero otherwise.
	StartAt time.Time
	// Next is when to step the machine again if nothing changes before. Zero means
	// never.
	Next time.Time
	// Reason explains the plan in words.
	Reason string
}

// Event is an event of the pod. The fields are those of v1.Event.
type Event struct {
	Type, Reason, Message string
}

// Waiting is why a container does not run, as in v1.ContainerStateWaiting.
type Waiting struct {
	Reason, Message string
}

// Kill describes how to stop a container.
type Kill struct {
	// Container is an index in Observation.Containers.
	Container int
	// ID is the instance's ID.
	ID string
	// PreStop is true if the preStop hook must run first, within Grace.
	PreStop bool
	// Grace is the time until SIGKILL. If it is 0, there is no SIGTERM either.
	Grace time.Duration
	// Message is the message of the container's event Killing.
	Message string
}

// Stop returns the containers to stop now in a pod that has been stopping since the
// given time. It also returns when to call Stop again if nothing changes before;
// zero means never. It returns nil when nothing is left. Regular and init
// containers are stopped first, then the sidecars from the last to the first. After
// the grace period, Stop returns all that are left. Ephemeral containers are not
// included. A restart of the pod uses the same order. Agents that delete a pod
// should call Stop. If the clock steps back to a time before since, pass that time
// from then on: otherwise the grace period begins again with each call. Stop corrects terminationOrdering of pkg/kubelet/kuberuntime,
// which runs the preStop hooks of sidecars while regular containers are still
// running.
func (o *Observation) Stop(since time.Time) (kills []Kill, next time.Time) {
	return o.stop(since, true, "")
}

// stop is Stop with two options. Without gracefully, all containers are killed at
// once. Messages end with why.
func (o *Observation) stop(since time.Time, gracefully bool, why string) (kills []Kill, next time.Time) {
	const stopping = "Stopping container "
	sidecar, running, others, length := -1, 0, false, 0
	for i := range o.Containers {
		c := &o.Containers[i]
		if c.Kind == KindEphemeral || !alive(c.Status) {
			continue
		}
		running++
		length += len(stopping) + len(c.Name) + len(why)
		if c.Kind == KindSidecar {
			sidecar = i
		} else {
			others = true
		}
	}
	if running == 0 {
		return nil, time.Time{}
	}
	var k Kill
	inOrder := false
	if gracefully {
		// If the clock stepped back, no container gets more than the grace period.
		left := min(since.Add(o.GracePeriod).Sub(o.Now), o.GracePeriod)
		if inOrder = left > 0; inOrder {
			next = o.Now.Add(left)
		}
		k.PreStop, k.Grace = true, max(left, MinimumGracePeriod)
	}
	kills = make([]Kill, 0, running)
	var messages strings.Builder // one allocation for all messages
	messages.Grow(length)
	for i := range o.Containers {
		c := &o.Containers[i]
		if c.Kind == KindEphemeral || !alive(c.Status) {
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
