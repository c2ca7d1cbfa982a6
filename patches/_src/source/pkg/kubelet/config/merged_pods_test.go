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
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
)

// versioned returns a pod with a resource version, as in the API server.
func versioned(name, version string, phase v1.PodPhase) *v1.Pod {
	pod := CreateValidPod(name, "new")
	pod.ResourceVersion, pod.Status.Phase = version, phase
	return pod
}

// An object that was merged before is not compared again. Any other object is merged
// as before.
func TestMergedPods(t *testing.T) {
	s := podStorageForTest()
	source := kubetypes.ApiserverSource
	merge := func(pods ...*v1.Pod) string {
		adds, updates, _, removes, reconciles := s.mergeForTest(t, source, pods)
		return fmt.Sprintf("%d added, %d updated, %d reconciled, %d removed", len(adds.Pods), len(updates.Pods), len(reconciles.Pods), len(removes.Pods))
	}
	const none = "0 added, 0 updated, 0 reconciled, 0 removed"
	a, b := versioned("a", "1", ""), versioned("b", "1", "")
	require.Equal(t, "2 added, 0 updated, 0 reconciled, 0 removed", merge(a, b))
	require.Equal(t, none, merge(a, b))
	require.True(t, s.merged(source, b))
	a = versioned("a", "2", v1.PodRunning)
	require.Equal(t, "0 added, 0 updated, 1 reconciled, 0 removed", merge(a, b))
	require.Equal(t, none, merge(a, b))
	require.Equal(t, "0 added, 0 updated, 1 reconciled, 0 removed", merge(versioned("a", "2", v1.PodFailed), b),
		"the same version, decoded by another API server")
	require.Equal(t, "0 added, 0 updated, 1 reconciled, 0 removed", merge(versioned("a", "1", ""), b), "an older version, after a relist")

	changed := versioned("b", "3", "")
	changed.Spec.NodeName = "other"
	require.Equal(t, "0 added, 1 updated, 0 reconciled, 1 removed", merge(changed))
	require.Equal(t, "1 added, 0 updated, 0 reconciled, 0 removed", merge(versioned("a", "1", ""), changed), "what was removed is new")
	require.Equal(t, "0 added, 0 updated, 0 reconciled, 2 removed", merge())
	require.Empty(t, s.mergedPods)

	// A manifest keeps the version and the UID that it contains.
	source = kubetypes.FileSource
	merge(versioned("a", "1", ""))
	for _, node := range []string{"x", "y", "z"} {
		edited := versioned("a", "1", "")
		edited.Spec.NodeName = node
		require.Equal(t, "0 added, 1 updated, 0 reconciled, 0 removed", merge(edited), node)
	}
	require.Empty(t, s.mergedPods)
}
