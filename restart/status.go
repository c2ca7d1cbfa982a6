// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"time"
)

// ContainerState is the state of an instance of a container in the container
// runtime. The values are those of pkg/kubelet/container.
type ContainerState string

// The states of an instance. An instance in any other state does not run and has no
// exit code.
const (
	ContainerStateCreated ContainerState = "created"
	ContainerStateRunning ContainerState = "running"
	ContainerStateExited  ContainerState = "exited"
	// ContainerStateUnknown means that the instance may be running.
	ContainerStateUnknown ContainerState = "unknown"
)

// ContainerStatus describes an instance of a container, the current one or an earlier
// one. It corresponds to Status of pkg/kubelet/container.
type ContainerStatus struct {
	// Name is the container's name in the pod. DoBackOff and RestoreBackOff ignore a
	// status with another name. Package restartpod does not use it.
	Name string
	// ID is the unique ID of the instance. Only package restartpod uses it, to tell the
	// instances before a restart of the pod from those after it. It must not be empty.
	ID    string
	State ContainerState
	// ExitCode is valid for an instance that exited. The back-off depends on it only for a
	// key whose rules ignore some codes.
	ExitCode int32
	// StartedAt and FinishedAt are zero or the Unix epoch if the runtime does not
	// know the time.
	StartedAt, FinishedAt time.Time
	// RestartCount is the number of instances before this one.
	RestartCount int
	// BackOff is the result of SaveBackOff when this instance was created. It may
	// be empty.
	BackOff string
	// Started is true for a running container after its startup probe and its
	// postStart hook have succeeded, or immediately if it has neither. It
	// corresponds to the field of v1.ContainerStatus. Only package restartpod uses it: a
	// restart of the pod ends when all regular containers have started.
	Started bool
	// StoppedByAgent is true if the agent ended the instance, or is ending it,
	// because of a failed probe, a resize or a changed spec. An exit from before the
	// agent began to stop it is the container's own. One that the agent caused does not
	// restart the pod, because restart rules are for exits of the container itself
	// (see their comment in the API). The kubelet restarts the container according
	// to its policy, or to a rule with the action Restart. The agent need not set
	// the field for an instance that it stops because of restartpod's Plan.Kill. A
	// restarted agent takes the exit for the container's own unless it stores this field.
	StoppedByAgent bool
	// Replaced is true for a healthy instance that the agent has just killed, because
	// the user changed or resized its container. Only DoBackOff uses it.
	Replaced bool
}
