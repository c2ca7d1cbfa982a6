// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Of the paths that a node has created or was about to create, only empty folders are its own.
func TestRemoveFixedPaths(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.MkdirAll(path("a/empty"), 0o755))
	require.NoError(t, os.Symlink(path("absent"), path("link")))
	require.NoError(t, os.WriteFile(path("file"), nil, 0o644))
	require.NoError(t, os.MkdirAll(path("used/folder"), 0o755))
	list := path("a") + "\n" + path("a/empty") + "\n" + path("file") + "\n" + path("link") + "\n" + path("used")
	require.NoError(t, os.WriteFile(path(createdFile), []byte(list), 0o644))
	require.NoError(t, removeFixedPaths(dir))
	left, err := filepath.Glob(path("*"))
	require.NoError(t, err)
	require.ElementsMatch(t, []string{path(createdFile), path("file"), path("link"), path("used")}, left)
}
