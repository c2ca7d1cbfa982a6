// SPDX-License-Identifier: Apache-2.0

package hack

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestRefreshIsStable(t *testing.T) {
	p := newProject(t).clone(t)
	p.ok(t, "hack/patchset.sh", "apply")
	patches, tree := p.patchBytes(t), p.snapshot(t, p.root)
	for range 2 {
		assert.Contains(t, p.ok(t, "hack/patchset.sh", "refresh"), "Nothing to refresh")
		assert.Equal(t, patches, p.patchBytes(t))
		assert.Equal(t, tree, p.snapshot(t, p.root))
	}
	p.ok(t, "hack/patchset.sh", "reverse")
}

func TestRefreshCarriesTheLibrary(t *testing.T) {
	p := newProject(t).clone(t)
	p.ok(t, "hack/patchset.sh", "apply")
	third := read(filepath.Join(p.dir, "patches/v1.37", p.patches(t)[2]))
	edit(t, filepath.Join(p.dir, "backoff/rules.go"), "return 1", "return 2")
	write(p.dir, map[string]string{"backoff/more.go": "package backoff\n\nconst more = 1\n", "apis/ours.go": "package apis\n\n// Ours.\n"})
	edit(t, filepath.Join(p.dir, "hack/mirror.txt"), "# comment\n", "# comment\n"+second+" apis staging/src/k8s.io/api *.go\n")
	before := p.snapshot(t, p.root)
	p.fails(t, nil, []string{"backoff/more.go -> staging/", "backoff/rules.go -> staging/", "+++ staging/", "apis/ours.go -> staging/", "make refresh"},
		"hack/patchset.sh", "refresh", "--check")
	assert.Equal(t, before, p.snapshot(t, p.root))
	out := p.ok(t, "hack/patchset.sh", "refresh")
	assert.Contains(t, out, "backoff/rules.go -> staging/")
	assert.NotContains(t, out, ".patch")
	assert.Contains(t, read(filepath.Join(p.root, "staging/src/k8s.io/client-go/util/flowcontrol/rules.go")), "return 2")
	assert.Equal(t, "package flowcontrol\n\nconst more = 1\n", read(filepath.Join(p.root, "staging/src/k8s.io/client-go/util/flowcontrol/more.go")))
	assert.Empty(t, p.git(p.root, "status", "--porcelain"))
	assert.Contains(t, p.git(p.root, "show", "--stat", "HEAD~2"), "more.go")
	assert.NotContains(t, p.git(p.root, "show", "--stat", "HEAD~2"), "ours.go")
	assert.Equal(t, "package api\n\n// Ours.\n", p.git(p.root, "show", "HEAD~1:staging/src/k8s.io/api/ours.go")+"\n")
	assert.Equal(t, third, read(filepath.Join(p.dir, "patches/v1.37", p.patches(t)[2])))
	p.ok(t, "hack/patchset.sh", "refresh", "--check")
	assert.Contains(t, p.ok(t, "hack/patchset.sh", "refresh"), "Nothing to refresh")
	assert.Contains(t, p.ok(t, "hack/patchset.sh", "apply"), "Already applied")
	head := p.git(p.root, "rev-parse", "HEAD")
	p.ok(t, "hack/patchset.sh", "reverse")
	p.ok(t, "hack/patchset.sh", "apply")
	assert.Equal(t, head, p.git(p.root, "rev-parse", "HEAD"), "applying makes the commits that refresh left")
}

func TestRefreshTakesCommits(t *testing.T) {
	p := newProject(t).clone(t)
	p.ok(t, "hack/patchset.sh", "apply")
	p.commit(p.root, "kubelet: a fourth", "A <a@example.com>", "3", map[string]string{"pkg/kubelet/fourth.go": "package kubelet\n"})
	out := p.ok(t, "make", "refresh")
	assert.Contains(t, out, "0004-kubelet-a-fourth.patch is new")
	assert.Equal(t, strings.Join(p.patches(t), "\n"), strings.TrimPrefix(strings.TrimSpace(read(filepath.Join(p.dir, "patches/v1.37/series"))), "# In this order. Comment a line out to leave that patch out.\n"))
	p.git(p.root, "reset", "-q", "--hard", "HEAD~1")
	assert.Contains(t, p.ok(t, "hack/patchset.sh", "refresh"), "0004-kubelet-a-fourth.patch is gone")
	assert.Len(t, p.patches(t), 3)
	p.ok(t, "hack/patchset.sh", "reverse")
}

func TestRefreshRefuses(t *testing.T) {
	t.Run("a mirrored file edited on both sides", func(t *testing.T) {
		p := newProject(t).clone(t)
		p.ok(t, "hack/patchset.sh", "apply")
		patches := p.patchBytes(t)
		edit(t, filepath.Join(p.root, "pkg/kubelet/restart/decide.go"), "Decide decides", "Decide decides well")
		p.git(p.root, "commit", "-q", "-a", "--amend", "--no-edit")
		library := filepath.Join(p.dir, "kuberuntime/decide.go")
		edit(t, library, "Decide decides", "Decide decides soon")
		kept, tree := read(library), p.snapshot(t, p.root)
		p.fails(t, nil, []string{"1 files were edited both", "--- kuberuntime/decide.go", "+++ pkg/kubelet/restart/decide.go", "decides well", "decides soon"},
			"hack/patchset.sh", "refresh")
		assert.Equal(t, patches, p.patchBytes(t))
		assert.Equal(t, tree, p.snapshot(t, p.root))
		assert.Equal(t, kept, read(library))
		p.ok(t, "hack/patchset.sh", "refresh", "--library-wins")
		assert.Equal(t, patches, p.patchBytes(t))
		assert.Equal(t, kept, read(library))
		assert.Contains(t, read(filepath.Join(p.root, "pkg/kubelet/restart/decide.go")), "decides soon")
	})
	t.Run("dirty", func(t *testing.T) {
		p := newProject(t).clone(t)
		p.ok(t, "hack/patchset.sh", "apply")
		write(p.root, map[string]string{"go.work": "go 1.22.0\n"})
		p.fails(t, nil, []string{"not committed", "go.work"}, "hack/patchset.sh", "refresh")
	})
	t.Run("a file in the way", func(t *testing.T) {
		p := newProject(t).clone(t)
		p.ok(t, "hack/patchset.sh", "apply")
		const more = "staging/src/k8s.io/client-go/util/flowcontrol/more.go"
		write(p.dir, map[string]string{"backoff/more.go": "package backoff\n"})
		write(p.root, map[string]string{more: "mine"})
		patches, tree := p.patchBytes(t), p.snapshot(t, p.root)
		p.fails(t, nil, []string{more}, "hack/patchset.sh", "refresh")
		assert.Equal(t, patches, p.patchBytes(t))
		assert.Equal(t, tree, p.snapshot(t, p.root))
	})
	t.Run("not applied", func(t *testing.T) {
		p := newProject(t).clone(t)
		p.fails(t, nil, []string{"not applied", "make apply"}, "hack/patchset.sh", "refresh")
	})
	t.Run("rebased", func(t *testing.T) {
		p := newProject(t).clone(t)
		p.ok(t, "hack/patchset.sh", "apply")
		patches := p.patchBytes(t)
		p.git(p.root, "checkout", "-q", "main")
		p.commit(p.root, "upstream goes on", "A <a@example.com>", "none", map[string]string{"CHANGELOG": "x"})
		p.git(p.root, "commit", "-q", "--amend", "-m", "base rewritten", "--allow-empty")
		p.git(p.root, "rebase", "-q", "--onto", "main", version, branch)
		p.git(p.root, "config", "branch."+branch+".kubelet-backoff-base", p.git(p.root, "commit-tree", "-m", "elsewhere", "main^{tree}"))
		p.fails(t, nil, []string{"no longer starts at", "--base COMMIT"}, "hack/patchset.sh", "refresh")
		p.ok(t, "hack/patchset.sh", "refresh", "--base", "main")
		assert.Equal(t, patches, p.patchBytes(t))
	})
}

func TestMirrorRender(t *testing.T) {
	p := newProject(t)
	assert.Equal(t, "package flowcontrol\n\n// Rule rules.\nfunc Rule() int { return 1 }\n", p.ok(t, "hack/patchset.sh", "render", "backoff/rules.go"))
	assert.Equal(t, "package restart\n\nimport (\n\tbackoff \"k8s.io/client-go/util/flowcontrol\"\n)\n\n// Decide decides.\nfunc Decide() int { return backoff.Rule() }\n",
		p.ok(t, "hack/patchset.sh", "render", "kuberuntime/decide.go"))
	out := p.ok(t, "hack/patchset.sh", "render", "kuberuntime/decide_test.go")
	assert.Contains(t, out, "package restart_test\n")
	assert.Contains(t, out, "\tkuberuntime \"k8s.io/kubernetes/pkg/kubelet/restart\"\n")

	p.fails(t, nil, []string{"backoff/none.go is not in"}, "hack/patchset.sh", "render", "backoff/none.go")
	path := filepath.Join(p.dir, "kuberuntime/decide.go")
	edit(t, path, "\tbackoff \"", "\t\"")
	p.fails(t, nil, []string{"kuberuntime/decide.go line 4", "give the import a name"}, "hack/patchset.sh", "render", "kuberuntime/decide.go")
	edit(t, path, "/kubelet-backoff/backoff\"", "/kubelet-backoff/config\"")
	p.fails(t, nil, []string{"imports config, which hack/mirror.txt does not mirror"}, "hack/patchset.sh", "render", "kuberuntime/decide.go")
	for line, want := range map[string]string{
		"a backoff":          "expected \"PATCH",
		"a backoff to rules": `"rules" is not a pattern`,
		"a backoff to [.go":  `"[.go" is not a pattern`,
	} {
		write(p.dir, map[string]string{"hack/mirror.txt": "# comment\n" + line + "\n"})
		p.fails(t, nil, []string{"mirror.txt line 2", want}, "hack/patchset.sh", "render", "backoff/rules.go")
	}
}

// newFile is a diff that creates a file.
func newFile(path string) string {
	return "diff --git a/" + path + " b/" + path + "\nnew file mode 100644\n--- /dev/null\n+++ b/" + path + "\n@@ -0,0 +1 @@\n+package x\n"
}
