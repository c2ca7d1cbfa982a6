// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
)

// useCurve restarts the kubelet with another curve and extra arguments, for one
// scenario. It first waits until the pods of other scenarios are gone, because the new
// kubelet would restore their back-off.
func (e *e2e) useCurve(t *testing.T, curve harness.Curve, args ...string) {
	t.Helper()
	e.kubeletArgs = args
	t.Cleanup(func() {
		e.kubeletArgs = nil
		e.restartKubelet(t)
	})
	require.NoError(t, harness.Await(e.ctx, "the end of all pods", patience, func(ctx context.Context) error {
		pods, err := e.kube.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
		if err == nil && len(pods.Items) > 0 {
			err = fmt.Errorf("pod %s still exists", pods.Items[0].Name)
		}
		return err
	}))
	e.Kubelet.Kill()
	e.startKubeletWith(t, curve)
}

// crash kills the kubelet and starts it with the same curve.
func (e *e2e) crash(t *testing.T, curve harness.Curve, down time.Duration) {
	e.Kubelet.Kill()
	time.Sleep(down)
	e.startKubeletWith(t, curve)
}

// lateInASecond waits for the middle of a second. The API truncates times to seconds, so
// a delay that counted from such a time would end at least half a second early.
func lateInASecond() {
	now := time.Now()
	time.Sleep(now.Truncate(time.Second).Add(1500 * time.Millisecond).Sub(now))
}

// starting waits for the n-th start of a container.
func (p *pod) starting(name string, n int) {
	p.t.Helper()
	p.startingWithin(name, n, patience)
}

func (p *pod) startingWithin(name string, n int, limit time.Duration) {
	p.t.Helper()
	require.NoError(p.t, harness.Await(p.ctx, fmt.Sprintf("start %d of %s of pod %s", n, name, p.name), limit, func(context.Context) error {
		if got := p.starts(name); got < n {
			return fmt.Errorf("there were %d", got)
		}
		return nil
	}))
}

// allWait waits until a container of each pod waits, both in the journal and in the API,
// and is not about to start. Otherwise a kill that follows could end the kubelet in the
// middle of a start, for which there is KilledInStart. allWait returns the numbers of the
// next restarts, counted from 1.
func (e *e2e) allWait(t *testing.T, pods []*pod, name string) (restarts []int) {
	t.Helper()
	require.NoError(t, harness.Await(e.ctx, "the wait of all pods", patience, func(context.Context) error {
		restarts = nil
		for _, p := range pods {
			n := p.starts(name)
			if n == 0 || len(p.exits(name, n)) == 0 {
				return fmt.Errorf("pod %s runs", p.name)
			}
			history := p.pods.of(p.name)
			s := statusOf(history[len(history)-1].pod, name)
			// A kubelet that was killed may have created an instance that it did not start.
			if w := s.State.Waiting; w == nil || w.Reason != "CrashLoopBackOff" || int(s.RestartCount) < n-1 {
				return fmt.Errorf("pod %s: %+v", p.name, s)
			}
			restarts = append(restarts, n)
		}
		for _, p := range pods {
			found := decisions(t, p.log(), p, name)
			if d := found[len(found)-1]; d.allowed || time.Until(d.retryAt) < time.Second {
				return fmt.Errorf("pod %s is about to start: %+v", p.name, d)
			}
		}
		return nil
	}))
	return restarts
}

// exits returns the exit times of the n-th instance of a container.
func (p *pod) exits(name string, n int) (at []float64) {
	for _, e := range p.journal() {
		if e.Container == name && e.Start == n && strings.HasPrefix(e.Event, "exit:") {
			at = append(at, e.At)
		}
	}
	return at
}

// assertKeepsWaiting checks that once a status shows a container as waiting, all statuses
// show it as waiting until the delay is over, with the right delay.
func (p *pod) assertKeepsWaiting(name string, curve harness.Curve) {
	p.t.Helper()
	waits := map[int]bool{}
	for _, seen := range p.pods.of(p.name) {
		s := statusOf(seen.pod, name)
		at := float64(seen.at.UnixMicro()) / 1e6
		// The kubelet also counts an instance that was created and never started.
		restart := min(int(s.RestartCount), p.startsBefore(name, at)-1)
		delay := curve.Delay(restart)
		if w := s.State.Waiting; w != nil && w.Reason == "CrashLoopBackOff" {
			waits[restart] = true
			assert.Contains(p.t, w.Message, fmt.Sprintf("back-off %v ", delay), "pod %s: why %s waits for restart %d", p.name, name, restart+1)
			continue
		}
		if !waits[restart] {
			continue
		}
		exits := p.exits(name, restart+1)
		require.Len(p.t, exits, 1, "exits of start %d of %s", restart+1, name)
		if at < exits[0]+delay.Seconds() {
			assert.Fail(p.t, fmt.Sprintf("pod %s: at %s, %.2f s before the end of its delay of %v, %s did not wait any more: %+v",
				p.name, seen.at.Format("15:04:05.000"), exits[0]+delay.Seconds()-at, delay, name, s.State))
		}
	}
	assert.NotEmpty(p.t, waits, "the restarts for which pod %s was shown to wait", p.name)
}
