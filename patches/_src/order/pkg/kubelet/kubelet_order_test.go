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

package kubelet

import (
	"sort"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// The deletor removes the instances at the end of the list. It must not remove the
// newest one because the clock was ahead when an older one was created.
func TestContainerDeletorAfterClockStep(t *testing.T) {
	now := time.Now()
	ahead := &kubecontainer.Status{Name: "main", RestartCount: 1, CreatedAt: now.Add(time.Hour)}
	later := &kubecontainer.Status{Name: "main", RestartCount: 2, CreatedAt: now}
	got := containerStatusbyCreatedList{ahead, later}
	sort.Sort(got)
	require.Equal(t, containerStatusbyCreatedList{later, ahead}, got)
}
