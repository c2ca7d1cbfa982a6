// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// podScenarios need only a node that runs pods, so they can run in parallel.
var podScenarios = []scenario{
	// KEP-5532, "e2e tests".
	{"RegularContainerTriggers", func(t *testing.T, e *e2e) {
		p := e.create(t, podSpec(
			[]v1.Container{container("init1", "exit=0"), sidecar("sidecar1", ""), container("init2", "exit=0"), sidecar("sidecar2", "")},
			triggering(container("main", "wait=go exit=42", "")), container("other", "")))
		before := p.running()
		p.signal("go")
		p.restarted(restart{before: before, cause: "main"})
		p.assertOrder("init1 2 start", "init1 2 exit:0", "sidecar1 2 start", "init2 2 start", "init2 2 exit:0", "sidecar2 2 start", "main 2 start")
		p.assertStarts(map[string]int{"init1": 2, "sidecar1": 2, "init2": 2, "sidecar2": 2, "main": 2, "other": 2})
	}},
	{"SidecarTriggers", func(t *testing.T, e *e2e) {
		p := e.create(t, podSpec(
			[]v1.Container{container("init1", "exit=0"), triggering(sidecar("sidecar1", "wait=go exit=42", "")), sidecar("sidecar2", "")},
			container("main", "")))
		before := p.running()
		p.signal("go")
		p.restarted(restart{before: before, cause: "sidecar1"})
		p.assertStarts(map[string]int{"init1": 2, "sidecar1": 2, "sidecar2": 2, "main": 2})
	}},
	{"FirstInitContainerTriggers", func(t *testing.T, e *e2e) {
		p := e.create(t, podSpec(
			[]v1.Container{triggering(container("init1", "wait=go exit=42", "exit=0")), container("init2", "exit=0")},
			container("main", "")))
		before := p.runs("init1")
		p.signal("go")
		p.restarted(restart{before: before, cause: "init1"})
		p.assertStarts(map[string]int{"init1": 2, "init2": 1, "main": 1})
	}},
	{"SecondInitContainerTriggers", func(t *testing.T, e *e2e) {
		p := e.create(t, podSpec(
			[]v1.Container{container("init1", "exit=0"), sidecar("sidecar1", ""), triggering(container("init2", "wait=go exit=42", "exit=0"))},
			container("main", "")))
		before := p.runs("init2")
		p.signal("go")
		p.restarted(restart{before: before, cause: "init2"})
		p.assertStarts(map[string]int{"init1": 2, "sidecar1": 2, "init2": 2, "main": 1})
	}},
	{"SidecarTriggersBeforeRegularContainers", func(t *testing.T, e *e2e) {
		p := e.create(t, podSpec(
			[]v1.Container{triggering(sidecar("sidecar1", "wait=go exit=42", "")), container("init1", "", "exit=0")},
			container("main", "")))
		before := p.runs("init1")
		p.signal("go")
		p.restarted(restart{before: before, cause: "sidecar1"})
		p.assertStarts(map[string]int{"sidecar1": 2, "init1": 2, "main": 1})
	}},
	{"InitContainerFailsAfterRestartPolicyNever", func(t *testing.T, e *e2e) {
		p := e.create(t, podSpec(
			[]v1.Container{container("init1", "exit=0", "exit=1")},
			triggering(container("main", "wait=go exit=42")), container("other", "")))
		p.running()
		p.signal("go")
		failed := p.latest("the failure", func(now *v1.Pod) error {
			if now.Status.Phase != v1.PodFailed {
				return fmt.Errorf("the phase is %s", now.Status.Phase)
			}
			return nil
		})
		assert.Equal(t, v1.ConditionFalse, conditionIn(failed, p.condition()).Status, "the condition")
		p.assertStarts(map[string]int{"init1": 2, "main": 1, "other": 1})
	}},
	{"InitContainerFailsAfterRestartPolicyAlways", func(t *testing.T, e *e2e) {
		p := e.create(t, alwaysSpec(
			[]v1.Container{container("init1", "exit=0", "exit=1", "exit=1", "exit=0")},
			triggering(container("main", "wait=go exit=42", ""))))
		before := p.running()
		p.signal("go")
		after := p.latest("the end of the restart", func(now *v1.Pod) error {
			if c := conditionIn(now, p.condition()); c.Status != v1.ConditionFalse {
				return fmt.Errorf("the condition is %q", c.Status)
			}
			if s := statusOf(now, "main"); s.State.Running == nil || s.RestartCount == 0 {
				return fmt.Errorf("main: %+v", s)
			}
			return nil
		})
		assert.Len(t, p.conditions(p.condition(), before.ResourceVersion), 2, "states of the condition: True until the pod has started, then False")
		assert.EqualValues(t, 3, statusOf(after, "init1").RestartCount, "restarts of init1")
		assert.EqualValues(t, 1, statusOf(after, "main").RestartCount, "restarts of main")
		p.assertStarts(map[string]int{"init1": 4, "main": 2})
		p.alwaysRunning()
	}},
	{"CompletedContainersRestart", func(t *testing.T, e *e2e) {
		once := container("once", "exit=0", "")
		once.RestartPolicy = ptr.To(v1.ContainerRestartPolicyOnFailure)
		p := e.create(t, podSpec(nil, triggering(container("main", "wait=go exit=42", "")), once, container("failed", "exit=3", "")))
		before := p.latest("the ends of once and failed", func(now *v1.Pod) error {
			for _, name := range []string{"once", "failed"} {
				if s := statusOf(now, name); s.State.Terminated == nil {
					return fmt.Errorf("%s has not ended", name)
				}
			}
			return nil
		})
		p.signal("go")
		after := p.restarted(restart{before: before, cause: "main"})
		assert.EqualValues(t, 0, statusOf(after, "once").LastTerminationState.Terminated.ExitCode)
		assert.EqualValues(t, 3, statusOf(after, "failed").LastTerminationState.Terminated.ExitCode)
	}},
	{"EphemeralContainerIsNotRestarted", func(t *testing.T, e *e2e) {
		p := e.create(t, podSpec(nil, triggering(container("main", "wait=go exit=42", ""))))
		p.debug(p.running(), container("debugger", "exit=7"))
		before := p.latest("the end of the ephemeral container", func(now *v1.Pod) error {
			if s := now.Status.EphemeralContainerStatuses; len(s) == 0 || s[0].State.Terminated == nil {
				return errors.New("it has not ended")
			}
			return nil
		})
		p.signal("go")
		p.restarted(restart{before: before, cause: "main"})
		p.assertStarts(map[string]int{"main": 2, "debugger": 1})
	}},

	{"DebuggedInBackOff", func(t *testing.T, e *e2e) {
		p := e.create(t, podSpec([]v1.Container{container("init1", "exit=0")}, triggering(container("main", "after=other exit=42")), container("other", "")))
		before := p.inBackOff(3)
		// A busy kubelet may see the new container only after the wait.
		const tries = 5
		inWait := false
		for i := 0; i < tries && !inWait; i++ {
			name := fmt.Sprint("debugger", i)
			before = p.debug(before, container(name, "exit=0"))
			p.event(name, 1, "exit:0")
			created, runs := p.instance(name, 1, false).created, 0
			for p.instance("init1", runs+1, false).created.Before(created) {
				runs++
			}
			inWait = p.exited("main", runs).Before(created) && p.exited("other", runs).Before(created)
			p.event("main", runs+1, "exit:42")
			p.assertStarts(map[string]int{name: 1})
		}
		assert.True(t, inWait, "one of %d ephemeral containers was created while nothing of the pod ran", tries)
	}},

	// How containers are stopped.
	{"GracefulInOrder", func(t *testing.T, e *e2e) {
		p := e.create(t, withGrace(60, podSpec(
			[]v1.Container{
				preStop(sidecar("sidecar1", "linger=300ms"), 300*time.Millisecond),
				preStop(sidecar("sidecar2", "linger=300ms"), 300*time.Millisecond),
			},
			preStop(triggering(container("main", "wait=go exit=42", "")), time.Second),
			preStop(container("other", "linger=1s term=5"), time.Second))))
		before := p.running()
		p.signal("go")
		after := p.restarted(restart{before: before, cause: "main"})
		p.assertOrder("main 1 exit:42",
			"other 1 pre-stop", "other 1 pre-stop-end", "other 1 term", "other 1 exit:5",
			"sidecar2 1 pre-stop", "sidecar2 1 pre-stop-end", "sidecar2 1 term", "sidecar2 1 exit:143",
			"sidecar1 1 pre-stop", "sidecar1 1 pre-stop-end", "sidecar1 1 term", "sidecar1 1 exit:143",
			"sidecar1 2 start", "sidecar2 2 start", "main 2 start")
		assert.Empty(t, p.times("main", 1, "pre-stop"), "preStop of the container that had ended")
		assert.EqualValues(t, 5, statusOf(after, "other").LastTerminationState.Terminated.ExitCode, "exit code of other")
	}},
	{"SIGKILLAfterGracePeriod", func(t *testing.T, e *e2e) {
		p := e.create(t, withGrace(hookGrace, podSpec([]v1.Container{sidecar("sidecar1", "")},
			triggering(container("main", "wait=go exit=42", "")),
			preStop(container("other", "term=ignore"), time.Second))))
		before := p.running()
		p.signal("go")
		after := p.restarted(restart{before: before, cause: "main"})
		p.assertOrder("main 1 exit:42", "other 1 pre-stop", "other 1 pre-stop-end", "other 1 term", "other 1 alive", "other 2 start")
		assert.EqualValues(t, 137, statusOf(after, "other").LastTerminationState.Terminated.ExitCode, "exit code of other")
		if grace := p.grace("other"); assert.Len(t, grace, 1, "grace periods of other") {
			left, err := strconv.ParseInt(grace[0], 10, 64)
			require.NoError(t, err)
			assert.Less(t, left, hookGrace, "the grace period of other after its hook, which takes a second")
			assert.GreaterOrEqual(t, left, int64(2), "the grace period of other after its hook, of which 2 s is the minimum")
		}
		assert.GreaterOrEqual(t, p.exited("other", 1).Sub(p.exited("main", 1)), time.Duration(hookGrace)*time.Second, "from the trigger to SIGKILL of a container that ignores SIGTERM")
		assert.EqualValues(t, 143, statusOf(after, "sidecar1").LastTerminationState.Terminated.ExitCode, "exit code of sidecar1")
		alive := p.times("other", 1, "alive")
		assert.GreaterOrEqual(t, p.times("sidecar1", 1, "term")[0], alive[len(alive)-1], "sidecar1 got SIGTERM while other ran")
	}},
	{"PreStopHangs", func(t *testing.T, e *e2e) {
		p := e.create(t, withGrace(hookGrace, podSpec(nil,
			triggering(container("main", "wait=go exit=42", "")),
			preStop(container("other", ""), time.Hour))))
		before := p.running()
		p.signal("go")
		p.restarted(restart{before: before, cause: "main"})
		p.assertOrder("main 1 exit:42", "other 1 pre-stop", "other 1 term", "other 1 exit:143", "other 2 start")
		waited := p.times("other", 1, "term")[0] - p.times("main", 1, "exit:42")[0]
		assert.GreaterOrEqual(t, waited, float64(hookGrace), "seconds from the trigger to SIGTERM after a preStop hook that hangs")
		assert.Regexp(t, fmt.Sprintf(`"PreStop hook not completed in grace period" .*podUID=%q .*gracePeriod=%d\b`, p.uid, hookGrace), p.log())
		assert.Equal(t, []string{"2"}, p.grace("other"), "the grace period of other after its hook, which is the minimum")
	}},
	{"RestartAllContainersKillsAtOnce", func(t *testing.T, e *e2e) {
		e.requireGate(t, gateRestartAllContainers)
		p := e.create(t, podSpec(
			[]v1.Container{preStop(sidecar("sidecar1", "linger=5s"), time.Second)},
			triggeringBy(container("main", "wait=go exit=42", ""), v1.ContainerRestartRuleActionRestartAllContainers),
			preStop(container("other", "linger=5s"), time.Second)))
		before := p.running()
		p.signal("go")
		after := p.restarted(restart{before: before, cause: "main", action: v1.ContainerRestartRuleActionRestartAllContainers})
		never := []string{"pre-stop", "term"}
		if e.crio() { // It sends SIGTERM, and SIGKILL immediately after it.
			never = never[:1]
		}
		for _, e := range p.journal() {
			assert.NotContains(t, never, e.Event, "event of %s", e.Container)
		}
		for _, name := range []string{"sidecar1", "other"} {
			assert.EqualValues(t, 137, statusOf(after, name).LastTerminationState.Terminated.ExitCode, "exit code of %s", name)
		}
	}},

	// Probes and hooks.
	{"StartupProbeEndsTheRestart", func(t *testing.T, e *e2e) {
		main := triggering(container("main", "wait=go exit=42", ""))
		main.StartupProbe = probe("up")
		main.StartupProbe.FailureThreshold = 60
		main.Lifecycle = &v1.Lifecycle{PostStart: noting("post-start", 0)}
		p := e.create(t, podSpec(nil, main, container("other", "")))
		p.signal("up")
		before := p.latest("the readiness", func(now *v1.Pod) error {
			if !statusOf(now, "main").Ready {
				return errors.New("main is not ready")
			}
			return nil
		})
		p.remove("up")
		p.signal("go")
		p.event("main", 2, "post-start")
		time.Sleep(3 * time.Second)
		assert.Equal(t, v1.ConditionTrue, conditionIn(p.running(), p.condition()).Status, "the condition before the startup probe has succeeded")
		p.signal("up")
		p.restarted(restart{before: before, cause: "main"})
		ready := []v1.ConditionStatus{}
		for _, s := range p.pods.of(p.name) {
			for _, c := range s.pod.Status.Conditions {
				if c.Type == v1.PodReady {
					ready = append(ready, c.Status)
				}
			}
		}
		assert.Equal(t, []v1.ConditionStatus{"False", "True", "False", "True"}, slices.Compact(ready), "the history of the condition Ready")
	}},

	// The back-off.
	{"TenTriggersFollowTheCurve", func(t *testing.T, e *e2e) {
		const triggers = 10
		p := e.create(t, podSpec([]v1.Container{sidecar("sidecar1", "")},
			triggering(container("main", append(slices.Repeat([]string{"exit=42"}, triggers), "")...))))
		for k := range triggers {
			p.startingWithin("main", k+2, curve(k)+patience)
		}
		after := p.latest("the end of the last restart", func(now *v1.Pod) error {
			if c := conditionIn(now, p.condition()); c.Status != v1.ConditionFalse || statusOf(now, "main").RestartCount != triggers {
				return fmt.Errorf("the condition is %q", c.Status)
			}
			return nil
		})
		assert.EqualValues(t, triggers, statusOf(after, "sidecar1").RestartCount, "restarts of sidecar1")
		p.assertStarts(map[string]int{"main": triggers + 1, "sidecar1": triggers + 1})
		p.alwaysRunning()
		waits := p.assertPodCurve("main", triggers, usual)
		assert.NotZero(t, waits[usual.Maximum], "how often the pod waited for the maximum; waits: %v", waits)
		p.assertAnnotated("main", podAnnotation, "pod/"+string(p.uid), triggers)
		messages := map[string]bool{}
		for _, s := range p.pods.of(p.name) {
			for _, c := range statuses(s.pod) {
				if w := c.State.Waiting; w != nil && w.Reason == "CrashLoopBackOff" {
					messages[w.Message] = true
					assert.Contains(t, w.Message, "main", "the message of %s in back-off names the container that was the trigger", c.Name)
				}
			}
		}
		assert.Condition(t, func() bool {
			for m := range messages {
				if strings.Contains(m, usual.Maximum.String()) {
					return true
				}
			}
			return false
		}, "no waiting container said that the back-off is %v, but: %v", usual.Maximum, messages)
	}},

	// Deletion, at every point.
	{"DeletedAtTheTrigger", func(t *testing.T, e *e2e) {
		p := e.create(t, deletable())
		p.running()
		// A running container may not have written its start yet.
		p.event("other", 1, "start")
		p.signal("go")
		p.event("main", 1, "exit:42")
		p.deletedForGood()
	}},
	{"DeletedInTermination", func(t *testing.T, e *e2e) {
		p := e.create(t, deletable())
		p.running()
		p.signal("go")
		p.event("other", 1, "term")
		p.deletedForGood()
	}},
	{"DeletedInBackOff", func(t *testing.T, e *e2e) {
		p := e.create(t, podSpec(nil, triggering(container("main", "after=other exit=42")), container("other", "")))
		p.event("main", 4, "exit:42")
		p.await("the back-off", patience, func(now *v1.Pod) error {
			if w := statusOf(now, "main").State.Waiting; w == nil || w.Reason != "CrashLoopBackOff" || statusOf(now, "main").RestartCount < 3 {
				return errors.New("main does not wait")
			}
			return nil
		})
		p.deletedForGood()
	}},
	{"DeletedInStartup", func(t *testing.T, e *e2e) {
		spec := deletable()
		spec.InitContainers = []v1.Container{container("init1", "exit=0", "")}
		p := e.create(t, spec)
		p.running()
		p.signal("go")
		p.event("init1", 2, "start")
		p.deletedForGood()
	}},

	{"JobCompletes", func(t *testing.T, e *e2e) {
		p := e.createJob(t, nil, podSpec(
			[]v1.Container{container("init1", "exit=0"), sidecar("sidecar1", "")},
			triggering(container("main", "exit=42", "exit=42", "exit=0"))))
		p.awaitJob("the completion", func(job *batchv1.Job) bool { return job.Status.Succeeded == 1 })
		pods := p.podsOfJob()
		assert.Len(t, pods, 1, "pods of the job")
		p.assertStarts(map[string]int{"init1": 3, "sidecar1": 3, "main": 3})
		for i := range pods {
			assert.EqualValues(t, 2, statusOf(&pods[i], "main").RestartCount, "restarts of main")
		}
	}},
}

// deletable returns a pod that takes three seconds to stop, within its grace period.
func deletable() v1.PodSpec {
	spec := podSpec(nil, triggering(container("main", "wait=go exit=42", "")), container("other", "linger=3s"))
	spec.TerminationGracePeriodSeconds = ptr.To(int64(30))
	return spec
}

// debug adds an ephemeral container to the pod, and returns the pod with it.
func (p *pod) debug(now *v1.Pod, c v1.Container) *v1.Pod {
	now = now.DeepCopy()
	// The status may have changed, but nobody else changes the spec.
	now.ResourceVersion = ""
	now.Spec.EphemeralContainers = append(now.Spec.EphemeralContainers, v1.EphemeralContainer{EphemeralContainerCommon: v1.EphemeralContainerCommon{
		Name: c.Name, Image: c.Image, ImagePullPolicy: c.ImagePullPolicy, Args: c.Args, Env: c.Env, VolumeMounts: c.VolumeMounts,
	}})
	now, err := p.kube.CoreV1().Pods(now.Namespace).UpdateEphemeralContainers(p.ctx, now.Name, now, metav1.UpdateOptions{})
	require.NoError(p.t, err)
	return now
}

// deletedForGood deletes the pod and checks that none of its containers starts again.
func (p *pod) deletedForGood() { p.deletedWithStarts(0) }

// deletedWithStarts is deletedForGood for a pod with up to underWay starts in progress.
func (p *pod) deletedWithStarts(underWay int) {
	p.t.Helper()
	const grace = 6
	starts := func() (n int) {
		for _, e := range p.journal() {
			if e.Event == "start" {
				n++
			}
		}
		return n
	}
	sandboxes := p.listSandboxes()
	require.Len(p.t, sandboxes, 1, "sandboxes")
	network := p.networkOf(sandboxes[0])
	p.delete(grace)
	before := starts()
	p.gone()
	assert.LessOrEqual(p.t, starts(), before+underWay, "containers that had been started when the pod was gone")
	p.assertReleased(sandboxes[0], network)
}

// runs waits until a container runs, and returns the pod.
func (p *pod) runs(name string) *v1.Pod {
	p.t.Helper()
	return p.latest("the running container "+name, func(now *v1.Pod) error {
		if s := statusOf(now, name); s.State.Running == nil {
			return fmt.Errorf("%s does not run: %+v", name, s.State)
		}
		return nil
	})
}

// runsAgain waits until a container runs after a number of restarts, and returns the pod.
func (p *pod) runsAgain(name string, restarts int32) *v1.Pod {
	p.t.Helper()
	return p.latest(fmt.Sprintf("restart %d of %s", restarts, name), func(now *v1.Pod) error {
		if s := statusOf(now, name); s.RestartCount != restarts || s.State.Running == nil {
			return fmt.Errorf("%s: %+v", name, s)
		}
		return nil
	})
}

// condition returns the condition's type for the action under test.
func (p *pod) condition() v1.PodConditionType {
	return conditionOf(v1.ContainerRestartRuleAction(*actionFlag))
}
