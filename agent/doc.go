// SPDX-License-Identifier: Apache-2.0

// Package agent runs a pod as the kubelet does: in the same order of init containers,
// sidecars and containers, with the same restart policies and rules, back-off, restarts
// of the whole pod, hooks, grace periods, probes and active deadline, and with the same
// events and status. It is for authors of node agents: virtual-kubelet providers,
// supervisors, simulations. The package is v0: its API may change.
//
// You provide a [Runtime], an interface of seven methods that starts and stops
// containers. Packages agent/process and agent/cri implement it. The directory
// examples/agent of the repository has a small implementation in fewer than eighty lines.
// Package agent/podspec prepares pods from files.
//
//	a, err := agent.New(agent.Options{Pod: pod, Runtime: runtime})
//	if err != nil {
//		return err
//	}
//	phase := a.Run(ctx) // Succeeded, Failed, or Running if ctx was done before
//
// # Time
//
// [Agent.Run] waits on Options.Clock until something is due, the state of the runtime has
// changed, or the context is done, which means that the pod is deleted. [Agent.Step]
// takes the time as an argument, does what is due, and returns the time of the next
// call. It uses no goroutines and no timers, so one program can run thousands of pods in
// virtual time.
//
// # Sync
//
// In a sync the agent gets the runtime's [State], asks restartpod.Machine for a plan, and
// stops and starts containers. It starts all containers that may start, in the order in
// which they exited. restart.DoBackOff decides whether a container has to wait. The
// agent passes the new [Status] to Options.Report. [Status.PodStatus] converts it for the
// API.
package agent
