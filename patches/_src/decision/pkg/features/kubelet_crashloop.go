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

const (
	// issue: https://github.com/kubernetes/kubernetes/issues/133472
	//
	// Makes the first restart of a container wait for the initial CrashLoopBackOff delay, as
	// documented, instead of being immediate. Has no effect without KubeletStrictCrashLoopBackOff.
	KubeletDelayFirstContainerRestart featuregate.Feature = "KubeletDelayFirstContainerRestart"

	// issue: https://github.com/kubernetes/kubernetes/issues/142032
	//
	// Makes a container that the kubelet killed after a failed probe wait like one that exited. A
	// start that failed after something was created is retried on the CrashLoopBackOff curve. If
	// the gate is off, SyncPod calls upstream's doBackOff, and such a start is retried every 10 to
	// 15 s without end.
	KubeletStrictCrashLoopBackOff featuregate.Feature = "KubeletStrictCrashLoopBackOff"
)

var crashLoopFeatureGates = map[featuregate.Feature]featuregate.VersionedSpecs{
	KubeletDelayFirstContainerRestart: {
		{Version: version.MustParse("1.31"), Default: false, PreRelease: featuregate.Alpha},
	},

	KubeletStrictCrashLoopBackOff: {
		{Version: version.MustParse("1.31"), Default: true, PreRelease: featuregate.Beta},
	},
}

var _ = addGates(crashLoopFeatureGates, nil)
