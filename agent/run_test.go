// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/kubelet-backoff/kubelet-backoff/backoff"
	"github.com/kubelet-backoff/kubelet-backoff/restart"
)

// runCase is a run of a pod on a node of its own.
type runCase struct {
	name  string
	spec  string
	lives map[string][]life
	exec  map[string]func(context.Context) (int, error)
	// lasts is the time after which the pod is deleted, if it has not ended.
	lasts time.Duration
	want  string
	phase v1.PodPhase
}

func (tc runCase) run(t *testing.T) {
	t.Run(tc.name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := newNode()
			if tc.lives != nil {
				n.lives = tc.lives
			}
			n.exec = tc.exec
			phase, trace := n.run(t, n.agent(pod(t, tc.spec)), tc.lasts)
			require.Equal(t, lines(tc.want), trace)
			require.Equal(t, tc.phase, phase)
		})
	})
}

func TestRun(t *testing.T) {
	boom := errors.New("boom")
	missing := &WaitingError{Reason: "CreateContainerConfigError", Err: errors.New(`configmap "settings" not found`)}
	for _, tc := range []runCase{
		{
			name:  "a container follows the curve",
			spec:  `containers: [{name: main}]`,
			lives: map[string][]life{"main": {exits(1, time.Second)}},
			lasts: 36 * time.Second,
			phase: v1.PodRunning,
			want: `
				0s sandbox 1
				0s start main#1 restarts=0
				1s exit main#1 code=1
				1s start main#2 restarts=1
				2s exit main#2 code=1
				2s Warning BackOff: Back-off restarting failed container main in pod p_default(u): waiting 10s
				12s start main#3 restarts=2
				13s exit main#3 code=1
				13s Warning BackOff: Back-off restarting failed container main in pod p_default(u): waiting 20s
				33s start main#4 restarts=3
				34s exit main#4 code=1
				34s Warning BackOff: Back-off restarting failed container main in pod p_default(u): waiting 40s
			`,
		},
		{
			name:  "back-offs of containers are independent, and the pod succeeds when all have",
			spec:  `{restartPolicy: OnFailure, containers: [{name: a}, {name: b}]}`,
			lives: map[string][]life{"a": {exits(1, time.Second), exits(1, time.Second), exits(0, 0)}, "b": {exits(3, 5*time.Second), exits(0, 0)}},
			lasts: time.Minute,
			phase: v1.PodSucceeded,
			want: `
				0s sandbox 1
				0s start a#1 restarts=0
				0s start b#1 restarts=0
				1s exit a#1 code=1
				1s start a#2 restarts=1
				2s exit a#2 code=1
				2s Warning BackOff: Back-off restarting failed container a in pod p_default(u): waiting 10s
				5s exit b#1 code=3
				5s start b#2 restarts=1
				5s exit b#2 code=0
				12s start a#3 restarts=2
				12s exit a#3 code=0
				12s remove
			`,
		},
		{
			name: "RestartPod stops regular containers, then sidecars, and has a back-off of its own",
			spec: `
restartPolicy: Never
initContainers:
- {name: setup}
- {name: proxy, restartPolicy: Always}
- {name: logs, restartPolicy: Always}
containers:
- {name: main, restartPolicy: Never, restartPolicyRules: [{action: RestartPod, exitCodes: {operator: In, values: [88]}}]}
- {name: helper, lifecycle: {preStop: {exec: {command: [bye]}}}}`,
			lives: map[string][]life{
				"setup": {exits(0, 0)}, "main": {exits(88, time.Second), exits(88, time.Second), exits(0, time.Hour)},
				"helper": {{takes: 2 * time.Second}}, "logs": {{takes: time.Second}},
			},
			exec:  map[string]func(context.Context) (int, error){"bye": func(context.Context) (int, error) { return 1, nil }},
			lasts: 25 * time.Second,
			phase: v1.PodRunning,
			want: `
				0s sandbox 1
				0s start setup#1 restarts=0
				0s exit setup#1 code=0
				0s start proxy#1 restarts=0
				0s start logs#1 restarts=0
				0s start main#1 restarts=0
				0s start helper#1 restarts=0
				1s exit main#1 code=88
				1s Normal PodRestarting: Container main exited with code 88, triggering pod restart
				1s Normal Killing: Stopping container helper, the pod is being restarted
				1s exec helper#1 bye
				1s Warning FailedPreStopHook: PreStopHook failed
				1s stop helper#1 grace=30s
				3s exit helper#1 code=143
				3s Normal Killing: Stopping container logs, the pod is being restarted
				3s stop logs#1 grace=28s
				4s exit logs#1 code=143
				4s Normal Killing: Stopping container proxy, the pod is being restarted
				4s stop proxy#1 grace=27s
				4s exit proxy#1 code=143
				4s start setup#2 restarts=1
				4s exit setup#2 code=0
				4s start proxy#2 restarts=1
				4s start logs#2 restarts=1
				4s start main#2 restarts=1
				4s start helper#2 restarts=1
				5s exit main#2 code=88
				5s Normal PodRestarting: Container main exited with code 88, triggering pod restart
				5s Normal Killing: Stopping container helper, the pod is being restarted
				5s exec helper#2 bye
				5s Warning FailedPreStopHook: PreStopHook failed
				5s stop helper#2 grace=30s
				7s exit helper#2 code=143
				7s Normal Killing: Stopping container logs, the pod is being restarted
				7s stop logs#2 grace=28s
				8s exit logs#2 code=143
				8s Normal Killing: Stopping container proxy, the pod is being restarted
				8s stop proxy#2 grace=27s
				8s exit proxy#2 code=143
				8s Warning BackOff: Back-off restarting pod p: Container main exited with code 88, triggering pod restart: waiting 10s
				15s start setup#3 restarts=2
				15s exit setup#3 code=0
				15s start proxy#3 restarts=2
				15s start logs#3 restarts=2
				15s start main#3 restarts=2
				15s start helper#3 restarts=2
			`,
		},
		{
			name:  "a container that cannot be created follows the curve, whatever the policy",
			spec:  `{restartPolicy: Never, containers: [{name: main}]}`,
			lives: map[string][]life{"main": {{cannot: boom}, {cannot: boom}, {cannot: boom}, exits(0, 0)}},
			lasts: time.Minute,
			phase: v1.PodSucceeded,
			want: `
				0s sandbox 1
				0s cannot start main
				0s Warning Failed: Error: boom
				0s cannot start main
				0s Warning Failed: Error: boom
				0s Warning BackOff: Back-off restarting failed container main in pod p_default(u): waiting 10s
				10s cannot start main
				10s Warning Failed: Error: boom
				10s Warning BackOff: Back-off restarting failed container main in pod p_default(u): waiting 20s
				30s start main#1 restarts=0
				30s exit main#1 code=0
				30s remove
			`,
		},
		{
			name:  "an exit continues the curve of failed starts, which are no restarts",
			spec:  `containers: [{name: main}]`,
			lives: map[string][]life{"main": {{cannot: boom}, {cannot: boom}, {cannot: boom}, exits(1, 0), {cannot: boom}, {}}},
			lasts: 3 * time.Minute,
			phase: v1.PodRunning,
			want: `
				0s sandbox 1
				0s cannot start main
				0s Warning Failed: Error: boom
				0s cannot start main
				0s Warning Failed: Error: boom
				0s Warning BackOff: Back-off restarting failed container main in pod p_default(u): waiting 10s
				10s cannot start main
				10s Warning Failed: Error: boom
				10s Warning BackOff: Back-off restarting failed container main in pod p_default(u): waiting 20s
				30s start main#1 restarts=0
				30s exit main#1 code=1
				30s Warning BackOff: Back-off restarting failed container main in pod p_default(u): waiting 40s
				1m10s cannot start main
				1m10s Warning Failed: Error: boom
				1m10s Warning BackOff: Back-off restarting failed container main in pod p_default(u): waiting 1m20s
				2m30s start main#2 restarts=1
			`,
		},
		{
			name:  "an instance that was created and cannot start follows the curve",
			spec:  `containers: [{name: main}]`,
			lives: map[string][]life{"main": {{cannotExecute: true}, {cannotExecute: true}, {cannot: boom}, {}}},
			lasts: time.Minute,
			phase: v1.PodRunning,
			want: `
				0s sandbox 1
				0s start main#1 restarts=0
				0s Warning Failed: Error: no such file
				0s start main#2 restarts=1
				0s Warning Failed: Error: no such file
				0s Warning BackOff: Back-off restarting failed container main in pod p_default(u): waiting 10s
				10s cannot start main
				10s Warning Failed: Error: boom
				10s Warning BackOff: Back-off restarting failed container main in pod p_default(u): waiting 20s
				30s start main#3 restarts=2
			`,
		},
		{
			name: "a start with a missing object is retried every ten seconds, and the curve does not advance",
			spec: `containers: [{name: main}, {name: other}]`,
			lives: map[string][]life{
				"main":  {{cannot: missing}, {cannot: missing}, {cannot: missing}, exits(1, 5*time.Second), {cannot: missing}, exits(1, 0)},
				"other": {exits(1, 3*time.Second)},
			},
			lasts: 45 * time.Second,
			phase: v1.PodRunning,
			want: `
				0s sandbox 1
				0s cannot start main
				0s Warning Failed: Error: CreateContainerConfigError: configmap "settings" not found
				0s start other#1 restarts=0
				3s exit other#1 code=1
				3s start other#2 restarts=1
				6s exit other#2 code=1
				6s Warning BackOff: Back-off restarting failed container other in pod p_default(u): waiting 10s
				10s cannot start main
				10s Warning Failed: Error: CreateContainerConfigError: configmap "settings" not found
				16s start other#3 restarts=2
				19s exit other#3 code=1
				19s Warning BackOff: Back-off restarting failed container other in pod p_default(u): waiting 20s
				20s cannot start main
				20s Warning Failed: Error: CreateContainerConfigError: configmap "settings" not found
				30s start main#1 restarts=0
				35s exit main#1 code=1
				35s cannot start main
				35s Warning Failed: Error: CreateContainerConfigError: configmap "settings" not found
				39s start other#4 restarts=3
				42s exit other#4 code=1
				42s Warning BackOff: Back-off restarting failed container other in pod p_default(u): waiting 40s
				45s start main#2 restarts=1
				45s exit main#2 code=1
				45s Warning BackOff: Back-off restarting failed container main in pod p_default(u): waiting 10s
			`,
		},
		{
			name: "an init container fails the pod, and the sidecar is stopped",
			spec: `
restartPolicy: Never
initContainers: [{name: proxy, restartPolicy: Always}, {name: setup}]
containers: [{name: main}]`,
			lives: map[string][]life{"setup": {exits(2, time.Second)}},
			lasts: time.Minute,
			phase: v1.PodFailed,
			want: `
				0s sandbox 1
				0s start proxy#1 restarts=0
				0s start setup#1 restarts=0
				1s exit setup#1 code=2
				1s Normal Killing: Stopping container proxy
				1s stop proxy#1 grace=30s
				1s exit proxy#1 code=143
				1s remove
			`,
		},
		{
			name: "the active deadline fails the pod",
			spec: `
activeDeadlineSeconds: 5
terminationGracePeriodSeconds: 3
containers: [{name: main}]`,
			lives: map[string][]life{"main": {{takes: time.Minute}}},
			lasts: time.Minute,
			phase: v1.PodFailed,
			want: `
				0s sandbox 1
				0s start main#1 restarts=0
				5s Normal DeadlineExceeded: Pod was active on the node longer than the specified deadline
				5s Normal Killing: Stopping container main
				5s stop main#1 grace=3s
				8s exit main#1 code=137
				8s remove
			`,
		},
	} {
		tc.run(t)
	}
}

// All containers that fail at once restart equally often, although all starts together
// take longer than the back-off: the one that has waited longest starts first.
func TestStartAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.startTakes = 100 * time.Millisecond
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", UID: "u"}}
		for i := range 100 {
			name := fmt.Sprintf("c%02d", i)
			p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: name})
			n.lives[name] = []life{exits(1, 0)}
		}
		b := restart.NewBackOff(clock.RealClock{}, backoff.Curve{Initial: time.Second, Max: time.Second})
		n.run(t, n.agent(p, func(o *Options) { o.ContainerBackOff = b }), 61*time.Second)
		for name := range n.lives {
			require.InDelta(t, 6, n.started[name], 1, name)
		}
	})
}

// Without a name, namespace and UID, pods would share a back-off.
func TestNewRefuses(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"Pod is nil":                    func(o *Options) { o.Pod = nil },
		"Runtime is nil":                func(o *Options) { o.Runtime = nil },
		`pod name "", namespace "n"`:    func(o *Options) { o.Pod.Name = "" },
		`namespace "", uid "u"`:         func(o *Options) { o.Pod.Namespace = "" },
		`uid "": all three must be set`: func(o *Options) { o.Pod.UID = "" },
	} {
		o := Options{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n", UID: "u"}}, Runtime: newNode()}
		change(&o)
		_, err := New(o)
		require.ErrorContains(t, err, want)
	}
}
