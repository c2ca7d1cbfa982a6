// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

// api is an importer that keeps the status of its pod in an API.
type api struct {
	pod    *v1.Pod
	status v1.PodStatus
	s      *script
	lines  []string
}

// report converts a status, and writes what has changed in phase, conditions and containers.
func (r *api) report(t *testing.T, s Status) {
	before := *r.status.DeepCopy()
	next := s.PodStatus(r.pod, r.status, r.s.now, "10.0.0.1")
	require.Equal(t, before, r.status, "the argument does not change")
	require.Equal(t, next, s.PodStatus(r.pod, next, r.s.now.Add(time.Hour), ""), "a second call changes nothing")
	if len(next.Conditions) == 0 || !next.StartTime.Time.Equal(r.s.begin) || next.PodIP != "10.0.0.1" {
		t.Errorf("%+v", next)
	}
	data, err := json.Marshal(next)
	require.NoError(t, err)
	next = v1.PodStatus{} // The API keeps whole seconds.
	require.NoError(t, json.Unmarshal(data, &next))
	tell := func(format string, args ...any) {
		r.lines = append(r.lines, fmt.Sprint(r.s.now.Sub(r.s.begin), " ", strings.TrimRight(fmt.Sprintf(format, args...), " :")))
	}
	if next.Phase != before.Phase {
		tell("%s %s", next.Phase, next.Reason)
	}
	for _, c := range next.Conditions {
		old := v1.PodCondition{}
		for _, o := range before.Conditions {
			if o.Type == c.Type {
				old = o
			}
		}
		if old.Status == c.Status {
			require.True(t, isRestartCondition(c) || old.LastTransitionTime.Equal(&c.LastTransitionTime))
		} else if !isRestartCondition(c) {
			require.Equal(t, r.s.now.Truncate(time.Second), c.LastTransitionTime.Time.UTC())
		}
		if old.Status != c.Status || old.Reason != c.Reason || old.Message != c.Message {
			tell("%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message)
		}
	}
	r.status = next
}

// run runs a pod and returns what report has written.
func (r *api) run(t *testing.T, lasts time.Duration, o Options) string {
	t.Helper()
	o.Pod, o.Runtime, o.Report, o.Gates = r.pod, r.s, func(s Status) { r.report(t, s) }, allGates
	a, err := New(o)
	require.NoError(t, err)
	if !r.s.drive(a, lasts) {
		return strings.Join(r.lines, "\n") + "\n"
	}
	return strings.Join(append(r.lines, "gone"), "\n") + "\n"
}

func TestPodStatus(t *testing.T) {
	for _, tc := range []struct {
		name, spec string
		runs       time.Duration
		code       int32
		lasts      time.Duration
		want       string
	}{
		{
			name:  "a container in back-off is not ready",
			spec:  `containers: [{name: main}]`,
			runs:  5 * time.Second,
			code:  1,
			lasts: 21 * time.Second,
			want: `
				0s Pending
				0s Initialized=True
				0s ContainersReady=False ContainersNotReady: containers with unready status: [main]
				0s Ready=False ContainersNotReady: containers with unready status: [main]
				0s PodScheduled=True
				0s Running
				0s ContainersReady=True
				0s Ready=True
				5s ContainersReady=False ContainersNotReady: containers with unready status: [main]
				5s Ready=False ContainersNotReady: containers with unready status: [main]
				5s ContainersReady=True
				5s Ready=True
				10s ContainersReady=False ContainersNotReady: containers with unready status: [main]
				10s Ready=False ContainersNotReady: containers with unready status: [main]
				20s ContainersReady=True
				20s Ready=True
			`,
		},
		{
			name: "init containers and sidecars",
			spec: `
restartPolicy: OnFailure
initContainers:
- {name: proxy, restartPolicy: Always, startupProbe: {exec: {command: [up]}}, readinessProbe: {exec: {command: [up]}, initialDelaySeconds: 9}}
- {name: setup}
containers: [{name: main}]`,
			runs:  6 * time.Second,
			lasts: time.Minute,
			want: `
				0s Pending
				0s Initialized=False ContainersNotInitialized: containers with incomplete status: [proxy setup]
				0s ContainersReady=False ContainersNotReady: containers with unready status: [proxy main]
				0s Ready=False ContainersNotReady: containers with unready status: [proxy main]
				0s PodScheduled=True
				1s Initialized=False ContainersNotInitialized: containers with incomplete status: [setup]
				6s Initialized=False ContainersNotInitialized: containers with incomplete status: [proxy setup]
				7s Initialized=False ContainersNotInitialized: containers with incomplete status: [proxy]
				7s Running
				7s Initialized=True
				7s ContainersReady=False ContainersNotReady: containers with unready status: [proxy]
				7s Ready=False ContainersNotReady: containers with unready status: [proxy]
				13s ContainersReady=False ContainersNotReady: containers with unready status: [proxy main]
				13s Ready=False ContainersNotReady: containers with unready status: [proxy main]
				13s Succeeded
				13s Initialized=True PodCompleted
				13s ContainersReady=False PodCompleted
				13s Ready=False PodCompleted
				gone
			`,
		},
		{
			name:  "a failed init container",
			spec:  `{restartPolicy: Never, initContainers: [{name: setup}], containers: [{name: main}]}`,
			runs:  time.Second,
			code:  1,
			lasts: time.Minute,
			want: `
				0s Pending
				0s Initialized=False ContainersNotInitialized: containers with incomplete status: [setup]
				0s ContainersReady=False ContainersNotReady: containers with unready status: [main]
				0s Ready=False ContainersNotReady: containers with unready status: [main]
				0s PodScheduled=True
				1s Failed
				1s ContainersReady=False PodFailed
				1s Ready=False PodFailed
				gone
			`,
		},
		{
			name: "a restart of the pod that waits",
			spec: `
restartPolicy: Never
initContainers: [{name: setup}]
containers: [{name: main, restartPolicy: Never, restartPolicyRules: [{action: RestartPod, exitCodes: {operator: In, values: [0]}}]}]`,
			runs:  time.Second,
			lasts: 5 * time.Second,
			want: `
				0s Pending
				0s Initialized=False ContainersNotInitialized: containers with incomplete status: [setup]
				0s ContainersReady=False ContainersNotReady: containers with unready status: [main]
				0s Ready=False ContainersNotReady: containers with unready status: [main]
				0s PodScheduled=True
				1s Initialized=True
				1s Running
				1s ContainersReady=True
				1s Ready=True
				2s ContainersReady=False ContainersNotReady: containers with unready status: [main]
				2s Ready=False ContainersNotReady: containers with unready status: [main]
				2s PodRestarting=True ContainerExited: Container main exited with code 0, triggering pod restart
				3s ContainersReady=True
				3s Ready=True
				3s PodRestarting=False ContainersStarted: Container main exited with code 0, triggering pod restart
				4s ContainersReady=False ContainersNotReady: containers with unready status: [main]
				4s Ready=False ContainersNotReady: containers with unready status: [main]
				4s PodRestarting=True ContainerExited: Container main exited with code 0, triggering pod restart
			`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := &api{pod: pod(t, tc.spec), s: newScript(tc.runs, tc.code)}
			require.Equal(t, lines(tc.want), r.run(t, tc.lasts, Options{}))
		})
	}
}

// A pod that has ended is not ready while its containers stop, and does not leave its phase.
// A container that never ran in it was lost, unless the pod was not initialized.
func TestPodStatusOfEnd(t *testing.T) {
	p := pod(t, `{initContainers: [{name: setup}], containers: [{name: main}]}`)
	run := v1.ContainerState{Running: &v1.ContainerStateRunning{}}
	wait := v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ContainerCreating"}}
	done := v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: "Completed"}}
	s := Status{Phase: v1.PodRunning, Ended: v1.PodFailed, Containers: []ContainerStatus{
		{Name: "setup", Kind: restartpod.KindInit, State: done, Ready: true}, {Name: "main", Kind: restartpod.KindRegular, State: run, Ready: true, Started: true},
	}}
	now := time.Unix(1000, 0)
	got := s.PodStatus(p, v1.PodStatus{}, now)
	require.Equal(t, v1.PodRunning, got.Phase)
	require.Equal(t, "PodFailed", got.Conditions[2].Reason)
	require.Equal(t, v1.ConditionFalse, got.Conditions[2].Status)
	require.NotNil(t, got.ContainerStatuses[0].State.Running)

	s.Phase, s.Containers[1].State = v1.PodFailed, wait
	got = s.PodStatus(p, v1.PodStatus{}, now)
	require.Equal(t, int32(137), got.ContainerStatuses[0].State.Terminated.ExitCode)
	require.Equal(t, "ContainerStatusUnknown", got.ContainerStatuses[0].State.Terminated.Reason)
	require.Equal(t, "Completed", got.InitContainerStatuses[0].State.Terminated.Reason)

	s.Containers[0] = ContainerStatus{Name: "setup", Kind: restartpod.KindInit, State: wait}
	got = s.PodStatus(p, v1.PodStatus{}, now)
	require.Equal(t, wait, got.ContainerStatuses[0].State)
	require.Equal(t, "ContainerStatusUnknown", got.InitContainerStatuses[0].State.Terminated.Reason, "the first one counts as lost in any case")
	again := s
	again.Containers = slices.Insert(slices.Clone(s.Containers), 1,
		ContainerStatus{Name: "second", Kind: restartpod.KindInit, State: wait, LastExit: done.Terminated}, ContainerStatus{Name: "third", Kind: restartpod.KindInit, State: wait})
	got = again.PodStatus(p, v1.PodStatus{}, now)
	require.NotNil(t, got.InitContainerStatuses[1].State.Terminated)
	require.Equal(t, wait, got.InitContainerStatuses[2].State)

	old := v1.PodStatus{Phase: v1.PodSucceeded, Reason: "old"}
	got = s.PodStatus(p, old, now)
	require.Equal(t, v1.PodSucceeded, got.Phase)
	require.Equal(t, "old", got.Reason)
	require.Equal(t, v1.ConditionTrue, got.Conditions[0].Status)
	require.Equal(t, "PodCompleted", got.Conditions[2].Reason)
}

// The conditions of readiness gates are those of the old status.
func TestPodStatusGates(t *testing.T) {
	p := pod(t, `{containers: [{name: main}], readinessGates: [{conditionType: a}, {conditionType: b}]}`)
	p.Generation = 3
	s := newScript(0, 0)
	a := s.agent(t, p)
	s.drive(a, time.Second)
	ready := func(c ...v1.PodCondition) v1.PodCondition {
		status := a.Status().PodStatus(p, v1.PodStatus{Conditions: c}, s.now)
		require.Equal(t, c, status.Conditions[:len(c)], "they stay")
		return status.Conditions[len(c)+2]
	}
	want := v1.PodCondition{
		Type: v1.PodReady, Status: v1.ConditionFalse, Reason: "ReadinessGatesNotReady", LastTransitionTime: metav1.NewTime(s.now), ObservedGeneration: 3,
		Message: `the status of pod readiness gate "a" is not "True", but False, corresponding condition of pod readiness gate "b" does not exist.`,
	}
	require.Equal(t, want, ready(v1.PodCondition{Type: "a", Status: v1.ConditionFalse}))
	want.Status, want.Reason, want.Message = v1.ConditionTrue, "", ""
	require.Equal(t, want, ready(v1.PodCondition{Type: "b", Status: v1.ConditionTrue}, v1.PodCondition{Type: "a", Status: v1.ConditionTrue}))
}

// The status of a container has the exit before the one in its state, what the importer has
// added for an instance, and never fewer restarts.
func TestPodStatusOfContainer(t *testing.T) {
	s := newScript(5*time.Second, 3)
	p := pod(t, `{restartPolicy: OnFailure, containers: [{name: main, image: crash}]}`)
	r := &api{pod: p, s: s}
	at := func(d time.Duration, o Options) v1.ContainerStatus {
		r.run(t, d, o)
		return r.status.ContainerStatuses[0]
	}
	c := at(2*time.Second, Options{})
	require.Equal(t, "main crash main#0 0", fmt.Sprint(c.Name, " ", c.Image, " ", c.ContainerID, " ", c.RestartCount))
	require.Nil(t, c.LastTerminationState.Terminated)
	r.status.ContainerStatuses[0].ImageID = "sha256:1"
	s.now = s.begin.Add(5 * time.Second)
	s.exit("main", 3)

	// The next agent knows only the newest instance. Start and exit are seen at once.
	s.Start(context.Background(), &p.Spec.Containers[0], 1)
	c = at(time.Second, Options{Earlier: r.status})
	require.Equal(t, int32(1), c.RestartCount)
	require.Empty(t, c.ImageID)
	s.code = 0
	c = at(10*time.Second, Options{Earlier: r.status})
	require.Equal(t, int32(0), c.State.Terminated.ExitCode)
	require.Equal(t, v1.PodSucceeded, r.status.Phase)

	status := ContainerStatus{Name: "main", ID: "2", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ContainerID: "2"}}}
	first := v1.ContainerStatus{Name: "main", ContainerID: "1", ImageID: "sha256:1", RestartCount: 9, State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ContainerID: "1"}}}
	got := status.status([]v1.ContainerStatus{{Name: "other"}, first})
	require.Equal(t, "1", got.LastTerminationState.Terminated.ContainerID)
	require.Equal(t, int32(9), got.RestartCount)
	require.Empty(t, got.ImageID)
	got.ImageID = "sha256:2"
	again := status.status([]v1.ContainerStatus{got})
	require.Equal(t, got, again)

	// The next agent, with a newer instance, does not know of the exit.
	next := ContainerStatus{Name: "main", ID: "3", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}
	require.Equal(t, "2", next.status([]v1.ContainerStatus{again}).LastTerminationState.Terminated.ContainerID)

	// Deleted in back-off: the exit that was the last state is the state again.
	status.LastExit, status.State = status.State.Terminated, v1.ContainerState{Waiting: &v1.ContainerStateWaiting{}}
	got = status.status([]v1.ContainerStatus{again})
	require.Equal(t, "2", got.LastTerminationState.Terminated.ContainerID)
	status.State = v1.ContainerState{Terminated: status.LastExit}
	require.Nil(t, status.status([]v1.ContainerStatus{got}).LastTerminationState.Terminated)
}

// The importer's status stays where the agent has nothing to say, and is not shared.
func TestPodStatusKeeps(t *testing.T) {
	s := newScript(0, 0)
	p := pod(t, `containers: [{name: main}]`)
	a := s.agent(t, p)
	s.drive(a, time.Second)
	began := metav1.NewTime(s.begin.Add(-time.Hour))
	old := v1.PodStatus{
		Phase: v1.PodRunning, Reason: "NodeLost", Message: "gone", HostIP: "192.0.2.1", QOSClass: v1.PodQOSGuaranteed, StartTime: &began, PodIP: "10.0.0.9", PodIPs: []v1.PodIP{{IP: "10.0.0.9"}},
		Conditions: []v1.PodCondition{{Type: restartpod.PodRestarting, Status: v1.ConditionTrue}, {Type: v1.DisruptionTarget}},
	}
	got := a.Status().PodStatus(p, old, s.now)
	require.Equal(t, old.HostIP+" "+string(old.QOSClass)+" "+old.PodIP, got.HostIP+" "+string(got.QOSClass)+" "+got.PodIP)
	require.True(t, began.Equal(got.StartTime))
	require.Equal(t, "NodeLost gone", got.Reason+" "+got.Message, "the phase is the same")
	pending := v1.PodStatus{Phase: v1.PodPending, Reason: "Unschedulable", Message: "full"}
	require.Empty(t, a.Status().PodStatus(p, pending, s.now).Reason, "the phase is another one")
	require.Equal(t, v1.DisruptionTarget, got.Conditions[0].Type, "the agent knows of no restart")
	require.Len(t, got.Conditions, 5)
	ips := []string{"", "fd00::1", "10.0.0.1"}
	got = a.Status().PodStatus(p, got, s.now, ips...)
	require.Equal(t, []string{"", "fd00::1", "10.0.0.1"}, ips)
	require.Equal(t, "fd00::1", got.PodIP)
	require.Equal(t, []v1.PodIP{{IP: "fd00::1"}, {IP: "10.0.0.1"}}, got.PodIPs)

	require.True(t, a.Status().PodStatus(p, v1.PodStatus{StartTime: &metav1.Time{}}, s.now).StartTime.Time.Equal(s.begin), "a zero time is none")

	s.runs, s.code = time.Second, 1
	s.drive(a, 5*time.Second)
	got = a.Status().PodStatus(p, got, s.now)
	got.ContainerStatuses[0].LastTerminationState.Terminated.ContainerID = "containerd://1"
	require.Equal(t, "main#1", a.Status().Containers[0].LastExit.ContainerID)
}

// The conditions of an earlier agent are not those of this one, except for restarts of the
// pod.
func TestEarlierConditions(t *testing.T) {
	s := newScript(0, 0)
	o := Options{Pod: pod(t, `containers: [{name: main}]`), Runtime: s}
	o.Earlier.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
	o.Report = func(s Status) { require.Empty(t, s.Conditions) }
	a, err := New(o)
	require.NoError(t, err)
	s.drive(a, time.Second)
}
