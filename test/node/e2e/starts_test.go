// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
)

// startScenarios have containers that cannot start. If something was created, the failed
// attempt counts as an exit. If nothing was created, the curve does not advance.
var startScenarios = []scenario{
	{"StartFails", func(t *testing.T, e *e2e) {
		main := container("main")
		main.Command = []string{"/no-such-program"}
		p := e.create(t, alwaysSpec(nil, main, container("other", "")))
		p.assertAttempts("main", 0, 6)
		p.assertDelays("main", curveDelays(5)...)
		p.assertStarts(map[string]int{"main": 0, "other": 1})
	}},
	{"CreateFails", func(t *testing.T, e *e2e) {
		main := e.uncreatable(container("main", ""))
		p := e.create(t, alwaysSpec(nil, main, container("other", "wait=go exit=3", "")))
		p.assertAttempts("main", 0, 6)
		p.assertDelays("main", curveDelays(5)...)
		p.signal("go")
		p.latest("the restart of other", func(now *v1.Pod) error {
			if s := statusOf(now, "other"); s.RestartCount != 1 || s.State.Running == nil {
				return fmt.Errorf("other: %+v", s)
			}
			return nil
		})
		// The status must show the reason even after a sync in which main had to wait.
		var reasons []string
		for _, s := range p.pods.of(p.name) {
			if w := statusOf(s.pod, "main").State.Waiting; w != nil && w.Reason != "ContainerCreating" {
				reasons = append(reasons, w.Reason)
			}
		}
		assert.Equal(t, []string{"CreateContainerError"}, slices.Compact(reasons))
		p.assertStarts(map[string]int{"main": 0, "other": 2})
	}},
	// The program is removed while the container runs, and comes back when the container has
	// waited for the longest delay.
	{"StartFailsAfterARun", func(t *testing.T, e *e2e) {
		p := e.newPod(t)
		program := filepath.Join(p.dir, "program")
		copyFile(t, filepath.Join(e.Spec.Bin, "actor"), program)
		main := container("main", "wait=go exit=3", "exit=3", "")
		main.Command = []string{"/pod/program"}
		p.create(alwaysSpec(nil, main))
		p.running()
		require.NoError(t, os.Remove(program))
		p.signal("go")
		p.event("main", 1, "exit:3")
		// The first attempt is the first start. The second follows the exit, and each further
		// attempt follows a failed one.
		p.assertAttempts("main", 1, 6)
		if e.crio() { // It creates nothing without a program, so there are no restarts.
			p.configErrors(5)
		} else {
			p.latest("the failure of the last attempt", func(now *v1.Pod) error {
				if s := statusOf(now, "main"); s.RestartCount != 5 || s.State.Running != nil {
					return fmt.Errorf("main: %+v", s)
				}
				return nil
			})
		}
		copyFile(t, filepath.Join(e.Spec.Bin, "actor"), program)
		p.event("main", 3, "start")
		p.assertAttempts("main", 1, 8)
		p.assertDelays("main", curveDelays(7)...)
	}},
	{"PostStartHookFails", func(t *testing.T, e *e2e) {
		main := container("main", "")
		main.Lifecycle = &v1.Lifecycle{PostStart: noting("post-start", 500*time.Millisecond)}
		main.Lifecycle.PostStart.Exec.Command[1] = "fail"
		p := e.create(t, alwaysSpec(nil, main, container("other", "")))
		p.event("main", 6, "start")
		p.assertDelays("main", curveDelays(5)...)
		for k := range 5 {
			p.assertWaited("main", k+1, curve(k))
		}
		p.assertStarts(map[string]int{"other": 1})
	}},

	// A user creates the missing ConfigMap and waits for the container.
	{"ConfigMapComesLate", func(t *testing.T, e *e2e) {
		p := e.newPod(t)
		p.create(alwaysSpec(nil, needsConfigMap(p, container("main", "exit=3", "exit=3", ""))))
		p.configErrors(5)
		p.assertStartsWithConfigMap(1)
		p.event("main", 3, "start")
		p.assertCurve("main", usual)
	}},
	{"ConfigMapIsDeleted", func(t *testing.T, e *e2e) {
		p := e.newPod(t)
		p.createConfigMap()
		p.create(alwaysSpec(nil, needsConfigMap(p, container("main", "wait=go exit=3", "exit=3", ""))))
		p.running()
		p.deleteConfigMap()
		// The kubelet's watch needs a moment, on a busy machine a longer one.
		time.Sleep(10 * time.Second)
		p.signal("go")
		p.configErrors(4)
		p.assertStartsWithConfigMap(2)
		p.event("main", 3, "start")
		p.assertDelays("main", curveDelays(2)...)
		p.assertWaited("main", 2, curve(1))
	}},

	// Somebody imports the image while the kubelet waits to pull it again. The kubelet looks
	// for it every 10 to 15 s, and does not ask the registry.
	{"ImageIsSideLoaded", func(t *testing.T, e *e2e) {
		const image = "127.0.0.1:1/side-loaded:test"
		main := container("main", "")
		main.Image, main.ImagePullPolicy = image, v1.PullIfNotPresent
		p := e.create(t, alwaysSpec(nil, main, container("other", "")))
		// After the third pull, the next one is after 40 s, and then after 80 s. A kubelet on a
		// busy node may look once in 40 s, but one that looks every 60 s fails.
		const fewest, most, looks = 3, 4, 2
		var pulls, before int32
		require.NoError(t, harness.Await(e.ctx, fmt.Sprintf("%d looks for the image between two pulls", looks), patience, func(context.Context) error {
			pulled, looked := p.occurrences("Pulling"), p.occurrences("BackOff")
			if pulled != pulls {
				pulls, before = pulled, looked
			}
			require.LessOrEqual(t, pulls, int32(most), "pulls of the image, without %d looks for it in between", looks)
			if pulls < fewest || looked < before+looks {
				return fmt.Errorf("the image was pulled %d times, and then looked for %d times", pulls, looked-before)
			}
			return nil
		}))
		require.NoError(t, e.Tag(image))
		p.event("main", 1, "start")
		p.running()
		assert.EqualValues(t, pulls, p.occurrences("Pulling"), "pulls of the image")
		p.assertStarts(map[string]int{"main": 1, "other": 1})
	}},
}

// uncreatable returns a container whose creation fails. containerd looks for the program
// only at the start, and the CRI-O of these nodes ignores profiles.
func (e *e2e) uncreatable(c v1.Container) v1.Container {
	if e.crio() {
		c.Command = []string{"/no-such-program"}
		return c
	}
	c.SecurityContext = &v1.SecurityContext{SeccompProfile: &v1.SeccompProfile{
		Type: v1.SeccompProfileTypeLocalhost, LocalhostProfile: ptr.To("no-such-profile.json"),
	}}
	return c
}

// configErrors waits until the given number of attempts to start main have failed for
// lack of the ConfigMap, or with CRI-O of the program.
func (p *pod) configErrors(count int32) {
	p.t.Helper()
	require.NoError(p.t, harness.Await(p.ctx, "the errors of pod "+p.name, time.Duration(count)*20*time.Second+patience, func(context.Context) error {
		if seen := p.occurrences("Failed"); seen < count {
			return fmt.Errorf("there were %d", seen)
		}
		return nil
	}))
}

// occurrences returns how often the pod's events with a reason have occurred.
func (p *pod) occurrences(reason string) (n int32) {
	p.t.Helper()
	events, err := p.kube.CoreV1().Events(metav1.NamespaceDefault).List(p.ctx, metav1.ListOptions{
		FieldSelector: "reason=" + reason + ",involvedObject.uid=" + string(p.uid),
	})
	require.NoError(p.t, err)
	for i := range events.Items {
		n += events.Items[i].Count
	}
	return n
}

// assertStartsWithConfigMap creates the ConfigMap and checks that the n-th start of main
// is at the next retry, or at the one after it if a retry is under way.
func (p *pod) assertStartsWithConfigMap(n int) {
	p.t.Helper()
	before := p.occurrences("Failed")
	p.createConfigMap()
	p.event("main", n, "start")
	assert.LessOrEqual(p.t, p.occurrences("Failed"), before+1, "failed attempts to start main, of which %d were before the ConfigMap existed", before)
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	source, err := os.Open(from)
	require.NoError(t, err)
	defer source.Close()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	require.NoError(t, err)
	_, err = io.Copy(target, source)
	require.NoError(t, err)
	require.NoError(t, target.Close())
}
