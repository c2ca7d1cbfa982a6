// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

// Status is the status of an Agent's pod.
type Status struct {
	// Phase is Succeeded or Failed once nothing of the pod runs any more.
	Phase v1.PodPhase
	// Reason and Message say why the pod failed, where no container tells.
	Reason, Message string
	// Conditions are those of restarts of the whole pod: restartpod.Plan.Conditions.
	Conditions []v1.PodCondition
	// Terminating is true from when the pod is being stopped for good.
	Terminating bool
	// RetryAt is when the restart of the whole pod goes on, while it waits for
	// the pod's back-off, and else zero.
	RetryAt time.Time
	// Restarts are those of the whole pod. They are restarts of its containers
	// too.
	Restarts Restarts
	// Containers has them in the order of the spec, init containers first.
	Containers []ContainerStatus
}

// ContainerStatus is the status of a container.
type ContainerStatus struct {
	// Name and Kind are the container's.
	Name string
	Kind restartpod.Kind
	// State is as in v1.ContainerStatus.
	State v1.ContainerState
	// ID is that of the newest instance.
	ID string
	// Started is as in v1.ContainerStatus.
	Started bool
	// LastExit is the newest exit of the container, be it that of the instance in
	// State or of the one before.
	LastExit *v1.ContainerStateTerminated
	// RetryAt is when the container's back-off ends, while it waits for that, and
	// else zero.
	RetryAt time.Time
	// Restarts are those of the container alone and those with the whole pod.
	Restarts Restarts
}

// Restarts are the restarts of a container, or of a pod, so far.
type Restarts struct {
	// Count has also those of a container before the agent was started. The others
	// have not.
	Count int
	// Waited is the time for which back-offs made them wait.
	Waited time.Duration
	// Late is the time from when each was due, by its back-off or else by the exit,
	// to its start, and Worst the longest of these.
	Late, Worst time.Duration
	// Timed is how many there are in Late: those that this agent made.
	Timed int
}
