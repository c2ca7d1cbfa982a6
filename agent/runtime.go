// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

// Runtime runs the containers of one pod. Its methods may be called
// concurrently. What it honours of the pod is for it to say; back-off, restart
// policies, hooks and probes are the Agent's.
type Runtime interface {
	// State returns what there is of the pod now. It is as fresh as the last call
	// of Start and Stop.
	State(ctx context.Context) (State, error)
	// CreateSandbox makes a sandbox, in place of the one that State says is not
	// ready.
	CreateSandbox(ctx context.Context) error
	// Start starts a new instance of a container and returns its ID. The number
	// of instances before it is restarts. An instance that could be made but not
	// started has exited with ExitCodeStartError, and is no error; after an error,
	// which may be a WaitingError, there is no new instance.
	Start(ctx context.Context, container *v1.Container, restarts int) (id string, err error)
	// Stop ends an instance: SIGTERM to its first process, and SIGKILL to all of
	// them after the grace period, or at once if that is 0. It returns when the
	// instance has ended, and nil also if it had before.
	Stop(ctx context.Context, id string, grace time.Duration) error
	// Exec runs a command in an instance until ctx is done, and returns its output
	// and exit code. The error is for a command that could not be run, or not to
	// its end.
	Exec(ctx context.Context, id string, command []string) (output []byte, exitCode int, err error)
	// Remove removes the sandbox, what there is in it and its volumes. Logs stay.
	Remove(ctx context.Context) error
	// Changed gets a value when State may have changed by itself.
	Changed() <-chan struct{}
}

// State is what a runtime has of a pod.
type State struct {
	// SandboxReady is true from CreateSandbox until the sandbox is lost, for
	// instance with a reboot.
	SandboxReady bool
	// IP is where the containers' ports are.
	IP string
	// Instances has the newest instance of each container that has any, by the
	// container's name.
	Instances map[string]Instance
}

// Instance is the newest instance of a container.
type Instance struct {
	// Status is without Started, which the Agent knows.
	restartpod.Status
	// Restarts is how many instances there were before.
	Restarts int
	// Reason and Message are for what ended otherwise than by an exit of its own:
	// ReasonStartError, or OOMKilled.
	Reason, Message string
}

// ExitCodeStartError is the exit code of an instance that could not be started,
// as container runtimes have it, and ReasonStartError its reason. ExitCodeKilled
// is that of one which got SIGKILL.
const (
	ExitCodeStartError = 128
	ReasonStartError   = "StartError"
	ExitCodeKilled     = 137
)

// WaitingError is an error of Start that has a reason of its own, such as
// ErrImagePull, for the container's waiting state. Others are
// CreateContainerErrors there. Where the kubelet has created nothing with that
// reason, the start is tried again after ten seconds, and the container's curve
// does not advance. Any other error of Start counts as an exit.
type WaitingError struct {
	Reason string
	Err    error
}

// Error returns the reason and the text of the error.
func (e *WaitingError) Error() string { return e.Reason + ": " + e.Err.Error() }

// Unwrap returns the error.
func (e *WaitingError) Unwrap() error { return e.Err }

// What a pod's folder has in it: a folder for each volume, one for the logs of
// each container, and Options.StatusFile.
const (
	VolumesDir     = "volumes"
	LogsDir        = "logs"
	StatusFileName = "status.json"
)

// Limits that are the kubelet's: how much of a command's output Exec returns, in
// bytes, and containerLogMaxFiles.
const (
	MaxExecOutput = 10 << 10
	MaxLogFiles   = 5
)

// Output gets a line that a container wrote, without its newline, and may keep
// it. Those of one container come one at a time, those of several at once. It may
// block, which is to slow down the container and nothing else.
type Output func(container string, line []byte)
