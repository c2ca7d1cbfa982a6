// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
)

// The gates that restore upstream's behavior for RestartAllContainers, and for
// containers that the kubelet itself stopped.
const (
	gateRestartRules                = "ContainerRestartRules"
	gateRestartAllContainers        = "RestartAllContainersOnContainerExits"
	gateRestartAllContainersBackOff = "KubeletRestartAllContainersBackOff"
	gateStrictBackOff               = "KubeletStrictCrashLoopBackOff"
)

// gateDisruptions start the kubelet with gates switched off.
var gateDisruptions = []scenario{
	// A restart that has begun is completed, and the API shows that. Otherwise, containers
	// that are already stopped would never start again.
	{"GateOffInTermination", func(t *testing.T, e *e2e) {
		t.Cleanup(func() { e.restartKubelet(t) })
		disrupted(restart{}, at("other", 1, "pre-stop", time.Second), func(t *testing.T, e *e2e) {
			e.restartKubelet(t, harness.GateRestartPod)
		})(t, e)
	}},
	{"GateOffInBackOff", func(t *testing.T, e *e2e) {
		t.Cleanup(func() { e.restartKubelet(t) })
		const life = "after=other sleep=1s exit=42"
		p := e.create(t, podSpec(nil, triggering(container("main", life, life, life, life, "")), container("other", "")))
		p.inBackOff(3)
		e.restartKubelet(t, harness.GateRestartPod)
		p.event("main", 5, "start")
		after := p.latest("the end of the restart", func(now *v1.Pod) error {
			if c := conditionIn(now, p.condition()); c.Status != v1.ConditionFalse {
				return fmt.Errorf("the condition is %q", c.Status)
			}
			return nil
		})
		for _, name := range []string{"main", "other"} {
			assert.EqualValues(t, 4, statusOf(after, name).RestartCount, "restarts of %s", name)
		}
		p.assertStarts(map[string]int{"main": 5, "other": 5})
		p.assertOver()
		p.alwaysRunning()
	}},

	// This gate restores upstream's code for the restarts that upstream supports.
	{"RestartAllContainersAsUpstream", func(t *testing.T, e *e2e) {
		e.requireGate(t, gateRestartAllContainers)
		t.Cleanup(func() { e.restartKubelet(t) })
		e.Kubelet.Kill()
		e.startKubeletWith(t, slow, gateRestartAllContainersBackOff)
		const triggers = 4
		lives := strings.Fields(strings.Repeat("exit=42 ", triggers))
		t.Run("AllContainersDoNotWait", func(t *testing.T) {
			p := e.create(t, podSpec(nil, triggeringBy(container("main", append(lives, "")...), v1.ContainerRestartRuleActionRestartAllContainers), container("other", "")))
			p.event("main", triggers+1, "start")
			p.running()
			for _, d := range decisions(t, p.log(), p, "main") {
				assert.True(t, d.allowed, "main waited: %+v", d)
			}
			assert.Empty(t, p.podWaits(), "waits of the pod")
			for _, seen := range p.pods.of(p.name) {
				for _, s := range statuses(seen.pod) {
					if w := s.State.Waiting; w != nil {
						assert.NotEqual(t, "CrashLoopBackOff", w.Reason, "why %s waits", s.Name)
					}
				}
			}
			assert.Contains(t, p.conditions(v1.AllContainersRestarting, ""), "True RestartAllContainersStarted: container exited with restart policy rule")
			p.alwaysRunning()
		})
		t.Run("ThePodWaits", func(t *testing.T) {
			p := e.create(t, podSpec(nil, triggeringBy(container("main", "after=other exit=42", "after=other exit=42", ""), harness.ActionRestartPod), container("other", "")))
			p.event("main", 3, "start")
			assert.NotEmpty(t, p.assertPodCurve("main", 2, slow), "waits of the pod")
		})
	}},
	{"StrictBackOffOff", func(t *testing.T, e *e2e) {
		t.Cleanup(func() { e.restartKubelet(t) })
		e.Kubelet.Kill()
		e.startKubeletWith(t, slow, gateStrictBackOff)
		main := container("main", "")
		main.LivenessProbe = probe("alive")
		p := e.newPod(t)
		p.put("alive")
		failing := e.uncreatable(container("failing", ""))
		p.create(alwaysSpec(nil, main, failing))
		for k := range 3 {
			p.event("main", k+1, "start")
			// Upstream uses the time of the previous exit. If that is longer ago than any
			// delay, there is no delay.
			time.Sleep(slow.Maximum + 2*time.Second)
			p.remove("alive")
			p.event("main", k+1, "exit:143")
			p.put("alive")
			p.event("main", k+2, "start")
		}
		assert.Empty(t, messagesOf(p.backOffEvents("main")), "events of waits of main")
		for _, seen := range p.pods.of(p.name) {
			if w := statusOf(seen.pod, "main").State.Waiting; w != nil {
				assert.NotEqual(t, "CrashLoopBackOff", w.Reason, "why main waits")
			}
		}
		assert.Empty(t, decisions(t, p.log(), p, "main"), "decisions that are not upstream's")
		// Upstream retries to create the container in every sync, and the restarts of main
		// cause syncs.
		at, shortest := p.attempts("failing"), slow.Maximum
		for k := 1; k+1 < len(at); k++ {
			shortest = min(shortest, at[k+1].Sub(at[k]))
		}
		assert.Less(t, shortest, slow.Maximum, "the shortest time between two of %d attempts to create a container", len(at))
	}},
}

// staticDisruptions use static pods, which the kubelet reads from files.
var staticDisruptions = []scenario{
	// Only the API has the condition of a restart.
	{"KubeletKilledInStartupOfStaticPod", func(t *testing.T, e *e2e) {
		e.requireRulesOfStaticPods(t)
		spec := slowly()
		spec.InitContainers[1].Args[1] = "wait=end exit=0"
		p := e.createStatic(t, spec)
		before := p.running()
		p.signal("go")
		at("init1", 2, "start", 3*time.Second)(p)
		crashKubelet(t, e)
		// A kubelet that first sees the init container when it has ended removes its previous
		// instance, and does not know the last state from the API.
		p.awaitKubelet("the restart", func(now *v1.Pod) error {
			if s := statusOf(now, "init1"); s.State.Running == nil || s.LastTerminationState.Terminated == nil {
				return fmt.Errorf("init1: %+v", s)
			}
			return nil
		})
		p.put("end")
		p.once(restart{before: before, cause: "main"})
	}},
	{"StaticPodChangesItsRules", func(t *testing.T, e *e2e) {
		e.requireRulesOfStaticPods(t)
		spec := func(code int32) v1.PodSpec {
			main := container("main", "wait=go exit=42", "")
			return podSpec(nil, ruled(main, v1.ContainerRestartRuleAction(*actionFlag), v1.ContainerRestartRuleOnExitCodesOpIn, code), container("other", ""))
		}
		p := e.createStatic(t, spec(triggerExit-1))
		before := p.running()
		p.writeManifest(spec(triggerExit))
		p.awaitKubelet("the new rules", func(now *v1.Pod) error {
			if codes := now.Spec.Containers[0].RestartPolicyRules[0].ExitCodes.Values; codes[0] != triggerExit {
				return fmt.Errorf("the rule has exit codes %v", codes)
			}
			return nil
		})
		p.signal("go")
		p.restarted(restart{before: before, cause: "main"})
		p.assertStarts(map[string]int{"main": 2, "other": 2})
	}},
}
