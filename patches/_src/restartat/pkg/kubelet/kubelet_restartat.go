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
	utilfeature "k8s.io/apiserver/pkg/util/feature"

	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/asked"
	"k8s.io/kubernetes/pkg/kubelet/kuberuntime"
	"k8s.io/kubernetes/pkg/kubelet/metrics"
)

// honorRestartAt makes the runtime manager end waits at the times that pods ask for, if the
// gate and the one that it needs are on. Call it when the back-offs have been made, and before
// the first sync.
func (kl *Kubelet) honorRestartAt(runtime kuberuntime.KubeGenericRuntime) {
	if utilfeature.DefaultFeatureGate.Enabled(features.KubeletRestartAtAnnotation) && kl.restartBackOff != nil {
		kuberuntime.UseRestarts(runtime, &asked.Restarts{}, kl.podBackOff())
		metrics.RegisterRestartAt()
	}
}
