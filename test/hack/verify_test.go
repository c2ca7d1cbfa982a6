// SPDX-License-Identifier: Apache-2.0

package hack

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
)

// newFile is a diff that creates a file.
func newFile(path string) string {
	return "diff --git a/" + path + " b/" + path + "\nnew file mode 100644\n--- /dev/null\n+++ b/" + path + "\n@@ -0,0 +1 @@\n+package x\n"
}

// TestVerify: a series in order passes, and the tree stays as it is. Each kind of disorder is found.
func TestVerify(t *testing.T) {
	t.Run("in order", func(t *testing.T) {
		long(t)
		p := newProject(t).clone(t)
		before := p.snapshot(t, p.root)
		out := p.patchset(t, "verify")
		for _, word := range []string{"formatting the 3 commits again gives the stored patches", "plain git am makes the same trees", "each hunk fits one place",
			"Type-checking after decide, with the tests of 2 packages", "Building kubelet and kube-apiserver", "is in order"} {
			assert.Contains(t, out, word)
		}
		assert.Equal(t, before, p.snapshot(t, p.root))
		assertNoScratch(t, filepath.Join(p.dir, "_output"))
	})
	t.Run("while applied", func(t *testing.T) {
		p := newProject(t)
		p.patchset(t, "apply")
		p.commit(p.tree(), "mine", "A <a@x>", "none", map[string]string{"mine.txt": ""})
		before := p.snapshot(t, p.tree())
		out := p.with(t, []string{"SKIP=late", "SERIES=core"}, "hack/patchset.sh", "verify", "--no-build")
		assert.Contains(t, out, "formatting the 3 commits")
		assert.Equal(t, before, p.snapshot(t, p.tree()))
	})
	for name, kind := range map[string]func(project, *testing.T) project{"worktree": project.worktree, "shallow": project.shallow} {
		t.Run("of a "+name, func(t *testing.T) {
			p := kind(newProject(t), t)
			before := p.snapshot(t, p.tree())
			p.patchset(t, "verify", "--no-build")
			assert.Equal(t, before, p.snapshot(t, p.tree()))
		})
	}
	for name, tc := range map[string]struct {
		patch    string // or another file
		old, new string
		args     []string
		words    []string
	}{
		"commit":         {"late.patch", "From 0000000000000000000000000000000000000000 ", "From 1000000000000000000000000000000000000000 ", nil, []string{"late.patch differs from the formatted commit", "make refresh"}},
		"signature":      {"late.patch", "+\treturn false\n }\n", "+\treturn false\n }\n-- \n2.39.5\n\n", nil, []string{"late.patch differs"}},
		"subject":        {"late.patch", "Subject: [PATCH] ", "Subject: [PATCH 3/3] ", nil, []string{"late.patch differs"}},
		"index":          {"late.patch", "\nindex ", "\nindex 1", nil, []string{"late"}},
		"library":        {"late.patch", "diff --git ", newFile(decided) + "diff --git ", nil, []string{decided}},
		"new file":       {"late.patch", "+\treturn false\n }\n", "+\treturn false\n }\n" + newFile("pkg/kubelet/new.go"), nil, []string{"late.patch differs from the formatted commit"}},
		"type error":     {"late.patch", "+\treturn false", "+\treturn 7", []string{"--no-form"}, []string{"type errors after late:", kubelet + ":"}},
		"type of a test": {"../_src/decide/pkg/kubelet/our.go", "package kubelet", "package other", []string{"--no-form"}, []string{"type errors after decide:"}},
		"application":    {"late.patch", "-\treturn true", "-\treturn maybe", nil, []string{"late", "does not apply", kubelet}},
		"dependency":     {"late.patch", "Depends-On: none", "Depends-On: later", nil, []string{"late depends on later"}},
		"nothing":        {"late.patch", "+\treturn false", "+\treturn true", nil, []string{"late"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProject(t)
			edit(t, p.series(tc.patch), tc.old, tc.new)
			if tc.args == nil {
				tc.args = []string{"--no-build"}
			}
			p.refuses(t, nil, tc.words, append([]string{"verify"}, tc.args...)...)
		})
	}
	// On this fork the series applies. On those with more lines before each function, git takes the nearest place, in another function.
	t.Run("a hunk that may be misplaced", func(t *testing.T) {
		p := newProject(t).clone(t)
		for _, name := range []string{"Early", "Earlier", "Earliest"} {
			edit(t, filepath.Join(p.root, kubelet), "// Late is", "// "+name+" is.\nfunc "+name+"() bool {\n\t// a\n\t// b\n\t// c\n\treturn true\n}\n\n// Late is")
		}
		p.git(p.root, "commit", "-q", "-a", "-m", "fork")
		p.git(p.root, "tag", "-f", version)
		// The hunk is where it was made: in the last of the functions.
		edit(t, p.series("late.patch"), "@@ -20,5 +20,5 @@", "@@ -44,5 +44,5 @@")
		p.patchset(t, "apply")
		p.patchset(t, "refresh")
		p.refuses(t, nil, []string{"late.patch: a hunk of " + kubelet, "fits 4 places"}, "verify", "--no-build")
	})
}
