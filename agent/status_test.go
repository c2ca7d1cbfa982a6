// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

// The status has the states, the waits and the lateness of restarts.
func TestStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.lives["main"] = []life{exits(3, time.Second)}
		n.lives["setup"] = []life{exits(0, 0)}
		var all []Status
		a := n.agent(pod(t, `{initContainers: [{name: setup}], containers: [{name: main}]}`), func(o *Options) {
			o.Report = func(s Status) { all = append(all, s) }
		})
		n.run(t, a, 13*time.Second)
		i := slices.IndexFunc(all, func(s Status) bool { return !s.Containers[1].RetryAt.IsZero() })
		require.Positive(t, i)
		begin := n.begin
		exit := &v1.ContainerStateTerminated{
			ExitCode: 3, Reason: "Error", ContainerID: "main#2", StartedAt: metav1.NewTime(begin.Add(time.Second)), FinishedAt: metav1.NewTime(begin.Add(2 * time.Second)),
		}
		require.Equal(t, ContainerStatus{
			Name: "main", Kind: restartpod.KindRegular, ID: "main#2", LastExit: exit, RetryAt: begin.Add(12 * time.Second),
			State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{
				Reason: "CrashLoopBackOff", Message: "back-off 10s restarting failed container=main pod=p_default(u)",
			}},
			Restarts: Restarts{Count: 1, Timed: 1},
		}, all[i].Containers[1])
		require.Equal(t, "PodInitializing", all[0].Containers[1].State.Waiting.Reason)
		require.Equal(t, v1.PodPending, all[0].Phase)
		require.Equal(t, v1.PodRunning, all[i].Phase)
		require.Equal(t, "Completed", all[i].Containers[0].State.Terminated.Reason)
		last := all[len(all)-1]
		require.True(t, last.Terminating)
		require.Equal(t, Restarts{Count: 2, Timed: 2, Waited: 10 * time.Second}, last.Containers[1].Restarts)
	})
}

// A container has started while it runs, after its hook and its startup probe, and never
// while it waits.
func TestStatusStarted(t *testing.T) {
	for _, hooked := range []bool{false, true} {
		s := newScript(5*time.Second, 1)
		s.up = 2500 * time.Millisecond
		var got []string
		p := pod(t, `containers: [{name: main, startupProbe: {exec: {command: [up]}, failureThreshold: 9}}]`)
		if hooked {
			p.Spec.Containers[0].StartupProbe = nil
			p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 3}}}
		}
		a, err := New(Options{Pod: p, Runtime: s, Report: func(status Status) {
			c := status.Containers[0]
			line := fmt.Sprintf("running=%t started=%t", c.State.Running != nil, c.Started)
			if c.State.Waiting != nil {
				line += " " + c.State.Waiting.Reason
			}
			if n := len(got); n == 0 || !strings.HasSuffix(got[n-1], "s "+line) {
				got = append(got, fmt.Sprint(s.now.Sub(s.begin), " ", line))
			}
		}})
		require.NoError(t, err)
		s.drive(a, 15*time.Second)
		require.Equal(t, lines(`
			0s running=false started=false ContainerCreating
			0s running=true started=false
			3s running=true started=true
			5s running=false started=false
			5s running=false started=false ContainerCreating
			5s running=true started=false
			8s running=true started=true
			10s running=false started=false
			10s running=false started=false CrashLoopBackOff
		`), strings.Join(got, "\n")+"\n")
	}
}

// The reason of a failed start is the reason of the waiting state.
func TestStatusOfWaitingError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.lives["main"] = []life{{cannot: &WaitingError{Reason: "ErrImagePull", Err: errors.New("no registry")}}}
		n.lives["other"] = []life{{cannot: errors.New("no space")}}
		var last Status
		a := n.agent(pod(t, `containers: [{name: main}, {name: other}]`), func(o *Options) {
			o.Report = func(s Status) {
				if !s.Terminating {
					last = s
				}
			}
		})
		n.run(t, a, 5*time.Second)
		require.Equal(t, &v1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "ErrImagePull: no registry"}, last.Containers[0].State.Waiting)
		require.Equal(t, &v1.ContainerStateWaiting{Reason: "CreateContainerError", Message: "no space"}, last.Containers[1].State.Waiting)
		require.Equal(t, n.begin.Add(10*time.Second), last.Containers[0].RetryAt)
		require.Equal(t, n.begin.Add(10*time.Second), last.Containers[1].RetryAt)
	})
}

// A pod is pending until each of its containers has started, and stays running when they restart.
func TestPhasePending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.lives["setup"], n.lives["main"] = []life{exits(0, time.Second)}, []life{exits(1, time.Second)}
		n.lives["other"] = []life{{cannot: &WaitingError{Reason: "ErrImagePull", Err: errors.New("no registry")}}, exits(1, time.Second)}
		var got []string
		a := n.agent(pod(t, `{initContainers: [{name: setup}], containers: [{name: main}, {name: other}]}`), func(o *Options) {
			o.Report = func(s Status) {
				if len(got) == 0 {
					require.Equal(t, "PodInitializing", s.Containers[0].State.Waiting.Reason)
				}
				if line := fmt.Sprint(time.Since(n.begin), " ", s.Phase); !s.Terminating && (len(got) == 0 || !strings.HasSuffix(got[len(got)-1], string(s.Phase))) {
					got = append(got, line)
				}
			}
		})
		n.run(t, a, time.Hour)
		require.Equal(t, []string{"0s Pending", "11s Running"}, got)
	})
}

// A start error counts as a restart, but has no lateness.
func TestStatusOfStartError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.lives["main"] = []life{exits(1, time.Second), {cannotExecute: true}}
		var last Status
		a := n.agent(pod(t, `containers: [{name: main}]`), func(o *Options) { o.Report = func(s Status) { last = s } })
		_, trace := n.run(t, a, 5*time.Second)
		require.Contains(t, trace, "1s Warning Failed: Error: no such file\n")
		require.Equal(t, Restarts{Count: 1}, last.Containers[0].Restarts)
		require.Equal(t, ReasonStartError, last.Containers[0].LastExit.Reason)
	})
}

// A runtime that does not know when a container exited reports the zero time or the epoch.
func TestStatusOfUnknownExitTime(t *testing.T) {
	for _, unknown := range []time.Time{{}, time.Unix(0, 0)} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode()
			n.exitTime = &unknown
			n.lives["main"] = []life{exits(1, time.Second), exits(1, time.Second), {}}
			var last Status
			a := n.agent(pod(t, `containers: [{name: main}]`), func(o *Options) { o.Report = func(s Status) { last = s } })
			n.run(t, a, time.Minute)
			require.Equal(t, Restarts{Count: 2}, last.Containers[0].Restarts)
		})
	}
}

// A wait after a failed start counts once, as one after an exit does. The time until a
// retry with a missing object is no back-off.
func TestStatusOfFailedStarts(t *testing.T) {
	for _, tc := range []struct {
		name           string
		err            error
		starts, waited time.Duration
	}{
		{"created", errors.New("no space"), 31 * time.Second, 30 * time.Second},
		{"missing", &WaitingError{Reason: "CreateContainerConfigError", Err: errors.New("no settings")}, 21 * time.Second, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode()
				n.lives["main"] = []life{exits(1, time.Second), {cannot: tc.err}, {cannot: tc.err}, {}}
				var last Status
				a := n.agent(pod(t, `containers: [{name: main}]`), func(o *Options) { o.Report = func(s Status) { last = s } })
				_, trace := n.run(t, a, time.Minute)
				require.Contains(t, trace, fmt.Sprintf("%v start main#2 restarts=1\n", tc.starts))
				require.Equal(t, Restarts{Count: 1, Timed: 1, Waited: tc.waited}, last.Containers[0].Restarts)
			})
		})
	}
}

// An exit of the previous run is the last state of a container, never its current one,
// and has no effect, however the restart of the pod ends.
func TestStatusOfPreviousRun(t *testing.T) {
	const spec = `
restartPolicy: Never
activeDeadlineSeconds: 5
containers: [{name: main, restartPolicy: Never, restartPolicyRules: [{action: RestartPod, exitCodes: {operator: In, values: [0]}}]}]`
	const message = "Container main exited with code 0, triggering pod restart"
	for _, tc := range []struct {
		name string
		// lasts is the time after which the pod is deleted.
		lasts time.Duration
		phase v1.PodPhase
	}{
		{"deleted in back-off", 3 * time.Second, v1.PodRunning},
		{"deadline in back-off", time.Minute, v1.PodFailed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode()
				n.lives["main"] = []life{exits(0, time.Second)}
				var all []Status
				a := n.agent(pod(t, spec), func(o *Options) { o.Report = func(s Status) { all = append(all, s) } })
				phase, trace := n.run(t, a, tc.lasts)
				require.Contains(t, trace, "2s Warning BackOff: Back-off restarting pod p: "+message+": waiting 10s\n")
				require.Equal(t, tc.phase, phase)
				waited := false
				for _, s := range all {
					require.NotEqual(t, v1.PodSucceeded, s.Phase)
					c := s.Containers[0]
					if s.RetryAt.IsZero() && !s.Terminating {
						continue
					}
					// The container waits for the back-off, and never starts after it.
					require.Nil(t, c.State.Terminated)
					require.NotNil(t, c.LastExit)
					require.Equal(t, "main#2", c.LastExit.ContainerID)
					if !s.RetryAt.IsZero() {
						waited = true
						require.Equal(t, &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 10s restarting pod p: " + message}, c.State.Waiting)
					} else {
						require.Equal(t, "ContainerCreating", c.State.Waiting.Reason)
					}
				}
				require.True(t, waited)
				last := all[len(all)-1]
				require.True(t, last.Terminating)
				require.Equal(t, v1.ConditionFalse, last.Conditions[0].Status)
				require.Equal(t, restartpod.ReasonPodDeleted, last.Conditions[0].Reason)
			})
		})
	}
}

// At most one of the two conditions is True.
func TestStatusConditions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.lives["main"] = []life{exits(88, time.Second), exits(99, time.Second), {}}
		var all []Status
		a := n.agent(pod(t, `
containers:
- name: main
  restartPolicy: Always
  restartPolicyRules:
  - {action: RestartPod, exitCodes: {operator: In, values: [88]}}
  - {action: RestartAllContainers, exitCodes: {operator: In, values: [99]}}`), func(o *Options) { o.Report = func(s Status) { all = append(all, s) } })
		n.run(t, a, 20*time.Second)
		seen := map[v1.PodConditionType]bool{}
		for _, s := range all {
			var isTrue []v1.PodConditionType
			for _, c := range s.Conditions {
				if c.Status == v1.ConditionTrue {
					isTrue = append(isTrue, c.Type)
					seen[c.Type] = true
				}
			}
			require.LessOrEqual(t, len(isTrue), 1)
		}
		require.Equal(t, map[v1.PodConditionType]bool{restartpod.PodRestarting: true, v1.AllContainersRestarting: true}, seen)
		require.Len(t, all[len(all)-1].Conditions, 2)
	})
}

// With an unreadable status file there is no agent.
func TestStatusFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "status.json")
	require.NoError(t, os.WriteFile(file, []byte("{"), 0o600))
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		_, err := New(Options{Pod: pod(t, `containers: [{name: main}]`), Runtime: n, StatusFile: file})
		require.ErrorContains(t, err, file+": unexpected end of JSON input; remove the file to discard the saved status")
		require.Empty(t, n.trace)
	})
}

// The status file of an earlier pod with the same name is not that of this pod. One without a
// UID, of an older agent, and one with more fields, of a newer agent, are.
func TestStatusFileOfOtherPod(t *testing.T) {
	for uid, own := range map[string]bool{"": true, `"uid":"u","newer":{"a":[1]},`: true, `"uid":"v",`: false} {
		file := filepath.Join(t.TempDir(), "status.json")
		s := newScript(0, 0)
		began, _ := metav1.NewTime(s.begin.Add(-time.Hour)).MarshalJSON()
		text := fmt.Sprintf(`{%s"startTime":%s,"conditions":[{"type":"PodRestarting","status":"True"}],"stoppedByAgent":["main#0"],"unseen":{"main":{"ID":"main#0"},"gone":null}}`, uid, began)
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		a, err := New(Options{Pod: pod(t, `{activeDeadlineSeconds: 100, containers: [{name: main}]}`), Runtime: s, StatusFile: file})
		require.NoError(t, err)
		require.Equal(t, own, s.drive(a, time.Second), "its deadline is over")
		if !own {
			require.Empty(t, a.Status().Conditions)
			require.Len(t, s.starts, 1)
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Contains(t, string(data), `"uid":"u"`)
		}
	}
}
