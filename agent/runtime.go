// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"net"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/restart"
)

// Runtime runs the containers of one pod. It decides what a container is, and which
// fields of the pod affect it. The [Agent] handles back-off, restart policies and
// rules, hooks, probes and grace periods.
//
// [Agent.Run] calls Stop and Exec in goroutines of their own, concurrently with all
// methods. It calls the other methods from one goroutine, so a slow Start delays the other
// containers of the pod. For [Agent.Step] every method must return at once. If a method
// returns an error, it must have changed nothing. The agent records an event and calls it
// again after a second, except Start, which follows the back-off. Run does not return
// before State and Remove have succeeded.
type Runtime interface {
	// State returns the current state of the pod. If it does not show an instance yet that
	// Start has returned, or shows it as created, the agent waits for it, but not longer
	// than two minutes: then the start has failed. Once State has shown an instance, it must
	// not show an earlier one of the container again, nor none unless it is gone. The agent
	// does not keep State.Instances.
	State(ctx context.Context) (State, error)
	// CreateSandbox creates a sandbox. It replaces a sandbox that is not ready.
	CreateSandbox(ctx context.Context) error
	// Start starts a new instance of a container and returns its ID. restarts is the
	// number of earlier instances. If the instance was created but could not be
	// started, Start returns no error, and State reports that the instance has exited
	// with ExitCodeStartError and ReasonStartError. If Start returns an error, which
	// may be a *WaitingError, there is no new instance. ctx is done when the pod is
	// deleted. Then the agent does not count an error as a failed start.
	//
	// Command, args and environment are those of the manifest. The functions Command
	// and Environment of agent/podspec resolve their references.
	Start(ctx context.Context, container *v1.Container, restarts int) (id string, err error)
	// Stop sends SIGTERM to the first process of an instance, and SIGKILL to all its
	// processes after the grace period, or at once if that is 0. Stop may return before
	// the instance has ended. If the instance has ended already, Stop returns nil, and
	// FinishedAt must stay as it is. After several calls for one instance the earliest
	// SIGKILL applies.
	Stop(ctx context.Context, id string, grace time.Duration) error
	// Exec runs a command in an instance and returns its output and exit code. The
	// kubelet keeps the first 10 KiB of the output. Exec returns an error if the
	// command could not run to its end. When ctx is done, the command is killed. A
	// deadline of ctx is in the time of the agent's clock, and ctx is done then.
	Exec(ctx context.Context, id string, command []string) (output []byte, exitCode int, err error)
	// Remove kills all containers, and removes the sandbox and the volumes of the pod.
	// The agent calls it after the pod has ended.
	Remove(ctx context.Context) error
	// Changed returns a channel that receives a value when State may have changed. It
	// always returns the same channel. A buffer of one is enough: if the buffer is
	// full, the value may be dropped. A Runtime for [Agent.Step] may return nil.
	Changed() <-chan struct{}
}

// Dialer is implemented by a Runtime whose pod has a network that the agent is not in.
// The agent uses it for httpGet and tcpSocket probes and for httpGet hooks.
type Dialer interface {
	// Dial makes a TCP connection to an address of the pod, as net.Dialer.DialContext. The
	// limit of the time is that of the clock of the machine; 0 is no limit.
	Dial(ctx context.Context, address string, limit time.Duration) (net.Conn, error)
}

// State is the state of a pod in a Runtime.
type State struct {
	// SandboxReady is true from CreateSandbox until the sandbox is lost, for example in
	// a reboot.
	SandboxReady bool
	// IP is the address at which probes reach the containers.
	IP string
	// Instances maps the names of containers to their newest instances.
	Instances map[string]Instance
}

// Instance is the newest instance of a container.
type Instance struct {
	// ContainerStatus holds the unique ID of the instance, its state, exit code, times
	// and RestartCount, the number that was passed to Start. The agent sets Name, BackOff,
	// Started and StoppedByAgent.
	restart.ContainerStatus
	// Reason is set if the instance did not exit by itself: ReasonStartError or
	// OOMKilled. Otherwise the agent uses Completed or Error.
	Reason, Message string
}

// ExitCodeStartError and ReasonStartError are the exit code and reason that container
// runtimes report for an instance that could not be started.
const (
	ExitCodeStartError = 128
	ReasonStartError   = "StartError"
)

// WaitingError is an error of Start with a reason for the container's waiting state,
// such as ErrImagePull. Other errors have the reason CreateContainerError. If the reason
// means that the kubelet has created nothing, the agent retries the start after ten
// seconds, and the delay does not grow. These are CreateContainerConfigError,
// PreCreateHookError and the reasons of image pulls. Every other error of Start counts as
// an exit.
type WaitingError struct {
	// Reason is the reason in v1.ContainerStateWaiting.
	Reason string
	// Err is the cause. It may be nil.
	Err error
}

// Error returns the reason and the text of the cause, if there is one.
func (e *WaitingError) Error() string {
	if e.Err == nil {
		return e.Reason
	}
	return e.Reason + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *WaitingError) Unwrap() error { return e.Err }
