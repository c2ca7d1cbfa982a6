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

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-base/featuregate"
)

// Upstream has both gates from later releases on.
const (
	// kep: https://kep.k8s.io/4603
	//
	// Has crashLoopBackOff.maxContainerRestartPeriod of the kubelet's configuration count.
	KubeletCrashLoopBackOffMax featuregate.Feature = "KubeletCrashLoopBackOffMax"

	// kep: https://kep.k8s.io/4603
	//
	// Reduces the delays of CrashLoopBackOff: they start at 1 s and end at 60 s.
	ReduceDefaultCrashLoopBackOffDecay featuregate.Feature = "ReduceDefaultCrashLoopBackOffDecay"
)

var crashLoopBackOffFeatureGates = map[featuregate.Feature]featuregate.VersionedSpecs{
	KubeletCrashLoopBackOffMax: {
		{Version: version.MustParse("1.31"), Default: false, PreRelease: featuregate.Alpha},
	},

	ReduceDefaultCrashLoopBackOffDecay: {
		{Version: version.MustParse("1.31"), Default: false, PreRelease: featuregate.Alpha},
	},
}

// The variable is set before init registers what is in upstream's map.
var _ = addCrashLoopBackOffGates()

func addCrashLoopBackOffGates() bool {
	maps.Copy(defaultVersionedKubernetesFeatureGates, crashLoopBackOffFeatureGates)
	return true
}
