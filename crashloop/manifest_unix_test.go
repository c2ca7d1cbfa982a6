// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A folder may contain files that are no manifests whatever their names.
func TestManifestFoldersWithSpecialFiles(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "fifo.yaml"), 0o600))
	require.NoError(t, os.Symlink("fifo.yaml", filepath.Join(dir, "link.yaml")))
	require.NoError(t, os.Symlink("missing", filepath.Join(dir, "dangling.yaml")))
	require.Equal(t, []string{filepath.Join(dir, "dangling.yaml")}, manifestFlags{recursive: true}.list([]string{dir}), "a missing file is an error")
}
