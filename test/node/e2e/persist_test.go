// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
)

// persistCurve has the delays 0, 1, 2, 4, 8, 16, 32 and 60 s. The long ones are longer
// than the outage of a kubelet or a node.
var persistCurve = harness.Curve{Reduced: true, Maximum: time.Minute}

// The annotations with which the kubelet stores the back-off for later kubelets.
const (
	containerAnnotation = "io.kubernetes.container.restartBackOff"
	podAnnotation       = "io.kubernetes.pod.restartBackOff"
)

// persistScenarios kill the kubelet while containers or pods wait. They check that the
// next kubelet continues: it decides that no start is due earlier or later, and the next
// delay is the next one of the curve.
var persistScenarios = []scenario{
	{"SIGKILL", func(t *testing.T, e *e2e) {
		e.useCurve(t, persistCurve)
		var pods []*pod
		for i := range 3 {
			if i > 0 {
				pods[i-1].starting("main", 6)
			}
			pods = append(pods, e.create(t, alwaysSpec(nil, container("main", "exit=3"), container("other", "")), fmt.Sprint(i)))
		}
		pods[2].starting("main", 4)
		different := 0
		for i := range 10 {
			waiting := e.allWait(t, pods, "main")
			harness.Progress("kill %d: the pods wait for restarts %v", i+1, waiting)
			slices.Sort(waiting)
			if len(slices.Compact(waiting)) == len(pods) {
				different++
			}
			e.crash(t, persistCurve, []time.Duration{0, time.Second, 4 * time.Second}[i%3])
			// The kubelet writes the statuses that it finds.
			time.Sleep(2 * time.Second)
		}
		assert.GreaterOrEqual(t, different, 3, "how often each pod was at another step of the curve")
		for _, p := range pods {
			n := p.starts("main")
			p.startingWithin("main", n+1, persistCurve.Delay(n-1)+patience)
			p.assertCurve("main", persistCurve)
			p.assertKeepsWaiting("main", persistCurve)
			p.assertAnnotated("main", containerAnnotation, "", p.starts("main")-1)
			p.assertStarts(map[string]int{"other": 1})
			p.assertNotAnnotated("other", containerAnnotation)
			p.alwaysRunning()
		}
	}},

	{"KilledInStart", killedInStart},

	// No container runs after a reboot. For a container that was running, this is its first
	// restart, which has no delay.
	{"Reboot", func(t *testing.T, e *e2e) {
		e.useCurve(t, persistCurve)
		healthy := e.create(t, alwaysSpec(nil, container("main", "")), "healthy")
		first := e.create(t, alwaysSpec(nil, container("main", "exit=3")), "first")
		first.starting("main", 3)
		second := e.create(t, alwaysSpec(nil, container("main", "exit=3")), "second")
		first.starting("main", 6)
		waiting := e.allWait(t, []*pod{first, second}, "main")
		harness.Progress("reboot: the pods wait for restarts %v", waiting)
		log := e.kubeletLog(t)
		require.NoError(t, e.Reboot())
		e.startKubeletWith(t, persistCurve)
		healthy.starting("main", 2)
		for _, d := range decisions(t, log(), healthy, "main") {
			assert.True(t, d.allowed, "the container that had been running waited: %+v", d)
		}
		for i, p := range []*pod{first, second} {
			if n := waiting[i]; e.crio() {
				// It has removed the containers, which have the back-off: the curve begins again.
				p.startingWithin("main", n+3, persistCurve.Delay(1)+patience)
				p.assertWaited("main", n+2, persistCurve.Delay(1))
				p.alwaysRunning()
				continue
			}
			// The pod's pending restart and the next one.
			p.startingWithin("main", waiting[i]+2, persistCurve.Delay(waiting[i]-1)+persistCurve.Delay(waiting[i])+patience)
			p.assertCurve("main", persistCurve)
			p.assertKeepsWaiting("main", persistCurve)
			p.alwaysRunning()
		}
		assert.Equal(t, 2, healthy.starts("main"), "starts of the container that had been running")
		healthy.alwaysRunning()
	}},

	{"RestartPod", func(t *testing.T, e *e2e) {
		c := harness.Curve{Reduced: true, Maximum: 16 * time.Second}
		e.useCurve(t, c)
		p := e.create(t, podSpec([]v1.Container{container("init1", "sleep=3s exit=0")},
			triggering(container("main", "wait=go exit=42")), container("other", "linger=3s")))
		p.running()
		// In each phase, the kubelet is killed in the n-th run of the pod, or in the restart
		// that ends this run.
		phases := []struct {
			name string
			kill func(n int)
		}{
			{"Running", func(n int) {
				e.Kubelet.Kill()
				lateInASecond()
				p.put("go")
				p.event("main", n, "exit:42")
				time.Sleep(time.Second)
				e.startKubeletWith(t, c)
			}},
			{"TerminatingForRestart", func(n int) {
				lateInASecond()
				p.put("go")
				p.event("other", n, "term")
				time.Sleep(time.Second)
				e.crash(t, c, 0)
			}},
			{"Startup", func(n int) {
				lateInASecond()
				p.put("go")
				p.startingWithin("init1", n+1, c.Delay(n-1)+patience)
				time.Sleep(time.Second)
				e.crash(t, c, 0)
			}},
			{"back-off", func(n int) {
				lateInASecond()
				p.put("go")
				p.event("other", n, "exit:143")
				p.inBackOff(int32(n - 1))
				e.crash(t, c, time.Second)
			}},
		}
		p.sandboxes = p.listSandboxes()
		// Each phase occurs twice. A pod waits only if its delay is longer than the time in
		// which other stops and the kubelet sees that.
		order := []int{0, 1, 2, 0, 3, 1, 2, 3}
		for k, i := range order {
			n, phase := k+1, phases[i]
			phase.kill(n)
			p.startingWithin("main", n+1, c.Delay(k)+patience)
			what := fmt.Sprintf("restart %d, the kubelet killed in %s", n, phase.name)
			require.Len(t, p.times("other", n, "exit:143"), 1, "%s: ends of other", what)
			exit, start := p.exited("main", n), p.instance("init1", n+1, false).created
			harness.Progress("%s: after %.2f s, delay %v", what, start.Sub(exit).Seconds(), c.Delay(k))
			assert.GreaterOrEqual(t, start.Sub(exit), c.Delay(k), "%s: how long it waited", what)
			assert.True(t, start.After(p.exited("other", n)), "%s: the run before had not ended", what)
			p.latest("the end of restart "+fmt.Sprint(n), func(now *v1.Pod) error {
				if c := conditionIn(now, p.condition()); c.Status != v1.ConditionFalse {
					return fmt.Errorf("the condition is %q", c.Status)
				}
				for _, s := range statuses(now) {
					if int(s.RestartCount) != n || (s.State.Running == nil && s.Name != "init1") {
						return fmt.Errorf("%s: %+v", s.Name, s)
					}
				}
				return nil
			})
			// The kubelet recognizes a restart by times in the API, which are exact only to a
			// second.
			time.Sleep(1500 * time.Millisecond)
			p.assertStarts(map[string]int{"init1": n + 1, "main": n + 1, "other": n + 1})
			for _, name := range []string{"init1", "main", "other"} {
				p.assertAnnotated(name, podAnnotation, "pod/"+string(p.uid), n)
			}
			require.False(t, t.Failed(), "after restart %d", n)
		}
		waits := p.assertPodCurve("main", len(order), c)
		assert.NotZero(t, waits[c.Maximum], "how often the pod waited for the maximum; waits: %v", waits)
		p.assertKeepsWaiting("main", c)
		assert.Equal(t, p.sandboxes, p.listSandboxes(), "the pod's sandboxes")
		assert.Len(t, p.conditions(p.condition(), ""), 2*len(order), "states of the condition: True and False in each restart")
		p.assertOver()
		p.alwaysRunning()
	}},

	// The stock kubelet does not store or read the back-off.
	{"Upgrade", func(t *testing.T, e *e2e) {
		if *stockFlag == "" {
			t.Skip("this needs the kubelet of the release: STOCK_KUBELET=FILE make node-e2e, or make node-timing before")
		}
		ours := e.Spec.Kubelet
		t.Cleanup(func() {
			e.Kubelet.Kill()
			e.Spec.Kubelet = ours
			e.startKubelet(t)
		})
		become := func(kubelet string) {
			e.Kubelet.Kill()
			e.Spec.Kubelet = kubelet
			e.startKubeletWith(t, persistCurve)
		}
		become(*stockFlag)
		p := e.create(t, alwaysSpec(nil, container("main", "exit=3"), container("other", "")))
		// The stock kubelet is up to 15 s late each time.
		p.startingWithin("main", 5, 2*patience)
		// It also reports waits late.
		time.Sleep(time.Second)
		p.assertNotAnnotated("main", containerAnnotation)

		log := e.kubeletLog(t)
		become(ours)
		// The delays are 0, 1, 2 and 4 s, then 8 s: the stock kubelet does not know them, so
		// these are the first restarts for ours.
		p.starting("main", 9)
		first := p.allowed("main")[0]
		assert.Zero(t, first.delay, "the delay of the first restart of ours: %+v", first)
		for k := 1; k < 4; k++ {
			p.assertWaited("main", k+5, persistCurve.Delay(k))
			d := p.allowed("main")[k]
			assert.Equal(t, persistCurve.Delay(k), d.delay, "the delay of restart %d of ours", k+1)
			assert.WithinDuration(t, p.exited("main", k+5).Add(d.delay), d.retryAt, time.Millisecond, "when restart %d of ours was due", k+1)
		}
		e.allWait(t, []*pod{p}, "main")
		p.assertAnnotated("main", containerAnnotation, "", 4)
		assert.Empty(t, errorsOf(log(), p), "errors of our kubelet")

		log = e.kubeletLog(t)
		become(*stockFlag)
		p.starting("main", 11)
		for line := range strings.Lines(log()) {
			assert.NotContains(t, line, "restartBackOff", "the release's kubelet")
		}
		p.assertStarts(map[string]int{"other": 1})
		p.alwaysRunning()
	}},
}

// restartBackOff is the content of an annotation.
type restartBackOff struct {
	Key      string `json:"key"`
	Attempts int    `json:"attempts"`
}

// assertAnnotated checks the annotation of the newest instance of a container. With an
// empty key it accepts every key that is not empty.
func (p *pod) assertAnnotated(name, annotation, key string, attempts int) {
	p.t.Helper()
	var noted restartBackOff
	text := p.newestInstance(name)[annotation]
	if !assert.NoError(p.t, json.Unmarshal([]byte(text), &noted), "pod %s: annotation %s of %s, which is %q", p.name, annotation, name, text) {
		return
	}
	assert.Equal(p.t, attempts, noted.Attempts, "pod %s: attempts in the annotation %s of %s", p.name, annotation, name)
	assert.NotEmpty(p.t, noted.Key, "pod %s: key in the annotation %s of %s", p.name, annotation, name)
	if key != "" {
		assert.Equal(p.t, key, noted.Key, "pod %s: key in the annotation %s of %s", p.name, annotation, name)
	}
}

func (p *pod) assertNotAnnotated(name, annotation string) {
	p.t.Helper()
	assert.NotContains(p.t, p.newestInstance(name), annotation, "pod %s: annotations of %s", p.name, name)
}

// newestInstance returns the annotations of the newest instance of a container in
// containerd.
func (p *pod) newestInstance(name string) map[string]string {
	p.t.Helper()
	runtime := p.runtime()
	var instances []*runtimeapi.Container
	require.NoError(p.t, harness.Await(p.ctx, "an instance of "+name, patience, func(context.Context) error {
		if instances = p.instances(runtime, name); len(instances) == 0 {
			return errors.New("there is none")
		}
		return nil
	}))
	return instances[0].Annotations
}
