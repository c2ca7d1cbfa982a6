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

package kuberuntime

import (
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/restart"
)

// saveBackOff stores the back-off with which doRestartBackOff allowed the start, for the
// container that is about to be created.
func (m *kubeGenericRuntimeManager) saveBackOff(pod *v1.Pod, s *startSpec) {
	if m.restartBackOff != nil && s.ephemeralContainer == nil {
		s.savedBackOff = restart.SaveBackOff(m.restartBackOff, restart.Key(pod, s.container), m.restartBackOff.Clock.Now())
	}
}

// annotate adds the stored back-off to the container's configuration.
func (s *startSpec) annotate(config *runtimeapi.ContainerConfig) {
	if s.savedBackOff != "" {
		config.Annotations[restart.ContainerBackOffAnnotation] = s.savedBackOff
	}
}

// readBackOff sets the back-offs from the annotations of the container.
func readBackOff(s *kubecontainer.Status, annotations map[string]string) {
	s.ContainerBackOff = annotations[restart.ContainerBackOffAnnotation]
	s.PodBackOff = annotations[restart.PodBackOffAnnotation]
}
