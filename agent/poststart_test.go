// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func takes(d time.Duration, code int) func(context.Context) (int, error) {
	return func(ctx context.Context) (int, error) {
		select {
		case <-time.After(d):
			return code, nil
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

func TestPostStart(t *testing.T) {
	for _, tc := range []runCase{
		{
			name: "the next container waits for the hook, also for that of a sidecar",
			spec: `
initContainers: [{name: proxy, restartPolicy: Always, lifecycle: {postStart: {exec: {command: [wait]}}}}]
containers:
- {name: a, lifecycle: {postStart: {sleep: {seconds: 2}}}}
- {name: b}`,
			exec:  map[string]func(context.Context) (int, error){"wait": takes(3*time.Second, 0)},
			lasts: 6 * time.Second,
			phase: v1.PodRunning,
			want: `
				0s sandbox 1
				0s start proxy#1 restarts=0
				0s exec proxy#1 wait
				3s start a#1 restarts=0
				5s start b#1 restarts=0
			`,
		},
		{
			name:  "a failed hook counts as an exit",
			spec:  `{terminationGracePeriodSeconds: 5, containers: [{name: main, lifecycle: {postStart: {exec: {command: [fail]}}}}]}`,
			exec:  map[string]func(context.Context) (int, error){"fail": takes(time.Second, 1)},
			lasts: 4 * time.Second,
			phase: v1.PodRunning,
			want: `
				0s sandbox 1
				0s start main#1 restarts=0
				0s exec main#1 fail
				1s Warning FailedPostStartHook: PostStartHook failed
				1s Normal Killing: FailedPostStartHook
				1s stop main#1 grace=5s
				1s exit main#1 code=143
				1s start main#2 restarts=1
				1s exec main#2 fail
				2s Warning FailedPostStartHook: PostStartHook failed
				2s Normal Killing: FailedPostStartHook
				2s stop main#2 grace=5s
				2s exit main#2 code=143
				2s Warning BackOff: Back-off restarting failed container main in pod p_default(u): waiting 10s
			`,
		},
		{
			name: "a rule restarts the pod after an exit that fails the hook first",
			spec: `
containers:
- {name: main, lifecycle: {postStart: {exec: {command: [fail]}}}, restartPolicy: Never, restartPolicyRules: [{action: RestartPod, exitCodes: {operator: In, values: [88]}}]}`,
			lives: map[string][]life{"main": {exits(88, 1200*time.Millisecond), {stopCode: 88}}},
			exec:  map[string]func(context.Context) (int, error){"fail": takes(time.Second, 1)},
			lasts: 5 * time.Second,
			phase: v1.PodFailed,
			want: `
				0s sandbox 1
				0s start main#1 restarts=0
				0s exec main#1 fail
				1s Warning FailedPostStartHook: PostStartHook failed
				1s Normal Killing: FailedPostStartHook
				1.2s exit main#1 code=88
				1.2s Normal PodRestarting: Container main exited with code 88, triggering pod restart
				1.2s start main#2 restarts=1
				1.2s exec main#2 fail
				2.2s Warning FailedPostStartHook: PostStartHook failed
				2.2s Normal Killing: FailedPostStartHook
				3.2s stop main#2 grace=30s
				3.2s exit main#2 code=88
				3.2s remove
			`,
		},
		{
			name:  "the exit of the container ends the wait for its hook",
			spec:  `{restartPolicy: Never, containers: [{name: main, lifecycle: {postStart: {sleep: {seconds: 100}}}}, {name: other}]}`,
			lives: map[string][]life{"main": {exits(3, time.Second)}, "other": {exits(0, time.Second)}},
			lasts: time.Minute,
			phase: v1.PodFailed,
			want: `
				0s sandbox 1
				0s start main#1 restarts=0
				1s exit main#1 code=3
				1s start other#1 restarts=0
				2s exit other#1 code=0
				2s remove
			`,
		},
	} {
		tc.run(t)
	}
}

// A container whose hook has failed, or was cut short by the deletion of the pod, has never
// started, not even while it stops.
func TestFailedHookNeverStarted(t *testing.T) {
	for _, lasts := range []time.Duration{500 * time.Millisecond, 20 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode()
			n.lives["main"] = []life{{takes: 3 * time.Second}}
			n.exec["fail"] = takes(time.Second, 1)
			a := n.agent(pod(t, `containers: [{name: main, lifecycle: {postStart: {exec: {command: [fail]}}}}]`), func(o *Options) {
				o.Report = func(s Status) {
					require.False(t, s.Containers[0].Started || s.Containers[0].Ready, "after %v", time.Since(n.begin))
				}
			})
			n.run(t, a, lasts)
		})
	}
}

// Hooks and probes that hang end with their instance. Those of killed and restarted ones do not
// pile up.
func TestHungHooksEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.lives["main"], n.lives["other"] = []life{exits(1, 5*time.Second)}, []life{exits(1, 5*time.Second)}
		running := map[string]int{}
		hang := func(name string) func(context.Context) (int, error) {
			return func(ctx context.Context) (int, error) {
				n.mutex.Lock()
				running[name]++
				n.mutex.Unlock()
				<-ctx.Done()
				n.mutex.Lock()
				running[name]--
				n.mutex.Unlock()
				return 0, ctx.Err()
			}
		}
		n.exec = map[string]func(context.Context) (int, error){"start": hang("start"), "stop": hang("stop"), "ready": hang("ready"), "live": failTimes(1e9)}
		a := n.agent(pod(t, `
containers:
- {name: other, readinessProbe: {exec: {command: [ready]}, timeoutSeconds: 9999}, livenessProbe: {exec: {command: [live]}}, lifecycle: {preStop: {exec: {command: [stop]}}}}
- {name: main, lifecycle: {postStart: {exec: {command: [start]}}}}`))
		done := make(chan v1.PodPhase)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { done <- a.Run(ctx) }()
		<-time.After(3 * time.Hour)
		synctest.Wait()
		require.Greater(t, n.started["main"], 30)
		require.Greater(t, n.started["other"], 30)
		for name, number := range running {
			require.LessOrEqual(t, number, 1, name)
		}
		require.Len(t, running, 3)
		cancel()
		<-done
	})
}

// An httpGet hook fails only without a response, as in the kubelet.
func TestHTTPGetHook(t *testing.T) {
	requests := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests <- r.URL.String()
		w.WriteHeader(http.StatusInternalServerError)
	}))
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	require.NoError(t, err)
	c := &container{spec: &v1.Container{}}
	hook := &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Path: "/started?yes", Port: intstr.Parse(port)}}
	a := &Agent{}
	require.NoError(t, a.runHook(t.Context(), c, "id", host, hook))
	require.Equal(t, "/started?yes", <-requests)
	server.Close()
	require.ErrorContains(t, a.runHook(t.Context(), c, "id", host, hook), "connection refused")
	hook.HTTPGet.Port = intstr.FromString("none")
	require.EqualError(t, a.runHook(t.Context(), c, "id", host, hook), "the container has no port none")
}
