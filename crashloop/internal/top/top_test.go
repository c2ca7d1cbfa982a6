// SPDX-License-Identifier: Apache-2.0

package top

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// newPod returns a pod with the given age and status.
func newPod(t *testing.T, age time.Duration, status string) *v1.Pod {
	t.Helper()
	pod := &v1.Pod{}
	require.NoError(t, yaml.UnmarshalStrict([]byte("metadata: {name: web, namespace: shop, uid: u}\nstatus: {"+status+"}\n"), pod))
	pod.CreationTimestamp = metav1.NewTime(now.Add(-age))
	return pod
}

// main is the status of a container.
func main(restarts int, state string) string {
	return fmt.Sprintf("containerStatuses: [{name: main, restartCount: %d, %s}]", restarts, state)
}

func waits(delay string) string {
	return "state: {waiting: {reason: CrashLoopBackOff, message: back-off " + delay + " restarting failed container=main pod=web_shop(u)}}"
}

const (
	exited    = `, lastState: {terminated: {exitCode: 3, startedAt: "2026-01-01T11:59:49Z", finishedAt: "2026-01-01T11:59:50Z"}}`
	restarted = `state: {running: {startedAt: "2026-01-01T11:58:00Z"}}`
)

// format formats rows as CONTAINER EXIT ATTEMPT STATE SECONDS RESTARTS.
func format(rows []Row) string {
	var b strings.Builder
	for _, r := range rows {
		if !r.Listed() {
			continue
		}
		exit, until, bound := "-", "-", ""
		if r.ExitCode != nil {
			exit = fmt.Sprint(*r.ExitCode)
		}
		if r.WaitsUntil != nil {
			until = fmt.Sprint(r.WaitsUntil.Sub(now).Seconds())
		}
		if r.AtLeast {
			bound = ">="
		}
		fmt.Fprintf(&b, "%s %s %d %s %s %s%d\n", r.Container, exit, r.Attempt, r.State, until, bound, r.RestartsLastHour)
	}
	return b.String()
}

func TestRows(t *testing.T) {
	started := func(first, last time.Duration, count int32) v1.Event {
		return v1.Event{
			InvolvedObject: v1.ObjectReference{UID: "u", FieldPath: "spec.containers{main}"}, Reason: StartedReason, Count: count,
			FirstTimestamp: metav1.NewTime(now.Add(-first)), LastTimestamp: metav1.NewTime(now.Add(-last)),
		}
	}
	const young, old = 10 * time.Minute, 5 * time.Hour
	tests := []struct {
		name   string
		age    time.Duration
		status string
		events []v1.Event
		want   string
	}{
		{"waits", young, main(4, waits("40s")+exited), nil, "main 3 5 CrashLoopBackOff 30 4\n"},
		{"its kubelet is late", young, main(4, waits("5s")+exited), nil, "main 3 5 CrashLoopBackOff -5 4\n"},
		{"waits for the first time", old, main(0, waits("10s")+exited), nil, "main 3 1 CrashLoopBackOff 0 0\n"},
		{"the start failed, so there was no exit", old, main(0, waits("10s")), nil, "main - 1 CrashLoopBackOff - 0\n"},
		{"the message has no delay", young, main(1, "state: {waiting: {reason: CrashLoopBackOff}}"+exited), nil, "main 3 2 CrashLoopBackOff - 1\n"},
		{"runs again", young, main(1, restarted+exited), nil, "main 3 1 Running - 1\n"},
		{"never restarted", young, main(0, restarted), nil, ""},
		{"ended for good", young, main(1, `state: {terminated: {exitCode: 7, startedAt: "2026-01-01T11:59:00Z", finishedAt: "2026-01-01T11:59:01Z"}}`+exited), nil, "main 7 1 Terminated - 1\n"},
		{"its image is gone", young, main(1, "state: {waiting: {reason: ImagePullBackOff}}"+exited), nil, "main 3 1 ImagePullBackOff - 1\n"},

		{"the last restart was long ago", old, main(9, `state: {running: {startedAt: "2026-01-01T10:00:00Z"}}`+strings.ReplaceAll(exited, "T11:", "T08:")), nil, ""},
		{"exited now, started long ago", old, main(9, waits("10s")+strings.Replace(exited, "startedAt: \"2026-01-01T11", "startedAt: \"2026-01-01T01", 1)), nil, "main 3 10 CrashLoopBackOff 0 0\n"},
		{"no events", old, main(9, restarted+exited), nil, "main 3 9 Running - >=1\n"},
		{"no times of its runs", old, main(9, `state: {running: {startedAt: "1970-01-01T00:00:00Z"}}`), nil, ""},
		{"events of the hour", old, main(9, waits("40s")+exited), []v1.Event{started(50*time.Minute, time.Minute, 5)}, "main 3 10 CrashLoopBackOff 30 >=5\n"},
		{"events from before the hour too", old, main(9, waits("40s")+exited), []v1.Event{started(2*time.Hour, time.Minute, 5), started(30*time.Minute, time.Minute, 2)}, "main 3 10 CrashLoopBackOff 30 >=3\n"},
		{"events before the hour", old, main(9, waits("40s")+exited), []v1.Event{started(3*time.Hour, 2*time.Hour, 5)}, "main 3 10 CrashLoopBackOff 30 >=1\n"},
		{"the first start is no restart", old, main(1, waits("40s")+exited), []v1.Event{started(50*time.Minute, time.Minute, 2)}, "main 3 2 CrashLoopBackOff 30 >=1\n"},
		{"events of others", old, main(9, waits("40s")+exited), []v1.Event{
			{InvolvedObject: v1.ObjectReference{UID: "u", FieldPath: "spec.containers{other}"}, Reason: StartedReason, Count: 7, FirstTimestamp: metav1.NewTime(now)},
			{InvolvedObject: v1.ObjectReference{UID: "v", FieldPath: "spec.containers{main}"}, Reason: StartedReason, Count: 7, FirstTimestamp: metav1.NewTime(now)},
			{InvolvedObject: v1.ObjectReference{UID: "u", FieldPath: "spec.containers{main}"}, Reason: "Pulled", Count: 7, FirstTimestamp: metav1.NewTime(now)},
		}, "main 3 10 CrashLoopBackOff 30 >=1\n"},
		{"events of several containers, combined", old, main(9, waits("40s")+exited), []v1.Event{
			{InvolvedObject: v1.ObjectReference{UID: "u", FieldPath: "spec.containers{main}"}, Reason: StartedReason, Count: 7, FirstTimestamp: metav1.NewTime(now), Message: "(combined from similar events): Started container other"},
		}, "main 3 10 CrashLoopBackOff 30 >=1\n"},

		{"as many as the API can have", old, main(2147483647, waits("1h")+strings.ReplaceAll(exited, "2026-01-01T11", "9999-12-31T23")), []v1.Event{
			started(50*time.Minute, time.Minute, 2147483647), started(50*time.Minute, time.Minute, 2147483647),
		}, "main 3 2147483648 CrashLoopBackOff - >=2147483647\n"},
		{"a negative delay", young, main(4, waits("-5s")+exited), nil, "main 3 5 CrashLoopBackOff - 4\n"},

		{"init containers and sidecars", young, "init" + strings.Replace(main(4, waits("40s")+exited), "container", "Container", 1), nil, "main 3 5 CrashLoopBackOff 30 4\n"},
		{
			// The exit of other begins the wait of all containers. main was killed later.
			"the whole pod restarts", young, `conditions: [{type: PodRestarting, status: "True"}], containerStatuses: [` +
				`{name: main, restartCount: 1, state: {waiting: {reason: CrashLoopBackOff, message: "back-off 20s restarting pod web: Container other exited with code 42, triggering pod restart"}}, lastState: {terminated: {exitCode: 143, finishedAt: "2026-01-01T11:59:58Z"}}}, ` +
				`{name: other, restartCount: 1, state: {waiting: {reason: CrashLoopBackOff, message: "back-off 20s restarting pod web: Container other exited with code 42, triggering pod restart"}}, lastState: {terminated: {exitCode: 42, finishedAt: "2026-01-01T11:59:45Z"}}}]`,
			nil, "main 143 2 CrashLoopBackOff 5 1\nother 42 2 CrashLoopBackOff 5 1\n",
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.want, format(NewHistory(tc.events).Rows(newPod(t, tc.age, tc.status), now)))
		})
	}
}

// The containers of a static pod are older than a new mirror of it, and their events have the
// UID that the kubelet gave to the pod.
func TestMirrorPod(t *testing.T) {
	pod := newPod(t, time.Minute, main(40, waits("40s")+exited))
	pod.Annotations = map[string]string{v1.MirrorPodAnnotationKey: "hash"}
	h := NewHistory([]v1.Event{{
		InvolvedObject: v1.ObjectReference{UID: "hash", FieldPath: "spec.containers{main}"}, Reason: StartedReason, Count: 4,
		FirstTimestamp: metav1.NewTime(now.Add(-30 * time.Minute)), LastTimestamp: metav1.NewTime(now),
	}})
	h.Retain(func(uid types.UID) bool { return uid == UID(pod) })
	require.Equal(t, "main 3 41 CrashLoopBackOff 30 >=4\n", format(h.Rows(pod, now)))
}

// What a watch has seen makes the number of an old pod's restarts exact after an hour.
func TestHistory(t *testing.T) {
	h := NewHistory([]v1.Event{{
		InvolvedObject: v1.ObjectReference{UID: "u", FieldPath: "spec.containers{main}"}, Reason: StartedReason, Count: 4,
		FirstTimestamp: metav1.NewTime(now.Add(-30 * time.Minute)), LastTimestamp: metav1.NewTime(now.Add(-time.Minute)),
	}})
	at := func(after time.Duration, restarts int) string {
		t.Helper()
		began := now.Add(after - time.Minute).Format(time.RFC3339)
		pod := newPod(t, 5*time.Hour, main(restarts, `state: {running: {startedAt: "`+began+`"}}`))
		return strings.TrimSpace(format(h.Rows(pod, now.Add(after))))
	}
	require.Equal(t, "main - 20 Running - >=4", at(0, 20))
	require.Equal(t, "main - 23 Running - >=7", at(20*time.Minute, 23))
	require.Equal(t, "main - 24 Running - >=5", at(40*time.Minute, 24), "the first of the events are too old")
	require.Equal(t, "main - 24 Running - 4", at(60*time.Minute, 24))
	require.Equal(t, "main - 25 Running - 2", at(90*time.Minute, 25), "since 23 at 20 minutes")
	require.Empty(t, at(100*time.Minute, 0), "the kubelet has lost the count")
	require.Equal(t, "main - 2 Running - >=2", at(105*time.Minute, 2))
	h.Retain(func(pod types.UID) bool { return pod != "u" })
	require.Equal(t, "main - 25 Running - >=1", at(110*time.Minute, 25), "nothing is known of a pod that was forgotten")
}

// The kubelet writes the event of a start before the status, which may be a minute later if there
// is a hook or a pull of another container.
func TestEventBeforeStatus(t *testing.T) {
	h := NewHistory([]v1.Event{{
		InvolvedObject: v1.ObjectReference{UID: "u", FieldPath: "spec.containers{main}"}, Reason: StartedReason, Count: 5,
		FirstTimestamp: metav1.NewTime(now.Add(-25 * time.Minute)), LastTimestamp: metav1.NewTime(now),
	}})
	require.Equal(t, "main 3 20 CrashLoopBackOff 290 >=5\n", format(h.Rows(newPod(t, 5*time.Hour, main(19, waits("5m")+exited)), now)))
	running := main(20, `state: {running: {startedAt: "`+now.Format(time.RFC3339)+`"}}`+exited)
	require.Equal(t, "main 3 20 Running - >=5\n", format(h.Rows(newPod(t, 5*time.Hour, running), now.Add(time.Second))))
}

// A start that failed has no time, and the last exit may be long ago.
func TestStartsFail(t *testing.T) {
	h := NewHistory(nil)
	failed := func(restarts int) string {
		return format(h.Rows(newPod(t, 12*time.Hour, main(restarts, "state: {waiting: {reason: RunContainerError}}"+strings.ReplaceAll(exited, "T11:", "T01:"))), now))
	}
	require.Empty(t, failed(9))
	require.Equal(t, "main 3 10 RunContainerError - >=1\n", failed(10))
}

func TestSort(t *testing.T) {
	at := func(d time.Duration) *time.Time { return new(now.Add(d)) }
	rows := []Row{
		{Container: "runs", Pod: "b", State: StateRunning}, {Container: "runs", Pod: "a", State: StateRunning},
		{Container: "unknown", State: StateWaiting}, {Container: "later", State: StateWaiting, WaitsUntil: at(time.Minute)},
		{Container: "second", State: StateWaiting, WaitsUntil: at(0)}, {Container: "late", State: StateWaiting, WaitsUntil: at(-time.Second)},
	}
	Sort(rows)
	var order []string
	for _, r := range rows {
		order = append(order, r.Container+r.Pod)
	}
	require.Equal(t, []string{"late", "second", "later", "unknown", "runsa", "runsb"}, order)
}
