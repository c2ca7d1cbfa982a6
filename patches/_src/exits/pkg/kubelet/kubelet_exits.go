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
	"k8s.io/apimachinery/pkg/util/wait"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"k8s.io/kubernetes/pkg/features"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

const (
	// exitRelistPause is the minimum pause after a relist of all pods that an exitWatch
	// makes. A relist that takes longer has a pause as long, because a relist of one pod
	// cannot be made at the same time.
	exitRelistPause = 200 * time.Millisecond
	// exitFollowed is how long the exitWatch looks for pod workers that wait for a newer
	// status, after the relist for an exit. A worker that begins to wait later waits for a
	// periodic relist, as does an exit if the relist fails.
	exitFollowed = time.Second
	// exitLook is the pause between two such looks.
	exitLook = 20 * time.Millisecond
	// longestExitRetry is the longest pause between two attempts to read the events.
	longestExitRetry = 5 * time.Minute
)

// exitWatch makes the PLEG relist all pods when the container runtime reports that
// a container exited. The next periodic relist would find this up to a second later.
// If the pod is in a sync, its worker waits for a status from after the sync. For a
// second after an exit, the exitWatch therefore makes another relist whenever a pod
// worker waits for a newer status.
//
// The events of the runtime are hints, which may be lost, late or doubled. The
// periodic relists continue and find what the events omit. Events are read without
// delay, because containerd blocks while one waits for its reader.
type exitWatch struct {
	// stream sends the events of the runtime until the connection breaks.
	stream func(ctx context.Context, events chan *runtimeapi.ContainerEventResponse) error
	relist func(ctx context.Context)
	// awaited reports whether a pod worker waits for a newer status.
	awaited func() bool
	// relistPod, if not nil, is called for each exit. It reports whether it relists
	// the pod itself.
	relistPod func(uid types.UID) bool
	// exited is full if a container exited since the exitWatch last woke.
	exited chan struct{}
	// live is true from the first event of a stream until the stream breaks.
	live atomic.Bool
}

// startExitWatch starts the exitWatch, which ends with the context.
func (kl *Kubelet) startExitWatch(ctx context.Context) {
	gate := utilfeature.DefaultFeatureGate
	if !gate.Enabled(features.KubeletRelistOnExit) || gate.Enabled(features.EventedPLEG) {
		return
	}
	// A runtime without events is not an error.
	silent := klog.New(nil)
	kl.exits.stream = func(ctx context.Context, events chan *runtimeapi.ContainerEventResponse) error {
		return kl.runtimeService.GetContainerEvents(klog.NewContext(ctx, silent), events, nil)
	}
	kl.exits.relist = kl.relist
	kl.exits.awaited = func() bool { return kubecontainer.IsAwaited(kl.podCache) }
	kl.exits.start(ctx, kl.clock)
}

func (w *exitWatch) start(ctx context.Context, clock clock.Clock) {
	w.exited = make(chan struct{}, 1)
	sleep := func(d time.Duration) {
		select {
		case <-clock.After(d):
		case <-ctx.Done():
		}
	}
	relist := func() {
		began := clock.Now()
		w.relist(ctx)
		sleep(max(exitRelistPause, clock.Since(began)))
	}
	go wait.UntilWithContext(ctx, func(ctx context.Context) {
		select {
		case <-w.exited:
		case <-ctx.Done():
			return
		}
		relist()
		for found := clock.Now(); clock.Since(found) < exitFollowed; {
			select {
			case <-clock.After(exitLook):
			case <-w.exited:
				w.noteExit() // for the next round, which begins at once
				return
			case <-ctx.Done():
				return
			}
			if w.awaited() {
				relist()
			}
		}
	}, 0)

	first := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.1, Steps: 10, Cap: longestExitRetry}
	retry := first
	go wait.UntilWithContext(ctx, func(ctx context.Context) {
		live, err := w.follow(ctx)
		if live {
			retry = first
		}
		delay := retry.Step()
		klog.FromContext(ctx).V(4).Info("No events from the container runtime", "err", err, "retryAfter", delay)
		sleep(delay)
	}, 0)
}

// follow calls noteExit for each exit until the event stream breaks, and reports whether
// the stream had an event.
func (w *exitWatch) follow(ctx context.Context) (live bool, err error) {
	events, broken := make(chan *runtimeapi.ContainerEventResponse, 100), make(chan error, 1)
	go func() {
		defer close(events)
		broken <- w.stream(ctx, events)
	}()
	for e := range events {
		w.live.Store(true)
		if e.ContainerEventType == runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT &&
			(w.relistPod == nil || !w.relistPod(types.UID(e.GetPodSandboxStatus().GetMetadata().GetUid()))) {
			w.noteExit()
		}
	}
	return w.live.Swap(false), <-broken
}

// noteExit makes a relist of all pods begin as soon as possible.
func (w *exitWatch) noteExit() {
	select {
	case w.exited <- struct{}{}:
	default:
	}
}
