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
	// longestStart is how long a start counts at most, and longestWithHook how long if the
	// container has a postStart hook, which may take any time.
	longestStart    = 5 * time.Second
	longestWithHook = time.Second
	// afterSandbox is how long the start of a pod still counts when its sandbox is made. The
	// first container follows.
	afterSandbox = 200 * time.Millisecond
)

// startTurns counts the starts of a node's containers. At most two restarts per CPU are
// made at once, and while a container or a sandbox is started for the first time, one for
// two CPUs, but at least one. A restart beyond that waits in its pod's worker for its turn, in
// the order of arrival, and is made after ten seconds at the latest, or when the pod must be
// terminated. It then counts too. First starts do not wait, nor does a sandbox that is made
// again, which does not count. A start counts from the request to create the container until
// the runtime has started it or it has failed, but no longer than five seconds, or one second
// if it has a postStart hook. The start of a sandbox counts a little longer, until its pod's
// first container follows. The zero value is ready for use.
type startTurns struct {
	lock             sync.Mutex
	firsts, restarts int
	// waiting has a channel for each restart that waits. It is closed when the restart has
	// its turn, and is then counted.
	waiting []chan struct{}
}

// begin counts a start and returns nil. If a restart has to wait, it returns the channel
// that is closed at its turn.
func (t *startTurns) begin(first bool, cpus int) chan struct{} {
	t.lock.Lock()
	defer t.lock.Unlock()
	switch {
	case first:
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
func (t *startTurns) end(first bool, cpus int) {
	t.lock.Lock()
	defer t.lock.Unlock()
	if first {
		t.firsts--
	} else {
		t.restarts--
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
	return t.restarts < 2*cpus
}

// take waits for the turn of a start and returns a function to call at its end. It stops
// waiting if over returns true. The start counts no longer than longest.
func (t *startTurns) take(first bool, longest time.Duration, over func() bool) func() {
	if !utilfeature.DefaultFeatureGate.Enabled(features.KubeletFirstStartsFirst) {
		return func() {}
	}
	cpus := runtime.NumCPU()
	if turn := t.begin(first, cpus); turn != nil {
		wait(turn, over)
		t.leave(turn)
	}
	end := sync.OnceFunc(func() { t.end(first, cpus) })
	timer := time.AfterFunc(longest, end)
	return func() {
		timer.Stop()
		end()
	}
}

// wait waits for a turn as long as a restart may wait.
func wait(turn <-chan struct{}, over func() bool) {
	late := time.NewTimer(longestTurn)
	defer late.Stop()
	check := time.NewTicker(checkTerminated)
	defer check.Stop()
	for {
		select {
		case <-turn:
			return
		case <-late.C:
			return
		case <-check.C:
			if over() {
				return
			}
		}
	}
}

// takeTurn is take for a container that is about to be created.
func (m *kubeGenericRuntimeManager) takeTurn(pod *v1.Pod, podStatus *kubecontainer.PodStatus, container *v1.Container) func() {
	again := podStatus.Restart.InProgress() || podStatus.FindContainerStatusByName(container.Name) != nil
	return m.take(!again, longest(container), func() bool { return m.podStateProvider.IsPodTerminationRequested(pod.UID) })
}

// longest returns how long the start of the container counts at most.
func longest(container *v1.Container) time.Duration {
	if container.Lifecycle != nil && container.Lifecycle.PostStart != nil {
		return longestWithHook
	}
	return longestStart
}

// takeFirstTurn is take for a sandbox that is about to be created. One that replaces an
// earlier sandbox does not start a new pod.
func (m *kubeGenericRuntimeManager) takeFirstTurn(attempt uint32) func() {
	if attempt > 0 {
		return func() {}
	}
	end := m.take(true, longestStart, nil)
	return func() { time.AfterFunc(afterSandbox, end) }
}
