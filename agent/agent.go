// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/kubelet-backoff/kubelet-backoff/backoff"
	"github.com/kubelet-backoff/kubelet-backoff/kuberuntime"
	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

// Options configures an Agent. Pod and Runtime are required.
type Options struct {
	// Pod is a valid pod: see Validate of agent/manifest. It needs a name, a namespace
	// and a UID. Other fields that are not set have the defaults of the API. The agent
	// does not change it.
	Pod *v1.Pod
	// Runtime runs the pod's containers.
	Runtime Runtime
	// Gates has the feature gates for restart rules. The zero value disables them.
	Gates restartpod.Gates
	// ContainerBackOff and PodBackOff are the back-offs of containers, and of restarts
	// of whole pods: see NewBackOffs. Several agents may share them. Nil is the default
	// curve, 10 s to 5 min, for this pod alone.
	ContainerBackOff, PodBackOff *backoff.Backoff
	// Recorder gets the events that the kubelet records for the pod, and for its
	// containers as references with a FieldPath. Nil records nothing.
	Recorder kuberuntime.EventRecorder
	// Report gets every status twice: before the agent acts on it, and afterwards. The
	// caller of Run or Step calls it. A Status does not change later.
	Report func(Status)
	// Probe runs probes. Nil calls Runtime.Exec or connects to the container. output is
	// the reason of a failed probe. An error is neither success nor failure. When ctx
	// is done, the probe has timed out or its result is not needed any more.
	Probe func(ctx context.Context, instance string, probe *v1.Probe) (output string, ok bool, err error)
	// GRPC asks the health service of a server for gRPC probes. The results are those
	// of Probe. This package does not import gRPC: nil makes every such probe an error.
	GRPC func(ctx context.Context, address, service string) (output string, ok bool, err error)
	// StatusFile keeps the pod's status for the next agent. It is "" if the containers
	// do not outlive this one.
	StatusFile string
	// Earlier is what an earlier agent left, for a caller without a StatusFile: its
	// Conditions and StartTime, and Started of the ContainerStatuses.
	Earlier v1.PodStatus
	// Clock is the clock of Run. Nil is the real clock. Back-offs get their times from
	// the agent.
	Clock clock.Clock
}

// Agent runs one pod, by Run or by calls of Step. Its methods must not be called
// concurrently.
type Agent struct {
	o          Options
	machine    *restartpod.Machine
	containers []container
	// now returns the current time. ctx is for calls of the runtime; starting is for
	// calls that start something, and is done when the pod is deleted. spawn makes a
	// call that may block, and has the function that it returns called before a later
	// sync.
	now           func() time.Time
	ctx, starting context.Context
	spawn         func(call func() (then func()))
	// begun is the time of the first sync, and startedAt that of the pod's start,
	// perhaps with an earlier agent.
	begun, startedAt time.Time
	// recovered is true after the first successful call of State.
	recovered  bool
	conditions []v1.PodCondition
	deleted    bool
	// stoppingSince is the time at which the agent began to stop the pod for good, or
	// zero. phase is the phase at that time, Running for a deleted pod; deletedPhase is
	// the phase of a deleted pod after the stop. The reason and message explain a
	// failure that no container explains.
	stoppingSince               time.Time
	phase, deletedPhase         v1.PodPhase
	failedReason, failedMessage string
	// restarting, waiting, retryAt and restarts belong to the restart of the whole pod:
	// its phase, the reason of its wait, the end of the wait, and the restarts so far.
	restarting restartpod.Phase
	waiting    *restartpod.Waiting
	retryAt    time.Time
	restarts   Restarts
	// lost has the instances of lost sandboxes. Their containers run again.
	lost map[string]bool
	// startedBefore has the instances that passed their startup probe under an earlier
	// agent.
	startedBefore map[string]bool
	// stopped has the instances that this agent or an earlier one stopped on their own,
	// not with the pod: restartpod.Status.StoppedByAgent.
	stopped map[string]bool
	// again is true if something happened that needs another sync.
	again bool
	// ip is the IP of the last State.
	ip string
	// told is the last error event and saved the last saved status: neither is
	// repeated.
	told, saved string
}

// container is a container of the pod.
type container struct {
	// Container has no Status. observation adds it.
	restartpod.Container
	spec     *v1.Container
	instance *Instance
	// old is true if instance belongs to the previous run of the pod.
	old      bool
	lastExit *v1.ContainerStateTerminated
	// waitReason and message explain why the container is not running: a failed start
	// or the back-off. retryAt is the time of the next start.
	waitReason, message string
	retryAt             time.Time
	restarts            Restarts
	// due is when the next instance should start. timed counts its lateness.
	due   time.Time
	timed *Restarts
	// failedAt is the time of the last failed start. If nothing was created, it is the
	// time of the next attempt, as is missingUntil.
	failedAt, missingUntil time.Time
	// stop is the stop of instance by the agent, and probe has its probes. Either may
	// be nil.
	stop  *stop
	probe *prober
	// hook is the postStart hook of instance or, before its start, of the next one. It
	// may be nil.
	hook *startHook
}

// NewBackOffs returns the back-offs of a node with this curve: of containers, and of
// restarts of whole pods. The first restart of a pod never waits, whatever
// curve.DelayFirst is. The clock may be nil for an Agent: it passes the time
// to each call.
func NewBackOffs(c clock.Clock, curve backoff.Curve) (containers, pods *backoff.Backoff) {
	containers = kuberuntime.NewBackOff(c, curve)
	curve.DelayFirst = false
	return containers, kuberuntime.NewBackOff(c, curve)
}

// New returns the agent of a pod. The error is for a status file that cannot be read,
// and names it.
func New(o Options) (*Agent, error) {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	containers, pods := NewBackOffs(o.Clock, backoff.Curve{Initial: 10 * time.Second, Max: 300 * time.Second})
	o.ContainerBackOff, o.PodBackOff = cmp.Or(o.ContainerBackOff, containers), cmp.Or(o.PodBackOff, pods)
	a := &Agent{
		o: o, machine: restartpod.New(o.PodBackOff, o.Pod, o.Gates), phase: v1.PodRunning, restarting: restartpod.PhaseRunning,
		lost: map[string]bool{}, startedBefore: map[string]bool{}, stopped: map[string]bool{},
	}
	spec := &a.o.Pod.Spec
	for i, c := range restartpod.Containers(spec, o.Gates) {
		switch n := len(spec.InitContainers); {
		case i < n:
			a.containers = append(a.containers, container{Container: c, spec: &spec.InitContainers[i]})
		case c.Kind == restartpod.KindRegular:
			a.containers = append(a.containers, container{Container: c, spec: &spec.Containers[i-n]})
		}
	}
	return a, a.load()
}

// gracePeriod returns the grace period of the pod, or of a probe with its own.
func (a *Agent) gracePeriod(probe *v1.Probe) time.Duration {
	seconds := ptr.Deref(a.o.Pod.Spec.TerminationGracePeriodSeconds, v1.DefaultTerminationGracePeriodSeconds)
	if probe != nil {
		seconds = ptr.Deref(probe.TerminationGracePeriodSeconds, seconds)
	}
	return time.Duration(seconds) * time.Second
}

// seconds returns a number of seconds of a probe. If it is not set, it is the default.
func seconds(n, otherwise int32) time.Duration {
	if n < 1 {
		n = otherwise
	}
	return time.Duration(n) * time.Second
}

// event records an event of a container, or of the pod if c is nil.
func (a *Agent) event(c *container, eventType, reason, format string, args ...any) {
	switch {
	case a.o.Recorder == nil:
	case c == nil:
		a.o.Recorder.Eventf(a.o.Pod, eventType, reason, format, args...)
	default:
		path := "spec.initContainers{" + c.Name + "}"
		if c.Kind == restartpod.KindRegular {
			path = "spec.containers{" + c.Name + "}"
		}
		a.o.Recorder.Eventf(&v1.ObjectReference{
			Kind: "Pod", APIVersion: "v1", Namespace: a.o.Pod.Namespace, Name: a.o.Pod.Name, UID: a.o.Pod.UID, FieldPath: path,
		}, eventType, reason, format, args...)
	}
}

// fail records an error as an event of the pod, unless the last one was the same.
func (a *Agent) fail(reason, prefix string, err error) {
	if text := prefix + err.Error(); text != a.told {
		a.told = text
		a.event(nil, v1.EventTypeWarning, reason, "%s", text)
	}
}

// earlier returns the earlier of two times. Zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
