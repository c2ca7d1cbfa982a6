// SPDX-License-Identifier: Apache-2.0

package series

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubelet-backoff/kubelet-backoff/hack/internal/git"
	"github.com/kubelet-backoff/kubelet-backoff/hack/internal/sys"
)

// realStore is the repository that this test is in.
func realStore(t *testing.T) Store {
	t.Helper()
	g, err := git.New(t.Context())
	require.NoError(t, err)
	root, err := os.Getwd()
	require.NoError(t, err)
	for !sys.Exists(filepath.Join(root, "patches/_src")) {
		require.NotEqual(t, root, filepath.Dir(root), "no directory above this one has patches/_src")
		root = filepath.Dir(root)
	}
	return Store{Root: root, Git: g}
}

// reasons reads the file REASONS of a series, which says why the release has its own version of a file: "PATCH/PATH: REASON".
func reasons(t *testing.T, dir string) map[string]string {
	t.Helper()
	lines, err := sys.Lines(filepath.Join(dir, "_src/REASONS"))
	require.NoError(t, err)
	of := map[string]string{}
	for _, line := range lines {
		name, reason, _ := strings.Cut(line, ": ")
		assert.NotEmpty(t, reason, "%q must be \"PATCH/PATH: REASON\"", line)
		assert.NotContains(t, of, name, "it must be there once")
		of[name] = reason
	}
	return of
}

// The series of this repository follow the rules in docs/development.md, and have no file that they would inherit.
func TestRealSeries(t *testing.T) {
	p := realStore(t)
	all, err := p.LoadAll()
	require.NoError(t, err)
	require.NotEmpty(t, all)
	for _, s := range all {
		t.Run(s.Name, func(t *testing.T) {
			require.NoError(t, s.CheckDependencies())
			var names []string
			last := Core
			for _, q := range s.Patches {
				names = append(names, q.Name)
				trailers, err := p.Git.In(os.TempDir()).Input(q.Text).Lines("interpret-trailers", "--parse")
				require.NoError(t, err)
				values := map[string][]string{}
				for _, line := range trailers {
					key, value, _ := strings.Cut(line, ":")
					values[key] = append(values[key], strings.TrimSpace(value))
				}
				for _, key := range []string{"Series", "Upstream-Issue", "Differs-From-Upstream", "Depends-On", "Drop-When"} {
					if assert.Len(t, values[key], 1, "%s must have one trailer %s", q.File, key) {
						assert.NotEmpty(t, values[key][0], "%s: %s", q.File, key)
					}
				}
				part, err := q.Part()
				require.NoError(t, err)
				assert.LessOrEqual(t, slices.Index(Parts, last), slices.Index(Parts, part), "%s is of %s, but comes after a patch of %s", q.Name, part, last)
				last = part
			}

			files, err := fs.Glob(os.DirFS(s.Dir), "*.patch")
			require.NoError(t, err)
			for _, name := range files {
				file := filepath.Join(s.Dir, name)
				name = strings.TrimSuffix(name, ".patch")
				assert.Contains(t, slices.Concat(names, s.Dropped), name, "%s is not in %s/series", file, s.Dir)
				for _, dir := range p.Newer(s.Dir)[1:] {
					if mail, err := os.ReadFile(filepath.Join(dir, name+".patch")); err == nil {
						own, err := os.ReadFile(file)
						require.NoError(t, err)
						assert.False(t, Same(string(own), string(mail)), "%s is the same as in %s: remove it", file, dir)
						break
					}
				}
			}

			why := reasons(t, s.Dir)
			own, err := readSources(filepath.Join(s.Dir, "_src"))
			require.NoError(t, err)
			delete(own, "REASONS")
			assert.Equal(t, slices.Sorted(maps.Keys(own)), slices.Sorted(maps.Keys(why)), "each file of %s/_src needs a line in REASONS, and each line a file", s.Dir)
			for name, f := range own {
				patch, _, _ := strings.Cut(name, "/")
				assert.Contains(t, names, patch, "%s is for a patch that the series does not have", f.Path)
				for _, dir := range append(p.Newer(s.Dir)[1:], filepath.Join(p.Root, "patches")) {
					if inherited, err := os.ReadFile(filepath.Join(dir, "_src", name)); err == nil {
						assert.NotEqual(t, string(inherited), string(f.Content), "%s is the same as in %s: remove it, and its reason", f.Path, dir)
						break
					}
				}
			}
		})
	}
}

// A file in patches/_src belongs to a patch of the newest series.
func TestRealSources(t *testing.T) {
	p := realStore(t)
	all, err := p.LoadAll()
	require.NoError(t, err)
	dirs, err := fs.Glob(os.DirFS(filepath.Join(p.Root, "patches/_src")), "*")
	require.NoError(t, err)
	for _, dir := range dirs {
		assert.True(t, slices.ContainsFunc(all[0].Patches, func(q *Patch) bool { return q.Name == filepath.Base(dir) }), dir)
	}
	for _, r := range all[0].mirror {
		assert.True(t, slices.ContainsFunc(all[0].Patches, func(q *Patch) bool { return q.Name == r.Patch }), "hack/mirror.txt: %s", r.Patch)
	}
}
