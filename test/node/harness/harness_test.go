// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLongWorkFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long/", 20))
	if _, err := newHarness(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "at most 107 are possible") {
		t.Errorf("newHarness(%q) = %v, want an error about the length of a socket's path", dir, err)
	}
}

func TestOneHarnessPerFolder(t *testing.T) {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	h, err := newHarness(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newHarness(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "another harness is using it") {
		t.Errorf("a second harness in one folder: %v", err)
	}
	h.lock.Close()
}

// The next harness removes the folder that a killed harness left.
func TestStaleRunIsCleared(t *testing.T) {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	stale := filepath.Join(dir, runPrefix+"1", "containerd")
	if err := os.MkdirAll(stale, 0o755); err != nil {
		t.Fatal(err)
	}
	h, err := newHarness(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer h.lock.Close()
	if _, err := os.Stat(stale); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there: %v", stale, err)
	}
	var out strings.Builder
	if err := h.Check(&out); err != nil || !strings.Contains(out.String(), "nothing is left behind") {
		t.Errorf("Check = %v, %q", err, out.String())
	}
}
