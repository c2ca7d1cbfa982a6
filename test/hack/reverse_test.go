// SPDX-License-Identifier: Apache-2.0

package hack

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDropping(t *testing.T) {
	t.Run("a comment in series", func(t *testing.T) {
		p := newProject(t)
		names := p.patches(t)
		p.series(t, "# comment", names[0], names[1], "", "# "+names[2])
		assert.Contains(t, p.ok(t, "hack/patchset.sh", "apply"), "2 commits")
		p.fails(t, nil, []string{"leaves out patches", names[2]}, "hack/patchset.sh", "refresh")
		assert.Contains(t, p.ok(t, "hack/patchset.sh", "verify", "--no-build"), "is in order")
	})
	t.Run("others depend on it", func(t *testing.T) {
		p := newProject(t)
		before := p.snapshot(t, p.tree())
		names := p.patches(t)
		p.series(t, names[1], names[2])
		p.fails(t, nil, []string{names[1] + " depends on patch 1", "Leave out 0002 as well"}, "hack/patchset.sh", "apply")
		assert.Equal(t, before, p.snapshot(t, p.tree()))
	})
	t.Run("skip", func(t *testing.T) {
		p := newProject(t)
		one, two, three := p.number(t, "client-go-rules"), p.number(t, second), p.number(t, "kubelet-not-late")
		p.fails(t, []string{"SKIP=" + one}, []string{"depends on patch " + one}, "hack/patchset.sh", "apply")
		out, err := p.try([]string{"SKIP=" + two + " " + one}, "hack/patchset.sh", "apply")
		require.NoError(t, err, out)
		assert.Contains(t, out, "1 commits")
		p.fails(t, nil, []string{"applied with SERIES, SKIP"}, "hack/patchset.sh", "refresh")
		p.ok(t, "hack/patchset.sh", "reverse")
		out, err = p.try([]string{"SKIP=" + three}, "make", "apply")
		require.NoError(t, err, out)
		assert.Contains(t, out, "2 commits")
		p.ok(t, "make", "reverse")
		assert.Contains(t, p.ok(t, "make", "apply", "SKIP="+two+",000"+three), "1 commits")
		p.ok(t, "make", "reverse")
		assert.Contains(t, p.ok(t, "make", "apply", "SKIP=kubelet-not-late "+second), "1 commits")
		p.ok(t, "make", "reverse")
		for _, skip := range []string{"three", "99", "0", three + " 99 x"} {
			p.fails(t, []string{"SKIP=" + skip}, []string{fmt.Sprintf("SKIP=%q: v1.37 has no patch ", skip), "Its patches are:", one + " client-go-rules", three + " kubelet-not-late"},
				"hack/patchset.sh", "apply")
		}
	})
}

// TestParts: SERIES selects the patches whose message names that part.
func TestParts(t *testing.T) {
	p := newProject(t)
	names := p.patches(t)
	says := func(name, old, new string) {
		t.Helper()
		edit(t, filepath.Join(p.dir, "patches/v1.37", name), old, new)
	}
	says(names[2], "Series: core", "Series: cost")
	assert.Contains(t, p.ok(t, "make", "apply", "SERIES=core"), "2 commits")
	p.fails(t, nil, []string{"applied with SERIES"}, "hack/patchset.sh", "refresh")
	assert.Contains(t, p.ok(t, "make", "apply", "SERIES=core,cost"), "3 commits")
	assert.Contains(t, p.ok(t, "hack/patchset.sh", "refresh"), "Nothing to refresh")
	assert.Contains(t, p.ok(t, "make", "apply", "SERIES=cost"), "1 commits")
	assert.Contains(t, p.ok(t, "make", "apply", "SERIES=core", "SKIP="+names[2][5:len(names[2])-6]), "2 commits", "SKIP may name a patch of another part")
	p.fails(t, []string{"SERIES=core costs"}, []string{`SERIES="core costs": there is no "costs", only core and cost`}, "hack/patchset.sh", "apply")
	assert.Contains(t, p.ok(t, "hack/patchset.sh", "verify", "--no-build"), "is in order")

	says(names[0], "Series: core", "Series: cost")
	p.fails(t, nil, []string{names[1] + `, which says "Series: core", comes after ` + names[0]}, "hack/patchset.sh", "verify", "--no-build")
	says(names[0], "Series: cost", "Series: other")
	p.fails(t, nil, []string{names[0] + ` must have one trailer "Series: core" or "Series: cost"`}, "hack/patchset.sh", "verify", "--no-build")
	p.fails(t, []string{"SERIES=core"}, []string{names[0] + " must have one trailer"}, "hack/patchset.sh", "apply")
}

// TestFullDisk: where git cannot write, no hunk is said to be at fault.
func TestFullDisk(t *testing.T) {
	const full = `echo "error: unable to create temporary file: No space left on device" >&2; exit 128`
	t.Run("in the rehearsal", func(t *testing.T) {
		p := newProject(t).clone(t)
		before := p.snapshot(t, p.root)
		out, err := p.try(gitBefore(t, "*\\ apply\\ --cached*", `echo "error: patch failed: pkg/kubelet/kubelet.go:1" >&2; `+full), "hack/patchset.sh", "apply")
		require.Error(t, err, out)
		assert.Contains(t, out, p.patches(t)[0]+" cannot be applied")
		assert.Contains(t, out, "No space left on device")
		assert.NotContains(t, out, "does not")
		assert.Equal(t, before, p.snapshot(t, p.root))
	})
	for arguments, what := range map[string]string{"*\\ unpack-objects*": "", "*\\ checkout\\ -q\\ -b*": halfCheckout} {
		t.Run("in the tree"+arguments, func(t *testing.T) {
			p := newProject(t).clone(t)
			before := p.snapshot(t, p.root)
			out, err := p.try(gitBefore(t, arguments, what+full), "hack/patchset.sh", "apply")
			require.Error(t, err, out)
			assert.Contains(t, out, "No space left on device")
			assert.NotContains(t, out, "does not")
			assert.NotContains(t, out, "cannot be applied")
			assert.Equal(t, before, p.snapshot(t, p.root))
			p.noLeftovers(t)
		})
	}
}

// TestCheckout: nothing is removed but what the command made itself.
func TestCheckout(t *testing.T) {
	p := newProject(t)
	p.ok(t, "hack/patchset.sh", "apply")
	before := p.snapshot(t, p.tree())
	p.fails(t, nil, []string{p.tree() + " exists already", "Move it away"}, "hack/patchset.sh", "checkout", p.tree())
	assert.Equal(t, before, p.snapshot(t, p.tree()))
	dir := filepath.Join(t.TempDir(), "stock")
	write(dir, map[string]string{"mine.txt": "1"})
	p.fails(t, nil, []string{dir + " exists already"}, "hack/patchset.sh", "checkout", dir)
	assert.FileExists(t, filepath.Join(dir, "mine.txt"))
	p.git(dir, "init", "-q")
	p.fails(t, nil, []string{dir + " exists already"}, "hack/patchset.sh", "checkout", dir)

	dir += "-2"
	p.ok(t, "hack/patchset.sh", "checkout", dir)
	assert.Contains(t, read(filepath.Join(dir, "pkg/kubelet/kubelet.go")), `"stock"`)
	write(dir, map[string]string{"pkg/kubelet/kubelet.go": "package kubelet\n"})
	p.ok(t, "hack/patchset.sh", "checkout", dir)
	assert.Contains(t, read(filepath.Join(dir, "pkg/kubelet/kubelet.go")), `"stock"`)
}

func TestPatchesChangedSince(t *testing.T) {
	p := newProject(t).clone(t)
	before := p.snapshot(t, p.root)
	p.ok(t, "hack/patchset.sh", "apply")
	edit(t, filepath.Join(p.dir, "patches/v1.37", p.patches(t)[2]), "+\treturn false", "+\treturn !true")
	assert.Contains(t, p.ok(t, "hack/patchset.sh", "apply"), "reversing it first")
	assert.Contains(t, read(filepath.Join(p.root, "pkg/kubelet/kubelet.go")), "return !true")
	p.ok(t, "hack/patchset.sh", "reverse")
	assert.Equal(t, before, p.snapshot(t, p.root))
}

// TestChangedPatchesFail changes the patches so that they no longer apply: the branch made of the former ones stays.
func TestChangedPatchesFail(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			p := kind(newProject(t), t)
			p.ok(t, "hack/patchset.sh", "apply")
			before := p.snapshot(t, p.root)
			third := p.patches(t)[2]
			edit(t, filepath.Join(p.dir, "patches/v1.37", third), "-\treturn true", "-\treturn maybe")
			p.fails(t, nil, []string{third + " does not apply", "pkg/kubelet/kubelet.go: the hunk at line "}, "hack/patchset.sh", "apply")
			assert.Equal(t, before, p.snapshot(t, p.root))
			assertNoScratch(t, filepath.Join(p.dir, "_output"))
		})
	}
}

func TestReverseRefuses(t *testing.T) {
	p := newProject(t).clone(t)
	before := p.snapshot(t, p.root)
	p.ok(t, "hack/patchset.sh", "apply")
	p.commit(p.root, "my own work", "A <a@example.com>", "none", map[string]string{"mine.txt": "1"})
	p.fails(t, nil, []string{"commits that no patch file holds", "my own work", "make refresh", "--force"}, "hack/patchset.sh", "reverse")
	p.fails(t, nil, []string{"has been edited", "make refresh"}, "hack/patchset.sh", "apply")
	assert.Contains(t, p.ok(t, "hack/patchset.sh", "apply", "--keep"), "using it as it is")
	write(p.root, map[string]string{"mine.txt": "2"})
	p.fails(t, nil, []string{"not committed", "mine.txt"}, "hack/patchset.sh", "reverse")
	p.ok(t, "hack/patchset.sh", "reverse", "--force")
	assert.Equal(t, before, p.snapshot(t, p.root))
}

func TestReverseKeepsOtherBranches(t *testing.T) {
	p := newProject(t).plain(t)
	p.ok(t, "hack/patchset.sh", "apply")
	p.git(p.root, "branch", "mine")
	out := p.ok(t, "hack/patchset.sh", "reverse")
	assert.Contains(t, out, "it is kept")
	assert.Contains(t, p.git(p.root, "branch"), "mine")
}

func TestReverseKeepsStashes(t *testing.T) {
	p := newProject(t).plain(t)
	p.ok(t, "hack/patchset.sh", "apply")
	write(p.root, map[string]string{"pkg/kubelet/kubelet.go": "package kubelet\n\n// Mine.\n"})
	p.git(p.root, "stash")
	assert.Contains(t, p.ok(t, "hack/patchset.sh", "reverse"), "it is kept")
	assert.Contains(t, p.git(p.root, "stash", "show", "-p"), "// Mine.")
}

func TestClean(t *testing.T) {
	for name, work := range map[string]func(p project){
		"changes":   func(p project) { write(p.tree(), map[string]string{"go.work": "go 1.22.0\n"}) },
		"new files": func(p project) { write(p.tree(), map[string]string{"mine.txt": "1"}) },
		"a stash":   func(p project) { write(p.tree(), map[string]string{"go.work": ""}); p.git(p.tree(), "stash") },
		"new files that status does not show": func(p project) {
			p.git(p.tree(), "config", "status.showUntrackedFiles", "no")
			write(p.tree(), map[string]string{"mine.txt": "1"})
		},
		"commits on a branch": func(p project) { p.git(p.tree(), "commit", "-q", "--allow-empty", "-m", "mine") },
		"commits on no branch": func(p project) {
			p.git(p.tree(), "checkout", "-q", "--detach")
			p.git(p.tree(), "commit", "-q", "--allow-empty", "-m", "mine")
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProject(t)
			p.ok(t, "hack/patchset.sh", "apply")
			work(p)
			before := p.snapshot(t, p.tree())
			assert.Contains(t, p.ok(t, "make", "clean"), "kept, because it has ")
			assert.Equal(t, before, p.snapshot(t, p.tree()))
		})
	}
	t.Run("only _output", func(t *testing.T) {
		p := newProject(t)
		p.ok(t, "hack/patchset.sh", "apply")
		other := t.TempDir()
		write(other, map[string]string{"mine": "1"})
		out, err := p.try([]string{"KB_OUTPUT_DIR=" + other, "OUTPUT_DIR=" + other}, "make", "clean")
		require.NoError(t, err, out)
		assert.FileExists(t, filepath.Join(other, "mine"))
		assert.NoDirExists(t, filepath.Join(p.dir, "_output"), "a series that is applied is no reason to keep a tree")
	})
}
