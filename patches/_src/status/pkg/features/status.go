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

// Writes the status of a pod without reading the pod before, unless something else has changed
// the pod. If the gate is off, the kubelet reads the pod before each write.
const KubeletPatchPodStatusWithoutGet featuregate.Feature = "KubeletPatchPodStatusWithoutGet"

var podStatusFeatureGates = map[featuregate.Feature]featuregate.VersionedSpecs{
	KubeletPatchPodStatusWithoutGet: {
		{Version: version.MustParse("1.31"), Default: true, PreRelease: featuregate.Beta},
	},
}

var _ = addGates(podStatusFeatureGates, nil)
