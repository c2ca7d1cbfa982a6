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

package kubelet

import (
	"time"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/utils/clock"

	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/backoff"
	"k8s.io/kubernetes/pkg/kubelet/kuberuntime"
	"k8s.io/kubernetes/pkg/kubelet/restart"
)

// containerBackOff holds the back-off of the node's containers.
type containerBackOff struct {
	// restartBackOff is nil if KubeletStrictCrashLoopBackOff is off. The runtime
	// manager then uses the back-off that SyncPod gets.
	restartBackOff *backoff.Backoff
}

// newContainerBackOff returns a back-off with the delays from initial to max, and
// makes the runtime manager use it.
func newContainerBackOff(c clock.Clock, runtime kuberuntime.KubeGenericRuntime, initial, max time.Duration) containerBackOff {
	gate := utilfeature.DefaultFeatureGate
	if !gate.Enabled(features.KubeletStrictCrashLoopBackOff) {
		return containerBackOff{}
	}
	b := restart.NewBackOff(c, backoff.Curve{
		Initial: initial, Max: max, DelayFirst: gate.Enabled(features.KubeletDelayFirstContainerRestart),
	})
	kuberuntime.UseBackOff(runtime, b)
	return containerBackOff{b}
}

// gcBackOff forgets back-offs that are over.
func (b containerBackOff) gcBackOff() {
	if b.restartBackOff != nil {
		b.restartBackOff.GC()
	}
}
