// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
)

// The kubelet's metrics of restarts.
const (
	metricWaiting  = "kubelet_restart_backoff_waiting_containers"
	metricDelay    = "kubelet_restart_backoff_delay_seconds"
	metricLateness = "kubelet_restart_backoff_lateness_seconds"
	metricResets   = "kubelet_restart_backoff_resets_total"
	metricKeys     = "kubelet_restart_backoff_keys"
	metricInPlace  = "kubelet_pod_in_place_restarts_total"
	metricPhase    = "kubelet_pod_in_place_restart_phase_duration_seconds"
)

// restartMetrics has the types, labels and buckets of the metrics.
var restartMetrics = map[string]struct {
	kind    dto.MetricType
	labels  []string
	buckets []float64
}{
	metricWaiting:  {dto.MetricType_GAUGE, nil, nil},
	metricDelay:    {dto.MetricType_HISTOGRAM, []string{"type"}, []float64{0, 1, 2, 4, 5, 8, 10, 16, 20, 32, 40, 60, 80, 160, 300}},
	metricLateness: {dto.MetricType_HISTOGRAM, []string{"type"}, []float64{0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300}},
	metricResets:   {dto.MetricType_COUNTER, []string{"type"}, nil},
	metricKeys:     {dto.MetricType_GAUGE, []string{"type"}, nil},
	metricInPlace:  {dto.MetricType_COUNTER, []string{"action", "outcome"}, nil},
	metricPhase:    {dto.MetricType_HISTOGRAM, []string{"action", "phase"}, []float64{0.1, 0.25, 0.5, 1, 2.5, 5, 12, 24, 45, 90, 180, 330, 600}},
}

// metricsCurve has the delays 0, 1, 2, 4, 8, 8 … s.
var metricsCurve = harness.Curve{Reduced: true, Maximum: 8 * time.Second}

// defaultCurve has the delays 0, 10, 20, 40 … s.
var defaultCurve = harness.Curve{Maximum: 5 * time.Minute}

const (
	actionPod     = string(harness.ActionRestartPod)
	actionAll     = string(v1.ContainerRestartRuleActionRestartAllContainers)
	inTermination = "TerminatingForRestart"
	inStartup     = "Startup"
)

// metricsScenarios each run with a new kubelet, whose metrics are zero.
var metricsScenarios = []scenario{
	{"EveryRestartIsCounted", func(t *testing.T, e *e2e) {
		e.useCurve(t, metricsCurve)
		// These pods crash a limited number of times, so that the test can count everything.
		crash := func(times int) []string { return append(slices.Repeat([]string{"exit=3"}, times), "") }
		pods := []*pod{
			e.create(t, alwaysSpec(nil, container("main", crash(5)...)), "alone"),
			e.create(t, alwaysSpec(nil, container("main", crash(3)...), container("other", "")), "beside"),
			e.create(t, alwaysSpec(nil, container("main", crash(4)...), container("other", crash(4)...)), "both"),
		}
		// Each of these pods has containers to stop. A pod that is triggered at once restarts
		// again before the kubelet has seen its containers running.
		create := func(name, action, life string, times int, inits ...v1.Container) *pod {
			main := container("main", append(slices.Repeat([]string{life}, times), "")...)
			return e.create(t, podSpec(inits, triggeringBy(main, v1.ContainerRestartRuleAction(action)), container("other", "")), name)
		}
		whole := create("pod", actionPod, "sleep=2s exit=42", 3)
		// A release without this action has one more restart with the other.
		restarts := map[string]float64{actionPod: 3 + 2 + 1}
		action := actionPod
		if e.knows(t, gateRestartAllContainers) {
			action = actionAll
		}
		restarts[action] += 2
		all := create("all", action, "sleep=2s exit=42", 2)
		hasty := create("hasty", actionPod, "exit=42", 2)
		failing := create("failing", actionPod, "sleep=2s exit=42", 1, container("init1", "exit=0", "exit=1"))
		pods[0].starting("main", 6)
		pods[1].starting("main", 4)
		pods[2].starting("main", 5)
		pods[2].starting("other", 5)
		whole.starting("main", 4)
		whole.starting("other", 4)
		all.starting("main", 3)
		all.starting("other", 3)
		hasty.starting("main", 3)
		// Its second run may end before its program has started.
		hasty.latest("two restarts of other", func(now *v1.Pod) error {
			if n := statusOf(now, "other").RestartCount; n != 2 {
				return fmt.Errorf("there were %d", n)
			}
			return nil
		})
		failing.latest("the failure", func(now *v1.Pod) error {
			if now.Status.Phase != v1.PodFailed {
				return fmt.Errorf("the phase is %s", now.Status.Phase)
			}
			return nil
		})
		for _, p := range slices.Concat(pods, []*pod{whole, all, hasty}) {
			p.running()
		}
		m := e.scrape(t)
		m.assertShape(t)

		// The first restart has no delay, and so no lateness.
		assert.EqualValues(t, 5+3+4+4, m.histogram(t, metricDelay, "container").GetSampleCount(), "restarts of containers")
		assert.InDelta(t, (1+2+4+8)+(1+2)+2*(1+2+4), m.histogram(t, metricDelay, "container").GetSampleSum(), 0.001, "seconds of delay of containers")
		assert.Equal(t, []uint64{4, 4, 4, 3, 0, 1}, counts(m.histogram(t, metricDelay, "container"))[:6], "restarts of containers with a delay up to 0, 1, 2, 4, 5, 8 s")
		assert.EqualValues(t, 4+2+3+3, m.histogram(t, metricLateness, "container").GetSampleCount(), "restarts of containers that had a delay")
		assert.EqualValues(t, 3+2+2+1, m.histogram(t, metricDelay, "pod").GetSampleCount(), "restarts of pods")
		assert.InDelta(t, (1+2)+1+1, m.histogram(t, metricDelay, "pod").GetSampleSum(), 0.001, "seconds of delay of pods")
		assert.EqualValues(t, 2+1+1, m.histogram(t, metricLateness, "pod").GetSampleCount(), "restarts of pods that had a delay")
		// A restart is allowed before its instance is created.
		late := map[string]time.Duration{
			"container": pods[0].late("main", 5) + pods[1].late("main", 3) + pods[2].late("main", 4) + pods[2].late("other", 4),
			"pod":       whole.late("main", 3) + all.late("main", 2) + hasty.late("main", 2),
		}
		for kind, seen := range late {
			h := m.histogram(t, metricLateness, kind)
			harness.Progress("lateness of %d restarts of a %s: %.3f s, until their instances were created %.3f s", h.GetSampleCount(), kind, h.GetSampleSum(), seen.Seconds())
			assert.Positive(t, h.GetSampleSum(), "seconds of lateness of a %s", kind)
			assert.LessOrEqual(t, h.GetSampleSum(), seen.Seconds(), "seconds of lateness of a %s", kind)
			assert.Zero(t, m.value(t, metricResets, kind), "resets of a %s", kind)
		}
		assert.GreaterOrEqual(t, m.value(t, metricKeys, "container"), 4.0, "containers with a back-off")
		assert.LessOrEqual(t, m.value(t, metricKeys, "container"), 4.0+1+2+2+2+3, "containers with a back-off")
		assert.EqualValues(t, 4, m.value(t, metricKeys, "pod"), "pods with a back-off")
		assert.Zero(t, m.value(t, metricWaiting), "containers that wait")

		// A trigger may come before the kubelet has seen all containers running.
		ended := func(action string) float64 {
			return m.value(t, metricInPlace, action, "Restarted") + m.value(t, metricInPlace, action, "TriggeredAgain")
		}
		assert.Equal(t, restarts[actionPod]-1, ended(actionPod))
		assert.EqualValues(t, 1, m.value(t, metricInPlace, actionPod, "Failed"))
		assert.EqualValues(t, 0, m.value(t, metricInPlace, actionPod, "Deleted"))
		if action == actionAll {
			assert.Equal(t, restarts[actionAll], ended(actionAll))
		}
		took := map[string]time.Duration{}
		for p, action := range map[*pod]string{whole: actionPod, all: action, hasty: actionPod, failing: actionPod} {
			history := p.pods.of(p.name)
			took[action] += history[len(history)-1].at.Sub(p.exited("main", 1))
		}
		for action, n := range restarts {
			sum := 0.0
			for _, phase := range []string{inTermination, inStartup} {
				h := m.histogram(t, metricPhase, action, phase)
				assert.EqualValues(t, n, h.GetSampleCount(), "phases %s of %s", phase, action)
				assert.Positive(t, h.GetSampleSum(), "seconds of %s of %s", phase, action)
				sum += h.GetSampleSum()
			}
			assert.LessOrEqual(t, sum, took[action].Seconds(), "seconds of restarts by %s, from the first exits to the last statuses", action)
		}

		deleted := e.create(t, deletable(), "deleted")
		deleted.running()
		deleted.signal("go")
		deleted.event("other", 1, "term")
		deleted.delete(6)
		deleted.gone()
		after := e.scrape(t)
		assert.EqualValues(t, 1, after.value(t, metricInPlace, actionPod, "Deleted"))
		for _, outcome := range []string{"Restarted", "TriggeredAgain", "Failed"} {
			assert.Equal(t, m.value(t, metricInPlace, actionPod, outcome), after.value(t, metricInPlace, actionPod, outcome), "restarts with outcome %s", outcome)
		}
	}},

	{"WaitingContainers", func(t *testing.T, e *e2e) {
		e.useCurve(t, defaultCurve) // Its waits are so long that all pods wait at once.
		pods := []*pod{
			e.create(t, alwaysSpec(nil, container("main", "exit=3"), container("other", "")), "one"),
			e.create(t, alwaysSpec(nil, container("main", "exit=3"), container("other", "exit=3")), "two"),
			e.create(t, alwaysSpec([]v1.Container{container("init1", "exit=3")}, container("main", "")), "init"),
			// All containers of the pod wait while the pod waits.
			e.create(t, podSpec(nil, triggeringBy(container("main", "after=other exit=42"), harness.ActionRestartPod), container("other", "")), "pod"),
		}
		const most = 1 + 2 + 1 + 2
		// Statuses reach the API and this test with a delay. So the test compares only when
		// nothing has changed for a while, and on a busy machine even that may be too soon.
		const settled = 500 * time.Millisecond
		seen, tooSoon := map[int]int{}, 0
		require.NoError(t, harness.Await(e.ctx, "the greatest number of waiting containers", patience, func(context.Context) error {
			before := time.Now()
			got := int(e.scrape(t).value(t, metricWaiting))
			time.Sleep(settled)
			want := 0
			for _, p := range pods {
				history := p.pods.of(p.name)
				if len(history) == 0 || history[len(history)-1].at.After(before.Add(-settled)) {
					return errors.New("statuses change")
				}
				want += waitingIn(p)
			}
			if want != got {
				tooSoon++
				return fmt.Errorf("%d containers wait, and the metric says %d; it was right %v times", want, got, seen)
			}
			if seen[want]++; seen[most] < 3 {
				return fmt.Errorf("there were %v", seen)
			}
			return nil
		}))
		harness.Progress("number of scrapes by number of waiting containers: %v, and %d that differed", seen, tooSoon)
		right := 0
		for _, n := range seen {
			right += n
		}
		assert.Less(t, tooSoon, right, "scrapes that differed from the statuses, of which %d agreed", right)

		for _, p := range pods {
			p.delete(1)
		}
		for _, p := range pods {
			p.gone()
		}
		// The API server removes a pod a moment before the kubelet sees that.
		require.NoError(t, harness.Await(e.ctx, "the end of all waits when the pods are gone", patience, func(context.Context) error {
			if n := e.scrape(t).value(t, metricWaiting); n != 0 {
				return fmt.Errorf("%v containers wait", n)
			}
			return nil
		}))
	}},

	{"ResetsAreCounted", func(t *testing.T, e *e2e) {
		usual := e.Spec.Kubelet
		t.Cleanup(func() {
			e.Kubelet.Kill()
			e.Spec.Kubelet = usual
			e.startKubelet(t)
		})
		e.Kubelet.Kill()
		e.Spec.Kubelet = *shortResetFlag
		e.startKubelet(t)
		lives := func(exit string) []string {
			return []string{exit, exit, fmt.Sprintf("sleep=%v %s", shortReset+2*time.Second, exit), exit, ""}
		}
		one := e.create(t, alwaysSpec(nil, container("main", lives("exit=3")...)), "container")
		whole := e.create(t, podSpec(nil, triggeringBy(container("main", lives("exit=42")...), harness.ActionRestartPod)), "pod")
		for _, p := range []*pod{one, whole} {
			p.starting("main", 5)
			p.running()
		}
		m := e.scrape(t)
		delays := curve(0) + curve(1) + curve(0) + curve(1)
		for _, kind := range []string{"container", "pod"} {
			assert.EqualValues(t, 1, m.value(t, metricResets, kind), "resets of a %s", kind)
			assert.EqualValues(t, 4, m.histogram(t, metricDelay, kind).GetSampleCount(), "restarts of a %s", kind)
			assert.InDelta(t, delays.Seconds(), m.histogram(t, metricDelay, kind).GetSampleSum(), 0.001, "seconds of delay of a %s", kind)
		}
	}},

	// A waiting container is not an error. Each wait has one event, as far as their number is
	// not limited, and each decision one line in the log.
	{"EventsAndLogs", func(t *testing.T, e *e2e) {
		e.useCurve(t, defaultCurve)
		log := e.kubeletLog(t)
		alone := e.create(t, alwaysSpec(nil, container("main", "exit=3")), "alone")
		beside := e.create(t, alwaysSpec(nil, container("main", "exit=3"), container("other", "")), "beside")
		both := e.create(t, alwaysSpec(nil, container("main", "exit=3"), container("other", "exit=3")), "both")
		whole := e.create(t, podSpec(nil, triggeringBy(container("main", "exit=42"), harness.ActionRestartPod)), "pod")
		pods := []*pod{alone, beside, both, whole}
		// The delays of 10 and 20 s are over and that of 40 s is not. In the virtual machine some
		// pods reach a delay more than 40 s after others.
		restarts := 3
		if e.Spec.Machine {
			restarts = 5
		}
		for _, p := range pods {
			p.waitsFor("main", int32(restarts))
		}
		both.waitsFor("other", int32(restarts))
		for _, p := range pods {
			assert.Equal(t, restarts+1, p.starts("main"), "pod %s: starts of main", p.name)
		}
		assert.Equal(t, restarts+1, both.starts("other"), "pod %s: starts of other", both.name)
		text := log()
		for _, p := range pods {
			if found := errorsOf(text, p); len(found) > 0 {
				assert.Fail(t, fmt.Sprintf("pod %s: %d lines at error level, the first of them:\n%s", p.name, len(found), found[0]))
			}
		}
		for _, c := range []struct {
			*pod
			name string
		}{{alone, "main"}, {beside, "main"}, {both, "main"}, {both, "other"}} {
			// The kubelet's event client limits a pod to a burst of 25 events, before v1.32 of all
			// types together. The last waits of two containers exceed the limit.
			last := 4
			if c.pod == both {
				last = 3
			}
			c.assertWaitEvents(c.name, c.assertDecisions(text, c.name), last)
			c.assertCurve(c.name, defaultCurve)
		}
		assert.Empty(t, besideWaits(text, beside, "other"), "waits of the container that runs")
		for k := range restarts {
			whole.assertWaited("main", k+1, defaultCurve.Delay(k))
		}
		waits := len(whole.podWaits())
		if !e.Spec.Machine {
			assert.Equal(t, restarts, waits, "waits of the pod as a whole")
		}
		// These events have the same text, so the API counts them as one.
		require.NoError(t, harness.Await(e.ctx, "the events of the pod that waits as a whole", patience, func(context.Context) error {
			if times := whole.occurrences("BackOff"); int(times) < waits {
				return fmt.Errorf("there were %d", times)
			}
			return nil
		}))
		assert.EqualValues(t, waits, whole.occurrences("BackOff"), "events of the pod that waits as a whole")
	}},
}

// late returns how late the first restarts of a container that had a delay were, in all, from
// the end of the delay to the creation of the instance.
func (p *pod) late(name string, restarts int) (sum time.Duration) {
	p.t.Helper()
	for k := 1; k < restarts; k++ {
		sum += p.instance(name, k+2, false).created.Sub(p.exited(name, k+1)) - metricsCurve.Delay(k)
	}
	return sum
}

// waitsFor waits until a container waits after the given number of restarts.
func (p *pod) waitsFor(name string, restarts int32) {
	p.t.Helper()
	p.latest("the back-off of "+name, func(now *v1.Pod) error {
		if s := statusOf(now, name); s.State.Waiting == nil || s.State.Waiting.Reason != "CrashLoopBackOff" || s.RestartCount != restarts {
			return fmt.Errorf("%s: %+v", name, s)
		}
		return nil
	})
}

// waitingIn returns the number of waiting containers in the newest version of the pod.
func waitingIn(p *pod) (n int) {
	history := p.pods.of(p.name)
	if len(history) == 0 {
		return 0
	}
	for _, s := range statuses(history[len(history)-1].pod) {
		if w := s.State.Waiting; w != nil && w.Reason == "CrashLoopBackOff" {
			n++
		}
	}
	return n
}

// recordingFlag is for the pictures of the dashboard in docs/results, and for the queries in docs/operators.md.
var recordingFlag = flag.String("recording", "", "the file to which the scenario Metrics/Recording writes scrapes, for draw of test/deploy")

// recorded matches the metrics that the dashboard and docs/operators.md need.
var recorded = regexp.MustCompile("^(kubelet_(restart|pod_in_place|http|pod_start|pod_worker|runtime_operations)_|process_|rest_client_requests_total)")

// recordingScenarios runs pods that crash in different ways for five minutes, and records
// the metrics. It runs only with -recording.
var recordingScenarios = []scenario{
	{"Recording", func(t *testing.T, e *e2e) {
		file, err := os.Create(*recordingFlag)
		require.NoError(t, err)
		defer file.Close()
		e.useCurve(t, harness.Curve{Reduced: true, Maximum: time.Minute})
		for i, lives := range [][]string{{"exit=3"}, {"sleep=1s exit=1"}, {"sleep=5s exit=1"}, {"sleep=20s exit=0"}} {
			for j := range 2 {
				e.create(t, alwaysSpec(nil, container("main", lives...), container("other", "")), fmt.Sprintf("crash-%d-%d", i, j))
			}
		}
		e.create(t, podSpec(nil, triggeringBy(container("main", "sleep=2s exit=42"), harness.ActionRestartPod), container("other", "")), "pod")
		if e.knows(t, gateRestartAllContainers) {
			e.create(t, podSpec(nil, triggeringBy(container("main", "sleep=3s exit=42"), v1.ContainerRestartRuleActionRestartAllContainers), container("other", "")), "all")
		}
		e.create(t, podSpec([]v1.Container{container("init1", "exit=0", "exit=1")}, triggeringBy(container("main", "sleep=60s exit=42"), harness.ActionRestartPod)), "failing")
		// kubelet_pod_start_sli_duration_seconds leaves out pods with a hostPath, which all others have.
		stateless := podSpec(nil, container("main", ""))
		for _, name := range []string{"pod", "data"} {
			stateless.Volumes = append(stateless.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}})
		}
		_, err = e.kube.CoreV1().Pods(metav1.NamespaceDefault).Create(e.ctx, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "stateless"}, Spec: stateless}, metav1.CreateOptions{})
		require.NoError(t, err)
		whole := e.create(t, podSpec(nil, triggeringBy(container("main", "sleep=10s exit=42"), harness.ActionRestartPod), container("other", "")), "deleted")
		for start := time.Now(); time.Since(start) < 5*time.Minute; time.Sleep(time.Second) {
			if whole != nil && time.Since(start) > 3*time.Minute {
				whole.delete(1)
				whole = nil
			}
			text, err := e.fromKubelet("metrics").DoRaw(e.ctx)
			require.NoError(t, err)
			_, err = fmt.Fprintf(file, "# scrape %s\n", time.Now().UTC().Format(time.RFC3339Nano))
			require.NoError(t, err)
			for line := range bytes.Lines(text) {
				if recorded.Match(bytes.TrimPrefix(line, []byte("# TYPE "))) {
					_, err = file.Write(line)
					require.NoError(t, err)
				}
			}
		}
	}},
}
