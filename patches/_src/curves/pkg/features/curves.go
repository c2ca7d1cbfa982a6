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

// Gives containers the back-off that annotations of the pod ask for, within bounds and those of
// the node. Has no effect without KubeletStrictCrashLoopBackOff.
const KubeletRestartBackOffAnnotation featuregate.Feature = "KubeletRestartBackOffAnnotation"

var curvesFeatureGates = map[featuregate.Feature]featuregate.VersionedSpecs{
	KubeletRestartBackOffAnnotation: {
		{Version: version.MustParse("1.31"), Default: false, PreRelease: featuregate.Alpha},
	},
}

var _ = addGates(curvesFeatureGates, nil)
