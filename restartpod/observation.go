// SPDX-License-Identifier: Apache-2.0

package restartpod

import (
	"time"

	v1 "k8s.io/api/core/v1"

	kuberuntime "github.com/kubelet-backoff/kubelet-backoff/kuberuntime"
)

// Observation is what an agent sees of a pod at one moment.
type Observation struct {
	// Now is the present. It may step back.
	Now time.Time
	// Containers are all containers of the pod, in the order of Containers; that
	// of one machine's observations does not change, but that ephemeral
	// containers may be added at the end.
	Containers []Container
	// GracePeriod is the pod's terminationGracePeriodSeconds.
	GracePeriod time.Duration
	// SandboxLost says that the pod has no sandbox that is ready, for instance
	// after a reboot of the node. A restart in progress begins anew then. Without
	// one it is for the agent to say what of the pod is to run again, and Plan.Start
	// does not depend on it.
	SandboxLost bool
	// Deleted says that the pod is being deleted, or ended for another reason.
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

// Status is what a container runtime knows of an instance of a container.
type Status struct {
	// ID is the instance's ID. No two instances have the same.
	ID    string
	State kuberuntime.ContainerState
	// Started is true from when a running container's startup probe and postStart
	// hook have passed, or it is running and has none: as in v1.ContainerStatus.
	Started bool
	// ExitCode is valid for an instance that exited.
	ExitCode int32
	// StartedAt and FinishedAt are zero, or the Unix epoch, where they are not
	// known.
	StartedAt, FinishedAt time.Time
}

// alive says that the instance runs, or may run.
func (s *Status) alive() bool {
	return s != nil && (s.State == kuberuntime.ContainerStateRunning || s.State == kuberuntime.ContainerStateUnknown)
}

// exited says that there is an exit code to act on.
func (s *Status) exited() bool {
	return s != nil && s.State == kuberuntime.ContainerStateExited
}

// startable says that the container has not run in this generation.
func (s *Status) startable() bool {
	return s == nil || s.State == kuberuntime.ContainerStateCreated
}

// hasStarted says that the container ran in this generation, be it that it
// exited since.
func (s *Status) hasStarted() bool {
	return s.exited() || s != nil && s.State == kuberuntime.ContainerStateRunning && s.Started
}
