// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/asked"
	"github.com/kubelet-backoff/kubelet-backoff/restart"
)

// An agent continues where a killed one stopped.
func TestAdopt(t *testing.T) {
	spec := `
restartPolicy: Never
initContainers:
- {name: setup}
- {name: proxy, restartPolicy: Always, startupProbe: {exec: {command: [up]}}}
containers:
- {name: main, restartPolicy: Never, restartPolicyRules: [{action: RestartPod, exitCodes: {operator: In, values: [88]}}]}
- {name: helper}`
	for _, tc := range []struct {
		name string
		// dies is when the first agent is killed. The next one starts a second later.
		dies time.Duration
		want string
	}{
		{
			name: "all run",
			dies: 2 * time.Second,
			want: `
				6s exit main#1 code=88
				6s Normal PodRestarting: Container main exited with code 88, triggering pod restart
				6s Normal Killing: Stopping container helper, the pod is being restarted
				6s stop helper#1 grace=30s
				9s exit helper#1 code=143
				9s Normal Killing: Stopping container proxy, the pod is being restarted
				9s stop proxy#1 grace=27s
				9s exit proxy#1 code=143
				9s start setup#2 restarts=1
				10s exit setup#2 code=0
				10s start proxy#2 restarts=1
				11s exec proxy#2 up
				11s start main#2 restarts=1
				11s start helper#2 restarts=1
			`,
		},
		{
			name: "the old generation is being stopped",
			dies: 6 * time.Second,
			want: `
				7s Normal Killing: Stopping container helper, the pod is being restarted
				7s stop helper#1 grace=30s
				9s exit helper#1 code=143
				9s Normal Killing: Stopping container proxy, the pod is being restarted
				9s stop proxy#1 grace=28s
				9s exit proxy#1 code=143
				9s start setup#2 restarts=1
				10s exit setup#2 code=0
				10s start proxy#2 restarts=1
				11s exec proxy#2 up
				11s start main#2 restarts=1
				11s start helper#2 restarts=1
			`,
		},
		{
			name: "the new generation is being started",
			dies: 9500 * time.Millisecond,
			want: `
				10s exit setup#2 code=0
				10.5s start proxy#2 restarts=1
				11.5s exec proxy#2 up
				11.5s start main#2 restarts=1
				11.5s start helper#2 restarts=1
			`,
		},
		{name: "the pod was restarted", dies: 20 * time.Second, want: ``},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode()
				n.exec["up"] = failTimes(0)
				n.lives = map[string][]life{
					"setup": {exits(0, time.Second)}, "main": {exits(88, 4*time.Second), {}}, "helper": {{takes: 3 * time.Second}, {takes: 3 * time.Second}},
				}
				file := filepath.Join(t.TempDir(), "status.json")
				o := func(o *Options) { o.StatusFile = file }
				first := n.agent(pod(t, spec), o)
				go first.Run(t.Context())
				<-time.After(tc.dies)
				synctest.Wait()
				n.kill()
				synctest.Wait()
				n.mutex.Lock()
				n.trace = nil
				n.mutex.Unlock()
				<-time.After(time.Second)
				_, trace := n.run(t, n.agent(pod(t, spec), o), 60*time.Second)
				require.Equal(t, lines(tc.want), strings.TrimPrefix(trace, "\n"))
			})
		})
	}
}

// adopt runs the pod with an agent, kills that after a time, and returns the agent that
// adopts the pod.
func (n *node) adopt(t *testing.T, p *v1.Pod, dies time.Duration, change func(*Options)) *Agent {
	file := filepath.Join(t.TempDir(), "status.json")
	o := func(o *Options) {
		o.StatusFile = file
		if change != nil {
			change(o)
		}
	}
	go n.agent(p, o).Run(t.Context())
	<-time.After(dies)
	synctest.Wait()
	n.kill()
	synctest.Wait()
	return n.agent(p, o)
}

// forget empties the trace, and sets whether the sandbox is ready.
func (n *node) forget(ready bool) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	n.trace, n.ready = nil, ready
}

// A container that a killed agent was stopping after a failed probe is no trigger for
// the next agent.
func TestAdoptStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.exec["up"] = failTimes(1)
		n.lives["main"] = []life{{takes: 5 * time.Second}}
		a := n.adopt(t, pod(t, `
restartPolicy: Never
containers:
- name: main
  livenessProbe: {exec: {command: [up]}}
  restartPolicy: Always
  restartPolicyRules: [{action: RestartPod, exitCodes: {operator: NotIn, values: [0]}}]`), 2*time.Second, nil)
		n.end("main#1", 137)
		_, trace := n.run(t, a, 10*time.Second)
		require.Contains(t, trace, "2s exit main#1 code=137\n2s start main#2 restarts=1\n")
		require.NotContains(t, trace, "PodRestarting")
	})
}

// A killed agent had begun to stop a container, and had not stopped it. Its exit an hour later
// is its own: a rule applies, and a success is final.
func TestAdoptNotStopped(t *testing.T) {
	for _, tc := range []struct {
		code   int32
		starts int
		phase  v1.PodPhase
	}{{88, 2, v1.PodRunning}, {0, 1, v1.PodSucceeded}} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode()
			n.exec["up"] = failTimes(1)
			n.exec["hook"] = func(ctx context.Context) (int, error) { <-ctx.Done(); return 1, ctx.Err() }
			n.lives["main"] = []life{exits(tc.code, time.Hour), {}}
			a := n.adopt(t, pod(t, `
restartPolicy: OnFailure
containers:
- name: main
  livenessProbe: {exec: {command: [up]}}
  lifecycle: {preStop: {exec: {command: [hook]}}}
  restartPolicy: OnFailure
  restartPolicyRules: [{action: RestartPod, exitCodes: {operator: In, values: [88]}}]`), 5*time.Second, nil)
			phase, _ := n.run(t, a, 90*time.Minute)
			require.Equal(t, tc.phase, phase)
			require.Equal(t, tc.starts, n.started["main"])
		})
	}
}

// A pod that has ended stays so, although the exits of its other containers would restart it.
func TestAdoptEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.lives = map[string][]life{"main": {exits(1, time.Second)}, "other": {{takes: 10 * time.Second}}}
		p := pod(t, `
containers:
- {name: main}
- {name: other, restartPolicy: Never, restartPolicyRules: [{action: RestartPod, exitCodes: {operator: NotIn, values: [0]}}]}`)
		p.Annotations = map[string]string{asked.MaxRestartsAnnotation: "1"}
		var last Status
		a := n.adopt(t, p, 5*time.Second, func(o *Options) {
			o.MaxRestarts, o.Report = &asked.Limits{}, func(s Status) { last = s }
		})
		<-time.After(10 * time.Second) // other exits.
		n.forget(true)
		phase, trace := n.run(t, a, 30*time.Second)
		require.Equal(t, v1.PodFailed, phase)
		require.Equal(t, asked.ReasonRestartLimitExceeded, last.Reason)
		require.NotContains(t, trace, "start ")
	})
}

// The back-off of a container survives the agent also if the container starts next with the
// whole pod.
func TestAdoptBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		crashes := exits(1, time.Second)
		n.lives = map[string][]life{"main": {exits(88, 100*time.Second), {}}, "helper": {crashes, crashes, crashes, {}, crashes, {}}}
		a := n.adopt(t, pod(t, `
containers:
- {name: main, restartPolicy: Never, restartPolicyRules: [{action: RestartPod, exitCodes: {operator: In, values: [88]}}]}
- {name: helper}`), 90*time.Second, nil)
		_, trace := n.run(t, a, 5*time.Minute)
		require.Contains(t, trace, "helper in pod p_default(u): waiting 40s")
	})
}

// After a reboot in a restart of the pod, the restart goes on in a new sandbox. The exits that
// the restart had planned count in no back-off.
func TestAdoptAfterReboot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.lives = map[string][]life{
			"main": {exits(88, 30*time.Second), {}}, "helper": {exits(1, 5*time.Second), exits(1, 7*time.Second), {takes: 10 * time.Second}, {takes: 10 * time.Second}},
		}
		a := n.adopt(t, pod(t, `
containers:
- {name: main, restartPolicy: Never, restartPolicyRules: [{action: RestartPod, exitCodes: {operator: In, values: [88]}}]}
- {name: helper}`), 35*time.Second, nil)
		n.end("helper#3", 255)
		n.forget(false)
		_, trace := n.run(t, a, time.Minute)
		require.Equal(t, lines(`
			35s sandbox 2
			35s start main#2 restarts=1
			35s start helper#4 restarts=3
		`), trace)
	})
}

// A failed pod stays failed under the next agent.
func TestAdoptFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.lives = map[string][]life{"proxy": {{takes: 5 * time.Second}}, "setup": {exits(0, 0), exits(1, 0)}, "main": {exits(88, 0)}}
		n.lives["proxy"] = append(n.lives["proxy"], n.lives["proxy"][0])
		file := filepath.Join(t.TempDir(), "status.json")
		spec := `
restartPolicy: Never
initContainers: [{name: proxy, restartPolicy: Always}, {name: setup}]
containers: [{name: main, restartPolicy: Never, restartPolicyRules: [{action: RestartPod, exitCodes: {operator: In, values: [88]}}]}]`
		o := func(o *Options) { o.StatusFile = file }
		first := n.agent(pod(t, spec), o)
		go first.Run(t.Context())
		<-time.After(6 * time.Second) // The first generation takes 5 s to stop.
		synctest.Wait()
		require.Contains(t, n.text(), "exit setup#2 code=1\n")
		n.kill()
		synctest.Wait()
		phase, trace := n.run(t, n.agent(pod(t, spec), o), time.Hour)
		require.Equal(t, v1.PodFailed, phase)
		require.NotContains(t, trace, "start setup#3")
	})
}

// After the loss of its sandbox a pod starts again from its first init container,
// except with restartPolicy Never.
func TestSandboxLost(t *testing.T) {
	for policy, want := range map[v1.RestartPolicy]string{
		v1.RestartPolicyAlways: `
			2s Normal Killing: Stopping container proxy
			2s stop proxy#1 grace=0s
			2s exit proxy#1 code=137
			2s Normal SandboxChanged: Pod sandbox changed, it will be killed and re-created.
			2s sandbox 2
			2s start setup#2 restarts=1
			2s exit setup#2 code=0
			2s start proxy#2 restarts=1
			2s start main#2 restarts=1
		`,
		v1.RestartPolicyNever: `
			2s Normal Killing: Stopping container proxy
			2s stop proxy#1 grace=30s
			2s exit proxy#1 code=143
			2s remove
		`,
	} {
		t.Run(string(policy), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode()
				n.lives["setup"] = []life{exits(0, 0)}
				p := pod(t, `{initContainers: [{name: setup}, {name: proxy, restartPolicy: Always}], containers: [{name: main}]}`)
				p.Spec.RestartPolicy = policy
				time.AfterFunc(2*time.Second, func() {
					n.mutex.Lock()
					n.ready, n.trace = false, nil
					n.mutex.Unlock()
					n.end("main#1", 255)
				})
				_, trace := n.run(t, n.agent(p), 3*time.Second)
				require.Equal(t, "2s exit main#1 code=255\n"+lines(want), trace)
			})
		})
	}
}

// A pod that succeeded before the loss of its sandbox does not run again.
func TestSandboxLostAfterwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.instances["main"] = Instance{ContainerStatus: restart.ContainerStatus{ID: "main#1", State: restart.ContainerStateExited, FinishedAt: time.Now()}}
		phase, trace := n.run(t, n.agent(pod(t, `{restartPolicy: OnFailure, containers: [{name: main}]}`)), time.Minute)
		require.Equal(t, v1.PodSucceeded, phase)
		require.Equal(t, "0s remove\n", trace)
	})
}

// A status file that cannot be removed does not keep the agent from ending.
func TestStatusFileStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.lives["main"] = []life{exits(0, time.Second)}
		dir := filepath.Join(t.TempDir(), "status")
		require.NoError(t, os.Mkdir(dir, 0o755))
		a := n.agent(pod(t, `{restartPolicy: Never, containers: [{name: main}]}`), func(o *Options) { o.StatusFile = filepath.Join(dir, "file") })
		require.NoError(t, errors.Join(os.Remove(dir), os.WriteFile(dir, nil, 0o644)))
		phase, trace := n.run(t, a, time.Minute)
		require.Equal(t, v1.PodSucceeded, phase)
		require.Contains(t, trace, "1s remove\n1s Warning FailedSync: cannot remove the pod's status: ")
	})
}

// A restart of the pod that is caused in the Startup of another one counts.
func TestRestartInStartupCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.lives = map[string][]life{"setup": {exits(0, time.Second), exits(88, 11*time.Minute), exits(0, time.Second)}, "main": {exits(88, time.Second), {}}}
		var last Status
		_, _ = n.run(t, n.agent(pod(t, `
initContainers: [{name: setup, restartPolicyRules: [{action: RestartPod, exitCodes: {operator: In, values: [88]}}], restartPolicy: Never}]
containers: [{name: main, restartPolicyRules: [{action: RestartPod, exitCodes: {operator: In, values: [88]}}], restartPolicy: Never}]`),
			func(o *Options) { o.Report = func(s Status) { last = s } }), 15*time.Minute)
		require.Equal(t, 3, n.started["setup"])
		require.Equal(t, 2, last.Restarts.Count)
	})
}

// Without an answer of the runtime the agent decides nothing, and records one event.
func TestRuntimeError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.lives["main"] = []life{exits(1, 2500*time.Millisecond), {}}
		time.AfterFunc(time.Second, func() { n.setError(errors.New("connection refused")) })
		time.AfterFunc(6*time.Second, func() { n.setError(nil) })
		_, trace := n.run(t, n.agent(pod(t, `containers: [{name: main}]`)), 20*time.Second)
		require.Equal(t, lines(`
			0s sandbox 1
			0s start main#1 restarts=0
			2.5s exit main#1 code=1
			2.5s Warning FailedSync: connection refused
			6.5s start main#2 restarts=1
		`), trace)
	})
}

// A rule does not apply to the exit of a container that the agent stops with a lost sandbox.
func TestSandboxLostIsNoCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		p := pod(t, `{restartPolicy: Never, containers: [{name: main, restartPolicy: Never, restartPolicyRules: [{action: RestartPod, exitCodes: {operator: In, values: [137]}}]}]}`)
		time.AfterFunc(2*time.Second, func() {
			n.mutex.Lock()
			n.ready = false
			n.mutex.Unlock()
			n.changed <- struct{}{}
		})
		phase, trace := n.run(t, n.agent(p), 10*time.Second)
		require.Equal(t, v1.PodFailed, phase)
		require.Contains(t, trace, "2s exit main#1 code=137\n")
		require.NotContains(t, trace, "PodRestarting")
	})
}
