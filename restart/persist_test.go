// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"context"
	"fmt"
	"math"
	"math/rand"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	testingclock "k8s.io/utils/clock/testing"

	backoff "github.com/kubelet-backoff/kubelet-backoff/backoff"
)

// restart makes the agent forget its back-off and, at the given second, restore it
// from the instances.
func (a *agent) restart(seconds float64, statuses ...ContainerStatus) (restored bool) {
	a.t.Helper()
	curve := backoff.Curve{Initial: 10 * time.Second, Max: 300 * time.Second}
	a.backOff = NewBackOff(testingclock.NewFakeClock(now), curve)
	restored = RestoreBackOff(a.pod, &a.pod.Spec.Containers[0], statuses, a.backOff, at(seconds))
	if restored {
		assert.False(a.t, RestoreBackOff(a.pod, &a.pod.Spec.Containers[0], statuses, a.backOff, at(seconds)), "it is known now")
	}
	return restored
}

// saved returns s as an instance created now.
func (a *agent) saved(seconds float64, s ContainerStatus) ContainerStatus {
	s.BackOff = SaveBackOff(a.backOff, Key(a.pod, &a.pod.Spec.Containers[0]), at(seconds))
	return s
}

// The agent is restarted after every step, and the curve stays the same.
func TestBackOffSurvivesARestart(t *testing.T) {
	a := newAgent(t)
	a.starts(0)
	first := a.saved(0, exited(0, 1))
	assert.Empty(t, first.BackOff, "a first start has nothing to keep")
	assert.False(t, a.restart(1, first))
	a.starts(1, first)
	last := []ContainerStatus{a.saved(1, exited(1, 2)), first}
	exit := 2.0
	for i, delay := range []float64{10, 20, 40, 80, 160, 300, 300} {
		require.True(t, a.restart(exit+delay/4, last...))
		a.waits(exit+delay/4, (time.Duration(delay) * time.Second).String(), exit+delay, last...)
		require.True(t, a.restart(exit+delay/2, last...))
		a.waits(exit+delay/2, (time.Duration(delay) * time.Second).String(), exit+delay, last...)
		require.True(t, a.restart(exit+delay+500, last...), "the agent was away for a while")
		require.True(t, a.restart(exit+delay, last...))
		a.starts(exit+delay, last...)
		runs := a.saved(exit+delay, runningSince(i+2, exit+delay))
		require.True(t, a.restart(exit+delay+0.5, runs, last[0]), "while it runs")
		exit += delay + 1
		ended := exited(i+2, exit)
		ended.StartedAt, ended.BackOff = runs.StartedAt, runs.BackOff
		last = []ContainerStatus{ended, last[0]}
	}
}

// runningSince returns an instance with the restart count that has been running since
// the given second.
func runningSince(restarts int, since float64) ContainerStatus {
	s := running(restarts)
	s.StartedAt = at(since)
	return s
}

// A back-off that the reset rule has forgotten is not restored.
func TestRestoreBackOffAfterReset(t *testing.T) {
	a := newAgent(t)
	a.starts(0, exited(0, 0))
	s := a.saved(0, exited(1, 601))
	s.StartedAt = at(0)
	assert.False(t, a.restart(602, s), "a run of more than ten minutes")
	s = a.saved(0, s)
	r := runningSince(1, 0)
	r.BackOff = s.BackOff
	assert.False(t, a.restart(601, r), "one that is still running")
	a = newAgent(t)
	a.starts(0, exited(0, 0))
	s = a.saved(0, exited(1, 10))
	assert.True(t, a.restart(10+10+600, s))
	assert.False(t, a.restart(10+10+601, s), "ten minutes after its wait")
}

// An instance that was created but never started counts only if there is no other,
// because the number of attempts to start it is unknown.
func TestRestoreBackOffSkipsWhatNeverStarted(t *testing.T) {
	a := newAgent(t)
	a.starts(0)
	a.starts(1, exited(0, 1))
	ran := a.saved(1, exited(1, 2))
	a.starts(12, ran)
	created := a.saved(12, ContainerStatus{Name: "main", State: ContainerStateCreated, RestartCount: 2})
	require.True(t, a.restart(13, created, ran))
	a.starts(13, created, ran)
	a.waits(15, "20s", 34, exited(2, 14), ran)

	// GC counts the new instance as dead too, and may have removed the one before it.
	older := created
	older.RestartCount, older.BackOff = 1, ""
	require.True(t, a.restart(13, older, created))
	a.starts(13, older, created)
	a.waits(15, "20s", 34, exited(2, 14))
}

// The annotation is not trusted. It cannot make a container wait longer than the
// maximum, and it affects only the container that it was made for.
func TestRestoreBackOffHostile(t *testing.T) {
	pod := newAgent(t).pod
	key := Key(pod, &pod.Spec.Containers[0])
	for name, tc := range map[string]struct {
		value string
		waits string // empty for a first exit
	}{
		"valid":            {fmt.Sprintf(`{"key":%q,"attempts":2}`, key), "20s"},
		"unknown field":    {fmt.Sprintf(`{"key":%q,"attempts":2,"delay":"100h"}`, key), "20s"},
		"huge":             {fmt.Sprintf(`{"key":%q,"attempts":%d}`, key, math.MaxInt32), "5m0s"},
		"too large":        {fmt.Sprintf(`{"key":%q,"attempts":%d}`, key, math.MaxInt32+1), ""},
		"no int at all":    {fmt.Sprintf(`{"key":%q,"attempts":1e400}`, key), ""},
		"negative":         {fmt.Sprintf(`{"key":%q,"attempts":-1}`, key), ""},
		"zero":             {fmt.Sprintf(`{"key":%q,"attempts":0}`, key), ""},
		"another key":      {`{"key":"0123","attempts":2}`, ""},
		"no key":           {`{"attempts":2}`, ""},
		"text":             {"restarted twice", ""},
		"null":             {"null", ""},
		"list":             {"[]", ""},
		"empty":            {"", ""},
		"followed by more": {fmt.Sprintf(`{"key":%q,"attempts":2}{}`, key), ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAgent(t)
			s := exited(5, 100)
			s.BackOff = tc.value
			assert.Equal(t, tc.waits != "", a.restart(101, s))
			if tc.waits == "" {
				a.starts(101, s)
				return
			}
			delay, err := time.ParseDuration(tc.waits)
			require.NoError(t, err)
			a.waits(101, tc.waits, 100+delay.Seconds(), s)
		})
	}
	t.Run("another container's", func(t *testing.T) {
		a := newAgent(t)
		a.starts(0, exited(0, 0))
		s := a.saved(0, exited(1, 1))
		for _, change := range []func(*v1.Pod){
			func(pod *v1.Pod) { pod.UID = "u2" },
			func(pod *v1.Pod) { pod.Spec.Containers[0].Image = "other" },
		} {
			changed := a.pod.DeepCopy()
			change(changed)
			assert.False(t, RestoreBackOff(changed, &changed.Spec.Containers[0], []ContainerStatus{s}, NewBackOff(nil, backoff.Curve{Max: time.Second}), at(2)))
		}
	})
}

// An unknown time, or one in the future, makes the container wait at most one delay
// from now.
func TestRestoreBackOffTimes(t *testing.T) {
	value := func(a *agent) string {
		return fmt.Sprintf(`{"key":%q,"attempts":2}`, Key(a.pod, &a.pod.Spec.Containers[0]))
	}
	for name, tc := range map[string]struct {
		started, finished time.Time
		until             float64
	}{
		"all known":                {at(90), at(95), 115},
		"start unknown":            {time.Time{}, at(95), 115},
		"exit unknown":             {at(90), time.Unix(0, 0), 120},
		"nothing known":            {time.Unix(0, 0), time.Time{}, 120},
		"start in the future":      {at(1e6), at(95), 115},
		"exit in the future":       {at(90), at(1e6), 120},
		"both in the future":       {at(1e6), at(2e6), 120},
		"exit before the start":    {at(95), at(90), 110},
		"year 9999":                {at(90), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), 120},
		"before the epoch of Unix": {time.Unix(-1e9, 0), time.Unix(-1e9, 0), 120},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAgent(t)
			s := ContainerStatus{Name: "main", State: ContainerStateExited, RestartCount: 3, StartedAt: tc.started, FinishedAt: tc.finished, BackOff: value(a)}
			require.True(t, a.restart(100, s))
			a.waits(100, "20s", tc.until, s)
			a.starts(tc.until, s)
		})
	}
}

// No annotation makes a container wait longer than the maximum, or gives a different
// result the second time.
func FuzzRestoreBackOff(f *testing.F) {
	pod := newAgent(f).pod
	container := &pod.Spec.Containers[0]
	key := Key(pod, container)
	f.Add(fmt.Sprintf(`{"key":%q,"attempts":3}`, key), int64(5), int64(7))
	f.Add(`{"attempts":-3}`, int64(-5), int64(math.MaxInt64))
	f.Add("", int64(0), int64(0))
	f.Fuzz(func(t *testing.T, saved string, started, finished int64) {
		const maximum = 300 * time.Second
		b := NewBackOff(testingclock.NewFakeClock(now), backoff.Curve{Initial: 10 * time.Second, Max: maximum})
		s := ContainerStatus{Name: "main", State: ContainerStateExited, BackOff: saved, StartedAt: time.Unix(0, started), FinishedAt: time.Unix(0, finished)}
		restored := RestoreBackOff(pod, container, []ContainerStatus{s}, b, now)
		if state, known := b.Snapshot(key, now); known != restored || known && (state.Attempts < 1 || state.LastUpdate.After(now)) {
			t.Fatalf("restored %t to %v", restored, state)
		}
		if !restored {
			return
		}
		other := NewBackOff(testingclock.NewFakeClock(now), backoff.Curve{Initial: 10 * time.Second, Max: maximum})
		if again := SaveBackOff(b, key, now); !RestorePodBackOff(other, key, again, now) || SaveBackOff(other, key, now) != again {
			t.Fatalf("%s is not restored", again)
		}
		if d := b.Decide(key, s.FinishedAt, now); d.Delay > maximum || d.RetryAt.After(now.Add(maximum)) {
			t.Fatalf("waits %s, until %s", d.Delay, d.RetryAt)
		}
	})
}

// GC may run in between, as housekeeping does while volumes are mounted.
func TestRestoreBackOffAndGC(t *testing.T) {
	a := newAgent(t)
	s := exited(9, 360)
	s.StartedAt, s.BackOff = at(0), fmt.Sprintf(`{"key":%q,"attempts":9}`, Key(a.pod, &a.pod.Spec.Containers[0]))
	restored := 0
	for seconds := 630.0; seconds < 1800; seconds += 2 {
		if RestoreBackOff(a.pod, &a.pod.Spec.Containers[0], []ContainerStatus{s}, a.backOff, at(seconds)) {
			restored++
		}
		a.gc(at(seconds))
		if seconds == 632 {
			a.waits(seconds, "5m0s", 660, s)
			a.wantEvents(1)
		}
	}
	assert.Equal(t, 1, restored, "and not again until GC forgets it, and not after that")
}

// An agent that is restarted before each check gives the same answers as one that is
// not.
func TestRestoreBackOffDifferential(t *testing.T) {
	seeds := int64(300)
	if testing.Short() {
		seeds = 60
	}
	for seed := range seeds {
		random := rand.New(rand.NewSource(seed))
		a, other := newAgent(t), newAgent(t)
		now, saved := 0.0, ""
		for i := range 12 {
			s := ContainerStatus{Name: "main", State: ContainerStateExited, RestartCount: i, StartedAt: at(now + 0.005), BackOff: saved}
			now += float64(1 + random.Intn(640))
			s.FinishedAt = at(now)
			if i%3 == 2 {
				s.FinishedAt = s.StartedAt.Add(-time.Millisecond) // containerd may report such times
			}
			for waits := true; waits; {
				now += float64(random.Intn(50))
				other.restart(now, s)
				var want, got error
				waits, _, want = DoBackOff(context.Background(), nil, a.pod, &a.pod.Spec.Containers[0], []ContainerStatus{s}, a.backOff, at(now))
				_, _, got = DoBackOff(context.Background(), nil, a.pod, &a.pod.Spec.Containers[0], []ContainerStatus{s}, other.backOff, at(now))
				require.Equal(t, want, got, "seed %d, exit %d", seed, i)
			}
			a.gc(at(now))
			saved = SaveBackOff(a.backOff, Key(a.pod, &a.pod.Spec.Containers[0]), at(now))
		}
	}
}
