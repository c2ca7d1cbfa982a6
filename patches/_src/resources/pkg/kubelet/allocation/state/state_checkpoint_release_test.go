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

package state

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"k8s.io/kubernetes/test/utils/ktesting"
)

// The test helpers in this file depend on the Kubernetes release.

func stateForTest(t *testing.T, dir string) (State, error) {
	logger, _ := ktesting.NewTestContext(t)
	return NewStateCheckpoint(logger, dir, "test")
}

func (sc *stateCheckpoint) setForTest(t *testing.T, resources v1.ResourceRequirements) error {
	logger, _ := ktesting.NewTestContext(t)
	return sc.SetContainerResources(logger, "pod-a", "x", resources)
}
