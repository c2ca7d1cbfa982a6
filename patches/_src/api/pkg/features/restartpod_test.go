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

// RestartPod is opt-in. It needs restart rules, but not declared node features.
func TestRestartPodOnContainerExits(t *testing.T) {
	for name, tc := range map[string]struct {
		set     map[string]bool
		want    bool
		refused bool
	}{
		"default": {},
		"on":      {set: map[string]bool{"RestartPodOnContainerExits": true}, want: true},
		"on, without RestartAllContainers": {
			set:  map[string]bool{"RestartPodOnContainerExits": true, "RestartAllContainersOnContainerExits": false},
			want: true,
		},
		"on, without restart rules": {
			set:     map[string]bool{"RestartPodOnContainerExits": true, "RestartAllContainersOnContainerExits": false, "ContainerRestartRules": false},
			refused: true,
		},
		"off, without restart rules": {
			set: map[string]bool{"RestartAllContainersOnContainerExits": false, "ContainerRestartRules": false},
		},
	} {
		t.Run(name, func(t *testing.T) {
			gate := utilfeature.DefaultMutableFeatureGate.DeepCopy()
			err := gate.SetFromMap(tc.set)
			if tc.refused {
				assert.ErrorContains(t, err, "RestartPodOnContainerExits")
				return
			}
			assert.NoError(t, err)
			assert.Equal(t, tc.want, gate.Enabled(RestartPodOnContainerExits))
		})
	}
}
