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
	"testing"

	"github.com/stretchr/testify/assert"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// RestartPod is opt-in, and RestartAllContainers cannot be enabled.
func TestRestartPodOnContainerExits(t *testing.T) {
	gate := utilfeature.DefaultMutableFeatureGate.DeepCopy()
	assert.False(t, gate.Enabled(RestartPodOnContainerExits))
	assert.NoError(t, gate.SetFromMap(map[string]bool{"ContainerRestartRules": true, "RestartPodOnContainerExits": true}))
	assert.True(t, gate.Enabled(RestartPodOnContainerExits))
	assert.False(t, gate.Enabled(RestartAllContainersOnContainerExits))
	assert.Error(t, gate.SetFromMap(map[string]bool{"RestartAllContainersOnContainerExits": true}))
}
