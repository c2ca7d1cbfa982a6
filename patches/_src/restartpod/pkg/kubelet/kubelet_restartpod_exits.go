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
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"k8s.io/kubernetes/pkg/features"
)

// relistPause is the least time between two relists that an exitWatch asks for.
const relistPause = 20 * time.Millisecond

// exitWatch has the PLEG look at a pod that may be restarted in place when the
// container runtime says that one of its containers ended. The relist of all pods
// would find that up to a second later.
//
// What the runtime says is a hint. The relists of all pods go on, and find what its
// stream of events leaves out. The stream is read while there is such a pod, and then
// without delay: containerd does nothing while an event waits for its reader.
type exitWatch struct {
	ctx    context.Context
	clock  clock.Clock
	stream func(ctx context.Context, events chan *runtimeapi.ContainerEventResponse) error
	relist func(uid types.UID)

	// running is true while a goroutine reads the stream, or waits to do that again.
	// The lock of podRestarts guards it.
	running bool
	// live is true from the first event of a stream until that breaks.
	live atomic.Bool
}

// newExitWatch returns the exitWatch of a kubelet that ends with the context. It is
// nil where upstream's EventedPLEG does the same for all pods, and where nobody takes
// its hints.
func (kl *Kubelet) newExitWatch(ctx context.Context) *exitWatch {
	if !relistsOnePod || utilfeature.DefaultFeatureGate.Enabled(features.EventedPLEG) {
		return nil
	}
	// A runtime without events is no error.
	silent := klog.New(nil)
	return &exitWatch{
		ctx:   ctx,
		clock: kl.clock,
		stream: func(ctx context.Context, events chan *runtimeapi.ContainerEventResponse) error {
			return kl.runtimeService.GetContainerEvents(klog.NewContext(ctx, silent), events, nil)
		},
		relist: kl.requestRelist,
	}
}

// isLive reports whether the runtime tells of ends of containers. It may be called
// on nil.
func (w *exitWatch) isLive() bool { return w != nil && w.live.Load() }

// watchExits has the exitWatch run. The lock is held.
func (r *podRestarts) watchExits() {
	if r.exits == nil || r.exits.running {
		return
	}
	r.exits.running = true
	go r.runExitWatch()
}

// unwatchExits ends the run of the exitWatch if no pod is left, and reports whether
// it did.
func (r *podRestarts) unwatchExits() bool {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.exits.running = len(r.pods) > 0
	return !r.exits.running
}

// watched reports whether exits of the pod are to be looked at, and whether those of
// any pod are.
func (r *podRestarts) watched(uid types.UID) (pod, some bool) {
	r.lock.Lock()
	defer r.lock.Unlock()
	p := r.pods[uid]
	return p != nil && !p.stopping.Load(), len(r.pods) > 0
}

func (r *podRestarts) runExitWatch() {
	w := r.exits
	defer utilruntime.HandleCrashWithContext(w.ctx)
	first := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.1, Steps: 10, Cap: 5 * time.Minute}
	retry := first
	for {
		began := w.clock.Now()
		err := r.followExits()
		if r.unwatchExits() {
			return
		}
		if w.clock.Since(began) > 10*time.Minute {
			retry = first
		}
		delay := retry.Step()
		klog.FromContext(w.ctx).V(4).Info("No events from the container runtime", "err", err, "retryAfter", delay)
		select {
		case <-w.ctx.Done():
			return
		case <-w.clock.After(delay):
		}
	}
}

// followExits has pods relisted until the stream of events breaks, or no pod is left
// for which it is read.
func (r *podRestarts) followExits() error {
	w := r.exits
	ctx, cancel := context.WithCancel(w.ctx)
	events, broken := make(chan *runtimeapi.ContainerEventResponse, 100), make(chan error, 1)
	go func() {
		defer close(events)
		broken <- w.stream(ctx, events)
	}()
	defer func() {
		w.live.Store(false)
		cancel()
		for range events {
			// The stream would not end while it waits for a reader.
		}
	}()
	exited := sets.New[types.UID]()
	var pause <-chan time.Time
	for {
		select {
		case e, ok := <-events:
			if !ok {
				return <-broken
			}
			w.live.Store(true)
			uid := types.UID(e.GetPodSandboxStatus().GetMetadata().GetUid())
			pod, some := r.watched(uid)
			if !some {
				return nil
			}
			if pod && e.ContainerEventType == runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT {
				exited.Insert(uid)
			}
		case <-pause:
			pause = nil
		}
		// Containers of a pod that end together are found by one relist.
		if pause == nil && len(exited) > 0 {
			for uid := range exited {
				w.relist(uid)
			}
			clear(exited)
			pause = w.clock.After(relistPause)
		}
	}
}
