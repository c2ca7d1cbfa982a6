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

// Makes at most few restarts of containers at once, and fewer while a container is started for
// the first time. A restart waits for that ten seconds at most.
const KubeletFirstStartsFirst featuregate.Feature = "KubeletFirstStartsFirst"

var firstStartsFeatureGates = map[featuregate.Feature]featuregate.VersionedSpecs{
	KubeletFirstStartsFirst: {
		{Version: version.MustParse("1.34"), Default: true, PreRelease: featuregate.Beta},
	},
}

var _ = addGates(firstStartsFeatureGates, nil)
