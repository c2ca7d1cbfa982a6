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

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"

	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	runtimeutil "k8s.io/kubernetes/pkg/kubelet/kuberuntime/util"
)

// The functions in this file depend on the Kubernetes release.

func parseContainerID(_ context.Context, id string) kubecontainer.ContainerID {
	return kubecontainer.ParseContainerID(id)
}

// sandboxChanged reports whether the pod needs a new sandbox.
func sandboxChanged(pod *v1.Pod, podStatus *kubecontainer.PodStatus) bool {
	changed, _, _ := runtimeutil.PodSandboxChanged(pod, podStatus)
	return changed
}

func (kl *Kubelet) recorderFor(context.Context) record.EventRecorder {
	return kl.recorder
}

func (kl *Kubelet) apiPodStatus(_ context.Context, pod *v1.Pod, podStatus *kubecontainer.PodStatus) v1.PodStatus {
	return kl.generateAPIPodStatus(pod, podStatus, false)
}

// freshPodStatus returns the current status from the runtime. The pod cache is up
// to a second behind.
func (kl *Kubelet) freshPodStatus(ctx context.Context, pod *v1.Pod) (*kubecontainer.PodStatus, error) {
	return kl.containerRuntime.GetPodStatus(ctx, pod.UID, pod.Name, pod.Namespace)
}

// podPhase returns the phase that upstream's code computes.
func podPhase(pod *v1.Pod, statuses []v1.ContainerStatus, podIsTerminal bool, podStatus *kubecontainer.PodStatus) v1.PodPhase {
	return getPhase(pod, statuses, podIsTerminal, kubecontainer.HasAnyActiveRegularContainerStarted(&pod.Spec, podStatus))
}

// end is called when the sync returns isTerminal and err.
func (s *restartSync) end(isTerminal *bool, err *error) { s.endSync(isTerminal, err) }
