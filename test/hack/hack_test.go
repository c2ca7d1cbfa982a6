// SPDX-License-Identifier: Apache-2.0

// Package hack tests the scripts in hack/ and the Makefile.
package hack

import (
	"crypto/ed25519"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const branch = "kubelet-backoff-v1.37"

// kinds are the trees that KUBE_ROOT may name: a git clone, and sources without git.
var kinds = map[string]func(project, *testing.T) project{"clone": project.clone, "plain": project.plain}

// ---- fetch ----------------------------------------------------------------------------------------------------------

func TestFetch(t *testing.T) {
	p := newProject(t)
	first := p.git(p.tree(), "rev-parse", "HEAD")
	require.Contains(t, p.ok(t, "hack/patchset.sh", "fetch"), "already in")

	other := filepath.Join(t.TempDir(), "out put")
	out, err := p.try([]string{"KB_OUTPUT_DIR=" + other}, "hack/patchset.sh", "fetch", "1.37.1")
	require.NoError(t, err, out)
	tree := filepath.Join(other, version, "kubernetes")
	assert.Equal(t, first, p.git(tree, "rev-parse", "HEAD"), "two fetches make the same commit")
	assert.Equal(t, first, p.git(tree, "rev-parse", version))
	assert.Empty(t, p.git(tree, "status", "--porcelain", "--ignored"))
	assert.NoDirExists(t, filepath.Join(tree, "vendor"))
	assert.FileExists(t, filepath.Join(tree, "staging/src/k8s.io/client-go/util/flowcontrol/backoff.go"))
	assert.Equal(t, "one\r\ntwo\r\n", read(filepath.Join(tree, "pkg/kubelet/testdata/crlf.txt")))
	assert.Equal(t, "module k8s.io/sample-controller\n\ngo 1.22.0\n", read(filepath.Join(tree, "staging/src/k8s.io/sample-controller/go.mod")))
	assert.Contains(t, out, "sample-controller@v0.37.1 does not exist")
	assertNoScratch(t, other)
}

func TestFetchWrongVersion(t *testing.T) {
	p := newProject(t)
	p.fails(t, nil, []string{`"banana" is not a kubernetes release`, "v1.37.1"}, "hack/patchset.sh", "fetch", "banana")
	p.fails(t, nil, []string{"kubernetes v1.99.1 cannot be had", "k8s.io/kubernetes@v1.99.1", "KUBE_ROOT"}, "hack/patchset.sh", "fetch", "v1.99.1")
	assert.NoDirExists(t, filepath.Join(p.dir, "_output/v1.99.1"))
	assertNoScratch(t, filepath.Join(p.dir, "_output"))
}

// proxyServer serves the proxy directory over HTTP, but for what intercept answers itself.
func proxyServer(t *testing.T, intercept func(http.ResponseWriter, *http.Request) bool) string {
	files := http.FileServer(http.Dir(shared.proxy))
	return serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !intercept(w, r) {
			files.ServeHTTP(w, r)
		}
	}))
}

func serve(t *testing.T, h http.Handler) string {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func TestFetchZipOnly(t *testing.T) {
	p := newProject(t)
	url := proxyServer(t, func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasPrefix(r.URL.Path, "/k8s.io/client-go/") && !strings.HasSuffix(r.URL.Path, ".zip") {
			http.Error(w, "not available", http.StatusForbidden)
			return true
		}
		return false
	})
	other := t.TempDir()
	out, err := p.try([]string{"KB_OUTPUT_DIR=" + other, "GOPROXY=" + url + ",off", "GOMODCACHE=" + modcache(t)}, "hack/patchset.sh", "fetch", version)
	require.NoError(t, err, out)
	assert.Contains(t, out, "k8s.io/client-go@v0.37.1: only its zip was to be had")
	assert.Equal(t, p.git(p.tree(), "rev-parse", "HEAD"), p.git(filepath.Join(other, version, "kubernetes"), "rev-parse", "HEAD"))
}

func TestFetchBrokenProxy(t *testing.T) {
	p := newProject(t)
	url := proxyServer(t, func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasPrefix(r.URL.Path, "/k8s.io/client-go/") {
			http.Error(w, "try later", http.StatusBadGateway)
			return true
		}
		return false
	})
	other := t.TempDir()
	p.fails(t, []string{"KB_OUTPUT_DIR=" + other, "GOPROXY=" + url, "GOMODCACHE=" + modcache(t)},
		[]string{"k8s.io/client-go@v0.37.1 cannot be had", "502"}, "hack/patchset.sh", "fetch", version)
	assert.NoDirExists(t, filepath.Join(other, version))
	assertNoScratch(t, other)
}

// TestFetchChecksums: only what the checksum database says it does not have is taken unchecked.
func TestFetchChecksums(t *testing.T) {
	p := newProject(t)
	// A database of our own needs a key; nothing is ever signed with it.
	key := make([]byte, 1+ed25519.PublicKeySize)
	key[0] = 1 // the algorithm: Ed25519
	hash := sha256.Sum256(append([]byte("test\n"), key...))
	name := fmt.Sprintf("test+%x+%s", hash[:4], base64.StdEncoding.EncodeToString(key))
	for status, want := range map[int]string{
		http.StatusNotFound:           "NOT checked against the checksum database",
		http.StatusServiceUnavailable: "cannot be checked against the checksum database",
	} {
		db := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", status) }))
		t.Cleanup(db.Close)
		out, err := p.try([]string{"KB_OUTPUT_DIR=" + t.TempDir(), "GOMODCACHE=" + modcache(t), "GOSUMDB=" + name + " " + db.URL}, "hack/patchset.sh", "fetch", version)
		assert.Contains(t, out, want)
		assert.Equal(t, status == http.StatusNotFound, err == nil, out)
	}
}

func TestFetchInterrupted(t *testing.T) {
	p := newProject(t)
	reached, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	url := proxyServer(t, func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/client-go/@v/v0.37.1.zip") {
			once.Do(func() { close(reached) })
			<-release
		}
		return false
	})
	other, cache := t.TempDir(), modcache(t)
	env := []string{"KB_OUTPUT_DIR=" + other, "GOPROXY=" + url, "GOMODCACHE=" + cache}
	cmd := p.command(env, "hack/patchset.sh", "fetch", version)
	require.NoError(t, cmd.Start())
	<-reached
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	err := cmd.Wait()
	require.Error(t, err)
	assert.NoDirExists(t, filepath.Join(other, version))
	assertNoScratch(t, other)

	// Killed without a chance to clean up: the next run does it.
	cmd = p.command(env, "hack/patchset.sh", "fetch", version)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, cmd.Start())
	require.Eventually(t, func() bool { return len(scratch(t, other)) > 0 }, patience, 10*time.Millisecond)
	require.NoError(t, syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL))
	_ = cmd.Wait()
	assert.NoDirExists(t, filepath.Join(other, version))
	close(release)
	out, err := p.try(env, "hack/patchset.sh", "fetch", version)
	require.NoError(t, err, out)
	assert.FileExists(t, filepath.Join(other, version, "kubernetes/go.mod"))
	assertNoScratch(t, other)
}

func scratch(t *testing.T, dir string) []string {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(dir, ".scratch.*"))
	require.NoError(t, err)
	return left
}

func assertNoScratch(t *testing.T, dir string) {
	t.Helper()
	assert.Empty(t, scratch(t, dir), "nothing half done is left")
}

// modcache is a module cache of its own, which can be removed afterwards.
func modcache(t *testing.T) string {
	dir, err := os.MkdirTemp(shared.dir, "modcache-")
	require.NoError(t, err)
	return dir
}

// ---- apply and reverse ----------------------------------------------------------------------------------------------

// TestRoundTrip applies to and reverses from every kind of tree.
func TestRoundTrip(t *testing.T) {
	for name, prepare := range map[string]func(*testing.T, project) project{
		"fetched":      func(_ *testing.T, p project) project { return p },
		"clone":        func(t *testing.T, p project) project { return p.clone(t) },
		"plain source": func(t *testing.T, p project) project { return p.plain(t) },
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
			assert.Contains(t, p.ok(t, "hack/patchset.sh", "reverse"), "Nothing to take back")
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
			p.fails(t, nil, []string{"in " + p.root + " already", "pkg/kubelet/restart/decide.go"}, "hack/patchset.sh", "apply")
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
		p.fails(t, []string{"KUBE_VERSION=v1.36.1"}, []string{"says of itself that it is kubernetes 1.37", "v1.36.1"}, "hack/patchset.sh", "apply")
	})
	t.Run("plain tree of unknown release", func(t *testing.T) {
		p := newProject(t).plain(t)
		write(p.root, map[string]string{"staging/src/k8s.io/client-go/go.mod": "module k8s.io/client-go\n\ngo 1.22.0\n\nrequire k8s.io/api v0.0.0\n"})
		require.NoError(t, os.Remove(filepath.Join(p.root, "staging/src/k8s.io/component-base/version/base.go")))
		before := p.snapshot(t, p.root)
		p.fails(t, nil, []string{"cannot tell which kubernetes release", "KUBE_VERSION="}, "hack/patchset.sh", "apply")
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
	assert.Contains(t, out, "nearest one before it is v1.37.1-acme.3, so it is taken for v1.37.1")
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
			p.fails(t, nil, []string{p.patches(t)[1] + " does not apply to kubernetes v1.37.1", "pkg/kubelet/kubelet.go: the hunk at line ", "as it was before",
				"v1.37: made on v1.37.1"}, "hack/patchset.sh", "apply")
			assert.Equal(t, before, p.snapshot(t, p.root))
		})
	}
}

// gitThat makes a git that, at its nth `am`, runs what is given first.
func gitThat(t *testing.T, n int, what string) []string {
	t.Helper()
	real, err := exec.LookPath("git")
	require.NoError(t, err)
	dir := t.TempDir()
	write(dir, map[string]string{"git": fmt.Sprintf("#!/bin/bash\nif [[ $3 == am && $4 == -q ]]; then\n  echo x >>%q\n  if (($(wc -l <%q) == %d)); then\n    %s\n  fi\nfi\nexec %q \"$@\"\n",
		dir+"/count", dir+"/count", n, what, real)})
	require.NoError(t, os.Chmod(filepath.Join(dir, "git"), 0o755))
	return []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
}

func TestApplyInterrupted(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			p := kind(newProject(t), t)
			before := p.snapshot(t, p.root)
			// Ctrl-C in the middle of an am that has already written a new file.
			env := gitThat(t, 2, `mkdir -p "$2/pkg/kubelet/restart"; echo half >"$2/pkg/kubelet/restart/decide.go"; echo half >"$2/pkg/kubelet/kubelet.go"; kill -INT $PPID; exit 1`)
			p.fails(t, env, []string{"as it was before"}, "hack/patchset.sh", "apply")
			assert.Equal(t, before, p.snapshot(t, p.root))
		})
	}
}

func TestHalfApplied(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			p := kind(newProject(t), t)
			before := p.snapshot(t, p.root)
			env := gitThat(t, 3, `kill -KILL $PPID; exit 1`)
			out, err := p.try(env, "hack/patchset.sh", "apply")
			require.Error(t, err, out)
			p.fails(t, nil, []string{"half-applied series", "2 of 3 patches", "client-go: rules", "make reverse"}, "hack/patchset.sh", "apply")
			p.fails(t, nil, []string{"only part of the series"}, "hack/patchset.sh", "refresh")
			p.fails(t, nil, []string{"only part of the series"}, "hack/build.sh")
			p.ok(t, "hack/patchset.sh", "reverse")
			assert.Equal(t, before, p.snapshot(t, p.root))
		})
	}
	t.Run("with a git am left behind", func(t *testing.T) {
		p := newProject(t).clone(t)
		before := p.snapshot(t, p.root)
		// A mail that does not apply makes git am stop in the middle.
		env := gitThat(t, 3, `sed -i 's/return true/return maybe/' "${@: -1}"; "`+mustLook(t, "git")+`" "$@"; kill -KILL $PPID; exit 1`)
		out, err := p.try(env, "hack/patchset.sh", "apply")
		require.Error(t, err, out)
		require.DirExists(t, filepath.Join(p.root, ".git/rebase-apply"))
		p.fails(t, nil, []string{"half-applied series"}, "hack/patchset.sh", "apply")
		p.ok(t, "hack/patchset.sh", "reverse")
		assert.Equal(t, before, p.snapshot(t, p.root))
	})
}

// gitBefore makes a git that runs what is given first, at the first call with such arguments.
func gitBefore(t *testing.T, arguments, what string) []string {
	t.Helper()
	dir := t.TempDir()
	write(dir, map[string]string{"git": fmt.Sprintf("#!/bin/bash\nif [[ $* == %s && ! -e %q ]]; then\n  touch %q\n  %s\nfi\nexec %q \"$@\"\n",
		arguments, dir+"/done", dir+"/done", what, mustLook(t, "git"))})
	require.NoError(t, os.Chmod(filepath.Join(dir, "git"), 0o755))
	return []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
}

// TestApplyKilled: reverse undoes an apply that was killed early.
func TestApplyKilled(t *testing.T) {
	for arguments, kinds := range map[string][]func(project, *testing.T) project{
		"*\\ add\\ *":       {project.plain},
		"*\\ commit\\ -q*":  {project.plain},
		"*\\ rev-parse\\ *": {project.plain},
		"*base\\ *":         {project.plain, project.clone},
		"*origin\\ *":       {project.plain, project.clone},
		"*\\ checkout\\ *":  {project.plain, project.clone},
	} {
		for _, kind := range kinds {
			t.Run(arguments, func(t *testing.T) {
				p := kind(newProject(t), t)
				before := p.snapshot(t, p.root)
				out, err := p.try(gitBefore(t, arguments, "kill -KILL $PPID; exit 1"), "hack/patchset.sh", "apply")
				require.Error(t, err, out)
				p.ok(t, "hack/patchset.sh", "reverse")
				assert.Equal(t, before, p.snapshot(t, p.root))
				p.ok(t, "hack/patchset.sh", "apply")
				p.ok(t, "hack/patchset.sh", "reverse")
				assert.Equal(t, before, p.snapshot(t, p.root))
			})
		}
	}
	t.Run("at the very beginning of a git am", func(t *testing.T) {
		p := newProject(t).clone(t)
		before := p.snapshot(t, p.root)
		out, err := p.try(gitThat(t, 2, `mkdir "$2/.git/rebase-apply"; kill -KILL $PPID; exit 1`), "hack/patchset.sh", "apply")
		require.Error(t, err, out)
		p.ok(t, "hack/patchset.sh", "reverse")
		assert.Equal(t, before, p.snapshot(t, p.root))
	})
}

func mustLook(t *testing.T, tool string) string {
	t.Helper()
	path, err := exec.LookPath(tool)
	require.NoError(t, err)
	return path
}

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
		p.fails(t, nil, []string{"applied with SKIP"}, "hack/patchset.sh", "refresh")
		p.ok(t, "hack/patchset.sh", "reverse")
		out, err = p.try([]string{"SKIP=" + three}, "make", "apply")
		require.NoError(t, err, out)
		assert.Contains(t, out, "2 commits")
		p.ok(t, "make", "reverse")
		assert.Contains(t, p.ok(t, "make", "apply", "SKIP="+two+" 000"+three), "1 commits")
		p.ok(t, "make", "reverse")
		assert.Contains(t, p.ok(t, "make", "apply", "SKIP=kubelet-not-late "+second), "1 commits")
		p.ok(t, "make", "reverse")
		for _, skip := range []string{"three", "99", "0", three + " 99 x"} {
			p.fails(t, []string{"SKIP=" + skip}, []string{fmt.Sprintf("SKIP=%q: v1.37 has no patch ", skip), "There are:", one + " client-go-rules", three + " kubelet-not-late"},
				"hack/patchset.sh", "apply")
		}
	})
}

// TestFullDisk: where git cannot write, the patch is not said to be at fault.
func TestFullDisk(t *testing.T) {
	for name, arguments := range map[string]string{"in the rehearsal": "*\\ apply\\ --cached*", "in the tree": "*\\ am\\ -q*"} {
		t.Run(name, func(t *testing.T) {
			p := newProject(t).clone(t)
			before := p.snapshot(t, p.root)
			full := `echo "error: patch failed: pkg/kubelet/kubelet.go:1" >&2; echo "error: unable to create temporary file: No space left on device" >&2; exit 128`
			out, err := p.try(gitBefore(t, arguments, full), "hack/patchset.sh", "apply")
			require.Error(t, err, out)
			assert.Contains(t, out, p.patches(t)[0]+" cannot be applied")
			assert.Contains(t, out, "No space left on device")
			assert.NotContains(t, out, "does not")
			assert.Equal(t, before, p.snapshot(t, p.root))
		})
	}
}

// TestCheckout: nothing is removed but what the command made itself.
func TestCheckout(t *testing.T) {
	p := newProject(t)
	p.ok(t, "hack/patchset.sh", "apply")
	before := p.snapshot(t, p.tree())
	p.fails(t, nil, []string{p.tree() + " is there already", "Move it away"}, "hack/patchset.sh", "checkout", p.tree())
	assert.Equal(t, before, p.snapshot(t, p.tree()))
	dir := filepath.Join(t.TempDir(), "stock")
	write(dir, map[string]string{"mine.txt": "1"})
	p.fails(t, nil, []string{dir + " is there already"}, "hack/patchset.sh", "checkout", dir)
	assert.FileExists(t, filepath.Join(dir, "mine.txt"))
	p.git(dir, "init", "-q")
	p.fails(t, nil, []string{dir + " is there already"}, "hack/patchset.sh", "checkout", dir)

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
	assert.Contains(t, p.ok(t, "hack/patchset.sh", "apply"), "taking it back first")
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
	assert.Contains(t, p.ok(t, "hack/patchset.sh", "apply", "--keep"), "used as it is")
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

// ---- refresh, travel, verify ----------------------------------------------------------------------------------------

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
	write(p.dir, map[string]string{"backoff/more.go": "package backoff\n\nconst more = 1\n", "apis/doc.go": "package apis\n\n// Ours.\n"})
	edit(t, filepath.Join(p.dir, "hack/travel.txt"), "# comment\n", "# comment\n"+second+" apis staging/src/k8s.io/api replaces=doc.go:2020 doc.go\n")
	before := p.snapshot(t, p.root)
	p.fails(t, nil, []string{"backoff/more.go -> staging/", "backoff/rules.go -> staging/", "+++ staging/", "apis/doc.go -> staging/", "make refresh"},
		"hack/patchset.sh", "refresh", "--check")
	assert.Equal(t, before, p.snapshot(t, p.root))
	out := p.ok(t, "hack/patchset.sh", "refresh")
	assert.Contains(t, out, "backoff/rules.go -> staging/")
	assert.NotContains(t, out, ".patch")
	assert.Contains(t, read(filepath.Join(p.root, "staging/src/k8s.io/client-go/util/flowcontrol/rules.go")), "return 2")
	assert.Equal(t, "package flowcontrol\n\nconst more = 1\n", read(filepath.Join(p.root, "staging/src/k8s.io/client-go/util/flowcontrol/more.go")))
	assert.Empty(t, p.git(p.root, "status", "--porcelain"))
	assert.Contains(t, p.git(p.root, "show", "--stat", "HEAD~2"), "more.go")
	assert.NotContains(t, p.git(p.root, "show", "--stat", "HEAD~2"), "doc.go")
	assert.Equal(t, "package api\n\n// Ours.\n", p.git(p.root, "show", "HEAD~1:staging/src/k8s.io/api/doc.go")+"\n", "a file of the release is replaced")
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
	t.Run("a travelling file edited on both sides", func(t *testing.T) {
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

func TestTravelRender(t *testing.T) {
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
	p.fails(t, nil, []string{"imports config, which does not travel"}, "hack/patchset.sh", "render", "kuberuntime/decide.go")
	for line, want := range map[string]string{
		"a backoff":                    "expected \"PATCH",
		"a backoff to rules":           `"rules" is not a pattern`,
		"a backoff to [.go":            `"[.go" is not a pattern`,
		"a backoff to replaces=x *.go": "must be replaces=FILE.go:YEAR",
	} {
		write(p.dir, map[string]string{"hack/travel.txt": "# comment\n" + line + "\n"})
		p.fails(t, nil, []string{"travel.txt line 2", want}, "hack/patchset.sh", "render", "backoff/rules.go")
	}
}

// newFile is a diff that creates a file.
func newFile(path string) string {
	return "diff --git a/" + path + " b/" + path + "\nnew file mode 100644\n--- /dev/null\n+++ b/" + path + "\n@@ -0,0 +1 @@\n+package x\n"
}

func TestVerify(t *testing.T) {
	t.Run("in order", func(t *testing.T) {
		p := newProject(t).clone(t)
		before := p.snapshot(t, p.root)
		out := p.ok(t, "hack/patchset.sh", "verify")
		for _, word := range []string{"3 patch files are well-formed", "change nothing but files of the release", "gives the stored bytes",
			"3 patches apply, and make the trees that their sources make", "apply makes the same trees",
			"restores the tree", "go vet: ./cmd/kubelet ./pkg/kubelet ./pkg/kubelet/restart", "kubelet and kube-apiserver build", "is in order"} {
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
		"bytes":       {2, "Subject: [PATCH] ", "Subject: [PATCH 3/3] ", []string{"is not what formatting its commit gives", "make refresh"}},
		"library":     {2, "diff --git ", newFile("pkg/kubelet/restart/decide.go") + "diff --git ", []string{"pkg/kubelet/restart/decide.go: the patch creates it, but it exists"}},
		"travel":      {0, "diff --git ", newFile("staging/src/k8s.io/client-go/util/flowcontrol/rules.go") + "diff --git ", []string{"0001-client-go-rules.patch changes staging/", "backoff/rules.go is that file"}},
		"new file":    {2, "diff --git ", newFile("pkg/kubelet/new.go") + "diff --git ", []string{"has a hunk in pkg/kubelet/new.go, which is no file of the release", "patches/_src/kubelet-not-late"}},
		"build":       {2, "+\treturn false", "+\treturn 7", []string{"go vet fails after 0003", "kubelet.go"}},
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
		p.fails(t, nil, []string{"patches/_src/nobody is for a patch \"nobody\", which is not there"}, "hack/patchset.sh", "verify", "--no-build")
	})
}

// ---- build and test -------------------------------------------------------------------------------------------------

func TestBuild(t *testing.T) {
	p := newProject(t)
	p.fails(t, nil, []string{"not applied", "make apply"}, "hack/build.sh")
	p.ok(t, "make", "kubelet")
	binary := filepath.Join(p.dir, "_output", version, "kubelet")
	out := p.ok(t, binary)
	assert.Equal(t, "Kubernetes v1.37.1+kubelet-backoff 1 37 clean\npatched 1\n", out)
	info, err := os.Stat(binary)
	require.NoError(t, err)
	p.ok(t, "make", "kubelet")
	again, err := os.Stat(binary)
	require.NoError(t, err)
	assert.True(t, os.SameFile(info, again), "a second build has nothing to do")

	before := p.snapshot(t, p.tree())
	p.ok(t, "hack/build.sh", "--stock", "kubelet", "kube-apiserver")
	assert.Equal(t, before, p.snapshot(t, p.tree()), "a stock build leaves the patched tree alone")
	assert.Equal(t, "Kubernetes v1.37.1 1 37 clean\nstock\n", p.ok(t, filepath.Join(p.dir, "_output", version, "stock/kubelet")))
	assert.Equal(t, "Kubernetes v1.37.1 1 37 clean\n", p.ok(t, filepath.Join(p.dir, "_output", version, "stock/kube-apiserver")))

	p.fails(t, nil, []string{"no cmd/kubectl"}, "hack/build.sh", "kubectl")
	p.fails(t, nil, []string{"crashloop/dobackoff.go does not say \"backoff.NewBackOff("}, "hack/build.sh", "kubelet-jittered")
	p.fails(t, nil, []string{"no cmd/kubelet-jittered"}, "hack/build.sh", "--stock", "kubelet-jittered")
	edit(t, filepath.Join(p.tree(), "pkg/kubelet/kubelet.go"), "return false", "return 5")
	p.fails(t, nil, []string{"does not build", "kubelet.go:"}, "hack/build.sh")
	assert.Contains(t, p.ok(t, "hack/patchset.sh", "clean"), "kept, because it has changes")
	p.git(p.tree(), "checkout", "-q", ".")
	p.ok(t, "make", "clean")
	assert.NoDirExists(t, filepath.Join(p.dir, "_output"))
}

func TestBuildKubeRoot(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			p := kind(newProject(t), t)
			before := p.snapshot(t, p.root)
			p.ok(t, "hack/build.sh", "--stock")
			assert.Equal(t, before, p.snapshot(t, p.root))
			p.ok(t, "make", "kubelet")
			assert.Contains(t, p.ok(t, filepath.Join(p.dir, "_output", version, "kubelet")), "patched 1")
			p.ok(t, "hack/build.sh", "--stock")
			assert.Contains(t, p.ok(t, filepath.Join(p.dir, "_output", version, "stock/kubelet")), "stock\n")
			p.ok(t, "make", "reverse")
			assert.Equal(t, before, p.snapshot(t, p.root))
		})
	}
}

// TestBuildGoSettings: what `go env -w` wrote must not matter either.
func TestBuildGoSettings(t *testing.T) {
	p := newProject(t)
	settings := filepath.Join(t.TempDir(), "env")
	write(filepath.Dir(settings), map[string]string{"env": "GOFLAGS=-mod=vendor\nGOWORK=off\nGO111MODULE=off\nCGO_ENABLED=1\n"})
	env := []string{"GOFLAGS=", "GOENV=" + settings}
	out, err := p.try(append(env, "KB_OUTPUT_DIR="+t.TempDir(), "GOMODCACHE="+modcache(t)), "hack/patchset.sh", "fetch", version)
	require.NoError(t, err, out)
	out, err = p.try(env, "make", "kubelet")
	require.NoError(t, err, out)
	info, err := buildinfo.ReadFile(filepath.Join(p.dir, "_output", version, "kubelet"))
	require.NoError(t, err)
	assert.Contains(t, info.Settings, debug.BuildSetting{Key: "CGO_ENABLED", Value: "0"})
	assert.Contains(t, info.Settings, debug.BuildSetting{Key: "-trimpath", Value: "true"})
}

// TestBuildGoTooOld: nothing is switched in a checkout that cannot be built.
func TestBuildGoTooOld(t *testing.T) {
	p := newProject(t).clone(t)
	edit(t, filepath.Join(p.root, "go.work"), "go 1.22.0", "go 1.999.0")
	p.git(p.root, "commit", "-q", "-a", "-m", "x")
	before := p.snapshot(t, p.root)
	p.fails(t, nil, []string{"cannot build " + p.root, "1.999.0"}, "make", "kubelet")
	assert.Equal(t, before, p.snapshot(t, p.root))
}

func TestBuildInterrupted(t *testing.T) {
	p := newProject(t)
	p.ok(t, "hack/patchset.sh", "apply")
	before := p.snapshot(t, p.tree())
	for _, script := range []string{"build", "verify", "test-patched"} {
		bin := t.TempDir()
		started := filepath.Join(bin, "started")
		write(bin, map[string]string{"go": "#!/bin/bash\n[[ $1 != list ]] || exit 0\necho >go.work.sum\nsleep 3600 &\necho $! >" + started + "\nwait\n"})
		require.NoError(t, os.Chmod(filepath.Join(bin, "go"), 0o755))
		cmd := p.script([]string{"PATH=" + bin + ":" + os.Getenv("PATH")}, script)
		require.NoError(t, cmd.Start())
		require.Eventually(t, func() bool {
			pid, err := os.ReadFile(started)
			return err == nil && strings.HasSuffix(string(pid), "\n")
		}, patience, 10*time.Millisecond)
		require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
		err := cmd.Wait()
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit)
		assert.Equal(t, 130, exit.ExitCode(), script)
		var sleeper int
		_, err = fmt.Sscan(read(started), &sleeper)
		require.NoError(t, err)
		assert.Eventually(t, func() bool { return syscall.Kill(sleeper, 0) != nil }, patience, 10*time.Millisecond, "%s leaves no process", script)
		assertNoScratch(t, filepath.Join(p.dir, "_output"))
		assert.Equal(t, before, p.snapshot(t, p.tree()), script)
	}
}

// script is a script in hack/, or the program with that command.
func (p project) script(env []string, name string, args ...string) *exec.Cmd {
	if name == "build" || name == "test-patched" {
		return p.command(env, "hack/"+name+".sh", args...)
	}
	return p.command(env, "hack/patchset.sh", append([]string{name}, args...)...)
}

func TestTestPatched(t *testing.T) {
	p := newProject(t)
	out := p.ok(t, "make", "test-patched")
	for _, word := range []string{"k8s.io/client-go/util/flowcontrol", "ok  \tk8s.io/kubernetes/pkg/kubelet\t",
		"ok  \tk8s.io/kubernetes/pkg/kubelet/restart\t", "All 3 packages pass"} {
		assert.Contains(t, out, word)
	}
	edit(t, filepath.Join(p.tree(), "pkg/kubelet/kubelet_test.go"), `Describe() == ""`, `Describe() != ""`)
	p.fails(t, nil, []string{"FAIL: TestDescribe", "tests fail in the patched tree"}, "hack/test-patched.sh")
}

// ---- make and missing tools -----------------------------------------------------------------------------------------

func TestMake(t *testing.T) {
	p := newProject(t)
	out := p.ok(t, "make")
	for _, target := range []string{"help", "kubelet", "test", "test-patched", "test-kubelet", "verify", "bench", "node-timing", "apply", "reverse", "refresh", "series", "stat", "dist", "fetch", "fuzz", "lint", "clean"} {
		assert.Regexp(t, `(?m)^  `+target+` +[a-z]`, out)
	}
	assert.Contains(t, out, "now: v1.37.1")
	p.ok(t, "make", "-n", "kubelet", "test-patched", "test-kubelet", "bench", "fuzz", "node-timing")
}

// fake makes a directory of programs for PATH.
func fake(t *testing.T, programs map[string]string) []string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range programs {
		write(dir, map[string]string{name: "#!/bin/bash\n" + text})
		require.NoError(t, os.Chmod(filepath.Join(dir, name), 0o755))
	}
	return []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
}

// TestLint: every module with packages is checked, each in its own folder.
func TestLint(t *testing.T) {
	p := newProject(t)
	log := filepath.Join(t.TempDir(), "log")
	staticcheck := filepath.Join(t.TempDir(), "static check")
	write(filepath.Dir(staticcheck), map[string]string{"static check": fmt.Sprintf("#!/bin/bash\necho \"$PWD staticcheck $*\" >>%q\n[[ ! -e wrong ]]\n", log)})
	require.NoError(t, os.Chmod(staticcheck, 0o755))
	env := fake(t, map[string]string{"gofmt": "", "shellcheck": "", "go": fmt.Sprintf(`case "$*" in
list*) [[ ! -e main.go ]] || echo x ;;
*" -n staticcheck") echo %q ;;
vet*) echo "$PWD $*" >>%q ;;
esac
`, staticcheck, log)})
	write(p.dir, map[string]string{"test/node/go.mod": "", "test/node/main.go": "", "examples/an agent/go.mod": "", "examples/an agent/main.go": "", "hack/tools/go.mod": "", "_output/tree/go.mod": "", "_output/tree/main.go": ""})
	out, err := p.try(env, "hack/lint.sh")
	require.NoError(t, err, out)
	said := read(log)
	for _, dir := range []string{"test/node", "examples/an agent"} {
		for _, tool := range []string{"vet", "staticcheck"} {
			assert.Contains(t, said, filepath.Join(p.dir, dir)+" "+tool+" ./...\n")
		}
	}
	assert.NotContains(t, said, "hack/tools", "a module without packages")
	assert.NotContains(t, said, "_output")
	write(p.dir, map[string]string{"test/node/wrong": ""})
	out, err = p.try(env, "hack/lint.sh")
	require.Error(t, err, out)
}

// TestScenario: whether there is such a scenario is known before anything is built.
func TestScenario(t *testing.T) {
	p := newProject(t)
	write(p.dir, map[string]string{"test/node/e2e/x_test.go": "package e2e\n\nvar podScenarios = []scenario{\n\t{\"Deleted\", nil},\n}\n\n" +
		"var gateDisruptions = []scenario{\n\t{\"GateOff\", nil},\n}\n\nvar crashloopScenarios = []scenario{\n\t{\"Killed\", nil},\n}\n"})
	env := fake(t, map[string]string{"id": "echo 1000"}) // so that it ends after the check
	for scenario, test := range map[string]string{
		"Delted": "TestNode", "^eleted": "TestNode", "Pods/GateOff": "TestNode", "Disruptions/Deleted": "TestNode", "Killed": "TestNode", "Nothing/Deleted": "TestNode",
		"CrashloopRun/Deleted": "TestCrashloopRun", "CrashloopRun/Disruptions/Killed": "TestCrashloopRun",
	} {
		p.fails(t, env, []string{"no scenario of " + test + " matches", "There are:", "Pods/"}, "make", "node-e2e", "SCENARIO="+scenario)
	}
	for _, scenario := range []string{
		"", "Upstream", "Pods", "Disruptions", "Deleted", "^Del", "Deleted|Nothing", "Pods/Deleted", "Pods/Deleted/below", "Disruptions/Gate", "CrashloopRun", "CrashloopRun/Killed", "CrashloopRun/Pods/Kil",
	} {
		p.fails(t, env, []string{"node-e2e needs root"}, "make", "node-e2e", "SCENARIO="+scenario)
	}
}

func TestMissingTools(t *testing.T) {
	p := newProject(t)
	for _, tool := range []string{"git", "go"} {
		dir := t.TempDir()
		for _, from := range []string{"/usr/bin", "/bin"} {
			entries, _ := os.ReadDir(from)
			for _, e := range entries {
				if e.Name() != tool && e.Name() != "go" {
					_ = os.Symlink(filepath.Join(from, e.Name()), filepath.Join(dir, e.Name()))
				}
			}
		}
		if tool == "git" {
			require.NoError(t, os.Symlink(mustLook(t, "go"), filepath.Join(dir, "go")))
		}
		for _, script := range map[string][]string{"git": {"apply", "reverse", "refresh", "verify", "fetch", "build", "test-patched"}, "go": {"fetch", "verify", "build", "test-patched"}}[tool] {
			args := []string{}
			if script == "fetch" {
				args = append(args, "v1.37.2")
			}
			cmd := p.script([]string{"PATH=" + dir}, script, args...)
			out, err := cmd.CombinedOutput()
			require.Error(t, err, script)
			require.Contains(t, string(out), "missing on PATH: "+tool, script)
		}
		if tool == "go" {
			before := p.snapshot(t, p.tree())
			p.fails(t, []string{"PATH=" + dir}, []string{"missing on PATH: go"}, "make", "node-timing")
			p.fails(t, []string{"PATH=" + dir}, []string{"missing on PATH: go"}, "make", "kubelet")
			assert.Equal(t, before, p.snapshot(t, p.tree()), "nothing is applied")
		}
	}
}

func TestScriptsSayWhatTheyAre(t *testing.T) {
	p := newProject(t)
	scripts, err := filepath.Glob(filepath.Join(p.dir, "hack/*.sh"))
	require.NoError(t, err)
	for _, s := range scripts {
		text := read(s)
		assert.True(t, strings.HasPrefix(text, "#!/usr/bin/env bash\n# SPDX-License-Identifier: Apache-2.0\n#\n"), s)
	}
	assert.Contains(t, p.ok(t, "hack/patchset.sh", "apply", "--help"), "SKIP=")
}
