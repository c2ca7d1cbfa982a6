// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

// Runtime runs the containers of one pod. It decides what a container is, and which
// fields of the pod affect it. The [Agent] handles back-off, restart policies and
// rules, hooks, probes and grace periods.
//
// [Agent.Run] calls Stop and Exec from other goroutines than the other methods,
// concurrently. For [Agent.Step] every method must return at once. After an error of
// any method nothing has changed, and the agent tries again.
type Runtime interface {
	// State returns the current state of the pod. It includes the effects of all
	// earlier calls of Start. The agent does not keep State.Instances.
	State(ctx context.Context) (State, error)
	// CreateSandbox creates a sandbox. It replaces one that is not ready.
	CreateSandbox(ctx context.Context) error
	// Start starts a new instance of a container and returns its ID. restarts is the
	// number of earlier instances. If the instance was created but could not be
	// started, there is no error: it has exited with ExitCodeStartError and
	// ReasonStartError. After an error, which may be a *WaitingError, there is no new
	// instance. ctx is done when the pod is deleted; then an error is not a failure of
	// the container.
	//
	// Command, args and environment are those of the manifest. The functions Command
	// and Environment of agent/manifest resolve their references.
	Start(ctx context.Context, container *v1.Container, restarts int) (id string, err error)
	// Stop stops an instance: its first process gets SIGTERM, and all its processes get
	// SIGKILL after the grace period, or at once if that is 0. Stop may return before
	// the instance has ended; State shows the end. For an instance that has ended it
	// returns nil. Of several calls for one instance the earliest SIGKILL counts.
	Stop(ctx context.Context, id string, grace time.Duration) error
	// Exec runs a command in an instance and returns its output and exit code. The
	// kubelet keeps the first 10 KiB of the output. The error is for a command that
	// could not run, or not to its end. When ctx is done, the command is killed. A
	// deadline of ctx is by the agent's clock, and ctx is done then.
	Exec(ctx context.Context, id string, command []string) (output []byte, exitCode int, err error)
	// Remove kills everything that still runs, and removes the sandbox and the volumes
	// of the pod. The agent calls it after the pod has ended.
	Remove(ctx context.Context) error
	// Changed returns the channel that gets a value when State may have changed by
	// itself. It is always the same channel. A buffer of one is enough: a value that
	// does not fit may be dropped. A Runtime for [Agent.Step] may return nil.
	Changed() <-chan struct{}
}

// State is the state of a pod in a Runtime.
type State struct {
	// SandboxReady is true from CreateSandbox until the sandbox is lost, for example in
	// a reboot.
	SandboxReady bool
	// IP is the address of the containers for probes.
	IP string
	// Instances has the newest instance of each container, by the name of the
	// container.
	Instances map[string]Instance
}

// Instance is the newest instance of a container.
type Instance struct {
	// Status has the unique ID of the instance, its state, exit code and times. The
	// agent sets Started and StoppedByAgent.
	restartpod.Status
	// Restarts is the number of earlier instances, as passed to Start.
	Restarts int
	// Reason and Message are set if the instance did not end by an exit of its own:
	// ReasonStartError or OOMKilled. Otherwise the agent uses Completed or Error.
	Reason, Message string
}

// ExitCodeStartError and ReasonStartError are the exit code and reason that container
// runtimes give to an instance that could not be started.
const (
	ExitCodeStartError = 128
	ReasonStartError   = "StartError"
)

// WaitingError is an error of Start with a reason for the container's waiting state,
// such as ErrImagePull. Other errors have the reason CreateContainerError. For reasons
// with which the kubelet has created nothing, the start is retried after ten seconds
// and the back-off does not grow. Every other error of Start counts as an exit.
type WaitingError struct {
	// Reason is the reason in v1.ContainerStateWaiting.
	Reason string
	// Err is the cause.
	Err error
}

// Error returns the reason and the text of the cause.
func (e *WaitingError) Error() string { return e.Reason + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *WaitingError) Unwrap() error { return e.Err }
