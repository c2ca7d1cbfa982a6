// SPDX-License-Identifier: Apache-2.0

// Package cri is the runtime of package agent that runs a pod through a CRI
// endpoint such as containerd's, as the kubelet does. The pod outlives the agent:
// [New] adopts what an earlier agent left, all that it needs to know of which is in
// names, labels and annotations.
//
// Pods of a kubelet at the same endpoint are left alone. Not so the other way
// round: a kubelet ends what it has no pod for.
package cri
