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
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/component-base/featuregate"

	"k8s.io/kubernetes/pkg/features"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// The test helpers in this file depend on the Kubernetes release.

// restartGates are the gates that a restartTest sets.
var restartGates = []featuregate.Feature{features.ContainerRestartRules, features.RestartPodOnContainerExits}

func needsRestartAllContainers(t *testing.T) { t.Skip("no rule restarts all containers before v1.35") }

// actionToMeasure is the action of the restarts in a test of metrics.
const actionToMeasure = v1.ContainerRestartRuleActionRestartPod

func (r *restartTest) SyncPod(_ context.Context, pod *v1.Pod, podStatus *kubecontainer.PodStatus, _ []v1.Secret, _ *flowcontrol.Backoff) kubecontainer.PodSyncResult {
	return r.syncPod(pod, podStatus, false)
}

func shouldBeRestarted(container *v1.Container, pod *v1.Pod, podStatus *kubecontainer.PodStatus) bool {
	return kubecontainer.ShouldContainerBeRestarted(container, pod, podStatus)
}

func (c withoutPodCgroups) EnsureExists(*v1.Pod) error { return c.err }
