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
	"runtime"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"

	"k8s.io/kubernetes/pkg/features"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/restart"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
)

const (
	// longestTurn is how long a restart waits for its turn at most. The pod's worker waits
	// with it, and so does a change of the pod: in a sync that restarts several
	// containers, as long for each. With a hundred pods that crash all the time, a turn
	// comes after six seconds on two CPUs.
	longestTurn = 10 * time.Second
	// checkTerminated is how often a restart that waits checks that its pod need not be
	// terminated.
	checkTerminated = 200 * time.Millisecond
	// longestStart is how long a start counts at most.
	longestStart = 5 * time.Second
	// afterSandbox is how long the start of a pod still counts when its sandbox is made. The
	// first container follows.
	afterSandbox = 200 * time.Millisecond
)

// startTurns counts the starts of a node's containers. Restarts of containers that crash
// repeatedly take turns: at most two per CPU are made at once, and while another container or
// the sandbox of a new pod is started, one for two CPUs, but at least one. A restart beyond
// that waits in its pod's worker for its turn, in the order of arrival. After ten seconds it is
// made without one and counts too, and if the pod must be terminated it is not made. Other
// starts do not wait: first starts, restarts that had no back-off, those of a whole pod, and
// those of critical pods. Nor does a sandbox that is made again, which does not count. A start
// counts until the runtime has started the container or it has failed, but no longer than five
// seconds. The start of a sandbox counts a little longer, until its pod's first container
// follows. The zero value is ready for use.
type startTurns struct {
	lock             sync.Mutex
	others, restarts int
	// waiting has a channel for each restart that waits. It is closed when the restart has
	// its turn, and is then counted.
	waiting []chan struct{}
}

// begin counts a start and returns nil. If the start has to wait, begin returns the channel that
// is closed at its turn. Only restarts of crashing containers wait.
func (t *startTurns) begin(crashing bool, cpus int) chan struct{} {
	t.lock.Lock()
	defer t.lock.Unlock()
	switch {
	case !crashing:
		t.others++
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
		t.others--
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
	if t.others > 0 {
		return t.restarts < max(cpus/2, 1)
	}
	return t.restarts < 2*cpus
}

// take waits for the turn of a start, and returns a function to call at its end. If over
// returns true meanwhile, it returns nil, and the start must not be made.
func (t *startTurns) take(crashing bool, over func() bool) func() {
	if !utilfeature.DefaultFeatureGate.Enabled(features.KubeletFirstStartsFirst) {
		return func() {}
	}
	cpus := runtime.NumCPU()
	turn := t.begin(crashing, cpus)
	made := turn == nil || wait(turn, over)
	if turn != nil {
		t.leave(turn)
	}
	end := sync.OnceFunc(func() { t.end(crashing, cpus) })
	if !made {
		end()
		return nil
	}
	timer := time.AfterFunc(longestStart, end)
	return func() {
		timer.Stop()
		end()
	}
}

// wait waits for a turn as long as a restart may wait, and reports whether to make it.
func wait(turn <-chan struct{}, over func() bool) bool {
	late := time.NewTimer(longestTurn)
	defer late.Stop()
	check := time.NewTicker(checkTerminated)
	defer check.Stop()
	for !over() {
		select {
		case <-turn:
			return !over()
		case <-late.C:
			return !over()
		case <-check.C:
		}
	}
	return false
}

// takeTurn is take for a container of the pod. Its configuration must be made afterwards,
// because the node may change while a restart waits.
func (m *kubeGenericRuntimeManager) takeTurn(pod *v1.Pod, podStatus *kubecontainer.PodStatus, container *v1.Container) (func(), error) {
	end := m.take(m.crashing(pod, podStatus, container), func() bool { return m.podStateProvider.IsPodTerminationRequested(pod.UID) })
	if end == nil {
		return nil, kubecontainer.ErrCrashLoopBackOff
	}
	return end, nil
}

// crashing reports whether the start of the container is a restart that takes a turn.
func (m *kubeGenericRuntimeManager) crashing(pod *v1.Pod, podStatus *kubecontainer.PodStatus, container *v1.Container) bool {
	if m.restartBackOff == nil || podStatus.Restart.InProgress() || kubetypes.IsCriticalPod(pod) {
		return false
	}
	// The first attempt after a reset had no delay.
	state, _ := m.restartBackOff.Snapshot(restart.Key(pod, container), m.restartBackOff.Clock.Now())
	return state.Attempts > 1
}

// takeFirstTurn is take for a sandbox that is about to be created. One that replaces an
// earlier sandbox does not start a new pod.
func (m *kubeGenericRuntimeManager) takeFirstTurn(attempt uint32) func() {
	if attempt > 0 {
		return func() {}
	}
	end := m.take(false, nil)
	return func() { time.AfterFunc(afterSandbox, end) }
}
