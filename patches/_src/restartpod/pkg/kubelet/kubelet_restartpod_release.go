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

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	runtimeutil "k8s.io/kubernetes/pkg/kubelet/kuberuntime/util"
)

// The functions in this file depend on the Kubernetes release.

func parseContainerID(ctx context.Context, id string) kubecontainer.ContainerID {
	return kubecontainer.ParseContainerID(klog.FromContext(ctx), id)
}

// sandboxChanged reports whether the pod needs a new sandbox.
func sandboxChanged(pod *v1.Pod, podStatus *kubecontainer.PodStatus) bool {
	changed, _, _, _ := runtimeutil.PodSandboxChanged(pod, podStatus)
	return changed
}

func (kl *Kubelet) recorderFor(ctx context.Context) record.EventRecorder {
	return kl.recorder.WithLogger(klog.FromContext(ctx))
}

func (kl *Kubelet) apiPodStatus(ctx context.Context, pod *v1.Pod, podStatus *kubecontainer.PodStatus) v1.PodStatus {
	return kl.generateAPIPodStatus(ctx, pod, podStatus, false)
}

// freshPodStatus returns the current status from the runtime. The pod cache is up to
// a second behind.
func (kl *Kubelet) freshPodStatus(ctx context.Context, pod *v1.Pod) (*kubecontainer.PodStatus, error) {
	runtimePod, err := kl.containerRuntime.GetPod(ctx, pod.UID)
	if errors.Is(err, kubecontainer.ErrPodNotFound) {
		// Nothing of the pod is left. SyncTerminatingPod does the same.
		runtimePod, err = &kubecontainer.Pod{ID: pod.UID, Name: pod.Name, Namespace: pod.Namespace, Timestamp: kl.clock.Now()}, nil
	}
	if err != nil {
		return nil, err
	}
	return kl.containerRuntime.GetPodStatus(ctx, runtimePod)
}

// podPhase returns the phase that upstream's code computes.
func podPhase(pod *v1.Pod, statuses []v1.ContainerStatus, podIsTerminal bool, podStatus *kubecontainer.PodStatus) v1.PodPhase {
	return getPhase(klog.Background(), pod, statuses, podIsTerminal, kubecontainer.HasAnyActiveRegularContainerStarted(&pod.Spec, podStatus))
}

// end is called when the sync returns its results. After it has stopped containers
// for a restart, the statuses must be read again, although the pod waits.
func (s *restartSync) end(isTerminal *bool, postSync *func(), err *error) {
	s.endSync(isTerminal, err)
	if s.restart == nil || s.err != nil {
		return
	}
	if *postSync == nil && len(s.restart.killed) > 0 {
		*postSync = func() { s.kl.requestRelist(s.pod.UID) }
	}
	if relist, exits := *postSync, s.kl.podRestarts.exits; relist != nil && exits != nil {
		*postSync = func() {
			relist()
			exits.synced(s.pod.UID)
		}
	}
}

// requestRelist requests a relist of a pod from the PLEG. It logs nothing if the
// queue is full, because the requests are hints.
func (kl *Kubelet) requestRelist(uid types.UID) { kl.RequestPodRelist(klog.New(nil), uid) }
