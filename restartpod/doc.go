// SPDX-License-Identifier: Apache-2.0

// Package restartpod is the in-place restart of a pod (KEP-5532) as a state
// machine. A container's exit that a restart rule answers with RestartPod, or
// with RestartAllContainers, ends all containers of the pod and starts them
// again from the first init container, in the same sandbox.
//
// A [Machine] belongs to one pod. [Machine.Step] takes what is seen of the pod,
// an [Observation], and returns what to do, a [Plan]; it neither reads a clock
// nor calls anything but the back-off it was given. An agent steps the machine
// whenever something of the pod has changed and at [Plan.Next], and acts on the
// plan before it steps again. After the agent was restarted, [Machine.Recover]
// finds the way back.
//
// # Phases
//
//	Running                no restart is in progress. An exit that a rule answers
//	                       begins one.
//	TerminatingForRestart  the previous run is stopped: for RestartPod regular
//	                       and init containers first, then the sidecars from the
//	                       last to the first, within the pod's grace period; for
//	                       RestartAllContainers all together, killed at once. It
//	                       lasts until nothing of it runs and the pod's back-off
//	                       has passed.
//	Startup                the containers are started as those of a new pod. It
//	                       lasts until every one has started.
//	Failed                 an init container failed, and its restart policy does
//	                       not restart it.
//
// A restart's first cause is the container that exited first. What exits while
// the phase is TerminatingForRestart was going to be stopped, and so neither
// begins a restart nor fails the pod. Nor does an exit that the agent itself
// caused, as after a failed probe, begin a restart ([Status.StoppedByAgent]).
//
// # Runs
//
// All instances that exist in TerminatingForRestart are of the previous run, all
// that are started from Startup on of the present one. [Plan.Old] has which is
// which, in every phase: an instance of the previous run stays so until its
// container has a newer one, also when the restart ended with the pod's deletion,
// its deadline or its failure. The machine tells runs apart by the IDs of
// instances; start times are compared only after a restart of the agent, with the
// one second's resolution that the API has. A pod may be restarted a second time
// if the agent ends within that second, or before the condition is written. Its
// back-off starts over with the agent, unless that stores the back-off's keys. A
// pod that was deleted in a restart is not restarted, but an agent that ends
// after that no longer knows what Startup had started: it counts as the previous
// run's.
//
// # Invariants
//
// A test searches all interleavings of what can happen to a small pod and to
// its agent for a violation of one of these:
//
//	I1   no container of the present run starts while one of the previous runs
//	I2   init containers run in order, and before regular containers
//	I3   an exit in TerminatingForRestart begins no restart and fails no pod
//	I4   one trigger, one restart, except in the cases above
//	I5   the k-th restart in a row, of one agent, waits for at least the k-th delay
//	     of the curve
//	I6   a condition is True exactly in TerminatingForRestart and Startup, and
//	     never both
//	I7   restart counts rise by one, and not in a pod that is done; the exit code
//	     that was the trigger is kept
//	I8   a pod being deleted is not restarted, at whatever point
//	I9   if everything else goes on, it ends in Running or Failed
//	I10  in TerminatingForRestart and Startup the previous run's exits do not make
//	     the pod's API phase Succeeded or Failed
//	I11  a status of the previous run is last state until it is replaced, however
//	     the restart ends, and one of the present run is not
//	I12  an exit that the agent caused triggers nothing
package restartpod
