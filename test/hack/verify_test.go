// SPDX-License-Identifier: Apache-2.0

package hack

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestVerify(t *testing.T) {
	long(t)
	t.Run("in order", func(t *testing.T) {
		p := newProject(t).clone(t)
		before := p.snapshot(t, p.root)
		out := p.ok(t, "hack/patchset.sh", "verify")
		for _, word := range []string{"3 patch files are well-formed", "change only files of the release", "gives the stored bytes",
			"3 patches apply, and make the same trees as their sources", "apply makes the same trees",
			"restores the tree", "with the tests of ./pkg/kubelet ./pkg/kubelet/restart", "kubelet and kube-apiserver build", "is in order"} {
			assert.Contains(t, out, word)
		}
		assert.Equal(t, before, p.snapshot(t, p.root))
		assertNoScratch(t, filepath.Join(p.dir, "_output"))
	})
	t.Run("while applied, and on a plain tree", func(t *testing.T) {
		p := newProject(t)
		p.ok(t, "hack/patchset.sh", "apply")
		before := p.snapshot(t, p.tree())
		p.ok(t, "hack/patchset.sh", "verify", "--no-build")
		assert.Equal(t, before, p.snapshot(t, p.tree()))
		p.ok(t, "hack/patchset.sh", "reverse")
		p = p.plain(t)
		before = p.snapshot(t, p.root)
		p.ok(t, "hack/patchset.sh", "verify", "--no-build")
		assert.Equal(t, before, p.snapshot(t, p.root))
	})
	for name, c := range map[string]struct {
		patch    int
		old, new string
		words    []string
	}{
		"trailer":     {0, "Drop-When: ", "Drop-If: ", []string{`0001-client-go-rules.patch has no trailer "Drop-When: ..."`}},
		"commit":      {2, "From 0000000000000000000000000000000000000000 ", "From 1000000000000000000000000000000000000000 ", []string{"from the zero commit"}},
		"signature":   {2, "-\treturn true\n+\treturn false\n }\n", "-\treturn true\n+\treturn false\n }\n-- \n2.39.5\n\n", []string{"mail signature"}},
		"bytes":       {2, "Subject: [PATCH] ", "Subject: [PATCH 3/3] ", []string{"differs from the formatted commit", "make refresh"}},
		"library":     {2, "diff --git ", newFile("pkg/kubelet/restart/decide.go") + "diff --git ", []string{"pkg/kubelet/restart/decide.go: the patch creates it, but it exists"}},
		"mirror":      {0, "diff --git ", newFile("staging/src/k8s.io/client-go/util/flowcontrol/rules.go") + "diff --git ", []string{"0001-client-go-rules.patch changes staging/", "backoff/rules.go is that file"}},
		"new file":    {2, "diff --git ", newFile("pkg/kubelet/new.go") + "diff --git ", []string{"has a hunk in pkg/kubelet/new.go, which is not a file of the release", "patches/_src/kubelet-not-late"}},
		"build":       {2, "+\treturn false", "+\treturn 7", []string{"type errors after 0003", "pkg/kubelet/kubelet.go:"}},
		"application": {2, "-\treturn true", "-\treturn maybe", []string{"does not apply to kubernetes v1.37.1", "pkg/kubelet/kubelet.go: the hunk at line"}},
		"depends":     {2, "Depends-On: none", "Depends-On: later", []string{`"later" is neither a patch number nor "none"`}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProject(t)
			edit(t, filepath.Join(p.dir, "patches/v1.37", p.patches(t)[c.patch]), c.old, c.new)
			p.fails(t, nil, c.words, "hack/patchset.sh", "verify")
		})
	}
	t.Run("orphan", func(t *testing.T) {
		p := newProject(t)
		write(p.dir, map[string]string{"patches/v1.37/0009-x.patch": "x"})
		p.fails(t, nil, []string{"0009-x.patch is not in"}, "hack/patchset.sh", "verify", "--no-build")
		p = newSub(t)
		write(p.dir, map[string]string{"patches/_src/nobody/x.go": "package x\n"})
		p.fails(t, nil, []string{"patches/_src/nobody is for a patch \"nobody\", which does not exist"}, "hack/patchset.sh", "verify", "--no-build")
	})
}
