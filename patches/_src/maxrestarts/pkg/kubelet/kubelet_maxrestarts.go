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
	v1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"

	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/asked"
	"k8s.io/kubernetes/pkg/kubelet/kuberuntime"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/kubernetes/pkg/kubelet/metrics"
)

// limitRestarts makes the kubelet end pods after the number of restarts that they allow, if the
// gate and the one that it needs are on. Call it when the back-offs have been made, and before
// the first sync.
func (kl *Kubelet) limitRestarts(runtime kuberuntime.KubeGenericRuntime) {
	if utilfeature.DefaultFeatureGate.Enabled(features.KubeletMaxRestartsAnnotation) && kl.restartBackOff != nil {
		limits := &asked.Limits{}
		kuberuntime.UseLimits(runtime, limits, kl.podBackOff())
		kl.AddPodSyncHandler(restartLimit{kl, limits})
		metrics.RegisterRestartLimit()
	}
}

// restartLimit ends the pods that have exceeded their limits.
type restartLimit struct {
	kl     *Kubelet
	limits *asked.Limits
}

// ShouldEvict returns whether the pod ends, and why. The status manager keeps the phase and the
// reason once it has them.
func (l restartLimit) ShouldEvict(pod *v1.Pod) lifecycle.ShouldEvictResponse {
	message := l.limits.Exceeded(pod.UID)
	if message == "" {
		return lifecycle.ShouldEvictResponse{}
	}
	if status, known := l.kl.statusManager.GetPodStatus(pod.UID); known && status.Phase == v1.PodFailed {
		l.limits.Forget(pod.UID)
	}
	// Otherwise containers would be waiting to the end, and not show how they exited.
	podutil.VisitContainers(&pod.Spec, podutil.AllContainers, func(c *v1.Container, _ podutil.ContainerType) bool {
		l.kl.reasonCache.Remove(pod.UID, c.Name)
		return true
	})
	return lifecycle.ShouldEvictResponse{Evict: true, Reason: asked.ReasonRestartLimitExceeded, Message: message}
}
