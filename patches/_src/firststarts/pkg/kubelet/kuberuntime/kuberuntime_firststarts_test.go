//go:build go1.25

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
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"k8s.io/kubernetes/pkg/kubelet/backoff"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/restart"
	"k8s.io/kubernetes/test/utils/ktesting"
)

func TestRestartsAreBounded(t *testing.T) {
	withOrderedNode(t, 1, func(t *testing.T, n *orderedNode) {
		release := n.hanging("a")
		b, bStatus := crashed("b")
		n.putsOff(b, bStatus)
		c, cStatus := crashed("c")
		n.putsOff(c, cStatus)
		n.putsOff(b, bStatus)
		n.wantTurns()
		release()
		n.wantTurns("b")
		n.putsOff(c, cStatus)
		wasPutOff := false
		n.backOff.Clock = askingClock{n.backOff.Clock, func() {
			wasPutOff = wasPutOff || n.m.WasPutOff(GetBackoffKey(b, &b.Spec.Containers[0]))
			require.False(t, n.m.WasPutOff(GetBackoffKey(c, &c.Spec.Containers[0])))
		}}
		n.starts(b, bStatus)
		require.True(t, wasPutOff, "while the restart is decided")
		n.backOff.Clock = clock.RealClock{}
		n.wantTurns("c")
		n.starts(c, cStatus)
		n.starts(crashed("d"))
		n.wantTurns()
		n.wantIdle()
	})
}

// A first start never waits, and fewer restarts run beside it.
func TestFirstStartsComeFirst(t *testing.T) {
	withOrderedNode(t, 2, func(t *testing.T, n *orderedNode) {
		release := n.hanging("a", "b")
		n.putsOff(crashed("c"))
		first, status := fresh("first")
		go n.starts(first, status)
		synctest.Wait()
		require.Len(t, n.runtime.pods, 3, "all have been created")
		// It hangs, and so do the restarts. None of them counts for ever.
		n.wantTurns()
		time.Sleep(6 * time.Second)
		n.wantTurns("c")
		release()
		synctest.Wait()
		n.starts(crashed("c"))
		n.wantIdle()
	})
}

// A start stops counting however it ends, and a waiting restart has its turn.
func TestStartsEnd(t *testing.T) {
	hook := func(pod *v1.Pod) {
		pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 60}}}
	}
	fails := errors.New("no")
	tests := map[string]struct {
		pod  func(*v1.Pod)
		fail func(*orderedNode)
		err  error
		// during is true if others have their turn before the sync has ended.
		during bool
	}{
		"start":          {},
		"create fails":   {fail: func(n *orderedNode) { n.runtime.create = func(types.UID) error { return fails } }, err: ErrCreateContainer},
		"start fails":    {fail: func(n *orderedNode) { n.runtime.start = func(types.UID) error { return fails } }, err: kubecontainer.ErrRunContainer},
		"config fails":   {fail: func(n *orderedNode) { n.m.runtimeHelper = failingConfig{n.m.runtimeHelper} }, err: ErrCreateContainerConfig},
		"panic":          {fail: func(n *orderedNode) { n.runtime.create = func(types.UID) error { panic("no") } }},
		"postStart hook": {pod: hook, during: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			withOrderedNode(t, 1, func(t *testing.T, n *orderedNode) {
				n.m.startOrder().queue.Restart(startKey{"other", "k"}, time.Now())
				pod, status := crashed("a")
				if tc.pod != nil {
					tc.pod(pod)
				}
				n.putsOff(pod, status)
				n.putsOff(crashed("b"))
				n.m.startOrder().end(startKey{"other", "k"})
				n.wantTurns("a")
				if tc.fail != nil {
					tc.fail(n)
				}
				done := make(chan error)
				go func() {
					defer close(done)
					defer func() { _ = recover() }()
					if err := n.sync(pod, status); err != nil {
						done <- err
					}
				}()
				if tc.during {
					n.wantTurns("b")
				}
				require.ErrorIs(t, <-done, tc.err)
				if !tc.during {
					n.wantTurns("b")
				}
				n.m.startOrder().end(startKey{"b", GetBackoffKey(pod, &pod.Spec.Containers[0])})
			})
		})
	}
}

// A delayed pod that was deleted, or that does not come, blocks nobody.
func TestPutOffPodsThatDoNotCome(t *testing.T) {
	withOrderedNode(t, 1, func(t *testing.T, n *orderedNode) {
		release := n.hanging("a")
		for _, uid := range []types.UID{"deleted", "hangs", "c"} {
			n.putsOff(crashed(uid))
		}
		n.deleted["deleted"] = true
		release()
		n.wantTurns("hangs")
		time.Sleep(2 * time.Second)
		n.wantTurns("c")
		n.starts(crashed("c"))
		n.starts(crashed("hangs"))
		n.wantIdle()
	})
}

// The containers of one pod have their turns one after the other. The containers of a
// pod that is restarted in place wait too.
func TestContainersOfOnePod(t *testing.T) {
	withOrderedNode(t, 1, func(t *testing.T, n *orderedNode) {
		release := n.hanging("a")

		pod, status := crashed("two")
		second := *pod.Spec.Containers[0].DeepCopy()
		second.Name = "second"
		pod.Spec.Containers = append(pod.Spec.Containers, second)
		s := *status.ContainerStatuses[0]
		s.Name, s.ID.ID, s.Hash = "second", "second", kubecontainer.HashContainer(&second)
		status.ContainerStatuses = append(status.ContainerStatuses, &s)
		n.putsOff(pod, status)

		whole, wholeStatus := fresh("whole")
		wholeStatus.Restart = &kubecontainer.PodRestart{LastCounts: map[string]int{whole.Spec.Containers[0].Name: 3}}
		n.putsOff(whole, wholeStatus)

		release()
		n.wantTurns("two")
		n.starts(pod, status) // both: the second container has its turn when the first start ends
		n.wantTurns("two", "whole")
		n.starts(whole, wholeStatus)
		n.wantIdle()
	})
}

// A container in back-off requests no turn, even if it ran before its pod was
// restarted.
func TestFailedStartInRestartedPod(t *testing.T) {
	withOrderedNode(t, 1, func(t *testing.T, n *orderedNode) {
		whole, status := fresh("whole")
		status.Restart = &kubecontainer.PodRestart{LastCounts: map[string]int{whole.Spec.Containers[0].Name: 3}}
		n.runtime.create = func(types.UID) error { return errors.New("no") }
		require.ErrorIs(t, n.sync(whole, status), ErrCreateContainer) // It is retried at once, and then after a second.
		require.ErrorIs(t, n.sync(whole, status), ErrCreateContainer)
		n.runtime.create = nil
		release := n.hanging("a")
		err := n.sync(whole, status)
		require.ErrorIs(t, err, kubecontainer.ErrCrashLoopBackOff)
		at, _ := restart.MinBackoffExpiration(err)
		require.Equal(t, time.Second, time.Until(at))
		time.Sleep(time.Second)
		n.putsOff(whole, status)
		release()
		n.wantTurns("whole")
		n.starts(whole, status)
		n.wantIdle()
	})
}

// With the gate off there is no order, and calls are not intercepted.
func TestWithoutFirstStartsFirst(t *testing.T) {
	ctx := ktesting.Init(t)
	_, _, m, err := runtimeManagerForTest(ctx, &record.FakeRecorder{})
	require.NoError(t, err)
	service := m.runtimeService
	require.Equal(t, service, firstStartsFirst(service))
	pod, status := crashed("a")
	same, end := m.startsOf(context.Background(), pod)
	require.Equal(t, context.Background(), same)
	end(nil)
	require.False(t, m.WasPutOff("k"))
	backOff := backoff.NewBackOff(time.Second, time.Second)
	for i := range 100 {
		pod.UID = types.UID(fmt.Sprint(i))
		waits, _, err := m.doBackOff(ctx, pod, &pod.Spec.Containers[0], status, backOff)
		require.NoError(t, err)
		require.False(t, waits)
	}
}

// TestManyCrashingPods uses all parts of the order at once.
func TestManyCrashingPods(t *testing.T) {
	const pods, limit = 50, 3
	withOrderedNode(t, limit, func(t *testing.T, n *orderedNode) {
		wake := map[types.UID]chan struct{}{}
		for i := range pods {
			wake[types.UID(fmt.Sprint(i))] = make(chan struct{}, 1)
		}
		n.m.OnRestartTurn(func(uid types.UID) bool {
			select {
			case wake[uid] <- struct{}{}:
			default:
			}
			return true
		})
		var lock sync.Mutex
		under, most := 0, 0
		n.runtime.create = func(types.UID) error {
			lock.Lock()
			under++
			most = max(most, under)
			lock.Unlock()
			time.Sleep(100 * time.Millisecond)
			return nil
		}
		n.runtime.start = func(types.UID) error {
			lock.Lock()
			under--
			lock.Unlock()
			return nil
		}
		var wg sync.WaitGroup
		for uid, c := range wake {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for starts := 0; starts < 5; {
					pod, status := crashed(uid)
					status.ContainerStatuses[0].RestartCount = starts
					time.Sleep(time.Second)
					for n.sync(pod, status) != nil {
						<-c
					}
					starts++
				}
			}()
		}
		began := time.Now()
		wg.Wait()
		require.Equal(t, limit, most)
		require.InDelta(t, pods*5*0.1/limit, time.Since(began).Seconds(), 3, "the runtime was never idle for long")
		n.wantIdle()
	})
}
