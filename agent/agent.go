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

// Options are what an Agent works with. Pod and Runtime are required.
type Options struct {
	// Pod is a valid pod: see Validate of agent/manifest. What is not set has the
	// API's default. Name, namespace and UID are to be set. It is not changed, and
	// pods may share what it points to.
	Pod *v1.Pod
	// Runtime runs the pod's containers.
	Runtime Runtime
	// Gates are the feature gates for restart rules. The zero value is a node
	// without them.
	Gates restartpod.Gates
	// ContainerBackOff and PodBackOff are those of containers, and of the restart of
	// whole pods. Other pods may have the same. Nil is the default curve, 10 s to
	// 5 min, for this pod alone.
	ContainerBackOff, PodBackOff *backoff.Backoff
	// Recorder gets the kubelet's events, of the pod or, with a reference that has a
	// FieldPath, of a container. Nil records nothing.
	Recorder kuberuntime.EventRecorder
	// Report gets the status as it is seen, before what follows from it is
	// decided, and again after that was done. It is called by whoever called Run or
	// Step. Nothing in a Status changes later.
	Report func(Status)
	// Probe runs probes in place of the agent, which calls Runtime.Exec or connects
	// to the container by itself. The result output says why a probe failed. An
	// error is neither success nor failure. When ctx is done, the probe has timed
	// out or is of no more use.
	Probe func(ctx context.Context, instance string, probe *v1.Probe) (output string, ok bool, err error)
	// GRPC asks the health service of a server, for probes of that kind, until ctx is
	// done. The results are as those of Probe. Nil makes such a probe an error: this
	// package does without gRPC.
	GRPC func(ctx context.Context, address, service string) (output string, ok bool, err error)
	// StatusFile is where the pod's status is kept for the next agent, if the
	// containers outlive this one, and else "".
	StatusFile string
	// Clock is the clock of Run: the present, and when Run wakes. Nil is the real
	// one. Back-offs are asked with the time that it gives.
	Clock clock.Clock
}

// Agent runs one pod, either by Run or by calls of Step. Its methods may not be
// called concurrently.
type Agent struct {
	o          Options
	machine    *restartpod.Machine
	containers []container
	// now is the present, ctx is for calls of the runtime, and starting for those
	// that start something: it is done when the pod is deleted. spawn makes a call
	// that may take long, and has what that returns called before a later sync.
	now           func() time.Time
	ctx, starting context.Context
	spawn         func(call func() (then func()))
	// begun is when the first sync was, and startedAt when the pod began, maybe with
	// an agent before this one.
	begun, startedAt time.Time
	// recovered is true once the runtime has told what an agent before left.
	recovered  bool
	conditions []v1.PodCondition
	deleted    bool
	// stoppingSince is when the pod began to be stopped for good, and else zero.
	// The phase is the one that it had come to by itself then, and so Running if it
	// was deleted; deletedPhase is what such a pod has when it was stopped, and "" for
	// others. The other two say why it failed, where no container does.
	stoppingSince               time.Time
	phase, deletedPhase         v1.PodPhase
	failedReason, failedMessage string
	// restarting, waiting, retryAt and restarts are of the restart of the whole
	// pod: how far it is, why it waits for its back-off and when that ends, and how
	// many there were.
	restarting restartpod.Phase
	waiting    *restartpod.Waiting
	retryAt    time.Time
	restarts   Restarts
	// lost has the instances of sandboxes that are gone, which are to run again.
	lost map[string]bool
	// startedBefore has the instances whose startup probe passed before this agent
	// was started.
	startedBefore map[string]bool
	// stopped has the instances that this agent or one before it stops for
	// themselves, and not with the pod: restartpod.Status.StoppedByAgent.
	stopped map[string]bool
	// again is true when something has happened since the newest sync that one is to
	// see.
	again bool
	// ip is what State had.
	ip string
	// told and saved keep what repeats itself from being told or written again.
	told, saved string
}

// container is a container of the pod.
type container struct {
	// Container is without the Status, which observation adds.
	restartpod.Container
	spec     *v1.Container
	instance *Instance
	// old says that instance is of the pod's previous run.
	old      bool
	lastExit *v1.ContainerStateTerminated
	// waitReason and message say why the container does not run: what its newest
	// start failed of, or its back-off. retryAt is when it is to be started again.
	waitReason, message string
	retryAt             time.Time
	restarts            Restarts
	// due is when the next instance is to start, and timed where that is counted.
	due   time.Time
	timed *Restarts
	// failedAt is when the newest start failed, or when it is tried again if nothing
	// could be created: missingUntil is that until then.
	failedAt, missingUntil time.Time
	// stop is the end that the agent makes of instance, and probe its probes. Both
	// are nil without any.
	stop  *stop
	probe *prober
	// hook is the postStart hook of instance, or of the one that comes next. It is
	// nil without one.
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

// New returns the agent of a pod. An error is for a status file that cannot be
// read, and names it.
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

// gracePeriod is the pod's, or that of a probe which has one of its own.
func (a *Agent) gracePeriod(probe *v1.Probe) time.Duration {
	seconds := ptr.Deref(a.o.Pod.Spec.TerminationGracePeriodSeconds, v1.DefaultTerminationGracePeriodSeconds)
	if probe != nil {
		seconds = ptr.Deref(probe.TerminationGracePeriodSeconds, seconds)
	}
	return time.Duration(seconds) * time.Second
}

// seconds is a number of seconds of a probe, or what the API has if it is not set.
func seconds(n, otherwise int32) time.Duration {
	if n < 1 {
		n = otherwise
	}
	return time.Duration(n) * time.Second
}

// event records an event of the pod, or of a container unless c is nil.
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

// fail tells an error of the pod, once if it repeats itself.
func (a *Agent) fail(reason, prefix string, err error) {
	if text := prefix + err.Error(); text != a.told {
		a.told = text
		a.event(nil, v1.EventTypeWarning, reason, "%s", text)
	}
}

// earlier returns the earlier of two times of which zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
