// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/plan"
	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

// An init container fails after a restart of the pod.
func TestRunInitFails(t *testing.T) {
	pod := func(policy v1.RestartPolicy) *v1.Pod {
		return newPod(policy, setup("fetch"), container("setup", asInit),
			container("main", func(c *v1.Container) { c.RestartPolicy = ptr.To(v1.ContainerRestartPolicy(policy)) }, restartPodOn88))
	}
	const begin = `
		> setup 0
		> main 88
		fetch#1 running
		fetch#1 exited(0)
		setup#1 running
		setup#1 exited(0)
		main#1 running
		main#1 exited(88)
		pod PodRestarting: Container main exited with code 88, triggering pod restart
		fetch#2 running
		fetch#2 exited(0)
		setup#2 running
		> setup 1
		setup#2 exited(1)`
	const again = begin + `
		> setup 1
		setup#3 running
		setup#3 exited(1)
		setup BackOff: Back-off restarting failed container setup in pod POD_default(POD): waiting 2s
		setup waits 2s
		> setup 0
		setup#4 running
		setup#4 exited(0)
		main#2 running
		> interrupt
		main Killing: Stopping container main
		main#2 exited(143)
		pod PodFailed
		pod Failed restarts=1 fetch=1 setup=3 main=1`
	runScenarios(t, []scenario{
		{name: "Never", status: exitFailed, pod: pod(never), script: begin + `
			pod PodFailed
			pod Failed restarts=1 fetch=1 setup=1 main=0`},
		{name: "OnFailure", status: 130, pod: pod(onFailure), script: again},
		{name: "Always", status: 130, pod: pod(always), script: again},
	})
}

// The curve of ReduceDefaultCrashLoopBackOffDecay, for the whole pod and for a
// container alone.
func TestRunCurve(t *testing.T) {
	gates := []string{"--feature-gates", "ReduceDefaultCrashLoopBackOffDecay=true,RestartPodOnContainerExits=true", "-"}
	runScenarios(t, []scenario{
		{
			name: "pod", status: 130, args: gates,
			pod: newPod(never, container("main", rule(v1.ContainerRestartRuleAction(restartpod.ActionRestartPod), v1.ContainerRestartRuleOnExitCodesOpNotIn, 0))),
			script: `
				> main 1
				> main 1
				> main 1
				> main 1
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
				pod waits 4s
				> interrupt
				pod PodFailed
				pod Failed restarts=3 main=3`,
		},
		{
			name: "container", status: 130, args: gates,
			pod: newPod(always, container("main"), container("other")),
			script: `
				main#1 running
				other#1 running
				> main 1
				> main 0
				> main 137
				> main 1
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
				main waits 4s
				# The curve of another container is its own.
				> other 1
				other#1 exited(1)
				other#2 running
				> interrupt
				other Killing: Stopping container other
				other#2 exited(143)
				pod PodFailed
				pod Failed restarts=0 main=3 other=1`,
		},
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
	c.expect(`
		... helper#1 running
		> main 99
		main#1 exited(99)
		pod PodRestarting: Container main exited with code 99, triggering pod restart
		proxy Killing: Stopping container proxy, the pod is being restarted
		logs Killing: Stopping container logs, the pod is being restarted
		helper Killing: Stopping container helper, the pod is being restarted
		| proxy#1 exited(137)
		| logs#1 exited(137)
		| helper#1 exited(137)
		setup#2 running
		setup#2 exited(0)
		proxy#2 running
		logs#2 running
		main#2 running
		helper#2 running
		# RestartPod, the action of the other rule, gives helper a grace period.
		> main 88
		main#2 exited(88)
		pod PodRestarting: Container main exited with code 88, triggering pod restart
		helper Killing: Stopping container helper, the pod is being restarted
		> interrupt`)
	c.signalUntilEnd(syscall.SIGINT)
	require.Equal(t, 130, c.wait())
	c.requireNoProcess()
}

func TestRunWithCurve(t *testing.T) {
	t.Parallel()
	c := startRun(t, newPod(onFailure, container("main")), "--curve", "300ms/1s", "-")
	c.expect(`
		main#1 running
		> main 1
		main#1 exited(1)
		main#2 running
		> main 1
		main#2 exited(1)
		... main waits 300ms
		main#3 running
		> main 0`)
	c.ends(exitSucceeded, `
		main#3 exited(0)
		pod PodSucceeded
		pod Succeeded restarts=0 main=2`)
}

// plan has the exit codes of run, also of a container that does not handle SIGTERM.
func TestPlanExitsAsRun(t *testing.T) {
	t.Parallel()
	for _, action := range []restartpod.Action{restartpod.ActionRestartPod, restartpod.ActionRestartAllContainers} {
		t.Run(string(action), func(t *testing.T) {
			t.Parallel()
			pod := withGrace(newPod(never, script("main", "exit 88", rule(v1.ContainerRestartRuleAction(action), v1.ContainerRestartRuleOnExitCodesOpIn, 88)), script("other", "exec sleep 1000")), 1)
			manifest, err := yaml.Marshal(pod)
			require.NoError(t, err)
			c := startRun(t, pod)
			var ran []string
			for len(ran) < 2 {
				if e, ok := c.event(); e.ExitCode != nil {
					ran = append(ran, fmt.Sprint(e.Container, " ", *e.ExitCode))
				} else {
					require.True(t, ok)
				}
			}
			c.signal(syscall.SIGKILL)
			c.wait()

			var stdout, stderr bytes.Buffer
			require.Equal(t, exitSucceeded, run([]string{"plan", "-o", "json", "--config", "testdata/run/kubelet.yaml", "--exit", "main=88@0s", "--exit", "other=runs", "--for", "3s", "-"}, bytes.NewReader(manifest), &stdout, &stderr), &stderr)
			var p plan.Plan
			require.NoError(t, json.Unmarshal(stdout.Bytes(), &p))
			var planned []string
			for _, e := range p.Entries {
				if e.ExitCode != nil && len(planned) < 2 {
					planned = append(planned, fmt.Sprint(e.Container, " ", *e.ExitCode))
				}
			}
			require.Equal(t, []string{"main 88", "other 137"}, ran)
			require.Equal(t, ran, planned)
		})
	}
}

// Without the gate the action does not exist: the pod is rejected, and nothing is
// started or written.
func TestRunGateOff(t *testing.T) {
	t.Parallel()
	c := startRun(t, newPod(never, container("main", restartPodOn88)), "--feature-gates", "RestartPodOnContainerExits=false", "-")
	c.expect("end")
	require.Equal(t, exitRefused, c.wait())
	require.Contains(t, c.errors(), "needs the feature gate RestartPodOnContainerExits")
	require.NoDirExists(t, c.root)
}
