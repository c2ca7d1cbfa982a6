// SPDX-License-Identifier: Apache-2.0

package asked_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/kubelet-backoff/kubelet-backoff/asked"
	"github.com/kubelet-backoff/kubelet-backoff/restart"
)

// crash starts the container again and again, as soon as it may, until the pod ends. Each run
// has the given length. reboot forgets everything before each sync that does so. It returns the
// number of starts, and when the pod ended.
func (n *node) crash(limits func() *asked.Limits, container, limit string, run float64, reboot func(start int, waits bool) bool) (starts int, end float64) {
	n.t.Helper()
	n.pod.Annotations[asked.MaxRestartsAnnotation] = limit
	c := &n.pod.Spec.Containers[0]
	for i := range n.pod.Spec.Containers {
		if n.pod.Spec.Containers[i].Name == container {
			c = &n.pod.Spec.Containers[i]
		}
	}
	waits := false
	for range 1000 {
		if reboot != nil && reboot(starts, waits) {
			n.boot(n.backOff.DelayFirstRestart)
		}
		var statuses []restart.ContainerStatus
		if last, ran := n.newest[container]; ran {
			statuses = []restart.ContainerStatus{last}
		}
		restart.RestoreBackOff(n.pod, c, statuses, n.backOff, at(n.now))
		var err error
		waits, _, err = restart.DoBackOff(context.Background(), nil, n.pod, c, statuses, n.backOff, at(n.now))
		if limits().Exceed(references{n.events}, n.pod, container, n.backOff, n.key(container), waits, at(n.now)) {
			require.True(n.t, limits().Exceed(references{n.events}, n.pod, container, n.backOff, n.key(container), waits, at(n.now)))
			return starts, n.now
		}
		if waits {
			until, _ := restart.MinBackoffExpiration(err)
			n.now = until.Sub(start).Seconds()
			continue
		}
		starts++
		n.newest[container] = restart.ContainerStatus{
			Name: container, State: restart.ContainerStateExited, ExitCode: 1, RestartCount: starts,
			StartedAt: at(n.now), FinishedAt: at(n.now + run), BackOff: restart.SaveBackOff(n.backOff, restart.Key(n.pod, c), at(n.now)),
		}
		n.now += run
	}
	return starts, n.now
}

// idle returns a node whose container has not run yet.
func idle(t *testing.T, delayFirst bool, containers ...string) *node {
	n := &node{t: t, pod: newPod("u1", containers...), newest: map[string]restart.ContainerStatus{}, events: record.NewFakeRecorder(1000)}
	n.boot(delayFirst)
	return n
}

func same[T any](v T) func() T { return func() T { return v } }

// The pod ends at the exit after which it would have waited again.
func TestMaxRestarts(t *testing.T) {
	for _, tc := range []struct {
		limit      string
		delayFirst bool
		starts     int
		end        float64
	}{
		{"0", false, 1, 1}, {"1", false, 2, 2}, {"2", false, 3, 13}, {"3", false, 4, 34}, {"5", false, 6, 156},
		{"0", true, 1, 1}, {"1", true, 2, 12}, {"2", true, 3, 33}, {"3", true, 4, 74},
	} {
		for _, when := range []string{"never", "before each sync", "while it waits", "while it runs"} {
			t.Run(fmt.Sprintf("%s, first delayed %t, kubelet restarts %s", tc.limit, tc.delayFirst, when), func(t *testing.T) {
				n, limits := idle(t, tc.delayFirst, "main"), &asked.Limits{}
				starts, end := n.crash(func() *asked.Limits { return limits }, "main", tc.limit, 1, func(_ int, waits bool) bool {
					restarts := when == "before each sync" || when == "while it waits" && waits || when == "while it runs" && !waits
					if restarts {
						limits = &asked.Limits{}
					}
					return restarts
				})
				assert.Equal(t, tc.starts, starts)
				assert.InDelta(t, tc.end, end, 0.001)
				message := "Container main was restarted " + tc.limit + " times in a row, and annotation kubelet-backoff.github.io/max-restarts allows " + tc.limit
				assert.Equal(t, message, limits.Exceeded("u1"))
				assert.Equal(t, "Warning RestartLimitExceeded "+message, <-n.events.Events)
				assert.Empty(t, n.events.Events)
			})
		}
	}
}

// A run of more than ten minutes sets the count to 0, and so does an annotation that ends a
// wait and starts the curve over.
func TestMaxRestartsInARow(t *testing.T) {
	n, limits := idle(t, false, "main"), &asked.Limits{}
	starts, _ := n.crash(same(limits), "main", "1", 601, nil)
	require.Equal(t, 1000, starts)

	n = idle(t, false, "main")
	n.restarts = &asked.Restarts{}
	starts, _ = n.crash(same(limits), "main", "3", 1, func(start int, waits bool) bool {
		if waits && start == 3 { // at the beginning of the second wait
			n.now -= 10
			n.pod.Annotations[asked.RestartAtAnnotation] = at(n.now).Format(time.RFC3339)
			require.Contains(t, n.ask("main", at(n.now+10)), "honored")
		}
		return false
	})
	require.Equal(t, 6, starts, "three more after the curve starts over")
}

// Starts that fail count if something was created.
func TestMaxRestartsFailedStarts(t *testing.T) {
	for created, want := range map[bool]int{true: 3, false: 100} {
		n, limits := idle(t, false, "main"), &asked.Limits{}
		n.pod.Annotations[asked.MaxRestartsAnnotation] = "2"
		c, tries := &n.pod.Spec.Containers[0], 0
		for range 100 {
			n.now += 1000
			waits, _, _ := restart.DoBackOff(context.Background(), nil, n.pod, c, nil, n.backOff, at(n.now))
			if limits.Exceed(nil, n.pod, "main", n.backOff, n.key("main"), waits, at(n.now)) {
				break
			}
			require.False(t, waits)
			tries++
			_ = restart.StartFailed(n.pod, c, created, errors.New("no such file"), n.backOff, at(n.now))
		}
		assert.Equal(t, want, tries, "created: %t", created)
	}
}

// Each container counts for itself, and the pod ends with the first one.
func TestMaxRestartsOfEachContainer(t *testing.T) {
	n, limits := idle(t, false, "a", "b"), &asked.Limits{}
	for range 2 {
		waits, _, _ := restart.DoBackOff(context.Background(), nil, n.pod, &n.pod.Spec.Containers[0], nil, n.backOff, at(0))
		require.False(t, limits.Exceed(nil, n.pod, "a", n.backOff, n.key("a"), waits, at(0)))
	}
	starts, _ := n.crash(same(limits), "a", "2", 1, nil)
	assert.Equal(t, 3, starts)
	starts, _ = n.crash(same(limits), "b", "2", 1, nil)
	assert.Zero(t, starts, "b starts in a pod that ends")
	other := newPod("u2", "a")
	other.Annotations[asked.MaxRestartsAnnotation] = "2"
	assert.False(t, limits.Exceed(nil, other, "a", n.backOff, "other", false, at(0)))
	assert.Empty(t, limits.Exceeded("u2"))
}

// A pod that is restarted in place waits under its own key, or is let through at once.
func TestMaxRestartsOfPod(t *testing.T) {
	n, limits := idle(t, false, "main"), &asked.Limits{}
	n.pod.Annotations[asked.MaxRestartsAnnotation] = "2"
	for i, want := range []struct{ waits, exceed bool }{{false, false}, {true, false}, {true, true}} {
		n.now += 5
		d := n.backOff.Decide(n.key(""), at(n.now), at(n.now))
		require.Equal(t, want.waits, !d.Allowed, i)
		require.Equal(t, want.exceed, limits.Exceed(nil, n.pod, "", n.backOff, n.key(""), !d.Allowed, at(n.now)), i)
		if !d.Allowed && !want.exceed {
			exit := n.now
			n.now = d.RetryAt.Sub(start).Seconds()
			require.True(t, n.backOff.Decide(n.key(""), at(exit), at(n.now)).Allowed)
			require.False(t, limits.Exceed(nil, n.pod, "", n.backOff, n.key(""), false, at(n.now)))
		}
	}
	assert.Equal(t, "The pod was restarted 2 times in a row, and annotation kubelet-backoff.github.io/max-restarts allows 2", limits.Exceeded("u1"))
}

// A start of a container that is not a restart does not count.
func TestMaxRestartsOfStart(t *testing.T) {
	n, limits := idle(t, false, "main"), &asked.Limits{}
	c := &n.pod.Spec.Containers[0]
	for range 5 {
		n.backOff.Force(n.key("main"), at(0))
	}
	n.pod.Annotations[asked.MaxRestartsAnnotation] = "0"
	waits, _, _ := restart.DoBackOff(context.Background(), nil, n.pod, c, nil, n.backOff, at(60))
	require.False(t, waits)
	require.False(t, limits.Exceed(nil, n.pod, "main", n.backOff, n.key("main"), false, at(60)), "it starts with the pod")
	// The runtime knows only seconds, so the exit seems to come before the start.
	exit := restart.ContainerStatus{Name: "main", State: restart.ContainerStateExited, ExitCode: 1, FinishedAt: at(60)}
	n.backOff.Force(n.key("main"), at(60.5))
	waits, _, _ = restart.DoBackOff(context.Background(), nil, n.pod, c, []restart.ContainerStatus{exit}, n.backOff, at(60.6))
	require.True(t, waits)
	n.pod.Annotations[asked.MaxRestartsAnnotation] = "6"
	require.True(t, limits.Exceed(nil, n.pod, "main", n.backOff, n.key("main"), true, at(60.6)))
}

// A value that is wrong has no effect, and is reported once.
func TestMaxRestartsInvalid(t *testing.T) {
	for name, value := range map[string]string{
		"no number": "many", "negative": "-1", "minus zero": "-0", "plus": "+5", "fraction": "1.5", "hexadecimal": "0x5", "space": " 5", "too large": "2147483648",
		"other digits": "٣", "long": strings.Repeat("9", 256<<10), "escapes": "5\x00\n\x1b[31m", "not UTF-8": "\xff",
		"zeros": strings.Repeat("0", 256<<10),
	} {
		t.Run(name, func(t *testing.T) {
			n, limits := idle(t, false, "main"), &asked.Limits{}
			starts, _ := n.crash(same(limits), "main", value, 1, nil)
			require.Greater(t, starts, 400)
			event := <-n.events.Events
			assert.Contains(t, event, "Warning InvalidAnnotation metadata.annotations[kubelet-backoff.github.io/max-restarts]: Invalid value:")
			assert.Contains(t, event, "must be a number of restarts, such as 5")
			assert.Less(t, len(event), 400)
			assert.Empty(t, n.events.Events)
			assert.Empty(t, limits.Exceeded("u1"))
			assert.Len(t, asked.ValidateMaxRestarts(n.pod), 1)
		})
	}
	for _, value := range []string{"", "0", "5", "007", "2147483647"} {
		pod := newPod("u1", "main")
		pod.Annotations[asked.MaxRestartsAnnotation] = value
		assert.Empty(t, asked.ValidateMaxRestarts(pod))
	}
}

// A wrong value that is mended counts, with the restarts before.
func TestMaxRestartsMended(t *testing.T) {
	n, limits := idle(t, false, "main"), &asked.Limits{}
	starts, _ := n.crash(same(limits), "main", "x", 1, func(start int, _ bool) bool {
		if start == 4 {
			n.pod.Annotations[asked.MaxRestartsAnnotation] = "2"
		}
		return false
	})
	assert.Equal(t, 4, starts)
}

// Invalid values that change all the time are events once in ten seconds.
func TestMaxRestartsInvalidAllTheTime(t *testing.T) {
	n, limits := idle(t, false, "main"), &asked.Limits{}
	for i := range 900 {
		n.pod.Annotations[asked.MaxRestartsAnnotation] = fmt.Sprint("x", i)
		limits.Exceed(references{n.events}, n.pod, "main", n.backOff, n.key("main"), false, at(float64(i)/10))
	}
	assert.Len(t, n.events.Events, 9)
}

// A limit that is lowered ends a pod that waits. The message has the number of restarts.
func TestMaxRestartsLowered(t *testing.T) {
	n, limits := idle(t, false, "main"), &asked.Limits{}
	starts, _ := n.crash(same(limits), "main", "9", 1, func(start int, waits bool) bool {
		if start == 6 && waits {
			n.pod.Annotations[asked.MaxRestartsAnnotation] = "2"
		}
		return false
	})
	assert.Equal(t, 6, starts)
	assert.Equal(t, "Container main was restarted 5 times in a row, and annotation kubelet-backoff.github.io/max-restarts allows 2", limits.Exceeded("u1"))
	// A pod with the UID of one that is gone may start.
	limits.Forget("u1")
	assert.Empty(t, limits.Exceeded("u1"))
	delete(n.pod.Annotations, asked.MaxRestartsAnnotation)
	assert.False(t, limits.Exceed(nil, n.pod, "main", n.backOff, n.key("main"), true, at(n.now)))
}

// A nil *Limits, and a pod without the annotation, restart without end.
func TestMaxRestartsOff(t *testing.T) {
	var off *asked.Limits
	n := idle(t, false, "main")
	starts, _ := n.crash(same(off), "main", "1", 1, nil)
	assert.Greater(t, starts, 400)
	assert.Empty(t, off.Exceeded("u1"))
	off.Forget("u1")
	limits := &asked.Limits{}
	starts, _ = idle(t, false, "main").crash(same(limits), "main", "", 1, nil)
	assert.Greater(t, starts, 400)
}

// Limits does not grow with pods that have ended long ago.
func TestMaxRestartsForgets(t *testing.T) {
	limits := &asked.Limits{}
	b := idle(t, false).backOff
	var wait sync.WaitGroup
	for i := range 100 {
		wait.Add(1)
		go func() {
			defer wait.Done()
			pod := newPod(types.UID(fmt.Sprint(i)), "main")
			pod.Annotations[asked.MaxRestartsAnnotation] = "0"
			key := restart.Key(pod, &v1.Container{Name: "main"})
			b.Decide(key, at(0), at(0))
			assert.True(t, limits.Exceed(nil, pod, "main", b, key, false, at(0)))
			assert.NotEmpty(t, limits.Exceeded(pod.UID))
		}()
	}
	wait.Wait()
	require.Equal(t, 100, limits.Len())
	pod := newPod("late", "main")
	pod.Annotations[asked.MaxRestartsAnnotation] = "x"
	limits.Exceed(nil, pod, "main", b, "", false, at(3601))
	require.Equal(t, 1, limits.Len())
}
