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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"k8s.io/kubernetes/pkg/kubelet/restart"
	"k8s.io/kubernetes/pkg/kubelet/util/queue"
)

// exactQueue holds what the kubelet needs in addition to workQueue to sync a pod on
// time.
type exactQueue struct {
	// syncTicker makes the sync loop check workQueue.
	syncTicker queue.SyncTicker
}

// wakingQueue is a queue that can wake the sync loop when an item is due, in addition
// to its regular checks.
type wakingQueue struct {
	queue.WorkQueue
	ticker *queue.SyncTicker
}

// requeueInBackOff enqueues a pod if the error of its sync is or contains a back-off,
// and reports whether it did. It enqueues the pod for the end of the back-off, or for
// the ordinary retry of another error if that is earlier. Only the end of a back-off
// wakes the sync loop, because each wake checks the whole queue.
func (p *podWorkers) requeueInBackOff(podUID types.UID, syncErr error) bool {
	if _, found := restart.MinBackoffExpiration(syncErr); !found {
		return false
	}
	retry := wait.Jitter(min(p.backOffPeriod, p.resyncInterval), workerBackOffPeriodJitterFactor)
	delay, exact := restart.NextSync(syncErr, retry, p.resyncInterval, p.clock.Now())
	p.workQueue.Enqueue(podUID, delay)
	if q, ok := p.workQueue.(wakingQueue); ok && exact {
		q.ticker.WakeAfter(delay)
	}
	return true
}
