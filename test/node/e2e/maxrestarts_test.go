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
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/asked"
	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
)

// The gate and the metric of the patch maxrestarts, which SERIES=all applies.
const (
	gateMaxRestarts = "KubeletMaxRestartsAnnotation"
	metricLimit     = "kubelet_restart_limit_exceeded_pods_total"
)

// limitRestarts starts the kubelet with the gate.
func (e *e2e) limitRestarts(t *testing.T) {
	e.requireGate(t, gateMaxRestarts)
	e.useCurve(t, askedCurve, "--feature-gates="+gateMaxRestarts+"=true")
}

// gaveUp waits until the pod has ended because of its limit, and nothing of it runs.
func (p *pod) gaveUp(what string, restarts, limit int) *v1.Pod {
	p.t.Helper()
	message := fmt.Sprintf("%s was restarted %d times in a row, and annotation %s allows %d", what, restarts, asked.MaxRestartsAnnotation, limit)
	now := p.latest("the end", func(now *v1.Pod) error {
		if s := now.Status; s.Phase != v1.PodFailed || s.Reason != asked.ReasonRestartLimitExceeded || s.Message != message {
			return fmt.Errorf("phase %s, reason %q, message %q", s.Phase, s.Reason, s.Message)
		}
		for _, s := range now.Status.ContainerStatuses {
			if s.State.Running != nil {
				return fmt.Errorf("%s runs", s.Name)
			}
		}
		return nil
	})
	require.NoError(p.t, harness.Await(p.ctx, "the event of pod "+p.name, patience, func(context.Context) error {
		if p.occurrences(asked.ReasonRestartLimitExceeded) == 0 { // A kubelet that is killed then records another.
			return errors.New("there is none")
		}
		return nil
	}))
	return now
}

// limitDisruptions are about the number of restarts that pods allow.
var limitDisruptions = []scenario{
	// The kubelet is killed in each wait, and while the pod ends.
	{"MaxRestarts", func(t *testing.T, e *e2e) {
		e.limitRestarts(t)
		p := e.create(t, alwaysSpec(nil, container("main", "exit=3"), container("other", "linger=4s term=5")))
		p.annotate(asked.MaxRestartsAnnotation, "3")
		p.waitsFor("main", 1)
		e.crash(t, askedCurve, 0)
		p.starting("main", 3)
		p.waitsFor("main", 2)
		e.crash(t, askedCurve, time.Second)
		p.startingWithin("main", 4, askedCurve.Delay(2)+patience)
		// The phase is Failed when all containers have ended.
		late := p.event("other", 1, "term") - p.event("main", 4, "exit:3")
		assert.Less(t, late, 5.0, "seconds from the last exit to SIGTERM")
		e.crash(t, askedCurve, 0)
		now := p.gaveUp("Container main", 3, 3)
		p.assertStarts(map[string]int{"main": 4, "other": 1})
		main := statusOf(now, "main")
		assert.EqualValues(t, 3, main.RestartCount)
		if assert.NotNil(t, main.State.Terminated, "%+v", main.State) {
			assert.EqualValues(t, 3, main.State.Terminated.ExitCode, "a Job's failure policy looks at it")
		}
		t.Logf("%.3f s from the last exit to SIGTERM of other", late)
	}},

	{"MaxRestartsOfPod", func(t *testing.T, e *e2e) {
		actions := e.requireActions(t)
		e.limitRestarts(t)
		for _, max := range []int{0, 1} {
			const life = "after=other sleep=1s exit=42"
			p := e.newPod(t, fmt.Sprint(max))
			p.annotations = map[string]string{asked.MaxRestartsAnnotation: fmt.Sprint(max)}
			p.create(podSpec([]v1.Container{container("init", "exit=0")}, triggeringBy(container("main", life), actions[0]), container("other", "")))
			p.gaveUp("The pod", max, max)
			p.assertStarts(map[string]int{"init": max + 1, "main": max + 1, "other": max + 1})
		}
	}},

	// A container that never starts, and an init container.
	{"MaxRestartsOfStarts", func(t *testing.T, e *e2e) {
		e.limitRestarts(t)
		before := e.scrape(t).value(t, metricLimit)
		bad := container("bad")
		bad.Command = []string{"/nothing"}
		for _, tc := range []struct {
			name string
			spec v1.PodSpec
		}{
			{"bad", alwaysSpec(nil, bad, container("other", ""))},
			{"init", alwaysSpec([]v1.Container{container("init", "exit=3")}, container("other", ""))},
			{"side", podSpec([]v1.Container{sidecar("side", "exit=0")}, container("other", ""))},
		} {
			p := e.newPod(t, tc.name)
			p.annotations = map[string]string{asked.MaxRestartsAnnotation: "1"}
			p.create(tc.spec)
			p.gaveUp("Container "+tc.name, 1, 1)
		}
		assert.EqualValues(t, 3, e.scrape(t).value(t, metricLimit)-before)
		// Those of other pods go on.
		other := e.create(t, alwaysSpec(nil, container("main", "exit=3")), "other")
		other.starting("main", 3)
	}},

	// The controller makes another pod. A Job counts the restarts of a pod too, up to its limit.
	{"MaxRestartsOfJob", func(t *testing.T, e *e2e) {
		e.limitRestarts(t)
		spec := podSpec(nil, container("main", "exit=3"))
		spec.RestartPolicy = v1.RestartPolicyOnFailure
		p := e.createJobWith(t, 6, nil, spec)
		var pods []v1.Pod
		require.NoError(t, harness.Await(e.ctx, "the pod of the job", patience, func(context.Context) error {
			if pods = p.podsOfJob(); len(pods) == 0 {
				return fmt.Errorf("there is none")
			}
			return nil
		}))
		of := &pod{e2e: e, t: t, name: pods[0].Name, uid: pods[0].UID, dir: p.dir}
		of.annotate(asked.MaxRestartsAnnotation, "2")
		of.gaveUp("Container main", 2, 2)
		job := p.awaitJob("another pod", func(j *batchv1.Job) bool { return j.Status.Failed == 1 && j.Status.Active == 1 })
		assert.Zero(t, failure(job))
	}},

	// It stays over when the kubelet restarts, until its file changes.
	{"MaxRestartsOfStaticPod", func(t *testing.T, e *e2e) {
		e.limitRestarts(t)
		spec := alwaysSpec(nil, container("main", "exit=3"))
		p := e.createStatic(t, spec)
		p.annotations = map[string]string{asked.MaxRestartsAnnotation: "1"}
		p.writeManifest(spec)
		p.gaveUp("Container main", 1, 1)
		starts := p.starts("main")
		e.crash(t, askedCurve, 0)
		time.Sleep(15 * time.Second)
		assert.Equal(t, starts, p.starts("main"))
	}},

	// Without the gate, and under the stock kubelet, the annotation has no effect. With the gate,
	// the restarts before it count, except those of the stock kubelet.
	{"MaxRestartsOff", func(t *testing.T, e *e2e) {
		e.requireGate(t, gateMaxRestarts)
		e.useCurve(t, askedCurve)
		p := e.newPod(t)
		p.annotations = map[string]string{asked.MaxRestartsAnnotation: "1"}
		p.create(alwaysSpec(nil, container("main", "exit=3")))
		p.waitsFor("main", 2)
		e.kubeletArgs = []string{"--feature-gates=" + gateMaxRestarts + "=true"}
		e.crash(t, askedCurve, 0)
		p.gaveUp("Container main", 2, 1)
		p.assertStarts(map[string]int{"main": 3})
		if *stockFlag == "" {
			skip(t, "there is no -kubelet-stock")
		}
		q := e.newPod(t, "stock")
		q.annotations = map[string]string{asked.MaxRestartsAnnotation: "2"}
		ours, args := e.Spec.Kubelet, e.kubeletArgs
		t.Cleanup(func() { e.Spec.Kubelet = ours })
		e.kubeletArgs, e.Spec.Kubelet = nil, *stockFlag
		e.crash(t, askedCurve, 0)
		q.create(alwaysSpec(nil, container("main", "exit=3")))
		q.startingWithin("main", 4, 3*patience)
		e.kubeletArgs, e.Spec.Kubelet = args, ours
		e.crash(t, askedCurve, 0)
		q.gaveUp("Container main", 2, 2)
	}},
}
