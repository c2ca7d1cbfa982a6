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

// KubeletRestartAllContainersBackOff is a gate of later releases. It is off in this one, which has
// no rules that restart all containers.
const KubeletRestartAllContainersBackOff featuregate.Feature = "KubeletRestartAllContainersBackOff"

var restartAllContainersFeatureGates = map[featuregate.Feature]featuregate.VersionedSpecs{
	// Deprecated, so that AllAlpha and AllBeta leave it off, and no help text lists it.
	KubeletRestartAllContainersBackOff: {
		{Version: version.MustParse("1.0"), Default: false, LockToDefault: true, PreRelease: featuregate.Deprecated},
	},
}

var _ = addGates(restartAllContainersFeatureGates, nil)
