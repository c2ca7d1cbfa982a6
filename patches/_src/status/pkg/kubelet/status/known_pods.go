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

package status

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"

	"k8s.io/kubernetes/pkg/features"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
	statusutil "k8s.io/kubernetes/pkg/util/pod"
)

// knownPodLifetime is how long a pod is known after its status was written. The status
// of a crash-looping pod is written more often. Other pods should not use memory.
const knownPodLifetime = time.Minute

// knownPods holds pods as the API server returned them when their status was last
// written. The next write needs no read before it. It names the resource version of the
// pod, and the API server rejects it if the pod has changed since. The pod is then read,
// as upstream reads it before every write. For the next minute the pod is not known,
// because the other writer may change it after each write. The zero value is empty. Only
// the sync thread may use it.
type knownPods struct {
	pods   map[types.UID]knownPod
	pruned time.Time
}

type knownPod struct {
	// pod holds what a write of the status needs: identity, resource version and status.
	// It is nil for a pod that must be read.
	pod *v1.Pod
	// at is when the pod was written, or was found to have changed.
	at time.Time
}

// get returns a known pod.
func (k *knownPods) get(uid types.UID) (*v1.Pod, bool) {
	pod := k.pods[uid].pod
	return pod, pod != nil
}

// remember records a pod that the API server has returned.
func (k *knownPods) remember(pod *v1.Pod, now time.Time) {
	if now.Sub(k.pruned) > knownPodLifetime {
		for uid, known := range k.pods {
			if now.Sub(known.at) > knownPodLifetime {
				delete(k.pods, uid)
			}
		}
		k.pruned = now
	}
	if known, ok := k.pods[pod.UID]; ok && known.pod == nil && now.Sub(known.at) <= knownPodLifetime {
		return
	}
	// Without a resource version a write could overwrite another writer's change. An
	// answer without a status is not the stored pod. A pod that is being deleted may be
	// gone by the next write. A mirror pod has a different UID than the synced pod.
	if pod.ResourceVersion == "" || pod.Status.Phase == "" || pod.DeletionTimestamp != nil || kubetypes.IsMirrorPod(pod) {
		delete(k.pods, pod.UID)
		return
	}
	k.set(pod.UID, knownPod{at: now, pod: &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
			ResourceVersion: pod.ResourceVersion, Generation: pod.Generation,
		},
		Status: pod.Status,
	}})
}

func (k *knownPods) set(uid types.UID, pod knownPod) {
	if k.pods == nil {
		k.pods = map[types.UID]knownPod{}
	}
	k.pods[uid] = pod
}

// getPod returns the pod whose status syncPod writes: the result of the last write, or
// the pod from the API server.
func (m *manager) getPod(ctx context.Context, uid types.UID, status versionedPodStatus) (*v1.Pod, error) {
	if known, ok := m.knownPods.get(uid); ok {
		if pod, managed := m.podManager.GetPodByUID(uid); managed && pod.DeletionTimestamp == nil {
			return known, nil
		}
		delete(m.knownPods.pods, uid)
	}
	return m.kubeClient.CoreV1().Pods(status.podNamespace).Get(ctx, status.podName, metav1.GetOptions{})
}

// hasToBeRead reports whether a write has shown that a known pod is out of date: the
// write failed for that reason, or there seems to be nothing to write.
func (m *manager) hasToBeRead(uid types.UID, unchanged bool, err error) bool {
	if _, known := m.knownPods.get(uid); !known || err == nil && !unchanged {
		return false
	}
	m.knownPods.set(uid, knownPod{at: time.Now()})
	return unchanged || apierrors.IsConflict(err) || apierrors.IsNotFound(err)
}

// patchPodStatus writes a status. The patch of a known pod fails if the pod has changed.
func (m *manager) patchPodStatus(ctx context.Context, pod *v1.Pod, status v1.PodStatus) (newPod *v1.Pod, patch []byte, unchanged bool, err error) {
	if _, known := m.knownPods.get(pod.UID); known {
		newPod, patch, unchanged, err = statusutil.PatchKnownPodStatus(ctx, m.kubeClient, pod, status)
	} else {
		newPod, patch, unchanged, err = statusutil.PatchPodStatus(ctx, m.kubeClient, pod.Namespace, pod.Name, pod.UID, pod.Status, status)
	}
	if err == nil && !unchanged && utilfeature.DefaultFeatureGate.Enabled(features.KubeletPatchPodStatusWithoutGet) {
		m.knownPods.remember(newPod, time.Now())
	}
	return newPod, patch, unchanged, err
}
