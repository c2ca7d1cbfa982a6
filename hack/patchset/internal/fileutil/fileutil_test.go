// SPDX-License-Identifier: Apache-2.0

package fileutil

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRemoveEmpty: only empty directories go. A file or link of the user in the place of a directory stays.
func TestRemoveEmpty(t *testing.T) {
	for name, tc := range map[string]struct {
		there     func(dir string) error // dir is a/b/c
		remaining string
	}{
		"an empty directory":        {func(dir string) error { return os.Mkdir(dir, 0o777) }, "."},
		"nothing":                   {func(string) error { return nil }, "."},
		"a file":                    {func(dir string) error { return os.WriteFile(dir, nil, 0o666) }, "a/b/c"},
		"a link to an empty place":  {func(dir string) error { return os.Symlink(t.TempDir(), dir) }, "a/b/c"},
		"a link to nothing":         {func(dir string) error { return os.Symlink("gone", dir) }, "a/b/c"},
		"a directory with a file":   {func(dir string) error { return Write(filepath.Join(dir, "d"), nil, 0o666) }, "a/b/c/d"},
		"a file beside the missing": {func(dir string) error { return os.WriteFile(filepath.Join(dir, "../d"), nil, 0o666) }, "a/b/d"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			require.NoError(t, os.MkdirAll(filepath.Join(root, "a/b"), 0o777))
			require.NoError(t, tc.there(filepath.Join(root, "a/b/c")))
			RemoveEmpty(root, "a/b/c")
			assert.DirExists(t, root)
			assert.True(t, Exists(filepath.Join(root, tc.remaining)), "%s is gone", tc.remaining)
			assert.Equal(t, tc.remaining != ".", Exists(filepath.Join(root, "a")))
		})
	}
}
