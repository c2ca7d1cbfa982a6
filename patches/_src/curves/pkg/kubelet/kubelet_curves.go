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

	v1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"

	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/asked"
	"k8s.io/kubernetes/pkg/kubelet/backoff"
	"k8s.io/kubernetes/pkg/kubelet/metrics"
)

// restartCurves has the back-offs that containers ask for.
type restartCurves struct {
	// curves is nil if KubeletRestartBackOffAnnotation is off.
	curves *asked.Curves
}

// honorCurves gives containers the back-off that they ask for, within that of the node, if the
// gate and the one that it needs are on. Call it when the back-off has been made, and before the
// first sync.
func (kl *Kubelet) honorCurves(initial, max time.Duration) {
	if utilfeature.DefaultFeatureGate.Enabled(features.KubeletRestartBackOffAnnotation) && kl.restartBackOff != nil {
		kl.curves = asked.NewCurves(backoff.Curve{Initial: initial, Max: max})
		kl.restartBackOff.RulesOf = kl.curves.Rules
		metrics.RegisterCurves(func() int { return kl.curves.Count(kl.clock.Now()) })
	}
}

// noteCurves reads what a pod asks for. Call it in each sync, before the back-off is used.
func (kl *Kubelet) noteCurves(pod *v1.Pod) {
	kl.curves.Note(kl.recorder, pod, kl.clock.Now())
}
