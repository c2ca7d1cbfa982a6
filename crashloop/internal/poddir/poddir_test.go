// SPDX-License-Identifier: Apache-2.0

//go:build unix

package poddir

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestPrune(t *testing.T) {
	parent := t.TempDir()
	root := filepath.Join(parent, Folder)
	require.NoError(t, (&Root{dir: root}).mark())
	now := time.Now()
	add := func(name string, age time.Duration, size int64, files ...string) {
		for _, file := range append(files, "logs/main/0.log") {
			path := filepath.Join(root, name+"_uid", file)
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
			require.NoError(t, os.WriteFile(path, nil, 0o600))
			require.NoError(t, os.Truncate(path, size))
		}
		path := filepath.Join(root, name+lockSuffix)
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		require.NoError(t, os.Chtimes(path, time.Time{}, now.Add(-age)))
	}
	names := func() (names []string) {
		entries, err := os.ReadDir(root)
		require.NoError(t, err)
		for _, e := range entries {
			if e.Name() != marker {
				names = append(names, e.Name())
			}
		}
		return names
	}
	add("a_one", 4*time.Hour, 100)
	add("a_two", 3*time.Hour, 100, "status.json")
	add("a_three", 2*time.Hour, 100)
	add("a_four", time.Hour, 100)
	require.NoError(t, os.WriteFile(filepath.Join(root, "other"), nil, 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(root, "a_one_more"), 0o700)) // Names of pods have no "_".
	unlock, err := lock(filepath.Join(root, "a_three.lock"))
	require.NoError(t, err)
	all := names()

	Open(parent, 4, 500)
	require.Equal(t, all, names(), "within the limits")
	Open(parent, 1, 500)
	require.Equal(t, []string{"a_three.lock", "a_three_uid", "a_two.lock", "a_two_uid", "other"},
		names(), "a_three is locked, now the newest; containers may run of a_two")
	unlock()
	Open(parent, 4, 150)
	require.Equal(t, []string{"a_three.lock", "a_three_uid", "a_two.lock", "a_two_uid", "other"}, names(), "the newest is kept")
	Open(parent, 4, 50)
	require.Equal(t, []string{"a_two.lock", "a_two_uid", "other"}, names())
	Open(filepath.Join(root, "missing"), 1, 1)
}

// TestForeignFiles: what looks like pods, such as yarn.lock and yarn_cache, is the user's beside the folder, and in a
// folder of that name that crashloop did not make.
func TestForeignFiles(t *testing.T) {
	parent := t.TempDir()
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b", UID: "c"}}
	for _, dir := range []string{parent, filepath.Join(parent, Folder)} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "yarn_cache"), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "yarn.lock"), nil, 0o600))
		_, _, err := Open(parent, 0, 0).Make(pod)
		if dir == parent {
			require.NoError(t, err, "an empty folder may be used")
			require.NoError(t, os.RemoveAll(filepath.Join(parent, Folder)))
		} else {
			require.ErrorContains(t, err, dir+" has files, but not .crashloop, so crashloop did not make it: set another --root-dir")
		}
	}
	Open(parent, 0, 0)
	for _, dir := range []string{parent, filepath.Join(parent, Folder)} {
		require.DirExists(t, filepath.Join(dir, "yarn_cache"))
		require.FileExists(t, filepath.Join(dir, "yarn.lock"))
	}
	require.NoFileExists(t, filepath.Join(parent, Folder, marker))
}

// TestMarker: a folder that was created without a file, as by a killed command, gets its marker.
func TestMarker(t *testing.T) {
	parent := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(parent, Folder), 0o700))
	for range 2 {
		dir, unlock, err := Open(parent, 0, 0).Make(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b", UID: "c"}})
		require.NoError(t, err)
		require.Equal(t, filepath.Join(parent, Folder, "a_b_c"), dir)
		require.FileExists(t, filepath.Join(parent, Folder, marker))
		unlock()
	}
	Open(parent, 0, 0)
	require.NoDirExists(t, filepath.Join(parent, Folder, "a_b_c"))
	require.FileExists(t, filepath.Join(parent, Folder, marker))
}
