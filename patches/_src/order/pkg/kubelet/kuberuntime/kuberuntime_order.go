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
	"cmp"
	"slices"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubelet/pkg/types"
)

// createdInOrder sorts containers, newest first, and lowers times such that each was
// created before those of its name in its pod with a higher attempt. Otherwise garbage
// collection keeps one that was created when the clock was ahead instead of a newer
// one. Status.CreatedBefore of the package container has the reason.
func createdInOrder(containers []*runtimeapi.Container) []*runtimeapi.Container {
	slices.SortStableFunc(containers, func(a, b *runtimeapi.Container) int {
		return cmp.Or(cmp.Compare(b.GetMetadata().GetAttempt(), a.GetMetadata().GetAttempt()), cmp.Compare(b.CreatedAt, a.CreatedAt))
	})
	type unit struct{ uid, name string }
	next := map[unit]int64{}
	for _, c := range containers {
		if c.CreatedAt <= 0 {
			continue // The runtime was killed while it created this one.
		}
		u := unit{c.Labels[types.KubernetesPodUIDLabel], c.GetMetadata().GetName()}
		if at, ok := next[u]; ok && c.CreatedAt >= at {
			c.CreatedAt = at - 1
		}
		next[u] = c.CreatedAt
	}
	return containers
}
