// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/kubelet-backoff/kubelet-backoff/backoff"
	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

// Options are what an Agent works with.
type Options struct {
	// Pod is a valid pod with all defaults. It is not changed.
	Pod   *v1.Pod
	Gates restartpod.Gates
	// ContainerBackOff and PodBackOff may be those of other pods too.
	ContainerBackOff, PodBackOff *backoff.Backoff
	Runtime                      Runtime
	// Recorder gets the kubelet's events.
	Recorder record.EventRecorder
	// Report gets the status as it is seen, before what follows from it is
	// decided, and again after that was done.
	Report func(Status)
	// StatusFile is where the pod's status is kept for the next agent, if the
	// containers outlive this one, and else "".
	StatusFile string
}

// Agent runs one pod. The goroutine of Run alone uses its fields. What others
// have found out they hand over through calls.
type Agent struct {
	Options
	machine    *restartpod.Machine
	containers []container
	// recovered is true once the runtime has told what an agent before left.
	recovered  bool
	conditions []v1.PodCondition
	startedAt  time.Time
	// starting is the context of Run and of what starts something. It is done when
	// the pod is deleted.
	starting context.Context
	deleted  bool
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
	// told and saved keep what repeats itself from being told or written again.
	told, saved string
	calls       chan func()
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
	// failedAt is when the newest start failed, or when it is tried again after one
	// that could not create anything, of which missing is the error.
	failedAt time.Time
	missing  error
	// stop is the end that the agent makes of instance, and probe its probes. Both
	// are nil without any.
	stop  *stop
	probe *prober
}

// stop is the end that an agent makes of an instance.
type stop struct {
	// hooked is closed when the preStop hook has ended, or there is none.
	hooked chan struct{}
	// deadline is when it gets SIGKILL, and zero until it is its turn to stop.
	deadline time.Time
}

// New returns the agent of a pod.
func New(o Options) *Agent {
	a := &Agent{
		Options: o, machine: restartpod.New(o.PodBackOff, o.Pod, o.Gates), startedAt: time.Now(),
		phase: v1.PodRunning, restarting: restartpod.PhaseRunning, lost: map[string]bool{}, startedBefore: map[string]bool{}, stopped: map[string]bool{}, calls: make(chan func()),
	}
	spec := &a.Pod.Spec
	for i, c := range restartpod.Containers(spec, o.Gates) {
		if n := len(spec.InitContainers); i < n {
			a.containers = append(a.containers, container{Container: c, spec: &spec.InitContainers[i]})
		} else {
			a.containers = append(a.containers, container{Container: c, spec: &spec.Containers[i-n]})
		}
	}
	return a
}
