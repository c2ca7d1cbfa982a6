// SPDX-License-Identifier: Apache-2.0

// Package cri is a runtime for package agent that runs a pod in a CRI runtime such as
// containerd, as the kubelet does. The pod outlives the agent: [New] adopts it by its
// names, labels and annotations.
//
// The package does not touch the pods of a kubelet at the same endpoint. But the kubelet
// stops all pods that it does not know.
package cri
