// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

// Status is the status of an Agent's pod.
type Status struct {
	// Phase is Pending until all regular containers have started once. It is Succeeded or
	// Failed only after all containers have stopped.
	Phase v1.PodPhase
	// Reason and Message explain a failure that no container explains.
	Reason, Message string
	// Ended is Succeeded or Failed as soon as the pod has ended, even if containers still
	// run, and otherwise "".
	Ended v1.PodPhase
	// StartTime is the time of the first sync of the pod, perhaps by an earlier agent.
	StartTime time.Time
	// Conditions are the conditions for restarts of the whole pod:
	// restartpod.Plan.Conditions.
	Conditions []v1.PodCondition
	// Terminating is true while the pod is being stopped for good, and afterwards.
	Terminating bool
	// RetryAt is the time at which a restart of the whole pod may start after its
	// back-off. It is zero if no restart waits.
	RetryAt time.Time
	// Restarts counts restarts of the whole pod. They also count as restarts of each
	// container.
	Restarts Restarts
	// Containers are in the order of the spec, init containers first.
	Containers []ContainerStatus
}

// ContainerStatus is the status of a container.
type ContainerStatus struct {
	// Name and Kind identify the container.
	Name string
	Kind restartpod.Kind
	// Image is the image of the manifest.
	Image string
	// State is the field of v1.ContainerStatus.
	State v1.ContainerState
	// ID is the ID of the newest instance.
	ID string
	// Started is the field of v1.ContainerStatus: the container is running, its postStart
	// hook has ended and its startup probe has passed.
	Started bool
	// Ready is the field of v1.ContainerStatus: the container has started, and its
	// readiness probe, if there is one, has passed. An init container that is not a sidecar
	// is ready after an exit with code 0.
	Ready bool
	// LastExit is the last exit of the container. It is the exit of the newest instance
	// or of an earlier one.
	LastExit *v1.ContainerStateTerminated
	// RetryAt is the time at which the container may start after its back-off. It is
	// zero if the container does not wait.
	RetryAt time.Time
	// Restarts counts restarts of the container alone and with the whole pod.
	Restarts Restarts
}

// Restarts sums up the restarts of a container or a pod.
type Restarts struct {
	// Count includes the restarts of a container under earlier agents. The other fields
	// do not. They do not include restarts after an exit at an unknown time either.
	Count int
	// Waited is the sum of all back-offs.
	Waited time.Duration
	// Late is the sum of all lateness, and Worst is the maximum. The lateness of a
	// restart is the time from the end of the back-off, or from the exit if there was
	// no back-off, to the start.
	Late, Worst time.Duration
	// Timed is the number of restarts in Late.
	Timed int
}
