// SPDX-License-Identifier: Apache-2.0

package hack

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestExport: git am knows nothing of this repository, and makes the same trees.
func TestExport(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			p := kind(newProject(t), t)
			write(p.dir, map[string]string{src("pkg/kubelet/ours.go"): "package kubelet\n", "_output/series/v1.37/0009-old.patch": "old"})
			before := p.snapshot(t, p.root)
			assert.Contains(t, p.ok(t, "make", "series"), "3 mails")
			assert.Equal(t, before, p.snapshot(t, p.root))
			mails, err := filepath.Glob(filepath.Join(p.dir, "_output/series/v1.37/*"))
			require.NoError(t, err)
			require.Len(t, mails, 3)
			for _, m := range mails {
				text := read(m)
				assert.True(t, strings.HasPrefix(text, "From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001\nFrom: "), m)
				assert.Contains(t, text, "\nDrop-When: fixed upstream\n\ndiff --git ")
				assert.NotContains(t, text, "Signed-off-by")
			}
			assert.Contains(t, read(mails[1]), "+++ b/pkg/kubelet/ours.go")

			other := newProjectTree(t, p)
			p.git(other, append([]string{"am", "-q"}, mails...)...)
			p.root = other + "-2"
			p.git(filepath.Dir(other), "clone", "-q", "--branch", "stock", other, p.root)
			out, err := p.try([]string{"KUBE_VERSION=" + version}, "hack/patchset.sh", "apply")
			require.NoError(t, err, out)
			for _, rev := range []string{"HEAD~2", "HEAD~1", "HEAD"} {
				assert.Equal(t, p.git(other, "rev-parse", rev+"^{tree}"), p.git(p.root, "rev-parse", rev+"^{tree}"))
			}
		})
	}
}

// TestBrackets: the name of a directory is no pattern.
func TestBrackets(t *testing.T) {
	p := newProject(t).clone(t)
	dir := filepath.Join(t.TempDir(), "a [b] c")
	require.NoError(t, os.Rename(p.dir, dir))
	p.dir = dir
	write(p.dir, map[string]string{"_output/series/v1.37/0009-old.patch": "old"})
	assert.Contains(t, p.ok(t, "hack/patchset.sh", "apply"), "3 commits")
	assert.Contains(t, p.ok(t, "hack/patchset.sh", "refresh"), "Nothing to refresh")
	assert.Contains(t, p.ok(t, "make", "series"), "3 mails")
	assert.NoFileExists(t, filepath.Join(p.dir, "_output/series/v1.37/0009-old.patch"))
	assert.Contains(t, p.ok(t, "hack/patchset.sh", "verify", "--no-build"), "is in order")
	p.ok(t, "hack/patchset.sh", "reverse")
}

// newProjectTree is a clone of the fetched tree that has nothing to do with the project, with a branch "stock".
func newProjectTree(t *testing.T, p project) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "tree")
	p.git(p.dir, "clone", "-q", filepath.Join(p.dir, "_output", version, "kubernetes"), dir)
	p.git(dir, "checkout", "-q", "-b", "stock")
	p.git(dir, "checkout", "-q", "-b", "work")
	p.git(dir, "config", "user.name", "U")
	p.git(dir, "config", "user.email", "u@example.com")
	return dir
}

// TestDist: the archive is the same to the byte wherever and whenever it is made.
func TestDist(t *testing.T) {
	p := newProject(t)
	p.fails(t, nil, []string{"is not a git checkout"}, "make", "dist")
	write(p.dir, map[string]string{".gitignore": "/_output/\n"})
	p.git(p.dir, "init", "-q")
	require.NoError(t, os.Symlink("backoff/rules.go", filepath.Join(p.dir, "link.go")))
	p.git(p.dir, "add", "-A", ".")
	p.git(p.dir, "commit", "-q", "-m", "all")
	for _, tag := range []string{"agent/v0.1.0", "crashloop/v0.1.0", "v0.1.0"} {
		p.git(p.dir, "tag", tag)
	}
	p.ok(t, "make", "dist")
	first := read(filepath.Join(p.dir, "_output/dist/kubelet-backoff-v0.1.0.tar.gz"))
	sums := read(filepath.Join(p.dir, "_output/dist/SHA256SUMS"))

	q := p
	q.dir = filepath.Join(t.TempDir(), "elsewhere")
	p.git(p.dir, "clone", "-q", p.dir, q.dir)
	time.Sleep(1100 * time.Millisecond) // timestamps are in seconds
	out, err := q.try([]string{"TZ=Asia/Tokyo", "SKIP=" + p.number(t, "kubelet-not-late"), "KUBE_VERSION=v1.37.2"}, "bash", "-c", "umask 077 && make dist")
	require.NoError(t, err, out)
	assert.Equal(t, sums, read(filepath.Join(q.dir, "_output/dist/SHA256SUMS")))
	assert.True(t, first == read(filepath.Join(q.dir, "_output/dist/kubelet-backoff-v0.1.0.tar.gz")))

	at := t.TempDir()
	unpack := exec.Command("tar", "xzf", filepath.Join(p.dir, "_output/dist/kubelet-backoff-v0.1.0.tar.gz"))
	unpack.Dir = at
	said, err := unpack.CombinedOutput()
	require.NoError(t, err, string(said))
	check := exec.Command("sha256sum", "--quiet", "-c", "SHA256SUMS")
	check.Dir = filepath.Join(at, "kubelet-backoff-v0.1.0")
	said, err = check.CombinedOutput()
	require.NoError(t, err, string(said))
	assert.Equal(t, read(filepath.Join(check.Dir, "backoff/rules.go")), read(filepath.Join(check.Dir, "link.go")))
	assert.Contains(t, read(filepath.Join(check.Dir, "series/v1.37/"+p.patches(t)[0])), "+func Rule() int")
	info, err := os.Stat(filepath.Join(check.Dir, "hack/patchset.sh"))
	require.NoError(t, err)
	assert.NotZero(t, info.Mode()&0o100)

	write(p.dir, map[string]string{"new.txt": "1"})
	p.fails(t, nil, []string{"not committed", "new.txt"}, "make", "dist")
}

// TestStat: the table in docs/patches.md is what the command prints.
func TestStat(t *testing.T) {
	p := newProject(t)
	out := p.ok(t, "make", "stat")
	for _, row := range []string{
		"| 1 client-go-rules | staging/src/k8s.io/client-go/util/flowcontrol/backoff.go | 2 |",
		"| 3 kubelet-not-late | pkg/kubelet/kubelet.go | 2 |",
	} {
		assert.Contains(t, out, row)
	}
	p.fails(t, nil, []string{"docs/patches.md"}, "hack/patchset.sh", "stat", "--write")
	write(p.dir, map[string]string{"docs/patches.md": "a\n<!-- make stat -->\nold\n<!-- end of make stat -->\nb\n"})
	p.ok(t, "hack/patchset.sh", "stat", "--write")
	assert.Equal(t, "a\n<!-- make stat -->\n"+out+"<!-- end of make stat -->\nb\n", read(filepath.Join(p.dir, "docs/patches.md")))

	p.fails(t, []string{"KUBE_VERSION=v1.36.3"}, []string{"KUBE_VERSION=v1.36.3: there is no series for it"}, "make", "stat")
	cmd := exec.Command(shared.program, "stat")
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "KUBE_VERSION=v1.31.14")
	table31, err := cmd.CombinedOutput()
	require.NoError(t, err, string(table31))
	assert.Contains(t, string(table31), "| patch of v1.31 | file | lines |")
	cmd = exec.Command(shared.program, "stat")
	cmd.Dir = "../.."
	table, err := cmd.CombinedOutput()
	require.NoError(t, err, string(table))
	_, rest, ok := strings.Cut(read("../../docs/patches.md"), "<!-- make stat -->\n")
	require.True(t, ok, "docs/patches.md has no line <!-- make stat -->")
	current, _, ok := strings.Cut(rest, "<!-- end of make stat -->\n")
	require.True(t, ok, "docs/patches.md has no line <!-- end of make stat -->")
	assert.Equal(t, string(table), current, "run hack/patchset.sh stat --write")
}
