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

package config

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// mergedVersions are the resource versions of the pods that a source last sent. The
// source of the API server sends all pods of the node whenever one of them changes: there
// is nothing new in the others to look for.
type mergedVersions map[types.UID]string

// merged reports whether this version of a pod was merged before, and notes it. Pods
// that are not from the API server have no version.
func (m mergedVersions) merged(ref *v1.Pod) bool {
	if ref.ResourceVersion == "" {
		return false
	}
	if m[ref.UID] == ref.ResourceVersion {
		return true
	}
	m[ref.UID] = ref.ResourceVersion
	return false
}
