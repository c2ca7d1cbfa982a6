// SPDX-License-Identifier: Apache-2.0

//go:build unix

package kubeletconfig

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A FIFO among the drop-ins is an error, and Load does not wait for its writer.
func TestLoadRefusesAFIFO(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "10-fifo.conf")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	require.NoError(t, os.Symlink(fifo, filepath.Join(dir, "20-link.conf")))
	// With both ends open, a reader gets the text and waits for more.
	f, err := os.OpenFile(fifo, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	_, err = Load("", dir, nil)
	assert.ErrorContains(t, err, fifo+": p---------: a drop-in must be a regular file")
	assert.ErrorContains(t, err, "20-link.conf: p---------: a drop-in must be a regular file")
}
