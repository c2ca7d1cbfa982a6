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

package pod

import (
	"context"
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
)

// PatchKnownPodStatus is PatchPodStatus for a pod that has not just been read. The API
// server rejects the patch with a conflict if the resource version of the pod has
// changed.
func PatchKnownPodStatus(ctx context.Context, c clientset.Interface, pod *v1.Pod, newPodStatus v1.PodStatus) (*v1.Pod, []byte, bool, error) {
	patchBytes, unchanged, err := preparePatchBytesForPodStatus(pod.Namespace, pod.Name, pod.UID, pod.Status, newPodStatus)
	if err != nil || unchanged {
		return nil, patchBytes, unchanged, err
	}
	patch := map[string]json.RawMessage{}
	if err := json.Unmarshal(patchBytes, &patch); err != nil {
		return nil, nil, false, err
	}
	if patch["metadata"], err = json.Marshal(map[string]string{"uid": string(pod.UID), "resourceVersion": pod.ResourceVersion}); err != nil {
		return nil, nil, false, err
	}
	if patchBytes, err = json.Marshal(patch); err != nil {
		return nil, nil, false, err
	}
	updated, err := c.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patchBytes, metav1.PatchOptions{}, "status")
	if err != nil {
		return nil, nil, false, fmt.Errorf("failed to patch status %q for pod %q/%q: %w", patchBytes, pod.Namespace, pod.Name, err)
	}
	return updated, patchBytes, false, nil
}
