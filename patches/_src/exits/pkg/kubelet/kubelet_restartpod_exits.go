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
	"k8s.io/kubernetes/pkg/kubelet/restartpod"
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
	ctx   context.Context
	clock clock.Clock
	pods  *podRestarts
	// stream is nil if upstream's EventedPLEG does the same for all pods.
	stream func(ctx context.Context, events chan *runtimeapi.ContainerEventResponse) error
	relist func(uid types.UID)
	// relists has the numbers of relists since the last start, by the UIDs of the
	// pods that synced relists. The values are of the type *atomic.Int32.
	relists sync.Map

	// running is true while a goroutine reads the stream or waits to read it again.
	// It is guarded by the lock of podRestarts.
	running bool
	// live is true from the first event of a stream until the stream breaks.
	live atomic.Bool
}

// newExitWatch returns the exitWatch of a kubelet that ends with the context.
func (kl *Kubelet) newExitWatch(ctx context.Context) *exitWatch {
	w := &exitWatch{ctx: ctx, clock: kl.clock, pods: kl.podRestarts, relist: kl.requestRelist}
	if !utilfeature.DefaultFeatureGate.Enabled(features.EventedPLEG) {
		// A runtime without events is not an error.
		silent := klog.New(nil)
		w.stream = func(ctx context.Context, events chan *runtimeapi.ContainerEventResponse) error {
			return kl.runtimeService.GetContainerEvents(klog.NewContext(ctx, silent), events, nil)
		}
	}
	return w
}

// podAdded starts the exitWatch if it does not run. The caller holds the lock.
func (w *exitWatch) podAdded() {
	if w.stream == nil || w.running {
		return
	}
	w.running = true
	go w.run()
}

// stop stops the exitWatch if no pod is left, and reports whether it did.
func (w *exitWatch) stop() bool {
	w.pods.lock.Lock()
	defer w.pods.lock.Unlock()
	w.running = len(w.pods.pods) > 0
	return !w.running
}

// watches reports whether exits of the pod must be handled, and whether exits of any
// pod must be.
func (w *exitWatch) watches(uid types.UID) (pod, some bool) {
	w.pods.lock.Lock()
	defer w.pods.lock.Unlock()
	p := w.pods.pods[uid]
	return p != nil && !p.stopping.Load(), len(w.pods.pods) > 0
}

func (w *exitWatch) run() {
	defer utilruntime.HandleCrashWithContext(w.ctx)
	first := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.1, Steps: 10, Cap: 5 * time.Minute}
	retry := first
	for {
		began := w.clock.Now()
		err := w.follow()
		if w.stop() {
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

// follow requests relists of pods until the event stream breaks, or no pod is left.
func (w *exitWatch) follow() error {
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
			pod, some := w.watches(uid)
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

// synced makes the PLEG relist a pod several times within the next second,
// if containers of its present run were started and the runtime does not report
// when they end. Otherwise the end of an init container would be seen only at the
// next relist of all pods, and the next container would start up to a second late.
func (w *exitWatch) synced(uid types.UID) {
	p := w.pods.get(uid)
	if p == nil || p.plan.Phase != restartpod.PhaseStartup || w.live.Load() {
		return
	}
	count, relisting := w.relists.LoadOrStore(uid, &atomic.Int32{})
	relists := count.(*atomic.Int32)
	relists.Store(0)
	if relisting {
		return
	}
	go func() {
		defer utilruntime.HandleCrashWithContext(w.ctx)
		defer w.relists.Delete(uid)
		for n := relists.Add(1); n <= 4; n = relists.Add(1) {
			<-w.clock.After(25 * time.Millisecond << n)
			w.relist(uid)
		}
	}()
}
