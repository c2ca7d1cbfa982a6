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
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestIsAwaited(t *testing.T) {
	c, now := NewCache(), time.Now()
	c.Set("pod", &PodStatus{ID: "pod"}, nil, now)
	require.False(t, IsAwaited(c))
	c.(*cache).subscribe("pod", now.Add(time.Second)) // as GetNewerThan does
	require.True(t, IsAwaited(c))
	c.UpdateTime(now)
	require.True(t, IsAwaited(c), "it is no newer")
	c.UpdateTime(now.Add(2 * time.Second))
	require.False(t, IsAwaited(c))
	require.True(t, IsAwaited(struct{ Cache }{}))
}
