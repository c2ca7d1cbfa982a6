// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

func withGrace(pod *v1.Pod, seconds int64) *v1.Pod {
	pod.Spec.TerminationGracePeriodSeconds = &seconds
	return pod
}

func TestRunIgnoresSigterm(t *testing.T) {
	t.Parallel()
	c := startRun(t, withGrace(newPod(never, container("proxy", asSidecar), container("main", restartPodOn88), container("stubborn", stubborn)), 1))
	c.exit("main", 88)
	c.expect(`
		proxy#1 running
		main#1 running
		stubborn#1 running
		main#1 exited(88)
		pod PodRestarting: Container main exited with code 88, triggering pod restart
		stubborn Killing: Stopping container stubborn, the pod is being restarted`)
	c.expectUnordered(`
		stubborn#1 exited(137)
		proxy Killing: Stopping container proxy, the pod is being restarted
		proxy#1 exited(143)`)
	c.expect(`
		proxy#2 running
		main#2 running
		stubborn#2 running`)
	c.exit("stubborn", 0)
	c.expect("stubborn#2 exited(0)")
	c.exit("main", 0)
	c.until("pod PodSucceeded")
	c.ends(exitSucceeded, `
		proxy restarts=1
		main restarts=1
		stubborn restarts=1
		pod Succeeded restarts=1`)
}

// The hook of main ends, that of helper hangs and is given up with the grace
// period, with which the turn of the sidecar comes.
func TestRunPreStopHangs(t *testing.T) {
	t.Parallel()
	c := startRun(t, withGrace(newPod(never, container("proxy", asSidecar, restartPodOn88), container("logs", asSidecar),
		container("main", preStop("read x <$CTL/main.hook; exit $x")), container("helper", preStop("sleep 1000"))), 5))
	c.expect(`
		proxy#1 running
		logs#1 running
		main#1 running
		helper#1 running`)
	c.tell("main.hook", "0")
	c.exit("proxy", 88)
	c.expect(`
		proxy#1 exited(88)
		pod PodRestarting: Container proxy exited with code 88, triggering pod restart
		main Killing: Stopping container main, the pod is being restarted
		helper Killing: Stopping container helper, the pod is being restarted
		main#1 exited(143)`)
	c.expectUnordered(`
		helper FailedPreStopHook: PreStopHook failed
		helper#1 exited(143)
		logs Killing: Stopping container logs, the pod is being restarted
		logs#1 exited(143)`)
	c.expect(`
		proxy#2 running
		logs#2 running
		main#2 running
		helper#2 running`)
	// A hook that fails delays nothing.
	c.tell("main.hook", "1")
	c.exit("helper", 0)
	c.expect("helper#2 exited(0)")
	c.interrupt()
	c.expectUnordered(`
		proxy Killing: Stopping container proxy
		logs Killing: Stopping container logs
		main Killing: Stopping container main
		main FailedPreStopHook: PreStopHook failed
		main#2 exited(143)
		logs#2 exited(143)
		proxy#2 exited(143)`)
	c.ends(130, `
		pod PodFailed
		proxy restarts=1
		logs restarts=1
		main restarts=1
		helper restarts=1
		pod Failed restarts=1`)
}

func TestRunDeletion(t *testing.T) {
	t.Parallel()
	pod := func() *v1.Pod {
		return newPod(never, container("setup", asInit), container("proxy", asSidecar), container("main", restartPodOn88), container("helper", stubborn))
	}
	t.Run("running", func(t *testing.T) {
		t.Parallel()
		// The codes with which containers end then are no triggers.
		onAll := rule(restartpod.ContainerRestartRuleActionRestartPod, v1.ContainerRestartRuleOnExitCodesOpNotIn, 0)
		c := startRun(t, newPod(never, setup("setup"), container("proxy", asSidecar, onAll), container("main", onAll), container("helper", stubborn, onAll)))
		c.until("helper#1 running")
		c.interrupt()
		c.expect(`
			proxy Killing: Stopping container proxy
			main Killing: Stopping container main
			helper Killing: Stopping container helper
			main#1 exited(143)`)
		c.exit("helper", 88)
		c.ends(130, `
			helper#1 exited(88)
			proxy#1 exited(143)
			pod PodFailed
			setup restarts=0
			proxy restarts=0
			main restarts=0
			helper restarts=0
			pod Failed restarts=0`)
	})
	t.Run("ends with 0", func(t *testing.T) {
		t.Parallel()
		// The pod has succeeded then, and yet did not end by itself.
		c := startRun(t, newPod(always, script("main", "trap 'exit 0' TERM; echo >$CTL/main.ready; "+untilTold("main"))))
		c.expect("main#1 running")
		c.interrupt()
		c.ends(130, `
			main Killing: Stopping container main
			main#1 exited(0)
			pod PodSucceeded
			main restarts=0
			pod Succeeded restarts=0`)
	})
	t.Run("while containers are stopped", func(t *testing.T) {
		t.Parallel()
		c := startRun(t, pod())
		c.exit("setup", 0)
		c.exit("main", 88)
		c.until("helper Killing: Stopping container helper, the pod is being restarted")
		c.interrupt()
		c.expect("proxy Killing: Stopping container proxy")
		c.exit("helper", 88)
		c.ends(130, `
			helper#1 exited(88)
			proxy#1 exited(143)
			pod PodFailed
			setup restarts=0
			proxy restarts=0
			main restarts=0
			helper restarts=0
			pod Failed restarts=0`)
	})
	t.Run("in the back-off", func(t *testing.T) {
		t.Parallel()
		// Of a default node: nobody waits for the end of it.
		p := newPod(never, container("main", restartPodOn88))
		c := startRun(t, p, "--feature-gates", "RestartPodOnContainerExits=true", "-")
		c.exit("main", 88)
		c.exit("main", 88)
		c.until("pod waits 10s")
		c.interrupt()
		c.ends(130, `
			pod PodFailed
			main restarts=1
			pod Failed restarts=1`)
	})
	t.Run("starting up", func(t *testing.T) {
		t.Parallel()
		c := startRun(t, pod())
		c.exit("setup", 0)
		c.exit("main", 88)
		c.exit("helper", 0)
		c.until("setup#2 running")
		c.interrupt()
		c.ends(130, `
			setup Killing: Stopping container setup
			setup#2 exited(143)
			pod PodFailed
			setup restarts=1
			proxy restarts=0
			main restarts=0
			helper restarts=0
			pod Failed restarts=1`)
	})
	t.Run("first start", func(t *testing.T) {
		t.Parallel()
		c := startRun(t, pod())
		c.until("setup#1 running")
		c.interrupt()
		c.ends(130, `
			setup Killing: Stopping container setup
			setup#1 exited(143)
			pod PodFailed
			setup restarts=0
			proxy restarts=0
			main restarts=0
			helper restarts=0
			pod Failed restarts=0`)
	})
}
