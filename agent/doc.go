// SPDX-License-Identifier: Apache-2.0

// Package agent runs a pod as the kubelet does: the order of its containers,
// their restart policies and rules, back-off, restarts of the whole pod, preStop
// hooks, grace periods, startup and liveness probes, the active deadline, and the
// events and the status that tell of it. It is for authors of node agents:
// virtual-kubelet providers, supervisors, simulations. It is v0: what it exports may
// change.
//
// What a container is, a [Runtime] says, an interface of seven methods. Packages
// agent/process and agent/cri have one each; test/agent of the repository is an
// agent with a runtime of its own in less than eighty lines. agent/manifest helps
// with pods that come from files.
//
//	a, err := agent.New(agent.Options{Pod: pod, Runtime: runtime})
//	...
//	phase := a.Run(ctx)
//
// # Time
//
// [Agent.Run] waits by Options.Clock until something is due, the runtime's state
// has changed, or the context is done, which is the pod's deletion. Nothing else
// here looks at a clock. [Agent.Step] does what is due at a time that the caller
// names, and returns when to call it again; it needs no goroutine and no timer, so
// that many thousand pods can run in virtual time.
//
// # A sync
//
// Each time, the agent looks at the runtime's [State], has restartpod.Machine plan,
// stops what is to be stopped, and starts what is to be started: all of it, first
// what exited first. kuberuntime.DoBackOff says whether a container has to wait.
// Then the status goes to Options.Report.
package agent
