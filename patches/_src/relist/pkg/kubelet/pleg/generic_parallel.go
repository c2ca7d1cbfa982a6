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

package pleg

import (
	"context"
	"iter"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// relistWorkers is how many pods a relist reads from the runtime at once. A read is
// a few calls that mostly wait for the runtime. Pod workers make such calls without
// a limit, so a few more are no new load.
const relistWorkers = 8

// podStatusRead is a read of the status of a pod, which is over when done is closed.
type podStatusRead struct {
	pod *kubecontainer.Pod
	// reinspect is true if the pod was to be inspected again when the read began.
	reinspect bool
	done      chan struct{}
	status    *kubecontainer.PodStatus
	err       error
}

// changedPods returns the pods that differ from when they were last reconciled, and
// those to be inspected again. While the caller reconciles them one after the other,
// in an order of its own, the statuses of those that follow are read from the
// runtime, for getPodStatus. The caller holds relistLock.
func (g *GenericPLEG) changedPods(ctx context.Context) iter.Seq[types.UID] {
	return func(yield func(types.UID) bool) {
		var changed []types.UID
		var reads []*podStatusRead
		for uid, r := range g.podRecords {
			if _, reinspect := g.podsToReinspect.Load(uid); !reinspect && sameContainers(r.old, r.current) {
				continue
			}
			changed = append(changed, uid)
			if r.current != nil {
				reads = append(reads, &podStatusRead{pod: r.current, done: make(chan struct{})})
			}
		}
		if len(reads) > 1 {
			g.statusReads = make(map[types.UID]*podStatusRead, len(reads))
			next := make(chan *podStatusRead, len(reads))
			for _, r := range reads {
				_, r.reinspect = g.podsToReinspect.LoadAndDelete(r.pod.ID)
				g.statusReads[r.pod.ID] = r
				next <- r
			}
			close(next)
			for range min(relistWorkers, len(reads)) {
				go func() {
					for r := range next {
						r.status, r.err = g.runtime.GetPodStatus(ctx, r.pod)
						close(r.done)
					}
				}()
			}
			defer func() { g.statusReads = nil }()
		}
		slices.Values(changed)(yield)
	}
}

// takeReinspect reports whether the pod is to be inspected again, and forgets that. If
// it was asked for after the read of changedPods began, that read is not used: it may
// not have what is to be found. The caller holds relistLock.
func (g *GenericPLEG) takeReinspect(uid types.UID) bool {
	_, reinspect := g.podsToReinspect.LoadAndDelete(uid)
	r, ok := g.statusReads[uid]
	if !ok {
		return reinspect
	}
	if reinspect {
		<-r.done
		delete(g.statusReads, uid)
	}
	return reinspect || r.reinspect
}

// getPodStatus returns the status of a pod that was listed, as GetPodStatus of the
// runtime does, by the read of changedPods if there is one. The caller holds
// relistLock.
func (g *GenericPLEG) getPodStatus(ctx context.Context, pod *kubecontainer.Pod) (*kubecontainer.PodStatus, error) {
	r, ok := g.statusReads[pod.ID]
	if !ok {
		return g.runtime.GetPodStatus(ctx, pod)
	}
	<-r.done
	return r.status, r.err
}

// sameContainers reports whether two listings of a pod have the same containers and
// sandboxes in the same states, which is when computeEvents finds no event for any
// of them. Runtimes list them in any order, and may list one twice.
func sameContainers(old, current *kubecontainer.Pod) bool {
	if old == nil || current == nil {
		return old == current
	}
	return hasContainers(old, current) && hasContainers(current, old)
}

// hasContainers reports whether a pod has all containers and sandboxes of another one
// in the same states.
func hasContainers(pod, other *kubecontainer.Pod) bool {
	differs := func(c *kubecontainer.Container) bool {
		return getContainerState(pod, &c.ID) != convertState(c.State)
	}
	return !slices.ContainsFunc(other.Containers, differs) && !slices.ContainsFunc(other.Sandboxes, differs)
}
