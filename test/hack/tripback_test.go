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

// amend puts what is in the tree into the commit that is n before the last one.
func (p project) amend(t *testing.T, n int) {
	t.Helper()
	p.git(p.root, "add", "-A", ".")
	target := p.git(p.root, "rev-parse", fmt.Sprintf("HEAD~%d", n))
	p.git(p.root, "commit", "-q", "--fixup", target)
	p.git(p.root, "-c", "sequence.editor=:", "rebase", "-q", "-i", "--autosquash", target+"~1")
}

// applied returns a clone with the series applied. Its second patch has new files.
func applied(t *testing.T) project {
	p := newProject(t).clone(t)
	write(p.dir, map[string]string{
		src("pkg/kubelet/ours.go"):           "package kubelet\n\n// Ours is ours.\nfunc Ours() int { return 1 }\n",
		src("pkg/kubelet/testdata/ours.txt"): "one\n",
	})
	p.ok(t, "hack/patchset.sh", "apply")
	return p
}

func src(path string) string { return "patches/_src/" + second + "/" + path }

// inOrder: refresh has nothing left to do, and applying again makes the same commits.
func (p project) inOrder(t *testing.T) {
	t.Helper()
	assert.Empty(t, p.git(p.root, "status", "--porcelain"))
	p.ok(t, "hack/patchset.sh", "refresh", "--check")
	head := p.git(p.root, "rev-parse", "HEAD")
	assert.Contains(t, p.ok(t, "hack/patchset.sh", "apply"), "Already applied")
	p.ok(t, "hack/patchset.sh", "reverse")
	p.ok(t, "hack/patchset.sh", "apply")
	assert.Equal(t, head, p.git(p.root, "rev-parse", "HEAD"))
	assert.Contains(t, p.ok(t, "hack/patchset.sh", "verify", "--no-build"), "is in order")
}

func (p project) refreshed(t *testing.T, words ...string) {
	t.Helper()
	out := p.ok(t, "hack/patchset.sh", "refresh")
	for _, w := range words {
		assert.Contains(t, out, w)
	}
	p.inOrder(t)
}

// TestTripBack: what is edited in the tree arrives where it is kept.
func TestTripBack(t *testing.T) {
	long(t)
	ours, decide := "pkg/kubelet/ours.go", "pkg/kubelet/restart/decide.go"
	t.Run("a file of the library", func(t *testing.T) {
		p := applied(t)
		edit(t, filepath.Join(p.root, decide), "Decide decides", "Decide decides well")
		p.amend(t, 1)
		patches := p.patchBytes(t)
		p.refreshed(t, decide+" on the branch -> kuberuntime/decide.go")
		assert.Equal(t, strings.Replace(library["kuberuntime/decide.go"], "Decide decides", "Decide decides well", 1), read(filepath.Join(p.dir, "kuberuntime/decide.go")))
		assert.Equal(t, patches, p.patchBytes(t))
	})
	t.Run("a file of the library, in a commit of its own", func(t *testing.T) {
		p := applied(t)
		edit(t, filepath.Join(p.root, decide), "Decide decides", "Decide decides well")
		p.git(p.root, "commit", "-q", "-a", "-m", "forgot this")
		p.refreshed(t, "(forgot this) is gone: all its changes belong to another patch", decide+" on the branch -> kuberuntime/decide.go")
		assert.Contains(t, p.git(p.root, "show", "HEAD~1:"+decide), "decides well")
	})
	t.Run("a new file of the library", func(t *testing.T) {
		p := applied(t)
		write(p.root, map[string]string{"pkg/kubelet/restart/more.go": "package restart\n\nimport (\n\tbackoff \"k8s.io/client-go/util/flowcontrol\"\n)\n\nvar _ = backoff.Rule\n"})
		p.amend(t, 1)
		p.refreshed(t, "more.go on the branch -> kuberuntime/more.go")
		assert.Contains(t, read(filepath.Join(p.dir, "kuberuntime/more.go")), "package kuberuntime\n\nimport (\n\tbackoff \"github.com/kubelet-backoff/kubelet-backoff/backoff\"\n)")
	})
	t.Run("a file of the library removed", func(t *testing.T) {
		p := applied(t)
		require.NoError(t, os.Remove(filepath.Join(p.root, "pkg/kubelet/restart/decide_test.go")))
		p.amend(t, 1)
		p.refreshed(t, "decide_test.go on the branch -> kuberuntime/decide_test.go")
		assert.NoFileExists(t, filepath.Join(p.dir, "kuberuntime/decide_test.go"))
	})
	t.Run("a file of _src", func(t *testing.T) {
		p := applied(t)
		edit(t, filepath.Join(p.root, ours), "return 1", "return 2")
		write(p.root, map[string]string{"pkg/kubelet/testdata/ours.txt": "two\n"})
		p.amend(t, 1)
		p.refreshed(t, ours+" on the branch -> "+src(ours))
		assert.Contains(t, read(filepath.Join(p.dir, src(ours))), "return 2")
		assert.Equal(t, "two\n", read(filepath.Join(p.dir, src("pkg/kubelet/testdata/ours.txt"))))
	})
	t.Run("a hunk", func(t *testing.T) {
		p := applied(t)
		edit(t, filepath.Join(p.root, "pkg/kubelet/kubelet.go"), "return false", "return !true")
		p.amend(t, 0)
		p.refreshed(t, "0003-kubelet-not-late.patch changed")
		assert.Contains(t, read(filepath.Join(p.dir, "patches/v1.37/0003-kubelet-not-late.patch")), "+\treturn !true")
	})
	t.Run("a new file", func(t *testing.T) {
		p := applied(t)
		write(p.root, map[string]string{"pkg/kubelet/fresh.go": "package kubelet\n", "pkg/kubelet/testdata/run.sh": "#!/bin/sh\n"})
		require.NoError(t, os.Chmod(filepath.Join(p.root, "pkg/kubelet/testdata/run.sh"), 0o755))
		p.amend(t, 0)
		p.refreshed(t, "pkg/kubelet/fresh.go on the branch -> patches/_src/kubelet-not-late/pkg/kubelet/fresh.go")
		assert.Equal(t, "package kubelet\n", read(filepath.Join(p.dir, "patches/_src/kubelet-not-late/pkg/kubelet/fresh.go")))
		info, err := os.Stat(filepath.Join(p.dir, "patches/_src/kubelet-not-late/pkg/kubelet/testdata/run.sh"))
		require.NoError(t, err)
		assert.NotZero(t, info.Mode()&0o100)
	})
	t.Run("removed", func(t *testing.T) {
		p := applied(t)
		require.NoError(t, os.Remove(filepath.Join(p.root, ours)))
		require.NoError(t, os.Remove(filepath.Join(p.root, "pkg/kubelet/testdata/ours.txt")))
		p.amend(t, 1)
		p.refreshed(t, ours+" on the branch -> "+src(ours))
		assert.NoDirExists(t, filepath.Join(p.dir, "patches/_src"))
	})
	t.Run("renamed", func(t *testing.T) {
		p := applied(t)
		p.git(p.root, "mv", ours, "pkg/kubelet/mine.go")
		p.amend(t, 1)
		p.refreshed(t)
		assert.NoFileExists(t, filepath.Join(p.dir, src(ours)))
		assert.Contains(t, read(filepath.Join(p.dir, src("pkg/kubelet/mine.go"))), "Ours is ours")
	})
	t.Run("a later patch's version", func(t *testing.T) {
		p := applied(t)
		edit(t, filepath.Join(p.root, ours), "return 1", "return 3")
		p.amend(t, 0)
		p.refreshed(t, ours+" on the branch -> patches/_src/kubelet-not-late/"+ours)
		assert.Contains(t, read(filepath.Join(p.dir, src(ours))), "return 1")
	})
	t.Run("removed by a later patch", func(t *testing.T) {
		p := applied(t)
		p.git(p.root, "rm", "-q", ours)
		p.amend(t, 0)
		before := p.snapshot(t, p.dir)
		p.fails(t, nil, []string{"commit 3 (", "removes " + ours + ", which an earlier commit adds"}, "hack/patchset.sh", "refresh")
		assert.Equal(t, before, p.snapshot(t, p.dir))
	})
	t.Run("another subject", func(t *testing.T) {
		p := applied(t)
		p.git(p.root, "commit", "-q", "--amend", "-m", "kubelet: never late", "-m", "Series: core\nUpstream-Issue: 1\nDiffers-From-Upstream: no\nDepends-On: none\nDrop-When: later")
		p.refreshed(t, "0003-kubelet-not-late.patch changed")
		assert.Contains(t, read(filepath.Join(p.dir, "patches/v1.37/0003-kubelet-not-late.patch")), "Subject: [PATCH] kubelet: never late\n")
	})
	t.Run("another order", func(t *testing.T) {
		p := applied(t)
		p.git(p.root, "-c", "sequence.editor=sed -i '1{h;d};2G'", "rebase", "-q", "-i", "HEAD~2")
		p.ok(t, "hack/patchset.sh", "refresh")
		assert.Equal(t, []string{"0001-client-go-rules.patch", "0002-kubelet-not-late.patch", "0003-" + second + ".patch"}, p.patches(t))
		p.inOrder(t)
	})
	t.Run("a message that is no message", func(t *testing.T) {
		p := applied(t)
		p.git(p.root, "commit", "-q", "--amend", "-m", "kubelet: not late", "-m", "diff --git a/x b/x\nis a line")
		before := p.snapshot(t, p.dir)
		p.fails(t, nil, []string{"cannot be in a mail", "Reword it"}, "hack/patchset.sh", "refresh")
		assert.Equal(t, before, p.snapshot(t, p.dir))
	})
	t.Run("both ways at once", func(t *testing.T) {
		p := applied(t)
		edit(t, filepath.Join(p.root, ours), "return 1", "return 2")
		p.amend(t, 1)
		edit(t, filepath.Join(p.dir, "kuberuntime/decide.go"), "Decide decides", "Decide decides soon")
		write(p.dir, map[string]string{src("pkg/kubelet/more.go"): "package kubelet\n"})
		require.NoError(t, os.Remove(filepath.Join(p.dir, src("pkg/kubelet/testdata/ours.txt"))))
		p.refreshed(t, "kuberuntime/decide.go -> "+decide+" on the branch", ours+" on the branch -> "+src(ours))
		assert.Contains(t, read(filepath.Join(p.root, decide)), "decides soon")
		assert.FileExists(t, filepath.Join(p.root, "pkg/kubelet/more.go"))
		assert.NoFileExists(t, filepath.Join(p.root, "pkg/kubelet/testdata/ours.txt"))
	})
	t.Run("what no mail can hold", func(t *testing.T) {
		p := applied(t)
		write(p.root, map[string]string{".git/info/attributes": "* -text\n", "pkg/kubelet/dos.txt": "one\r\n"})
		p.amend(t, 1)
		before := p.snapshot(t, p.dir)
		p.fails(t, nil, []string{"pkg/kubelet/dos.txt has lines that end in CR LF"}, "hack/patchset.sh", "refresh")
		assert.Equal(t, before, p.snapshot(t, p.dir))
	})
	t.Run("what git am reads differently", func(t *testing.T) {
		for name, c := range map[string]struct{ file, content, author, words string }{
			"a hunk":            {"pkg/kubelet/testdata/crlf.txt", "one\r\n2\r\n", "A <a@x>", "has lines that end in CR LF"},
			"no end of line":    {"pkg/kubelet/x.txt", "one\r", "A <a@x>", "pkg/kubelet/x.txt has lines that end in CR LF"},
			"a late NUL":        {"pkg/kubelet/x.txt", strings.Repeat("0123456789\r\n", 1000) + "\x00", "A <a@x>", "pkg/kubelet/x.txt has lines that end in CR LF"},
			"the author's name": {"pkg/kubelet/x.txt", "one\n", "Ada  Two <a@x>", "the author of commit"},
			"the author's mail": {"pkg/kubelet/x.txt", "one\n", "a@b <a@x>", "the author of commit"},
		} {
			t.Run(name, func(t *testing.T) {
				p := applied(t)
				write(p.root, map[string]string{".git/info/attributes": "* -text\n", c.file: c.content})
				p.git(p.root, "add", "-A", ".")
				p.git(p.root, "commit", "-q", "--amend", "--no-edit", "--author", c.author)
				before, tree := p.snapshot(t, p.dir), p.snapshot(t, p.root)
				p.fails(t, nil, []string{c.words}, "hack/patchset.sh", "refresh")
				assert.Equal(t, before, p.snapshot(t, p.dir))
				assert.Equal(t, tree, p.snapshot(t, p.root))
			})
		}
	})
	t.Run("strange files", func(t *testing.T) {
		p := applied(t)
		write(p.root, map[string]string{
			"pkg/kubelet/testdata/a file.txt": "no newline", "pkg/kubelet/testdata/grün\t\"q\".txt": "x", "pkg/kubelet/testdata/empty.txt": "",
			"pkg/kubelet/testdata/bin": "a\x00\r\nb", "pkg/kubelet/testdata/[a].txt": "x\n", ":x": "y\n", "pkg/kubelet/testdata/latin": "\xe4\n",
			"pkg/kubelet/testdata/mail": "From x\n---\ndiff --git a b\n-- \nFrom: x\n",
		})
		p.amend(t, 1)
		require.NoError(t, os.Chmod(filepath.Join(p.root, "pkg/kubelet/kubelet.go"), 0o755))
		p.git(p.root, "commit", "-q", "-a", "--amend", "--no-edit", "--author", "Ada, (the Ü) <ada@example.com>")
		p.refreshed(t)
		require.NoError(t, os.Chmod(filepath.Join(p.root, "pkg/kubelet/testdata/a file.txt"), 0o755))
		p.amend(t, 1)
		p.refreshed(t)
	})
	t.Run("a file becomes a directory, and one again", func(t *testing.T) {
		p := applied(t)
		file := filepath.Join(p.root, "pkg/kubelet/testdata/ours.txt")
		require.NoError(t, os.Remove(file))
		more := map[string]string{"c/d.txt": "d\n"}
		for i := range 8 { // the order is that of a map
			more[fmt.Sprint(i)] = "x\n"
		}
		write(file, more)
		p.amend(t, 1)
		p.refreshed(t)
		require.NoError(t, os.RemoveAll(file))
		write(p.root, map[string]string{"pkg/kubelet/testdata/ours.txt": "again\n"})
		p.amend(t, 1)
		p.refreshed(t)
	})
	t.Run("all that a line of mirror.txt takes", func(t *testing.T) {
		p := applied(t)
		p.git(p.root, "rm", "-q", "staging/src/k8s.io/client-go/util/flowcontrol/rules.go")
		p.amend(t, 2)
		before, tree := p.snapshot(t, p.dir), p.snapshot(t, p.root)
		p.fails(t, nil, []string{"no longer has any of the files that client-go-rules brings from backoff", "Remove the line from "}, "hack/patchset.sh", "refresh")
		assert.Equal(t, before, p.snapshot(t, p.dir))
		assert.Equal(t, tree, p.snapshot(t, p.root))
	})
	t.Run("comments in series", func(t *testing.T) {
		p := newProject(t).clone(t)
		n := p.patches(t)
		p.series(t, "# top", n[0], "# why two", n[1], "", "# why three", n[2], "# end")
		p.ok(t, "hack/patchset.sh", "apply")
		before := p.patchBytes(t)
		p.ok(t, "hack/patchset.sh", "refresh")
		assert.Equal(t, before, p.patchBytes(t))
		p.git(p.root, "-c", "sequence.editor=sed -i '1{h;d};2G'", "rebase", "-q", "-i", "HEAD~2")
		p.ok(t, "hack/patchset.sh", "refresh")
		assert.Equal(t, "# top\n"+n[0]+"\n\n# why three\n0002-kubelet-not-late.patch\n# why two\n0003-"+second+".patch\n# end\n", read(filepath.Join(p.dir, "patches/v1.37/series")))
	})
	t.Run("another release", func(t *testing.T) {
		p := newProject(t).clone(t)
		p.git(p.root, "commit", "-q", "--allow-empty", "-m", "x")
		p.git(p.root, "tag", "v1.37.0")
		p.ok(t, "hack/patchset.sh", "apply")
		before := p.patchBytes(t)
		base := p.git(p.root, "rev-parse", "v1.37.0")
		p.fails(t, nil, []string{"is made on v1.37.1, and the branch starts at v1.37.0", "refresh --base " + base[:12]}, "hack/patchset.sh", "refresh")
		assert.Equal(t, before, p.patchBytes(t))
		assert.Contains(t, p.ok(t, "hack/patchset.sh", "refresh", "--base", base), "is made on v1.37.1, and this is v1.37.0")
	})
	t.Run("settings of the repository", func(t *testing.T) {
		p := applied(t)
		p.git(p.root, "config", "i18n.commitEncoding", "ISO-8859-1")
		p.git(p.root, "config", "i18n.logOutputEncoding", "ISO-8859-1")
		assert.Contains(t, p.ok(t, "hack/patchset.sh", "refresh"), "Nothing to refresh")
		p.inOrder(t)
	})
	t.Run("a file in the way that git ignores", func(t *testing.T) {
		p := applied(t)
		write(p.root, map[string]string{"pkg/kubelet/mine.log": "mine"})
		write(p.dir, map[string]string{src("pkg/kubelet/mine.log"): "theirs"})
		before, tree := p.snapshot(t, p.dir), p.snapshot(t, p.root)
		p.fails(t, nil, []string{"pkg/kubelet/mine.log", "Move them away first"}, "hack/patchset.sh", "refresh")
		assert.Equal(t, before, p.snapshot(t, p.dir))
		assert.Equal(t, tree, p.snapshot(t, p.root))
	})
	t.Run("a fixup", func(t *testing.T) {
		p := applied(t)
		edit(t, filepath.Join(p.root, ours), "return 1", "return 2")
		p.git(p.root, "commit", "-q", "-a", "--fixup", "HEAD~1")
		before := p.snapshot(t, p.dir)
		p.fails(t, nil, []string{"is a fixup of another commit", "rebase -i --autosquash"}, "hack/patchset.sh", "refresh")
		assert.Equal(t, before, p.snapshot(t, p.dir))
	})
	t.Run("no Go", func(t *testing.T) {
		p := applied(t)
		write(p.root, map[string]string{decide: "package\n"})
		p.amend(t, 1)
		before := p.snapshot(t, p.dir)
		p.fails(t, nil, []string{decide, "is not valid Go source"}, "hack/patchset.sh", "refresh")
		assert.Equal(t, before, p.snapshot(t, p.dir))
	})
}

// TestRefreshKilled: the next refresh ends what one began that was killed.
func TestRefreshKilled(t *testing.T) {
	long(t)
	for name, arguments := range map[string]string{
		"in the branch":      "*\\ reset\\ -q\\ --keep*",
		"before the patches": "*\\ config\\ *writing\\ *",
		"among the patches":  "*\\ config\\ *digest\\ *",
		"after the patches":  "*\\ config\\ *tip\\ *",
	} {
		t.Run(name, func(t *testing.T) {
			p := applied(t)
			edit(t, filepath.Join(p.root, "pkg/kubelet/ours.go"), "return 1", "return 2")
			p.amend(t, 1)
			p.git(p.root, "-c", "sequence.editor=sed -i '1{h;d};2G'", "rebase", "-q", "-i", "HEAD~2")
			p.commit(p.root, "kubelet: a fourth", "A <a@example.com>", "3", map[string]string{"pkg/kubelet/fourth.go": "package kubelet\n"})
			dir := filepath.Join(p.dir, "patches/v1.37")
			old := map[string]string{"series": read(filepath.Join(dir, "series"))}
			for _, name := range p.patches(t) {
				old[name] = read(filepath.Join(dir, name))
			}
			kill := "kill -KILL $PPID; exit 1"
			if name == "in the branch" {
				kill = halfCheckout + `touch "$2/.git/index.lock"; ` + kill
			}
			out, err := p.try(gitBefore(t, arguments, kill), "hack/patchset.sh", "refresh")
			require.Error(t, err, out)
			if name == "among the patches" {
				write(dir, old)
			}
			p.fails(t, nil, []string{"make refresh"}, "hack/patchset.sh", "reverse")
			p.ok(t, "hack/patchset.sh", "refresh")
			assert.Equal(t, []string{"0001-client-go-rules.patch", "0002-kubelet-not-late.patch", "0003-" + second + ".patch", "0004-kubelet-a-fourth.patch"}, p.patches(t))
			assert.Contains(t, read(filepath.Join(p.dir, src("pkg/kubelet/ours.go"))), "return 2")
			assert.FileExists(t, filepath.Join(p.dir, "patches/_src/kubelet-a-fourth/pkg/kubelet/fourth.go"))
			p.inOrder(t)
		})
	}
	t.Run("patches edited since", func(t *testing.T) {
		p := applied(t)
		edit(t, filepath.Join(p.root, "pkg/kubelet/kubelet.go"), "return false", "return !true")
		p.amend(t, 0)
		out, err := p.try(gitBefore(t, "*\\ config\\ *digest\\ *", "kill -KILL $PPID; exit 1"), "hack/patchset.sh", "refresh")
		require.Error(t, err, out)
		// One that the refresh had nothing to do with, one that it wrote, the series, and one that is new.
		dir := filepath.Join(p.dir, "patches/v1.37")
		names := p.patches(t)
		for file, words := range map[string]string{names[0]: "Why it is so.", names[2]: "+\treturn !true", "series": "# In this order."} {
			file = filepath.Join(dir, file)
			text := read(file)
			edit(t, file, words, words+" // By hand.")
			before := p.patchBytes(t)
			p.fails(t, nil, []string{"a refresh was killed", file, "would overwrite them", "git checkout -- FILE"}, "hack/patchset.sh", "refresh")
			assert.Equal(t, before, p.patchBytes(t))
			write(dir, map[string]string{filepath.Base(file): text})
		}
		write(dir, map[string]string{"0009-mine.patch": "mine"})
		p.fails(t, nil, []string{"0009-mine.patch"}, "hack/patchset.sh", "refresh")
		require.NoError(t, os.Remove(filepath.Join(dir, "0009-mine.patch")))
		p.ok(t, "hack/patchset.sh", "refresh")
		p.inOrder(t)
	})
	t.Run("a file half written", func(t *testing.T) {
		p := applied(t)
		write(p.dir, map[string]string{"backoff/.new.rules.go": "package", src("pkg/kubelet/.new.ours.go"): "package",
			src("pkg/kubelet/.ours.go.swp"): "editing", src("pkg/kubelet/ours.go~"): "before", src("pkg/kubelet/ours.go.orig"): "before"})
		edit(t, filepath.Join(p.root, "pkg/kubelet/ours.go"), "return 1", "return 2")
		p.amend(t, 1)
		p.refreshed(t)
		assert.Empty(t, p.git(p.root, "ls-files", "*.new.*", "*.swp", "*~", "*.orig"))
		assert.NoFileExists(t, filepath.Join(p.dir, src("pkg/kubelet/.new.ours.go")))
	})
}

// TestRefreshOtherReleases: a change that concerns another release, too, ends with the command that looks after that one.
func TestRefreshOtherReleases(t *testing.T) {
	p := newProject(t)
	const other = "v1.38.0"
	p.addSeries(t, other, "v1.38")
	patchset := func(release, command string) (string, error) {
		return p.try([]string{"KUBE_VERSION=" + release}, "hack/patchset.sh", command)
	}
	for _, release := range []string{version, other} {
		out, err := patchset(release, "apply")
		require.NoError(t, err, out)
	}
	edit(t, filepath.Join(p.dir, "backoff/rules.go"), "return 1", "return 2")
	out, err := patchset(version, "refresh")
	require.Error(t, err, out)
	assert.Contains(t, out, "v1.37 is refreshed, but files of v1.38 have changed too")
	assert.Contains(t, out, "make refresh KUBE_VERSION="+other)
	out, err = patchset(version, "refresh")
	require.NoError(t, err, out)
	out, err = patchset(other, "refresh")
	require.NoError(t, err, out)
	assert.Contains(t, out, "backoff/rules.go -> staging/")
	// Where the series is not applied there is nothing to refresh, but much that may no longer fit.
	out, err = patchset(other, "reverse")
	require.NoError(t, err, out)
	edit(t, filepath.Join(p.dir, "backoff/rules.go"), "return 2", "return 3")
	out, err = patchset(version, "refresh")
	require.Error(t, err, out)
	assert.Contains(t, out, "make verify KUBE_VERSION="+other)
	out, err = patchset(version, "refresh")
	require.NoError(t, err, out)
}
