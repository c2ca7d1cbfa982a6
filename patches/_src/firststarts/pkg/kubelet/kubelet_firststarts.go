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

	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"

	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/kuberuntime"
	"k8s.io/kubernetes/pkg/kubelet/metrics"
)

// putFirstStartsFirst connects a runtime that orders starts with the syncs of pods and
// with the metrics. Call it before the first sync.
func (kl *Kubelet) putFirstStartsFirst(ctx context.Context) {
	runtime, ok := kl.containerRuntime.(kuberuntime.FirstStarts)
	if !ok || !utilfeature.DefaultFeatureGate.Enabled(features.KubeletFirstStartsFirst) {
		return
	}
	// If the worker of the pod is busy, the sync follows when the worker is done. This
	// goroutine is not the sync loop, which may have passed a newer pod to the worker
	// in the meantime. The worker must not get the older pod after the newer one. The
	// pod manager has the newer pod before the worker does.
	runtime.OnRestartTurn(func(uid types.UID) bool {
		for {
			pod, found := kl.podManager.GetPodByUID(uid)
			if !found || kl.podWorkers.IsPodTerminationRequested(uid) {
				return false
			}
			kl.handlePodSync(ctx, pod)
			if newest, _ := kl.podManager.GetPodByUID(uid); newest == pod {
				return true
			}
		}
	})
	metrics.MeasureRestartBackOffByCause(kl.crashLoopBackOff, metrics.RestartBackOffContainer, func(key string) string {
		if runtime.WasPutOff(key) {
			return metrics.RestartLatenessQueue
		}
		return metrics.RestartLatenessOther
	})
}
