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
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
)

// The test helpers in this file depend on the Kubernetes release.

func podWorkersForTest(klog.Logger) *podWorkers {
	p, _, _ := createPodWorkers()
	return p
}

func (p *podWorkers) completeWorkForTest(_ klog.Logger, phaseTransition bool, err error) {
	p.completeWork("pod", phaseTransition, err)
}

func (p *podWorkers) updatePodForTest(_ context.Context, pod *v1.Pod) {
	p.UpdatePod(UpdatePodOptions{Pod: pod, UpdateType: kubetypes.SyncPodUpdate})
}

// syncerForTest replaces SyncPod with sync. In this release nothing can be called
// after it.
func syncerForTest(sync func(*kubecontainer.PodStatus) error, _ func()) *podSyncerFuncs {
	return &podSyncerFuncs{
		syncPod: func(_ context.Context, _ kubetypes.SyncPodType, _, _ *v1.Pod, status *kubecontainer.PodStatus) (bool, error) {
			return false, sync(status)
		},
	}
}

func (kl *Kubelet) syncPodForTest(ctx context.Context, pod *v1.Pod, status *kubecontainer.PodStatus) (isTerminal bool, postSync func(), err error) {
	isTerminal, err = kl.SyncPod(ctx, kubetypes.SyncPodUpdate, pod, nil, status)
	return isTerminal, nil, err
}

func (kl *Kubelet) setPodStatusForTest(logger klog.Logger, pod *v1.Pod, status v1.PodStatus) {
	kl.statusManager.SetPodStatus(logger, pod, status)
}

func restartAllForTest(t *testing.T, _ *v1.Container, _ int32) {
	t.Skip("no rule restarts all containers")
}
