// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
)

// mainStatus is a pod whose container has a status.
func mainStatus(restarts int, status string) string {
	return fmt.Sprintf("spec: {containers: [{name: main}]}\nstatus: {phase: Running, containerStatuses: [{name: main, restartCount: %d, %s}]}\n", restarts, status)
}

const crashLoop = `state: {waiting: {reason: CrashLoopBackOff, message: back-off 40s restarting failed container=main pod=web_default(x)}}`

// Statuses as nodes have them, which leave something open, make a plan that says what it assumes.
func TestStatuses(t *testing.T) {
	for _, tc := range []struct {
		name, pod, want, note string
	}{
		{
			name: "evicted", pod: "spec: {containers: [{name: main}]}\nstatus: {phase: Failed, reason: Evicted}\n",
			want: "0s PodEnd Failed\n",
		},
		{
			name: "succeeded", pod: "spec: {restartPolicy: OnFailure, containers: [{name: main}]}\nstatus: {phase: Succeeded}\n",
			want: "0s PodEnd Succeeded\n",
		},
		{
			name: "its clock is ahead", pod: mainStatus(3, crashLoop+`, lastState: {terminated: {exitCode: 1, startedAt: "2026-01-01T12:00:01Z", finishedAt: "2026-01-01T12:00:03Z"}}`),
			want: "0s Wait main 40s until 40s\n40s Start main 4\n42s Exit main 1\n42s Wait main 80s until 2m2s\n",
			note: "the status is 3s ahead of the local clock: the plan begins at the time of the status",
		},
		{
			name: "a running one's, too", pod: mainStatus(3, `state: {running: {startedAt: "2026-01-01T12:00:59Z"}}`),
			note: "the status is 59s ahead of the local clock: the plan begins at the time of the status",
		},
		{
			name: "the last instance is lost", pod: mainStatus(3, crashLoop),
			want: "0s Wait main 40s until 40s\n40s Start main 4\n41s Exit main 1\n41s Wait main 80s until 2m1s\n",
			note: "the status does not say when main exited: the plan assumes now",
		},
		{
			// As after a reboot of the node: reason ContainerStatusUnknown.
			name: "no times", pod: mainStatus(3, `state: {terminated: {exitCode: 137, startedAt: null, finishedAt: null}}`),
			want: "0s Wait main 40s until 40s\n40s Start main 4\n41s Exit main 137\n41s Wait main 80s until 2m1s\n",
			note: "the status does not say when main exited: the plan assumes now",
		},
		{
			name: "no start", pod: mainStatus(3, `state: {terminated: {exitCode: 2, finishedAt: "2026-01-01T11:59:50Z"}}`),
			want: "0s Wait main 40s until 30s\n30s Start main 4\n31s Exit main 2\n31s Wait main 80s until 1m51s\n1m51s Start main 5\n1m52s Exit main 2\n1m52s Wait main 160s until 4m32s\n",
		},
		{
			name: "1970", pod: mainStatus(3, crashLoop+`, lastState: {terminated: {exitCode: 1, startedAt: "1970-01-01T00:00:00Z", finishedAt: "1970-01-01T00:00:00Z"}}`),
			want: "0s Wait main 40s until 40s\n40s Start main 4\n41s Exit main 1\n41s Wait main 80s until 2m1s\n",
			note: "the status does not say when main exited",
		},
		{
			name: "a ConfigMap is missing", pod: mainStatus(3, `state: {waiting: {reason: CreateContainerConfigError}}`),
			want: "0s Start main 4\n", note: "main waits because of CreateContainerConfigError: the plan assumes that the cause is gone",
		},
		{
			name: "a message that is cut", pod: mainStatus(3, `state: {waiting: {reason: CrashLoopBackOff, message: back-off}}, lastState: {terminated: {exitCode: 1, startedAt: "2026-01-01T11:59:50Z", finishedAt: "2026-01-01T11:59:51Z"}}`),
			want: "0s Wait main 40s until 31s\n31s Start main 4\n32s Exit main 1\n32s Wait main 80s until 1m52s\n1m52s Start main 5\n1m53s Exit main 1\n1m53s Wait main 160s until 4m33s\n",
			note: "the message of main has no delay: the plan uses the delay after 3 restarts",
		},
		{
			name: "more waits than restarts", pod: mainStatus(3, strings.Replace(crashLoop, "40s", "5m0s", 1)),
			want: "0s Wait main 300s until 5m0s\n",
			note: "main waits for 5m0s after only 3 restarts: the plan uses the delay, not the number",
		},
		{
			name: "restarted in place before", pod: strings.Replace(mainStatus(3, `state: {running: {startedAt: "2026-01-01T11:59:59Z"}}`), "status: {",
				`status: {conditions: [{type: PodRestarting, status: "False", reason: ContainersStarted}], `, 1),
			note: "the status does not say how many restarts were those of the pod: the plan counts them for each container, and not for the pod",
		},
		{
			name: "no image", pod: "spec: {containers: [{name: main}]}\nstatus: {phase: Pending, containerStatuses: [{name: main, state: {waiting: {reason: ImagePullBackOff}}}]}\n",
			want: "0s Start main 0\n", note: "main waits because of ImagePullBackOff: the plan assumes that the cause is gone",
		},
		{
			name: "created", pod: "spec: {containers: [{name: main}]}\nstatus: {phase: Pending, containerStatuses: [{name: main, state: {waiting: {reason: ContainerCreating}}}]}\n",
			want: "0s Start main 0\n",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := options(t, tc.pod)
			o.For = 2 * time.Minute
			p, err := Make(o)
			require.NoError(t, err)
			assert.Equal(t, tc.want, text(p))
			notes := strings.Join(p.Notes, "\n")
			if assert.Contains(t, notes, tc.note); tc.note == "" {
				assert.Empty(t, notes)
			}
		})
	}
}

// The pod's back-off counts from the exit that was the cause, in whatever order containers are, and
// whenever others exited, if that is known at all.
func TestPodWaits(t *testing.T) {
	const main = `
  - name: main
    restartCount: 2
    state: {waiting: {reason: CrashLoopBackOff, message: "back-off 20s restarting pod web: Container main exited with code 42, triggering pod restart"}}
    lastState: {terminated: {exitCode: 42, startedAt: "2026-01-01T11:59:40Z", finishedAt: "2026-01-01T11:59:50Z", containerID: a}}`
	const killed = `
    lastState: {terminated: {exitCode: 143, startedAt: "2026-01-01T11:59:40Z", finishedAt: "2026-01-01T11:59:53Z", containerID: b}}`
	other := strings.ReplaceAll(main[:strings.Index(main, "    lastState")], "name: main", "name: other")
	pod := func(main, other string) Options {
		o := options(t, `
spec:
  restartPolicy: Never
  containers: [{name: other}, {name: main, restartPolicyRules: [{action: RestartPod, exitCodes: {operator: In, values: [42]}}]}, {name: last}]
status:
  conditions:
  - {type: PodRestarting, status: "True", lastTransitionTime: "2026-01-01T11:59:51Z", reason: ContainerExited, message: "Container main exited with code 42, triggering pod restart"}
  containerStatuses:`+main+other+strings.ReplaceAll(other, "name: other", "name: last"))
		o = o.with(t, "main", "runs")
		o.For = 30 * time.Second
		return o
	}
	const want = "0s PodWait 20s until 10s\n10s Start other 3\n10s Start main 3\n10s Start last 3\n"
	for _, o := range []Options{pod(main, other), pod(main, other+killed), pod(main, other+strings.Replace(killed, "143", "0", 1))} {
		p, err := Make(o)
		require.NoError(t, err)
		assert.Equal(t, want, text(p))
		assert.Empty(t, p.Notes)
	}
	// An init container that is done does its work again.
	o := pod(main, other+killed)
	o.Pod.Spec.InitContainers = []v1.Container{{Name: "init"}, {Name: "cut"}}
	o.Pod.Status.InitContainerStatuses = []v1.ContainerStatus{*o.Pod.Status.ContainerStatuses[0].DeepCopy(), *o.Pod.Status.ContainerStatuses[1].DeepCopy()}
	o.Pod.Status.InitContainerStatuses[0].Name, o.Pod.Status.InitContainerStatuses[1].Name = "init", "cut"
	o.Pod.Status.InitContainerStatuses[0].LastTerminationState.Terminated.ExitCode = 0
	p, err := Make(o)
	require.NoError(t, err)
	assert.Equal(t, "0s PodWait 20s until 10s\n10s Start init 3\n20s Exit init 0\n20s Start cut 3\n21s Exit cut 0\n21s Start other 3\n21s Start main 3\n21s Start last 3\n", text(p))
	// Where the exit is not known, the condition has almost its time.
	p, err = Make(pod(main[:strings.Index(main, "    lastState")], other+killed))
	require.NoError(t, err)
	assert.Equal(t, strings.ReplaceAll(want, "10s", "11s"), text(p))
	o = pod(main, strings.Replace(other, "20s", "40s", 1))
	_, err = Make(o)
	assert.ErrorContains(t, err, `pod restart": must have the delay of the other containers, 40s`)
	o = pod(main[:strings.Index(main, "    lastState")], other)
	o.Pod.Status.Conditions[0].LastTransitionTime.Time = begin.Add(time.Second)
	_, err = Make(o)
	assert.ErrorContains(t, err, `status.conditions[0].lastTransitionTime: Invalid value: "2026-01-01T12:00:01Z": must not be after the current time`)
}

// A start after an error of the kubelet, to which somebody has to see, says so.
func TestMissing(t *testing.T) {
	o := options(t, mainStatus(3, `state: {waiting: {reason: CreateContainerConfigError}}, lastState: {terminated: {exitCode: 1, startedAt: "2026-01-01T11:59:58Z", finishedAt: "2026-01-01T11:59:59Z"}}`))
	o.For = 3 * time.Minute
	p, err := Make(o)
	require.NoError(t, err)
	assert.Equal(t, "0s Wait main 40s until 39s\n39s Start main 4\n40s Exit main 1\n40s Wait main 80s until 2m0s\n2m0s Start main 5\n2m1s Exit main 1\n2m1s Wait main 160s until 4m41s\n", text(p))
	assert.Equal(t, "if CreateContainerConfigError is resolved", p.Entries[1].Message)
	assert.Empty(t, p.Entries[4].Message)
}

// A plan needs no file.
func TestNoFolder(t *testing.T) {
	t.Setenv("TMPDIR", "/nonexistent")
	o := options(t, `{spec: {activeDeadlineSeconds: 60, terminationGracePeriodSeconds: 0, containers: [{name: main}]}, status: {startTime: "2026-01-01T11:59:30Z"}}`)
	o = o.with(t, "main", "runs")
	p, err := Make(o)
	require.NoError(t, err)
	assert.Equal(t, "0s Start main 0\n32s Exit main 137\n32s PodEnd Failed: DeadlineExceeded\n", text(p))
}

// What cannot be is an error that names the field.
func TestContradictions(t *testing.T) {
	const exited = `, lastState: {terminated: {exitCode: 0, startedAt: "2026-01-01T11:59:40Z", finishedAt: "2026-01-01T11:59:50Z"}}`
	for want, pod := range map[string]string{
		`status.containerStatuses[0].state: Forbidden: may have only one of waiting, running, terminated`:                                                 mainStatus(3, strings.Replace(crashLoop, "{waiting", "{terminated: {exitCode: 1}, waiting", 1)),
		`containerStatuses[0].state: Forbidden`:                                                                                                           mainStatus(3, strings.Replace(crashLoop, "{waiting", `{running: {startedAt: "2026-01-01T11:00:00Z"}, waiting`, 1)),
		`state.waiting.message: Invalid value: "back-off 40s restarting failed container=other pod=web_default(x)": must name container main and pod web`: mainStatus(3, strings.Replace(crashLoop, "=main", "=other", 1)+exited),
		`"back-off 40s restarting failed container=main pod=other_default(x)": must name container main and pod web`:                                      mainStatus(3, strings.Replace(crashLoop, "=web", "=other", 1)+exited),
		`"back-off 10s restarting pod other: x": must name pod web`:                                                                                       mainStatus(3, `state: {waiting: {reason: CrashLoopBackOff, message: "back-off 10s restarting pod other: x"}}`+exited),
		`"back-off 10s restarting pod web: x": the pod is not being restarted: a condition PodRestarting`:                                                 mainStatus(3, `state: {waiting: {reason: CrashLoopBackOff, message: "back-off 10s restarting pod web: x"}}`+exited),
		`pod=web_default(x)": the container is not restarted after exit code 0`:                                                                           strings.Replace(mainStatus(3, crashLoop+exited), "spec: {", "spec: {restartPolicy: OnFailure, ", 1),
		`pod=web_default(x)": the container is not restarted after exit code 1`:                                                                           strings.Replace(mainStatus(3, crashLoop), "spec: {", "spec: {restartPolicy: Never, ", 1),
		`restartCount: Invalid value: 2147483647: must be from 0 to 2147383647`:                                                                           strings.Replace(mainStatus(3, `state: {running: {startedAt: "2026-01-01T11:00:00Z"}}`), "Count: 3", "Count: 2147483647", 1),
		`status.containerStatuses[0].name: Invalid value: "other": must be the name of a container in`:                                                    "spec: {containers: [{name: main}]}\nstatus: {containerStatuses: [{name: other}]}",
		`status.containerStatuses[1].name: Duplicate value: "main"`:                                                                                       "spec: {containers: [{name: main}]}\nstatus: {containerStatuses: [{name: main}, {name: main}]}",
		`state.terminated.finishedAt: Invalid value: "2026-01-01T12:01:01Z": must not be after the curre`:                                                 mainStatus(3, `state: {terminated: {startedAt: "2026-01-01T11:00:00Z", finishedAt: "2026-01-01T12:01:01Z"}}`),
		`state.running.startedAt: Invalid value: "2026-01-01T11:00:00Z": must not be before the end of t`:                                                 mainStatus(3, `state: {running: {startedAt: "2026-01-01T11:00:00Z"}}, lastState: {terminated: {startedAt: "2026-01-01T11:10:00Z", finishedAt: "2026-01-01T11:20:00Z"}}`),
		`status.phase: Unsupported value: "Bogus": supported values: "Failed", "Pending", "Running", "Succeeded", "Unknown"`:                              "{" + onePod + ", status: {phase: Bogus}}",
		`state.waiting.message: Invalid value: "back-off -40s"`:                                                                                           mainStatus(3, strings.Replace(crashLoop, "40s", "-40s", 1)+`, lastState: {terminated: {startedAt: "2026-01-01T11:00:00Z", finishedAt: "2026-01-01T11:00:00Z"}}`),
	} {
		_, err := Make(options(t, pod))
		assert.ErrorContains(t, err, want)
	}
}

// Where the first restart waits, too, there is a wait more than there were restarts.
func TestResumeDelayFirst(t *testing.T) {
	const exited = `lastState: {terminated: {exitCode: 1, startedAt: "2026-01-01T11:59:45Z", finishedAt: "2026-01-01T11:59:50Z"}}`
	for name, tc := range map[string]struct{ pod, want string }{
		"waits for the first": {mainStatus(0, strings.Replace(crashLoop, "40s", "10s", 1)+", "+exited), "0s Start main 1\n5s Exit main 1\n5s Wait main 20s until 25s\n25s Start main 2\n30s Exit main 1\n30s Wait main 40s until 1m10s\n"},
		"waits for the third": {mainStatus(2, crashLoop+", "+exited), "0s Wait main 40s until 30s\n30s Start main 3\n35s Exit main 1\n35s Wait main 80s until 1m55s\n"},
		"has not waited yet":  {mainStatus(0, strings.Replace(exited, "lastState", "state", 1)), "0s Start main 1\n5s Exit main 1\n5s Wait main 20s until 25s\n25s Start main 2\n30s Exit main 1\n30s Wait main 40s until 1m10s\n"},
		"runs":                {mainStatus(2, `state: {running: {startedAt: "2026-01-01T11:59:58Z"}}, `+exited), "3s Exit main 1\n3s Wait main 40s until 43s\n43s Start main 3\n48s Exit main 1\n48s Wait main 80s until 2m8s\n"},
		"the pod waits":       {podWaits, "0s PodWait 20s until 10s\n10s Start main 3\n20s Exit main 42\n20s PodRestart\n20s PodWait 40s until 1m0s\n1m0s Start main 4\n"},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t, tc.pod)
			o.Curve.DelayFirst, o.For = true, time.Minute
			p, err := Make(o)
			require.NoError(t, err)
			assert.Equal(t, tc.want, text(p))
			assert.Empty(t, p.Notes)
		})
	}
}
