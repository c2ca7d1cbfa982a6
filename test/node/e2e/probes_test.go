// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
)

// probeScenarios restart pods with completed containers, which have no probes until they
// run again.
var probeScenarios = []scenario{
	{"CompletedContainersAreProbedAfterRestartPod", func(t *testing.T, e *e2e) {
		e.requireGate(t, harness.GateRestartPod)
		probedAgain(t, e, harness.ActionRestartPod)
	}},
	{"CompletedContainersAreProbedAfterRestartAllContainers", func(t *testing.T, e *e2e) {
		e.requireGate(t, gateRestartAllContainers)
		probedAgain(t, e, v1.ContainerRestartRuleActionRestartAllContainers)
	}},

	// The exit ends the probe or the hook too, so the kubelet stops a container that has
	// ended by itself. The rule applies.
	{"ExitsInLivenessProbe", func(t *testing.T, e *e2e) {
		for _, action := range e.requireActions(t) {
			main := container("main", "wait=go exit=42", "")
			main.RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
			main = triggeringBy(main, action)
			main.LivenessProbe = &v1.Probe{
				ProbeHandler:  v1.ProbeHandler{Exec: noting("probe", time.Hour).Exec},
				PeriodSeconds: 1, FailureThreshold: 1, TimeoutSeconds: 3600,
			}
			// The runtime manager stops a pod if no container would run after the failure.
			alone := main
			alone.RestartPolicy = ptr.To(v1.ContainerRestartPolicyNever)
			var pods []*pod
			for n := range 5 { // The exit is seen before the failure, or after it.
				pods = append(pods, e.create(t, alwaysSpec(nil, main, container("other", "")), string(action), fmt.Sprint(n)),
					e.create(t, podSpec(nil, alone), string(action), "alone", fmt.Sprint(n)))
			}
			for _, p := range pods {
				before := p.running()
				p.event("main", 1, "probe")
				p.signal("go")
				p.restarted(restart{before: before, cause: "main", action: action})
			}
		}
	}},
	{"ExitsInPostStartHook", func(t *testing.T, e *e2e) {
		for _, action := range e.requireActions(t) {
			main := triggeringBy(container("main", "exit=42", ""), action)
			main.Lifecycle = &v1.Lifecycle{PostStart: noting("post-start", 3*time.Second)}
			p := e.create(t, alwaysSpec(nil, container("other", ""), main), string(action))
			p.event("main", 2, "post-start-end")
			p.latest("the end of the restart", func(now *v1.Pod) error {
				if c := conditionIn(now, conditionOf(action)); c.Status != v1.ConditionFalse || statusOf(now, "main").State.Running == nil {
					return fmt.Errorf("condition %+v, main %+v", c, statusOf(now, "main").State)
				}
				return nil
			})
			p.occurred("FailedPostStartHook", 1)
			p.assertStarts(map[string]int{"other": 2, "main": 2})
		}
	}},
}

// probeDisruptions kill the kubelet after a liveness probe has failed. The next kubelet
// must know that the exit was not the container's own, and it must not take a later one
// for the same.
var probeDisruptions = []scenario{
	{"KubeletKilledInBackOffAfterProbe", func(t *testing.T, e *e2e) {
		// The third restart waits for longer than it takes to start a kubelet.
		c := harness.Curve{Maximum: 20 * time.Second}
		const kills = 3
		e.useCurve(t, c)
		pods := e.createProbed(t, "", "", "", "wait=go exit=42", "")
		for n := 1; n <= kills; n++ {
			for _, p := range pods {
				p.event("main", n, "start")
				p.remove("alive")
			}
			for _, p := range pods {
				p.event("main", n, "exit:143")
				p.put("alive")
			}
		}
		for _, p := range pods {
			e.allWait(t, []*pod{p.pod}, "main")
		}
		e.crash(t, c, time.Second)
		for _, p := range pods {
			p.event("main", kills+1, "start")
			p.assertCurve("main", c)
			p.assertRestartedAlone(kills)
			p.restartsByItself()
		}
	}},
	{"ContainerEndsWithoutKubeletAfterProbe", func(t *testing.T, e *e2e) {
		pods := e.killedAfterProbe(t)
		for _, p := range pods {
			p.put("end")
			p.event("main", 1, "exit:143")
		}
		e.startKubelet(t)
		for _, p := range pods {
			p.assertRestartedAlone(1)
			p.restartsByItself()
		}
	}},
	{"ContainerEndsWithNextKubeletAfterProbe", func(t *testing.T, e *e2e) {
		pods := e.killedAfterProbe(t)
		e.startKubelet(t)
		for _, p := range pods {
			p.awaitKubelet("the running container", func(now *v1.Pod) error {
				if s := statusOf(now, "main"); s.State.Running == nil {
					return fmt.Errorf("main: %+v", s)
				}
				return nil
			})
			p.put("end")
			p.assertRestartedAlone(1)
			p.restartsByItself()
		}
	}},
}

// probedPod is a pod whose container main has a liveness probe. Every exit code of main
// except 0 restarts the pod.
type probedPod struct {
	*pod
	action v1.ContainerRestartRuleAction
	// first is the pod when it ran first.
	first *v1.Pod
}

// createProbed creates a pod for each action, and returns when they run. Their containers
// main have the given lives.
func (e *e2e) createProbed(t *testing.T, lives ...string) (pods []*probedPod) {
	for _, action := range e.requireActions(t) {
		main := container("main", lives...)
		main.RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
		main = ruled(main, action, v1.ContainerRestartRuleOnExitCodesOpNotIn, 0)
		main.LivenessProbe = probe("alive")
		p := e.newPod(t, string(action))
		p.put("alive")
		p.create(withGrace(int64(patience.Seconds()), podSpec([]v1.Container{sidecar("sidecar1", "")}, main, container("other", ""))))
		pods = append(pods, &probedPod{p, action, nil})
	}
	for _, p := range pods {
		p.first = p.running()
		// A SIGTERM before that would be lost.
		p.event("sidecar1", 1, "start")
		p.event("main", 1, "start")
		p.event("other", 1, "start")
	}
	return pods
}

// killedAfterProbe creates pods, and kills the kubelet when it has sent SIGTERM to their
// containers main because of a failed probe. These end when their pod has the file end.
func (e *e2e) killedAfterProbe(t *testing.T) []*probedPod {
	pods := e.createProbed(t, "hold=end", "wait=go exit=42", "")
	for _, p := range pods {
		p.remove("alive")
	}
	for _, p := range pods {
		p.event("main", 1, "term")
	}
	e.Kubelet.Kill()
	for _, p := range pods {
		p.put("alive")
	}
	return pods
}

// assertRestartedAlone waits for restarts of main, and checks that nothing else of the pod
// restarted.
func (p *probedPod) assertRestartedAlone(restarts int32) {
	p.t.Helper()
	now := p.runsAgain("main", restarts)
	for _, name := range []string{"sidecar1", "other"} {
		assert.Equal(p.t, statusOf(p.first, name).ContainerID, statusOf(now, name).ContainerID, "pod %s: container ID of %s", p.name, name)
	}
	p.assertStarts(map[string]int{"sidecar1": 1, "main": int(restarts) + 1, "other": 1})
	p.assertNotRestarted()
}

// restartsByItself checks that the rule of main still applies to an exit of its own.
func (p *probedPod) restartsByItself() {
	p.t.Helper()
	before := p.running()
	p.signal("go")
	p.restarted(restart{before: before, cause: "main", action: p.action})
}

// probedAgain checks all probes of containers that have completed and that a restart of
// the pod has started again. The prober of a startup probe does not end with the
// container, and upstream up to v1.36 adds no prober after one that it has.
func probedAgain(t *testing.T, e *e2e, action v1.ContainerRestartRuleAction) {
	never := container("never", "wait=end-never exit=0", "")
	never.RestartPolicy = ptr.To(v1.ContainerRestartPolicyNever)
	never.StartupProbe = probe("up")
	never.StartupProbe.FailureThreshold = 600
	retried := container("retried", "wait=end-retried exit=0", "")
	retried.RestartPolicy = ptr.To(v1.ContainerRestartPolicyOnFailure)
	for _, c := range []*v1.Container{&never, &retried} {
		c.ReadinessProbe, c.LivenessProbe = probe("ready"), probe("alive")
		// A probe that is under way when the container ends fails.
		c.LivenessProbe.FailureThreshold = 3
	}
	p := e.newPod(t)
	for _, file := range []string{"up", "ready", "alive"} {
		p.put(file)
	}
	p.create(podSpec(nil, never, retried, triggeringBy(container("main", "wait=go exit=42", ""), action)))
	both := func(what string, is func(v1.ContainerStatus) bool) *v1.Pod {
		return p.latest(what, func(now *v1.Pod) error {
			for _, name := range []string{"never", "retried"} {
				if s := statusOf(now, name); !is(s) {
					return fmt.Errorf("%s: %+v", name, s)
				}
			}
			return nil
		})
	}
	ready := func(s v1.ContainerStatus) bool { return s.Ready }
	both("the readiness", ready)
	p.put("end-never")
	p.put("end-retried")
	before := both("the ends", func(s v1.ContainerStatus) bool { return s.State.Terminated != nil })
	for _, name := range []string{"never", "retried"} {
		p.awaitUnprobed(name)
	}

	p.remove("up")
	p.remove("ready")
	failures := p.probeFailures()
	// failed waits for the next failure of a probe. Until then, no instance that the restart
	// started may have had what the probe is for.
	failed := func(name, kind string, has func(v1.ContainerStatus) bool) {
		t.Helper()
		require.NoError(t, harness.Await(e.ctx, fmt.Sprintf("a failed %s probe of %s", kind, name), patience, func(context.Context) error {
			for _, seen := range p.pods.of(p.name) {
				if s := statusOf(seen.pod, name); s.ContainerID != "" && s.ContainerID != statusOf(before, name).ContainerID {
					require.False(t, has(s), "%s before its %s probe has succeeded: %+v", name, kind, s)
				}
			}
			if probe := name + " " + kind; p.probeFailures()[probe] <= failures[probe] {
				return errors.New("there is none")
			}
			return nil
		}))
	}
	p.signal("go")
	failed("retried", "Readiness", ready)
	failed("never", "Startup", func(s v1.ContainerStatus) bool { return s.Ready || ptr.Deref(s.Started, false) })
	p.put("up")
	p.restarted(restart{before: before, cause: "main", action: action})
	failed("never", "Readiness", ready)
	p.put("ready")
	both("the readiness after the restart", ready)

	p.remove("alive")
	p.event("never", 2, "exit:143")
	p.event("retried", 2, "exit:143")
	p.put("alive")
	p.event("retried", 3, "start")
	p.assertStarts(map[string]int{"main": 2, "never": 2, "retried": 3})
}

// awaitUnprobed waits until the probers of an ended container have seen that it does not
// run.
func (p *pod) awaitUnprobed(name string) {
	p.t.Helper()
	const probers = 2
	require.NoError(p.t, harness.Await(p.ctx, "the end of the probes of "+name, patience, func(context.Context) error {
		if seen := changes(p.log(), notRunningLine, p, name); len(seen) < probers {
			return fmt.Errorf("%d lines of the log say so", len(seen))
		}
		return nil
	}))
}

// probeFailures returns how often a probe has failed, for each "container kind". It reads the log, because
// the kubelet sends only 25 events of a pod, and then one in five minutes.
func (p *pod) probeFailures() map[string]int {
	p.t.Helper()
	failures := map[string]int{}
	for _, m := range probeFailedLine.FindAllStringSubmatch(p.log(), -1) {
		if m[2] == string(p.uid) {
			failures[m[3]+" "+m[1]]++
		}
	}
	return failures
}
