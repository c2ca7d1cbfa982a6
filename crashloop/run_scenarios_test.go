// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
)

const (
	never     = v1.RestartPolicyNever
	onFailure = v1.RestartPolicyOnFailure
	always    = v1.RestartPolicyAlways
)

// scenario is a run of a pod: what the test does and expects, in the form of
// command.expect, and the exit status of the run.
type scenario struct {
	name   string
	status int
	pod    *v1.Pod
	args   []string
	script string
}

func runScenarios(t *testing.T, scenarios []scenario) {
	t.Parallel()
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			startRun(t, s.pod, s.args...).ends(s.status, s.script)
		})
	}
}

// The transcripts of restartpod with processes. The back-off of
// testdata/run/kubelet.yaml is 0, 2 s, 2 s ... Some transcripts have no scenario:
//   - agent_crash, agent_crash_terminating, restarted_twice: processes end with the
//     agent, so no later agent finds them.
//   - reboot, sandbox_lost: the sandbox of processes is never lost.
//   - ephemeral: run rejects a manifest with ephemeral containers.
//   - reset: it needs a run of more than 10 minutes.
func TestRunScenarios(t *testing.T) {
	runScenarios(t, []scenario{
		{
			name: "main container", status: exitFailed,
			pod: newPod(never, setup("setup"), container("proxy", asSidecar, stubborn), container("main", restartPodOn88), container("helper", stubborn)),
			script: `
				setup#1 running
				setup#1 exited(0)
				proxy#1 running
				main#1 running
				helper#1 running
				> main 88
				main#1 exited(88)
				pod PodRestarting: Container main exited with code 88, triggering pod restart
				helper Killing: Stopping container helper, the pod is being restarted
				> helper 3
				helper#1 exited(3)
				proxy Killing: Stopping container proxy, the pod is being restarted
				> proxy 0
				proxy#1 exited(0)
				setup#2 running
				setup#2 exited(0)
				proxy#2 running
				main#2 running
				helper#2 running
				# The exit code of main's first instance no longer counts.
				> helper 1
				helper#2 exited(1)
				> main 0
				main#2 exited(0)
				proxy Killing: Stopping container proxy
				> proxy 0
				proxy#2 exited(0)
				pod PodFailed
				pod Failed restarts=1 setup=1 proxy=1 main=1 helper=1`,
		},
		{
			name: "sidecar", status: exitSucceeded,
			pod: newPod(never, setup("setup"), container("logs", asSidecar, probed), container("watcher", asSidecar, restartPodOn88, probed),
				container("proxy", asSidecar, stubborn, probed), container("main", stubborn)),
			script: `
				... logs#1 running
				> logs.probe
				... watcher#1 running
				> watcher.probe
				... proxy#1 running
				> proxy.probe
				main#1 running
				> watcher 88
				watcher#1 exited(88)
				pod PodRestarting: Container watcher exited with code 88, triggering pod restart
				main Killing: Stopping container main, the pod is being restarted
				> main 143
				main#1 exited(143)
				proxy Killing: Stopping container proxy, the pod is being restarted
				> proxy 0
				proxy#1 exited(0)
				logs Killing: Stopping container logs, the pod is being restarted
				logs#1 exited(143)
				setup#2 running
				setup#2 exited(0)
				logs#2 running
				# watcher exits again before proxy and main have started.
				> logs.probe
				watcher#2 running
				> watcher 88
				watcher#2 exited(88)
				pod PodRestarting: Container watcher exited with code 88, triggering pod restart
				logs Killing: Stopping container logs, the pod is being restarted
				logs#2 exited(143)
				pod BackOff: Back-off restarting pod POD: Container watcher exited with code 88, triggering pod restart: waiting 2s
				pod waits 2s
				setup#3 running
				setup#3 exited(0)
				logs#3 running
				> logs.probe
				watcher#3 running
				> watcher.probe
				proxy#2 running
				> proxy.probe
				main#2 running
				> main 0
				... proxy Killing: Stopping container proxy
				> proxy 0
				... pod PodSucceeded
				pod Succeeded restarts=2 setup=2 logs=2 watcher=2 proxy=1 main=1`,
		},
		{
			name: "sidecar alone", status: exitSucceeded,
			pod: newPod(never, container("proxy", asSidecar, restartPodOn88), container("setup", asInit), container("main")),
			script: `
				proxy#1 running
				setup#1 running
				> proxy 1
				proxy#1 exited(1)
				proxy#2 running
				> setup 0
				setup#1 exited(0)
				main#1 running
				> main 0
				main#1 exited(0)
				proxy Killing: Stopping container proxy
				proxy#2 exited(143)
				pod PodSucceeded
				pod Succeeded restarts=0 proxy=1 setup=0 main=0`,
		},
		{
			name: "first init container", status: exitSucceeded,
			pod: newPod(onFailure, container("fetch", asInit, restartPodOn88), setup("setup"), container("main")),
			script: `
				fetch#1 running
				> fetch 88
				fetch#1 exited(88)
				pod PodRestarting: Container fetch exited with code 88, triggering pod restart
				fetch#2 running
				> fetch 0
				> main 0
				fetch#2 exited(0)
				setup#1 running
				setup#1 exited(0)
				main#1 running
				main#1 exited(0)
				pod PodSucceeded
				pod Succeeded restarts=1 fetch=1 setup=0 main=0`,
		},
		{
			name: "second init container", status: exitSucceeded,
			pod: newPod(never, setup("fetch"), container("proxy", asSidecar), container("setup", asInit, restartPodOn88), container("main")),
			script: `
				> setup 88
				fetch#1 running
				fetch#1 exited(0)
				proxy#1 running
				setup#1 running
				setup#1 exited(88)
				pod PodRestarting: Container setup exited with code 88, triggering pod restart
				proxy Killing: Stopping container proxy, the pod is being restarted
				proxy#1 exited(143)
				fetch#2 running
				fetch#2 exited(0)
				proxy#2 running
				setup#2 running
				> setup 88
				setup#2 exited(88)
				pod PodRestarting: Container setup exited with code 88, triggering pod restart
				proxy Killing: Stopping container proxy, the pod is being restarted
				proxy#2 exited(143)
				pod BackOff: Back-off restarting pod POD: Container setup exited with code 88, triggering pod restart: waiting 2s
				pod waits 2s
				fetch#3 running
				fetch#3 exited(0)
				proxy#3 running
				setup#3 running
				> setup 0
				> main 0
				setup#3 exited(0)
				main#1 running
				main#1 exited(0)
				proxy Killing: Stopping container proxy
				proxy#3 exited(143)
				pod PodSucceeded
				pod Succeeded restarts=2 fetch=2 proxy=2 setup=2 main=0`,
		},
		{
			name: "trigger during startup", status: exitSucceeded,
			pod: newPod(never, container("setup", asInit, restartPodOn88), container("main", probed, restartPodOn88)),
			script: `
				> setup 0
				setup#1 running
				setup#1 exited(0)
				main#1 running
				> main.probe
				> main 88
				main#1 exited(88)
				pod PodRestarting: Container main exited with code 88, triggering pod restart
				setup#2 running
				# main exits before its startup probe has passed.
				> setup 0
				> main 88
				setup#2 exited(0)
				main#2 running
				main#2 exited(88)
				pod PodRestarting: Container main exited with code 88, triggering pod restart
				pod BackOff: Back-off restarting pod POD: Container main exited with code 88, triggering pod restart: waiting 2s
				pod waits 2s
				setup#3 running
				# Now the trigger is an init container.
				> setup 88
				setup#3 exited(88)
				pod PodRestarting: Container setup exited with code 88, triggering pod restart
				pod BackOff: Back-off restarting pod POD: Container setup exited with code 88, triggering pod restart: waiting 2s
				pod waits 2s
				> setup 0
				> main 0
				setup#4 running
				setup#4 exited(0)
				main#3 running
				main#3 exited(0)
				pod PodSucceeded
				pod Succeeded restarts=3 setup=3 main=2`,
		},
		{
			name: "trigger during termination", status: exitSucceeded,
			pod: newPod(never, container("main", restartPodOn88), container("helper", stubborn, restartPodOn88)),
			script: `
				main#1 running
				helper#1 running
				> main 88
				main#1 exited(88)
				pod PodRestarting: Container main exited with code 88, triggering pod restart
				helper Killing: Stopping container helper, the pod is being restarted
				> helper 88
				helper#1 exited(88)
				main#2 running
				helper#2 running
				# The second restart waits 2 s from main's exit: that of helper has not counted.
				> main 88
				main#2 exited(88)
				pod PodRestarting: Container main exited with code 88, triggering pod restart
				helper Killing: Stopping container helper, the pod is being restarted
				> helper 0
				helper#2 exited(0)
				pod BackOff: Back-off restarting pod POD: Container main exited with code 88, triggering pod restart: waiting 2s
				pod waits 2s
				main#3 running
				helper#3 running
				> helper 0
				helper#3 exited(0)
				> main 0
				main#3 exited(0)
				pod PodSucceeded
				pod Succeeded restarts=2 main=2 helper=2`,
		},
		{
			name: "ignores SIGTERM", status: exitSucceeded,
			pod: withGrace(newPod(never, container("proxy", asSidecar), container("main", restartPodOn88), container("stubborn", stubborn)), 1),
			script: `
				> main 88
				proxy#1 running
				main#1 running
				stubborn#1 running
				main#1 exited(88)
				pod PodRestarting: Container main exited with code 88, triggering pod restart
				stubborn Killing: Stopping container stubborn, the pod is being restarted
				| stubborn#1 exited(137)
				| proxy Killing: Stopping container proxy, the pod is being restarted
				| proxy#1 exited(143)
				proxy#2 running
				main#2 running
				stubborn#2 running
				> stubborn 0
				stubborn#2 exited(0)
				> main 0
				... pod PodSucceeded
				pod Succeeded restarts=1 proxy=1 main=1 stubborn=1`,
		},
		{
			// The hook of main ends. That of helper runs until the end of the grace period,
			// and then the sidecar is stopped.
			name: "preStop hangs", status: 130,
			pod: withGrace(newPod(never, container("proxy", asSidecar, restartPodOn88), container("logs", asSidecar),
				container("main", preStop("read x <$CTL/main.hook; exit $x")), container("helper", preStop("sleep 1000"))), 5),
			script: `
				proxy#1 running
				logs#1 running
				main#1 running
				helper#1 running
				> main.hook 0
				> proxy 88
				proxy#1 exited(88)
				pod PodRestarting: Container proxy exited with code 88, triggering pod restart
				main Killing: Stopping container main, the pod is being restarted
				helper Killing: Stopping container helper, the pod is being restarted
				main#1 exited(143)
				| helper FailedPreStopHook: PreStopHook failed
				| helper#1 exited(143)
				| logs Killing: Stopping container logs, the pod is being restarted
				| logs#1 exited(143)
				proxy#2 running
				logs#2 running
				main#2 running
				helper#2 running
				# A hook that fails delays nothing.
				> main.hook 1
				> helper 0
				helper#2 exited(0)
				> interrupt
				| proxy Killing: Stopping container proxy
				| logs Killing: Stopping container logs
				| main Killing: Stopping container main
				| main FailedPreStopHook: PreStopHook failed
				| main#2 exited(143)
				| logs#2 exited(143)
				| proxy#2 exited(143)
				pod PodFailed
				pod Failed restarts=1 proxy=1 logs=1 main=1 helper=1`,
		},
	})
}

// The agent may see either exit first.
func TestRunTwoAtOnce(t *testing.T) {
	t.Parallel()
	c := startRun(t, newPod(never, container("proxy", asSidecar, restartPodOn88), container("main", restartPodOn88, stubborn)))
	c.expect(`
		... main#1 running
		> proxy 88
		... main Killing: Stopping container main, the pod is being restarted
		> main 88`) // main ignores SIGTERM.
	require.NotContains(t, strings.Join(c.until("main#2 running"), "\n"), "PodRestarting")
	c.ends(130, `
		> interrupt
		... main Killing: Stopping container main
		> main 143
		... main#2 exited(143)
		... proxy#2 exited(143)
		pod PodFailed
		pod Failed restarts=1 proxy=1 main=1`)
}
