// SPDX-License-Identifier: Apache-2.0

package asked_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubelet-backoff/kubelet-backoff/asked"
	"github.com/kubelet-backoff/kubelet-backoff/backoff"
	"github.com/kubelet-backoff/kubelet-backoff/restart"
)

var start = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

// at returns a time in seconds after the start of a test.
func at(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }

// node is a kubelet with one pod. Its containers exit as soon as they run.
type node struct {
	t        *testing.T
	now      float64
	restarts *asked.Restarts
	backOff  *backoff.Backoff
	pod      *v1.Pod
	newest   map[string]restart.ContainerStatus
	events   *record.FakeRecorder
}

func newNode(t *testing.T, containers ...string) *node {
	n := &node{t: t, pod: newPod("u1", containers...), newest: map[string]restart.ContainerStatus{}, events: record.NewFakeRecorder(1000)}
	n.boot(false)
	for _, c := range containers {
		require.Equal(t, "starts", n.sync(c))
	}
	return n
}

func exitedAt(s restart.ContainerStatus, seconds float64) restart.ContainerStatus {
	s.FinishedAt = at(seconds)
	return s
}

func newPod(uid types.UID, containers ...string) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: uid, Annotations: map[string]string{}}}
	for _, c := range containers {
		pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: c, Image: "i"})
	}
	return pod
}

// boot starts the kubelet, which remembers nothing.
func (n *node) boot(delayFirst bool) {
	n.restarts = &asked.Restarts{}
	n.backOff = restart.NewBackOff(testingclock.NewFakeClock(start), backoff.Curve{Initial: 10 * time.Second, Max: 300 * time.Second, DelayFirst: delayFirst})
}

func (n *node) key(container string) string {
	for i := range n.pod.Spec.Containers {
		if c := &n.pod.Spec.Containers[i]; c.Name == container {
			return restart.Key(n.pod, c)
		}
	}
	return "pod/" + string(n.pod.UID)
}

// sync decides on the start of a container that has exited. It returns "starts", or until
// when the container waits, and the events of EndWait.
func (n *node) sync(container string) string {
	n.t.Helper()
	for i := range n.pod.Spec.Containers {
		c := &n.pod.Spec.Containers[i]
		if c.Name != container {
			continue
		}
		var statuses []restart.ContainerStatus
		if last, ran := n.newest[container]; ran {
			statuses = []restart.ContainerStatus{last}
		}
		restart.RestoreBackOff(n.pod, c, statuses, n.backOff, at(n.now))
		waits, _, err := restart.DoBackOff(context.Background(), nil, n.pod, c, statuses, n.backOff, at(n.now))
		if !waits {
			n.newest[container] = restart.ContainerStatus{
				Name: container, State: restart.ContainerStateExited, ExitCode: 1, RestartCount: len(statuses) + n.newest[container].RestartCount,
				StartedAt: at(n.now), FinishedAt: at(n.now + 0.001), BackOff: restart.SaveBackOff(n.backOff, restart.Key(n.pod, c), at(n.now)),
			}
			n.now += 0.001
			return "starts"
		}
		retryAt, _ := restart.MinBackoffExpiration(err)
		return n.ask(container, retryAt)
	}
	require.FailNow(n.t, "no container", container)
	return ""
}

// references is a recorder that takes only references to the pod web, as that of the kubelet's
// runtime manager.
type references struct{ *record.FakeRecorder }

func (r references) Eventf(object runtime.Object, eventtype, reason, format string, args ...any) {
	if ref, ok := object.(*v1.ObjectReference); ok && ref.Kind == "Pod" && ref.Namespace == "shop" && ref.Name == "web" && ref.UID != "" && ref.FieldPath == "" {
		r.FakeRecorder.Eventf(object, eventtype, reason, format, args...)
	}
}

func (n *node) ask(container string, retryAt time.Time) string {
	n.t.Helper()
	until, outcome := n.restarts.EndWait(references{n.events}, n.pod, container, n.backOff, n.key(container), retryAt, at(n.now))
	text := fmt.Sprintf("waits until %.0f", until.Sub(start).Seconds())
	if outcome != "" {
		text += " " + string(outcome)
	}
	for len(n.events.Events) > 0 {
		text += ": " + <-n.events.Events
	}
	return text
}

// advance lets the container go through its curve until it waits for the delay.
func (n *node) advance(container, delay string) {
	n.t.Helper()
	want, err := time.ParseDuration(delay)
	require.NoError(n.t, err)
	for range 100 {
		if n.sync(container) == "starts" {
			continue
		}
		d := n.backOff.Get(n.key(container))
		if d == want {
			return
		}
		n.now += d.Seconds()
	}
	require.FailNow(n.t, "no such delay", delay)
}

func (n *node) annotate(name, value string) { n.pod.Annotations[name] = value }

func stamp(seconds float64) string { return at(seconds).Format(time.RFC3339Nano) }

func TestRestartAtEndsWait(t *testing.T) {
	n := newNode(t, "main")
	n.advance("main", "80s")
	begun := n.now
	n.now = begun + 30
	require.Equal(t, fmt.Sprintf("waits until %.0f", begun+80), n.sync("main"))

	n.annotate(asked.RestartAtAnnotation, stamp(begun+29))
	require.Equal(t, fmt.Sprintf("waits until %.0f honored: Normal BackOffEnded Back-off of container main ends 50s early: annotation kubelet-backoff.github.io/restart-at is %s", n.now, stamp(begun+29)),
		n.sync("main"))
	require.Equal(t, "starts", n.sync("main"))

	// The curve starts over, and the time counts once.
	require.Equal(t, fmt.Sprintf("waits until %.0f", n.now+10), n.sync("main"))
	n.now += 10
	require.Equal(t, "starts", n.sync("main"))
	require.Equal(t, fmt.Sprintf("waits until %.0f", n.now+20), n.sync("main"))
}

func TestRestartAt(t *testing.T) {
	waits := func(seconds float64) string { return fmt.Sprintf("waits until %.0f", seconds) }
	// Each test begins when the container waits for 80 s, 1 s after its exit.
	for name, test := range map[string]func(t *testing.T, n *node, exit float64){
		"before the exit": func(t *testing.T, n *node, exit float64) {
			n.annotate(asked.RestartAtAnnotation, stamp(exit-1))
			assert.Equal(t, waits(exit+80), n.sync("main"))
		},
		"at the exit": func(t *testing.T, n *node, exit float64) {
			n.annotate(asked.RestartAtAnnotation, n.newest["main"].FinishedAt.Format(time.RFC3339Nano))
			assert.Equal(t, waits(exit+80), n.sync("main"))
		},
		"to come": func(t *testing.T, n *node, exit float64) {
			n.annotate(asked.RestartAtAnnotation, stamp(exit+20))
			assert.Equal(t, waits(exit+20), n.sync("main"))
			n.now = exit + 20
			assert.Contains(t, n.sync("main"), " honored: ")
			assert.Equal(t, "starts", n.sync("main"))
			assert.Equal(t, waits(n.now+10), n.sync("main"))
		},
		"after the wait": func(t *testing.T, n *node, exit float64) {
			n.annotate(asked.RestartAtAnnotation, stamp(exit+100))
			assert.Equal(t, waits(exit+80), n.sync("main"))
			n.now = exit + 80
			assert.Equal(t, "starts", n.sync("main"))
			// It counts in the next wait.
			assert.Equal(t, waits(exit+100), n.sync("main"))
		},
		"year 9999": func(t *testing.T, n *node, exit float64) {
			n.annotate(asked.RestartAtAnnotation, "9999-12-31T23:59:59Z")
			assert.Equal(t, waits(exit+80), n.sync("main"))
			// The other annotation still counts.
			n.annotate(asked.RestartAtPrefix+"main", stamp(exit+1))
			assert.Contains(t, n.sync("main"), " honored: ")
			assert.Equal(t, "starts", n.sync("main"))
			n.advance("main", "80s")
			n.now++
			n.annotate(asked.RestartAtAnnotation, stamp(n.now))
			n.annotate(asked.RestartAtPrefix+"main", "9999-12-31T23:59:59Z")
			assert.Contains(t, n.sync("main"), " honored: ")
		},
		"another time zone": func(t *testing.T, n *node, exit float64) {
			n.annotate(asked.RestartAtAnnotation, at(exit+1).In(time.FixedZone("", 3600*5+1800)).Format(time.RFC3339Nano))
			assert.Contains(t, n.sync("main"), " honored: ")
		},
		"a later time within 10 s": func(t *testing.T, n *node, exit float64) {
			n.annotate(asked.RestartAtAnnotation, stamp(n.now))
			assert.Contains(t, n.sync("main"), " honored: ")
			assert.Equal(t, "starts", n.sync("main"))
			again := n.now + 10
			n.now += 5
			n.annotate(asked.RestartAtAnnotation, stamp(n.now))
			assert.Contains(t, n.sync("main"), waits(again)+" refused: Warning RestartRefused Annotation kubelet-backoff.github.io/restart-at: "+stamp(n.now)+": refused, because it is 5.001s from another time that ended a wait of the pod, and not 10s: set a later time")
			assert.Equal(t, waits(again), n.sync("main"), "one event")
			n.now += 4.99
			assert.Equal(t, waits(again), n.sync("main"), "a refusal is final")
			n.now = again
			assert.Equal(t, "starts", n.sync("main"))
			n.now += 1
			n.annotate(asked.RestartAtAnnotation, stamp(n.now))
			assert.Contains(t, n.sync("main"), " honored: ", "the refused one does not count for the 10 s")
		},
		"the clock steps back": func(t *testing.T, n *node, exit float64) {
			n.annotate(asked.RestartAtAnnotation, stamp(n.now))
			assert.Contains(t, n.sync("main"), " honored: ")
			assert.Equal(t, "starts", n.sync("main"))
			// The clock steps back, so the exit is earlier than the time that has counted.
			asked := n.now
			n.now -= 2
			n.newest["main"] = exitedAt(n.newest["main"], n.now)
			for n.now < asked+3 {
				assert.NotContains(t, n.sync("main"), "honored", n.now)
				n.now += 0.5
			}
		},
		"the kubelet restarts before the start": func(t *testing.T, n *node, exit float64) {
			n.annotate(asked.RestartAtAnnotation, stamp(n.now))
			assert.Contains(t, n.sync("main"), " honored: ")
			n.boot(false)
			assert.Contains(t, n.sync("main"), " honored: ", "it had not counted yet")
			assert.Equal(t, "starts", n.sync("main"))
		},
		"the kubelet restarts after the start": func(t *testing.T, n *node, exit float64) {
			n.annotate(asked.RestartAtAnnotation, stamp(n.now))
			assert.Contains(t, n.sync("main"), " honored: ")
			assert.Equal(t, "starts", n.sync("main"))
			n.boot(false)
			assert.Equal(t, waits(n.now+10), n.sync("main"), "the curve has started over, and the time has counted")
		},
		"the start fails": func(t *testing.T, n *node, exit float64) {
			n.annotate(asked.RestartAtAnnotation, stamp(n.now))
			assert.Contains(t, n.sync("main"), " honored: ")
			c, failed := &n.pod.Spec.Containers[0], n.newest["main"]
			assert.Equal(t, "starts", n.sync("main"))
			n.newest["main"] = failed
			err := restart.StartFailed(n.pod, c, true, assert.AnError, n.backOff, at(n.now))
			retryAt, ok := restart.MinBackoffExpiration(err)
			require.True(t, ok)
			assert.Equal(t, waits(n.now+10), n.sync("main"))
			n.now += 9.999
			n.annotate(asked.RestartAtAnnotation, stamp(n.now))
			assert.Contains(t, n.sync("main"), " honored: ", "retry at %s", retryAt)
			assert.Equal(t, "starts", n.sync("main"))
		},
		"invalid": func(t *testing.T, n *node, exit float64) {
			n.annotate(asked.RestartAtAnnotation, "now")
			assert.Equal(t, waits(exit+80)+` invalid: Warning InvalidAnnotation metadata.annotations[kubelet-backoff.github.io/restart-at]: Invalid value: "now": must be a time as in RFC 3339, such as 2026-11-26T12:00:00Z`, n.sync("main"))
			assert.Equal(t, waits(exit+80), n.sync("main"), "one event")
			n.now += 10
			n.annotate(asked.RestartAtAnnotation, strings.Repeat("é", 128<<10))
			text := n.sync("main")
			assert.Contains(t, text, " invalid: ")
			assert.Less(t, len(text), 1024, "the API refuses longer messages of events")
			n.annotate(asked.RestartAtPrefix+"main", stamp(n.now))
			assert.Contains(t, n.sync("main"), " honored: ", "one invalid annotation does not spoil the other")
		},
		"with another container's": func(t *testing.T, n *node, exit float64) {
			n.annotate(asked.RestartAtPrefix+"other", stamp(n.now))
			n.annotate(asked.RestartAtPrefix, stamp(n.now))
			assert.Equal(t, waits(exit+80), n.sync("main"))
		},
		"without the feature": func(t *testing.T, n *node, exit float64) {
			n.restarts = nil
			n.annotate(asked.RestartAtAnnotation, stamp(n.now))
			assert.Equal(t, waits(exit+80), n.sync("main"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "main")
			n.advance("main", "80s")
			exit := n.now
			n.now++
			test(t, n, exit)
		})
	}
}

// A first restart that waits would wait again after a mere reset.
func TestRestartAtDelayedFirstRestart(t *testing.T) {
	n := newNode(t, "main")
	n.boot(true)
	n.advance("main", "80s")
	n.now++
	n.annotate(asked.RestartAtAnnotation, stamp(n.now))
	assert.Contains(t, n.sync("main"), " honored: ")
	assert.Equal(t, "starts", n.sync("main"))
	assert.Equal(t, fmt.Sprintf("waits until %.0f", n.now+20), n.sync("main"))
}

// One time ends the waits of all containers that wait, and not those of later exits.
func TestRestartAtSeveralContainers(t *testing.T) {
	n := newNode(t, "one", "two", "three")
	n.advance("one", "40s")
	n.advance("two", "40s")
	n.now++
	n.annotate(asked.RestartAtAnnotation, stamp(n.now))
	assert.Contains(t, n.sync("one"), " honored: ")
	n.now += 3
	assert.Contains(t, n.sync("two"), " honored: ")
	for _, c := range []string{"one", "two"} {
		assert.Equal(t, "starts", n.sync(c))
		assert.Equal(t, fmt.Sprintf("waits until %.0f", n.now+10), n.sync(c))
	}
	// The wait of a restart of the pod has its own key.
	n.now += 20
	n.annotate(asked.RestartAtAnnotation, stamp(n.now))
	n.backOff.Decide("pod/u1", at(n.now-2), at(n.now-2))
	d := n.backOff.Decide("pod/u1", at(n.now-1), at(n.now))
	require.False(t, d.Allowed)
	assert.Equal(t, fmt.Sprintf("waits until %.0f honored: Normal BackOffEnded Back-off of the pod's restart ends 9s early: annotation kubelet-backoff.github.io/restart-at is %s", n.now, stamp(n.now)),
		n.ask("", d.RetryAt))
	assert.True(t, n.backOff.Decide("pod/u1", at(n.now-1), at(n.now)).Allowed)
	// A pod that does not wait is not touched.
	before, _ := n.backOff.Snapshot("pod/u1", at(n.now))
	n.now += 20
	n.annotate(asked.RestartAtAnnotation, stamp(n.now))
	assert.Equal(t, "waits until 0", n.ask("", start))
	after, _ := n.backOff.Snapshot("pod/u1", at(n.now))
	assert.Equal(t, before, after)
}

// A tenant that asks all the time gets one restart more in ten seconds on every curve.
func TestRestartAtHostile(t *testing.T) {
	for _, curve := range []backoff.Curve{
		{Initial: 10 * time.Second, Max: 300 * time.Second}, {Initial: time.Second, Max: time.Minute}, {Initial: time.Second, Max: 300 * time.Second},
	} {
		starts := map[bool]int{}
		for _, asks := range []bool{false, true} {
			n := newNode(t, "main")
			n.backOff = restart.NewBackOff(testingclock.NewFakeClock(start), curve)
			n.advance("main", curve.Max.String())
			for from := n.now; n.now < from+600; n.now += 0.05 {
				if asks {
					n.annotate(asked.RestartAtAnnotation, stamp(n.now))
					n.annotate(asked.RestartAtPrefix+"main", stamp(n.now-0.01))
				}
				if n.sync("main") == "starts" {
					starts[asks]++
				}
			}
		}
		// The first request starts the curve over.
		first := len(curve.Delays())
		assert.InDelta(t, starts[false]+600/10, starts[true], float64(first), "%+v: %v", curve, starts)
	}
}

// The second request in ten minutes ends the wait, but the next one is as long as without it.
func TestRestartAtStartsCurveOverOnce(t *testing.T) {
	n := newNode(t, "main")
	n.advance("main", "80s")
	for _, want := range []float64{10, 20, 40} {
		n.now += 10
		n.annotate(asked.RestartAtAnnotation, stamp(n.now))
		assert.Contains(t, n.sync("main")+n.sync("main"), "starts")
		assert.Equal(t, fmt.Sprintf("waits until %.0f", n.now+want), n.sync("main"))
		n.now += 1
	}
	n.now += 600
	assert.Equal(t, "starts", n.sync("main"))
	n.sync("main")
	n.now += 10
	n.annotate(asked.RestartAtAnnotation, stamp(n.now))
	assert.Contains(t, n.sync("main"), " honored: ")
	assert.Equal(t, "starts", n.sync("main"))
	assert.Equal(t, fmt.Sprintf("waits until %.0f", n.now+10), n.sync("main"))
}

// That holds for all containers of the pod.
func TestRestartAtStartsCurvesOver(t *testing.T) {
	n := newNode(t, "one", "two")
	all := func(want string) {
		t.Helper()
		for _, c := range []string{"one", "two"} {
			require.Contains(t, n.sync(c), want, c)
		}
	}
	n.advance("one", "300s")
	n.advance("two", "80s")
	n.now++
	n.annotate(asked.RestartAtAnnotation, stamp(n.now))
	all(" honored: ")
	all("starts")
	all(fmt.Sprintf("waits until %.0f", n.now+10))
	n.now += 11
	all("starts")
	all(fmt.Sprintf("waits until %.0f", n.now+20))
	n.now += 5
	n.annotate(asked.RestartAtAnnotation, stamp(n.now))
	all(" honored: ")
	all("starts")
	all(fmt.Sprintf("waits until %.0f", n.now+40))
}

// Requests for two containers count by their own times, whenever and in which order they are
// answered.
func TestRestartAtBacklog(t *testing.T) {
	for name, annotations := range map[string]map[string]float64{
		"own and pod":  {asked.RestartAtPrefix + "one": 1, asked.RestartAtAnnotation: 31},
		"later first":  {asked.RestartAtPrefix + "one": 31, asked.RestartAtPrefix + "two": 1},
		"later second": {asked.RestartAtPrefix + "one": 1, asked.RestartAtPrefix + "two": 31},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "one", "two")
			n.advance("one", "300s")
			n.advance("two", "80s")
			for annotation, seconds := range annotations {
				n.annotate(annotation, stamp(n.now+seconds))
			}
			n.now += 35
			assert.Contains(t, n.sync("one"), " honored: ")
			assert.Contains(t, n.sync("two"), " honored: ")
		})
	}
}

// A time that comes before others, and is answered after them, does not shorten the interval.
func TestRestartAtInterval(t *testing.T) {
	n := newNode(t, "one", "two")
	n.advance("one", "300s")
	n.advance("two", "80s")
	began := n.now
	ask := func(container string, at, now float64) string {
		n.now = began + now
		n.annotate(asked.RestartAtPrefix+container, stamp(began+at))
		return n.sync(container)
	}
	assert.Contains(t, ask("one", 21, 21), " honored: ")
	assert.Equal(t, "starts", n.sync("one"))
	n.sync("one")
	assert.Contains(t, ask("two", 5, 22), " honored: ")
	assert.Contains(t, ask("one", 26, 26), " refused: ")
}

// Each invalid value is reported once, and warnings come once in ten seconds.
func TestRestartAtWarnings(t *testing.T) {
	n := newNode(t, "one", "two")
	n.advance("one", "300s")
	n.advance("two", "300s")
	n.annotate(asked.RestartAtAnnotation, "now")
	n.annotate(asked.RestartAtPrefix+"one", "soon")
	n.annotate(asked.RestartAtPrefix+"two", "soon")
	texts := map[string]int{}
	for range 100 {
		n.now += 0.5
		for _, c := range []string{"one", "two"} {
			if _, text, ok := strings.Cut(n.sync(c), " invalid: "); ok {
				texts[text]++
			}
		}
	}
	assert.Len(t, texts, 3)
	for text, count := range texts {
		assert.Equal(t, 1, count, text)
	}
	n.annotate(asked.RestartAtAnnotation, stamp(n.now))
	require.Contains(t, n.sync("one"), " honored: ")
	refused, events := 0, 0
	for range 50 {
		n.now += 0.1
		n.annotate(asked.RestartAtPrefix+"two", stamp(n.now))
		if text := n.sync("two"); strings.Contains(text, " refused") {
			refused++
			events += strings.Count(text, "Warning")
		}
	}
	assert.Equal(t, 50, refused)
	assert.Equal(t, 1, events)
}

// After the clock was ahead and is set right, requests count again.
func TestRestartAtClockSetRight(t *testing.T) {
	n := newNode(t, "main")
	n.now += 3600
	n.advance("main", "80s")
	n.now++
	n.annotate(asked.RestartAtAnnotation, stamp(n.now))
	assert.Contains(t, n.sync("main"), " honored: ")
	n.now -= 3600
	n.backOff = restart.NewBackOff(testingclock.NewFakeClock(start), backoff.Curve{Initial: 10 * time.Second, Max: 300 * time.Second})
	delete(n.newest, "main")
	require.Equal(t, "starts", n.sync("main"))
	n.advance("main", "80s")
	n.now++
	assert.Equal(t, fmt.Sprintf("waits until %.0f", n.now+79), n.sync("main"), "the answered time is in the future now")
	n.annotate(asked.RestartAtAnnotation, stamp(n.now))
	assert.Contains(t, n.sync("main"), " honored: ")
}

// A wait that counts from the last start goes on, because the container may run.
func TestRestartAtAnsweredExit(t *testing.T) {
	n := newNode(t, "main")
	n.advance("main", "80s")
	n.now += 80.5
	require.Equal(t, "starts", n.sync("main"))
	n.newest["main"] = exitedAt(n.newest["main"], n.now-1)
	n.now += 5
	waits := n.sync("main")
	n.annotate(asked.RestartAtAnnotation, stamp(n.now))
	assert.Equal(t, waits, n.sync("main"))
}

// What is known of pods that are gone is forgotten.
func TestRestartAtForgets(t *testing.T) {
	n := newNode(t, "main")
	var wait sync.WaitGroup
	for i := range 100 {
		wait.Add(1)
		go func() {
			defer wait.Done()
			pod := newPod(types.UID(fmt.Sprint("gone", i)), "main")
			pod.Annotations[asked.RestartAtAnnotation] = stamp(1)
			key := restart.Key(pod, &pod.Spec.Containers[0])
			n.backOff.Decide(key, at(0), at(0))
			d := n.backOff.Decide(key, at(0.5), at(1))
			_, outcome := n.restarts.EndWait(nil, pod, "main", n.backOff, key, d.RetryAt, at(1))
			assert.Equal(t, asked.Honored, outcome)
		}()
	}
	wait.Wait()
	require.Equal(t, 100, n.restarts.Len())
	n.now = 3700
	n.advance("main", "80s")
	n.now++
	n.annotate(asked.RestartAtAnnotation, stamp(n.now))
	assert.Contains(t, n.sync("main"), " honored: ")
	assert.Equal(t, 1, n.restarts.Len())
}

func TestValidateRestartAt(t *testing.T) {
	pod := newPod("u1", "main")
	pod.Spec.InitContainers = []v1.Container{{Name: "setup"}}
	pod.Annotations = map[string]string{
		asked.RestartAtAnnotation: stamp(0), asked.RestartAtPrefix + "main": stamp(0), asked.RestartAtPrefix + "setup": stamp(0), "other": "x",
	}
	assert.Empty(t, asked.ValidateRestartAt(pod))
	pod.Annotations = map[string]string{
		asked.RestartAtAnnotation: "2026-11-26 12:00", asked.RestartAtPrefix + "mian": stamp(0),
	}
	assert.EqualError(t, asked.ValidateRestartAt(pod).ToAggregate(), `[metadata.annotations[kubelet-backoff.github.io/restart-at]: Invalid value: "2026-11-26 12:00": must be a time as in RFC 3339, such as 2026-11-26T12:00:00Z, `+
		`metadata.annotations[restart-at.kubelet-backoff.github.io/mian]: Not found: "mian"]`)
}
