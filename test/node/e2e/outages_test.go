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

	"github.com/kubelet-backoff/kubelet-backoff/test/node/node"
)

// useCurve restarts the kubelet with another curve and extra arguments, for one
// scenario. It first waits until the pods of other scenarios are gone, because the new
// kubelet would restore their back-off.
func (e *e2e) useCurve(t *testing.T, curve node.Curve, args ...string) {
	t.Helper()
	e.kubeletArgs = args
	t.Cleanup(func() {
		e.kubeletArgs = nil
		e.restartKubelet(t)
	})
	require.NoError(t, node.Await(e.ctx, "the end of all pods", time.Minute, func(ctx context.Context) error {
		pods, err := e.kube.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
		if err == nil && len(pods.Items) > 0 {
			err = fmt.Errorf("pod %s still exists", pods.Items[0].Name)
		}
		return err
	}))
	e.Kubelet.Kill()
	e.startKubeletWith(t, curve)
}

// outages are the periods without a kubelet, in order: from its end until the next one
// is healthy, in seconds of the wall clock.
type outages []struct{ from, to float64 }

// add records an outage, during which it calls take.
func (o *outages) add(take func()) {
	from := wallClock()
	take()
	*o = append(*o, struct{ from, to float64 }{from, wallClock()})
}

// crash kills the kubelet and starts it with the same curve.
func (o *outages) crash(t *testing.T, e *e2e, curve node.Curve, down time.Duration) {
	o.add(func() {
		e.Kubelet.Kill()
		time.Sleep(down)
		e.startKubeletWith(t, curve)
	})
}

// until returns the earliest time, from due on, at which a kubelet was running.
func (o outages) until(due float64) float64 {
	for _, away := range o {
		// A kubelet may be a little late, so it may have been killed shortly after due,
		// before it acted.
		if away.from < due+punctual && due < away.to {
			due = away.to
		}
	}
	return due
}

// lateInASecond waits for the middle of a second. The API truncates times to seconds, so
// a delay that counted from such a time would end at least half a second early.
func lateInASecond() {
	now := time.Now()
	time.Sleep(now.Truncate(time.Second).Add(1500 * time.Millisecond).Sub(now))
}

func wallClock() float64 { return float64(time.Now().UnixMicro()) / 1e6 }

// starting waits for the n-th start of a container.
func (p *pod) starting(name string, n int) {
	p.t.Helper()
	p.startingWithin(name, n, patience)
}

func (p *pod) startingWithin(name string, n int, limit time.Duration) {
	p.t.Helper()
	require.NoError(p.t, node.Await(p.ctx, fmt.Sprintf("start %d of %s of pod %s", n, name, p.name), limit, func(context.Context) error {
		if got := p.starts(name); got < n {
			return fmt.Errorf("there were %d", got)
		}
		return nil
	}))
}

// allWait waits until a container of each pod waits, both in the journal and in the API.
// It returns the numbers of the next restarts, counted from 1.
func (e *e2e) allWait(t *testing.T, pods []*pod, name string) (restarts []int) {
	t.Helper()
	// The limit is longer than the longest delay.
	require.NoError(t, node.Await(e.ctx, "the wait of all pods", 2*time.Minute, func(context.Context) error {
		restarts = nil
		for _, p := range pods {
			n := p.starts(name)
			if n == 0 || len(p.exits(name, n)) == 0 {
				return fmt.Errorf("pod %s runs", p.name)
			}
			history := p.pods.of(p.name)
			s := statusOf(history[len(history)-1].pod, name)
			if w := s.State.Waiting; w == nil || w.Reason != "CrashLoopBackOff" || int(s.RestartCount) != n-1 {
				return fmt.Errorf("pod %s: %+v", p.name, s)
			}
			restarts = append(restarts, n)
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

// assertCurve checks that every restart of a container so far was at the end of its delay,
// or as soon as a kubelet was running.
func (p *pod) assertCurve(name string, curve node.Curve, away outages) {
	p.t.Helper()
	var waited []string
	for k := range p.starts(name) - 1 {
		exits := p.exits(name, k+1)
		require.Len(p.t, exits, 1, "exits of start %d of %s", k+1, name)
		start, due := p.times(name, k+2, "start")[0], exits[0]+curve.Delay(k).Seconds()
		took := start - exits[0]
		waited = append(waited, fmt.Sprintf("%.2f", took))
		assert.GreaterOrEqual(p.t, took, curve.Delay(k).Seconds()-clockError, "pod %s: seconds that restart %d of %s waited", p.name, k+1, name)
		assert.Less(p.t, start-away.until(due), punctual, "pod %s: seconds that restart %d of %s was late, after %.2f s with a delay of %v", p.name, k+1, name, took, curve.Delay(k))
	}
	node.Progress("%s: the restarts of %s waited %s s", p.name, name, strings.Join(waited, " "))
}

// assertKeepsWaiting checks that once a status shows a container as waiting, all statuses
// show it as waiting until the delay is over, with the right delay.
func (p *pod) assertKeepsWaiting(name string, curve node.Curve) {
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
