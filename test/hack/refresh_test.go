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

func (p project) names() string { return strings.Join(strings.Fields(read(p.series("series"))), " ") }

// inOrder: refresh has nothing left to do, and applying again makes the same commits.
func (p project) inOrder(t *testing.T) {
	t.Helper()
	assert.Empty(t, p.git(p.root, "status", "--porcelain"))
	head, sources := p.git(p.root, "rev-parse", "HEAD"), p.sources(t)
	assert.Contains(t, p.patchset(t, "apply"), "Already applied")
	p.patchset(t, "refresh")
	assert.Equal(t, sources, p.sources(t))
	p.patchset(t, "reverse")
	p.patchset(t, "apply")
	assert.Equal(t, head, p.git(p.root, "rev-parse", "HEAD"))
	assert.Contains(t, p.patchset(t, "verify", "--no-build"), "is in order")
}

const trailers = "Series: core\nUpstream-Issue: 1\nDiffers-From-Upstream: no\nDepends-On: none\nDrop-When: later"

// swap changes the order of the last two commits.
func (p project) swap() {
	p.git(p.root, "-c", "sequence.editor=sed -i '1{h;d};2G'", "rebase", "-q", "-i", "HEAD~2")
}

func (p project) src(path string) string { return filepath.Join(p.dir, "patches/_src", path) }

func TestRefreshIsStable(t *testing.T) {
	p := applied(t)
	write(p.dir, map[string]string{"patches/v1.37/series": "# The top.\nrules\ndecide\nlate\n# left out: x: why not\n"})
	p.git(p.root, "config", "i18n.commitEncoding", "ISO-8859-1")
	p.git(p.root, "config", "i18n.logOutputEncoding", "ISO-8859-1")
	patches, tree := p.sources(t), p.snapshot(t, p.root)
	for range 2 {
		p.patchset(t, "refresh")
		assert.Equal(t, patches, p.sources(t))
		assert.Equal(t, tree, p.snapshot(t, p.root))
	}
	for _, name := range []string{"rules", "decide", "late"} {
		s := read(p.series(name + ".patch"))
		assert.True(t, strings.HasPrefix(s, "From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001\nFrom: "), name)
		for _, word := range []string{"evil", "X-Evil", "Signed-off-by", "PATCH 1", "Somebody", "@@ -1,9", "new file"} {
			assert.NotContains(t, s, word, name)
		}
	}
	p.inOrder(t)
}

// TestRefreshTakes: what was edited in a commit is written to its patch, and what was edited in a source to the branch.
func TestRefreshTakes(t *testing.T) {
	for name, tc := range map[string]struct {
		do    func(t *testing.T, p project)
		check func(t *testing.T, p project)
		names string // of the patches then
	}{
		"a hunk": {do: func(t *testing.T, p project) {
			edit(t, filepath.Join(p.root, kubelet), "return false", "return !true")
			p.amend(0)
		}, check: func(t *testing.T, p project) { assert.Contains(t, read(p.series("late.patch")), "+\treturn !true") }},
		"a hunk of an earlier patch, and a file that is executable": {do: func(t *testing.T, p project) {
			edit(t, filepath.Join(p.root, kubelet), `"patched "`, `"PATCHED "`)
			require.NoError(t, os.Chmod(filepath.Join(p.root, "go.work"), 0o755))
			p.amend(1)
		}, check: func(t *testing.T, p project) {
			assert.Contains(t, read(p.series("decide.patch")), "PATCHED")
			assert.Contains(t, read(p.series("decide.patch")), "new mode 100755")
		}},
		"an author, and a message with another subject": {do: func(t *testing.T, p project) {
			p.git(p.root, "commit", "-q", "--amend", "--author", "Ada, (the Ü) <ada@example.com>", "-m", "kubelet: never late", "-m", trailers)
		}, check: func(t *testing.T, p project) {
			assert.Contains(t, read(p.series("late.patch")), "Subject: [PATCH] kubelet: never late\n")
			assert.Equal(t, "Ada, (the Ü)", p.git(p.root, "log", "-1", "--format=%an"))
		}},
		"another order": {do: func(t *testing.T, p project) { p.swap() }, names: "rules late decide"},
		"a new patch": {do: func(t *testing.T, p project) {
			p.commit(p.root, "kubelet: a fourth, in_it!", "A <a@example.com>", "late", map[string]string{"go.work": kubernetes["go.work"] + "// fourth\n"})
		}, names: "rules decide late kubelet-a-fourth-in_it"},
		"a new patch between, with new files": {do: func(t *testing.T, p project) {
			const content = "package kubelet\n"
			write(p.src("kubelet-more"), map[string]string{"pkg/kubelet/a more.go": content})
			p.commit(p.root, "kubelet: more", "A <a@example.com>", "rules", map[string]string{"pkg/kubelet/a more.go": content})
			p.swap()
		}, names: "rules decide kubelet-more late"},
		"a patch removed": {do: func(t *testing.T, p project) { p.git(p.root, "reset", "-q", "--hard", "HEAD~1") },
			check: func(t *testing.T, p project) { assert.NoFileExists(t, p.series("late.patch")) }, names: "rules decide"},
		"a patch that undoes a hunk of another": {do: func(t *testing.T, p project) {
			edit(t, filepath.Join(p.root, kubelet), "return false", "return true")
			p.commit(p.root, "kubelet: late again", "A <a@example.com>", "late", nil)
		}, names: "rules decide late kubelet-late-again"},
		"a file of the release removed": {do: func(t *testing.T, p project) {
			p.git(p.root, "rm", "-q", "pkg/kubelet/kubelet_test.go")
			p.amend(0)
		}, check: func(t *testing.T, p project) {
			assert.NoFileExists(t, filepath.Join(p.root, "pkg/kubelet/kubelet_test.go"))
		}},
		"sources": {do: func(t *testing.T, p project) {
			edit(t, filepath.Join(p.dir, "backoff/rules.go"), "return 1", "return 2")
			write(p.dir, map[string]string{"backoff/more.go": "package backoff\n\nconst more = 1\n", "kuberuntime/more.go": "package kuberuntime\n"})
			require.NoError(t, os.Remove(p.src("decide/"+our)))
		}, check: func(t *testing.T, p project) {
			assert.Contains(t, p.git(p.root, "show", "HEAD~2:staging/src/k8s.io/client-go/util/backoff/rules.go"), "return 2")
			assert.Contains(t, p.git(p.root, "show", "--stat", "HEAD~2"), "more.go")
			assert.Contains(t, p.git(p.root, "show", "--stat", "HEAD~1"), "kuberuntime/more.go")
			assert.NoFileExists(t, filepath.Join(p.root, our))
		}},
		"a file becomes a directory": {do: func(t *testing.T, p project) {
			require.NoError(t, os.Remove(p.src("decide/"+our)))
			write(p.src("decide/"+our), map[string]string{"a.txt": "1\n", "c/d.txt": ""})
		}, check: func(t *testing.T, p project) { assert.FileExists(t, filepath.Join(p.root, our, "c/d.txt")) }},
		"strange files": {do: func(t *testing.T, p project) {
			write(p.src("decide"), map[string]string{"pkg/kubelet/testdata/grün\t\"q\".txt": "x\n", "pkg/[a].txt": "x\n", ":x": "y\n", "pkg/latin": "\xe4\n",
				"pkg/mail": "From x\n---\ndiff --git a b\n-- \nFrom: x\n"})
		}, check: func(t *testing.T, p project) { assert.FileExists(t, filepath.Join(p.root, ":x")) }},
		"the same edit in a source and on the branch": {do: func(t *testing.T, p project) {
			edit(t, filepath.Join(p.root, our), "return 1", "return 2")
			p.amend(1)
			edit(t, p.src("decide/"+our), "return 1", "return 2")
		}, check: func(t *testing.T, p project) { assert.Contains(t, read(filepath.Join(p.root, our)), "return 2") }},
		"edits of both": {do: func(t *testing.T, p project) {
			edit(t, filepath.Join(p.dir, "kuberuntime/decide.go"), "Decide decides", "Decide decides soon")
			edit(t, filepath.Join(p.root, kubelet), "return false", "return !true")
			p.amend(0)
			p.swap()
		}, check: func(t *testing.T, p project) {
			assert.Contains(t, read(filepath.Join(p.root, decided)), "decides soon")
			assert.Contains(t, read(p.series("late.patch")), "+\treturn !true")
		}, names: "rules late decide"},
	} {
		t.Run(name, func(t *testing.T) {
			p := applied(t)
			tc.do(t, p)
			p.patchset(t, "refresh")
			if tc.names == "" {
				tc.names = "rules decide late"
			}
			_, names, _ := strings.Cut(p.names(), "out. ")
			assert.Equal(t, tc.names, names)
			if tc.check != nil {
				tc.check(t, p)
			}
			p.inOrder(t)
		})
	}
	t.Run("comments", func(t *testing.T) {
		p := newProject(t).clone(t)
		write(p.dir, map[string]string{"patches/v1.37/series": "# The top.\nrules\n# left out: x: why not\ndecide\nlate\n"})
		p.patchset(t, "apply")
		p.swap()
		p.patchset(t, "refresh")
		assert.Equal(t, "# The top.\nrules\nlate\ndecide\n# left out: x: why not\n", read(p.series("series")))
	})
}

// TestRefreshRefuses: what is only on the branch, or only in the patches, is not overwritten.
func TestRefreshRefuses(t *testing.T) {
	rewrite := func(n int, path, content string) func(t *testing.T, p project) {
		return func(_ *testing.T, p project) { write(p.root, map[string]string{path: content}); p.amend(n) }
	}
	attributes := func(p project) { write(p.root, map[string]string{".git/info/attributes": "* -text\n"}) }
	for name, tc := range map[string]struct {
		do    func(t *testing.T, p project)
		words []string
		args  []string
	}{
		// The patches must not go before apply refuses the series.
		"no commit": {do: func(_ *testing.T, p project) { p.git(p.root, "reset", "-q", "--hard", "HEAD~3") }, words: []string{"has no patch to apply"}},
		// Their files would be in no patch.
		"a patch of another name": {do: func(t *testing.T, p project) {
			p.git(p.root, "reset", "-q", "--hard", "HEAD~1")
			p.git(p.root, "commit", "-q", "--amend", "-m", "kubelet: decide", "-m", "Series: core\nDepends-On: rules")
		}, words: []string{decided + ", whose source is ", our + ", whose source is "}},
		"two patches in one": {do: func(t *testing.T, p project) {
			p.git(p.root, "reset", "-q", "--hard", "HEAD~1")
			message := p.git(p.root, "log", "-1", "--format=%B", "HEAD~1")
			p.git(p.root, "reset", "-q", "--soft", "HEAD~2")
			p.git(p.root, "commit", "-q", "-m", message)
		}, words: []string{decided + ", whose source is "}},
		"a directory that is a link now": {do: func(t *testing.T, p project) {
			require.NoError(t, os.RemoveAll(filepath.Join(p.root, "cmd/kube-apiserver")))
			require.NoError(t, os.Symlink("kubelet", filepath.Join(p.root, "cmd/kube-apiserver")))
			p.git(p.root, "add", "-A")
			p.amend(0)
		}, words: []string{"cmd/kube-apiserver"}},
		"a file that the new base lacks": {do: func(t *testing.T, p project) {
			base, tip := p.git(p.root, "rev-parse", "HEAD~3"), p.git(p.root, "rev-parse", "HEAD")
			p.git(p.root, "reset", "-q", "--hard", base)
			p.git(p.root, "rm", "-q", "cmd/kube-apiserver/main.go")
			p.git(p.root, "commit", "-q", "-m", "newer")
			p.git(p.root, "tag", "newer")
			p.git(p.root, "cherry-pick", base+".."+tip)
			p.git(p.root, "checkout", base, "--", "cmd/kube-apiserver/main.go")
			p.git(p.root, "commit", "-q", "--amend", "--no-edit")
		}, args: []string{"--base", "newer"}, words: []string{"cmd/kube-apiserver/main.go"}},
		"a patch that the series no longer names": {do: func(t *testing.T, p project) {
			edit(t, p.series("late.patch"), "return false", "return !true")
			edit(t, p.series("series"), "late\n", "")
			// The name that its commit gives it.
			require.NoError(t, os.Rename(p.series("late.patch"), p.series("kubelet-not-late.patch")))
		}, words: []string{"patches have been edited", "kubelet-not-late.patch"}},
		"a file of the library": {do: rewrite(1, decided, "package kuberuntime\n\n// Well.\n"), words: []string{decided + ", whose source is ", "kuberuntime/decide.go"}},
		"a file of _src":        {do: rewrite(1, our, "package kubelet\n"), words: []string{our + ", whose source is ", "patches/_src/decide/" + our}},
		"a new file":            {do: rewrite(0, "pkg/kubelet/new.go", "package kubelet\n"), words: []string{"patches/_src/late/pkg/kubelet/new.go"}},
		"a new file in a new commit": {do: func(_ *testing.T, p project) {
			p.commit(p.root, "more", "A <a@x>", "none", map[string]string{"new.go": "x\n"})
		}, words: []string{"new.go", "patches/_src/more/new.go"}},
		"a new file of another patch": {do: rewrite(0, our, "package kubelet\n"), words: []string{our, "patches/_src/decide/" + our}},
		"the mode of a new file": {do: func(t *testing.T, p project) {
			require.NoError(t, os.Chmod(filepath.Join(p.root, our), 0o755))
			p.amend(1)
		}, words: []string{our}},
		"a file of _src removed":         {do: func(t *testing.T, p project) { p.git(p.root, "rm", "-q", our); p.amend(1) }, words: []string{our}},
		"a file of the library removed":  {do: func(t *testing.T, p project) { p.git(p.root, "rm", "-q", decided); p.amend(1) }, words: []string{decided}},
		"a new file removed by a commit": {do: func(t *testing.T, p project) { p.git(p.root, "rm", "-q", our); p.amend(0) }, words: []string{our}},
		"a new file renamed":             {do: func(t *testing.T, p project) { p.git(p.root, "mv", our, "pkg/kubelet/mine.go"); p.amend(1) }, words: []string{"pkg/kubelet/mine.go"}},
		"a source removed, and edited on the branch": {do: func(t *testing.T, p project) {
			rewrite(1, our, "package kubelet\n")(t, p)
			require.NoError(t, os.Remove(p.src("decide/"+our)))
		}, words: []string{our}},
		"a patch that was edited, too": {do: func(t *testing.T, p project) {
			edit(t, filepath.Join(p.root, kubelet), "return false", "return true && false")
			p.amend(0)
			edit(t, p.series("late.patch"), "+\treturn false", "+\treturn !true")
		}, words: []string{"have been edited since", "late.patch"}},
		"a patch that was edited, and its commit was not": {do: func(t *testing.T, p project) {
			edit(t, p.series("late.patch"), "+\treturn false", "+\treturn !true")
		}, words: []string{"have been edited since", "late.patch"}},
		"a patch that is new": {do: func(t *testing.T, p project) {
			text := strings.ReplaceAll(strings.ReplaceAll(read(p.series("late.patch")), "-\treturn true", "-\treturn false"), "+\treturn false", "+\treturn true")
			write(p.dir, map[string]string{"patches/v1.37/later.patch": strings.Replace(text, "not late", "later", 1), "patches/v1.37/series": read(p.series("series")) + "later\n"})
		}, words: []string{"later"}},
		"a patch that is left out since": {do: func(t *testing.T, p project) { edit(t, p.series("series"), "late\n", "# late\n") }, words: []string{"comments out late"}},
		"changes that are not committed": {do: func(_ *testing.T, p project) { write(p.root, map[string]string{"go.work": "go 1.22.0\n"}) }, words: []string{"not committed", "go.work"}},
		"an ignored file in the way": {do: func(_ *testing.T, p project) {
			write(p.root, map[string]string{"pkg/kubelet/mine.log": "mine"})
			write(p.src("decide"), map[string]string{"pkg/kubelet/mine.log": "theirs\n"})
		}, words: []string{"pkg/kubelet/mine.log"}},
		"another branch": {do: func(_ *testing.T, p project) { p.git(p.root, "checkout", "-q", "main") }, words: []string{`has "main" checked out`, "make apply"}},
		"no branch":      {do: func(_ *testing.T, p project) { p.git(p.root, "checkout", "-q", "--detach") }, words: []string{"make apply"}},
		"a branch made by hand": {do: func(_ *testing.T, p project) {
			p.patchset(p.t, "reverse")
			p.git(p.root, "checkout", "-q", "-b", branch)
		}, words: []string{"did not make", "--base"}},
		"another base": {args: []string{"--base", "HEAD~1^{/nothing}"}, words: []string{"does not start at"}},
		"a base beside the branch": {do: func(_ *testing.T, p project) {
			p.git(p.root, "tag", "other", p.git(p.root, "commit-tree", "-m", "x", "HEAD^{tree}"))
		}, args: []string{"--base", "other"}, words: []string{"does not start at other"}},
		"a merge": {do: func(_ *testing.T, p project) {
			p.git(p.root, "checkout", "-q", "main")
			p.git(p.root, "commit", "-q", "--allow-empty", "-m", "x")
			p.git(p.root, "checkout", "-q", branch)
			p.git(p.root, "merge", "-q", "main", "-m", "merge")
		}, words: []string{"has merges"}},
		"a rebased branch": {do: func(_ *testing.T, p project) {
			p.git(p.root, "checkout", "-q", "main")
			p.git(p.root, "commit", "-q", "--amend", "--allow-empty", "-m", "another base")
			p.git(p.root, "rebase", "-q", "--onto", "main", version, branch)
		}, words: []string{"does not start at", "--base"}},
		"a fixup": {do: func(t *testing.T, p project) {
			edit(t, filepath.Join(p.root, kubelet), "return false", "return !true")
			p.git(p.root, "commit", "-q", "-a", "--fixup", "HEAD~1")
		}, words: []string{"must be squashed first", "rebase -i --autosquash"}},
		"an empty commit": {do: func(_ *testing.T, p project) { p.git(p.root, "commit", "-q", "--allow-empty", "-m", "empty") }, words: []string{"empty changes nothing"}},
		"the same subject": {do: func(t *testing.T, p project) {
			edit(t, filepath.Join(p.root, "go.work"), "use", "// x\nuse")
			p.commit(p.root, "kubelet: not late", "A <a@x>", "none", nil)
		}, words: []string{`the name "late", which is empty or taken`}},
		"a subject of no letter": {do: func(t *testing.T, p project) {
			edit(t, filepath.Join(p.root, "go.work"), "use", "// x\nuse")
			p.commit(p.root, "ü ß", "A <a@x>", "none", nil)
		}, words: []string{"subject"}},
		"a message that is a diff": {do: func(_ *testing.T, p project) {
			p.git(p.root, "commit", "-q", "--amend", "-m", "kubelet: not late", "-m", "diff --git a/x b/x\nis a line")
		}, words: []string{"cannot be a mail", "Reword it"}},
		"an author of two spaces": {do: func(_ *testing.T, p project) {
			p.git(p.root, "commit", "-q", "--amend", "--no-edit", "--author", "Ada  Two <a@x>")
		}, words: []string{"cannot be a mail"}},
		"an author of two mails": {do: func(_ *testing.T, p project) {
			p.git(p.root, "commit", "-q", "--amend", "--no-edit", "--author", "a@b <a@x>")
		}, words: []string{"cannot be a mail"}},
		"CR LF in a hunk": {do: func(t *testing.T, p project) {
			attributes(p)
			rewrite(0, "pkg/kubelet/testdata/crlf.txt", "one\r\n2\r\n")(t, p)
		}, words: []string{"cannot be a mail"}},
		"CR LF in a source":          {do: func(t *testing.T, p project) { write(p.src("decide"), map[string]string{"x.txt": "one\r\n"}) }, words: []string{"x.txt must be"}},
		"no Go":                      {do: func(t *testing.T, p project) { write(p.dir, map[string]string{"kuberuntime/decide.go": "package\n"}) }, words: []string{"decide.go is not valid Go source"}},
		"a source that does not fit": {do: func(t *testing.T, p project) { write(p.src("decide"), map[string]string{"go.work": "x\n"}) }, words: []string{"already there", "go.work"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := applied(t)
			if tc.do != nil {
				tc.do(t, p)
			}
			p.refuses(t, nil, tc.words, append([]string{"refresh"}, tc.args...)...)
		})
	}
}

// TestRefreshRebased: the branch may have been rebased to another commit, which has other lines around the hunks.
func TestRefreshRebased(t *testing.T) {
	p := applied(t)
	p.git(p.root, "checkout", "-q", "main")
	edit(t, filepath.Join(p.root, kubelet), "// six\n", "// seven\n")
	edit(t, filepath.Join(p.root, kubelet), "func Late() bool", "func Late() (late bool)")
	p.git(p.root, "commit", "-q", "-a", "-m", "upstream goes on")
	p.git(p.root, "rebase", "-q", "--onto", "main", version, branch)
	p.patchset(t, "refresh", "--base", "main")
	assert.Contains(t, read(p.series("late.patch")), "func Late() (late bool)")
	assert.Equal(t, p.git(p.root, "rev-parse", "main"), p.git(p.root, "rev-parse", "HEAD~3"))
	p.inOrder(t)
	p.patchset(t, "reverse")
	assert.Equal(t, "main", p.git(p.root, "rev-parse", "--abbrev-ref", "HEAD"))
}

// TestRefreshOnFork: the lines and numbers in the patches are those of the commit that the branch starts at. If nothing was edited, refresh
// changes nothing.
func TestRefreshOnFork(t *testing.T) {
	p := newProject(t).clone(t)
	edit(t, filepath.Join(p.root, kubelet), "// five\n", "// five\n// five and a half\n")
	edit(t, filepath.Join(p.root, kubelet), "func Late() bool", "func Late() (late bool)")
	p.git(p.root, "commit", "-q", "-a", "-m", "fork")
	p.patchset(t, "apply")
	p.patchset(t, "refresh")
	p.inOrder(t)
}

// TestRefreshKilled: a refresh that was killed can run again, and nothing is lost.
func TestRefreshKilled(t *testing.T) {
	long(t)
	fresh := newProject(t)
	for n, ended := 1, false; !ended; n++ {
		p := fresh
		p.dir = filepath.Join(t.TempDir(), "project")
		copyDir(t, fresh.dir, p.dir)
		p = p.clone(t)
		p.patchset(t, "apply")
		edit(t, filepath.Join(p.root, kubelet), "return false", "return !true")
		p.amend(0)
		p.swap()
		edit(t, filepath.Join(p.root, "go.work"), "use", "// fourth\nuse")
		p.commit(p.root, "kubelet: a fourth", "A <a@example.com>", "late", nil)
		edit(t, filepath.Join(p.dir, "backoff/rules.go"), "return 1", "return 2")
		count := filepath.Join(t.TempDir(), "count")
		env := gitAt(t, fmt.Sprintf(`$3 == @(config|update-ref|checkout) && $* != *\ --get\ * ]] && echo x >>%q && [[ $(wc -l <%q) == %d`, count, count, n), kill)
		out, err := p.try(env, "hack/patchset.sh", "refresh")
		if ended = err == nil; ended {
			require.Greater(t, n, 4, out)
		} else if n == 1 {
			// The patches are written. Here are half of them.
			p.fails(t, nil, []string{"make refresh"}, "hack/patchset.sh", "reverse")
			write(p.dir, map[string]string{"patches/v1.37/series": "rules\ndecide\nlate\n"})
			require.NoError(t, os.Remove(p.series("kubelet-a-fourth.patch")))
		}
		p.patchset(t, "refresh")
		assert.Contains(t, p.names(), "rules late decide kubelet-a-fourth")
		assert.Contains(t, read(p.series("late.patch")), "return !true")
		p.inOrder(t)
	}
}
