// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubelet-backoff/kubelet-backoff/asked"
	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
)

// gateRestartAt is the gate of the patch restartat, which SERIES=all applies.
const gateRestartAt = "KubeletRestartAtAnnotation"

// askedCurve has the delays 0, 10, 20, 40 and 60 s.
var askedCurve = harness.Curve{Maximum: time.Minute}

// honorRestartAt starts the kubelet with the gate.
func (e *e2e) honorRestartAt(t *testing.T) {
	e.requireGate(t, gateRestartAt)
	e.useCurve(t, askedCurve, "--feature-gates="+gateRestartAt+"=true")
}

// annotate sets an annotation of the pod.
func (p *pod) annotate(name, value string) {
	p.t.Helper()
	require.NoError(p.t, p.change(name, value))
}

// change returns the error of the API server.
func (p *pod) change(name, value string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{name: value}}})
	require.NoError(p.t, err)
	_, err = p.kube.CoreV1().Pods(metav1.NamespaceDefault).Patch(p.ctx, p.name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

func (p *pod) restartAt(at time.Time) {
	p.t.Helper()
	p.annotate(asked.RestartAtAnnotation, at.UTC().Format(time.RFC3339Nano))
}

// waited returns how long the restart number n of a container waited.
func (p *pod) waited(name string, n int) time.Duration {
	p.t.Helper()
	return p.instance(name, n+1, false).created.Sub(p.exited(name, n))
}

// occurred waits until the pod has had n events with a reason.
func (p *pod) occurred(reason string, n int32) {
	p.t.Helper()
	require.NoError(p.t, harness.Await(p.ctx, fmt.Sprintf("%d events %s of pod %s", n, reason, p.name), patience, func(context.Context) error {
		if seen := p.occurrences(reason); seen != n {
			return fmt.Errorf("there were %d", seen)
		}
		return nil
	}))
}

// askedDisruptions are about what pods ask for by annotation.
var askedDisruptions = []scenario{
	{"RestartAt", func(t *testing.T, e *e2e) {
		e.honorRestartAt(t)
		p := e.create(t, alwaysSpec(nil, container("main", "exit=3"), container("other", "")))
		p.waitsFor("main", 3)
		// Neither an invalid value nor a time before the exit ends the wait.
		p.annotate(asked.RestartAtAnnotation, "now")
		p.occurred(asked.EventInvalidAnnotation, 1)
		p.restartAt(p.exited("main", 4).Add(-time.Second))
		p.annotate(asked.RestartAtPrefix+"other", time.Now().UTC().Format(time.RFC3339Nano))
		time.Sleep(2 * time.Second)
		require.Equal(t, 4, p.starts("main"))

		p.restartAt(time.Now())
		p.starting("main", 5)
		assert.Less(t, p.waited("main", 4), askedCurve.Delay(3), "the wait that was ended")
		p.occurred(asked.EventBackOffEnded, 1)
		// The curve starts over, also for a kubelet that starts later, and the time has
		// counted.
		p.waitsFor("main", 4)
		e.crash(t, askedCurve, 0)
		p.starting("main", 6)
		p.assertWaited("main", 5, askedCurve.Delay(1))
		p.waitsFor("main", 5)
		p.startingWithin("main", 7, askedCurve.Delay(2)+patience)
		p.assertWaited("main", 6, askedCurve.Delay(2))
		p.assertStarts(map[string]int{"other": 1})
		p.alwaysRunning()

		// A time to come counts when it has come, and for the kubelet that runs then. The
		// annotation of the container is the one that counts.
		p.waitsFor("main", 6)
		at := time.Now().Add(15 * time.Second)
		p.annotate(asked.RestartAtPrefix+"main", at.UTC().Format(time.RFC3339Nano))
		e.crash(t, askedCurve, time.Second)
		p.starting("main", 8)
		assert.WithinRange(t, p.instance("main", 8, false).created, at, p.exited("main", 7).Add(askedCurve.Delay(3)))

		// Without the gate, nothing ends a wait.
		e.kubeletArgs = nil
		p.waitsFor("main", 7)
		e.crash(t, askedCurve, 0)
		p.restartAt(time.Now())
		p.startingWithin("main", 9, askedCurve.Delay(1)+patience)
		p.assertWaited("main", 8, askedCurve.Delay(1))
	}},

	{"RestartAtOfPod", func(t *testing.T, e *e2e) {
		actions := e.requireActions(t)
		e.honorRestartAt(t)
		const life = "after=other sleep=1s exit=42"
		p := e.create(t, podSpec(nil, triggeringBy(container("main", life, life, life, life, life, ""), actions[0]), container("other", "")))
		p.waitsFor("other", 2)
		p.restartAt(time.Now())
		p.starting("other", 4)
		assert.Less(t, p.waited("main", 3), askedCurve.Delay(2), "the wait that was ended")
		p.occurred(asked.EventBackOffEnded, 1)
		p.waitsFor("other", 3)
		e.crash(t, askedCurve, 0)
		p.starting("other", 5)
		p.assertWaited("main", 4, askedCurve.Delay(1))
	}},

	// A pod that asks all the time gets one restart in ten seconds. The first request starts the
	// curve over, so one more may come by itself.
	{"RestartAtAllTheTime", func(t *testing.T, e *e2e) {
		e.honorRestartAt(t)
		p := e.create(t, alwaysSpec(nil, container("main", "exit=3")))
		p.waitsFor("main", 2)
		before, begin := p.starts("main"), time.Now()
		for time.Since(begin) < 45*time.Second {
			p.restartAt(time.Now())
			time.Sleep(20 * time.Millisecond)
		}
		starts := p.starts("main") - before
		assert.LessOrEqual(t, starts, int(time.Since(begin)/asked.RestartAtInterval)+2)
		assert.Greater(t, starts, 2)
		require.Positive(t, p.occurrences(asked.EventRestartRefused))
		// Nothing else has suffered.
		other := e.create(t, alwaysSpec(nil, container("main", "")), "other")
		other.running()
	}},

	{"RestartAtOfStaticPod", func(t *testing.T, e *e2e) {
		e.honorRestartAt(t)
		spec := alwaysSpec(nil, container("main", "exit=3"))
		p := e.createStatic(t, spec)
		p.waitsFor("main", 3)
		// The annotation of the mirror pod has no effect.
		p.restartAt(time.Now())
		time.Sleep(2 * time.Second)
		require.Equal(t, 4, p.starts("main"))
		p.annotations = map[string]string{asked.RestartAtAnnotation: time.Now().UTC().Format(time.RFC3339Nano)}
		p.writeManifest(spec)
		p.starting("main", 5)
		assert.Less(t, p.waited("main", 4), askedCurve.Delay(3), "the wait that was ended")
	}},

	{"RestartAtByPlugin", func(t *testing.T, e *e2e) {
		if *crashloopFlag == "" {
			skip(t, "there is no -crashloop")
		}
		e.requireGate(t, gateRestartAt)
		k := e.newPlugin(t)
		e.honorRestartAt(t)
		p := e.create(t, alwaysSpec(nil, container("main", "exit=3")))
		p.waitsFor("main", 3)
		k.fails("nobody", `cannot get resource "pods"`, "restart", p.name)
		k.fails("operator", "has no container \"mian\"", "restart", p.name, "-c", "mian")
		assert.Regexp(t, `^pod/restartatbyplugin annotated: `+asked.RestartAtPrefix+`main=.*Z\n$`, k.run("operator", "restart", p.name, "-c", "main"))
		p.starting("main", 5)
		assert.Less(t, p.waited("main", 4), askedCurve.Delay(3), "the wait that was ended")
	}},

	// The stock kubelet ignores the annotation. When ours is back, the time has passed before the
	// exit that the container waits after, and a later one counts.
	{"RestartAtStock", func(t *testing.T, e *e2e) {
		if *stockFlag == "" {
			skip(t, "there is no -kubelet-stock")
		}
		e.honorRestartAt(t)
		p := e.create(t, alwaysSpec(nil, container("main", "exit=3")))
		p.waitsFor("main", 3)
		ours, args := e.Spec.Kubelet, e.kubeletArgs
		t.Cleanup(func() { e.Spec.Kubelet = ours })
		e.kubeletArgs, e.Spec.Kubelet = nil, *stockFlag
		e.crash(t, askedCurve, 0)
		// It has forgotten the wait, begins the curve again, and is up to 10 s late.
		p.startingWithin("main", 6, 2*patience)
		p.exited("main", 6)
		p.restartAt(time.Now())
		p.startingWithin("main", 7, 2*patience)
		p.assertWaited("main", 6, askedCurve.Delay(2))
		assert.Zero(t, p.occurrences(asked.EventBackOffEnded))

		e.kubeletArgs, e.Spec.Kubelet = args, ours
		e.crash(t, askedCurve, 0)
		p.starting("main", 9)
		p.waitsFor("main", 8)
		p.restartAt(time.Now())
		p.occurred(asked.EventBackOffEnded, 1)
		p.starting("main", 10)
	}},
}
