// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

// Runtime runs the containers of one pod. It says what a container is, and which
// fields of the pod have an effect on it; back-off, restart policies and rules,
// hooks, probes and grace periods are the [Agent]'s.
//
// [Agent.Run] calls Stop and Exec from other goroutines than the other methods,
// all concurrently. For [Agent.Step] every method has to return at once. An error
// of any method leaves things as they were, and the agent tries again.
type Runtime interface {
	// State returns what there is of the pod now. It is as fresh as the last call
	// of Start. The agent keeps nothing of State.Instances.
	State(ctx context.Context) (State, error)
	// CreateSandbox makes a sandbox, in place of the one that State says is not
	// ready.
	CreateSandbox(ctx context.Context) error
	// Start starts a new instance of a container, which has restarts instances
	// before it, and returns its ID. An instance that could be made but not started
	// has exited with ExitCodeStartError and ReasonStartError, and is no error.
	// After an error, which may be a *WaitingError, there is no new instance. ctx is
	// done when the pod is deleted; an error then is no failure of the container.
	//
	// Command, args and environment are as in the manifest: the functions Expand
	// and Environment of agent/manifest resolve what they refer to.
	Start(ctx context.Context, container *v1.Container, restarts int) (id string, err error)
	// Stop ends an instance: its first process gets SIGTERM, and all of them get
	// SIGKILL after the grace period, or at once if that is 0. It returns when the
	// instance has ended or before, and State says when it has. It is nil for an
	// instance that has ended already. Of several calls for one instance the
	// earliest SIGKILL counts.
	Stop(ctx context.Context, id string, grace time.Duration) error
	// Exec runs a command in an instance and returns its output and exit code. The
	// kubelet keeps the first 10 KiB of the output. The error is for a command that
	// could not be run, or not to its end. When ctx is done the command is killed.
	// The deadline of ctx, if any, is by the agent's clock, which ends ctx then.
	Exec(ctx context.Context, id string, command []string) (output []byte, exitCode int, err error)
	// Remove removes the sandbox with all that is in it, and the pod's volumes. What
	// still runs ends at once. It is called once the pod has ended.
	Remove(ctx context.Context) error
	// Changed returns the channel, always the same, that gets a value when State may
	// have changed by itself. It needs a buffer of one and no more: a value that
	// does not fit may be dropped. A Runtime for [Agent.Step] may return nil.
	Changed() <-chan struct{}
}

// State is what a Runtime has of a pod.
type State struct {
	// SandboxReady is true from CreateSandbox until the sandbox is lost, for
	// instance with a reboot.
	SandboxReady bool
	// IP is where the containers' ports are, for probes.
	IP string
	// Instances has the newest instance of each container that has any, by the
	// container's name.
	Instances map[string]Instance
}

// Instance is the newest instance of a container.
type Instance struct {
	// Status has the instance's ID, which no other instance has, its state, and its
	// exit code and times. Started and StoppedByAgent are the agent's to know, and
	// are left out.
	restartpod.Status
	// Restarts is what Start was given: how many instances there were before.
	Restarts int
	// Reason and Message are for what ended otherwise than by an exit of its own:
	// ReasonStartError, or OOMKilled. Others have the reason Completed or Error.
	Reason, Message string
}

// ExitCodeStartError and ReasonStartError are those of an instance that could not
// be started, as container runtimes have them.
const (
	ExitCodeStartError = 128
	ReasonStartError   = "StartError"
)

// WaitingError is an error of Start that has a reason of its own, such as
// ErrImagePull, for the container's waiting state. Others are
// CreateContainerErrors there. Where the kubelet has created nothing with that
// reason, the start is tried again after ten seconds, and the container's curve
// does not advance. Any other error of Start counts as an exit.
type WaitingError struct {
	// Reason is that of v1.ContainerStateWaiting.
	Reason string
	// Err is what went wrong.
	Err error
}

// Error returns the reason and the text of the error.
func (e *WaitingError) Error() string { return e.Reason + ": " + e.Err.Error() }

// Unwrap returns the error.
func (e *WaitingError) Unwrap() error { return e.Err }
