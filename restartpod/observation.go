// SPDX-License-Identifier: Apache-2.0

package restartpod

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/restart"
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
	// Held is true if the agent cannot stop containers yet, and steps again when it
	// can. The grace period of a restart begins with the first step after its exit
	// that is not held.
	Held bool
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
	Status *restart.ContainerStatus
}

// alive reports whether the instance runs, or may run.
func alive(s *restart.ContainerStatus) bool {
	return s != nil && (s.State == restart.ContainerStateRunning || s.State == restart.ContainerStateUnknown)
}

// exited reports whether the instance has exited, so that its exit code is valid.
func exited(s *restart.ContainerStatus) bool {
	return s != nil && s.State == restart.ContainerStateExited
}

// startable reports whether the container has not run in this run of the pod.
func startable(s *restart.ContainerStatus) bool {
	return s == nil || s.State == restart.ContainerStateCreated
}

// hasStarted reports whether the container has started in this run of the pod. It
// may have exited since.
func hasStarted(s *restart.ContainerStatus) bool {
	return exited(s) || s != nil && s.State == restart.ContainerStateRunning && s.Started
}
