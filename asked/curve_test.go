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
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubelet-backoff/kubelet-backoff/asked"
	"github.com/kubelet-backoff/kubelet-backoff/backoff"
	"github.com/kubelet-backoff/kubelet-backoff/restart"
)

var nodeCurve = backoff.Curve{Initial: 10 * time.Second, Max: 300 * time.Second}

// curvedNode is a node that has never run its pod.
func curvedNode(t *testing.T, containers ...string) (*node, *asked.Curves) {
	n, curves := idle(t, false, containers...), asked.NewCurves(nodeCurve)
	n.backOff.RulesOf = curves.Rules
	return n, curves
}

// waits lets a container exit with the codes, each after a run of the given seconds, and returns how
// long it waits after each. curves is called before each decision.
func (n *node) waits(curves func() *asked.Curves, container string, run float64, codes ...int32) string {
	n.t.Helper()
	var c *v1.Container
	for i := range n.pod.Spec.Containers {
		if n.pod.Spec.Containers[i].Name == container {
			c = &n.pod.Spec.Containers[i]
		}
	}
	var waits []string
	for i := 0; i <= len(codes); i++ {
		var statuses []restart.ContainerStatus
		exit := n.now
		if i > 0 {
			statuses = []restart.ContainerStatus{n.newest[container]}
		}
		for {
			n.backOff.Clock.(*testingclock.FakeClock).SetTime(at(n.now))
			n.backOff.GC()
			curves().Note(references{n.events}, n.pod, at(n.now))
			restart.RestoreBackOff(n.pod, c, statuses, n.backOff, at(n.now))
			waiting, _ := restart.InBackOff(n.pod, c, statuses, n.backOff, at(n.now))
			wait, _, err := restart.DoBackOff(context.Background(), nil, n.pod, c, statuses, n.backOff, at(n.now))
			if !wait {
				break
			}
			until, _ := restart.MinBackoffExpiration(err)
			require.True(n.t, waiting, "InBackOff after exit %d", i)
			require.False(n.t, restart.Due(n.pod, c, statuses, n.backOff, at(n.now)))
			n.now = until.Sub(start).Seconds()
		}
		if i > 0 {
			waits = append(waits, fmt.Sprintf("%.4g", n.now-exit))
		}
		if i < len(codes) {
			n.newest[container] = restart.ContainerStatus{
				Name: container, State: restart.ContainerStateExited, ExitCode: codes[i], RestartCount: i,
				StartedAt: at(n.now), FinishedAt: at(n.now + run), BackOff: restart.SaveBackOff(n.backOff, restart.Key(n.pod, c), at(n.now)),
			}
			n.now += run
		}
	}
	return strings.Join(waits, " ")
}

func TestCurves(t *testing.T) {
	crash := []int32{1, 1, 1, 1, 1, 1, 1, 1}
	for _, tc := range []struct {
		name, value string
		run         float64
		codes       []int32
		want        string
	}{
		{"none", "", 2, crash, "0 10 20 40 80 160 300 300"},
		{"initial", "initial=1s", 2, crash, "0 1 2 4 8 16 32 64"},
		{"max", "max=30s", 2, crash, "0 10 20 30 30 30 30 30"},
		{"both, with spaces", "initial=4s, max=5s", 2, crash, "0 4 5 5 5 5 5 5"},
		{"reset", "initial=2s,reset=1m", 61, crash, "0 0 0 0 0 0 0 0"},
		{"a run that does not reset", "initial=2s,reset=1m", 60, crash, "0 2 4 8 16 32 64 128"},
		{"a poller", "ignore=0", 30, []int32{0, 0, 0, 0}, "0 0 0 0"},
		{"a poller in a hurry", "ignore=0", 0.25, []int32{0, 0, 0, 0}, "0 0.75 0.75 0.75"},
		{"a poller that crashes", "ignore=0,ignore=7,max=20s", 2, []int32{1, 0, 1, 1, 1, 7, 0, 1, 1}, "0 0 0 10 20 0 0 0 10"},
		{"a poller that crashes each time in a hurry", "ignore=0,initial=1s,max=1s,reset=1s", 0.5, []int32{1, 0, 1, 0, 1}, "0 0.5 0.5 0.5 0.5"},
		{"a long reset", "initial=1s,reset=1h", 1800, []int32{1, 1, 1, 1}, "0 1 2 4"},
		{"the node's maximum", "initial=5m,max=5m", 2, crash[:3], "0 300 300"},
		{"invalid", "initial=1ms", 2, crash[:3], "0 10 20"},
	} {
		for _, kills := range []bool{false, true} {
			if kills && strings.Contains(tc.name, "hurry") {
				continue // The kubelet does not know when it last started the container.
			}
			t.Run(fmt.Sprintf("%s, kubelet killed %t", tc.name, kills), func(t *testing.T) {
				n, curves := curvedNode(t, "main", "other")
				n.pod.Annotations[asked.CurvePrefix+"main"] = tc.value
				kubelet := func() *asked.Curves {
					if kills {
						n.boot(false)
						curves = asked.NewCurves(nodeCurve)
						n.backOff.RulesOf = curves.Rules
					}
					return curves
				}
				assert.Equal(t, tc.want, n.waits(kubelet, "main", tc.run, tc.codes...))
				if !kills {
					n.now = 0
					assert.Equal(t, "0 10 20", n.waits(kubelet, "other", 2, 1, 0, 1))
				}
			})
		}
	}
}

// A node's maximum wins over a larger one.
func TestCurvesOfANode(t *testing.T) {
	n := idle(t, false, "main")
	curves := asked.NewCurves(backoff.Curve{Initial: 2 * time.Second, Max: 2 * time.Second})
	n.backOff.RulesOf = curves.Rules
	n.pod.Annotations[asked.CurvePrefix+"main"] = "initial=10s,max=300s"
	assert.Equal(t, "0 2 2", n.waits(same(curves), "main", 1, 1, 1, 1))
	assert.Empty(t, n.events.Events)
	assert.Empty(t, asked.ValidateCurves(n.pod))
}

// GC and the restore of lost back-offs, which the kubelet calls all the time, leave a poller alone: it
// started over with the first exit that is ignored.
func TestCurvesPoll(t *testing.T) {
	for _, run := range []float64{60, 200, 500} {
		n, curves := curvedNode(t, "main")
		n.pod.Annotations[asked.CurvePrefix+"main"] = "ignore=0"
		codes := []int32{1, 1, 1, 1, 1, 1}
		want := "0 10 20 40 80 160"
		for range 8 {
			for range 20 {
				codes, want = append(codes, 0), want+" 0"
			}
			codes, want = append(codes, 1), want+" 0"
		}
		assert.Equal(t, want, n.waits(same(curves), "main", run, codes...))
	}
}

// A tenant who ends waits with an annotation that changes restarts at most once a second.
func TestCurvesToggle(t *testing.T) {
	n, curves := curvedNode(t, "main")
	name, i := asked.CurvePrefix+"main", 0
	waits := n.waits(func() *asked.Curves {
		i++
		n.pod.Annotations[name] = fmt.Sprint("ignore=", i%2+1)
		return curves
	}, "main", 0.25, 1, 1, 1, 1, 1, 1, 1, 1)
	for _, w := range strings.Fields(waits)[1:] {
		assert.GreaterOrEqual(t, w, "0.75", waits)
	}
}

// An annotation that changes counts for the present wait. One that is removed has the same restarts
// in a row on the node's curve.
func TestCurvesChange(t *testing.T) {
	n, curves := curvedNode(t, "main")
	name, decisions := asked.CurvePrefix+"main", 0
	n.pod.Annotations[name] = "initial=1s"
	waits := n.waits(func() *asked.Curves {
		if decisions++; decisions == 7 { // after the fourth exit
			n.pod.Annotations[name] = "initial=1s,max=2s"
		}
		return curves
	}, "main", 1, 1, 1, 1, 1)
	assert.Equal(t, "0 1 2 2", waits)
	delete(n.pod.Annotations, name)
	curves.Note(nil, n.pod, at(n.now))
	assert.Nil(t, curves.Rules(n.key("main")))
	d := n.backOff.Peek(n.key("main"), at(n.now+1), at(n.now+1))
	assert.Equal(t, 80*time.Second, d.Delay)
	// The rules of a container that changes are those of its new key.
	n.pod.Annotations[name] = "initial=1s"
	curves.Note(nil, n.pod, at(n.now))
	old := n.key("main")
	require.NotNil(t, curves.Rules(old))
	n.pod.Spec.Containers[0].Image = "j"
	curves.Note(nil, n.pod, at(n.now))
	assert.Nil(t, curves.Rules(old))
	assert.NotNil(t, curves.Rules(n.key("main")))
}

func TestCurvesInvalid(t *testing.T) {
	for value, want := range map[string]string{
		"fast":                            `"fast" must be one of`,
		"initial":                         `initial: "" must be a duration from 1s to 5m0s`,
		"initial=999ms":                   `initial: "999ms" must be a duration from 1s to 5m0s`,
		"initial=-1s":                     `initial: "-1s" must be`,
		"max=301s":                        `max: "301s" must be a duration from 1s to 5m0s`,
		"max=1e3s":                        `max: "1e3s" must be`,
		"reset=0s":                        `reset: "0s" must be a duration from 1s to 1h0m0s`,
		"reset=9999999h":                  `reset: "9999999h" must be`,
		"ignore=256":                      `ignore: "256" must be an exit code from 0 to 255`,
		"ignore=-1":                       `ignore: "-1" must be an exit code`,
		"ignore=0+3":                      `ignore: "0+3" must be an exit code`,
		"initial=20s,max=10s":             "initial: 20s must not be more than max, 10s",
		"initial=1s,initial=2s":           `"initial=2s" must be one of`,
		"initial=1s,":                     `"" must be one of`,
		"Initial=1s":                      `"Initial=1s" must be one of`,
		strings.Repeat("ignore=0,", 1000): "must have at most 256 bytes",
		"\x00\n\x1b[31m":                  "must be one of",
	} {
		n, curves := curvedNode(t, "main")
		n.pod.Annotations[asked.CurvePrefix+"main"] = value
		assert.Equal(t, "0 10 20", n.waits(same(curves), "main", 2, 1, 1, 1), value)
		errs := asked.ValidateCurves(n.pod)
		require.Len(t, errs, 1, value)
		assert.Contains(t, errs[0].Error(), want)
		assert.Equal(t, "Warning InvalidAnnotation "+errs[0].Error(), <-n.events.Events, value)
		assert.Empty(t, n.events.Events, "once")
	}
	n, curves := curvedNode(t, "main")
	n.pod.Annotations[asked.CurvePrefix+"mian"] = "initial=1s"
	curves.Note(references{n.events}, n.pod, at(0))
	assert.Contains(t, <-n.events.Events, `restart-backoff.kubelet-backoff.github.io/mian]: Not found: "mian"`)
	pod := newPod("u1", "main")
	pod.Annotations = map[string]string{asked.CurvePrefix + "mian": "initial=1s", asked.CurvePrefix + "main": ""}
	assert.Equal(t, `metadata.annotations[restart-backoff.kubelet-backoff.github.io/mian]: Not found: "mian"`, asked.ValidateCurves(pod).ToAggregate().Error())
}

// Invalid values that change all the time are events once in ten seconds, and pods are forgotten.
func TestCurvesHostile(t *testing.T) {
	curves := asked.NewCurves(nodeCurve)
	n, _ := curvedNode(t, "main")
	for i := range 900 {
		if n.pod.Annotations[asked.CurvePrefix+"main"] = fmt.Sprint("x", i); i%2 == 1 {
			delete(n.pod.Annotations, asked.CurvePrefix+"main")
		}
		curves.Note(references{n.events}, n.pod, at(float64(i)/10))
	}
	assert.Len(t, n.events.Events, 9)
	var wait sync.WaitGroup
	for i := range 100 {
		wait.Add(1)
		go func() {
			defer wait.Done()
			pod := newPod(types.UID(fmt.Sprint(i)), "main")
			pod.Annotations[asked.CurvePrefix+"main"] = "initial=1s"
			curves.Note(nil, pod, at(0))
			assert.NotNil(t, curves.Rules(restart.Key(pod, &pod.Spec.Containers[0])))
		}()
	}
	wait.Wait()
	pods, rules := curves.Len()
	require.Equal(t, [2]int{101, 100}, [2]int{pods, rules})
	assert.Equal(t, 100, curves.Count(at(599)))
	assert.Zero(t, curves.Count(at(600)), "the pods are gone")
	curves.Forget("7")
	curves.Forget("7")
	pods, rules = curves.Len()
	require.Equal(t, [2]int{100, 99}, [2]int{pods, rules})
	delete(n.pod.Annotations, asked.CurvePrefix+"main")
	curves.Note(nil, n.pod, at(90))
	late := newPod("late", "main")
	late.Annotations[asked.CurvePrefix+"main"] = "initial=1s"
	curves.Note(nil, late, at(3691))
	pods, rules = curves.Len()
	require.Equal(t, [2]int{1, 1}, [2]int{pods, rules})
	(*asked.Curves)(nil).Note(nil, late, at(0))
	(*asked.Curves)(nil).Forget("late")
	assert.Nil(t, (*asked.Curves)(nil).Rules("key"))
	assert.Zero(t, (*asked.Curves)(nil).Count(at(0)))
}

// Exits that are ignored do not count for the limit of restarts.
func TestCurvesAndMaxRestarts(t *testing.T) {
	n, curves := curvedNode(t, "main")
	n.pod.Annotations = map[string]string{asked.CurvePrefix + "main": "ignore=1", asked.MaxRestartsAnnotation: "0"}
	curves.Note(nil, n.pod, at(0))
	limits := &asked.Limits{}
	starts, _ := n.crash(same(limits), "main", "0", 0.25, nil)
	assert.Greater(t, starts, 400)
}
