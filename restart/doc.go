// SPDX-License-Identifier: Apache-2.0

// Package restart decides when a node agent may restart a container. It is
// what the kubelet's runtime manager and pod workers do with a back-off. Whether the
// container is restarted at all is decided before, by its restart policy and rules:
// see Gates.OnExit and Plan.Start of package restartpod.
//
//   - [NewBackOff] returns the back-off of a node's containers. [Key] is the key
//     of a container in it.
//   - [DoBackOff] decides before each start whether the container has to wait.
//     [StartFailed] records a start that failed.
//   - A [BackoffError] holds the time at which to try again. [NextSync] computes
//     from a sync's errors when to sync the pod again.
//   - [SaveBackOff] and [RestoreBackOff] keep the back-off over a restart of the
//     agent, in an annotation of the container.
//
// The sync of a container that should run and does not:
//
//	wait, message, err := restart.DoBackOff(ctx, recorder, pod, container, statuses, backOff, time.Now())
//	if wait {
//		setWaiting(container, message)
//		return err
//	}
//	created, err := start(pod, container)
//	return restart.StartFailed(pod, container, created, err, backOff, time.Now())
//
// The package works on plain types and does not depend on k8s.io/kubernetes.
package restart
