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
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The hosts file is written if it is missing or different, and left unchanged
// otherwise.
func TestWriteIfChanged(t *testing.T) {
	name := filepath.Join(t.TempDir(), "etc-hosts")
	long := time.Now().Add(-time.Hour).Truncate(time.Second)
	for _, step := range []struct {
		before, content string
		written         bool
	}{
		{"", "one", true},
		{"one", "one", false},
		{"one, and what a container added", "one", true},
		{"one", "two", true},
	} {
		if step.before != "" {
			require.NoError(t, os.WriteFile(name, []byte(step.before), 0o644))
			require.NoError(t, os.Chtimes(name, long, long))
		}
		require.NoError(t, writeIfChanged(name, []byte(step.content), 0o644))
		got, err := os.ReadFile(name)
		require.NoError(t, err)
		require.Equal(t, step.content, string(got))
		info, err := os.Stat(name)
		require.NoError(t, err)
		require.Equal(t, step.written, !info.ModTime().Equal(long), "%+v", step)
	}
	require.Error(t, writeIfChanged(filepath.Join(name, "below"), nil, 0o644))

	// The file that a container has enlarged is not read.
	require.NoError(t, os.Truncate(name, 1<<40))
	require.False(t, has(name, []byte("two")))
	require.NoError(t, writeIfChanged(name, []byte("two"), 0o644))
	require.True(t, has(name, []byte("two")))
	require.False(t, has(filepath.Dir(name), nil))
}
