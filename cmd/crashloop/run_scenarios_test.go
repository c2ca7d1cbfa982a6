// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
)

// The scenarios of restartpod's transcripts, by their names, with processes. The
// back-off of testdata/run/kubelet.yaml is 0, 2 s, 2 s ...
//
// These make no sense here:
//   - agent_crash, agent_crash_terminating and restarted_twice: processes end
//     with the agent, and so there is nothing to find again.
//   - reboot and sandbox_lost: the sandbox of processes is never lost.
//   - ephemeral: a manifest with ephemeral containers is refused.
//   - reset: it takes a run of more than 10 minutes.

const (
	never     = v1.RestartPolicyNever
	onFailure = v1.RestartPolicyOnFailure
	always    = v1.RestartPolicyAlways
)

func TestRunMainContainer(t *testing.T) {
	t.Parallel()
	c := startRun(t, newPod(never, setup("setup"), container("proxy", asSidecar, stubborn), container("main", restartPodOn88), container("helper", stubborn)))
	c.expect(`
		setup#1 running
		setup#1 exited(0)
		proxy#1 running
		main#1 running
		helper#1 running`)
	c.exit("main", 88)
	c.expect(`
		main#1 exited(88)
		pod PodRestarting: Container main exited with code 88, triggering pod restart
		helper Killing: Stopping container helper, the pod is being restarted`)
	c.exit("helper", 3)
	c.expect(`
		helper#1 exited(3)
		proxy Killing: Stopping container proxy, the pod is being restarted`)
	c.exit("proxy", 0)
	c.expect(`
		proxy#1 exited(0)
		setup#2 running
		setup#2 exited(0)
		proxy#2 running
		main#2 running
		helper#2 running`)
	// The pod runs as it did before: main's exit code is of its present instance.
	c.exit("helper", 1)
	c.expect("helper#2 exited(1)")
	c.exit("main", 0)
	c.expect(`
		main#2 exited(0)
		proxy Killing: Stopping container proxy`)
	c.exit("proxy", 0)
	c.ends(exitFailed, `
		proxy#2 exited(0)
		pod PodFailed
		setup restarts=1
		proxy restarts=1
		main restarts=1
		helper restarts=1
		pod Failed restarts=1`)
}

func TestRunSidecar(t *testing.T) {
	t.Parallel()
	t.Run("trigger", func(t *testing.T) {
		t.Parallel()
		c := startRun(t, newPod(never, setup("setup"), container("logs", asSidecar, probed), container("watcher", asSidecar, restartPodOn88, probed),
			container("proxy", asSidecar, stubborn, probed), container("main", stubborn)))
		startUp := func() {
			for _, name := range []string{"logs", "watcher", "proxy"} {
				c.until(name + "#1 running")
				c.tell(name+".probe", "")
			}
		}
		startUp()
		c.expect("main#1 running")
		c.exit("watcher", 88)
		c.expect(`
			watcher#1 exited(88)
			pod PodRestarting: Container watcher exited with code 88, triggering pod restart
			main Killing: Stopping container main, the pod is being restarted`)
		c.exit("main", 143)
		c.expect(`
			main#1 exited(143)
			proxy Killing: Stopping container proxy, the pod is being restarted`)
		c.exit("proxy", 0)
		c.expect(`
			proxy#1 exited(0)
			logs Killing: Stopping container logs, the pod is being restarted
			logs#1 exited(143)
			setup#2 running
			setup#2 exited(0)
			logs#2 running`)
		// watcher exits again, before proxy has begun and main has a turn.
		c.tell("logs.probe", "")
		c.expect("watcher#2 running")
		c.exit("watcher", 88)
		c.expect(`
			watcher#2 exited(88)
			pod PodRestarting: Container watcher exited with code 88, triggering pod restart
			logs Killing: Stopping container logs, the pod is being restarted
			logs#2 exited(143)
			pod BackOff: Back-off restarting pod POD: Container watcher exited with code 88, triggering pod restart: waiting 2s
			pod waits 2s
			setup#3 running
			setup#3 exited(0)
			logs#3 running`)
		c.tell("logs.probe", "")
		c.expect("watcher#3 running")
		c.tell("watcher.probe", "")
		c.expect("proxy#2 running")
		c.tell("proxy.probe", "")
		c.expect("main#2 running")
		c.exit("main", 0)
		c.until("proxy Killing: Stopping container proxy")
		c.exit("proxy", 0)
		c.until("pod PodSucceeded")
		c.ends(exitSucceeded, `
			setup restarts=2
			logs restarts=2
			watcher restarts=2
			proxy restarts=1
			main restarts=1
			pod Succeeded restarts=2`)
	})
	t.Run("alone", func(t *testing.T) {
		t.Parallel()
		c := startRun(t, newPod(never, container("proxy", asSidecar, restartPodOn88), container("setup", asInit), container("main")))
		c.expect(`
			proxy#1 running
			setup#1 running`)
		c.exit("proxy", 1)
		c.expect(`
			proxy#1 exited(1)
			proxy#2 running`)
		c.exit("setup", 0)
		c.expect(`
			setup#1 exited(0)
			main#1 running`)
		c.exit("main", 0)
		c.ends(exitSucceeded, `
			main#1 exited(0)
			proxy Killing: Stopping container proxy
			proxy#2 exited(143)
			pod PodSucceeded
			proxy restarts=1
			setup restarts=0
			main restarts=0
			pod Succeeded restarts=0`)
	})
}

func TestRunFirstInitContainer(t *testing.T) {
	t.Parallel()
	c := startRun(t, newPod(onFailure, container("fetch", asInit, restartPodOn88), setup("setup"), container("main")))
	c.expect("fetch#1 running")
	c.exit("fetch", 88)
	c.expect(`
		fetch#1 exited(88)
		pod PodRestarting: Container fetch exited with code 88, triggering pod restart
		fetch#2 running`)
	c.exit("fetch", 0)
	c.exit("main", 0)
	c.ends(exitSucceeded, `
		fetch#2 exited(0)
		setup#1 running
		setup#1 exited(0)
		main#1 running
		main#1 exited(0)
		pod PodSucceeded
		fetch restarts=1
		setup restarts=0
		main restarts=0
		pod Succeeded restarts=1`)
}

func TestRunSecondInitContainer(t *testing.T) {
	t.Parallel()
	c := startRun(t, newPod(never, setup("fetch"), container("proxy", asSidecar), container("setup", asInit, restartPodOn88), container("main")))
	c.exit("setup", 88)
	c.expect(`
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
		setup#2 running`)
	c.exit("setup", 88)
	c.expect(`
		setup#2 exited(88)
		pod PodRestarting: Container setup exited with code 88, triggering pod restart
		proxy Killing: Stopping container proxy, the pod is being restarted
		proxy#2 exited(143)
		pod BackOff: Back-off restarting pod POD: Container setup exited with code 88, triggering pod restart: waiting 2s
		pod waits 2s`)
	c.expect(`
		fetch#3 running
		fetch#3 exited(0)
		proxy#3 running
		setup#3 running`)
	c.exit("setup", 0)
	c.exit("main", 0)
	c.ends(exitSucceeded, `
		setup#3 exited(0)
		main#1 running
		main#1 exited(0)
		proxy Killing: Stopping container proxy
		proxy#3 exited(143)
		pod PodSucceeded
		fetch restarts=2
		proxy restarts=2
		setup restarts=2
		main restarts=0
		pod Succeeded restarts=2`)
}

// Which of the two is seen first is open.
func TestRunTwoAtOnce(t *testing.T) {
	t.Parallel()
	c := startRun(t, newPod(never, container("proxy", asSidecar, restartPodOn88), container("main", restartPodOn88, stubborn)))
	c.until("main#1 running")
	c.exit("proxy", 88)
	c.exit("main", 88) // By which it ends, and not by SIGTERM.
	restarts := 0
	for _, line := range c.until("main#2 running") {
		if strings.Contains(line, "PodRestarting") {
			restarts++
		}
	}
	require.Equal(t, 1, restarts)
	c.interrupt()
	c.exit("main", 143)
	c.until("main#2 exited(143)")
	c.until("proxy#2 exited(143)")
	c.ends(130, `
		pod PodFailed
		proxy restarts=1
		main restarts=1
		pod Failed restarts=1`)
}

func TestRunTriggerDuringStartup(t *testing.T) {
	t.Parallel()
	c := startRun(t, newPod(never, container("setup", asInit, restartPodOn88), container("main", probed, restartPodOn88)))
	c.exit("setup", 0)
	c.expect(`
		setup#1 running
		setup#1 exited(0)
		main#1 running`)
	c.tell("main.probe", "")
	c.exit("main", 88)
	c.expect(`
		main#1 exited(88)
		pod PodRestarting: Container main exited with code 88, triggering pod restart
		setup#2 running`)
	// main exits before its startup probe has passed.
	c.exit("setup", 0)
	c.exit("main", 88)
	c.expect(`
		setup#2 exited(0)
		main#2 running
		main#2 exited(88)
		pod PodRestarting: Container main exited with code 88, triggering pod restart
		pod BackOff: Back-off restarting pod POD: Container main exited with code 88, triggering pod restart: waiting 2s
		pod waits 2s
		setup#3 running`)
	// An init container this time.
	c.exit("setup", 88)
	c.expect(`
		setup#3 exited(88)
		pod PodRestarting: Container setup exited with code 88, triggering pod restart
		pod BackOff: Back-off restarting pod POD: Container setup exited with code 88, triggering pod restart: waiting 2s
		pod waits 2s`)
	c.exit("setup", 0)
	c.exit("main", 0)
	c.ends(exitSucceeded, `
		setup#4 running
		setup#4 exited(0)
		main#3 running
		main#3 exited(0)
		pod PodSucceeded
		setup restarts=3
		main restarts=2
		pod Succeeded restarts=3`)
}

func TestRunTriggerDuringTermination(t *testing.T) {
	t.Parallel()
	c := startRun(t, newPod(never, container("main", restartPodOn88), container("helper", stubborn, restartPodOn88)))
	c.expect(`
		main#1 running
		helper#1 running`)
	c.exit("main", 88)
	c.expect(`
		main#1 exited(88)
		pod PodRestarting: Container main exited with code 88, triggering pod restart
		helper Killing: Stopping container helper, the pod is being restarted`)
	c.exit("helper", 88)
	c.expect(`
		helper#1 exited(88)
		main#2 running
		helper#2 running`)
	// The second restart waits as long from main's exit as it would without that of
	// helper.
	c.exit("main", 88)
	c.expect(`
		main#2 exited(88)
		pod PodRestarting: Container main exited with code 88, triggering pod restart
		helper Killing: Stopping container helper, the pod is being restarted`)
	c.exit("helper", 0)
	c.expect(`
		helper#2 exited(0)
		pod BackOff: Back-off restarting pod POD: Container main exited with code 88, triggering pod restart: waiting 2s
		pod waits 2s
		main#3 running
		helper#3 running`)
	c.exit("helper", 0)
	c.expect("helper#3 exited(0)")
	c.exit("main", 0)
	c.ends(exitSucceeded, `
		main#3 exited(0)
		pod PodSucceeded
		main restarts=2
		helper restarts=2
		pod Succeeded restarts=2`)
}
