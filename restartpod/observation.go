// SPDX-License-Identifier: Apache-2.0

package restartpod

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// Observation is the state of a pod as the agent sees it at one moment.
type Observation struct {
	// Now is the current time. It may step back.
	Now time.Time
	// Containers are all containers of the pod, in the order of the function
	// Containers. They and their rules may change between steps: ephemeral
	// containers are added, and a static pod may change and keep its UID. Each
	// step uses only its own list.
	Containers []Container
	// GracePeriod is the pod's terminationGracePeriodSeconds.
	GracePeriod time.Duration
	// SandboxLost is true if the pod has no ready sandbox, for example after a
	// reboot of the node. A restart in progress then repeats Startup. Otherwise
	// the agent decides what runs again, and Plan.Start does not depend on
	// SandboxLost.
	SandboxLost bool
	// Deleted is true if the pod is being deleted, or ended for another reason such
	// as its deadline.
	Deleted bool
}

// Container is a container of the pod and its newest instance.
type Container struct {
	Name string
	Kind Kind
	// Policy is the effective restart policy: Always, OnFailure or Never. It is
	// never Always for KindInit.
	Policy v1.ContainerRestartPolicy
	// Rules are the container's restart rules.
	Rules []Rule
	// Status is the status of the newest instance, or nil if there is none. It must
	// be at least as recent as the agent's last start of a container.
	Status *Status
}

// State is the state of an instance of a container. It corresponds to State of
// kubecontainer.Status in pkg/kubelet/container.
type State string

// The states. An instance in any other state does not run and has no exit code.
const (
	StateCreated State = "created"
	StateRunning State = "running"
	StateExited  State = "exited"
	// StateUnknown means that the instance may be running.
	StateUnknown State = "unknown"
)

// Status is the status of an instance of a container in the container runtime.
type Status struct {
	// ID is the unique ID of the instance.
	ID    string
	State State
	// Started is true for a running container after its startup probe and its
	// postStart hook have succeeded, or immediately if it has neither. It
	// corresponds to the field of v1.ContainerStatus.
	Started bool
	// ExitCode is valid for an instance that exited.
	ExitCode int32
	// StartedAt and FinishedAt are zero or the Unix epoch if they are unknown.
	StartedAt, FinishedAt time.Time
	// StoppedByAgent is true if the agent ended the instance, or is ending it,
	// because of a failed probe, a resize or a changed spec. Such an exit does not
	// restart the pod, because restart rules are for exits of the container itself
	// (see their comment in the API). The kubelet restarts the container according
	// to its policy, or to a rule with the action Restart. The agent need not set
	// the field for an instance that it stops because of Plan.Kill. A restarted
	// agent takes the exit for the container's own unless it stores this field.
	StoppedByAgent bool
}

// alive reports whether the instance runs, or may run.
func (s *Status) alive() bool {
	return s != nil && (s.State == StateRunning || s.State == StateUnknown)
}

// exited reports whether the instance has exited, so that its exit code is valid.
func (s *Status) exited() bool {
	return s != nil && s.State == StateExited
}

// startable reports whether the container has not run in this run of the pod.
func (s *Status) startable() bool {
	return s == nil || s.State == StateCreated
}

// hasStarted reports whether the container has started in this run of the pod. It
// may have exited since.
func (s *Status) hasStarted() bool {
	return s.exited() || s != nil && s.State == StateRunning && s.Started
}
