// SPDX-License-Identifier: Apache-2.0

package hack

import (
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// addRelease gives the project a tree of another release, which has the same files.
func (p project) addRelease(t *testing.T, release string) string {
	t.Helper()
	tree := filepath.Join(p.dir, "_output", release, "kubernetes")
	copyDir(t, filepath.Join(p.dir, "_output", version, "kubernetes"), tree)
	write(tree, map[string]string{base: ofMinor(read(filepath.Join(tree, base)), release)})
	p.git(tree, "commit", "-q", "-a", "-m", release)
	p.git(tree, "tag", release)
	return tree
}

// addSeries gives the project a series for another release, whose patches are those of v1.37. An older one inherits them.
func (p project) addSeries(t *testing.T, release, name string) (tree string) {
	t.Helper()
	if name > "v1.37" {
		copyDir(t, p.series(""), filepath.Join(p.dir, "patches", name))
	}
	write(p.dir, map[string]string{"patches/" + name + "/BASE": "tag: " + release + "\n", "patches/" + name + "/series": read(p.series("series"))})
	return p.addRelease(t, release)
}

// TestInherited: a release has only the patches and files that differ from those of the next newer one.
func TestInherited(t *testing.T) {
	const older, oldest = "v1.36.2", "v1.35.4"
	p := newProject(t)
	trees := map[string]string{version: p.tree(), older: p.addSeries(t, older, "v1.36"), oldest: p.addSeries(t, oldest, "v1.35")}
	in := func(release string, args ...string) string {
		t.Helper()
		return p.with(t, []string{"KUBE_VERSION=" + release}, "hack/patchset.sh", args...)
	}
	commit := func(release, old, new string) { // to the last commit
		t.Helper()
		edit(t, filepath.Join(trees[release], kubelet), old, new)
		p.git(trees[release], "commit", "-q", "-a", "--amend", "--no-edit")
	}
	late := func(name string) string { return filepath.Join(p.dir, "patches", name, "late.patch") }
	for release := range trees {
		assert.Contains(t, in(release, "apply"), "3 commits")
	}
	// The tree of the older release has other lines, which move hunks.
	before := p.sources(t)
	in(older, "refresh")
	in(oldest, "refresh")
	assert.Equal(t, before, p.sources(t), "the same patch has no file")

	// Another hunk has a file of its own. Those of older releases inherit it.
	commit(older, "return false", "return 1 == 2")
	in(older, "refresh")
	assert.Contains(t, read(late("v1.36")), "1 == 2")
	assert.NoFileExists(t, late("v1.35"))
	assert.Contains(t, in(oldest, "apply"), "3 commits")
	assert.Contains(t, read(filepath.Join(trees[oldest], kubelet)), "1 == 2")
	in(version, "verify", "--no-build")
	in(older, "verify", "--no-build")
	in(oldest, "verify", "--no-build")

	// If the newer one changes to the same, the file goes.
	commit(version, "return false", "return 1 == 2")
	in(version, "refresh")
	assert.FileExists(t, late("v1.36"))
	in(older, "refresh")
	assert.NoFileExists(t, late("v1.36"))
	assert.Contains(t, in(older, "apply"), "Already applied")

	// A newer one that changes is another patch of the older ones, unless they do not fit: then nothing changes.
	commit(version, "return 1 == 2", "return 2 == 1")
	in(version, "refresh")
	assert.Contains(t, in(older, "apply"), "3 commits")
	assert.Contains(t, read(filepath.Join(trees[older], kubelet)), "2 == 1")

	// A commit of the older branch that was edited, while the inherited patch has changed too.
	commit(older, "return 2 == 1", "return !true")
	commit(version, "return 2 == 1", "return 3 == 1")
	in(version, "refresh")
	p.fails(t, []string{"KUBE_VERSION=" + older}, []string{"have been edited since", late("v1.37")}, "hack/patchset.sh", "refresh")
	assert.Contains(t, read(filepath.Join(trees[older], kubelet)), "return !true")
	assert.NoFileExists(t, late("v1.36"))

	// A message of its own makes a patch of its own, a new one that a newer release has makes none.
	p.git(trees[oldest], "checkout", "-q", "-B", "x", oldest)
	in(oldest, "apply")
	p.git(trees[oldest], "commit", "-q", "--amend", "-m", "kubelet: not late", "-m", trailers)
	in(oldest, "refresh")
	assert.Contains(t, read(late("v1.35")), "Upstream-Issue: 1\n")
	assert.Contains(t, in(version, "apply"), "Already applied")
}

// TestInheritedSources: the version of a file in a release is that of those before it, until one has its own.
func TestInheritedSources(t *testing.T) {
	const newest, older = "v1.38.0", "v1.36.0"
	p := newProject(t)
	trees := map[string]string{newest: p.addSeries(t, newest, "v1.38"), version: p.tree(), older: p.addSeries(t, older, "v1.36")}
	own := "patches/v1.37/_src/decide/" + our
	write(p.dir, map[string]string{own: "package kubelet\n\nfunc Ours() int { return 7 }\n"})
	for release, n := range map[string]int{newest: 1, version: 7, older: 7} {
		p.with(t, []string{"KUBE_VERSION=" + release}, "hack/patchset.sh", "apply")
		assert.Contains(t, read(filepath.Join(trees[release], our)), fmt.Sprint("return ", n), release)
	}
	// An edit on the branch is refused, and its place is named.
	edit(t, filepath.Join(trees[older], our), "return 7", "return 8")
	p.git(trees[older], "commit", "-q", "-a", "--fixup", "HEAD~1")
	p.git(trees[older], "-c", "sequence.editor=:", "rebase", "-q", "-i", "--autosquash", older)
	p.fails(t, []string{"KUBE_VERSION=" + older}, []string{our + ", whose source is " + filepath.Join(p.dir, own)}, "hack/patchset.sh", "refresh")
}

// TestNewRelease follows docs/rebasing.md: git am -3 of the mails on a new release, BASE, fetch --pin, and refresh --base.
func TestNewRelease(t *testing.T) {
	const next = "v1.38.0"
	p := newProject(t)
	proxy := filepath.Join(t.TempDir(), "proxy")
	files := maps.Clone(kubernetes)
	files[kubelet] = strings.Replace(files[kubelet], "// two\n", "// 2\n", 1)
	makeProxy(proxy, next)
	module(proxy, "k8s.io/kubernetes", next, files)
	env := []string{"GOPROXY=file://" + proxy, "GOMODCACHE=" + modcache(t), "KUBE_VERSION=" + next}
	p.with(t, []string{"KUBE_VERSION=" + version}, "hack/patchset.sh", "export")
	p.with(t, env, "hack/patchset.sh", "fetch")
	tree := filepath.Join(p.dir, "_output", next, "kubernetes")
	p.fails(t, env, []string{"no series fits", "there are series for v1.37"}, "hack/patchset.sh", "apply")
	p.git(tree, "fetch", "-q", filepath.Join(p.dir, "_output", version, "kubernetes"), "base")
	p.git(tree, "checkout", "-q", "-b", "kubelet-backoff-v1.38")
	mails, err := filepath.Glob(filepath.Join(p.dir, "_output/series/v1.37/*.patch"))
	require.NoError(t, err)
	p.git(tree, append([]string{"am", "-q", "-3"}, mails...)...)
	write(p.dir, map[string]string{"patches/v1.38/BASE": "tag: " + next + "\n"})
	p.with(t, env, "hack/patchset.sh", "fetch", "--pin")
	assert.FileExists(t, filepath.Join(p.dir, "patches/v1.38/kubernetes.sum"))
	p.fails(t, env, []string{"--base"}, "hack/patchset.sh", "refresh")
	p.with(t, env, "hack/patchset.sh", "refresh", "--base", next)
	assert.Contains(t, read(filepath.Join(p.dir, "patches/v1.38/series")), "\nrules\ndecide\nlate\n")
	assert.Contains(t, p.with(t, env, "hack/patchset.sh", "verify", "--no-build"), "is in order")
	assert.Contains(t, read(filepath.Join(tree, kubelet)), "// 2\n")
	// The older one now inherits what is the same, once it is refreshed.
	before := p.with(t, []string{"KUBE_VERSION=" + version}, "hack/patchset.sh", "apply")
	assert.Contains(t, before, "3 commits")
	p.with(t, []string{"KUBE_VERSION=" + version}, "hack/patchset.sh", "refresh")
	assert.NoFileExists(t, p.series("late.patch"))
	assert.FileExists(t, p.series("decide.patch"))
	assert.Contains(t, p.with(t, []string{"KUBE_VERSION=" + version}, "hack/patchset.sh", "verify", "--no-build"), "is in order")
}
