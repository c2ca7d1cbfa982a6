/*
Copyright The Kubernetes Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package kubelet

import (
	"context"
	"fmt"
	"math"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	containertest "k8s.io/kubernetes/pkg/kubelet/container/testing"
	"k8s.io/kubernetes/pkg/kubelet/kuberuntime"
	"k8s.io/kubernetes/pkg/kubelet/restart"
	"k8s.io/kubernetes/pkg/kubelet/restartpod"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// A pod is over when its regular containers are, regardless of its sidecar. The
// runtime manager is not called, because before v1.37 it would start the sidecar
// again.
func TestRestartPodEndsWithItsSidecar(t *testing.T) {
	for _, restarting := range []bool{false, true} {
		t.Run(fmt.Sprintf("restarting %v", restarting), func(t *testing.T) {
			r := newRestartTest(t, restartablePod(v1.ContainerRestartRuleActionRestartPod), nil)
			r.run()
			if restarting {
				r.exit("x", 88)
				require.NoError(t, r.sync())
				r.fake.fakeClock.Step(2 * time.Second)
				r.start("a")
				r.exit("a", 0)
				r.start("s", "x", "y")
			}
			syncs := r.syncs
			for _, name := range []string{"s", "x", "y"} {
				r.exit(name, 0)
			}
			require.NoError(t, r.sync())
			require.Equal(t, v1.PodSucceeded, r.status().Phase)
			require.NotEqual(t, v1.ConditionTrue, r.condition(v1.PodRestarting).Status)
			require.Equal(t, syncs, r.syncs)
		})
	}
}

func TestRestartPodTerminated(t *testing.T) {
	t.Run("while it stops containers", func(t *testing.T) {
		r := newRestartTest(t, restartablePod(v1.ContainerRestartRuleActionRestartPod), nil)
		r.run()
		syncs := r.syncs
		r.exit("x", 88)
		r.hang = true
		_, tCtx := ktesting.NewTestContext(t)
		ctx, cancel := context.WithCancel(tCtx)
		cancel()
		require.ErrorIs(t, r.syncContext(ctx), context.Canceled)
		require.Equal(t, syncs, r.syncs)
	})
	t.Run("while it waits", func(t *testing.T) {
		r := newRestartTest(t, restartablePod(v1.ContainerRestartRuleActionRestartPod), nil)
		r.run()
		r.exit("x", 88)
		require.NoError(t, r.sync())
		require.Equal(t, v1.ConditionTrue, r.condition(v1.PodRestarting).Status)
		r.terminate()
		_, tCtx := ktesting.NewTestContext(t)
		require.NoError(t, r.kubelet.SyncTerminatingPod(tCtx, r.pod, r.podStatus(), nil, nil))
		c := r.condition(v1.PodRestarting)
		require.Equal(t, v1.ConditionFalse, c.Status)
		require.Equal(t, "PodDeleted", c.Reason)
	})
	t.Run("after the kubelet was restarted", func(t *testing.T) {
		pod := restartablePod(v1.ContainerRestartRuleActionRestartPod)
		pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodRestarting, Status: v1.ConditionTrue, Reason: "ContainerExited"}}
		r := newRestartTest(t, pod, nil)
		r.start("a")
		r.exit("a", 0)
		r.terminate()
		_, tCtx := ktesting.NewTestContext(t)
		require.NoError(t, r.kubelet.SyncTerminatingPod(tCtx, r.pod, r.podStatus(), nil, nil))
		c := r.condition(v1.PodRestarting)
		require.Equal(t, v1.ConditionFalse, c.Status)
		require.Equal(t, "PodDeleted", c.Reason)
		require.False(t, c.LastTransitionTime.IsZero())
	})
	t.Run("at the trigger", func(t *testing.T) {
		r := newRestartTest(t, restartablePod(v1.ContainerRestartRuleActionRestartPod), nil)
		r.run()
		syncs := r.syncs
		r.exit("x", 88)
		r.terminate()
		require.ErrorIs(t, r.sync(), context.Canceled)
		require.Equal(t, syncs, r.syncs, "nothing is started")
		require.Empty(t, r.stopped, "the pod's own termination stops what runs")
		require.Empty(t, r.events())
		require.NotEqual(t, v1.ConditionTrue, r.condition(v1.PodRestarting).Status)
	})
}

// The deadline of the pod may pass while its containers are being stopped. The worker
// then terminates the pod at once, as after a sync that begins after the deadline.
func TestRestartPodFailsMeanwhile(t *testing.T) {
	r := newRestartTest(t, restartablePod(v1.ContainerRestartRuleActionRestartPod), nil)
	r.run()
	syncs := r.syncs
	r.exit("x", 88)
	r.kubelet.AddPodSyncHandler(evictAfter{r})
	_, tCtx := ktesting.NewTestContext(t)
	isTerminal, _, err := r.kubelet.syncPodForTest(tCtx, r.pod, r.podStatus())
	require.NoError(t, err)
	require.True(t, isTerminal)
	require.Equal(t, []string{"y/30"}, r.stopped, "the pod's own termination stops the sidecar")
	require.Equal(t, syncs, r.syncs)
	require.Equal(t, v1.PodFailed, r.status().Phase)
}

func TestRestartPodForgets(t *testing.T) {
	r := newRestartTest(t, restartablePod(v1.ContainerRestartRuleActionRestartPod), nil)
	r.run()
	require.NotNil(t, r.kubelet.podRestarts.get(r.pod.UID))
	_, tCtx := ktesting.NewTestContext(t)
	r.kubelet.podManager.SetPods(nil)
	require.NoError(t, r.kubelet.HandlePodCleanups(tCtx))
	require.Nil(t, r.kubelet.podRestarts.get(r.pod.UID))
}

// An instance of the previous run remains the last state of a container that is not
// replaced, however the restart ends. It does not count for the pod's phase, nor as
// the present exit code.
func TestRestartPodPreviousRunStaysOver(t *testing.T) {
	begin := func(t *testing.T, code int) *restartTest {
		pod := restartablePod(v1.ContainerRestartRuleActionRestartPod)
		pod.Spec.Containers[0].RestartPolicyRules = []v1.ContainerRestartRule{{
			Action:    v1.ContainerRestartRuleActionRestartPod,
			ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{int32(code)}},
		}}
		r := newRestartTest(t, pod, nil)
		r.run()
		r.exit("x", code)
		require.NoError(t, r.sync())
		r.again()
		r.exit("x", code)
		require.ErrorIs(t, r.sync(), kubecontainer.ErrCrashLoopBackOff)
		return r
	}
	over := func(t *testing.T, r *restartTest, code int32) {
		for _, name := range []string{"a", "s", "x", "y"} {
			c := r.container(name)
			require.NotEqual(t, fmt.Sprintf("test://%s-1", name), containerIDOf(c.State), name)
			require.Equal(t, fmt.Sprintf("test://%s-1", name), c.LastTerminationState.Terminated.ContainerID, name)
		}
		require.Equal(t, code, r.container("x").LastTerminationState.Terminated.ExitCode)
	}
	for _, code := range []int32{0, 88} {
		t.Run(fmt.Sprintf("deleted in back-off after exit %d", code), func(t *testing.T) {
			r := begin(t, int(code))
			_, tCtx := ktesting.NewTestContext(t)
			r.terminate()
			require.NoError(t, r.kubelet.SyncTerminatingPod(tCtx, r.pod, r.podStatus(), nil, nil))
			require.Equal(t, v1.PodFailed, r.status().Phase)
			over(t, r, code)
			require.Equal(t, int32(137), r.container("x").State.Terminated.ExitCode, "it did not run any more")
			// The runtime's own final status may have fewer containers.
			require.NoError(t, r.kubelet.SyncTerminatedPod(tCtx, r.pod, r.podStatus()))
			require.Equal(t, v1.PodFailed, r.status().Phase)
			over(t, r, code)
		})
	}
	t.Run("deadline", func(t *testing.T) {
		r := begin(t, 88)
		r.kubelet.AddPodSyncHandler(evictAfter{r})
		require.Error(t, errOrTerminal(r))
		require.Equal(t, v1.PodFailed, r.status().Phase)
		over(t, r, 88)
	})
	t.Run("final failure", func(t *testing.T) {
		r := begin(t, 88)
		r.fake.fakeClock.Step(10 * time.Second)
		require.NoError(t, r.sync())
		r.fake.fakeClock.Step(2 * time.Second)
		r.start("a")
		r.exit("a", 1)
		require.NoError(t, r.sync())
		require.Equal(t, v1.PodFailed, r.status().Phase)
		require.Equal(t, int32(1), r.container("a").State.Terminated.ExitCode, "the failure is of the present run")
		for _, name := range []string{"s", "x", "y"} {
			require.NotNil(t, r.container(name).State.Waiting, name)
			require.Equal(t, fmt.Sprintf("test://%s-1", name), r.container(name).LastTerminationState.Terminated.ContainerID, name)
		}
	})
	t.Run("sandbox lost", func(t *testing.T) {
		r := begin(t, 88)
		r.sandboxLost = true
		require.ErrorIs(t, r.sync(), kubecontainer.ErrCrashLoopBackOff)
		require.Equal(t, v1.PodRunning, r.status().Phase)
		over(t, r, 88)
	})
}

// The kubelet computes the phase of a pod in a restart from the present run: exits
// of the previous run make it neither Succeeded nor Failed.
func TestRestartPodPhaseOverRandomStatuses(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	ends := 0
	for range 150 {
		r := newRestartTest(t, restartablePod(v1.ContainerRestartRuleActionRestartPod), nil)
		r.run()
		for range 12 {
			r.fake.fakeClock.Step(time.Duration(random.Intn(20000)) * time.Millisecond)
			before := map[string]bool{}
			restarting := r.condition(v1.PodRestarting).Status == v1.ConditionTrue
			for _, s := range r.statuses {
				before[s.ID.String()] = restarting && !s.StartedAt.After(r.condition(v1.PodRestarting).LastTransitionTime.Time)
			}
			name := []string{"a", "s", "x", "y"}[random.Intn(4)]
			newestOf := func(name string) *kubecontainer.Status {
				for _, s := range slices.Backward(r.statuses) {
					if s.Name == name {
						return s
					}
				}
				return nil
			}
			newest, a, s := newestOf(name), newestOf("a"), newestOf("s")
			// Containers start in order.
			turn := name == "a" || !before[a.ID.String()] && a.State == kubecontainer.ContainerStateExited && a.ExitCode == 0 &&
				(name == "s" || !before[s.ID.String()])
			if newest.State == kubecontainer.ContainerStateRunning {
				r.exit(name, []int{0, 1, 88}[random.Intn(3)])
			} else if restarting && r.kubelet.podRestarts.get(r.pod.UID).plan.Phase == restartpod.PhaseStartup && before[newest.ID.String()] && turn {
				r.start(name)
			}
			_ = r.sync()
			phase := r.status().Phase
			if phase != v1.PodFailed && phase != v1.PodSucceeded {
				continue
			}
			ends++
			ended := 0
			for _, s := range r.podStatus().ContainerStatuses {
				if s.State == kubecontainer.ContainerStateExited && !before[s.ID.String()] && s.Name != "s" {
					ended++
				}
			}
			require.NotZero(t, ended, "%s without an exit of the present run", phase)
			require.NotEqual(t, v1.ConditionTrue, r.condition(v1.PodRestarting).Status)
			break
		}
	}
	require.NotZero(t, ends)
}

// A container that the kubelet itself stops does not restart the pod.
func TestRestartPodStoppedByKubelet(t *testing.T) {
	pod := restartablePod(v1.ContainerRestartRuleActionRestartPod)
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].RestartPolicyRules = []v1.ContainerRestartRule{{
			Action:    v1.ContainerRestartRuleActionRestartPod,
			ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpNotIn, Values: []int32{0}},
		}}
	}
	results := map[string]*kubecontainer.SyncResult{
		"killed":         {Action: kubecontainer.KillContainer, Target: "x"},
		"killed in vain": {Action: kubecontainer.KillContainer, Target: "x", Error: kubecontainer.ErrKillContainer},
		"postStart hook": {Action: kubecontainer.StartContainer, Target: "x", Error: restart.NewBackoffError(kuberuntime.ErrPostStartHook, time.Now())},
	}
	for name, result := range results {
		t.Run(name, func(t *testing.T) {
			r := newRestartTest(t, pod, nil)
			r.run()
			r.result.SyncResults = []*kubecontainer.SyncResult{result}
			if result.Action == kubecontainer.StartContainer {
				r.exit("x", 0)
			}
			_ = r.sync()
			r.result.SyncResults = nil
			if result.Action == kubecontainer.StartContainer {
				r.start("x")
			}
			r.exit("x", 137)
			for range 2 {
				require.NoError(t, r.sync())
				require.Empty(t, r.stopped)
				require.NotEqual(t, v1.ConditionTrue, r.condition(v1.PodRestarting).Status)
			}
			// An exit of its own restarts the pod.
			r.start("x")
			require.NoError(t, r.sync())
			require.Empty(t, r.kubelet.podRestarts.get(pod.UID).stopped, "what is gone is forgotten")
			r.exit("x", 137)
			require.NoError(t, r.sync())
			require.Equal(t, []string{"y/30", "s/30"}, r.stopped)
		})
	}
}

// An exit before the kubelet begins to stop the container is the container's own, although
// the kubelet does not know of it: the exit has made the probe or the postStart hook fail.
func TestRestartPodExitsBeforeItIsStopped(t *testing.T) {
	killed := &kubecontainer.SyncResult{Action: kubecontainer.KillContainer, Target: "x"}
	failed := &kubecontainer.SyncResult{Action: kubecontainer.KillContainer, Target: "x", Error: kubecontainer.ErrKillContainer}
	hook := &kubecontainer.SyncResult{Action: kubecontainer.StartContainer, Target: "x", Error: restart.NewBackoffError(kuberuntime.ErrPostStartHook, time.Now())}
	for name, test := range map[string]struct {
		result *kubecontainer.SyncResult
		// since is when the container exits, after the stop has begun.
		since time.Duration
		// stepped is the step of the clock at the end of the stop.
		stepped  time.Duration
		unstored bool
		restarts bool
	}{
		"before":                       {result: killed, since: -time.Millisecond, restarts: true},
		"before, and it fails":         {result: failed, since: -time.Millisecond, restarts: true},
		"in the stop, which fails":     {result: failed, since: time.Millisecond},
		"long after it fails":          {result: failed, since: time.Hour},
		"in the stop":                  {result: killed, since: time.Millisecond},
		"long after":                   {result: killed, since: time.Hour},
		"clock steps forward":          {result: killed, since: time.Millisecond, stepped: time.Hour},
		"clock steps back":             {result: killed, since: time.Millisecond, stepped: -time.Hour},
		"before, and it is not stored": {result: killed, since: -time.Millisecond, unstored: true},
		"before, in a hook":            {result: hook, since: -time.Millisecond, restarts: true},
		"in the stop, in a hook":       {result: hook, since: time.Millisecond},
		"in a hook, and not stored":    {result: hook, since: -time.Millisecond, unstored: true},
		// The kubelet does not repeat the stop after a failed hook.
		"long after, in a hook": {result: hook, since: time.Hour, restarts: true},
	} {
		for _, action := range []v1.ContainerRestartRuleAction{v1.ContainerRestartRuleActionRestartPod, v1.ContainerRestartRuleActionRestartAllContainers} {
			t.Run(string(action)+" "+name, func(t *testing.T) {
				if action == v1.ContainerRestartRuleActionRestartAllContainers {
					needsRestartAllContainers(t)
				}
				r := newRestartTest(t, restartablePod(action), nil)
				r.run()
				r.fake.fakeClock.Step(time.Minute)
				instance := "test://x-0"
				if test.result == hook {
					instance = "test://x-1"
					r.exit("x", 0)
				}
				begun := r.fake.fakeClock.Now()
				if !test.unstored {
					r.lastStopped, r.stoppedAt = map[string]string{"x": instance}, stopTime(begun)
				}
				r.result.SyncResults = []*kubecontainer.SyncResult{test.result}
				r.fake.fakeClock.SetTime(begun.Add(test.stepped))
				_ = r.sync()
				require.Empty(t, r.stopped)
				r.result.SyncResults = nil
				if test.result == hook {
					r.start("x")
				}
				r.fake.fakeClock.SetTime(begun.Add(test.stepped + test.since))
				r.exit("x", 88)
				r.fake.fakeClock.SetTime(begun.Add(test.stepped + 2*time.Hour))
				for range 2 {
					require.NoError(t, r.sync())
					require.Equal(t, test.restarts, len(r.stopped) > 0)
				}
			})
		}
	}
}

// The first attempt to stop a container may have ended it, also if only the second is stored,
// or if the first hangs for longer than a stop takes.
func TestRestartPodStoppedTwice(t *testing.T) {
	for name, test := range map[string]struct {
		// exits is when the container exits, and again when the kubelet stops it again, after the
		// first stop has begun.
		exits, again time.Duration
		unstored     bool
		restarts     bool
	}{
		"the first is not stored":   {exits: time.Second, again: 2 * time.Second, unstored: true},
		"the first hangs":           {exits: time.Second, again: time.Hour},
		"it exits before the first": {exits: -time.Second, again: time.Hour, restarts: true},
		"the clock steps back":      {exits: -time.Hour, again: -30 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRestartTest(t, restartablePod(v1.ContainerRestartRuleActionRestartPod), nil)
			r.run()
			r.fake.fakeClock.Step(24 * time.Hour)
			begun := r.fake.fakeClock.Now()
			if !test.unstored {
				r.lastStopped, r.stoppedAt = map[string]string{"x": "test://x-0"}, stopTime(begun)
			}
			r.result.SyncResults = []*kubecontainer.SyncResult{{Action: kubecontainer.KillContainer, Target: "x", Error: kubecontainer.ErrKillContainer}}
			_ = r.sync()
			stale := r.podStatus()
			r.fake.fakeClock.SetTime(begun.Add(test.exits))
			r.exit("x", 88)
			r.fake.fakeClock.SetTime(begun.Add(test.again))
			r.lastStopped, r.stoppedAt = map[string]string{"x": "test://x-0"}, restartpod.NewStopTime(r.stoppedAt, r.fake.fakeClock.Now(), 0)
			r.result.SyncResults[0].Error = nil
			_, tCtx := ktesting.NewTestContext(t)
			_, _, _ = r.kubelet.syncPodForTest(tCtx, r.pod, stale)
			r.result.SyncResults = nil
			require.NoError(t, r.sync())
			require.Equal(t, test.restarts, len(r.stopped) > 0)
		})
	}
}

// The probe of a container that exits fails with it, and the runtime manager stops the
// container before the runtime shows the exit. It must not start it again in the same sync.
// containerd may show the exit only some time after the end of that stop.
func TestRestartPodExitsInItsProbe(t *testing.T) {
	for name, test := range map[string]struct {
		// since is when the container exits, after the stop has begun.
		since time.Duration
		// reads is how often the runtime shows the container as running after the stop, or -1 for always.
		reads int
	}{
		"before the stop":                {since: -time.Millisecond},
		"in the stop":                    {since: time.Millisecond},
		"before the stop, and seen late": {since: -time.Millisecond, reads: 3},
		"in the stop, and seen late":     {since: time.Millisecond, reads: 3},
		"before the stop, and not seen":  {since: -time.Millisecond, reads: -1},
	} {
		t.Run(name, func(t *testing.T) {
			pod := restartablePod(v1.ContainerRestartRuleActionRestartPod)
			always := v1.ContainerRestartPolicyAlways
			pod.Spec.Containers[0].RestartPolicy = &always
			r := newRestartTest(t, pod, nil)
			r.run()
			r.fake.fakeClock.Step(time.Minute)
			begun := r.fake.fakeClock.Now()
			reads := test.reads
			r.stop = func() {
				r.lastStopped, r.stoppedAt = map[string]string{"x": "test://x-0"}, stopTime(begun)
				r.read = func() {
					if reads--; reads == -1 {
						r.fake.fakeClock.SetTime(begun.Add(test.since))
						r.exit("x", 88)
						r.fake.fakeClock.SetTime(begun.Add(time.Second))
					}
				}
			}
			r.result.SyncResults = []*kubecontainer.SyncResult{{Action: kubecontainer.KillContainer, Target: "x"}}
			_ = r.sync()
			r.stop, r.read, r.result.SyncResults = nil, nil, nil
			restarts := test.since < 0 && test.reads >= 0
			require.Equal(t, restarts, r.held["x"])
			require.False(t, r.held["y"], "it has not been stopped")
			if !restarts {
				r.start("x")
			}
			require.NoError(t, r.sync())
			require.Equal(t, restarts, len(r.stopped) > 0)
		})
	}
}

// stopTime returns the time of a stop that begins now and takes up to a minute.
func stopTime(now time.Time) restartpod.StopTime {
	return restartpod.StopTime{From: now, Until: now.Add(time.Minute)}
}

// A kubelet that starts while a container waits knows that an earlier kubelet stopped
// it.
func TestRestartPodStoppedByEarlierKubelet(t *testing.T) {
	for _, action := range []v1.ContainerRestartRuleAction{v1.ContainerRestartRuleActionRestartPod, v1.ContainerRestartRuleActionRestartAllContainers} {
		for name, lastStopped := range map[string]string{
			"stopped": "test://x-0", "stopped while the kubelet is away": "test://x-0",
			"the instance before it": "test://x-1", "by itself": "",
			"it was to be stopped, and recovered": "test://x-0", "the same, and it exits later": "test://x-0",
			"it had just exited": "test://x-0", "it had just exited, and the kubelet starts": "test://x-0",
		} {
			t.Run(string(action)+" "+name, func(t *testing.T) {
				if action == v1.ContainerRestartRuleActionRestartAllContainers {
					needsRestartAllContainers(t)
				}
				r := newRestartTest(t, restartablePod(action), nil)
				r.run()
				r.lastStopped, r.stoppedAt = map[string]string{"x": lastStopped}, stopTime(r.fake.fakeClock.Now())
				switch name {
				case "it was to be stopped, and recovered":
					r.fake.fakeClock.Step(time.Minute + time.Second)
					r.exit("x", 88)
					r.restartKubelet()
				case "the same, and it exits later", "stopped while the kubelet is away":
					r.restartKubelet()
					require.NoError(t, r.sync())
					require.Empty(t, r.stopped)
					if name != "stopped while the kubelet is away" {
						r.fake.fakeClock.Step(time.Minute + time.Second)
					}
					r.exit("x", 88)
				case "it had just exited", "it had just exited, and the kubelet starts":
					// In the sync that stops it, the kubelet does not know of the exit.
					r.stoppedAt = stopTime(r.fake.fakeClock.Now().Add(2 * time.Second))
					require.NoError(t, r.sync())
					r.exit("x", 88)
					if name != "it had just exited" {
						r.restartKubelet()
					}
				default:
					r.exit("x", 88)
					r.restartKubelet()
				}
				require.NoError(t, r.sync())
				if strings.HasPrefix(name, "stopped") {
					require.Empty(t, r.stopped)
					require.NoError(t, r.sync())
					require.Empty(t, r.stopped)
					require.NotEqual(t, v1.ConditionTrue, r.condition(v1.PodRestarting).Status)
				} else {
					require.Len(t, r.stopped, 2)
				}
			})
		}
	}
}

// A pod that is done does not run again, whatever its sidecar does while it is being
// stopped or after that, and whichever kubelet sees it.
func TestRestartPodDone(t *testing.T) {
	for _, action := range []v1.ContainerRestartRuleAction{v1.ContainerRestartRuleActionRestartPod, v1.ContainerRestartRuleActionRestartAllContainers} {
		for _, policy := range []v1.ContainerRestartPolicy{v1.ContainerRestartPolicyNever, v1.ContainerRestartPolicyOnFailure} {
			for name, restarts := range map[string]func(*restartTest){
				"one kubelet":                func(*restartTest) {},
				"it restarts when all ended": func(r *restartTest) { r.restartKubelet() },
			} {
				t.Run(fmt.Sprintf("%s %s %s", action, policy, name), func(t *testing.T) {
					if action == v1.ContainerRestartRuleActionRestartAllContainers {
						needsRestartAllContainers(t)
					}
					pod := restartablePod(action)
					pod.Spec.InitContainers[1].RestartPolicyRules[0].ExitCodes = &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpNotIn, Values: []int32{0}}
					for i := range pod.Spec.Containers {
						pod.Spec.Containers[i].RestartPolicy, pod.Spec.Containers[i].RestartPolicyRules = &policy, nil
					}
					r := newRestartTest(t, pod, nil)
					r.run()
					r.exit("x", 0)
					r.exit("y", 0)
					require.NoError(t, r.sync())
					r.fake.fakeClock.Step(time.Second)
					r.exit("s", 143)
					restarts(r)
					syncs := r.syncs
					for range 2 {
						require.NoError(t, r.sync())
						require.Equal(t, v1.PodSucceeded, r.status().Phase)
						for _, c := range []v1.PodConditionType{v1.PodRestarting, v1.AllContainersRestarting} {
							require.NotEqual(t, v1.ConditionTrue, r.condition(c).Status)
						}
					}
					require.Equal(t, syncs, r.syncs, "it starts nothing")
					require.Empty(t, r.stopped)
				})
			}
		}
	}
}

// The API accepts a grace period that is no Duration.
func TestRestartPodLongGracePeriod(t *testing.T) {
	for _, grace := range []int64{10000000000, math.MaxInt64} {
		pod := restartablePod(v1.ContainerRestartRuleActionRestartPod)
		pod.Spec.TerminationGracePeriodSeconds = &grace
		r := newRestartTest(t, pod, nil)
		r.run()
		r.exit("x", 88)
		require.NoError(t, r.sync())
		require.Equal(t, []string{fmt.Sprintf("y/%d", math.MaxInt32), fmt.Sprintf("s/%d", math.MaxInt32)}, r.stopped)
	}
}

// A container that the kubelet stopped starts again by its policy and not by a rule
// for the whole pod. The same applies to the phase.
func TestRestartPodStoppedForGood(t *testing.T) {
	r := newRestartTest(t, restartablePod(v1.ContainerRestartRuleActionRestartPod), nil)
	r.run()
	r.result.SyncResults = []*kubecontainer.SyncResult{{Action: kubecontainer.KillContainer, Target: "x"}}
	require.NoError(t, r.sync())
	r.result.SyncResults = nil
	r.exit("x", 88)
	require.NoError(t, r.sync())
	restarts := func(name string) bool {
		return shouldBeRestarted(kubecontainer.GetContainerSpec(r.syncedPod, name), r.syncedPod, r.podStatus())
	}
	require.False(t, restarts("x"))
	r.kubelet.reasonCache.add(r.pod.UID, "x", kuberuntime.ErrPostStartHook, "it failed")
	require.NoError(t, r.sync())
	require.Equal(t, int32(88), r.container("x").State.Terminated.ExitCode, "it does not wait")
	require.Equal(t, v1.ContainerRestartRuleActionRestartPod, r.syncedPod.Spec.Containers[1].RestartPolicyRules[0].Action, "the rules of others count")
	require.Equal(t, v1.ContainerRestartRuleActionRestartPod, r.pod.Spec.Containers[0].RestartPolicyRules[0].Action)
	require.Equal(t, v1.PodRunning, r.status().Phase)
	r.exit("y", 0)
	r.exit("s", 0) // it ends after the last of the others
	require.NoError(t, r.sync())
	require.Equal(t, v1.PodFailed, r.status().Phase)
	require.Empty(t, r.stopped)
}

// Containers that run without the pod's cgroups are stopped. That is not an exit of
// their own.
func TestRestartPodWithoutCgroups(t *testing.T) {
	r := newRestartTest(t, restartablePod(v1.ContainerRestartRuleActionRestartPod), nil)
	r.run()
	r.kubelet.containerManager = withoutCgroups{r.kubelet.containerManager, nil}
	waits := kubecontainer.NewSyncResult(kubecontainer.StartContainer, "y")
	waits.Fail(restart.NewBackoffError(kubecontainer.ErrCrashLoopBackOff, time.Now()), "back-off")
	r.result.SyncResults = []*kubecontainer.SyncResult{waits}
	// The runtime manager knows what it stops.
	r.lastStopped, r.stoppedAt = map[string]string{"s": "test://s-0", "x": "test://x-0", "y": "test://y-0"}, stopTime(r.fake.fakeClock.Now())
	require.ErrorIs(t, r.sync(), kubecontainer.ErrCrashLoopBackOff)
	r.result.SyncResults = nil
	for _, name := range []string{"s", "x", "y"} {
		r.exit(name, 88)
	}
	require.NoError(t, r.sync())
	require.Empty(t, r.stopped)
	require.NotEqual(t, v1.ConditionTrue, r.condition(v1.PodRestarting).Status)
}

// The sync that restarts the pod does not stop what it has just stopped, because the
// pod's cgroups were missing.
func TestRestartPodStoppedForCgroups(t *testing.T) {
	r := newRestartTest(t, restartablePod(v1.ContainerRestartRuleActionRestartPod), nil)
	r.run()
	r.exit("x", 88)
	r.kubelet.containerManager = withoutCgroups{r.kubelet.containerManager, nil}
	r.kubelet.containerRuntime = podKiller{r}
	require.NoError(t, r.sync())
	require.True(t, r.sandboxLost)
	require.Empty(t, r.stopped)
	require.Empty(t, r.synced, "the runtime manager sees a new pod")
	require.Equal(t, v1.ConditionTrue, r.condition(v1.PodRestarting).Status)
	require.Equal(t, int32(137), r.container("y").LastTerminationState.Terminated.ExitCode)

	r.sandboxLost, r.kubelet.containerRuntime = false, r
	r.again()
	require.Equal(t, v1.ConditionFalse, r.condition(v1.PodRestarting).Status)
	require.Empty(t, r.stopped)
}

// A container that ended while the sync waited for volumes is not stopped.
func TestRestartPodEndsBeforeItIsStopped(t *testing.T) {
	r := newRestartTest(t, restartablePod(v1.ContainerRestartRuleActionRestartPod), nil)
	r.run()
	r.exit("x", 88)
	r.kubelet.volumeManager = lateVolumes{r.kubelet.volumeManager, func() { r.exit("y", 88) }}
	require.NoError(t, r.sync())
	require.Equal(t, []string{"s/30"}, r.stopped)
	require.Empty(t, r.synced, "the runtime manager sees a new pod")
}

// A static pod that comes back has its previous run for as long as the runtime knows
// it.
func TestRestartPodComesBack(t *testing.T) {
	r := newRestartTest(t, staticPod(restartablePod(v1.ContainerRestartRuleActionRestartPod)), nil)
	r.run()
	_, tCtx := ktesting.NewTestContext(t)
	r.terminate()
	for _, name := range []string{"s", "x", "y"} {
		r.exit(name, 88)
	}
	r.kubelet.podCache = cacheOf{containertest.NewFakeCache(r), r}
	r.kubelet.podManager.SetPods(nil)
	require.NoError(t, r.kubelet.HandlePodCleanups(tCtx))
	require.NoError(t, r.kubelet.SyncTerminatedPod(tCtx, r.pod, r.podStatus()))
	require.NoError(t, r.kubelet.HandlePodCleanups(tCtx))
	r.kubelet.podManager.SetPods([]*v1.Pod{r.pod})
	r.kubelet.podWorkers.(*fakePodWorkers).terminationRequested = nil
	require.NoError(t, r.sync())
	require.NotEqual(t, v1.ConditionTrue, r.condition(v1.PodRestarting).Status)
	r.kubelet.podManager.SetPods(nil)
	r.statuses = nil
	require.NoError(t, r.kubelet.HandlePodCleanups(tCtx))
	require.Nil(t, r.kubelet.podRestarts.get(r.pod.UID))
}

// A static pod that ran and ended, and whose UID runs again, is not in a restart.
func TestRestartPodRunsAgain(t *testing.T) {
	r := newRestartTest(t, staticPod(restartablePod(v1.ContainerRestartRuleActionRestartPod)), nil)
	r.run()
	_, tCtx := ktesting.NewTestContext(t)
	r.terminate()
	for _, name := range []string{"s", "x", "y"} {
		r.exit(name, 88)
	}
	require.NoError(t, r.kubelet.SyncTerminatingPod(tCtx, r.pod, r.podStatus(), nil, nil))
	r.kubelet.podWorkers.(*fakePodWorkers).terminationRequested = nil
	r.stopped = nil
	require.NoError(t, r.sync())
	require.Empty(t, r.stopped)
	require.NotEqual(t, v1.ConditionTrue, r.condition(v1.PodRestarting).Status)
}

// It is not an error if the sandbox and containers are gone from the runtime.
func TestRestartPodGone(t *testing.T) {
	r := newRestartTest(t, restartablePod(v1.ContainerRestartRuleActionRestartPod), nil)
	r.run()
	r.exit("x", 88)
	r.stopping = func() { r.gone = true }
	require.NoError(t, r.sync())
	require.Equal(t, []string{"y/30"}, r.stopped)
	require.NotNil(t, r.kubelet.podRestarts.get(r.pod.UID))
}
