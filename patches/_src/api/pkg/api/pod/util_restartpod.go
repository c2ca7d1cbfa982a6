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

package pod

import (
	utilfeature "k8s.io/apiserver/pkg/util/feature"

	api "k8s.io/kubernetes/pkg/apis/core"
	apivalidation "k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/features"
)

// allowRestartPod allows the action RestartPod if its gate is on or the old pod uses it.
// Rules on sidecars, which RestartPod allows too, are then no use of
// RestartAllContainers.
func allowRestartPod(opts *apivalidation.PodValidationOptions, oldPodSpec *api.PodSpec) {
	opts.AllowRestartPod = utilfeature.DefaultFeatureGate.Enabled(features.RestartPodOnContainerExits) ||
		apivalidation.RestartActionInUse(oldPodSpec, api.ContainerRestartRuleActionRestartPod)
	if opts.AllowRestartPod && oldPodSpec != nil {
		opts.AllowRestartAllContainers = utilfeature.DefaultFeatureGate.Enabled(features.RestartAllContainersOnContainerExits) ||
			apivalidation.RestartActionInUse(oldPodSpec, api.ContainerRestartRuleActionRestartAllContainers)
	}
}
