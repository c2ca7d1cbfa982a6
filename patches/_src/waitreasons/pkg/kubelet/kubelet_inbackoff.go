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
	"errors"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/kuberuntime"
	"k8s.io/kubernetes/pkg/kubelet/restart"
)

// noteBackOffs makes the pod status show an exited container as waiting if this sync
// will find it in back-off. Otherwise the status would be written twice: first with
// the container terminated, and one sync later with the container waiting.
func (kl *Kubelet) noteBackOffs(ctx context.Context, pod *v1.Pod, podStatus *kubecontainer.PodStatus) {
	pod, podStatus = kl.presentInRestart(pod, podStatus)
	runtime, ok := kl.containerRuntime.(kuberuntime.BackOffRuntime)
	if !ok || kl.podWorkers.IsPodTerminationRequested(pod.UID) || restartsAllContainers(pod, podStatus) {
		return
	}
	for _, s := range podStatus.ContainerStatuses {
		if s.State != kubecontainer.ContainerStateExited || podStatus.FindContainerStatusByName(s.Name) != s {
			continue
		}
		if s.ExitCode == 0 && slices.ContainsFunc(pod.Spec.InitContainers, func(c v1.Container) bool {
			return c.Name == s.Name && (c.RestartPolicy == nil || *c.RestartPolicy != v1.ContainerRestartPolicyAlways)
		}) {
			continue // The container is done.
		}
		// A container with a reason is already waiting, and SyncPod keeps the reason
		// up to date.
		if _, known := kl.reasonCache.Get(pod.UID, s.Name); !known {
			kl.reasonCache.Update(pod.UID, runtime.StartsInBackOff(ctx, pod, podStatus))
			return
		}
	}
}

// updateReasons updates the reason cache with the result of a sync. A container that
// could not be created keeps that reason while it waits for the next attempt: its
// message says what is wrong. CrashLoopBackOff is for a container that has run.
func (kl *Kubelet) updateReasons(uid types.UID, result kubecontainer.PodSyncResult) {
	update := kubecontainer.PodSyncResult{}
	for _, r := range result.SyncResults {
		name, _ := r.Target.(string)
		reason, known := kl.reasonCache.Get(uid, name)
		if known && errors.Is(r.Error, kubecontainer.ErrCrashLoopBackOff) && errors.Is(reason.Err, kuberuntime.ErrCreateContainer) {
			if at, ok := restart.MinBackoffExpiration(reason.Err); ok && kl.clock.Now().Before(at) {
				continue
			}
		}
		update.AddSyncResult(r)
	}
	kl.reasonCache.Update(uid, update)
}
