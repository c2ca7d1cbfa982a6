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

	v1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"

	"k8s.io/kubernetes/pkg/features"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// The functions in this file depend on the Kubernetes release.

func (m *kubeGenericRuntimeManager) recorderFor(context.Context) record.EventRecorder {
	return m.recorder
}

// doClientGoBackOff is upstream's doBackOff.
func (m *kubeGenericRuntimeManager) doClientGoBackOff(ctx context.Context, pod *v1.Pod, container *v1.Container, podStatus *kubecontainer.PodStatus, backOff *flowcontrol.Backoff) (bool, string, error) {
	return m.doBackOff(ctx, pod, container, podStatus, backOff)
}

// regularContainersHavePolicies reports whether regular containers may have their own
// restart policy.
func regularContainersHavePolicies() bool {
	return utilfeature.DefaultFeatureGate.Enabled(features.ContainerRestartRules)
}

func (m *kubeGenericRuntimeManager) podActions(ctx context.Context, pod *v1.Pod, podStatus *kubecontainer.PodStatus) podActions {
	return m.computePodActions(ctx, pod, podStatus)
}
