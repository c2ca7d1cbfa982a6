// SPDX-License-Identifier: Apache-2.0

package hack

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

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

// applied is a clone with the series applied, whose second patch brings files of its own.
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
		p.refreshed(t, "(forgot this) is gone: all that it changed is another patch's", decide+" on the branch -> kuberuntime/decide.go")
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
		p.git(p.root, "commit", "-q", "--amend", "-m", "kubelet: never late", "-m", "Upstream-Issue: 1\nDiffers-From-Upstream: no\nDepends-On: none\nDrop-When: later")
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
	t.Run("all that a line of travel.txt takes", func(t *testing.T) {
		p := applied(t)
		p.git(p.root, "rm", "-q", "staging/src/k8s.io/client-go/util/flowcontrol/rules.go")
		p.amend(t, 2)
		before, tree := p.snapshot(t, p.dir), p.snapshot(t, p.root)
		p.fails(t, nil, []string{"has none of the files any more that client-go-rules brings from backoff", "Remove the line from "}, "hack/patchset.sh", "refresh")
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
		assert.Contains(t, p.ok(t, "hack/patchset.sh", "refresh"), "is made on v1.37.1, and this is v1.37.0")
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
		p.fails(t, nil, []string{"is meant to become part of another", "rebase -i --autosquash"}, "hack/patchset.sh", "refresh")
		assert.Equal(t, before, p.snapshot(t, p.dir))
	})
	t.Run("no Go", func(t *testing.T) {
		p := applied(t)
		write(p.root, map[string]string{decide: "package\n"})
		p.amend(t, 1)
		before := p.snapshot(t, p.dir)
		p.fails(t, nil, []string{decide, "is no Go source"}, "hack/patchset.sh", "refresh")
		assert.Equal(t, before, p.snapshot(t, p.dir))
	})
}

// TestRefreshKilled: the next refresh ends what one began that was killed.
func TestRefreshKilled(t *testing.T) {
	for name, arguments := range map[string]string{
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
			out, err := p.try(gitBefore(t, arguments, "kill -KILL $PPID; exit 1"), "hack/patchset.sh", "refresh")
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
			p.fails(t, nil, []string{"a refresh was killed", file, "would be overwritten", "git checkout -- FILE"}, "hack/patchset.sh", "refresh")
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
	assert.Contains(t, out, "v1.37 is refreshed, but v1.38 has files that have changed, too")
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

// TestManyPatches: numbers may have two digits, and change when patches are put in between.
func TestManyPatches(t *testing.T) {
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

// TestOverride: a release may have a version of its own of a file, with a reason.
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

	// The way back is to the release's version.
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

	// The way back from either is to that version, and the other is named.
	tree := filepath.Dir(filepath.Dir(filepath.Dir(ours(oldest))))
	edit(t, ours(oldest), "return 7", "return 8")
	p.git(tree, "commit", "-q", "-a", "--fixup", "HEAD~1")
	p.git(tree, "-c", "sequence.editor=:", "rebase", "-q", "-i", "--autosquash", oldest)
	out, err := p.try([]string{"KUBE_VERSION=" + oldest}, "hack/patchset.sh", "refresh")
	require.Error(t, err, out)
	assert.Contains(t, out, "v1.36 is refreshed, but v1.37 has files that have changed, too")
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
	p.fails(t, nil, []string{"x/link is no regular file"}, "hack/patchset.sh", "apply")
	require.NoError(t, os.Remove(filepath.Join(p.dir, src("x/link"))))
	write(p.dir, map[string]string{src("x/dos.txt"): "one\r\n"})
	p.fails(t, nil, []string{"x/dos.txt has lines that end in CR LF"}, "hack/patchset.sh", "apply")
	assert.Equal(t, before, p.snapshot(t, p.root))
}

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
	p.fails(t, nil, []string{"is no git checkout"}, "make", "dist")
	write(p.dir, map[string]string{".gitignore": "/_output/\n"})
	p.git(p.dir, "init", "-q")
	p.git(p.dir, "add", "-A", ".")
	p.git(p.dir, "commit", "-q", "-m", "all")
	p.git(p.dir, "tag", "v0.1.0")
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
	assert.FileExists(t, filepath.Join(check.Dir, "backoff/rules.go"))
	assert.Contains(t, read(filepath.Join(check.Dir, "series/v1.37/"+p.patches(t)[0])), "+func Rule() int")
	info, err := os.Stat(filepath.Join(check.Dir, "hack/patchset.sh"))
	require.NoError(t, err)
	assert.NotZero(t, info.Mode()&0o100)

	write(p.dir, map[string]string{"new.txt": "1"})
	p.fails(t, nil, []string{"not committed", "new.txt"}, "make", "dist")
}

// TestPins: a source that is not the one that is meant is refused, also where no checksum database knows it.
func TestPins(t *testing.T) {
	p := newProject(t)
	p.ok(t, "hack/patchset.sh", "pin", version)
	sums := filepath.Join(p.dir, "patches/v1.37/kubernetes.sum")
	text := read(sums)
	assert.Equal(t, 4, strings.Count(text, " h1:"), text)
	assert.Contains(t, p.ok(t, "hack/patchset.sh", "pin", version), "has all of them already")
	fetch := func(proxy string) (string, error) {
		other := t.TempDir()
		out, err := p.try([]string{"KB_OUTPUT_DIR=" + other, "GOPROXY=file://" + proxy, "GOMODCACHE=" + modcache(t), "GONOSUMDB=k8s.io/*", "GOFLAGS=-mod=mod"},
			"hack/patchset.sh", "fetch", version)
		assertNoScratch(t, other)
		if err != nil {
			assert.NoDirExists(t, filepath.Join(other, version))
		}
		return out, err
	}
	out, err := fetch(shared.proxy)
	require.NoError(t, err, out)

	tampered := filepath.Join(t.TempDir(), "proxy")
	makeProxy(tampered, version)
	files := map[string]string{"evil.go": "package clientgo\n"}
	for name, content := range staging["client-go"] {
		files[name] = content
	}
	module(tampered, "k8s.io/client-go", "v0.37.1", files)
	out, err = fetch(tampered)
	require.Error(t, err, out)
	for _, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, "k8s.io/client-go ") {
			assert.Contains(t, out, "expected  "+strings.Fields(line)[2])
		}
	}
	assert.Contains(t, out, "k8s.io/client-go@v0.37.1 is not the source that is meant")
	assert.Regexp(t, `actual    h1:\S{44}`, out)
	assert.Contains(t, p.failsToPin(t, tampered), "is not the source that is meant")

	// The zip alone, without .info and .mod, is no way around.
	require.NoError(t, os.Remove(filepath.Join(tampered, "k8s.io/client-go/@v/v0.37.1.info")))
	require.NoError(t, os.Remove(filepath.Join(tampered, "k8s.io/client-go/@v/v0.37.1.mod")))
	out, err = fetch(tampered)
	require.Error(t, err, out)
	assert.Contains(t, out, "the proxy has no k8s.io/client-go@v0.37.1, but "+sums+" has its hash")
	url := proxyServerOf(t, tampered)
	other := t.TempDir()
	p.fails(t, []string{"KB_OUTPUT_DIR=" + other, "GOPROXY=" + url, "GOMODCACHE=" + modcache(t)},
		[]string{"k8s.io/client-go@v0.37.1 is not the source that is meant"}, "hack/patchset.sh", "fetch", version)

	// A module that the file does not have, and a file that is none.
	write(p.dir, map[string]string{"patches/v1.37/kubernetes.sum": strings.SplitAfter(text, "\n")[2] + strings.SplitAfter(text, "\n")[3]})
	out, err = fetch(shared.proxy)
	require.Error(t, err, out)
	assert.Contains(t, out, "expected  none")
	write(p.dir, map[string]string{"patches/v1.37/kubernetes.sum": "k8s.io/api v0.37.1\n"})
	out, err = fetch(shared.proxy)
	require.Error(t, err, out)
	assert.Contains(t, out, "kubernetes.sum line 1")
}

func (p project) failsToPin(t *testing.T, proxy string) string {
	t.Helper()
	before := p.patchBytes(t)
	out, err := p.try([]string{"GOPROXY=file://" + proxy, "GOMODCACHE=" + modcache(t)}, "hack/patchset.sh", "pin", version)
	require.Error(t, err, out)
	assert.Equal(t, before, p.patchBytes(t))
	return out
}

func proxyServerOf(t *testing.T, dir string) string {
	t.Helper()
	return serve(t, http.FileServer(http.Dir(dir)))
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

	cmd := exec.Command(shared.program, "stat")
	cmd.Dir = "../.."
	table, err := cmd.CombinedOutput()
	require.NoError(t, err, string(table))
	_, rest, ok := strings.Cut(read("../../docs/patches.md"), "<!-- make stat -->\n")
	require.True(t, ok, "docs/patches.md has no line <!-- make stat -->")
	current, _, ok := strings.Cut(rest, "<!-- end of make stat -->\n")
	require.True(t, ok, "docs/patches.md has no line <!-- end of make stat -->")
	assert.Equal(t, string(table), current, "run hack/patchset.sh stat --write")
}
