// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
)

var errCreate, errConfig = errors.New("CreateContainerError"), errors.New("CreateContainerConfigError")

// fails records a start that failed after something was created, and checks the
// time of the next attempt.
func (a *agent) fails(seconds, next float64) {
	a.t.Helper()
	err := StartFailed(a.pod, &a.pod.Spec.Containers[0], true, errCreate, a.backOff, at(seconds))
	assert.Equal(a.t, NewBackoffError(errCreate, at(next)), err)
	assert.ErrorIs(a.t, err, errCreate)
	assert.EqualError(a.t, err, "CreateContainerError", "the reason of the waiting state")
	delay, exact := NextSync(err, 10*time.Second, time.Hour, at(seconds))
	assert.Equal(a.t, at(next), at(seconds).Add(delay))
	assert.True(a.t, exact)
}

// lacks records a start that was not made.
func (a *agent) lacks(seconds float64) {
	a.t.Helper()
	err := StartFailed(a.pod, &a.pod.Spec.Containers[0], false, errConfig, a.backOff, at(seconds))
	assert.Same(a.t, errConfig, err)
}

func TestFailedStartsFollowTheCurve(t *testing.T) {
	t.Run("of a container that never ran", func(t *testing.T) {
		a := newAgent(t)
		a.starts(0)
		a.fails(0.5, 0.5)
		a.starts(0.5)
		a.fails(1, 11)
		a.waits(2, "10s", 11)
		a.wantEvents(1)
		a.starts(11)
		a.fails(12, 32)
		a.starts(32)
		// It runs at last and crashes. The curve continues.
		a.waits(40, "40s", 79, exited(0, 39))
	})
	t.Run("of a container whose instance could not be started", func(t *testing.T) {
		a := newAgent(t)
		a.starts(0)
		a.fails(1, 1)
		a.starts(1, exited(0, 0.9))
		a.fails(2, 12)
		a.waits(3, "10s", 12, exited(1, 1.9), exited(0, 0.9))
		a.starts(12, exited(1, 1.9), exited(0, 0.9))
		a.fails(13, 33)
	})
	t.Run("after a crash", func(t *testing.T) {
		a := newAgent(t)
		a.starts(0, exited(0, 0))
		a.waits(2, "10s", 12, exited(1, 2))
		a.starts(12, exited(1, 2))
		a.fails(14, 34) // nothing of it exists any more
		a.waits(15, "20s", 34, exited(1, 2))
		a.starts(34, exited(1, 2))
	})
	t.Run("with the first restart delayed", func(t *testing.T) {
		a := newAgent(t)
		a.backOff.DelayFirstRestart = true
		a.starts(0)
		a.fails(1, 11)
		a.starts(11)
		a.fails(12, 32)
	})
	t.Run("and no error is none", func(t *testing.T) {
		a := newAgent(t)
		a.starts(0, exited(0, 0))
		assert.NoError(t, StartFailed(a.pod, &a.pod.Spec.Containers[0], true, nil, a.backOff, at(5)))
		a.waits(6, "10s", 15, exited(1, 5))
	})
}

// A ConfigMap or an image may appear at any time, and until then nothing counts.
func TestStartsThatAreNotMadeDoNotCount(t *testing.T) {
	a := newAgent(t)
	for n := range 20 {
		a.starts(float64(10 * n))
		a.lacks(float64(10 * n))
	}
	a.starts(200)
	a.starts(201, exited(0, 201))
	a.lacks(201)
	a.starts(212, exited(0, 201))
	a.waits(213, "10s", 223, exited(1, 213), exited(0, 201))
	for n := range 50 {
		now := 223 + float64(10*n)
		a.starts(now, exited(1, 213), exited(0, 201))
		a.lacks(now)
	}
	a.starts(800, exited(1, 213), exited(0, 201))
	a.waits(801, "20s", 821, exited(2, 801), exited(1, 213))
}

// InBackOff does not use up a start.
func TestInBackOff(t *testing.T) {
	a := newAgent(t)
	ask := func(seconds float64, statuses ...ContainerStatus) (bool, string) {
		return InBackOff(a.pod, &a.pod.Spec.Containers[0], statuses, a.backOff, at(seconds))
	}
	for range 2 {
		waiting, _ := ask(0)
		assert.False(t, waiting)
		waiting, _ = ask(0, exited(0, 0))
		assert.False(t, waiting)
	}
	a.starts(0, exited(0, 0))
	for range 2 {
		waiting, message := ask(5, exited(1, 4))
		assert.True(t, waiting)
		assert.Equal(t, "back-off 10s restarting failed container=main pod=web_shop(u1)", message)
	}
	a.waits(5, "10s", 14, exited(1, 4))
	a.wantEvents(1)
	waiting, _ := ask(14, exited(1, 4))
	assert.False(t, waiting)
}

// The delay counts from the exit, also if the runtime takes the time of the start later.
func TestInstanceEndsAtOnce(t *testing.T) {
	a := newAgent(t)
	a.starts(0, exited(0, 0))
	ended := exited(1, 1)
	ended.StartedAt = at(1.005)
	waiting, _ := InBackOff(a.pod, &a.pod.Spec.Containers[0], []ContainerStatus{ended}, a.backOff, at(1.5))
	assert.True(t, waiting)
	a.waits(2, "10s", 11, ended)
	a.starts(11, ended)
	a.waits(12, "20s", 32, exited(2, 12))
}

// A status calls InBackOff before the start is decided, also for a container that
// started late.
func TestInBackOffAfterALateStart(t *testing.T) {
	a := newAgent(t)
	a.starts(0, exited(0, 0))
	late := exited(1, 902)
	late.StartedAt = at(900)
	waiting, _ := InBackOff(a.pod, &a.pod.Spec.Containers[0], []ContainerStatus{late}, a.backOff, at(903))
	assert.True(t, waiting)
}

// A container that handles SIGTERM exits with 0 when it is killed after a failed
// probe. With the policy OnFailure nobody would start it after a wait.
func TestDoBackOffAfterKillDependsOnThePolicy(t *testing.T) {
	onFailure, always := v1.ContainerRestartPolicy("OnFailure"), v1.ContainerRestartPolicyAlways
	for name, tc := range map[string]struct {
		pod   v1.RestartPolicy
		own   *v1.ContainerRestartPolicy
		init  bool
		waits bool
	}{
		"Always":                    {pod: v1.RestartPolicyAlways, waits: true},
		"OnFailure":                 {pod: v1.RestartPolicyOnFailure},
		"Always, its own OnFailure": {pod: v1.RestartPolicyAlways, own: &onFailure},
		"OnFailure, its own Always": {pod: v1.RestartPolicyOnFailure, own: &always, waits: true},
		"an init container":         {pod: v1.RestartPolicyAlways, init: true},
		"a sidecar":                 {pod: v1.RestartPolicyNever, own: &always, init: true, waits: true},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAgent(t)
			a.pod.Spec.RestartPolicy, a.pod.Spec.Containers[0].RestartPolicy = tc.pod, tc.own
			if tc.init {
				a.pod.Spec.InitContainers = a.pod.Spec.Containers[:1]
			}
			a.starts(0, exited(0, 0))
			if tc.waits {
				a.waits(30, "10s", 40, running(1), exited(0, 0))
				return
			}
			a.starts(30, running(1), exited(0, 0))
			// The curve continues.
			failed := exited(2, 31)
			failed.ExitCode = 1
			a.waits(31, "20s", 51, failed)
		})
	}
}

// The run of a container that the kubelet kills and starts in one sync ends now.
func TestDoBackOffAfterKillEndsALongRun(t *testing.T) {
	a := newAgent(t)
	a.pod.Spec.RestartPolicy = v1.RestartPolicyOnFailure
	a.starts(0, exited(0, 0))
	a.starts(30, running(1), exited(0, 0))
	a.starts(631, running(2), exited(1, 30))
	a.waits(632, "10s", 642, exited(3, 632))
}

// Whoever did not get a start does not give one back.
func TestStartFailedAfterARefusal(t *testing.T) {
	for _, created := range []bool{false, true} {
		a := newAgent(t)
		starts, exit := 0, 0.0
		for n := 0; n < 600; n++ {
			now := at(float64(n))
			waits, _, err := DoBackOff(context.Background(), nil, a.pod, &a.pod.Spec.Containers[0], []ContainerStatus{exited(starts, exit)}, a.backOff, now)
			if !waits {
				starts, exit = starts+1, float64(n+2)
				continue
			}
			wrapped := fmt.Errorf("container main: %w", err)
			assert.Equal(t, wrapped, StartFailed(a.pod, &a.pod.Spec.Containers[0], created, wrapped, a.backOff, now))
		}
		assert.Equal(t, 6, starts)
	}
}

// A start that failed beside a refused one has failed.
func TestStartFailedBesideARefusal(t *testing.T) {
	a := newAgent(t)
	a.starts(0, exited(0, 0))
	err := errors.Join(errCreate, NewBackoffError(ErrCrashLoopBackOff, at(99)))
	assert.Equal(t, NewBackoffError(err, at(11)), StartFailed(a.pod, &a.pod.Spec.Containers[0], true, err, a.backOff, at(1)))
}

// A container that is killed and whose image cannot be pulled then starts when the image
// is there. Its exit comes to be known after the start that was not made.
// A start that failed with a BackoffError of its own is no refusal.
func TestStartFailedWithAnotherBackoffError(t *testing.T) {
	a := newAgent(t)
	a.starts(0, exited(0, 0))
	err := StartFailed(a.pod, &a.pod.Spec.Containers[0], true, NewBackoffError(errCreate, at(99)), a.backOff, at(1))
	end, _ := MinBackoffExpiration(err)
	assert.Equal(t, at(11), end)
}

func TestAForcedStartThatIsNotMade(t *testing.T) {
	a := newAgent(t)
	a.pod.Spec.RestartPolicy = v1.RestartPolicyOnFailure
	for n := range 6 {
		a.starts(1000*float64(n), running(n))
		a.starts(1000*float64(n)+1, running(n+1))
	}
	a.starts(5010, running(7))
	a.lacks(5010)
	a.starts(5020, exited(7, 5009.9))
}

// A missing object does not delay a container whose exit time is unknown.
func TestGiveBackAfterAnExitThatIsNotKnown(t *testing.T) {
	a := newAgent(t)
	unknown := ContainerStatus{Name: "main", State: ContainerStateExited}
	a.starts(0, unknown)
	a.waits(5, "10s", 15, unknown)
	for now := 15.0; now < 100; now += 10 {
		a.starts(now, unknown)
		a.lacks(now)
	}
	a.wantEvents(1)
}

// An image pull or a volume may delay the start after the decision. That time is
// not part of the run.
func TestALateStartIsNoLongRun(t *testing.T) {
	a := newAgent(t)
	a.starts(0, exited(0, 0))
	late := exited(1, 902)
	late.StartedAt = at(900)
	a.waits(902, "10s", 912, late, exited(0, 0))
}

// A run that began without a decision counts from its start.
func TestAStartUnaskedIsTheBeginningOfARun(t *testing.T) {
	a := newAgent(t)
	a.starts(0, exited(0, 0))
	a.waits(2, "10s", 12, exited(1, 2))
	a.starts(500) // its instances were removed
	a.waits(800, "10s", 810, exited(0, 800))
}

func TestNewestByStartWhereTheEndIsNotKnown(t *testing.T) {
	instance := func(started, finished time.Time) ContainerStatus {
		return ContainerStatus{Name: "main", State: ContainerStateExited, StartedAt: started, FinishedAt: finished}
	}
	for _, unknown := range []time.Time{{}, time.Unix(0, 0)} {
		older, younger := instance(at(0), at(1)), instance(at(2), unknown)
		assert.Equal(t, &younger, newest("main", []ContainerStatus{older, younger}, false))
		assert.Equal(t, &younger, newest("main", []ContainerStatus{younger, older}, false))
	}
}

func TestNothingPanicsOnNil(t *testing.T) {
	a := newAgent(t)
	a.starts(0, exited(0, 0))
	waiting, _, err := DoBackOff(context.Background(), nil, a.pod, &a.pod.Spec.Containers[0], []ContainerStatus{exited(1, 1)}, a.backOff, at(2))
	assert.True(t, waiting)
	assert.ErrorIs(t, err, ErrCrashLoopBackOff)
	assert.NotEmpty(t, NewBackoffError(nil, now).Error())
	_, found := MinBackoffExpiration(NewBackoffError(nil, now))
	assert.True(t, found)
	_, found = MinBackoffExpiration((*BackoffError)(nil))
	assert.False(t, found)
}

// A non-cryptographic hash of 64 bits can be made to collide with the key of
// another pod.
func TestKeyHasTheLengthOfACryptographicHash(t *testing.T) {
	require.Len(t, keyOf(newAgent(t).pod), 32)
}

func TestDue(t *testing.T) {
	due := func(a *agent, seconds float64, want bool, statuses ...ContainerStatus) {
		a.t.Helper()
		before := a.backOff.Get(Key(a.pod, &a.pod.Spec.Containers[0]))
		assert.Equal(a.t, want, Due(a.pod, &a.pod.Spec.Containers[0], statuses, a.backOff, at(seconds)))
		assert.Equal(a.t, before, a.backOff.Get(Key(a.pod, &a.pod.Spec.Containers[0])), "it grants nothing")
	}
	t.Run("of a container that exits", func(t *testing.T) {
		a := newAgent(t)
		due(a, 0, false)
		a.starts(0)
		due(a, 5, true, exited(0, 5))
		due(a, 6, true, exited(0, 5))
		a.starts(6, exited(0, 5))
		due(a, 8, false, exited(6, 7), exited(0, 5))
		due(a, 17, true, exited(6, 7), exited(0, 5))
		a.starts(18, exited(6, 7), exited(0, 5))
		due(a, 19, false, exited(6, 7), exited(0, 5))
	})
	t.Run("of a container that ended at once", func(t *testing.T) {
		a := newAgent(t)
		a.starts(0, exited(0, 0))
		ended := exited(1, 1)
		ended.StartedAt = at(1.005)
		due(a, 10.999, false, ended)
		due(a, 11, true, ended)
	})
	t.Run("of a container whose first start failed", func(t *testing.T) {
		a := newAgent(t)
		a.starts(0)
		a.fails(0.5, 0.5)
		a.starts(0.5)
		a.fails(1, 11)
		due(a, 10, false)
		due(a, 11, true)
		a.starts(11)
	})
	t.Run("of a container that was just killed", func(t *testing.T) {
		a := newAgent(t)
		a.starts(0)
		due(a, 1, false, running(0))
	})
}
