// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/kubelet-backoff/kubelet-backoff/agent/restartrules"
	"github.com/kubelet-backoff/kubelet-backoff/asked"
	"github.com/kubelet-backoff/kubelet-backoff/backoff"
	"github.com/kubelet-backoff/kubelet-backoff/restart"
	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

// Options configures an Agent. Pod and Runtime are required.
type Options struct {
	// Pod is a valid pod: see Validate in agent/podspec. It must have a name, a
	// namespace and a UID. Other unset fields have their API defaults. The agent does
	// not modify it.
	Pod *v1.Pod
	// Runtime runs the pod's containers.
	Runtime Runtime
	// Gates are the feature gates for restart rules. The zero value disables them.
	Gates restartpod.Gates
	// ContainerBackOff and PodBackOff are the back-offs of containers, and of restarts
	// of whole pods: see NewBackOffs. Several agents may share them. If they are nil,
	// the pod has its own with the default curve, 10 s to 5 min.
	ContainerBackOff, PodBackOff *backoff.Backoff
	// RestartAt ends waits at the times that annotations of the pod ask for. Several agents
	// may share it. If it is nil, these annotations have no effect.
	RestartAt *asked.Restarts
	// MaxRestarts ends the pod after the number of restarts that an annotation of the pod
	// allows. Several agents may share it. If it is nil, the annotation has no effect.
	MaxRestarts *asked.Limits
	// Curves gives containers the back-off that annotations of the pod ask for. RulesOf of
	// ContainerBackOff must be its Rules; New sets it if ContainerBackOff is nil. Several
	// agents may share it. If it is nil, the annotations have no effect.
	Curves *asked.Curves
	// Annotations returns the present annotations of the pod. A change takes effect in the
	// next sync, so Runtime.Changed should report it. If Annotations is nil, those of Pod
	// count.
	Annotations func() map[string]string
	// Recorder records the events that the kubelet records. The object of an event is
	// the pod, or a reference with a FieldPath for a container. If Recorder is nil,
	// events are dropped.
	Recorder restart.EventRecorder
	// Report is called with the status before and after each sync. Run or Step calls
	// it. The agent does not modify the Status afterwards.
	Report func(Status)
	// Probe runs a probe. output explains a failure. An error is neither success nor
	// failure. When ctx is done, the probe has timed out or its result is no longer
	// needed. If Probe is nil, the agent calls Runtime.Exec or connects to the
	// container.
	Probe func(ctx context.Context, instance string, probe *v1.Probe) (output string, ok bool, err error)
	// GRPC runs a gRPC probe. Its results are those of Probe. If GRPC is nil, every
	// gRPC probe returns an error, because this package does not import gRPC.
	GRPC func(ctx context.Context, address, service string) (output string, ok bool, err error)
	// StatusFile is the file in which the agent saves the pod's status and back-offs for the
	// next agent. Its directory must exist. It is "" if the containers end with this agent. The file of a pod with another
	// UID is replaced. The agent removes the file at the end. If that fails and the pod had
	// ended by itself, the file says so, and the next agent does not run the pod again. A pod
	// that was deleted runs again.
	StatusFile string
	// Earlier is the status that an earlier agent left. The agent uses its Conditions
	// and StartTime, and Started and Ready of its statuses of containers. If its Phase is
	// Succeeded or Failed, the pod has ended: the agent only stops what still runs. Earlier
	// is ignored if StatusFile is set.
	Earlier v1.PodStatus
	// Clock is the clock of Run. If it is nil, it is the real clock. The agent passes its
	// time to the back-offs. Only their GC reads their own clocks.
	Clock clock.Clock
}

// Agent runs one pod, either with Run or with calls of Step. Its methods must not be
// called concurrently.
type Agent struct {
	o          Options
	machine    *restartpod.Machine
	containers []container
	// now returns the current time. ctx is for calls of the runtime. starting is for
	// calls that start something, and is done when the pod is deleted. spawn runs call,
	// which may block, and then runs the function that call returns, before a later
	// sync.
	now           func() time.Time
	ctx, starting context.Context
	spawn         func(call func() (then func()))
	// begun is the earliest time of a sync, from which ticks count: that of the first one,
	// unless the clock was set back. startedAt is the time of the pod's start,
	// perhaps by an earlier agent.
	begun, startedAt time.Time
	// recovered is true after the first successful call of State.
	recovered  bool
	conditions []v1.PodCondition
	deleted    bool
	// stoppingSince is the time at which the agent began to stop the pod for good, or
	// zero. phase is the phase at that time, Running for a deleted pod. deletedPhase is
	// the phase of a deleted pod after the stop. failedReason and failedMessage explain
	// a failure that no container explains.
	stoppingSince               time.Time
	phase, deletedPhase         v1.PodPhase
	failedReason, failedMessage string
	// restarting, waiting, retryAt and restarts describe restarts of the whole pod: the
	// phase, the reason of the wait, the end of the wait, and the restarts so far.
	restarting restartpod.Phase
	waiting    *restartpod.Waiting
	retryAt    time.Time
	restarts   Restarts
	// The sets below have only instances that State shows, apart from those that an earlier
	// agent left.

	// lost is the set of instances in lost sandboxes. Their containers run again.
	lost map[string]bool
	// before has the results of the probes of instances under an earlier agent.
	before map[string]v1.ContainerStatus
	// stopped has the instances that this agent or an earlier one stopped, but not for the
	// end or a restart of the pod, and when: restart.ContainerStatus.StoppedByAgent.
	stopped map[string]restartpod.StopTime

	// podBackOff is the result of restart.SaveBackOff for the pod at the last start.
	podBackOff string

	// again is true if another sync is needed at once.
	again bool
	// ip is the IP of the last State.
	ip string
	// lastError is the message of the last error event, and saved is the last saved
	// status. Neither is repeated.
	lastError, saved string
}

type container struct {
	// Container has no Status: observation sets it.
	restartpod.Container
	spec     *v1.Container
	instance *Instance
	// old is true if instance belongs to the previous run of the pod.
	old      bool
	lastExit *v1.ContainerStateTerminated
	// waitReason and message explain why the container is not running: a start failed,
	// or the back-off is not over. retryAt is the time of the next start.
	waitReason, message string
	retryAt             time.Time
	restarts            Restarts
	// due is the time at which the next instance should start. timed counts the
	// lateness of that start.
	due   time.Time
	timed *Restarts
	// unseen is the last start until State shows its instance, and then nil. Until then,
	// instance is an earlier one or nil, and no container is started or stopped for it.
	unseen *unseen
	// backOff is the result of restart.SaveBackOff at the last start.
	backOff string
	// failedAt is the time of the last failed start. If the start created nothing,
	// failedAt and missingUntil are the time of the next attempt.
	failedAt, missingUntil time.Time
	// stop is the agent's stop of instance, and probe runs its probes. Either may be
	// nil. probe is nil until the postStart hook has ended.
	stop  *stop
	probe *prober
	// stopAt is the time from mustKill. It is zero until the events of the stop are recorded.
	stopAt time.Time
	// hook is the postStart hook of instance or, before a start, of the next instance.
	// It may be nil.
	hook *startHook
}

// NewBackOffs returns the back-offs of a node with this curve: one for containers, and
// one for restarts of whole pods. The first restart of a pod never waits, whatever
// curve.DelayFirst is. The keys of pods that have ended stay until GC removes them: call it
// once a minute. GC reads the clock, which must show the time of the agents. Nil is the real
// clock: with Step in virtual time, GC would end waits.
func NewBackOffs(c clock.Clock, curve backoff.Curve) (containers, pods *backoff.Backoff) {
	containers = restart.NewBackOff(c, curve)
	curve.DelayFirst = false
	return containers, restart.NewBackOff(c, curve)
}

// New returns the agent of a pod. It returns an error if Pod or Runtime is nil, if the pod
// has no name, namespace or UID, and if the status file, which the error names, cannot be
// read.
func New(o Options) (*Agent, error) {
	switch {
	case o.Pod == nil:
		return nil, errors.New("agent: Pod is nil")
	case o.Pod.Name == "" || o.Pod.Namespace == "" || o.Pod.UID == "":
		return nil, fmt.Errorf("agent: pod name %q, namespace %q, uid %q: all three must be set", o.Pod.Name, o.Pod.Namespace, o.Pod.UID)
	case o.Runtime == nil:
		return nil, errors.New("agent: Runtime is nil")
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	containers, pods := NewBackOffs(o.Clock, backoff.Curve{Initial: 10 * time.Second, Max: 300 * time.Second})
	if o.Curves != nil {
		containers.RulesOf = o.Curves.Rules
	}
	o.ContainerBackOff, o.PodBackOff = cmp.Or(o.ContainerBackOff, containers), cmp.Or(o.PodBackOff, pods)
	a := &Agent{
		o: o, machine: restartpod.New(o.PodBackOff, o.Pod, o.Gates), phase: v1.PodRunning, restarting: restartpod.PhaseRunning,
		lost: map[string]bool{}, before: map[string]v1.ContainerStatus{}, stopped: map[string]restartpod.StopTime{},
	}
	spec := &a.o.Pod.Spec
	for i, c := range restartrules.Containers(spec, o.Gates) {
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
	return longSeconds(seconds)
}

// longSeconds returns n seconds, or the longest Duration if there is no such one. The API
// accepts any int64.
func longSeconds(n int64) time.Duration {
	return time.Duration(min(n, math.MaxInt64/int64(time.Second))) * time.Second
}

// seconds returns n seconds, or the default if n is not set.
func seconds(n, defaultSeconds int32) time.Duration {
	if n < 1 {
		n = defaultSeconds
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
	if text := prefix + err.Error(); text != a.lastError {
		a.lastError = text
		a.event(nil, v1.EventTypeWarning, reason, "%s", text)
	}
}

// earlier returns the earlier of two times. The zero time means never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
