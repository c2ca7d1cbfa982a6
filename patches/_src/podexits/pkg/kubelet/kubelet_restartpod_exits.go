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
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/utils/clock"

	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/restartpod"
)

const (
	// podExitPause is the pause after each relist of pods that podExits requests.
	podExitPause = 20 * time.Millisecond
	// mostPodRelists is how many pods are relisted alone at once. More are found faster by
	// a relist of all pods, and the PLEG drops requests beyond 200.
	mostPodRelists = 10
)

// podExits makes the PLEG relist a pod that may be restarted in place when one of its
// containers exited. Such a pod does not wait for a relist of all pods.
type podExits struct {
	ctx    context.Context
	clock  clock.Clock
	pods   *podRestarts
	relist func(uid types.UID)
	// relistAll makes a relist of all pods begin as soon as possible.
	relistAll func()
	// reported reports whether the runtime reports exits.
	reported func() bool

	lock sync.Mutex
	// relists has the number of the next relist of each pod that synced relists.
	relists map[types.UID]int
	// exited has the pods with exits since the last request. some is full while it is
	// not empty.
	exited sets.Set[types.UID]
	some   chan struct{}
}

// newPodExits returns the podExits of a kubelet that ends with the context, and adds
// it to the exitWatch.
func (kl *Kubelet) newPodExits(ctx context.Context) *podExits {
	e := &podExits{ctx: ctx, clock: kl.clock, pods: kl.podRestarts, relist: kl.requestRelist, relistAll: kl.exits.noteExit, reported: kl.exits.live.Load}
	e.start()
	if utilfeature.DefaultFeatureGate.Enabled(features.PLEGOnDemandRelist) {
		kl.exits.relistPod = e.relistPod
	}
	return e
}

func (e *podExits) start() {
	e.relists, e.exited, e.some = map[types.UID]int{}, sets.New[types.UID](), make(chan struct{}, 1)
	go wait.UntilWithContext(e.ctx, e.relistExited, podExitPause)
}

// relistExited waits for an exit. One relist finds containers of a pod that end together.
func (e *podExits) relistExited(ctx context.Context) {
	select {
	case <-e.some:
	case <-ctx.Done():
		return
	}
	e.lock.Lock()
	exited := e.exited
	e.exited = sets.New[types.UID]()
	e.lock.Unlock()
	if len(exited) > mostPodRelists {
		e.relistAll()
		return
	}
	for uid := range exited {
		e.relist(uid)
	}
}

// relistPod requests a relist of a pod in which a container exited, and reports
// whether the pod may be restarted in place.
func (e *podExits) relistPod(uid types.UID) bool {
	p := e.pods.get(uid)
	if p == nil {
		return false
	}
	if p.stopping.Load() {
		// The sync that stops containers checks for their exits itself.
		return true
	}
	e.lock.Lock()
	e.exited.Insert(uid)
	e.lock.Unlock()
	select {
	case e.some <- struct{}{}:
	default:
	}
	return true
}

// synced makes the PLEG relist a pod several times within the next second, if
// containers of its present run were started. Otherwise the end of an init container
// that the runtime does not report would be seen only at the next relist of all pods,
// and the next container would start up to a second late. If the runtime reports exits,
// only the last of these relists is made, because a report may get lost.
func (e *podExits) synced(uid types.UID) {
	p := e.pods.get(uid)
	if p == nil || p.plan.Phase != restartpod.PhaseStartup {
		return
	}
	const last = 4
	first := 1
	if e.reported() {
		first = last
	}
	e.lock.Lock()
	defer e.lock.Unlock()
	_, relisting := e.relists[uid]
	if e.relists[uid] = first; relisting {
		return
	}
	go func() {
		defer utilruntime.HandleCrashWithContext(e.ctx)
		for {
			e.lock.Lock()
			n := e.relists[uid]
			e.relists[uid]++
			if n > last {
				delete(e.relists, uid)
			}
			e.lock.Unlock()
			if n > last {
				return
			}
			select {
			case <-e.clock.After(25 * time.Millisecond << n):
			case <-e.ctx.Done():
				return
			}
			e.relist(uid)
		}
	}()
}
