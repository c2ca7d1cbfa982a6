// SPDX-License-Identifier: Apache-2.0

// Package asked implements what a pod may ask of its back-off by annotation
// (kubernetes/kubernetes#57291; KEP-5593 leaves it to later work). Whoever may update the pod
// may set the annotations. A node that does not honor them ignores them.
//
// # Restart at
//
//	kubelet-backoff.github.io/restart-at: "2026-11-26T12:00:00Z"
//	restart-at.kubelet-backoff.github.io/NAME: "2026-11-26T12:00:00Z"
//
// The first annotation ends the wait of all containers of the pod, and that of a restart
// of the pod, at the given time, as in RFC 3339. The second one is for the container NAME
// alone. The curve of the back-off starts over. See [Restarts].
//
// The name of a container stands after the slash, as in AppArmor's former annotations: it
// may have 63 characters, which is all that fits there.
//
// # Max restarts
//
//	kubelet-backoff.github.io/max-restarts: "5"
//
// The pod ends as Failed, with the reason RestartLimitExceeded, instead of the sixth restart
// in a row of one of its containers, or of the pod. See [Limits].
//
// # Curves
//
//	restart-backoff.kubelet-backoff.github.io/NAME: initial=1s,max=30s,reset=5m,ignore=0
//
// The container NAME has a back-off of its own, within bounds and the maximum of the node. An
// exit code that is ignored is no failure. See [Curves].
package asked
