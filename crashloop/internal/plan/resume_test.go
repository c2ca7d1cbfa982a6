// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubelet-backoff/kubelet-backoff/backoff"
)

// statusAt is the status that a container has at a time of a plan.
func statusAt(p *Plan, name string, at time.Time) v1.ContainerStatus {
	s := v1.ContainerStatus{Name: name}
	var last *v1.ContainerStateTerminated
	var started metav1.Time
	for _, e := range p.Entries {
		if e.Container != name || e.Time.After(at) {
			continue
		}
		switch e.Kind {
		case Start:
			started, s.RestartCount = metav1.Time{Time: e.Time}, int32(e.Restarts)
			s.ContainerID = fmt.Sprintf("containerd://%s%d", name, e.Restarts)
			s.State = v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: started}}
		case Exit:
			last = &v1.ContainerStateTerminated{ExitCode: *e.ExitCode, StartedAt: started, FinishedAt: metav1.Time{Time: e.Time}, ContainerID: s.ContainerID}
			s.State = v1.ContainerState{Terminated: last}
		case Wait:
			s.State = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{
				Reason: "CrashLoopBackOff", Message: fmt.Sprintf("back-off %v restarting failed container=%s pod=web_default(x)", e.Until.Sub(last.FinishedAt.Time), name),
			}}
		}
	}
	if last != s.State.Terminated {
		s.LastTerminationState.Terminated = last
	}
	return s
}

// A plan that begins with the status of a pod at any time is what is left of the plan from the
// pod's start.
func TestGoesOn(t *testing.T) {
	every := 53 * time.Second
	if testing.Short() {
		every = 211 * time.Second
	}
	for _, curve := range []backoff.Curve{
		{Initial: 10 * time.Second, Max: 300 * time.Second}, {Initial: time.Second, Max: time.Minute}, {Initial: 10 * time.Second, Max: 300 * time.Second, DelayFirst: true},
	} {
		for _, life := range []string{"1@3s", "1@0s", "0@1m", "1@9m"} {
			o := options(t, "spec: {initContainers: [{name: side, restartPolicy: Always}], containers: [{name: main}, {name: other}]}").with(t, "main", life)
			o.Curve, o.For = curve, 40*time.Minute
			side, err := ParseLives("1@17s")
			require.NoError(t, err)
			o.Lives["side"], o.Lives["other"] = side, Lives{{Runs: true}}
			whole, err := Make(o)
			require.NoError(t, err)
			for after := time.Second; after < o.For; after += every {
				at := begin.Add(after)
				if slices.ContainsFunc(whole.Entries, func(e Entry) bool { return e.Time.Equal(at) }) {
					continue // The status could be that before or after it.
				}
				left := func(p *Plan) string {
					rest := *p
					rest.Begin, rest.Entries = at, slices.DeleteFunc(slices.Clone(p.Entries), func(e Entry) bool { return !e.Time.After(at) })
					return text(&rest)
				}
				o := o
				o.Pod, o.Begin, o.For = o.Pod.DeepCopy(), at, o.For-after
				o.Pod.Status = v1.PodStatus{
					Phase: v1.PodRunning, StartTime: &metav1.Time{Time: begin}, InitContainerStatuses: []v1.ContainerStatus{statusAt(whole, "side", at)},
					ContainerStatuses: []v1.ContainerStatus{statusAt(whole, "main", at), statusAt(whole, "other", at)},
				}
				p, err := Make(o)
				require.NoError(t, err)
				require.Equal(t, left(whole), left(p), "%+v, %s, after %v", curve, life, after)
				assert.Empty(t, p.Notes)
			}
		}
	}
}

// Instances whose IDs are not in the status are stopped one by one: regular containers first.
func TestStatusWithoutIDs(t *testing.T) {
	running := v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.Time{Time: begin}}}
	for range 20 {
		o := options(t, "spec: {initContainers: [{name: side, restartPolicy: Always}], containers: [{name: main}, {name: other}]}")
		o.Begin = begin.Add(time.Second)
		o.Lives = map[string]Lives{"side": {{Runs: true}}, "main": {{Runs: true}}, "other": {{Runs: true}}}
		o.Pod.DeletionTimestamp = &metav1.Time{Time: begin}
		o.Pod.Status = v1.PodStatus{
			InitContainerStatuses: []v1.ContainerStatus{{Name: "side", State: running}},
			ContainerStatuses:     []v1.ContainerStatus{{Name: "main", State: running}, {Name: "other", State: running}},
		}
		given := o.Pod.DeepCopy()
		p, err := Make(o)
		require.NoError(t, err)
		var exits []string
		for _, e := range p.Entries {
			if e.Kind == Exit {
				exits = append(exits, e.Container)
			}
		}
		require.Equal(t, []string{"main", "other", "side"}, exits)
		require.Equal(t, given, o.Pod, "Make must not change the pod")
	}
}
