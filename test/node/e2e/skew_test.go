// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
)

// The flags of TestSkew, which hack/node-skew.sh sets.
var (
	skewFlag           = flag.String("skew-kubelets", "", "the kubelets that follow one another on a node, a comma-separated `list` of binaries")
	stockAPIServerFlag = flag.String("apiserver-stock", "", "the unpatched kube-apiserver `binary`")
)

// skewed returns the kubelets of the flag.
func skewed() []string {
	return strings.FieldsFunc(*skewFlag, func(r rune) bool { return r == ',' })
}

// skewedVersions returns the releases of the kubelets.
func skewedVersions(ctx context.Context) string {
	var all []string
	for _, k := range skewed() {
		version, _ := programVersion(ctx, k)
		release, _, _ := strings.Cut(version, "+")
		all = append(all, release)
	}
	slices.Sort(all)
	return "kubelets " + strings.Join(slices.Compact(all), " ")
}

// runSkew runs TestSkew with the patched API server, and with the stock one, which does
// not have the action RestartPod, and before v1.35 none that restarts a pod.
func runSkew(ctx context.Context, h *harness.Harness) error {
	stockAction := v1.ContainerRestartRuleActionRestartAllContainers
	if has, err := harness.Knows(ctx, *stockAPIServerFlag, gateRestartAllContainers); err != nil {
		return err
	} else if !has {
		stockAction = ""
	}
	var failed []error
	for _, with := range []struct {
		title, apiserver string
		action           v1.ContainerRestartRuleAction
	}{
		{"skew", *apiserverFlag, harness.ActionRestartPod},
		{"skew, stock API server", *stockAPIServerFlag, stockAction},
	} {
		harness.Progress("%s: %s", with.title, cmp.Or(with.action, "no restart of a pod"))
		sp := harness.Spec{Kubelet: skewed()[0], APIServer: with.apiserver, Network: true}
		failed = append(failed, h.Run(ctx, with.title, sp, os.Stdout, append(os.Args[1:], "-inside", "-action", string(with.action))...))
	}
	return errors.Join(failed...)
}

// resyncs is the maximum time in which a stock kubelet notices an exit: before v1.36, a
// kubelet that restarts all containers waits for the next sync of the pod.
const resyncs = 3 * time.Minute

// TestSkew runs several kubelets one after another on a node, as in an upgrade and a
// downgrade, with an API server that may be of another release. Running containers keep
// running, each kubelet restarts crashing containers, and each kubelet that has the
// action restarts the pod with a rule.
func TestSkew(t *testing.T) {
	if !*insideFlag || *skewFlag == "" {
		t.Skip("this needs root and kubelets of several releases: make node-skew")
	}
	kubelets := skewed()
	e := startE2E(t)
	t.Cleanup(func() { e.Kubelet.Kill() })
	ran.Add(1)
	running := e.create(t, alwaysSpec(nil, container("main", "")), "running")
	crashing := e.create(t, alwaysSpec(nil, container("main", "exit=3"), container("other", "")), "crashing")
	pods := []*pod{running, crashing}
	restarting := func(name string) []*pod {
		if *actionFlag == "" {
			return nil
		}
		p := e.create(t, podSpec(nil, triggering(container("main", "wait=go exit=42")), container("other", "")), name)
		pods = append(pods, p)
		return []*pod{p}
	}
	oldest := restarting("restarting")
	running.running()
	crashing.starting("main", 3)
	sandboxes := map[*pod][]string{}
	for i, kubelet := range kubelets {
		log := e.kubeletLog(t)
		version := e.become(t, kubelet)
		step := fmt.Sprintf("kubelet %d of %d, %s", i+1, len(kubelets), version)
		harness.Progress("%s", step)

		// The first new start may have been due before, so the test waits for two more.
		before := crashing.starts("main")
		crashing.startingWithin("main", before+3, resyncs)
		if patched(version) {
			all := decisions(t, log(), crashing, "main")
			assert.NotEmpty(t, all, "%s: decisions on the container that crashes", step)
			for _, d := range all {
				assert.LessOrEqual(t, d.delay, usual.Maximum, "%s: the delay of a restart", step)
			}
		}

		// One pod is from the previous kubelet, and one from this one.
		own := restarting(fmt.Sprintf("restarting-%d", i))
		for _, p := range slices.Concat(oldest, own) {
			e.skewedRestart(t, p, step, patched(version))
		}
		for _, p := range pods {
			now := p.listSandboxes()
			if sandboxes[p] == nil {
				sandboxes[p] = now
			}
			assert.Equal(t, sandboxes[p], now, "%s: sandboxes of pod %s", step, p.name)
			p.alwaysRunning()
		}
		running.assertStarts(map[string]int{"main": 1})
		crashing.assertStarts(map[string]int{"other": 1})
		require.False(t, t.Failed(), step)
		harness.Progress("pass  %s", step)
	}
}

// become replaces the running kubelet with another one. It returns the version when the
// API server shows it.
func (e *e2e) become(t *testing.T, kubelet string) (version string) {
	version, err := programVersion(e.ctx, kubelet)
	require.NoError(t, err)
	e.Kubelet.Kill()
	e.Spec.Kubelet = kubelet
	e.startKubelet(t)
	require.NoError(t, harness.Await(e.ctx, "the node with kubelet "+version, time.Minute, func(ctx context.Context) error {
		n, err := e.kube.CoreV1().Nodes().Get(ctx, harness.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if got := n.Status.NodeInfo.KubeletVersion; got != version {
			return fmt.Errorf("it has %s", got)
		}
		return nil
	}))
	return version
}

// patched reports whether a kubelet with this version is ours.
func patched(version string) bool { return strings.Contains(version, "+kubelet-backoff") }

// skewedRestart triggers a restart of the pod. A kubelet that has the action restarts the
// whole pod. Ours also does that for an exit during an earlier kubelet without the action.
func (e *e2e) skewedRestart(t *testing.T, p *pod, step string, ours bool) {
	gate := map[v1.ContainerRestartRuleAction]string{
		harness.ActionRestartPod:                          harness.GateRestartPod,
		v1.ContainerRestartRuleActionRestartAllContainers: gateRestartAllContainers,
	}[v1.ContainerRestartRuleAction(*actionFlag)]
	n := p.starts("main")
	left := n > 0 && len(p.exits("main", n)) > 0
	if !left {
		p.running()
		// A container runs before its program says so.
		p.starting("main", 1)
		p.starting("other", 1)
		n = p.starts("main")
		p.signal("go")
		p.event("main", n, fmt.Sprintf("exit:%d", triggerExit))
	}
	if !e.knows(t, gate) {
		p.latest("the end of main", func(now *v1.Pod) error {
			if s := statusOf(now, "main"); s.State.Terminated == nil || s.State.Terminated.ExitCode != triggerExit {
				return fmt.Errorf("main: %+v", s.State)
			}
			return nil
		})
		assert.NotNil(t, statusOf(p.latest("the status", func(*v1.Pod) error { return nil }), "other").State.Running, "%s: other of pod %s, which nothing stops", step, p.name)
		assert.Equal(t, n, p.starts("main"), "%s: starts of main of pod %s", step, p.name)
		return
	}
	others := p.starts("other")
	p.startingWithin("main", n+1, resyncs)
	p.startingWithin("other", others+1, resyncs)
	now := p.running()
	assert.Equal(t, n+1, p.starts("main"), "%s: starts of main of pod %s", step, p.name)
	assert.Equal(t, others+1, p.starts("other"), "%s: starts of other of pod %s", step, p.name)
	if !ours {
		return
	}
	last := statusOf(now, "main").LastTerminationState.Terminated
	if assert.NotNil(t, last, "%s: last state of main of pod %s", step, p.name) {
		assert.EqualValues(t, triggerExit, last.ExitCode, "%s: exit code in it", step)
	}
	p.latest("the end of the restart", func(now *v1.Pod) error {
		if c := conditionIn(now, p.condition()); c.Status != v1.ConditionFalse {
			return fmt.Errorf("the condition is %q", c.Status)
		}
		return nil
	})
}
