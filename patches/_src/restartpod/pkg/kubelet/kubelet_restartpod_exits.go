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

// relistPause is the minimum time between two relists that an exitWatch requests.
const relistPause = 20 * time.Millisecond

// exitWatch makes the PLEG relist a pod that may be restarted in place when the
// container runtime reports that one of its containers ended. The relist of all pods
// would find this up to a second later.
//
// The events of the runtime are hints. The relists of all pods continue and find what
// the event stream omits. The stream is read while such a pod exists, and without
// delay, because containerd blocks while an event waits for its reader.
type exitWatch struct {
	ctx    context.Context
	clock  clock.Clock
	stream func(ctx context.Context, events chan *runtimeapi.ContainerEventResponse) error
	relist func(uid types.UID)

	// running is true while a goroutine reads the stream or waits to read it again.
	// It is guarded by the lock of podRestarts.
	running bool
	// live is true from the first event of a stream until the stream breaks.
	live atomic.Bool
}

// newExitWatch returns the exitWatch of a kubelet that ends with the context. It
// returns nil if upstream's EventedPLEG does the same for all pods, or if the PLEG
// cannot use the hints.
func (kl *Kubelet) newExitWatch(ctx context.Context) *exitWatch {
	if !relistsOnePod || utilfeature.DefaultFeatureGate.Enabled(features.EventedPLEG) {
		return nil
	}
	// A runtime without events is not an error.
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

// isLive reports whether the runtime reports the ends of containers. It may be called
// on nil.
func (w *exitWatch) isLive() bool { return w != nil && w.live.Load() }

// watchExits starts the exitWatch if it does not run. The caller holds the lock.
func (r *podRestarts) watchExits() {
	if r.exits == nil || r.exits.running {
		return
	}
	r.exits.running = true
	go r.runExitWatch()
}

// unwatchExits stops the exitWatch if no pod is left, and reports whether it did.
func (r *podRestarts) unwatchExits() bool {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.exits.running = len(r.pods) > 0
	return !r.exits.running
}

// watched reports whether exits of the pod must be handled, and whether exits of any
// pod must be.
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

// followExits requests relists of pods until the event stream breaks, or no pod is
// left.
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
			// Drain the events: the stream does not end while it waits for a reader.
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
		// One relist finds containers of a pod that end together.
		if pause == nil && len(exited) > 0 {
			for uid := range exited {
				w.relist(uid)
			}
			clear(exited)
			pause = w.clock.After(relistPause)
		}
	}
}
