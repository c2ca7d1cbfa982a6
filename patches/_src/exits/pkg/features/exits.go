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

// issue: https://github.com/kubernetes/kubernetes/issues/123602
//
// Makes the kubelet relist all pods when the container runtime reports that a container exited.
// If the gate is off, or with EventedPLEG, the kubelet does not read the runtime's events for this.
const KubeletRelistOnExit featuregate.Feature = "KubeletRelistOnExit"

var relistOnExitFeatureGates = map[featuregate.Feature]featuregate.VersionedSpecs{
	KubeletRelistOnExit: {
		{Version: version.MustParse("1.31"), Default: true, PreRelease: featuregate.Beta},
	},
}

var _ = addGates(relistOnExitFeatureGates, nil)
