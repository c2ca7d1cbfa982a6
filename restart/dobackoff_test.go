// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	testingclock "k8s.io/utils/clock/testing"

	backoff "github.com/kubelet-backoff/kubelet-backoff/backoff"
)

// agent calls DoBackOff like a kubelet. Times are seconds after now.
type agent struct {
	t       testing.TB
	event   string // of the last wait
	backOff *backoff.Backoff
	pod     *v1.Pod
	events  *record.FakeRecorder
}

func newAgent(t testing.TB) *agent {
	b := NewBackOff(testingclock.NewFakeClock(now), backoff.Curve{Initial: 10 * time.Second, Max: 300 * time.Second})
	return &agent{t: t, backOff: b, pod: testPod(v1.ResourceRequirements{}), events: record.NewFakeRecorder(100)}
}

// gc runs GC at the given time.
func (a *agent) gc(now time.Time) {
	a.backOff.Clock = testingclock.NewFakeClock(now)
	a.backOff.GC()
}

func at(seconds float64) time.Time { return now.Add(time.Duration(seconds * float64(time.Second))) }

func exited(restarts int, finished float64) ContainerStatus {
	return ContainerStatus{Name: "main", State: ContainerStateExited, RestartCount: restarts, FinishedAt: at(finished)}
}

func running(restarts int) ContainerStatus {
	return ContainerStatus{Name: "main", State: ContainerStateRunning, RestartCount: restarts}
}

// starts checks that the container may start.
func (a *agent) starts(seconds float64, statuses ...ContainerStatus) {
	a.t.Helper()
	waiting, message, err := DoBackOff(context.Background(), a.events, a.pod, &a.pod.Spec.Containers[0], statuses, a.backOff, at(seconds))
	assert.False(a.t, waiting)
	assert.Empty(a.t, message)
	assert.NoError(a.t, err)
}

// waits checks that the container has to wait for delay, until the given
// second.
func (a *agent) waits(seconds float64, delay string, until float64, statuses ...ContainerStatus) {
	a.t.Helper()
	waiting, message, err := DoBackOff(context.Background(), a.events, a.pod, &a.pod.Spec.Containers[0], statuses, a.backOff, at(seconds))
	assert.True(a.t, waiting)
	assert.Equal(a.t, "back-off "+delay+" restarting failed container=main pod=web_shop(u1)", message)
	assert.Equal(a.t, NewBackoffError(ErrCrashLoopBackOff, at(until)), err)
	a.event = "Warning BackOff Back-off restarting failed container main in pod web_shop(u1): waiting " + delay +
		", next start at " + at(until).UTC().Format(time.RFC3339)
}

func (a *agent) wantEvents(n int) {
	a.t.Helper()
	require.Len(a.t, a.events.Events, n)
	for range n {
		assert.Equal(a.t, a.event, <-a.events.Events)
	}
}

func TestDoBackOffCurve(t *testing.T) {
	a := newAgent(t)
	a.starts(0) // it never ran
	a.starts(1, exited(0, 1))
	a.waits(2, "10s", 12, exited(1, 2), exited(0, 1))
	a.wantEvents(1)
	a.waits(7, "10s", 12, exited(1, 2), exited(0, 1))
	a.wantEvents(0) // one event for each wait, not for each check
	a.starts(12, exited(1, 2), exited(0, 1))
	a.waits(13, "20s", 33, exited(2, 13), exited(1, 2), exited(0, 1))
	a.wantEvents(1)
	a.starts(33, exited(2, 13), exited(1, 2))
	a.starts(700, exited(3, 700)) // after a run of more than ten minutes
}

func TestNewBackOff(t *testing.T) {
	for _, delayFirst := range []bool{false, true} {
		tc := testingclock.NewFakeClock(now)
		b := NewBackOff(tc, backoff.Curve{Initial: 10 * time.Second, Max: 40 * time.Second, DelayFirst: delayFirst})
		assert.Equal(t, delayFirst, !b.Peek("a", now, now).Allowed)
		b.Next("b", now)
		b.Next("b", now)
		tc.Step(620 * time.Second)
		b.GC()
		assert.Equal(t, 20*time.Second, b.Get("b"), "ten minutes, which are more than twice the maximum, after a delay")
		tc.Step(1)
		b.GC()
		assert.Zero(t, b.Get("b"))
	}
}

func TestDoBackOffExitCodeDoesNotMatter(t *testing.T) {
	a := newAgent(t)
	failed, succeeded := exited(0, 0), exited(1, 1)
	failed.ExitCode = 1
	a.starts(0, failed)
	a.waits(1, "10s", 11, succeeded)
}

func TestDoBackOffTakesTheNewestInstance(t *testing.T) {
	for name, statuses := range map[string][]ContainerStatus{
		"newest first":           {exited(2, 5), exited(1, -100), exited(0, -200)},
		"newest last":            {exited(0, -200), exited(1, -100), exited(2, 5)},
		"restarts are not count": {exited(0, -200), exited(0, 5), exited(0, -100)},
		"times are wrong":        {exited(1, 50), exited(2, 5), exited(0, 80)},
		"other containers":       {{Name: "init", State: ContainerStateExited, RestartCount: 9, FinishedAt: at(6)}, exited(2, 5)},
		"created but never ran":  {{Name: "main", State: ContainerStateCreated, RestartCount: 3}, exited(2, 5)},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAgent(t)
			a.starts(0, exited(1, -100))
			a.waits(5.5, "10s", 15, statuses...)
		})
	}
}

// After a failed liveness probe the kubelet kills and starts within one sync.
// It still sees a running container and perhaps an earlier instance that exited
// long ago.
func TestDoBackOffAfterKillInTheSameSync(t *testing.T) {
	for name, state := range map[string]ContainerState{"running": ContainerStateRunning, "unknown": ContainerStateUnknown} {
		for _, counted := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				killed := running(1)
				killed.State = state
				if !counted {
					killed.RestartCount = 0
				}
				a := newAgent(t)
				a.starts(0, exited(0, 0))
				a.waits(30, "10s", 40, killed, exited(0, 0))
				a.waits(31, "10s", 40, exited(1, 30), exited(0, 0))
				a.starts(40, exited(1, 30), exited(0, 0))
			})
		}
	}
	t.Run("first", func(t *testing.T) {
		a := newAgent(t)
		a.starts(0, running(0))
		a.waits(5, "10s", 15, exited(1, 5))
	})
}

// A container that the user resizes again and again does not crash. Its back-off starts over,
// also if the start after the resize fails.
func TestDoBackOffReplaced(t *testing.T) {
	replaced := func(restarts int) ContainerStatus {
		s := running(restarts)
		s.Replaced = true
		return s
	}
	a := newAgent(t)
	for i := range 5 {
		a.starts(float64(i), replaced(i))
	}
	a.starts(10, exited(5, 10))
	a.waits(11, "10s", 21, exited(6, 11))
	a.starts(21, exited(6, 11))
	a.starts(30, replaced(7))
	a.starts(31, exited(8, 31))
	a.waits(32, "10s", 42, exited(9, 32))
	a.starts(42, exited(9, 32))
	_ = StartFailed(a.pod, &a.pod.Spec.Containers[0], true, errors.New("timed out"), a.backOff, at(42))
	a.starts(43, replaced(10))
	_ = StartFailed(a.pod, &a.pod.Spec.Containers[0], false, errors.New("no such image"), a.backOff, at(43))
	a.starts(55, exited(10, 43))
}

// If a code is ignored, the decision waits until the exit code of a killed container is known.
func TestDoBackOffAfterKillIgnoresCodes(t *testing.T) {
	for _, code := range []int32{0, 1} {
		a, failed := newAgent(t), exited(0, 0)
		a.backOff.RulesOf = func(string) *backoff.KeyRules {
			return &backoff.KeyRules{Initial: 10 * time.Second, Max: 300 * time.Second, Reset: 10 * time.Minute, Ignored: []int32{0}}
		}
		failed.ExitCode = 1
		a.starts(0, failed)
		a.waits(30, "0s", 30, running(1))
		a.wantEvents(0)
		killed := exited(1, 30)
		if killed.ExitCode = code; code == 0 {
			a.starts(30, killed)
		} else {
			a.waits(30, "10s", 40, killed)
		}
	}
}

// The exit code of an instance in an unknown state may stay unknown.
func TestDoBackOffUnknownStateIgnoresCodes(t *testing.T) {
	a, failed, unknown := newAgent(t), exited(0, 0), running(1)
	a.backOff.RulesOf = func(string) *backoff.KeyRules {
		return &backoff.KeyRules{Initial: 10 * time.Second, Max: 300 * time.Second, Reset: 10 * time.Minute, Ignored: []int32{0}}
	}
	failed.ExitCode, unknown.State = 1, ContainerStateUnknown
	a.starts(0, failed)
	a.waits(30, "10s", 40, unknown)
	a.starts(40, unknown)
}

// The instances of a waiting container are removed, either by hand or because
// the pod was removed and came back with the same UID. The container starts at
// once, and the next wait is a new one.
func TestDoBackOffAfterRemovalOfTheInstances(t *testing.T) {
	a := newAgent(t)
	a.starts(0, exited(0, 0))
	a.waits(1, "10s", 11, exited(1, 1))
	a.wantEvents(1)
	a.starts(5)
	a.waits(8, "10s", 18, exited(0, 8))
	a.wantEvents(1)
}

func TestDoBackOffWithDelayedFirstRestart(t *testing.T) {
	a := newAgent(t)
	a.backOff.DelayFirstRestart = true
	a.starts(0) // it never ran
	a.waits(5, "10s", 15, running(0))
	a.waits(6, "10s", 15, exited(0, 5))
	a.starts(15, exited(0, 5))
	a.waits(16, "20s", 36, exited(1, 16))
}

func TestDoBackOffWithUnknownFinishTime(t *testing.T) {
	for _, unknown := range []time.Time{{}, time.Unix(0, 0)} {
		a := newAgent(t)
		a.starts(0, exited(0, 0))
		bad := ContainerStatus{Name: "main", State: ContainerStateExited, RestartCount: 1, FinishedAt: unknown}
		a.waits(5, "10s", 15, bad)
		a.waits(14, "10s", 15, bad)
		a.starts(15, bad)
	}
}

func TestDoBackOffOverTheKindsOfContainers(t *testing.T) {
	for name, want := range map[string]string{
		"main":  "spec.containers{main}",
		"init":  "spec.initContainers{init}",
		"debug": "spec.ephemeralContainers{debug}",
		"pause": "implicitly required container pause",
	} {
		pod := testPod(v1.ResourceRequirements{})
		assert.Equal(t, &v1.ObjectReference{
			Kind: "Pod", APIVersion: "v1", Namespace: "shop", Name: "web", UID: "u1", ResourceVersion: "7", FieldPath: want,
		}, containerRef(pod, &v1.Container{Name: name}))
	}
}

// A sidecar and an init container follow the same curve as any other.
func TestDoBackOffOfInitContainer(t *testing.T) {
	a := newAgent(t)
	init := &a.pod.Spec.InitContainers[0]
	for i, seconds := range []float64{0, 1} {
		status := ContainerStatus{Name: "init", State: ContainerStateExited, RestartCount: i, FinishedAt: at(seconds)}
		waiting, _, _ := DoBackOff(context.Background(), a.events, a.pod, init, []ContainerStatus{status}, a.backOff, at(seconds))
		assert.Equal(t, i == 1, waiting)
	}
}
