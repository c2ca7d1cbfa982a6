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
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"k8s.io/kubernetes/pkg/kubelet/checkpointmanager"
)

// failingCheckpoints counts writes, and fails on demand.
type failingCheckpoints struct {
	checkpointmanager.CheckpointManager
	err     error
	written int
}

func (c *failingCheckpoints) CreateCheckpoint(name string, checkpoint checkpointmanager.Checkpoint) error {
	c.written++
	if c.err != nil {
		return c.err
	}
	return c.CheckpointManager.CreateCheckpoint(name, checkpoint)
}

// The resources of a container that starts again are stored only if they differ,
// or if the last attempt to store failed.
func TestStoredContainerResources(t *testing.T) {
	dir := t.TempDir()
	state, err := stateForTest(t, dir)
	require.NoError(t, err)
	sc := state.(*stateCheckpoint)
	checkpoints := &failingCheckpoints{CheckpointManager: sc.checkpointManager}
	sc.checkpointManager = checkpoints
	cpu := func(quantity string) v1.ResourceRequirements {
		return v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(quantity)}}
	}
	set := func(quantity string, written int) {
		t.Helper()
		checkpoints.written = 0
		err := sc.setForTest(t, cpu(quantity))
		require.ErrorIs(t, err, checkpoints.err)
		require.Equal(t, written, checkpoints.written)
	}
	set("1", 1)
	set("1", 0)
	require.True(t, sc.storedContainerResources("pod-a", "x", cpu("1000m")))
	require.False(t, sc.storedContainerResources("pod-a", "y", cpu("1")))
	require.False(t, sc.storedContainerResources("pod-b", "x", cpu("1")))
	set("2", 1)

	checkpoints.err = errors.New("the disk is full")
	set("3", 1)
	set("3", 1)
	checkpoints.err = nil
	set("3", 1)
	set("3", 0)

	restored, err := stateForTest(t, dir)
	require.NoError(t, err)
	require.True(t, restored.(*stateCheckpoint).storedContainerResources("pod-a", "x", cpu("3")))
}
