// SPDX-License-Identifier: Apache-2.0

// Package agent runs a pod as the kubelet does: the order of its containers,
// their restart policies and rules, back-off, restarts of the whole pod, hooks
// and probes. What a container is, a [Runtime] says.
//
// It is what an author of a node agent may begin with. The loop is in loop.go: an
// [Agent] looks at the runtime, has restartpod.Machine plan, asks
// kuberuntime.DoBackOff before it starts a container, hands
// kuberuntime.StartFailed the error if that fails, and sleeps until something
// changes or kuberuntime.NextSync says. The other files are what feeds it: what
// is seen of containers, probes, and the status for people and for the next
// agent.
package agent
