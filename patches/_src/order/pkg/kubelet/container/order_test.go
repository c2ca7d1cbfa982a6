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

package container

import (
	"sort"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The newest instance is the one with the highest restart count, even if the clock
// was ahead when an older one was created. An instance without a time is the oldest.
func TestSortContainerStatusesAfterClockStep(t *testing.T) {
	noon := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	ahead := &Status{Name: "main", RestartCount: 1, CreatedAt: noon.Add(time.Hour)}
	later := &Status{Name: "main", RestartCount: 2, CreatedAt: noon}
	lost := &Status{Name: "main", RestartCount: 3, CreatedAt: time.Unix(0, 0)}
	first := &Status{Name: "main", CreatedAt: noon.Add(-2 * time.Second)}
	same := &Status{Name: "main", CreatedAt: noon.Add(-time.Second)}
	got := []*Status{later, lost, same, ahead, first}
	sort.Sort(SortContainerStatusesByCreationTime(got))
	require.Equal(t, []*Status{lost, first, same, ahead, later}, got)
}
