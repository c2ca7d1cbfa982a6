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

	"github.com/kubelet-backoff/kubelet-backoff/test/node/node"
)

// persistCurve has the delays 0, 1, 2, 4, 8, 16, 32 and 60 s. The long ones are longer
// than the outage of a kubelet or a node.
var persistCurve = node.Curve{Reduced: true, Maximum: time.Minute}

// The annotations with which the kubelet stores the back-off for later kubelets.
const (
	containerAnnotation = "io.kubernetes.container.restartBackOff"
	podAnnotation       = "io.kubernetes.pod.restartBackOff"
)

// clockError is the tolerance, in seconds, for times of one clock in different processes.
// The actor records its exit before it exits, so a restart never seems early otherwise.
const clockError = 0.01

// punctual is the maximum lateness of a restart in seconds, from the end of its delay or
// the start of the kubelet, whichever is later.
const punctual = 2.0

// relist returns the additional lateness, in seconds, of a restart of a whole pod. A kubelet
// before v1.36 does not relist single pods, so it notices up to a second later that all
// containers have stopped.
func (e *e2e) relist(t *testing.T) float64 {
	if e.before(t, 36) {
		return 1
	}
	return 0
}

// persistScenarios kill the kubelet while containers or pods wait. They check that the
// next kubelet continues: no start is early or late, and the next delay is the next one
// of the curve.
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
		var away outages
		different := 0
		for i := range 10 {
			waiting := e.allWait(t, pods, "main")
			node.Progress("kill %d: the pods wait for restarts %v", i+1, waiting)
			slices.Sort(waiting)
			if len(slices.Compact(waiting)) == len(pods) {
				different++
			}
			away.crash(t, e, persistCurve, []time.Duration{0, time.Second, 4 * time.Second}[i%3])
			// The kubelet writes the statuses that it finds.
			time.Sleep(2 * time.Second)
		}
		assert.GreaterOrEqual(t, different, 3, "how often each pod was at another step of the curve")
		for _, p := range pods {
			n := p.starts("main")
			p.startingWithin("main", n+1, persistCurve.Delay(n-1)+patience)
			p.assertCurve("main", persistCurve, away)
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
		node.Progress("reboot: the pods wait for restarts %v", waiting)
		var away outages
		away.add(func() {
			require.NoError(t, e.Reboot())
			e.startKubeletWith(t, persistCurve)
		})
		away[0].to++ // The pods need new sandboxes.
		healthy.starting("main", 2)
		assert.Less(t, healthy.times("main", 2, "start")[0]-away[0].to, punctual, "seconds from the kubelet to the container that had been running")
		for i, p := range []*pod{first, second} {
			// The pod's pending restart and the next one.
			p.startingWithin("main", waiting[i]+2, persistCurve.Delay(waiting[i]-1)+persistCurve.Delay(waiting[i])+patience)
			p.assertCurve("main", persistCurve, away)
			p.assertKeepsWaiting("main", persistCurve)
			p.alwaysRunning()
		}
		assert.Equal(t, 2, healthy.starts("main"), "starts of the container that had been running")
		healthy.alwaysRunning()
	}},

	{"RestartPod", func(t *testing.T, e *e2e) {
		c := node.Curve{Reduced: true, Maximum: 16 * time.Second}
		e.useCurve(t, c)
		p := e.create(t, podSpec([]v1.Container{container("init1", "sleep=3s exit=0")},
			triggering(container("main", "wait=go exit=42")), container("other", "linger=3s")))
		p.running()
		var away outages
		// In each phase, the kubelet is killed in the n-th run of the pod, or in the restart
		// that ends this run.
		phases := []struct {
			name string
			kill func(n int)
		}{
			{"Running", func(n int) {
				away.add(func() {
					e.Kubelet.Kill()
					lateInASecond()
					p.put("go")
					p.event("main", n, "exit:42")
					time.Sleep(time.Second)
					e.startKubeletWith(t, c)
				})
			}},
			{"TerminatingForRestart", func(n int) {
				lateInASecond()
				p.put("go")
				p.event("other", n, "term")
				time.Sleep(time.Second)
				away.crash(t, e, c, 0)
			}},
			{"Startup", func(n int) {
				lateInASecond()
				p.put("go")
				p.startingWithin("init1", n+1, c.Delay(n-1)+patience)
				time.Sleep(time.Second)
				away.crash(t, e, c, 0)
			}},
			{"back-off", func(n int) {
				lateInASecond()
				p.put("go")
				p.event("other", n, "exit:143")
				p.inBackOff(int32(n - 1))
				away.crash(t, e, c, time.Second)
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
			exit, stopped := p.times("main", n, "exit:42")[0], p.times("other", n, "exit:143")
			what := fmt.Sprintf("restart %d, the kubelet killed in %s", n, phase.name)
			require.Len(t, stopped, 1, "%s: ends of other", what)
			start, due := p.times("init1", n+1, "start")[0], exit+c.Delay(k).Seconds()
			node.Progress("%s: after %.2f s, delay %v", what, start-exit, c.Delay(k))
			assert.GreaterOrEqual(t, start-exit, c.Delay(k).Seconds()-clockError, "%s: seconds that it waited", what)
			assert.GreaterOrEqual(t, start, stopped[0], "%s: the start and the end of the run before", what)
			assert.Less(t, start-away.until(max(due, stopped[0])), punctual+1, "%s: seconds that it was late, after %.2f s with a delay of %v", what, start-exit, c.Delay(k))
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
		var away outages
		become := func(kubelet string) (up float64) {
			away.add(func() {
				e.Kubelet.Kill()
				e.Spec.Kubelet = kubelet
				e.startKubeletWith(t, persistCurve)
			})
			return away[len(away)-1].to
		}
		become(*stockFlag)
		p := e.create(t, alwaysSpec(nil, container("main", "exit=3"), container("other", "")))
		// The stock kubelet is up to 15 s late each time.
		p.startingWithin("main", 5, 2*patience)
		// It also reports waits late.
		time.Sleep(time.Second)
		p.assertNotAnnotated("main", containerAnnotation)

		log := e.kubeletLog(t)
		up := become(ours)
		p.starting("main", 6)
		assert.Less(t, p.times("main", 6, "start")[0]-up, punctual, "seconds from our kubelet to the start, which is a first one for it")
		// The next delays are 1, 2 and 4 s, then 8 s. The stock kubelet does not know them.
		p.starting("main", 9)
		for k := 1; k < 4; k++ {
			took := p.times("main", k+6, "start")[0] - p.times("main", k+5, "exit:3")[0]
			assert.GreaterOrEqual(t, took, persistCurve.Delay(k).Seconds()-clockError, "seconds before restart %d of ours", k+1)
			assert.Less(t, took, persistCurve.Delay(k).Seconds()+punctual, "seconds before restart %d of ours", k+1)
		}
		e.allWait(t, []*pod{p}, "main")
		p.assertAnnotated("main", containerAnnotation, "", 4)
		assert.Empty(t, errorsOf(log(), p), "errors of our kubelet")

		log = e.kubeletLog(t)
		up = become(*stockFlag)
		p.starting("main", 10)
		assert.Less(t, p.times("main", 10, "start")[0]-up, punctual+1, "seconds from the release's kubelet to the start")
		// The first delays of the stock kubelet's curve are 0 and 1 s.
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
	require.NoError(p.t, node.Await(p.ctx, "an instance of "+name, patience, func(context.Context) error {
		if instances = p.instances(runtime, name); len(instances) == 0 {
			return errors.New("there is none")
		}
		return nil
	}))
	return instances[0].Annotations
}
