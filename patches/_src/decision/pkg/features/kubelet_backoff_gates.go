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
	"maps"

	"k8s.io/component-base/featuregate"
)

// addGates adds to upstream's maps, in which every gate has its dependencies, also if it
// has none. The package initializes the variables that call it before init registers the
// maps.
func addGates(gates map[featuregate.Feature]featuregate.VersionedSpecs, dependencies map[featuregate.Feature][]featuregate.Feature) bool {
	maps.Copy(defaultVersionedKubernetesFeatureGates, gates)
	for gate := range gates {
		defaultKubernetesFeatureGateDependencies[gate] = dependencies[gate]
	}
	return true
}
