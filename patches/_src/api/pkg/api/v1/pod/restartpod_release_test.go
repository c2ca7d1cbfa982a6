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
	"testing"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	featuregatetesting "k8s.io/component-base/featuregate/testing"

	"k8s.io/kubernetes/pkg/features"
)

// The test helpers in this file depend on the Kubernetes release.

// hasRestartAllContainers reports whether a rule can restart all containers of the pod.
const hasRestartAllContainers = true

// setWholePodGates sets the gates of the two actions that restart a whole pod.
func setWholePodGates(t *testing.T, restartPod, restartAllContainers bool) {
	featuregatetesting.SetFeatureGatesDuringTest(t, utilfeature.DefaultFeatureGate, map[featuregate.Feature]bool{
		features.NodeDeclaredFeatures:                 true,
		features.RestartPodOnContainerExits:           restartPod,
		features.RestartAllContainersOnContainerExits: restartAllContainers,
	})
}
