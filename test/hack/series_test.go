// SPDX-License-Identifier: Apache-2.0

package hack

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestManyPatches: numbers may have two digits, and change when patches are put in between.
func TestManyPatches(t *testing.T) {
	long(t)
	p := newProject(t).clone(t)
	p.ok(t, "hack/patchset.sh", "apply")
	for i := range 9 {
		depends := "client-go-rules"
		if i == 8 {
			depends = "kubelet-more-0, 0001-client-go-rules, 11"
		}
		p.commit(p.root, fmt.Sprintf("kubelet: more %d", i), "A <a@example.com>", depends, map[string]string{fmt.Sprintf("pkg/kubelet/more%d.go", i): "package kubelet\n"})
	}
	p.ok(t, "hack/patchset.sh", "refresh")
	assert.Equal(t, "12", p.number(t, "kubelet-more-8"))
	p.inOrder(t)
	assert.Contains(t, p.ok(t, "hack/patchset.sh", "stat"), "3 kubelet-not-late")
	p.ok(t, "hack/patchset.sh", "reverse")
	for skip, words := range map[string]string{
		"kubelet-more-0": "depends on patch kubelet-more-0, which", "kubelet-more-7": "depends on patch 11, which", "kubelet-more-8": "11 commits",
		// The patches that depend on a dependent patch are named, too.
		"client-go-rules": "0011 0012 as well, or add what they depend on",
	} {
		out, _ := p.try([]string{"SKIP=" + p.number(t, skip)}, "hack/patchset.sh", "apply")
		assert.Contains(t, out, words)
	}
	p.ok(t, "hack/patchset.sh", "reverse")
	assert.Contains(t, p.ok(t, "hack/patchset.sh", "apply"), "12 commits")
	// A patch before all others, which move on.
	p.commit(p.root, "kubelet: between", "A <a@example.com>", "none", map[string]string{"pkg/kubelet/between.go": "package kubelet\n"})
	p.git(p.root, "-c", `sequence.editor=f() { sed -n 13p "$1" >"$1.new"; sed 13d "$1" >>"$1.new"; mv "$1.new" "$1"; }; f`, "rebase", "-q", "-i", "HEAD~13")
	p.ok(t, "hack/patchset.sh", "refresh")
	assert.Equal(t, "1", p.number(t, "kubelet-between"))
	assert.Equal(t, "13", p.number(t, "kubelet-more-8"))
}

// TestConflicts: what was edited on both sides is shown, and nothing is written.
func TestConflicts(t *testing.T) {
	for name, c := range map[string]struct {
		tree, kept func(t *testing.T, file string)
		words      []string
	}{
		"edited": {
			func(t *testing.T, file string) { edit(t, file, "return 1", "return 2") },
			func(t *testing.T, file string) { edit(t, file, "return 1", "return 3") },
			[]string{"return 2", "return 3"},
		},
		"removed in the tree": {
			func(t *testing.T, file string) { require.NoError(t, os.Remove(file)) },
			func(t *testing.T, file string) { edit(t, file, "return 1", "return 3") },
			[]string{"was removed on the branch, and patches/_src/"},
		},
		"removed where it is kept": {
			func(t *testing.T, file string) { edit(t, file, "return 1", "return 3") },
			func(t *testing.T, file string) { require.NoError(t, os.Remove(file)) },
			[]string{"was edited on the branch, and patches/_src/"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := applied(t)
			ours := "pkg/kubelet/ours.go"
			c.tree(t, filepath.Join(p.root, ours))
			p.amend(t, 1)
			c.kept(t, filepath.Join(p.dir, src(ours)))
			before, tree := p.snapshot(t, p.dir), p.snapshot(t, p.root)
			p.fails(t, nil, append(c.words, "1 files were edited both", ours), "hack/patchset.sh", "refresh")
			assert.Equal(t, before, p.snapshot(t, p.dir))
			assert.Equal(t, tree, p.snapshot(t, p.root))
		})
	}
	t.Run("patches", func(t *testing.T) {
		p := applied(t)
		edit(t, filepath.Join(p.dir, "patches/v1.37", p.patches(t)[2]), "+\treturn false", "+\treturn !true")
		edit(t, filepath.Join(p.root, "pkg/kubelet/kubelet.go"), "return false", "return true && false")
		p.amend(t, 0)
		before, tree := p.snapshot(t, p.dir), p.snapshot(t, p.root)
		p.fails(t, nil, []string{"they have changed since"}, "hack/patchset.sh", "refresh")
		assert.Equal(t, before, p.snapshot(t, p.dir))
		assert.Equal(t, tree, p.snapshot(t, p.root))
	})
	t.Run("the same edit", func(t *testing.T) {
		p := applied(t)
		edit(t, filepath.Join(p.root, "pkg/kubelet/ours.go"), "return 1", "return 2")
		p.amend(t, 1)
		edit(t, filepath.Join(p.dir, src("pkg/kubelet/ours.go")), "return 1", "return 2")
		p.refreshed(t)
	})
}

// TestOverride: a release may have its own version of a file, with a reason.
func TestOverride(t *testing.T) {
	own := "patches/v1.37/_src/" + second + "/pkg/kubelet/ours.go"
	const reasons = "patches/v1.37/_src/REASONS"
	line := second + "/pkg/kubelet/ours.go: this release returns seven\n"
	p := newProject(t).clone(t)
	write(p.dir, map[string]string{
		src("pkg/kubelet/ours.go"): "package kubelet\n\nfunc ours() int { return 1 }\n\nvar _ = ours\n",
		own:                        "package kubelet\n\nfunc ours() int { return 7 }\n\nvar _ = ours\n",
	})
	p.fails(t, nil, []string{own, "has no reason for it", "REASONS"}, "hack/patchset.sh", "apply")
	p.fails(t, nil, []string{own, "has no reason for it"}, "hack/patchset.sh", "verify", "--no-build")
	write(p.dir, map[string]string{reasons: "# comment\n" + strings.Replace(line, "this release returns seven", "", 1)})
	p.fails(t, nil, []string{"REASONS line 2", "must be"}, "hack/patchset.sh", "apply")
	write(p.dir, map[string]string{reasons: line + second + "/none.go: why not\n"})
	p.fails(t, nil, []string{"has a reason for", "none.go"}, "hack/patchset.sh", "apply")
	write(p.dir, map[string]string{reasons: line})
	p.ok(t, "hack/patchset.sh", "apply")
	assert.Contains(t, read(filepath.Join(p.root, "pkg/kubelet/ours.go")), "return 7")

	// Refresh writes the edit to the release's version.
	edit(t, filepath.Join(p.root, "pkg/kubelet/ours.go"), "return 7", "return 8")
	p.amend(t, 1)
	p.refreshed(t, "-> "+own)
	assert.Contains(t, read(filepath.Join(p.dir, own)), "return 8")
	assert.Contains(t, read(filepath.Join(p.dir, src("pkg/kubelet/ours.go"))), "return 1")

	p.git(p.root, "rm", "-q", "pkg/kubelet/ours.go")
	p.amend(t, 1)
	p.fails(t, nil, []string{"is the version of v1.37", "REASONS"}, "hack/patchset.sh", "refresh")
	p.git(p.root, "reset", "-q", "--hard", "ORIG_HEAD")
	p.ok(t, "hack/patchset.sh", "reverse", "--force")

	write(p.dir, map[string]string{own: read(filepath.Join(p.dir, src("pkg/kubelet/ours.go")))})
	p.fails(t, nil, []string{"is the same as "}, "hack/patchset.sh", "apply")
}

// TestOlderOverride: the version of a release is that of those before it, until one has its own.
func TestOlderOverride(t *testing.T) {
	const newest, oldest = "v1.38.0", "v1.36.0"
	p := newProject(t)
	p.addSeries(t, newest, "v1.38")
	p.addSeries(t, oldest, "v1.36")
	name := second + "/pkg/kubelet/ours.go"
	returns := func(n int) string {
		return fmt.Sprintf("package kubelet\n\nfunc ours() int { return %d }\n\nvar _ = ours\n", n)
	}
	own := func(series string) string { return "patches/" + series + "/_src/" + name }
	write(p.dir, map[string]string{
		src("pkg/kubelet/ours.go"): returns(1), own("v1.37"): returns(7),
		"patches/v1.37/_src/REASONS": name + ": before v1.38, it returns seven\n",
	})
	in := func(release, command string) string {
		t.Helper()
		out, err := p.try([]string{"KUBE_VERSION=" + release}, "hack/patchset.sh", command)
		require.NoError(t, err, out)
		return out
	}
	ours := func(release string) string {
		return filepath.Join(p.dir, "_output", release, "kubernetes/pkg/kubelet/ours.go")
	}
	for release, n := range map[string]int{newest: 1, version: 7, oldest: 7} {
		in(release, "apply")
		assert.Equal(t, returns(n), read(ours(release)), release)
	}

	// Refresh writes the edit of either branch to that version, and names the other release.
	tree := filepath.Dir(filepath.Dir(filepath.Dir(ours(oldest))))
	edit(t, ours(oldest), "return 7", "return 8")
	p.git(tree, "commit", "-q", "-a", "--fixup", "HEAD~1")
	p.git(tree, "-c", "sequence.editor=:", "rebase", "-q", "-i", "--autosquash", oldest)
	out, err := p.try([]string{"KUBE_VERSION=" + oldest}, "hack/patchset.sh", "refresh")
	require.Error(t, err, out)
	assert.Contains(t, out, "v1.36 is refreshed, but files of v1.37 have changed too")
	assert.Equal(t, returns(8), read(filepath.Join(p.dir, own("v1.37"))))
	assert.Equal(t, returns(1), read(filepath.Join(p.dir, src("pkg/kubelet/ours.go"))))
	in(version, "refresh")
	assert.Equal(t, returns(8), read(ours(version)))

	write(p.dir, map[string]string{own("v1.36"): returns(8), "patches/v1.36/_src/REASONS": name + ": so it is\n"})
	p.fails(t, []string{"KUBE_VERSION=" + oldest}, []string{own("v1.36") + " is the same as ", own("v1.37") + ": remove it"}, "hack/patchset.sh", "apply")
}

// TestSources: what cannot be brought is refused, and named.
func TestSources(t *testing.T) {
	p := newProject(t).clone(t)
	before := p.snapshot(t, p.root)
	write(p.dir, map[string]string{src("pkg/kubelet/kubelet.go"): "package kubelet\n"})
	p.fails(t, nil, []string{"changes pkg/kubelet/kubelet.go, but", src("pkg/kubelet/kubelet.go") + " is that file"}, "hack/patchset.sh", "apply")
	require.NoError(t, os.Remove(filepath.Join(p.dir, src("pkg/kubelet/kubelet.go"))))
	write(p.dir, map[string]string{src("go.work"): "go 1.22.0\n"})
	p.fails(t, nil, []string{"go.work: the patch creates it, but it exists"}, "hack/patchset.sh", "apply")
	require.NoError(t, os.Remove(filepath.Join(p.dir, src("go.work"))))
	write(p.dir, map[string]string{src("pkg/kubelet/restart/decide.go"): "package restart\n"})
	p.fails(t, nil, []string{"are both pkg/kubelet/restart/decide.go in the tree"}, "hack/patchset.sh", "apply")
	require.NoError(t, os.Remove(filepath.Join(p.dir, src("pkg/kubelet/restart/decide.go"))))
	require.NoError(t, os.MkdirAll(filepath.Join(p.dir, src("x")), 0o755))
	require.NoError(t, os.Symlink("y", filepath.Join(p.dir, src("x/link"))))
	p.fails(t, nil, []string{"x/link is not a regular file"}, "hack/patchset.sh", "apply")
	require.NoError(t, os.Remove(filepath.Join(p.dir, src("x/link"))))
	write(p.dir, map[string]string{src("x/dos.txt"): "one\r\n"})
	p.fails(t, nil, []string{"x/dos.txt has lines that end in CR LF"}, "hack/patchset.sh", "apply")
	assert.Equal(t, before, p.snapshot(t, p.root))
}
