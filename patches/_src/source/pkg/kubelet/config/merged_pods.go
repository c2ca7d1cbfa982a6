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
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
)

// mergedPods holds the objects that the API server's source last sent for its pods.
// The source sends all pods of the node whenever one of them changes. The other pods
// are the same objects as before and need no comparison.
type mergedPods map[types.UID]*v1.Pod

// merged reports whether an object was merged before, and records it as the last
// object of its pod. It applies only to the API server's source: other sources may
// change an object that they have sent.
func (m mergedPods) merged(source string, ref *v1.Pod) bool {
	if source != kubetypes.ApiserverSource || ref.ResourceVersion == "" {
		return false
	}
	if m[ref.UID] == ref {
		return true
	}
	m[ref.UID] = ref
	return false
}
