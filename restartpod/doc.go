// SPDX-License-Identifier: Apache-2.0

// Package restartpod implements the in-place restart of a pod (KEP-5532) as a
// state machine. A restart is triggered when a container exits and the matching
// restart rule has the action RestartPod or RestartAllContainers. All containers
// of the pod are stopped and then started again from the first init container, in
// the same sandbox.
//
// An agent creates a [Machine] for each pod with [New] and calls
// [Machine.Recover] once. The machine does no I/O, reads no clock and calls
// nothing except the back-off of New. The agent runs this loop whenever the pod
// changes, and at [Plan.Next]; the package example has it in code:
//  1. Call [Containers], and set the Status of each from the container runtime.
//  2. Call [Machine.Step] with an [Observation] of the pod. It returns a [Plan].
//  3. Write Plan.Conditions to the pod's status, and record Plan.Events.
//  4. Stop the containers in Plan.Kill. Skip those that are already being stopped.
//  5. Start the containers in Plan.Start. Skip a container that exited if its own
//     back-off has not passed.
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
// The container that exited first is the cause of a restart. Containers that exit
// in TerminatingForRestart were about to be stopped anyway: their exits do not
// trigger a restart and do not fail the pod. An exit that the agent itself
// caused, for example after a failed probe, does not trigger a restart either
// ([Status.StoppedByAgent]).
//
// # Runs
//
// All instances that exist in TerminatingForRestart belong to the previous run.
// All instances started in Startup or later belong to the present run.
// [Plan.Old] marks the instances of the previous run in every phase. An instance
// stays marked until its container has a newer one, even if the restart ended
// with the pod's deletion, deadline or failure. The machine distinguishes runs by
// the IDs of instances. Only Recover compares start times, which have a
// resolution of one second in the API. After a restart of the agent:
//   - The pod may be restarted a second time if the agent ended within that
//     second, or before the condition was written.
//   - The pod's back-off starts over, unless the agent stored the back-off's keys.
//   - A pod that was deleted during a restart is not restarted. If Startup had
//     already started instances, they count as part of the previous run.
//
// # Invariants
//
// A test searches all interleavings of the events in a small pod and its agent
// for a violation of one of these:
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
