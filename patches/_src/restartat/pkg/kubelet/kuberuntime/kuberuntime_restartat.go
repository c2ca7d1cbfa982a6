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
	"k8s.io/klog/v2"

	"k8s.io/kubernetes/pkg/kubelet/asked"
	"k8s.io/kubernetes/pkg/kubelet/backoff"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/metrics"
	"k8s.io/kubernetes/pkg/kubelet/restart"
)

// restartsAt ends waits at the times that pods ask for.
type restartsAt struct {
	// restartAt is nil if KubeletRestartAtAnnotation is off.
	restartAt *asked.Restarts
	// podBackOff has the waits of pods that are restarted in place. It is nil if there are
	// none.
	podBackOff *backoff.Backoff
}

// UseRestarts makes the runtime manager end waits at the times that pods ask for. Call it
// before the first sync. podBackOff has the waits of pods that are restarted in place.
func UseRestarts(runtime KubeGenericRuntime, r *asked.Restarts, podBackOff *backoff.Backoff) {
	runtime.(*kubeGenericRuntimeManager).restartsAt = restartsAt{r, podBackOff}
}

// endWait ends the wait for a back-off that err is about, if the pod asks for that.
// The error then has the present time, and the sync that follows at once starts the
// container. If the pod asks for a time before the end of the wait, the error has that time.
func (m *kubeGenericRuntimeManager) endWait(ctx context.Context, pod *v1.Pod, container *v1.Container, podStatus *kubecontainer.PodStatus, err error) error {
	retryAt, waits := restart.MinBackoffExpiration(err)
	if m.restartAt == nil || !waits {
		return err
	}
	name, b, key := container.Name, m.restartBackOff, restart.Key(pod, container)
	if podKey, waits := podBackOffKey(pod, container, podStatus); waits {
		name, b, key = "", m.podBackOff, podKey
	}
	until, outcome := m.restartAt.EndWait(m.recorderFor(ctx), pod, name, b, key, retryAt, b.Clock.Now())
	metrics.CountRestartAt(outcome)
	if outcome == asked.Honored {
		klog.FromContext(ctx).V(2).Info("Back-off ends as the pod asked", "pod", klog.KObj(pod), "podUID", pod.UID, "containerName", name)
	}
	if until.Before(retryAt) {
		err = kubecontainer.NewBackoffError(kubecontainer.ErrCrashLoopBackOff, until)
	}
	return err
}
