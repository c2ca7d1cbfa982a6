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
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"

	"k8s.io/kubernetes/pkg/features"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

const (
	// longestTurn is how long a restart waits for its turn at most. The pod's worker waits
	// with it, and so does a change of the pod. With a hundred pods that crash all the
	// time, a turn comes after six seconds on two CPUs.
	longestTurn = 10 * time.Second
	// longestStart is how long a start counts at most. A postStart hook may take any time.
	longestStart = 5 * time.Second
)

// startTurns counts the starts of a node's containers. At most two restarts per CPU are
// made at once, and while a container or a sandbox is started for the first time, one for
// two CPUs, but at least one. A restart beyond that waits in its pod's worker, and is made
// after ten seconds at the latest, or when the pod must be terminated. First starts do not
// wait. A start counts from the request to
// create the container until the runtime has started it or it has failed, but no longer than
// five seconds. The zero value is ready for use.
type startTurns struct {
	lock             sync.Mutex
	firsts, restarts int
	// ended is closed when a start ends, if a restart waits for that.
	ended chan struct{}
}

// begin counts a start and returns nil. If a restart has to wait, it counts nothing and
// returns a channel that is closed when another start ends.
func (t *startTurns) begin(first bool, cpus int) <-chan struct{} {
	t.lock.Lock()
	defer t.lock.Unlock()
	limit := 2 * cpus
	if t.firsts > 0 {
		limit = max(cpus/2, 1)
	}
	switch {
	case first:
		t.firsts++
	case t.restarts < limit:
		t.restarts++
	default:
		if t.ended == nil {
			t.ended = make(chan struct{})
		}
		return t.ended
	}
	return nil
}

// end ends a start that begin has counted.
func (t *startTurns) end(first bool) {
	t.lock.Lock()
	defer t.lock.Unlock()
	if first {
		t.firsts--
	} else {
		t.restarts--
	}
	if t.ended != nil {
		close(t.ended)
		t.ended = nil
	}
}

// take waits for the turn of a start and returns a function to call at its end. It stops
// waiting when another start ends and over returns true.
func (t *startTurns) take(first bool, over func() bool) func() {
	if !utilfeature.DefaultFeatureGate.Enabled(features.KubeletFirstStartsFirst) {
		return func() {}
	}
	late := time.NewTimer(longestTurn)
	defer late.Stop()
	for {
		wait := t.begin(first, runtime.NumCPU())
		if wait == nil {
			break
		}
		select {
		case <-wait:
			if !over() {
				continue
			}
		case <-late.C:
		}
		return func() {}
	}
	end := sync.OnceFunc(func() { t.end(first) })
	timer := time.AfterFunc(longestStart, end)
	return func() {
		timer.Stop()
		end()
	}
}

// takeTurn is take for a container that is about to be created.
func (m *kubeGenericRuntimeManager) takeTurn(pod *v1.Pod, podStatus *kubecontainer.PodStatus, container *v1.Container) func() {
	again := podStatus.Restart.InProgress() || podStatus.FindContainerStatusByName(container.Name) != nil
	return m.take(!again, func() bool { return m.podStateProvider.IsPodTerminationRequested(pod.UID) })
}

// takeFirstTurn is take for a sandbox that is about to be created.
func (m *kubeGenericRuntimeManager) takeFirstTurn() func() { return m.take(true, nil) }
