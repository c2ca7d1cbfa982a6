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
	v1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/features"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// anyToRestartInSandbox reports whether a pod with the restart policy Never runs
// again in a new sandbox. It does if a policy or rule of one of its containers
// restarts that container, or if no container has run yet.
func anyToRestartInSandbox(logger klog.Logger, pod *v1.Pod, podStatus *kubecontainer.PodStatus) bool {
	if !hasOwnRestartPolicies(pod) {
		return false
	}
	ran := false
	for c := range podutil.ContainerIter(&pod.Spec, podutil.InitContainers|podutil.Containers) {
		ran = ran || podStatus.FindContainerStatusByName(c.Name) != nil
	}
	if !ran {
		return true
	}
	if !anyRegularContainerCreated(pod, podStatus) {
		for i := range pod.Spec.InitContainers {
			c := &pod.Spec.InitContainers[i]
			if s := podStatus.FindContainerStatusByName(c.Name); s != nil && !podutil.IsRestartableInitContainer(c) &&
				isInitContainerFailed(s) && !shouldBeRestarted(logger, c, pod, podStatus) {
				return false
			}
		}
	}
	for i := range pod.Spec.Containers {
		if runsAgain(logger, &pod.Spec.Containers[i], pod, podStatus) {
			return true
		}
	}
	return false
}

// endedForGood reports whether a container of a pod with the restart policy Never
// does not run in a new sandbox, while others do because of their own policy.
func endedForGood(logger klog.Logger, pod *v1.Pod, container *v1.Container, podStatus *kubecontainer.PodStatus) bool {
	return !shouldRestartOnFailure(pod) && hasOwnRestartPolicies(pod) && !runsAgain(logger, container, pod, podStatus)
}

// runsAgain reports whether a container runs again in a new sandbox because of its own
// policy or rules. One that still runs is about to be killed with the old sandbox, and may
// then exit with 0. So only its policy counts, unless init containers run before it: they
// would run for nothing, because it starts in a later sync, in which its exit counts.
func runsAgain(logger klog.Logger, container *v1.Container, pod *v1.Pod, podStatus *kubecontainer.PodStatus) bool {
	if s := podStatus.FindContainerStatusByName(container.Name); s != nil && s.State == kubecontainer.ContainerStateRunning {
		policy := ptr.Deref(container.RestartPolicy, v1.ContainerRestartPolicyNever)
		return policy == v1.ContainerRestartPolicyAlways || policy == v1.ContainerRestartPolicyOnFailure && len(pod.Spec.InitContainers) == 0
	}
	return shouldBeRestarted(logger, container, pod, podStatus)
}

// hasOwnRestartPolicies reports whether a regular container has its own restart
// policy.
func hasOwnRestartPolicies(pod *v1.Pod) bool {
	if !utilfeature.DefaultFeatureGate.Enabled(features.ContainerRestartRules) {
		return false
	}
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].RestartPolicy != nil {
			return true
		}
	}
	return false
}
