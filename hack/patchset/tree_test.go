// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/console"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/fileutil"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/series"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/tree"
)

// treeForTest returns a program with three series, and a git tree with a commit for each of the tags. The last commit is
// checked out.
func treeForTest(t *testing.T, binary string, tags ...string) (*program, *tree.Tree, *bytes.Buffer) {
	t.Helper()
	dir, out := t.TempDir(), &bytes.Buffer{}
	p := &program{ctx: context.Background(), Log: console.Log{Out: out, ErrOut: out}, Store: series.Store{Root: dir, Patches: filepath.Join(dir, "patches")}, output: filepath.Join(dir, "_output"), kubeRoot: filepath.Join(dir, "kubernetes")}
	for file, content := range map[string]string{
		"patches/v1.35/BASE":                 "tag: v1.35.8\n",
		"patches/v1.36/BASE":                 "tag: v1.36.3\n",
		"patches/v1.37/BASE":                 "tag: v1.37.1\n",
		"kubernetes/go.mod":                  "module k8s.io/kubernetes\n",
		"kubernetes/" + tree.BaseVersionFile: "package version\n\nconst DefaultKubeBinaryVersion = \"" + binary + "\"\n",
		"kubernetes/staging/src/other.go":    "package other\n",
	} {
		require.NoError(t, fileutil.Write(filepath.Join(dir, file), []byte(content), 0o666))
	}
	require.NoError(t, p.needGit())
	g := p.Git.In(p.kubeRoot)
	require.NoError(t, g.Initialize())
	require.NoError(t, g.Do("add", "-A"))
	require.NoError(t, g.Release("first"))
	for _, tag := range tags {
		if tag != "" {
			require.NoError(t, g.Do("tag", tag))
			continue
		}
		require.NoError(t, os.WriteFile(filepath.Join(p.kubeRoot, "new"), nil, 0o666))
		require.NoError(t, g.Do("add", "-A"))
		require.NoError(t, g.Do("-c", "user.name=A", "-c", "user.email=a@example.com", "commit", "-q", "-m", "ours"))
	}
	found, err := p.locate()
	require.NoError(t, err)
	return p, found, out
}

// If a tag does not name a release, KUBE_VERSION does.
func TestForksOwnNumbers(t *testing.T) {
	p, found, _ := treeForTest(t, "1.36", "v1.2.0")
	p.kubeVersion = "v1.36.3"
	require.NoError(t, p.findVersion(found))
	assert.Equal(t, "v1.36.3", found.Version)
}

// TestTreeSaysItsSeries: a tree gets the series of its minor version, regardless of its other tags. An empty tag is a
// commit without one.
func TestTreeSaysItsSeries(t *testing.T) {
	for name, tc := range map[string]struct {
		binary          string
		tags            []string
		version, series string
		says, err       string
	}{
		"release":                       {binary: "1.37", tags: []string{"v1.37.1"}, version: "v1.37.1", series: "v1.37"},
		"the first alpha of the next":   {binary: "1.36", tags: []string{"v1.36.3", "v1.37.0-alpha.0"}, version: "v1.36.3", series: "v1.36"},
		"an alpha of another minor":     {binary: "1.36", tags: []string{"v1.37.0-alpha.0"}, err: "has the sources of kubernetes 1.36, so it cannot be v1.37.0-alpha.0"},
		"a fork's own numbers":          {binary: "1.36", tags: []string{"v1.2.0"}, err: "has the sources of kubernetes 1.36, so it cannot be v1.2.0"},
		"older patch version":           {binary: "1.36", tags: []string{"v1.36.0"}, version: "v1.36.0", series: "v1.36"},
		"release candidate":             {binary: "1.37", tags: []string{"v1.37.0-rc.1"}, version: "v1.37.0-rc.1", series: "v1.37"},
		"release candidate and release": {binary: "1.37", tags: []string{"v1.37.0-rc.1", "v1.37.0"}, version: "v1.37.0", series: "v1.37"},
		"a fork's tag": {
			binary: "1.36", tags: []string{"v1.36.1+acme.2"}, version: "v1.36.1", series: "v1.36",
			says: "is at v1.36.1+acme.2, so its release is assumed to be v1.36.1",
		},
		"a fork's candidate": {binary: "1.37", tags: []string{"v1.37.0-rc.0+acme.1"}, version: "v1.37.0-rc.0", series: "v1.37"},
		"two tags of a fork": {binary: "1.36", tags: []string{"v1.36.3+acme.1", "v1.36.10+acme.1"}, version: "v1.36.10", series: "v1.36"},
		"commits after a fork's tag": {
			binary: "1.36", tags: []string{"v1.36.3+acme.2", ""}, version: "v1.36.3", series: "v1.36",
			says: "the nearest one before it is v1.36.3+acme.2, so its release is assumed to be v1.36.3",
		},
		"no tag":                 {binary: "1.36", version: "v1.36.3", series: "v1.36", says: "because of the minor version in"},
		"between two minors":     {binary: "1.37", tags: []string{"v1.36.0", ""}, err: "has the sources of kubernetes 1.37, so it cannot be v1.36.0"},
		"a minor without series": {binary: "1.38", tags: []string{"v1.38.0-alpha.1"}, version: "v1.38.0-alpha.1", err: "no series fits kubernetes v1.38.0-alpha.1"},
		"no tag, and no series":  {binary: "1.38", err: "cannot find out which kubernetes release"},
	} {
		t.Run(name, func(t *testing.T) {
			p, found, out := treeForTest(t, tc.binary, tc.tags...)
			err := p.findVersion(found)
			if err == nil {
				assert.Equal(t, tc.version, found.Version)
				var dir string
				if dir, err = p.seriesFor(found.Version); err == nil {
					assert.Equal(t, tc.series, filepath.Base(dir))
				}
			}
			if tc.err != "" {
				assert.ErrorContains(t, err, tc.err)
				return
			}
			assert.NoError(t, err)
			assert.Contains(t, out.String(), tc.says)
		})
	}
}
