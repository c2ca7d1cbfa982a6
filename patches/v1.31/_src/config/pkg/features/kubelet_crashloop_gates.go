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

// Later upstream releases have both gates.
const (
	// kep: https://kep.k8s.io/4603
	//
	// Enables crashLoopBackOff.maxContainerRestartPeriod of the kubelet's configuration.
	KubeletCrashLoopBackOffMax featuregate.Feature = "KubeletCrashLoopBackOffMax"

	// kep: https://kep.k8s.io/4603
	//
	// Reduces the delays of CrashLoopBackOff to 1 s up to 60 s.
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

// The package initializes the variable before init registers upstream's map.
var _ = addCrashLoopBackOffGates()

func addCrashLoopBackOffGates() bool {
	maps.Copy(defaultVersionedKubernetesFeatureGates, crashLoopBackOffFeatureGates)
	return true
}
