// SPDX-License-Identifier: Apache-2.0

package hack

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// project is a copy of this repository's scripts with a small library and series of its own.
type project struct {
	dir  string
	root string // KUBE_ROOT, if any
}

// long skips a test that takes more than ten seconds in make test, which passes -short.
func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("make test-all runs it")
	}
}

// newProject copies the shared project, fetched tree included.
func newProject(t *testing.T) project {
	t.Helper()
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a path with spaces", "kubelet-backoff")
	require.NoError(t, os.MkdirAll(filepath.Dir(dir), 0o755))
	out, err := exec.Command("cp", "-Rp", shared.project, dir).CombinedOutput()
	require.NoError(t, err, string(out))
	return project{dir: dir}
}

func (p project) tree() string {
	if p.root != "" {
		return p.root
	}
	return filepath.Join(p.dir, "_output", version, "kubernetes")
}

// goCache is the user's build cache, which builds in projects share.
var goCache = sync.OnceValue(func() string {
	cache, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		panic(err)
	}
	return strings.TrimSpace(string(cache))
})

func (p project) env(extra []string) []string {
	var env []string
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		switch {
		case strings.HasPrefix(name, "GIT_"), strings.HasPrefix(name, "GO"), strings.HasPrefix(name, "KUBE_"), strings.HasPrefix(name, "KB_"), strings.HasPrefix(name, "MAKE"),
			slices.Contains([]string{"HOME", "SERIES", "SKIP", "MFLAGS", "XDG_CONFIG_HOME"}, name):
		default:
			env = append(env, kv)
		}
	}
	env = append(env,
		"HOME="+shared.home,
		"GOCACHE="+goCache(),
		"GOMODCACHE="+filepath.Join(shared.dir, "modcache"),
		"GOPROXY=file://"+shared.proxy,
		"GOSUMDB=off",
		"GOTOOLCHAIN=local",
		"KB_PATCHSET="+shared.program,
		// These must not matter.
		"GOFLAGS=-mod=vendor -v",
		"OUTPUT_DIR="+shared.home,
		"PATCHES_DIR="+shared.home,
		"STREAM=1",
		"NO_CHECKOUT=1",
	)
	if p.root != "" {
		env = append(env, "KUBE_ROOT="+p.root)
	}
	return append(env, extra...)
}

func (p project) command(extra []string, name string, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	context.AfterFunc(ctx, cancel)
	if strings.HasPrefix(name, "hack/") {
		name = filepath.Join(p.dir, name)
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = p.dir
	cmd.Env = p.env(extra)
	return cmd
}

// try runs a script (or any command) in the project and returns all it says.
func (p project) try(extra []string, name string, args ...string) (string, error) {
	out, err := p.command(extra, name, args...).CombinedOutput()
	return string(out), err
}

func (p project) ok(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := p.try(nil, name, args...)
	require.NoError(t, err, "%s %v\n%s", name, args, out)
	return out
}

// fails runs a script that must fail and say every one of the words.
func (p project) fails(t *testing.T, extra []string, words []string, name string, args ...string) {
	t.Helper()
	out, err := p.try(extra, name, args...)
	require.Error(t, err, "%s %v\n%s", name, args, out)
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, out)
	for _, w := range words {
		require.Contains(t, out, w)
	}
}

// git runs git in dir as a user would, but without the settings.
func (p project) git(dir string, args ...string) string {
	cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=U", "-c", "user.email=u@example.com"}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_EDITOR=:")
	out, err := cmd.CombinedOutput()
	if err != nil {
		panic(fmt.Sprintf("git %v: %v\n%s", args, err, out))
	}
	return strings.TrimSpace(string(out))
}

func (p project) commit(tree, subject, author, depends string, files map[string]string) {
	write(tree, files)
	p.git(tree, "add", "-A", ".")
	p.git(tree, "commit", "-q", "--author", author, "--date", "2026-11-20T12:00:00+0100", "-m", subject,
		"-m", "Why it is so.\n\n--\nnot a signature: two dashes",
		"-m", "Series: core\nUpstream-Issue: 123602\nDiffers-From-Upstream: yes\nDepends-On: "+depends+"\nDrop-When: fixed upstream")
}

// clone makes a git clone of the stock tree, on a branch main, as KUBE_ROOT.
func (p project) clone(t *testing.T) project {
	t.Helper()
	root := filepath.Join(t.TempDir(), "my kubernetes")
	p.git(p.dir, "clone", "-q", p.tree(), root)
	p.git(root, "checkout", "-q", "-b", "main")
	p.root = root
	return p
}

// plain makes a source tree without git as KUBE_ROOT.
func (p project) plain(t *testing.T) project {
	t.Helper()
	p = p.clone(t)
	require.NoError(t, os.RemoveAll(filepath.Join(p.root, ".git")))
	return p
}

// worktree makes a worktree of a clone, on a branch second, as KUBE_ROOT.
func (p project) worktree(t *testing.T) project {
	t.Helper()
	p = p.clone(t)
	root := p.root + " 2"
	p.git(p.root, "worktree", "add", "-q", "-b", "second", root)
	p.root = root
	return p
}

// shallow makes a clone without the history of the stock tree.
func (p project) shallow(t *testing.T) project {
	t.Helper()
	p = p.clone(t)
	p.commit(p.root, "ours", "A <a@example.com>", "none", map[string]string{"ours.txt": "1"})
	root := p.root + " shallow"
	p.git(p.dir, "clone", "-q", "--depth=1", "file://"+p.root, root)
	p.git(root, "tag", "v1.37.1")
	p.root = root
	return p
}

// snapshot is everything about a tree: every file with its mode, and git's view of it.
func (p project) snapshot(t *testing.T, tree string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(tree, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(tree, path)
		if rel == ".git" {
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil // of a worktree
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		content := ""
		if info.Mode().IsRegular() {
			content = read(path)
		}
		fmt.Fprintf(&b, "%s %v %q\n", rel, info.Mode(), content)
		return nil
	})
	require.NoError(t, err)
	if _, err := os.Stat(filepath.Join(tree, ".git")); err == nil {
		head, _ := exec.Command("git", "-C", tree, "symbolic-ref", "-q", "HEAD").Output()
		fmt.Fprintln(&b, "HEAD", string(head), p.git(tree, "rev-parse", "HEAD"))
		fmt.Fprintln(&b, p.git(tree, "status", "--porcelain", "--ignored"))
		fmt.Fprintln(&b, p.git(tree, "for-each-ref"))
		fmt.Fprintln(&b, p.git(tree, "config", "--local", "--list"))
		fmt.Fprintln(&b, p.git(tree, "ls-files", "-s"))
	} else {
		fmt.Fprintln(&b, "no repository")
	}
	return b.String()
}

func (p project) series(t *testing.T, lines ...string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(p.dir, "patches/v1.37/series"), []byte(strings.Join(lines, "\n")+"\n"), 0o644))
}

func (p project) patches(t *testing.T) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(p.dir, "patches/v1.37/*.patch"))
	require.NoError(t, err)
	for i, n := range names {
		names[i] = filepath.Base(n)
	}
	return names
}

// number is the number that a patch has, as SKIP takes it.
func (p project) number(t *testing.T, name string) string {
	t.Helper()
	for _, file := range p.patches(t) {
		if number, ok := strings.CutSuffix(file, "-"+name+".patch"); ok {
			return strings.TrimLeft(number, "0")
		}
	}
	require.Fail(t, "no such patch", name)
	return ""
}

// patchBytes is the whole series directory.
func (p project) patchBytes(t *testing.T) string {
	t.Helper()
	return p.snapshot(t, filepath.Join(p.dir, "patches"))
}

// edit replaces old by new in a file, which must hold it.
func edit(t *testing.T, path, old, new string) {
	t.Helper()
	s := read(path)
	require.Contains(t, s, old, path)
	require.NoError(t, os.WriteFile(path, []byte(strings.Replace(s, old, new, 1)), 0o644))
}
