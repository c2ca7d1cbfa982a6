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
	"k8s.io/kubernetes/test/utils/ktesting"
)

// versioned returns a pod as the API server has it in some version.
func versioned(name, version string, phase v1.PodPhase) *v1.Pod {
	pod := CreateValidPod(name, "new")
	pod.ResourceVersion, pod.Status.Phase = version, phase
	return pod
}

// A pod whose version is the one of before is not compared again, and any other version
// is merged as ever.
func TestMergedVersions(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	s := newPodStorage(make(chan kubetypes.PodUpdate, 10), nil, &mockPodStartupSLIObserver{})
	merge := func(pods ...*v1.Pod) string {
		adds, updates, _, removes, reconciles := s.merge(ctx, "api", sourceUpdate{Pods: pods})
		return fmt.Sprintf("%d added, %d updated, %d reconciled, %d removed", len(adds.Pods), len(updates.Pods), len(reconciles.Pods), len(removes.Pods))
	}
	const none = "0 added, 0 updated, 0 reconciled, 0 removed"
	require.Equal(t, "2 added, 0 updated, 0 reconciled, 0 removed", merge(versioned("a", "1", ""), versioned("b", "1", "")))
	require.Equal(t, none, merge(versioned("a", "1", ""), versioned("b", "1", "")))
	require.Equal(t, "0 added, 0 updated, 1 reconciled, 0 removed", merge(versioned("a", "2", v1.PodRunning), versioned("b", "1", "")))
	require.Equal(t, none, merge(versioned("a", "2", v1.PodFailed), versioned("b", "1", "")), "a version is one content")
	require.Equal(t, "0 added, 0 updated, 1 reconciled, 0 removed", merge(versioned("a", "1", ""), versioned("b", "1", "")), "an older version, after a relist")

	changed := versioned("b", "3", "")
	changed.Spec.NodeName = "other"
	require.Equal(t, "0 added, 1 updated, 0 reconciled, 0 removed", merge(versioned("a", "1", ""), changed))
	require.Equal(t, "0 added, 0 updated, 0 reconciled, 1 removed", merge(changed))
	require.Equal(t, "1 added, 0 updated, 0 reconciled, 0 removed", merge(versioned("a", "1", ""), changed), "what was removed is new")
	require.Equal(t, none, merge(versioned("a", "1", ""), changed))
	require.Equal(t, "0 added, 0 updated, 0 reconciled, 2 removed", merge())
	require.Empty(t, s.mergedVersions)

	// Pods of files have no version, and may change all the same.
	merge(versioned("a", "", ""))
	require.Equal(t, "0 added, 0 updated, 1 reconciled, 0 removed", merge(versioned("a", "", v1.PodRunning)))
	require.Equal(t, "0 added, 0 updated, 1 reconciled, 0 removed", merge(versioned("a", "", v1.PodFailed)))
}
