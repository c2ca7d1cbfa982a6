// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

// restartWithInit is the beginning of the scenarios in which an init container
// fails after a restart of the pod.
func restartWithInit(t *testing.T, policy v1.RestartPolicy) *command {
	c := startRun(t, newPod(policy, setup("fetch"), container("setup", asInit),
		container("main", func(c *v1.Container) { c.RestartPolicy = ptr.To(v1.ContainerRestartPolicy(policy)) }, restartPodOn88)))
	c.exit("setup", 0)
	c.exit("main", 88)
	c.expect(`
		fetch#1 running
		fetch#1 exited(0)
		setup#1 running
		setup#1 exited(0)
		main#1 running
		main#1 exited(88)
		pod PodRestarting: Container main exited with code 88, triggering pod restart
		fetch#2 running
		fetch#2 exited(0)
		setup#2 running`)
	c.exit("setup", 1)
	c.expect("setup#2 exited(1)")
	return c
}

func TestRunInitFailsNever(t *testing.T) {
	t.Parallel()
	c := restartWithInit(t, never)
	c.ends(exitFailed, `
		pod PodFailed
		fetch restarts=1
		setup restarts=1
		main restarts=0
		pod Failed restarts=1`)
}

func TestRunInitFailsOnFailure(t *testing.T) {
	t.Parallel()
	testInitFails(t, onFailure)
}

func TestRunInitFailsAlways(t *testing.T) {
	t.Parallel()
	testInitFails(t, always)
}

func testInitFails(t *testing.T, policy v1.RestartPolicy) {
	c := restartWithInit(t, policy)
	c.exit("setup", 1)
	c.expect(`
		setup#3 running
		setup#3 exited(1)
		setup BackOff: Back-off restarting failed container setup in pod POD_default(POD): waiting 2s
		setup waits 2s`)
	c.exit("setup", 0)
	c.expect(`
		setup#4 running
		setup#4 exited(0)
		main#2 running`)
	c.interrupt()
	c.ends(130, `
		main Killing: Stopping container main
		main#2 exited(143)
		pod PodFailed
		fetch restarts=1
		setup restarts=3
		main restarts=1
		pod Failed restarts=1`)
}

// The curve of ReduceDefaultCrashLoopBackOffDecay, for the whole pod and for a
// container alone.
func TestRunCurve(t *testing.T) {
	t.Parallel()
	gates := []string{"--feature-gates", "ReduceDefaultCrashLoopBackOffDecay=true,RestartPodOnContainerExits=true", "-"}
	t.Run("pod", func(t *testing.T) {
		t.Parallel()
		c := startRun(t, newPod(never, container("main", rule(restartpod.ContainerRestartRuleActionRestartPod, v1.ContainerRestartRuleOnExitCodesOpNotIn, 0))), gates...)
		for range 4 {
			c.exit("main", 1)
		}
		c.expect(`
			main#1 running
			main#1 exited(1)
			pod PodRestarting: Container main exited with code 1, triggering pod restart
			main#2 running
			main#2 exited(1)
			pod PodRestarting: Container main exited with code 1, triggering pod restart
			pod BackOff: Back-off restarting pod POD: Container main exited with code 1, triggering pod restart: waiting 1s
			pod waits 1s
			main#3 running
			main#3 exited(1)
			pod PodRestarting: Container main exited with code 1, triggering pod restart
			pod BackOff: Back-off restarting pod POD: Container main exited with code 1, triggering pod restart: waiting 2s
			pod waits 2s
			main#4 running
			main#4 exited(1)
			pod PodRestarting: Container main exited with code 1, triggering pod restart
			pod BackOff: Back-off restarting pod POD: Container main exited with code 1, triggering pod restart: waiting 4s
			pod waits 4s`)
		c.interrupt()
		c.ends(130, `
			pod PodFailed
			main restarts=3
			pod Failed restarts=3`)
	})
	t.Run("container", func(t *testing.T) {
		t.Parallel()
		c := startRun(t, newPod(always, container("main"), container("other")), gates...)
		c.expect(`
			main#1 running
			other#1 running`)
		for _, code := range []int{1, 0, 137, 1} {
			c.exit("main", code)
		}
		c.expect(`
			main#1 exited(1)
			main#2 running
			main#2 exited(0)
			main BackOff: Back-off restarting failed container main in pod POD_default(POD): waiting 1s
			main waits 1s
			main#3 running
			main#3 exited(137)
			main BackOff: Back-off restarting failed container main in pod POD_default(POD): waiting 2s
			main waits 2s
			main#4 running
			main#4 exited(1)
			main BackOff: Back-off restarting failed container main in pod POD_default(POD): waiting 4s
			main waits 4s`)
		// The curve of a container is its own.
		c.exit("other", 1)
		c.expect(`
			other#1 exited(1)
			other#2 running`)
		c.interrupt()
		c.ends(130, `
			other Killing: Stopping container other
			other#2 exited(143)
			pod PodFailed
			main restarts=3
			other restarts=1
			pod Failed restarts=0`)
	})
}

func TestRunRestartAllContainers(t *testing.T) {
	t.Parallel()
	const restartAll = v1.ContainerRestartRuleActionRestartAllContainers
	c := startRun(t, newPod(never, setup("setup"),
		container("proxy", asSidecar, stubborn, rule(restartAll, v1.ContainerRestartRuleOnExitCodesOpIn, 99)),
		container("logs", asSidecar, stubborn, preStop("sleep 1000")),
		container("main", restartPodOn88, rule(restartAll, v1.ContainerRestartRuleOnExitCodesOpNotIn, 0, 88)),
		container("helper", stubborn)))
	c.until("helper#1 running")
	c.exit("main", 99)
	c.expect(`
		main#1 exited(99)
		pod PodRestarting: Container main exited with code 99, triggering pod restart
		proxy Killing: Stopping container proxy, the pod is being restarted
		logs Killing: Stopping container logs, the pod is being restarted
		helper Killing: Stopping container helper, the pod is being restarted`)
	c.expectUnordered(`
		proxy#1 exited(137)
		logs#1 exited(137)
		helper#1 exited(137)`)
	c.expect(`
		setup#2 running
		setup#2 exited(0)
		proxy#2 running
		logs#2 running
		main#2 running
		helper#2 running`)
	// RestartPod is the action of another rule, and gives them time.
	c.exit("main", 88)
	c.expect(`
		main#2 exited(88)
		pod PodRestarting: Container main exited with code 88, triggering pod restart
		helper Killing: Stopping container helper, the pod is being restarted`)
	// A second signal ends all at once.
	c.interrupt()
	c.signalUntilEnd(syscall.SIGINT)
	require.Equal(t, 130, c.wait())
	c.requireNoProcess()
}

// With the gate off there is no such action: the pod is refused, and nothing is
// started or written.
func TestRunGateOff(t *testing.T) {
	t.Parallel()
	c := startRun(t, newPod(never, container("main", restartPodOn88)), "--feature-gates", "RestartPodOnContainerExits=false", "-")
	c.expect("end")
	require.Equal(t, exitRefused, c.wait())
	require.Contains(t, c.errors(), "needs the feature gate RestartPodOnContainerExits")
	require.NoDirExists(t, c.root)
}
