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
	"context"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// imageVolumesOnce returns a function that pulls the image volumes of a pod, once
// for all containers that one sync starts. It is called only for a container that
// does not wait. So a pod whose containers all wait does not query a registry. Known
// volumes are returned unchanged.
func (m *kubeGenericRuntimeManager) imageVolumesOnce(pod *v1.Pod, pullSecrets []v1.Secret) func(context.Context, *runtimeapi.PodSandboxConfig, imageVolumePulls) (imageVolumePulls, error) {
	var pulls imageVolumePulls
	var err error
	done := m.restartBackOff == nil
	return func(ctx context.Context, config *runtimeapi.PodSandboxConfig, known imageVolumePulls) (imageVolumePulls, error) {
		if known != nil {
			return known, nil
		}
		if !done {
			pulls, err = m.getImageVolumes(ctx, pod, config, pullSecrets)
			done = true
		}
		return pulls, err
	}
}
