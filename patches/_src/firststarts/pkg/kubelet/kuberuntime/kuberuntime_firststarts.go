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
	"runtime"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"

	"k8s.io/kubernetes/pkg/features"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/restart"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
)

const (
	// longestTurn is how long after the start of a sync its restarts wait for their turn
	// at most. The pod's worker waits with them, and so does a change of the pod. With a
	// hundred pods that crash all the time, a turn comes after six seconds on two CPUs.
	longestTurn = 10 * time.Second
	// checkEnded is how often a restart that waits checks that its pod has not ended.
	checkEnded = 200 * time.Millisecond
	// longestStart is how long a start counts at most. One that takes longer does not keep
	// the runtime busy, but hangs.
	longestStart = 30 * time.Second
	// untilNext is how long a first start still counts when it is made and another one of
	// the same pod is to follow, unless that one begins before. Without it, the restarts
	// that wait would begin just before it.
	untilNext = 200 * time.Millisecond
)

// errPodEnded is why a container is not started.
var errPodEnded = errors.New("PodEnded")

// startTurns counts the starts of a node's containers. Restarts of containers that crash
// repeatedly take turns: at most four per CPU are made at once, and while a container or a
// sandbox is started for the first time, one for two CPUs, but at least one. A restart beyond
// that waits in its pod's worker for its turn, in the order of arrival, and only what follows in
// the same pod waits with it. Ten seconds after the sync began, or when the pod has ended, it
// waits no longer and counts too. A start counts until the runtime has started the container or
// it has failed, but no longer than thirty seconds. If another first start of the pod is to
// follow, a first start counts until that one begins, but no longer than 200 ms after it was
// made. The zero value is ready for use.
type startTurns struct {
	lock             sync.Mutex
	firsts, restarts int
	// waiting has a channel for each restart that waits. It is closed when the restart has
	// its turn, and is then counted.
	waiting []chan struct{}
	// made has a pointer to the function that ends a first start, by the UID of its pod,
	// from when it is made until the next one begins or untilNext has passed.
	made sync.Map
}

// begin counts a start and returns nil. If the start has to wait, begin returns the channel that
// is closed at its turn. Only restarts of crashing containers wait.
func (t *startTurns) begin(crashing bool, cpus int) chan struct{} {
	t.lock.Lock()
	defer t.lock.Unlock()
	switch {
	case !crashing:
		t.firsts++
	case len(t.waiting) == 0 && t.room(cpus):
		t.restarts++
	default:
		turn := make(chan struct{})
		t.waiting = append(t.waiting, turn)
		return turn
	}
	return nil
}

// end ends a start that is counted.
func (t *startTurns) end(crashing bool, cpus int) {
	t.lock.Lock()
	defer t.lock.Unlock()
	if crashing {
		t.restarts--
	} else {
		t.firsts--
	}
	for len(t.waiting) > 0 && t.room(cpus) {
		t.restarts++
		close(t.waiting[0])
		t.waiting = t.waiting[1:]
	}
}

// leave makes a restart wait no longer. Without a turn, it is counted too.
func (t *startTurns) leave(turn chan struct{}) {
	t.lock.Lock()
	defer t.lock.Unlock()
	if i := slices.Index(t.waiting, turn); i >= 0 {
		t.waiting = slices.Delete(t.waiting, i, i+1)
		t.restarts++
	}
}

// room reports whether one more restart may be made.
func (t *startTurns) room(cpus int) bool {
	if t.firsts > 0 {
		return t.restarts < max(cpus/2, 1)
	}
	return t.restarts < 4*cpus
}

// takeFirst counts a first start of a pod, and returns a function to call when it is made or has
// failed. next is whether another one of the pod is to follow.
func (t *startTurns) takeFirst(uid types.UID) func(next bool) {
	cpus := runtime.NumCPU()
	t.begin(false, cpus)
	if end, ok := t.made.LoadAndDelete(uid); ok {
		(*end.(*func()))()
	}
	end := t.counts(false, cpus)
	return func(next bool) {
		if !next {
			end()
			return
		}
		t.made.Store(uid, &end)
		time.AfterFunc(untilNext, func() {
			t.made.CompareAndDelete(uid, &end)
			end()
		})
	}
}

// takeRestart waits for the turn of a restart until a time or until ended returns true, and
// returns a function to call when it is made.
func (t *startTurns) takeRestart(until time.Time, ended func() bool) func() {
	cpus := runtime.NumCPU()
	if turn := t.begin(true, cpus); turn != nil {
		wait(turn, until, ended)
		t.leave(turn)
	}
	return t.counts(true, cpus)
}

// counts returns the function that ends a start, and calls it after longestStart.
func (t *startTurns) counts(crashing bool, cpus int) func() {
	end := sync.OnceFunc(func() { t.end(crashing, cpus) })
	timer := time.AfterFunc(longestStart, end)
	return func() {
		timer.Stop()
		end()
	}
}

func wait(turn <-chan struct{}, until time.Time, ended func() bool) {
	late := time.NewTimer(time.Until(until))
	defer late.Stop()
	check := time.NewTicker(checkEnded)
	defer check.Stop()
	for !ended() {
		select {
		case <-turn:
			return
		case <-late.C:
			return
		case <-check.C:
		}
	}
}

func firstStartsFirst() bool {
	return utilfeature.DefaultFeatureGate.Enabled(features.KubeletFirstStartsFirst)
}

// syncStart is the key of a context for the time at which the sync of a pod began.
type syncStart struct{}

// withSyncStart returns a context for a sync of a pod that begins now.
func withSyncStart(ctx context.Context) context.Context {
	return context.WithValue(ctx, syncStart{}, time.Now())
}

// takeTurn waits until a container of the pod may be started, and returns a function to call when
// it is or has failed. It returns an error if the pod has ended. ctx is from withSyncStart;
// otherwise takeTurn does not wait. The configuration of the container must be made afterwards,
// because the node may change while a restart waits.
func (m *kubeGenericRuntimeManager) takeTurn(ctx context.Context, pod *v1.Pod, podStatus *kubecontainer.PodStatus, container *v1.Container) (func(bool), error) {
	if !firstStartsFirst() {
		return func(bool) {}, nil
	}
	asked := time.Now()
	end := func(bool) {}
	ended := func() bool { return m.hasEnded(pod, time.Now()) }
	first := podStatus.FindContainerStatusByName(container.Name) == nil
	restarts := first && podStatus.Restart.InProgress()
	crashes := !restarts && m.crashesRepeatedly(pod, container)
	if crashes && !kubetypes.IsCriticalPod(pod) {
		began, _ := ctx.Value(syncStart{}).(time.Time)
		made := m.takeRestart(began.Add(longestTurn), ended)
		end = func(bool) { made() }
	}
	if ended() {
		end(false)
		return nil, errPodEnded
	}
	if first && !restarts && !crashes {
		made := m.takeFirst(pod.UID)
		all := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
		at := slices.IndexFunc(all, func(c v1.Container) bool { return c.Name == container.Name })
		end = func(started bool) { made(started && at >= 0 && at < len(all)-1) }
	}
	turn := time.Now()
	var once sync.Once
	return func(started bool) {
		once.Do(func() {
			end(started)
			klog.FromContext(ctx).V(4).Info("Start of container is over", "pod", klog.KObj(pod), "podUID", pod.UID, "containerName", container.Name,
				"started", started, "waited", turn.Sub(asked), "took", time.Since(turn))
		})
	}, nil
}

// hasEnded reports whether no container of the pod may be started any more. Only the pod's next
// sync ends it when its activeDeadlineSeconds have passed. In its first sync, and if it is static,
// its start time is unknown here.
func (m *kubeGenericRuntimeManager) hasEnded(pod *v1.Pod, now time.Time) bool {
	if m.podStateProvider.IsPodTerminationRequested(pod.UID) {
		return true
	}
	seconds, start := pod.Spec.ActiveDeadlineSeconds, pod.Status.StartTime
	return seconds != nil && start != nil && now.Sub(start.Time) >= time.Duration(*seconds)*time.Second
}

// crashesRepeatedly reports whether the back-off has counted more than one attempt to restart
// the container since it was reset.
func (m *kubeGenericRuntimeManager) crashesRepeatedly(pod *v1.Pod, container *v1.Container) bool {
	if m.restartBackOff == nil {
		return false
	}
	state, _ := m.restartBackOff.Snapshot(restart.Key(pod, container), m.restartBackOff.Clock.Now())
	if m.restartBackOff.DelayFirstRestart {
		return state.Attempts > 2 // the first exit counts as one
	}
	return state.Attempts > 1
}

// takeFirstTurn counts the start of a sandbox that is about to be created, and returns a function
// to call with the result. A sandbox that replaces an earlier one does not start a new pod.
func (m *kubeGenericRuntimeManager) takeFirstTurn(pod *v1.Pod, attempt uint32) func(error) {
	if attempt > 0 || !firstStartsFirst() {
		return func(error) {}
	}
	made := m.takeFirst(pod.UID)
	return func(err error) { made(err == nil) }
}
