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

package kuberuntime

import (
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubernetes/pkg/apis/scheduling"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/backoff"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/restart"
	"k8s.io/kubernetes/test/utils/ktesting"
)

func TestStartTurns(t *testing.T) {
	const cpus = 4
	var turns startTurns
	came := func(turn chan struct{}) bool {
		select {
		case <-turn:
			return true
		default:
			return false
		}
	}
	for range 4 * cpus {
		require.Nil(t, turns.begin(true, cpus))
	}
	first, second := turns.begin(true, cpus), turns.begin(true, cpus)
	require.Nil(t, turns.begin(false, cpus), "a first start does not wait")
	for range 4*cpus - 2 {
		turns.end(true, cpus)
		require.False(t, came(first), "fewer during a first start")
	}
	turns.end(true, cpus)
	require.True(t, came(first), "the one that came first")
	require.False(t, came(second))
	third := turns.begin(true, cpus)
	require.Equal(t, 2, turns.restarts)
	turns.leave(second)
	require.Equal(t, 3, turns.restarts, "it is made without a turn")
	turns.leave(first)
	require.Equal(t, 3, turns.restarts, "it had its turn")
	turns.end(false, cpus)
	require.True(t, came(third), "no first start any more")
	require.False(t, came(second))
	require.Equal(t, 4, turns.restarts)

	var one startTurns
	require.Nil(t, one.begin(false, 1))
	require.Nil(t, one.begin(true, 1), "one at least")
	require.NotNil(t, one.begin(true, 1))
}

// crashingManager is a runtime manager that has counted two restarts of the container crashing, and
// one of the container restarted.
func crashingManager(pod *v1.Pod, delayFirst bool) *kubeGenericRuntimeManager {
	now := time.Now()
	clock := testingclock.NewFakeClock(now)
	b := backoff.NewFakeBackOff(time.Second, time.Minute, clock)
	b.DelayFirstRestart = delayFirst
	for _, name := range []string{"restarted", "crashing", "crashing"} {
		key := restart.Key(pod, &v1.Container{Name: name})
		now = now.Add(time.Second)
		exit := now
		for !b.Decide(key, exit, now).Allowed {
			now = now.Add(time.Second)
		}
	}
	clock.SetTime(now)
	return &kubeGenericRuntimeManager{containerBackOff: containerBackOff{b}, podStateProvider: newFakePodStateProvider()}
}

func (t *startTurns) counted() [2]int {
	t.lock.Lock()
	defer t.lock.Unlock()
	return [2]int{t.firsts, t.restarts}
}

// A start is counted once, and ends once.
func TestTakeTurn(t *testing.T) {
	containers := []v1.Container{{Name: "new"}, {Name: "restarted"}, {Name: "crashing"}, {Name: "last"}}
	pod := &v1.Pod{Spec: v1.PodSpec{InitContainers: []v1.Container{{Name: "init"}}, Containers: containers}}
	critical := &v1.Pod{Spec: v1.PodSpec{Priority: ptr.To(scheduling.SystemCriticalPriority)}}
	ran := []*kubecontainer.Status{{Name: "restarted"}, {Name: "crashing"}}
	restarting := &kubecontainer.PodRestart{LastCounts: map[string]int{}}
	for _, delayFirst := range []bool{false, true} {
		m := crashingManager(pod, delayFirst)
		takeTurn := func(pod *v1.Pod, ran []*kubecontainer.Status, r *kubecontainer.PodRestart, name string) func(bool) {
			end, err := m.takeTurn(withSyncStart(t.Context()), pod, &kubecontainer.PodStatus{ContainerStatuses: ran, Restart: r}, &v1.Container{Name: name})
			require.NoError(t, err)
			return end
		}
		sandbox := func(attempt uint32) func(bool) {
			end := m.takeFirstTurn(pod, attempt)
			var once sync.Once
			return func(ok bool) {
				err := errors.New("no network")
				if ok {
					err = nil
				}
				once.Do(func() { end(err) })
			}
		}
		takes := map[string]struct {
			take func() func(bool)
			want [2]int
			next int // first starts that still count when it is made
		}{
			"new":                         {func() func(bool) { return takeTurn(pod, ran, nil, "new") }, [2]int{1, 0}, 1},
			"last":                        {func() func(bool) { return takeTurn(pod, ran, nil, "last") }, [2]int{1, 0}, 0},
			"init":                        {func() func(bool) { return takeTurn(pod, ran, nil, "init") }, [2]int{1, 0}, 1},
			"ephemeral":                   {func() func(bool) { return takeTurn(pod, ran, nil, "debugger") }, [2]int{1, 0}, 0},
			"sandbox":                     {func() func(bool) { return sandbox(0) }, [2]int{1, 0}, 1},
			"sandbox again":               {func() func(bool) { return sandbox(1) }, [2]int{}, 0},
			"restarted once":              {func() func(bool) { return takeTurn(pod, ran, nil, "restarted") }, [2]int{}, 0},
			"crashing":                    {func() func(bool) { return takeTurn(pod, ran, nil, "crashing") }, [2]int{0, 1}, 0},
			"crashing, instances removed": {func() func(bool) { return takeTurn(pod, nil, nil, "crashing") }, [2]int{0, 1}, 0},
			"critical":                    {func() func(bool) { return takeTurn(critical, ran, nil, "crashing") }, [2]int{}, 0},
			"critical, instances removed": {func() func(bool) { return takeTurn(critical, nil, nil, "crashing") }, [2]int{}, 0},
			"in a pod's restart":          {func() func(bool) { return takeTurn(pod, nil, restarting, "crashing") }, [2]int{}, 0},
			"crashing in it":              {func() func(bool) { return takeTurn(pod, ran, restarting, "crashing") }, [2]int{0, 1}, 0},
		}
		for _, gate := range []bool{false, true} {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.KubeletFirstStartsFirst, gate)
			for name, tc := range takes {
				if !gate {
					tc.want, tc.next = [2]int{}, 0
				}
				for _, ok := range []bool{false, true} {
					synctest.Test(t, func(t *testing.T) {
						end := tc.take()
						require.Equal(t, tc.want, m.counted(), name)
						end(ok)
						end(true)
						next := 0
						if ok {
							next = tc.next
						}
						require.Equal(t, [2]int{next, 0}, m.counted(), name)
						time.Sleep(untilNext)
						synctest.Wait()
						require.Equal(t, [2]int{}, m.counted(), name)
						require.True(t, m.noneMade())
					})
				}
			}
		}
	}
}

func (t *startTurns) noneMade() bool {
	none := true
	t.made.Range(func(_, _ any) bool { none = false; return none })
	return none
}

// A first start counts until the next one of its pod begins, and does not end that one.
func TestNextFirstStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns startTurns
		turns.takeFirst("pod")(true)
		turns.takeFirst("other")(false)
		require.Equal(t, [2]int{1, 0}, turns.counted())
		time.Sleep(untilNext - 1)
		made := turns.takeFirst("pod")
		require.Equal(t, [2]int{1, 0}, turns.counted(), "the first one has ended")
		made(true)
		time.Sleep(1)
		synctest.Wait()
		require.False(t, turns.noneMade(), "the timer of the first one leaves the second one")
		require.Equal(t, [2]int{1, 0}, turns.counted(), "it ends once")
		time.Sleep(untilNext)
		synctest.Wait()
		require.True(t, turns.noneMade())
		require.Equal(t, [2]int{}, turns.counted(), "no other one begins")

		turns.takeFirst("pod")
		end := turns.takeRestart(time.Now(), func() bool { return false })
		time.Sleep(longestStart - 1)
		synctest.Wait()
		require.Equal(t, [2]int{1, 1}, turns.counted())
		time.Sleep(1)
		synctest.Wait()
		require.Equal(t, [2]int{}, turns.counted(), "a start that hangs")
		end()
		require.Equal(t, [2]int{}, turns.counted())
	})
}

// A restart waits for its turn, or until a time, or until its pod has ended.
func TestTakeRestartWaits(t *testing.T) {
	full := 4 * runtime.NumCPU()
	for name, tc := range map[string]struct {
		turn, until, ended time.Duration
		want               time.Duration
		counted            int
	}{
		"turn":       {3 * time.Second, time.Hour, time.Hour, 3 * time.Second, full},
		"late":       {time.Hour, 3 * time.Second, time.Hour, 3 * time.Second, full + 1},
		"ended":      {time.Hour, time.Hour, 3 * time.Second, 3 * time.Second, full + 1},
		"late sync":  {time.Hour, -time.Second, time.Hour, 0, full + 1},
		"ended once": {time.Hour, time.Hour, time.Second / 10, checkEnded, full + 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			turns, began := startTurns{restarts: full}, time.Now()
			time.AfterFunc(tc.turn, func() { turns.end(true, runtime.NumCPU()) })
			end := turns.takeRestart(began.Add(tc.until), func() bool { return time.Since(began) >= tc.ended })
			require.Equal(t, tc.want, time.Since(began), name)
			require.Equal(t, [2]int{0, tc.counted}, turns.counted(), name)
			require.Empty(t, turns.waiting)
			end()
			require.Equal(t, [2]int{0, tc.counted - 1}, turns.counted(), name)
			time.Sleep(time.Hour)
		})
	}
}

// The restarts of a sync wait ten seconds in total, not each.
func TestTakeTurnsOfSync(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.KubeletFirstStartsFirst, true)
	pod := &v1.Pod{}
	m := crashingManager(pod, false)
	m.restarts = 1 << 20
	ran := &kubecontainer.PodStatus{ContainerStatuses: []*kubecontainer.Status{{Name: "crashing"}}}
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		ctx := withSyncStart(t.Context())
		time.Sleep(time.Second)
		for i := range 3 {
			end, err := m.takeTurn(ctx, pod, ran, &v1.Container{Name: "crashing"})
			require.NoError(t, err)
			require.Equal(t, [2]int{0, 1<<20 + i + 1}, m.counted(), "it counts without a turn")
			defer end(true)
		}
		require.Equal(t, longestTurn, time.Since(began))
	})
}

// A container whose pod has ended does not wait, is not started and does not count.
func TestTakeTurnOfEndedPod(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.KubeletFirstStartsFirst, true)
	ran := &kubecontainer.PodStatus{ContainerStatuses: []*kubecontainer.Status{{Name: "crashing"}}}
	for _, deadline := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "pod"}, Spec: v1.PodSpec{
				Containers: []v1.Container{{Name: "crashing"}, {Name: "new"}, {Name: "last"}},
			}}
			m := crashingManager(pod, false)
			m.restarts = 1 << 20
			began, waits := time.Now(), time.Duration(0)
			if deadline {
				waits = 3 * time.Second
				pod.Spec.ActiveDeadlineSeconds, pod.Status.StartTime = ptr.To[int64](5), &metav1.Time{Time: began.Add(-2 * time.Second)}
			} else {
				m.podStateProvider.(*fakePodStateProvider).removed[pod.UID] = struct{}{}
			}
			for _, name := range []string{"crashing", "new"} {
				_, err := m.takeTurn(withSyncStart(t.Context()), pod, ran, &v1.Container{Name: name})
				require.ErrorIs(t, err, errPodEnded)
				require.Equal(t, [2]int{0, 1 << 20}, m.counted())
				require.Empty(t, m.waiting)
				require.Equal(t, waits, time.Since(began))
			}
		})
	}
}

// Only the time since a pod's start counts for its activeDeadlineSeconds.
func TestHasEnded(t *testing.T) {
	start := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		seconds *int64
		start   *metav1.Time
		after   time.Duration
		want    bool
	}{
		"no deadline":  {nil, &metav1.Time{Time: start}, time.Hour, false},
		"not started":  {ptr.To[int64](5), nil, time.Hour, false},
		"before":       {ptr.To[int64](5), &metav1.Time{Time: start}, 5*time.Second - 1, false},
		"at":           {ptr.To[int64](5), &metav1.Time{Time: start}, 5 * time.Second, true},
		"clock behind": {ptr.To[int64](5), &metav1.Time{Time: start}, -time.Hour, false},
	} {
		pod := &v1.Pod{Spec: v1.PodSpec{ActiveDeadlineSeconds: tc.seconds}, Status: v1.PodStatus{StartTime: tc.start}}
		m := crashingManager(pod, false)
		require.Equal(t, tc.want, m.hasEnded(pod, start.Add(tc.after)), name)
	}
}

// A sync takes turns for its sandbox and its containers.
func TestSyncPodTakesTurns(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.KubeletFirstStartsFirst, true)
	tCtx := ktesting.Init(t)
	fakeRuntime, fakeImage, m, err := runtimeManagerForTest(tCtx, &record.FakeRecorder{})
	require.NoError(t, err)
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "12345678", Name: "foo", Namespace: "new"}, Spec: v1.PodSpec{
		Containers: []v1.Container{
			{Name: "main", Image: "busybox", ImagePullPolicy: v1.PullIfNotPresent}, {Name: "other", Image: "absent", ImagePullPolicy: v1.PullIfNotPresent},
		},
	}}
	fakeImage.SetFakeImages([]string{"busybox:latest"})
	// They would sleep until the time of the last error of another test.
	handlers := utilruntime.ErrorHandlers
	utilruntime.ErrorHandlers = nil
	defer func() { utilruntime.ErrorHandlers = handlers }()
	synctest.Test(t, func(t *testing.T) {
		m.restartBackOff = backoff.NewBackOff(time.Second, time.Minute)
		sync := func(status *kubecontainer.PodStatus) error {
			result := m.syncPodForTest(tCtx, pod, status, flowcontrol.NewBackOff(time.Second, time.Minute))
			return result.Error()
		}
		ended := func() {
			t.Helper()
			synctest.Wait()
			require.Equal(t, [2]int{}, m.counted())
			require.True(t, m.noneMade())
		}

		fakeRuntime.InjectError("RunPodSandbox", errors.New("no network"))
		require.Error(t, sync(&kubecontainer.PodStatus{}))
		ended()

		fakeImage.InjectError("PullImage", errors.New("no registry"))
		require.Error(t, sync(&kubecontainer.PodStatus{}))
		require.Equal(t, [2]int{1, 0}, m.counted(), "the other container is to follow")
		time.Sleep(untilNext)
		ended()
		require.Len(t, fakeRuntime.Containers, 1)

		m.restartBackOff.Decide(restart.Key(pod, &pod.Spec.Containers[0]), time.Now(), time.Now())
		time.Sleep(time.Minute)
		status := &kubecontainer.PodStatus{ID: pod.UID, Name: pod.Name, Namespace: pod.Namespace}
		for id := range fakeRuntime.Sandboxes {
			status.SandboxStatuses = append(status.SandboxStatuses, &runtimeapi.PodSandboxStatus{
				Id: id, State: runtimeapi.PodSandboxState_SANDBOX_READY,
				Metadata: &runtimeapi.PodSandboxMetadata{Name: pod.Name, Namespace: pod.Namespace, Uid: string(pod.UID)},
				Network:  &runtimeapi.PodSandboxNetworkStatus{Ip: "10.0.0.1"},
			})
		}
		setStatusesForTest(status, &kubecontainer.Status{
			Name: "main", ID: kubecontainer.ContainerID{ID: "main"}, State: kubecontainer.ContainerStateExited, ExitCode: 1,
			StartedAt: time.Now().Add(-20 * time.Second), FinishedAt: time.Now().Add(-10 * time.Second), Hash: kubecontainer.HashContainer(&pod.Spec.Containers[0]),
		})
		m.restarts = 1 << 20
		fakeRuntime.InjectError("CreateContainer", errors.New("no space"))
		fakeImage.InjectError("PullImage", errors.New("no registry"))
		began := time.Now()
		require.Error(t, sync(status))
		require.Equal(t, longestTurn, time.Since(began), "the restart waits")
		require.Equal(t, [2]int{0, 1 << 20}, m.counted())
	})
}
