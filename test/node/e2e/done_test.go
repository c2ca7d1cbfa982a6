// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
)

// doneScenarios have pods that are done: all regular containers have ended for good, or an
// init container has failed for good. The kubelet stops the sidecar then, and its exit
// code matches a rule.
var doneScenarios = []scenario{
	{"DonePodStartsNothing", func(t *testing.T, e *e2e) {
		pods := e.createDone(t, "")
		for _, p := range pods {
			p.put("go")
		}
		assertDone(pods)
	}},
}

// doneDisruptions kill the kubelet while it stops the sidecar.
var doneDisruptions = []scenario{
	{"DoneSidecarEndsWithoutKubelet", func(t *testing.T, e *e2e) {
		pods := e.killedWhenDone(t)
		for _, p := range pods {
			p.put("end")
			p.event("sidecar1", 1, "exit:143")
		}
		e.startKubelet(t)
		assertDone(pods)
	}},
	{"DoneSidecarEndsWithNextKubelet", func(t *testing.T, e *e2e) {
		pods := e.killedWhenDone(t)
		e.startKubelet(t)
		for _, p := range pods {
			require.NoError(t, harness.Await(e.ctx, "the next kubelet to stop sidecar1 of pod "+p.name, patience, func(context.Context) error {
				if stops := p.grace("sidecar1"); len(stops) < 2 {
					return fmt.Errorf("it was stopped %d times", len(stops))
				}
				return nil
			}))
			p.put("end")
		}
		assertDone(pods)
	}},
}

// donePod is a pod that is done after its file go, and its end.
type donePod struct {
	*pod
	phase  v1.PodPhase
	starts map[string]int
}

// createDone creates a pod for each way to be done and each action. Its sidecar has the
// given life.
func (e *e2e) createDone(t *testing.T, life string) (pods []donePod) {
	for _, action := range e.requireActions(t) {
		create := func(name string, spec v1.PodSpec, phase v1.PodPhase, starts map[string]int) {
			stopped := ruled(sidecar("sidecar1", life), action, v1.ContainerRestartRuleOnExitCodesOpNotIn, 0)
			spec.InitContainers = append([]v1.Container{stopped}, spec.InitContainers...)
			p := e.create(t, withGrace(int64(patience.Seconds()), spec), name, string(action))
			pods = append(pods, donePod{p, phase, starts})
		}
		// The sidecar is ready for SIGTERM when main ends.
		main := container("main", "after=sidecar1 wait=go exit=0")
		create("succeeds", podSpec(nil, main, container("other", "exit=0")),
			v1.PodSucceeded, map[string]int{"sidecar1": 1, "main": 1, "other": 1})
		create("fails", podSpec(nil, main, container("other", "exit=7")),
			v1.PodFailed, map[string]int{"sidecar1": 1, "main": 1, "other": 1})
		create("retries", onFailure(nil, main, container("other", "exit=7", "exit=0")),
			v1.PodSucceeded, map[string]int{"sidecar1": 1, "main": 1, "other": 2})
		create("init-fails", podSpec([]v1.Container{container("init1", "after=sidecar1 wait=go exit=1")}, container("main", "")),
			v1.PodFailed, map[string]int{"sidecar1": 1, "init1": 1, "main": 0})
	}
	return pods
}

// killedWhenDone creates pods that are done, and kills the kubelet when it has sent
// SIGTERM to their sidecars. These end when their pod has the file end.
func (e *e2e) killedWhenDone(t *testing.T) []donePod {
	pods := e.createDone(t, "hold=end")
	for _, p := range pods {
		p.put("go")
	}
	for _, p := range pods {
		p.event("sidecar1", 1, "term")
	}
	e.Kubelet.Kill()
	return pods
}

// assertDone waits for the ends of the pods, and checks that they were not restarted and
// start nothing.
func assertDone(pods []donePod) {
	for _, p := range pods {
		p.latest("the end", func(now *v1.Pod) error {
			if phase := now.Status.Phase; phase != v1.PodSucceeded && phase != v1.PodFailed {
				return fmt.Errorf("the phase is %s", phase)
			}
			return nil
		})
	}
	time.Sleep(4 * time.Second)
	for _, p := range pods {
		p.assertStarts(p.starts)
		p.assertNotRestarted()
		now := p.latest("its status", func(*v1.Pod) error { return nil })
		assert.Equal(p.t, p.phase, now.Status.Phase, "phase of pod %s", p.name)
		if end := statusOf(now, "sidecar1").State.Terminated; assert.NotNil(p.t, end, "pod %s: the end of sidecar1", p.name) {
			assert.EqualValues(p.t, 143, end.ExitCode, "pod %s: exit code of sidecar1", p.name)
		}
	}
}
