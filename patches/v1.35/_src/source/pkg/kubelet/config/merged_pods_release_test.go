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

package config

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// The test helpers in this file depend on the Kubernetes release.

func podStorageForTest() *podStorage {
	return newPodStorage(make(chan kubetypes.PodUpdate, 10), PodConfigNotificationIncremental, nil, &mockPodStartupSLIObserver{})
}

func (s *podStorage) mergeForTest(t *testing.T, source string, pods []*v1.Pod) (adds, updates, deletes, removes, reconciles *kubetypes.PodUpdate) {
	_, ctx := ktesting.NewTestContext(t)
	return s.merge(ctx, source, kubetypes.PodUpdate{Pods: pods, Op: kubetypes.SET})
}
