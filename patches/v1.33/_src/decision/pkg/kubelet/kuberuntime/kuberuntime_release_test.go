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

package kuberuntime

import (
	"context"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	apitest "k8s.io/cri-api/pkg/apis/testing"

	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// The test helpers in this file depend on the Kubernetes release.

func runtimeManagerForTest(_ ktesting.TContext, recorder *record.FakeRecorder) (*apitest.FakeRuntimeService, *apitest.FakeImageService, *kubeGenericRuntimeManager, error) {
	fakeRuntime, fakeImage, m, err := createTestRuntimeManager()
	if err == nil {
		m.recorder = recorder
	}
	return fakeRuntime, fakeImage, m, err
}

func (m *kubeGenericRuntimeManager) syncPodForTest(ctx context.Context, pod *v1.Pod, status *kubecontainer.PodStatus, backOff *flowcontrol.Backoff) kubecontainer.PodSyncResult {
	return m.SyncPod(ctx, pod, status, nil, backOff)
}

func (m *kubeGenericRuntimeManager) statusForTest(_ context.Context, _ types.UID, status *runtimeapi.ContainerStatus) *kubecontainer.Status {
	return toKubeContainerStatus(status, "test")
}

func setFakePodForTest(t *testing.T, m *kubeGenericRuntimeManager, fakeRuntime *apitest.FakeRuntimeService, pod *v1.Pod) *apitest.FakePodSandbox {
	sandbox, _ := makeAndSetFakePod(t, m, fakeRuntime, pod)
	return sandbox
}

// setStatusesForTest sets the containers of a pod. All of them are in its newest sandbox.
func setStatusesForTest(status *kubecontainer.PodStatus, containers ...*kubecontainer.Status) {
	status.ContainerStatuses, status.ActiveContainerStatuses = containers, containers
}

// restartRulesForTest enables or disables the restart policies and rules of containers.
func restartRulesForTest(t *testing.T, enabled bool) {
	if enabled {
		t.Skip("there are no restart rules")
	}
}
