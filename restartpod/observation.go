// SPDX-License-Identifier: Apache-2.0

package restartpod

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// Observation is what an agent sees of a pod at one moment.
type Observation struct {
	// Now is the present. It may step back.
	Now time.Time
	// Containers are all containers of the pod, in the order of Containers. They
	// may be others than those of the step before, with other rules: ephemeral
	// containers are added, and a static pod may change and keep its UID. Every
	// step goes by its own.
	Containers []Container
	// GracePeriod is the pod's terminationGracePeriodSeconds.
	GracePeriod time.Duration
	// SandboxLost is true if the pod has no sandbox that is ready, for instance
	// after a reboot of the node. A restart in progress then starts up the pod
	// again. Without one it is for the agent to decide what of the pod runs again,
	// and Plan.Start does not depend on it.
	SandboxLost bool
	// Deleted is true if the pod is being deleted, or ended for another reason,
	// such as its deadline.
	Deleted bool
}

// Container is a container of the pod and its newest instance.
type Container struct {
	Name string
	Kind Kind
	// Policy is the effective restart policy: Always, OnFailure or Never, and
	// never Always for KindInit.
	Policy v1.ContainerRestartPolicy
	// Rules are the container's restart rules.
	Rules []v1.ContainerRestartRule
	// Status is that of the newest instance, or nil if there is none. It is to
	// be as fresh as the agent's last start of a container.
	Status *Status
}

// State is what an instance of a container does: as State of kubecontainer.Status
// in pkg/kubelet/container.
type State string

// The states. An instance in any other state neither runs nor has an exit code.
const (
	StateCreated State = "created"
	StateRunning State = "running"
	StateExited  State = "exited"
	// StateUnknown is that of an instance that may be running.
	StateUnknown State = "unknown"
)

// Status is what a container runtime knows of an instance of a container.
type Status struct {
	// ID is the instance's ID. No two instances have the same.
	ID    string
	State State
	// Started is true from when a running container's startup probe and postStart
	// hook have passed, or it is running and has none: as in v1.ContainerStatus.
	Started bool
	// ExitCode is valid for an instance that exited.
	ExitCode int32
	// StartedAt and FinishedAt are zero, or the Unix epoch, where they are not
	// known.
	StartedAt, FinishedAt time.Time
	// StoppedByAgent is true if the agent itself ended the instance, or is ending
	// it, because of a failed probe, a resize or a changed spec. Restart rules are
	// for exits of the container's own, as the API's comment on them has it: this
	// one restarts no pod. The kubelet starts such a container again by its policy,
	// or by a rule with the action Restart. What the agent stops because of Plan.Kill
	// need not be marked. An agent that was restarted takes an exit for the
	// container's own unless it stores the mark.
	StoppedByAgent bool
}

// alive reports whether the instance runs, or may run.
func (s *Status) alive() bool {
	return s != nil && (s.State == StateRunning || s.State == StateUnknown)
}

// exited reports whether there is an exit code to act on.
func (s *Status) exited() bool {
	return s != nil && s.State == StateExited
}

// startable reports whether the container has not run in this run of the pod.
func (s *Status) startable() bool {
	return s == nil || s.State == StateCreated
}

// hasStarted reports whether the container has started in this run of the pod.
// It may have exited since.
func (s *Status) hasStarted() bool {
	return s.exited() || s != nil && s.State == StateRunning && s.Started
}
