// SPDX-License-Identifier: Apache-2.0

//go:build unix

package poddir

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPrune(t *testing.T) {
	root := t.TempDir()
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
			names = append(names, e.Name())
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

	Open(root, 4, 500)
	require.Equal(t, all, names(), "within the limits")
	Open(root, 1, 500)
	require.Equal(t, []string{"a_three.lock", "a_three_uid", "a_two.lock", "a_two_uid", "other"},
		names(), "a_three is locked, now the newest; containers may run of a_two")
	unlock()
	Open(root, 4, 150)
	require.Equal(t, []string{"a_three.lock", "a_three_uid", "a_two.lock", "a_two_uid", "other"}, names(), "the newest is kept")
	Open(root, 4, 50)
	require.Equal(t, []string{"a_two.lock", "a_two_uid", "other"}, names())
	Open(filepath.Join(root, "missing"), 1, 1)
}
