// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// TestCrashloopRun runs pods with crashloop run, in the container runtime of a node
// without a kubelet. A kubelet would remove pods that it does not know, so these scenarios are
// not part of TestNode.
func TestCrashloopRun(t *testing.T) {
	if !*insideFlag || *crashloopFlag == "" {
		t.Skip("this needs root and the crashloop binary: make node-e2e")
	}
	n, err := theNode()
	require.NoError(t, err)
	t.Run("Pods", func(t *testing.T) {
		for _, s := range crashloopScenarios {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				s.report(t, &e2e{Node: n, ctx: n.Context(), pods: &recorder{}})
			})
		}
	})
	t.Run("Disruptions", func(t *testing.T) {
		for _, s := range crashloopDisruptions {
			t.Run(s.name, func(t *testing.T) { s.report(t, &e2e{Node: n, ctx: n.Context(), pods: &recorder{}}) })
		}
	})
}

var crashloopScenarios = []scenario{
	{"RestartsPod", func(t *testing.T, e *e2e) {
		p := e.newCrashloopPod(t, podSpec(
			[]v1.Container{container("init1", "exit=0"), sidecar("sidecar1", "")},
			triggering(container("main", "wait=go exit=42", "")), preStop(container("other", ""), 0)))
		p.start()
		p.event("other", 1, "start")
		before := p.listSandboxes()
		require.Len(t, before, 1)
		p.signal("go")
		p.started("other", 2)
		p.started("main", 2)
		p.assertOrder("main 1 exit:42", "other 1 pre-stop", "other 1 term", "sidecar1 1 term", "sidecar1 1 exit:143",
			"init1 2 start", "init1 2 exit:0", "sidecar1 2 start", "main 2 start")
		assert.Equal(t, before, p.listSandboxes(), "the sandbox")
		exit := p.told("the exit of main", func(e runEvent) bool { return e.Container == "main" && e.ExitCode != nil })
		assert.Equal(t, 42, *exit.ExitCode)
		assert.Equal(t, "Container main exited with code 42, triggering pod restart",
			p.told("the restart", func(e runEvent) bool { return e.Reason == "PodRestarting" }).Message)
		p.interrupt()
		p.assertOrder("other 2 term", "sidecar1 2 term")
		p.assertStarts(map[string]int{"init1": 2, "sidecar1": 2, "main": 2, "other": 2})
	}},
	{"BacksOff", func(t *testing.T, e *e2e) {
		spec := podSpec(nil, container("main", "exit=3"), container("other", ""))
		spec.RestartPolicy = v1.RestartPolicyAlways
		p := e.newCrashloopPod(t, spec)
		p.start()
		p.event("main", 4, "start")
		for restarts := range 3 {
			exit := p.told(fmt.Sprintf("exit %d", restarts), func(e runEvent) bool {
				return e.Container == "main" && e.ExitCode != nil && *e.RestartCount == restarts
			})
			assert.Equal(t, 3, *exit.ExitCode)
			assert.Equal(t, "Error", exit.Reason)
		}
		for n := 2; n <= 3; n++ {
			waited := p.event("main", n+1, "start") - p.event("main", n, "exit:3")
			assert.Greater(t, waited, 0.9, "seconds before start %d, of a back-off of 1 s", n+1)
		}
		p.told("the back-off", func(e runEvent) bool { return e.Container == "main" && e.Reason == "BackOff" })
		assert.Equal(t, 1, p.starts("other"))
		p.interrupt()
	}},
	{"CannotStart", func(t *testing.T, e *e2e) {
		bad := container("bad")
		bad.Command = []string{"/nothing"}
		missing := container("missing")
		missing.Image = "localhost/kubelet-backoff/missing:test"
		spec := podSpec(nil, bad, missing, container("main", ""))
		spec.RestartPolicy = v1.RestartPolicyAlways
		p := e.newCrashloopPod(t, spec)
		p.start()
		if e.crio() { // It looks for the program when it creates the container, and then there is none.
			p.tellings("the failures of bad", 2, func(e runEvent) bool {
				return e.Container == "bad" && e.Reason == "Failed" && strings.Contains(e.Message, "/nothing")
			})
		} else {
			for restarts := range 2 {
				exit := p.told("the exit of bad", func(e runEvent) bool {
					return e.Container == "bad" && e.ExitCode != nil && *e.RestartCount == restarts
				})
				assert.Equal(t, 128, *exit.ExitCode)
				assert.Equal(t, "StartError", exit.Reason)
				assert.Contains(t, exit.Message, `"/nothing"`)
			}
		}
		failed := p.told("the missing image", func(e runEvent) bool { return e.Container == "missing" && e.Reason == "Failed" })
		assert.Contains(t, failed.Message, "is not present with pull policy of Never")
		p.interrupt()
	}},
	{"Succeeds", func(t *testing.T, e *e2e) {
		p := e.newCrashloopPod(t, podSpec([]v1.Container{container("init1", "exit=0"), sidecar("sidecar1", "")}, container("main", "wait=go exit=0")))
		p.start()
		p.signal("go")
		p.ends(0)
		p.assertOrder("init1 1 exit:0", "sidecar1 1 start", "main 1 exit:0", "sidecar1 1 term")
	}},
	{"Fails", func(t *testing.T, e *e2e) {
		p := e.newCrashloopPod(t, podSpec(nil, container("main", "wait=go exit=7"), container("other", "exit=0")))
		p.start()
		p.signal("go")
		p.ends(1)
	}},
	{"StopsInOrder", func(t *testing.T, e *e2e) {
		p := e.newCrashloopPod(t, podSpec(
			[]v1.Container{sidecar("sidecar1", ""), sidecar("sidecar2", "linger=300ms")},
			container("main", "linger=300ms"), preStop(container("other", ""), 100*time.Millisecond)))
		p.start()
		p.started("main", 1)
		p.started("other", 1)
		p.interrupt()
		p.assertOrder("other 1 pre-stop", "other 1 pre-stop-end", "other 1 term", "sidecar2 1 term", "sidecar2 1 exit:143", "sidecar1 1 term")
		p.assertOrder("main 1 exit:143", "sidecar2 1 term")
	}},
	{"KilledIsAdopted", func(t *testing.T, e *e2e) {
		spec := podSpec([]v1.Container{container("init1", "exit=0"), sidecar("sidecar1", "")},
			container("main", "exit=3", "exit=3", "wait=go exit=4", ""), container("other", ""))
		spec.RestartPolicy = v1.RestartPolicyAlways
		p := e.newCrashloopPod(t, spec)
		p.start()
		p.started("main", 3)
		p.started("other", 1)
		before := p.running()
		p.kill()
		assert.Equal(t, before, p.running(), "what runs without the agent")
		p.start()
		p.signal("go")
		exit := p.told("the exit of main", func(e runEvent) bool { return e.Container == "main" && e.ExitCode != nil && *e.ExitCode == 4 })
		assert.Equal(t, 2, *exit.RestartCount)
		p.event("main", 4, "start")
		after := p.running()
		delete(before, "main")
		delete(after, "main")
		assert.Equal(t, before, after, "what went on")
		p.assertStarts(map[string]int{"init1": 1, "sidecar1": 1, "main": 4, "other": 1})
		p.interrupt()
	}},
	{"KilledWhileTheContainerExits", func(t *testing.T, e *e2e) {
		spec := podSpec(nil, container("main", "wait=go exit=5", ""), container("other", ""))
		spec.RestartPolicy = v1.RestartPolicyAlways
		p := e.newCrashloopPod(t, spec)
		p.start()
		p.started("other", 1)
		p.kill()
		p.signal("go")
		p.event("main", 1, "exit:5")
		p.start()
		p.event("main", 2, "start")
		p.assertStarts(map[string]int{"main": 2, "other": 1})
		p.interrupt()
	}},
	{"KilledAmidRestartOfPod", func(t *testing.T, e *e2e) {
		p := e.newCrashloopPod(t, podSpec(
			[]v1.Container{container("init1", "exit=0", "sleep=3s exit=0")},
			triggering(container("main", "wait=go exit=42", "")), preStop(container("other", ""), 2*time.Second)))
		p.start()
		p.started("other", 1)
		before := p.listSandboxes()
		// The time of the condition is exact only to a second. The new agents compare start
		// times with it to find the instances of the previous run.
		time.Sleep(time.Second)
		p.signal("go")
		p.event("other", 1, "pre-stop")
		p.kill()
		p.start()
		p.started("init1", 1)
		p.kill()
		p.start()
		p.event("main", 2, "start")
		p.event("other", 2, "start")
		assert.Equal(t, before, p.listSandboxes(), "the sandbox")
		p.interrupt()
		p.assertStarts(map[string]int{"init1": 2, "main": 2, "other": 2})
	}},
	{"AnotherManifest", func(t *testing.T, e *e2e) {
		p := e.newCrashloopPod(t, podSpec(nil, container("main", "")))
		p.start()
		p.started("main", 1)
		p.kill()
		old, before := p.volume, p.containers()
		require.Len(t, before, 2)
		p.write(podSpec(nil, container("changed", "")))
		require.NoError(t, os.Remove(filepath.Join(p.dir, "journal")))
		p.start()
		p.started("changed", 1)
		after := p.containers()
		assert.Len(t, after, 2, "a sandbox and a container")
		assert.NotSubset(t, after, before)
		assert.NoDirExists(t, old, "its volume")
		assert.NoFileExists(t, filepath.Join(filepath.Dir(filepath.Dir(old)), "status.json"))
		p.interrupt()
	}},
}

// crashloopDisruptions run one after another.
var crashloopDisruptions = []scenario{
	{"RuntimeRestartsMeanwhile", func(t *testing.T, e *e2e) {
		spec := podSpec([]v1.Container{container("init1", "exit=0"), sidecar("sidecar1", "")},
			triggering(container("main", "wait=go exit=42", "")), preStop(container("other", "wait=crash exit=6", ""), time.Second))
		spec.Containers[1].RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
		p := e.newCrashloopPod(t, spec)
		p.start()
		p.event("main", 1, "start")
		p.event("other", 1, "start")
		sandbox, before := p.listSandboxes(), p.running()
		e.RuntimeProcess.End()
		// containerd does not see the exit, so the exit code is lost.
		p.signal("crash")
		p.event("other", 1, "exit:6")
		require.NoError(t, e.RunRuntime())
		p.event("other", 2, "start")
		after := p.running()
		delete(before, "other")
		delete(after, "other")
		assert.Equal(t, before, after, "what went on")
		p.assertStarts(map[string]int{"init1": 1, "sidecar1": 1, "main": 1, "other": 2})

		p.signal("go")
		p.event("other", 2, "pre-stop")
		e.RuntimeProcess.End()
		require.NoError(t, e.RunRuntime())
		p.event("other", 3, "start")
		p.event("main", 2, "start")
		p.assertStarts(map[string]int{"init1": 2, "sidecar1": 2, "main": 2, "other": 3})
		assert.Equal(t, sandbox, p.listSandboxes(), "the sandbox")
		p.interrupt()
	}},
	{"ManyContainers", func(t *testing.T, e *e2e) {
		var all []v1.Container
		for i := range 150 {
			all = append(all, container(fmt.Sprintf("c%d", i), ""))
		}
		p := e.newCrashloopPod(t, podSpec(nil, all...))
		p.start()
		for _, c := range all {
			p.event(c.Name, 1, "start")
		}
		p.started(all[len(all)-1].Name, 1)
		require.NoError(t, p.agent.Process.Signal(syscall.SIGINT))
		// On a slow machine all of them together take longer than the limit of one wait.
		for _, c := range all {
			p.event(c.Name, 1, "exit:143")
		}
		p.ends(130)
	}},
	{"SandboxLost", func(t *testing.T, e *e2e) {
		spec := podSpec([]v1.Container{container("init1", "exit=0")}, container("main", ""))
		spec.RestartPolicy = v1.RestartPolicyAlways
		p := e.newCrashloopPod(t, spec)
		p.start()
		p.event("main", 1, "start")
		before := p.listSandboxes()
		require.Len(t, before, 1)
		p.killSandbox(before[0])
		p.event("main", 2, "start")
		p.assertOrder("init1 1 exit:0", "main 1 start", "init1 2 start", "init1 2 exit:0", "main 2 start")
		assert.NotEqual(t, before, p.listSandboxes())
		p.interrupt()
	}},
	{"Twins", crashloopTwins},
}
