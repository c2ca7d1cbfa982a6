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
	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
)

// storedContainerResources reports whether the checkpoint holds these resources of a
// container. A restarted container has the same resources as before, and the checksum
// finds this only by copying the resources of all pods. The caller holds the lock.
func (sc *stateCheckpoint) storedContainerResources(podUID types.UID, containerName string, resources v1.ResourceRequirements) bool {
	if sc.lastChecksum == 0 {
		return false // Nothing was stored, or the last attempt failed.
	}
	stored, ok := sc.cache.GetContainerResources(podUID, containerName)
	return ok && apiequality.Semantic.DeepEqual(stored, resources)
}
