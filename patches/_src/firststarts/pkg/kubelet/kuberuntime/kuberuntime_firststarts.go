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
	// afterSandbox is how long the start of a sandbox still counts when it is made, unless a
	// container of its pod starts before. Without it, the restarts that wait would begin
	// just before that container.
	afterSandbox = 200 * time.Millisecond
)

// errPodTerminating is why a container is not started.
var errPodTerminating = errors.New("PodTerminating")

// startTurns counts the starts of a node's containers. Restarts of containers that crash
// repeatedly take turns: at most four per CPU are made at once, and while a container or a
// sandbox is started for the first time, one for two CPUs, but at least one. A restart beyond
// that waits in its pod's worker for its turn, in the order of arrival. After ten seconds, or
// when the pod must be terminated, it waits no longer and counts too. Nothing else waits. A
// start counts until the runtime has started the container or it has failed, but no longer than
// five seconds. The start of a sandbox counts until its pod's first container starts. The zero value
// is ready for use.
type startTurns struct {
	lock             sync.Mutex
	firsts, restarts int
	// waiting has a channel for each restart that waits. It is closed when the restart has
	// its turn, and is then counted.
	waiting []chan struct{}
	// sandboxes has the function that ends the start of a sandbox, by the UID of its pod,
	// from when it is made until afterSandbox.
	sandboxes sync.Map
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

// take waits for the turn of a start, and returns a function to call at its end. A restart stops
// waiting if over returns true.
func (t *startTurns) take(crashing bool, over func() bool) func() {
	cpus := runtime.NumCPU()
	if turn := t.begin(crashing, cpus); turn != nil {
		wait(turn, over)
		t.leave(turn)
	}
	end := sync.OnceFunc(func() { t.end(crashing, cpus) })
	timer := time.AfterFunc(longestStart, end)
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
	for !over() {
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

// takeTurn waits until a container of the pod may be started, and returns a function to call when
// it is. It returns an error if the pod must be terminated. The configuration of the container
// must be made afterwards, because the node may change while a restart waits.
func (m *kubeGenericRuntimeManager) takeTurn(pod *v1.Pod, podStatus *kubecontainer.PodStatus, container *v1.Container) (func(), error) {
	if !firstStartsFirst() {
		return func() {}, nil
	}
	started := func() {}
	over := func() bool { return m.podStateProvider.IsPodTerminationRequested(pod.UID) }
	switch {
	case podStatus.Restart.InProgress():
	case m.crashesRepeatedly(pod, container):
		if !kubetypes.IsCriticalPod(pod) {
			started = m.take(true, over)
		}
	case podStatus.FindContainerStatusByName(container.Name) == nil:
		started = m.take(false, nil)
		if end, ok := m.sandboxes.LoadAndDelete(pod.UID); ok {
			end.(func())()
		}
	}
	if over() {
		started()
		return nil, errPodTerminating
	}
	return started, nil
}

// crashesRepeatedly reports whether the back-off has counted more than one attempt to restart
// the container since it was reset.
func (m *kubeGenericRuntimeManager) crashesRepeatedly(pod *v1.Pod, container *v1.Container) bool {
	if m.restartBackOff == nil {
		return false
	}
	state, _ := m.restartBackOff.Snapshot(restart.Key(pod, container), m.restartBackOff.Clock.Now())
	return state.Attempts > 1
}

// takeFirstTurn counts the start of a sandbox that is about to be created, and returns a function
// to call when it is. A sandbox that replaces an earlier one does not start a new pod.
func (m *kubeGenericRuntimeManager) takeFirstTurn(pod *v1.Pod, attempt uint32) func() {
	if attempt > 0 || !firstStartsFirst() {
		return func() {}
	}
	end := m.take(false, nil)
	return func() {
		m.sandboxes.Store(pod.UID, end)
		time.AfterFunc(afterSandbox, func() {
			m.sandboxes.Delete(pod.UID)
			end()
		})
	}
}
