// SPDX-License-Identifier: Apache-2.0

package hack

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRoundTrip applies to and reverses from every kind of tree.
func TestRoundTrip(t *testing.T) {
	for name, prepare := range map[string]func(*testing.T, project) project{
		"fetched":      func(_ *testing.T, p project) project { return p },
		"clone":        func(t *testing.T, p project) project { return p.clone(t) },
		"plain source": func(t *testing.T, p project) project { return p.plain(t) },
		"worktree":     func(t *testing.T, p project) project { return p.worktree(t) },
		"shallow":      func(t *testing.T, p project) project { return p.shallow(t) },
		"detached": func(t *testing.T, p project) project {
			p = p.clone(t)
			p.git(p.root, "checkout", "-q", "--detach")
			return p
		},
		"untracked files": func(t *testing.T, p project) project {
			p = p.clone(t)
			write(p.root, map[string]string{"notes.txt": "mine", "_output/x": "built", "pkg/kubelet/restart/mine.txt": "beside"})
			return p
		},
		"plain source inside another repository": func(t *testing.T, p project) project {
			p = p.plain(t)
			outer := filepath.Dir(p.root)
			p.git(outer, "init", "-q")
			write(p.root, map[string]string{"_output/x": "built"})
			return p
		},
		"relative KUBE_ROOT": func(t *testing.T, p project) project {
			p = p.clone(t)
			require.NoError(t, os.Symlink(p.root, filepath.Join(p.dir, "link to it")))
			p.root = "link to it"
			return p
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := prepare(t, newProject(t))
			tree := p.tree()
			if !filepath.IsAbs(tree) {
				tree = filepath.Join(p.dir, tree) + "/"
			}
			before := p.snapshot(t, tree)
			out := p.ok(t, "hack/patchset.sh", "apply")
			assert.Contains(t, out, "3 commits")
			assert.Equal(t, branch, p.git(tree, "symbolic-ref", "--short", "HEAD"))
			assert.Equal(t, "kubelet: not late\nkubelet: a subject that is so long that a mail has to fold it, because it goes on and on\nclient-go: rules",
				p.git(tree, "log", "--format=%s", "-3"))
			assert.Equal(t, "Ada ada@example.com 2026-11-20T12:00:00+01:00 kubelet-backoff 2026-11-20T12:00:00+01:00",
				p.git(tree, "log", "--format=%an %ae %aI %cn %cI", "-1"))
			assert.FileExists(t, filepath.Join(tree, "pkg/kubelet/restart/decide.go"))
			if name != "plain source inside another repository" && name != "plain source" {
				applied := p.git(tree, "rev-parse", "HEAD")
				assert.Contains(t, p.ok(t, "hack/patchset.sh", "apply"), "Already applied")
				p.ok(t, "hack/patchset.sh", "reverse")
				p.ok(t, "hack/patchset.sh", "apply")
				assert.Equal(t, applied, p.git(tree, "rev-parse", "HEAD"), "applying again makes the same commits")
			}
			p.ok(t, "hack/patchset.sh", "reverse")
			assert.Equal(t, before, p.snapshot(t, tree))
			assert.Contains(t, p.ok(t, "hack/patchset.sh", "reverse"), "Nothing to reverse")
		})
	}
}

func TestPatchesAreNeutral(t *testing.T) {
	p := newProject(t)
	for _, name := range p.patches(t) {
		s := read(filepath.Join(p.dir, "patches/v1.37", name))
		assert.True(t, strings.HasPrefix(s, "From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001\nFrom: "), name)
		for _, word := range []string{"evil", "X-Evil", "Signed-off-by", "PATCH 1", "Somebody", "@@ -1,9"} {
			assert.NotContains(t, s, word, name)
		}
		assert.Contains(t, s, "diff --git a/")
	}
}

func TestApplyRefuses(t *testing.T) {
	t.Run("dirty checkout", func(t *testing.T) {
		p := newProject(t).clone(t)
		write(p.root, map[string]string{"pkg/kubelet/kubelet.go": "package kubelet\n"})
		before := p.snapshot(t, p.root)
		p.fails(t, nil, []string{"not committed", " M pkg/kubelet/kubelet.go", "git stash"}, "hack/patchset.sh", "apply")
		assert.Equal(t, before, p.snapshot(t, p.root))
	})
	t.Run("a file in the way", func(t *testing.T) {
		for _, make := range []func(project, *testing.T) project{project.clone, project.plain} {
			p := make(newSub(t), t)
			write(p.root, map[string]string{"pkg/kubelet/restart/decide.go": "mine"})
			before := p.snapshot(t, p.root)
			p.fails(t, nil, []string{"already exist in " + p.root, "pkg/kubelet/restart/decide.go"}, "hack/patchset.sh", "apply")
			assert.Equal(t, before, p.snapshot(t, p.root))
		}
	})
	t.Run("in the way of a directory", func(t *testing.T) {
		const there = "pkg/kubelet/restart"
		for name, make := range map[string]func(path string) error{
			"file": func(path string) error { return os.WriteFile(path, []byte("mine"), 0o644) },
			"link": func(path string) error { return os.Symlink(t.TempDir(), path) },
		} {
			for _, kind := range kinds {
				p := kind(newSub(t), t)
				require.NoError(t, make(filepath.Join(p.root, there)), name)
				if _, err := os.Stat(filepath.Join(p.root, ".git")); err == nil {
					write(p.root, map[string]string{".git/info/exclude": there + "\n"})
				}
				before := p.snapshot(t, p.root)
				p.fails(t, nil, []string{"already exist in " + p.root, "\n       " + there + "\n", "Move them away"}, "hack/patchset.sh", "apply")
				assert.Equal(t, before, p.snapshot(t, p.root))
			}
			p := newSub(t).clone(t)
			require.NoError(t, make(filepath.Join(p.root, there)), name)
			p.git(p.root, "add", ".")
			p.git(p.root, "commit", "-q", "-m", "fork")
			before := p.snapshot(t, p.root)
			p.fails(t, nil, []string{p.patches(t)[1] + " does not apply", there + ": the patch creates it, but it exists"}, "hack/patchset.sh", "apply")
			assert.Equal(t, before, p.snapshot(t, p.root))
		}
	})
	t.Run("rebase in progress", func(t *testing.T) {
		p := newProject(t).clone(t)
		require.NoError(t, os.Mkdir(filepath.Join(p.root, ".git/rebase-merge"), 0o755))
		p.fails(t, nil, []string{"in the middle of a git rebase"}, "hack/patchset.sh", "apply")
	})
	t.Run("am in progress", func(t *testing.T) {
		p := newProject(t).clone(t)
		write(p.root, map[string]string{".git/rebase-apply/applying": ""})
		p.fails(t, nil, []string{"in the middle of a git am"}, "hack/patchset.sh", "apply")
	})
	t.Run("foreign branch", func(t *testing.T) {
		p := newProject(t).clone(t)
		p.git(p.root, "branch", branch)
		p.fails(t, nil, []string{"did not make", branch}, "hack/patchset.sh", "apply")
	})
	t.Run("no such directory", func(t *testing.T) {
		p := newProject(t)
		p.root = "/no/such/dir"
		p.fails(t, nil, []string{"KUBE_ROOT=/no/such/dir is not a directory"}, "hack/patchset.sh", "apply")
	})
	t.Run("not kubernetes", func(t *testing.T) {
		p := newProject(t)
		p.root = t.TempDir()
		p.fails(t, nil, []string{"is not a kubernetes source tree", "module k8s.io/kubernetes"}, "hack/patchset.sh", "apply")
	})
	t.Run("release without a series", func(t *testing.T) {
		p := newProject(t).clone(t)
		p.git(p.root, "tag", "-d", version)
		p.git(p.root, "tag", "v1.36.5")
		require.NoError(t, os.Remove(filepath.Join(p.root, "staging/src/k8s.io/component-base/version/base.go")))
		p.git(p.root, "commit", "-q", "-a", "-m", "x")
		p.git(p.root, "tag", "v1.36.6")
		before := p.snapshot(t, p.root)
		p.fails(t, nil, []string{"no series fits kubernetes v1.36.6", "v1.37: made on v1.37.1"}, "hack/patchset.sh", "apply")
		assert.Equal(t, before, p.snapshot(t, p.root))
		// The user may insist.
		out, err := p.try([]string{"KB_SERIES=v1.37"}, "hack/patchset.sh", "apply")
		require.NoError(t, err, out)
	})
	t.Run("KUBE_VERSION against the tag", func(t *testing.T) {
		p := newProject(t).clone(t)
		p.fails(t, []string{"KUBE_VERSION=v1.37.2"}, []string{"KUBE_VERSION is v1.37.2", "is at v1.37.1"}, "hack/patchset.sh", "apply")
	})
	t.Run("KUBE_VERSION against the tree", func(t *testing.T) {
		p := newProject(t).plain(t)
		p.fails(t, []string{"KUBE_VERSION=v1.36.1"}, []string{"has the sources of kubernetes 1.37", "v1.36.1"}, "hack/patchset.sh", "apply")
	})
	t.Run("plain tree of unknown release", func(t *testing.T) {
		p := newProject(t).plain(t)
		write(p.root, map[string]string{"staging/src/k8s.io/client-go/go.mod": "module k8s.io/client-go\n\ngo 1.22.0\n\nrequire k8s.io/api v0.0.0\n"})
		require.NoError(t, os.Remove(filepath.Join(p.root, "staging/src/k8s.io/component-base/version/base.go")))
		before := p.snapshot(t, p.root)
		p.fails(t, nil, []string{"cannot find out which kubernetes release", "KUBE_VERSION="}, "hack/patchset.sh", "apply")
		assert.Equal(t, before, p.snapshot(t, p.root))
		out, err := p.try([]string{"KUBE_VERSION=v1.37.2"}, "hack/patchset.sh", "apply")
		require.NoError(t, err, out)
	})
	t.Run("series names a missing patch", func(t *testing.T) {
		p := newProject(t)
		p.series(t, "0001-gone.patch")
		p.fails(t, nil, []string{"0001-gone.patch", "no such file"}, "hack/patchset.sh", "apply")
	})
	t.Run("unknown argument", func(t *testing.T) {
		p := newProject(t)
		p.fails(t, nil, []string{"unknown flag: --nonsense"}, "hack/patchset.sh", "apply", "--nonsense")
	})
}

func newSub(t *testing.T) project {
	dir := filepath.Join(t.TempDir(), "kb")
	out, err := exec.Command("cp", "-Rp", shared.project, dir).CombinedOutput()
	require.NoError(t, err, string(out))
	return project{dir: dir}
}

// TestApplyAgain: the branch is there, and something is in the way of checking it out.
func TestApplyAgain(t *testing.T) {
	t.Run("rebase in progress", func(t *testing.T) {
		p := newProject(t).clone(t)
		p.ok(t, "hack/patchset.sh", "apply")
		p.git(p.root, "-c", "sequence.editor=sed -i '1i break'", "rebase", "-i", "HEAD~3")
		before := p.snapshot(t, p.root)
		p.fails(t, nil, []string{"in the middle of a git rebase"}, "hack/patchset.sh", "apply")
		assert.Equal(t, before, p.snapshot(t, p.root))
	})
	t.Run("a file that git ignores", func(t *testing.T) {
		p := newProject(t).clone(t)
		write(p.dir, map[string]string{src("pkg/kubelet/mine.log"): "theirs"})
		p.ok(t, "hack/patchset.sh", "apply")
		p.git(p.root, "checkout", "-q", "main")
		write(p.root, map[string]string{"pkg/kubelet/mine.log": "mine"})
		before := p.snapshot(t, p.root)
		p.fails(t, nil, []string{"pkg/kubelet/mine.log", "Move them away first"}, "hack/patchset.sh", "apply")
		assert.Equal(t, before, p.snapshot(t, p.root))
	})
	t.Run("another worktree", func(t *testing.T) {
		p := newProject(t).clone(t)
		q := p
		q.root += " 2"
		p.git(p.root, "worktree", "add", "-q", "-b", "second", q.root)
		first, before := p.snapshot(t, p.root), p.snapshot(t, q.root)
		q.ok(t, "hack/patchset.sh", "apply")
		p.fails(t, nil, []string{"already checked out"}, "hack/patchset.sh", "apply")
		p.fails(t, nil, []string{"Cannot delete"}, "hack/patchset.sh", "reverse")
		q.ok(t, "hack/patchset.sh", "reverse")
		assert.Equal(t, first, p.snapshot(t, p.root))
		assert.Equal(t, before, p.snapshot(t, q.root))
	})
	t.Run("at the same time", func(t *testing.T) {
		p := newProject(t).clone(t)
		other := p.command(nil, "hack/patchset.sh", "apply")
		require.NoError(t, other.Start())
		p.ok(t, "hack/patchset.sh", "apply")
		require.NoError(t, other.Wait())
		p.ok(t, "hack/patchset.sh", "refresh", "--check")
	})
}

func TestApplyFork(t *testing.T) {
	p := newProject(t).clone(t)
	p.git(p.root, "tag", "v1.37.1-acme.3")
	p.git(p.root, "tag", "-d", version)
	p.commit(p.root, "ours", "A <a@example.com>", "none", map[string]string{"ours.txt": "1"})
	before := p.snapshot(t, p.root)
	out := p.ok(t, "hack/patchset.sh", "apply")
	assert.Contains(t, out, "nearest one before it is v1.37.1-acme.3, so its release is assumed to be v1.37.1")
	p.ok(t, "hack/patchset.sh", "reverse")
	assert.Equal(t, before, p.snapshot(t, p.root))
}

// TestApplyFails makes the second patch fail, on every kind of tree.
func TestApplyFails(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			p := kind(newProject(t), t)
			edit(t, filepath.Join(p.root, "pkg/kubelet/kubelet.go"), `return "stock"`, `return "fork"`)
			if name == "clone" {
				p.git(p.root, "commit", "-q", "-a", "-m", "fork")
			}
			before := p.snapshot(t, p.root)
			p.fails(t, nil, []string{p.patches(t)[1] + " does not apply to kubernetes v1.37.1", "pkg/kubelet/kubelet.go: the hunk at line ", " is unchanged",
				"v1.37: made on v1.37.1"}, "hack/patchset.sh", "apply")
			assert.Equal(t, before, p.snapshot(t, p.root))
		})
	}
}

func TestApplyInterrupted(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			p := kind(newProject(t), t)
			before := p.snapshot(t, p.root)
			// Ctrl-C while git has written a part of two files.
			env := gitBefore(t, "*\\ checkout\\ -q\\ -b\\ *", `mkdir -p "$2/pkg/kubelet/restart"; >"$2/pkg/kubelet/restart/decide.go"; printf 'package k' >"$2/pkg/kubelet/kubelet.go"; kill -INT $PPID; exit 1`)
			p.fails(t, env, []string{" is restored"}, "hack/patchset.sh", "apply")
			assert.Equal(t, before, p.snapshot(t, p.root))
		})
	}
}

// gitBefore makes a git that runs what is given first, at the first call with such arguments.
func gitBefore(t *testing.T, arguments, what string) []string {
	t.Helper()
	done := filepath.Join(t.TempDir(), "done")
	return gitAt(t, fmt.Sprintf("$* == %s && ! -e %q", arguments, done), fmt.Sprintf("touch %q\n  %s", done, what))
}

// gitAt makes a git that runs what is given first, if a condition of bash is true. $git is the real one.
func gitAt(t *testing.T, condition, what string) []string {
	t.Helper()
	dir := t.TempDir()
	write(dir, map[string]string{"git": fmt.Sprintf("#!/bin/bash\ngit=%q\nif [[ %s ]]; then\n  %s\nfi\nexec \"$git\" \"$@\"\n", mustLook(t, "git"), condition, what)})
	require.NoError(t, os.Chmod(filepath.Join(dir, "git"), 0o755))
	return []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
}

func mustLook(t *testing.T, tool string) string {
	t.Helper()
	path, err := exec.LookPath(tool)
	require.NoError(t, err)
	return path
}
