// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
)

// slowly returns the spec of a pod whose restart is slow enough to be disturbed in
// every part: other's preStop hook and its exit take 2 s each, then those of sidecar1
// 1.5 s each, then init1 takes 6 s, which is longer than the one-second precision of
// times in the API.
func slowly() v1.PodSpec {
	spec := podSpec(
		[]v1.Container{preStop(sidecar("sidecar1", "linger=1500ms"), 1500*time.Millisecond), container("init1", "exit=0", "sleep=6s exit=0")},
		triggering(container("main", "wait=go exit=42", "")),
		preStop(container("other", "linger=2s"), 2*time.Second))
	spec.TerminationGracePeriodSeconds = ptr.To(int64(60))
	return spec
}

// disrupted returns a scenario that triggers a restart of a slow pod, disturbs the node
// at the given moment, and checks that the pod restarts exactly once.
func disrupted(r restart, moment func(*pod), disturb func(*testing.T, *e2e)) func(*testing.T, *e2e) {
	return func(t *testing.T, e *e2e) {
		p := e.create(t, slowly())
		r := r
		r.before, r.cause = p.running(), "main"
		p.signal("go")
		moment(p)
		disturb(t, e)
		p.once(r)
	}
}

// once checks that the pod restarts, and then does not restart again.
func (p *pod) once(r restart) {
	after := p.restarted(r)
	time.Sleep(4 * time.Second)
	history := p.pods.of(p.name)
	now := history[len(history)-1].pod
	for _, s := range statuses(after) {
		assert.Equal(p.t, s.ContainerID, statusOf(now, s.Name).ContainerID, "%s was restarted once more", s.Name)
	}
	p.assertStarts(map[string]int{"sidecar1": 2, "init1": 2, "main": 2, "other": 2})
}

// at returns a moment for disrupted: some time after an event of the n-th instance of a
// container.
func at(name string, n int, event string, later time.Duration) func(*pod) {
	return func(p *pod) {
		p.event(name, n, event)
		time.Sleep(later)
	}
}

func crashKubelet(t *testing.T, e *e2e) {
	e.Kubelet.Kill()
	time.Sleep(time.Second)
	e.startKubelet(t)
}

// disruptions stop parts of the node, so each of them runs without other scenarios.
var disruptions = []scenario{
	// The kubelet is killed: in Running,
	{"KubeletKilledBeforeTrigger", func(t *testing.T, e *e2e) {
		p := e.create(t, slowly())
		before := p.running()
		e.Kubelet.Kill()
		p.signal("go")
		p.event("main", 1, "exit:42")
		e.startKubelet(t)
		p.once(restart{before: before, cause: "main"})
	}},
	// at six points of TerminatingForRestart,
	{"KubeletKilledAtTrigger", disrupted(restart{}, at("main", 1, "exit:42", 0), crashKubelet)},
	{"KubeletKilledInPreStop", disrupted(restart{}, at("other", 1, "pre-stop", time.Second), crashKubelet)},
	{"KubeletKilledAfterSIGTERM", disrupted(restart{}, at("other", 1, "term", time.Second), crashKubelet)},
	{"KubeletKilledBetweenContainers", disrupted(restart{}, at("other", 1, "exit:143", 0), crashKubelet)},
	{"KubeletKilledInPreStopOfSidecar", disrupted(restart{}, at("sidecar1", 1, "pre-stop", time.Second), crashKubelet)},
	{"KubeletKilledWhenAllHaveStopped", disrupted(restart{}, at("sidecar1", 1, "exit:143", 0), crashKubelet)},
	{"KubeletKilledInBackOff", func(t *testing.T, e *e2e) {
		const crash = "after=other sleep=1s exit=42"
		p := e.create(t, podSpec(nil, triggering(container("main", crash, crash, crash, "after=other sleep=2s exit=42", "")), container("other", "")))
		before := p.inBackOff(3)
		crashKubelet(t, e)
		p.event("main", 5, "start")
		after := p.running()
		for _, name := range []string{"main", "other"} {
			assert.EqualValues(t, statusOf(before, name).RestartCount+1, statusOf(after, name).RestartCount, "restarts of %s", name)
		}
		time.Sleep(4 * time.Second)
		p.assertStarts(map[string]int{"main": 5, "other": 5})
		p.alwaysRunning()
	}},
	// in Startup,
	{"KubeletKilledInStartup", disrupted(restart{}, at("init1", 2, "start", 3*time.Second), crashKubelet)},
	// and in Running again.
	{"KubeletKilledAfterRestart", func(t *testing.T, e *e2e) {
		p := e.create(t, slowly())
		r := restart{before: p.running(), cause: "main"}
		p.signal("go")
		p.restarted(r)
		crashKubelet(t, e)
		p.once(r)
	}},

	{"RuntimeRestarts", disrupted(restart{}, at("other", 1, "pre-stop", time.Second), func(t *testing.T, e *e2e) {
		e.RuntimeProcess.Kill()
		time.Sleep(3 * time.Second)
		require.NoError(t, e.RunRuntime())
	})},
	{"APIServerIsDown", func(t *testing.T, e *e2e) {
		p := e.create(t, slowly())
		before := p.running()
		// The kubelet's watches would take up to half a minute to reconnect, and the kubelet
		// would not see the next scenario's pod.
		t.Cleanup(func() { crashKubelet(t, e) })
		e.api.Kill()
		p.signal("go")
		p.event("main", 2, "start")
		time.Sleep(2 * time.Second)
		require.NoError(t, e.Serve(e.api))
		e.pods.record(e.ctx, e.kube)
		p.once(restart{before: before, cause: "main", unseen: true})
	}},
	{"NodeRebootsInTermination", func(t *testing.T, e *e2e) {
		p := e.create(t, slowly())
		before := p.running()
		p.signal("go")
		p.event("other", 1, "term")
		e.reboot(t)
		p.restarted(restart{before: before, cause: "main", newSandbox: true})
		p.assertStarts(map[string]int{"sidecar1": 2, "init1": 2, "main": 2, "other": 2})
	}},
	{"NodeRebootsInStartup", func(t *testing.T, e *e2e) {
		p := e.create(t, slowly())
		p.running()
		p.signal("go")
		p.event("init1", 2, "start")
		time.Sleep(2 * time.Second)
		e.reboot(t)
		p.event("main", 2, "start")
		p.running()
		p.latest("the end of the restart", func(now *v1.Pod) error {
			if c := conditionIn(now, p.condition()); c.Status != v1.ConditionFalse {
				return fmt.Errorf("the condition is %q", c.Status)
			}
			return nil
		})
		p.assertStarts(map[string]int{"sidecar1": 3, "init1": 3, "main": 2, "other": 2})
		p.alwaysRunning()
	}},

	// The API server may be rolled back before the nodes. Pods that it has stored still
	// restart, and it accepts their statuses.
	{"GateOffInAPIServer", func(t *testing.T, e *e2e) {
		p := e.create(t, slowly())
		before := p.running()
		usual := e.api.Args
		t.Cleanup(func() {
			e.restartAPIServer(t, usual)
			crashKubelet(t, e)
		})
		e.restartAPIServer(t, slices.DeleteFunc(slices.Clone(usual), func(arg string) bool {
			return strings.HasPrefix(arg, "--feature-gates=")
		}))
		p.signal("go")
		p.once(restart{before: before, cause: "main"})
	}},
	{"GateOffAndOnAgain", func(t *testing.T, e *e2e) {
		e.restartKubelet(t, harness.GateRestartPod)
		main := triggering(sidecar("main", "wait=go exit=42", "wait=go exit=42", ""))
		p := e.create(t, podSpec(nil, main, container("other", "")))
		p.running()
		p.signal("go")
		p.event("main", 2, "start")
		time.Sleep(4 * time.Second)
		before := p.running()
		p.assertStarts(map[string]int{"main": 2, "other": 1})
		assert.Empty(t, p.conditions(p.condition(), ""), "history of the condition")

		e.restartKubelet(t)
		time.Sleep(4 * time.Second)
		p.assertStarts(map[string]int{"main": 2, "other": 1})
		p.signal("go")
		p.restarted(restart{before: before, cause: "main"})
		p.assertStarts(map[string]int{"main": 3, "other": 2})
	}},

	// A run of ten minutes resets the back-off. This kubelet has a shorter period, so that
	// a test can wait for it.
	{"LongRunResetsTheCurve", func(t *testing.T, e *e2e) {
		e.Kubelet.Kill()
		usual := e.Spec.Kubelet
		e.Spec.Kubelet = *shortResetFlag
		e.startKubelet(t)
		t.Cleanup(func() {
			e.Kubelet.Kill()
			e.Spec.Kubelet = usual
			e.startKubelet(t)
		})
		long := fmt.Sprintf("sleep=%v exit=42", shortReset+2*time.Second)
		p := e.create(t, podSpec(nil, triggering(container("main", "exit=42", "exit=42", "exit=42", long, "exit=42", ""))))
		p.event("main", 6, "start")
		var delays time.Duration
		for i, k := range []int{0, 1, 2, 0, 1} {
			p.assertWaited("main", i+1, curve(k))
			delays += curve(k)
		}
		// This kubelet has restarted no other pod.
		h := e.scrape(t).histogram(t, metricDelay, "pod")
		assert.EqualValues(t, 5, h.GetSampleCount(), "restarts of the pod")
		assert.InDelta(t, delays.Seconds(), h.GetSampleSum(), 0.001, "seconds of delay of the pod")
	}},

	// The kubelet treats pods as crashloop run does.
	{"TwinsOfCrashloopRun", kubeletTwins},
}
