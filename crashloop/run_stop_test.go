// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/printer"
	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

func withGrace(pod *v1.Pod, seconds int64) *v1.Pod {
	pod.Spec.TerminationGracePeriodSeconds = &seconds
	return pod
}

func TestRunDeletion(t *testing.T) {
	pod := func() *v1.Pod {
		return newPod(never, container("setup", asInit), container("proxy", asSidecar), container("main", restartPodOn88), container("helper", stubborn))
	}
	onAll := rule(v1.ContainerRestartRuleAction(restartpod.ActionRestartPod), v1.ContainerRestartRuleOnExitCodesOpNotIn, 0)
	runScenarios(t, []scenario{
		{
			// The exit codes after the deletion are no triggers.
			name: "running", status: 130,
			pod: newPod(never, setup("setup"), container("proxy", asSidecar, onAll), container("main", onAll), container("helper", stubborn, onAll)),
			script: `
				... helper#1 running
				> interrupt
				proxy Killing: Stopping container proxy
				main Killing: Stopping container main
				helper Killing: Stopping container helper
				main#1 exited(143)
				> helper 88
				helper#1 exited(88)
				proxy#1 exited(143)
				pod PodFailed
				pod Failed restarts=0 setup=0 proxy=0 main=0 helper=0`,
		},
		{
			// The pod has succeeded, but it did not end by itself.
			name: "ends with 0", status: 130,
			pod: newPod(always, script("main", "trap 'exit 0' TERM; echo >$CTL/main.ready; "+untilTold("main"))),
			script: `
				main#1 running
				> interrupt
				main Killing: Stopping container main
				main#1 exited(0)
				pod PodSucceeded
				pod Succeeded restarts=0 main=0`,
		},
		{
			name: "while containers are stopped", status: 130, pod: pod(),
			script: `
				> setup 0
				> main 88
				... helper Killing: Stopping container helper, the pod is being restarted
				> interrupt
				proxy Killing: Stopping container proxy
				> helper 88
				helper#1 exited(88)
				proxy#1 exited(143)
				pod PodFailed
				pod Failed restarts=0 setup=0 proxy=0 main=0 helper=0`,
		},
		{
			// The back-off of a default node: the test does not wait for its end.
			name: "in the back-off", status: 130,
			pod: newPod(never, container("main", restartPodOn88)), args: []string{"--feature-gates", "RestartPodOnContainerExits=true", "-"},
			script: `
				> main 88
				> main 88
				... pod waits 10s
				> interrupt
				pod PodFailed
				pod Failed restarts=1 main=1`,
		},
		{
			name: "starting up", status: 130, pod: pod(),
			script: `
				> setup 0
				> main 88
				> helper 0
				... setup#2 running
				> interrupt
				setup Killing: Stopping container setup
				setup#2 exited(143)
				pod PodFailed
				pod Failed restarts=1 setup=1 proxy=0 main=0 helper=0`,
		},
		{
			name: "first start", status: 130, pod: pod(),
			script: `
				... setup#1 running
				> interrupt
				setup Killing: Stopping container setup
				setup#1 exited(143)
				pod PodFailed
				pod Failed restarts=0 setup=0 proxy=0 main=0 helper=0`,
		},
	})
}

// A note says for which container a stop waits.
func TestRunWaitsForGracePeriod(t *testing.T) {
	t.Parallel()
	pod := newPod(always, container("proxy", asSidecar), container("main", stubborn), container("other"))
	c := startRun(t, pod)
	for _, running := range []string{"proxy#1 running", "main#1 running", "other#1 running"} {
		require.Equal(t, running, c.next())
	}
	c.signal(syscall.SIGTERM)
	var notes []string
	for {
		e, ok := c.event()
		if !ok {
			break
		}
		// On a slow machine other may still run.
		if e.Reason == printer.ReasonStillRunning && e.Container != "other" {
			notes = append(notes, e.Container+" "+e.Message)
			c.exit("main", 0)
		}
	}
	require.Equal(t, []string{"main still runs 2s after it was told to stop: a first process that ignores SIGTERM is killed when its grace period of 30s ends"}, notes)
	require.Equal(t, 143, c.wait())
}

// The reasons to stop a pod before its end, and their exit statuses.
func TestRunStops(t *testing.T) {
	pod := func() *v1.Pod { return newPod(always, container("main", preStop("read x <$CTL/main.hook"))) }
	const end = `
		> main.hook
		main#1 exited(143)
		pod PodFailed
		pod Failed restarts=0 main=0`
	runScenarios(t, []scenario{
		{name: "SIGTERM", status: 143, pod: pod(), script: `
			main#1 running
			> SIGTERM
			run Stopping: terminated` + stoppingPods + `
			main Killing: Stopping container main` + end},
		// A terminal that closes may send two: the second one does not kill the pods.
		{name: "SIGHUP", status: 129, pod: pod(), script: `
			main#1 running
			> SIGHUP
			run Stopping: hangup` + stoppingPods + `
			main Killing: Stopping container main
			> SIGHUP` + end},
		// Ctrl-C after the timeout does not change the exit status.
		{name: "timeout", status: exitTimeout, pod: pod(), args: []string{"--timeout", "20s", "-"}, script: `
			main#1 running
			run Timeout: --timeout 20s is over: stopping the pods within their grace periods
			main Killing: Stopping container main
			> interrupt` + end},
		// A pod that has ended in time has its own exit status.
		{name: "before the timeout", status: exitFailed, pod: newPod(never, script("main", "exit 5")), args: []string{"--timeout", "10m", "--max-restarts", "0", "-"}, script: `
			main#1 running
			main#1 exited(5)
			pod PodFailed
			pod Failed restarts=0 main=0`},
		// With OnFailure a success does not count, with Always it does.
		{name: "max-restarts, OnFailure", status: exitMaxRestarts, pod: newPod(onFailure, container("main"), container("other")), args: []string{"--max-restarts", "0", "-"}, script: `
			main#1 running
			other#1 running
			> other 0
			other#1 exited(0)
			> main 1
			main#1 exited(1)
			... run MaxRestarts: container main of pod default/POD has reached --max-restarts 0: stopping the pods within their grace periods
			... pod Failed restarts=0 main=0 other=0`},
		{name: "max-restarts, Always", status: exitMaxRestarts, pod: newPod(always, container("main"), container("other")), args: []string{"--max-restarts", "1", "-"}, script: `
			main#1 running
			other#1 running
			> main 0
			main#1 exited(0)
			main#2 running
			> main 1
			main#2 exited(1)
			... run MaxRestarts: container main of pod default/POD has reached --max-restarts 1: stopping the pods within their grace periods
			... pod Failed restarts=0 main=1 other=0`},
		// Restarts of the whole pod count as restarts of its containers.
		{name: "max-restarts of the pod", status: exitMaxRestarts, pod: newPod(never, container("main", restartPodOn88)), args: []string{"--config", "testdata/run/kubelet.yaml", "--max-restarts", "1", "-"}, script: `
			> main 88
			... main#2 running
			> main 88
			... main#2 exited(88)
			... pod Failed restarts=1 main=1`},
		// Any pipe or connection may cause a SIGPIPE. The kernel sends one if a container
		// exits while the agent writes to it, for example.
		{name: "not by SIGPIPE", status: exitSucceeded, pod: newPod(never, container("main")), script: `
			main#1 running
			> SIGPIPE
			> main 0
			main#1 exited(0)
			pod PodSucceeded
			pod Succeeded restarts=0 main=0`},
	})
}
