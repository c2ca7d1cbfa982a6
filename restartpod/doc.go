// SPDX-License-Identifier: Apache-2.0

// Package restartpod implements the in-place restart of a pod (KEP-5532) as a
// state machine. A restart is triggered when a container exits and the matching
// restart rule has the action RestartPod or RestartAllContainers. All containers
// of the pod are stopped and then started again from the first init container, in
// the same sandbox.
//
// A [Machine] belongs to one pod. [Machine.Step] takes an [Observation] of the
// pod and returns a [Plan]. It does no I/O, reads no clock and calls nothing
// except its back-off. After a restart of the agent, [Machine.Recover] finds the
// phase of the pod.
//
// # Usage
//
// An agent runs this loop for each pod. The example of the package
// (example_test.go) is a complete agent for one pod.
//
//	m := restartpod.New(backOff, pod, gates) // all pods share backOff
//	m.Recover(pod.Status.Conditions, containers(pod), time.Now())
//	for {
//		o := restartpod.Observation{
//			Now: time.Now(), Containers: containers(pod), GracePeriod: gracePeriod(pod),
//			SandboxLost: !sandboxReady(pod), Deleted: pod.DeletionTimestamp != nil,
//		}
//		plan := m.Step(o)
//		writeStatus(pod, plan)
//		recordEvents(pod, plan.Events)
//		for _, kill := range plan.Kill {
//			stop(o.Containers[kill.Container], kill)
//		}
//		next := plan.Next
//		for _, i := range plan.Start {
//			next = earliest(next, start(o.Containers[i], plan))
//		}
//		waitForChange(pod, next)
//	}
//
// These functions are the agent's:
//   - containers calls [Containers] and adds each Status from the runtime.
//   - writeStatus writes plan.Conditions and plan.Waiting. A status that plan.Old marks
//     becomes the last state of its container.
//   - stop skips an instance that is already being stopped.
//   - start creates the sandbox if it is not ready. Before each start it asks
//     restart.DoBackOff, without statuses of the previous run. It returns when
//     to try again, and zero if it started the container.
//   - earliest ignores zero times.
//   - waitForChange returns at next, unless that is zero, and as soon as anything
//     has changed since the call of containers, also by stop or start.
//
// A plan stops nothing in a pod that is deleted, Done or Failed, and starts nothing. The agent
// stops what still runs there, such as sidecars: it calls [Observation.Stop] until nothing is
// left. The kubelet does that in SyncTerminatingPod.
//
// # Phases
//
//	Running                No restart is in progress. An exit with a matching rule
//	                       triggers one.
//	TerminatingForRestart  The previous run is being stopped. For RestartPod,
//	                       regular and init containers stop first, and then the
//	                       sidecars from the last to the first, within the pod's
//	                       grace period. For RestartAllContainers, all are killed
//	                       at once. The phase lasts until nothing of the previous
//	                       run is running and the pod's back-off has passed.
//	Startup                The containers are started like those of a new pod. The
//	                       phase lasts until every one has started.
//	Done                   All regular containers have ended for good: neither
//	                       their restart policies nor their rules start them
//	                       again.
//	Failed                 An init container failed for good.
//
// Done and Failed are final, and the pod is done. Exits after that trigger nothing, also
// those of sidecars that run on or are being stopped. If the end of the pod and an exit
// with a matching rule are seen at once, the earlier one counts. If they have the same
// time, or the time of the exit is unknown, the pod is done.
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
//   - The pod may be restarted a second time if the agent ended before the condition
//     was written, or before an instance of the present run had started in a later
//     second than the condition's.
//   - The pod's back-off starts over, unless the agent stored the back-off's keys.
//   - A pod that was deleted during a restart is not restarted. If Startup had
//     already started instances, they count as part of the previous run.
//
// # Invariants
//
// A test searches all interleavings of the events in a small pod and its agent
// for a violation of one of these:
//
//	I1   no container of the present run starts while one of the previous run is
//	     running
//	I2   init containers run in order, and before regular containers
//	I3   an exit in TerminatingForRestart triggers no restart and fails no pod
//	I4   one trigger, one restart, except in the cases above and if the pod is done
//	I5   the k-th restart in a row by one agent waits for at least the k-th delay of
//	     the curve
//	I6   a condition is True exactly in TerminatingForRestart and Startup; at most
//	     one of the two conditions is True
//	I7   restart counts increase by one; the exit code of the trigger is kept
//	I8   a pod that is being deleted is never restarted
//	I9   if all other events occur, the pod ends in Running, Done or Failed
//	I10  in TerminatingForRestart and Startup, exits of the previous run do not make
//	     the pod's API phase Succeeded or Failed
//	I11  a status of the previous run is last state until it is replaced, however
//	     the restart ends; a status of the present run is not
//	I12  an exit that the agent caused triggers nothing
//	I13  a pod that is done starts nothing, also after a restart of the agent
package restartpod
