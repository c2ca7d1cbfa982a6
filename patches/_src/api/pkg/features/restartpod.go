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

package features

import (
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-base/featuregate"
)

// kep: https://kep.k8s.io/5532
//
// Allows a container restart rule to restart the pod in place, with the pod's grace period and
// with a back-off between such restarts.
const RestartPodOnContainerExits featuregate.Feature = "RestartPodOnContainerExits"

var restartPodFeatureGates = map[featuregate.Feature]featuregate.VersionedSpecs{
	RestartPodOnContainerExits: {
		{Version: version.MustParse("1.34"), Default: false, PreRelease: featuregate.Alpha},
	},
}

// Unlike RestartAllContainers, the action is not a declared node feature: a kubelet that does not
// know the action applies the restart policy.
var restartPodFeatureGateDependencies = map[featuregate.Feature][]featuregate.Feature{
	RestartPodOnContainerExits: {ContainerRestartRules},
}

var _ = addGates(restartPodFeatureGates, restartPodFeatureGateDependencies)
