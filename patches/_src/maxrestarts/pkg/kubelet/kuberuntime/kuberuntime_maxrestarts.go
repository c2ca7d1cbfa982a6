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
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"k8s.io/kubernetes/pkg/kubelet/asked"
	"k8s.io/kubernetes/pkg/kubelet/backoff"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/metrics"
	"k8s.io/kubernetes/pkg/kubelet/restart"
)

// restartLimits ends pods that restart more often than they allow.
type restartLimits struct {
	// limits is nil if KubeletMaxRestartsAnnotation is off.
	limits *asked.Limits
	// limitedPods has the restarts of pods in place. It is nil if there are none.
	limitedPods *backoff.Backoff
}

// UseLimits makes the runtime manager start no container of a pod that has restarted more often
// than it allows. Call it before the first sync. The kubelet has to end the pods that l names.
// podBackOff has the restarts of pods in place.
func UseLimits(runtime KubeGenericRuntime, l *asked.Limits, podBackOff *backoff.Backoff) {
	runtime.(*kubeGenericRuntimeManager).restartLimits = restartLimits{l, podBackOff}
}

// giveUp returns the answer of a container's back-off, or another one if the pod ends instead
// of the restart: the container waits then until now, so that a sync follows at once, which
// ends the pod. An ephemeral container is never restarted.
func (m *kubeGenericRuntimeManager) giveUp(ctx context.Context, pod *v1.Pod, container *v1.Container, podStatus *kubecontainer.PodStatus, waits bool, err error) (bool, error) {
	if m.limits == nil || slices.ContainsFunc(pod.Spec.EphemeralContainers, func(c v1.EphemeralContainer) bool { return c.Name == container.Name }) {
		return waits, err
	}
	now, known := m.restartBackOff.Clock.Now(), m.limits.Exceeded(pod.UID) != ""
	if at, ok := restart.MinBackoffExpiration(err); ok && !at.After(now) {
		return waits, err // It does not wait for a back-off. The next sync decides.
	}
	podKey, podWaits := podBackOffKey(pod, container, podStatus)
	exceeds := podKey != "" && m.exceeds(ctx, pod, "", m.limitedPods, podKey, podWaits, now)
	if !podWaits {
		exceeds = exceeds || m.exceeds(ctx, pod, container.Name, m.restartBackOff, restart.Key(pod, container), waits, now)
	}
	if !exceeds {
		return waits, err
	}
	if !known {
		metrics.CountRestartLimitExceeded()
		klog.FromContext(ctx).V(2).Info("Pod ends because of its limit of restarts", "pod", klog.KObj(pod), "podUID", pod.UID, "message", m.limits.Exceeded(pod.UID))
	}
	return true, kubecontainer.NewBackoffError(kubecontainer.ErrCrashLoopBackOff, now)
}

func (m *kubeGenericRuntimeManager) exceeds(ctx context.Context, pod *v1.Pod, container string, b *backoff.Backoff, key string, waits bool, now time.Time) bool {
	return m.limits.Exceed(m.recorderFor(ctx), pod, container, b, key, waits, now)
}
