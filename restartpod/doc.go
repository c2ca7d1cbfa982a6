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
//	TerminatingForRestart  the old generation is stopped: for RestartPod regular
//	                       and init containers first, then the sidecars from the
//	                       last to the first, within the pod's grace period; for
//	                       RestartAllContainers all together, killed at once. It
//	                       lasts until nothing of it runs and the pod's back-off
//	                       has passed.
//	Startup                the new generation is started as that of a new pod.
//	                       It lasts until every container has started.
//	Failed                 an init container failed, and its restart policy does
//	                       not restart it.
//
// A restart's first cause is the container that exited first. What exits while
// the phase is TerminatingForRestart was going to be stopped, and so neither
// begins a restart nor fails the pod.
//
// # Generations
//
// All instances that exist when the phase becomes Startup are of the old
// generation, all later ones of the new. The machine tells them apart by their
// IDs; start times are compared only after a restart of the agent, with the one
// second's resolution that the API has. A pod may be restarted a second time if
// the agent ends within that second, or before the condition is written. Its
// back-off begins anew with the agent, unless that stores the back-off's keys.
//
// # Invariants
//
// A test searches all interleavings of what can happen to a small pod and to
// its agent for a violation of one of these:
//
//	I1   no container of the new generation starts while one of the old runs
//	I2   init containers run in order, and before regular containers
//	I3   an exit in TerminatingForRestart begins no restart and fails no pod
//	I4   one trigger, one restart, but for the cases above
//	I5   the k-th restart in a row, of one agent, waits for at least the k-th delay
//	     of the curve
//	I6   the condition is True exactly in TerminatingForRestart and Startup
//	I7   restart counts rise by one, and the exit code that was the trigger is kept
//	I8   a pod being deleted is not restarted, at whatever point
//	I9   if everything else goes on, it ends in Running or Failed
//	I10  in TerminatingForRestart and Startup the old generation's exits do not
//	     make the pod's API phase Succeeded or Failed
package restartpod
