// SPDX-License-Identifier: Apache-2.0

package hack

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRoundTrip applies to and reverses from every kind of tree.
func TestRoundTrip(t *testing.T) {
	for name, prepare := range map[string]func(*testing.T, project) project{
		"fetched":  func(_ *testing.T, p project) project { return p },
		"clone":    func(t *testing.T, p project) project { return p.clone(t) },
		"worktree": func(t *testing.T, p project) project { return p.worktree(t) },
		"shallow":  func(t *testing.T, p project) project { return p.shallow(t) },
		"detached": func(t *testing.T, p project) project {
			p = p.clone(t)
			p.git(p.root, "checkout", "-q", "--detach")
			return p
		},
		"untracked files": func(t *testing.T, p project) project {
			p = p.clone(t)
			write(p.root, map[string]string{"notes.txt": "mine", "_output/x": "built", "pkg/kubelet/kuberuntime/mine.txt": "beside"})
			return p
		},
		"a fork": func(t *testing.T, p project) project {
			p = p.clone(t)
			p.git(p.root, "tag", "v1.37.1-acme.3")
			p.git(p.root, "tag", "-d", version)
			edit(t, filepath.Join(p.root, kubelet), "// five\n", "// five\n// five and a half\n")
			p.git(p.root, "commit", "-q", "-a", "-m", "ours")
			return p
		},
		// Git may treat the files of the release as in another repository that is around them.
		"made by the command that apply prints": func(t *testing.T, p project) project {
			p = p.clone(t)
			require.NoError(t, os.RemoveAll(filepath.Join(p.root, ".git")))
			p.git(filepath.Dir(p.root), "init", "-q")
			out, err := p.try(nil, "hack/patchset.sh", "apply")
			require.Error(t, err, out)
			require.Contains(t, out, "is not a git checkout")
			out = strings.TrimSpace(out)
			command := out[strings.LastIndex(out, "\n")+1:]
			p.with(t, []string{"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_COUNT=2", "GIT_CONFIG_KEY_0=user.name", "GIT_CONFIG_VALUE_0=U", "GIT_CONFIG_KEY_1=user.email", "GIT_CONFIG_VALUE_1=u@x"},
				"bash", "-c", command)
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
			assert.Contains(t, p.patchset(t, "apply"), "3 commits")
			assert.Equal(t, branch, p.git(tree, "symbolic-ref", "--short", "HEAD"))
			assert.Equal(t, "kubelet: not late\nkubelet: a subject that is so long that a mail has to fold it, because it goes on and on\nclient-go: rules",
				p.git(tree, "log", "--format=%s", "-3"))
			assert.Equal(t, "Ada ada@example.com 2026-11-20T12:00:00+01:00 kubelet-backoff 2026-11-20T12:00:00+01:00",
				p.git(tree, "log", "--format=%an %ae %aI %cn %cI", "-1"))
			assert.Equal(t, "Grüße", p.git(tree, "log", "--format=%an", "-1", "HEAD~1"))
			assert.Contains(t, read(filepath.Join(tree, decided)), `import (`+"\n\t"+`backoff "k8s.io/client-go/util/backoff"`)
			assert.FileExists(t, filepath.Join(tree, our))
			applied, files := p.git(tree, "rev-parse", "HEAD"), p.snapshot(t, tree)
			assert.Contains(t, p.patchset(t, "apply"), "Already applied")
			assert.Equal(t, files, p.snapshot(t, tree))
			p.patchset(t, "reverse")
			assert.Equal(t, before, p.snapshot(t, tree))
			p.patchset(t, "apply")
			assert.Equal(t, applied, p.git(tree, "rev-parse", "HEAD"), "applying again makes the same commits")
			p.patchset(t, "reverse")
			assert.Equal(t, before, p.snapshot(t, tree))
			assert.Contains(t, p.patchset(t, "reverse"), "Nothing to reverse")
		})
	}
}

// TestRefuses: a command that fails changes nothing.
func TestRefuses(t *testing.T) {
	there := filepath.Dir(decided)
	for name, tc := range map[string]struct {
		do    func(t *testing.T, p project) // before the command, in a clone
		words []string
		env   []string
		args  []string // apply, if there are none
	}{
		"changes that are not committed": {do: func(_ *testing.T, p project) { write(p.root, map[string]string{kubelet: "package kubelet\n"}) },
			words: []string{"not committed", " M " + kubelet, "stash"}},
		"staged changes": {do: func(_ *testing.T, p project) {
			write(p.root, map[string]string{"new.txt": ""})
			p.git(p.root, "add", "new.txt")
		},
			words: []string{"not committed", "A  new.txt"}},
		"a file in the way": {do: func(_ *testing.T, p project) { write(p.root, map[string]string{decided: "mine"}) }, words: []string{decided}},
		"an ignored file in the way": {do: func(_ *testing.T, p project) {
			write(p.root, map[string]string{decided: "mine", ".git/info/exclude": there + "\n"})
		}, words: []string{decided}},
		"a file in the way of a directory":  {do: func(_ *testing.T, p project) { write(p.root, map[string]string{there: "mine"}) }, words: []string{there}},
		"an ignored link in the way of one": {do: func(t *testing.T, p project) { link(t, p, there) }, words: []string{there}},
		"a committed link in the way of one": {do: func(t *testing.T, p project) {
			link(t, p, there)
			p.git(p.root, "add", "-f", there)
			p.git(p.root, "commit", "-qm", "fork")
		}, words: []string{there}},
		"a committed file in the way": {do: func(_ *testing.T, p project) {
			p.commit(p.root, "fork", "A <a@x>", "none", map[string]string{our: "mine"})
		}, words: []string{"adds files that are already there", our}},
		"a rebase in progress": {do: func(_ *testing.T, p project) { write(p.root, map[string]string{".git/rebase-merge/x": ""}) }, words: []string{"in the middle of a git rebase"}},
		"an am in progress":    {do: func(_ *testing.T, p project) { write(p.root, map[string]string{".git/rebase-apply/applying": ""}) }, words: []string{"in the middle of a git am"}},
		"a merge in progress": {do: func(_ *testing.T, p project) {
			write(p.root, map[string]string{".git/MERGE_HEAD": p.git(p.root, "rev-parse", "HEAD") + "\n"})
		}, words: []string{"in the middle of a git merge"}},
		"a foreign branch":                     {do: func(_ *testing.T, p project) { p.git(p.root, "branch", branch) }, words: []string{"did not make", branch}},
		"a foreign branch that is checked out": {do: func(_ *testing.T, p project) { p.git(p.root, "checkout", "-q", "-b", branch) }, words: []string{"did not make", branch}},
		"no repository": {do: func(t *testing.T, p project) { require.NoError(t, os.RemoveAll(filepath.Join(p.root, ".git"))) },
			words: []string{"is not a git checkout", "git -C '"}},
		"no commit": {do: func(t *testing.T, p project) {
			require.NoError(t, os.RemoveAll(filepath.Join(p.root, ".git")))
			p.git(p.root, "init", "-q")
		}, words: []string{"git cannot read a commit"}},
		"no kubernetes": {do: func(t *testing.T, p project) {
			require.NoError(t, os.Remove(filepath.Join(p.root, base)))
		}, words: []string{"is not a source tree of kubernetes"}},
		"a missing tree":        {env: []string{"KUBE_ROOT=/no/such/dir"}, words: []string{"KUBE_ROOT=/no/such/dir: ", "no such file or directory"}},
		"no release":            {do: func(t *testing.T, p project) { minor(t, p, "const Default", "const Other") }, words: []string{"has no DefaultKubeBinaryVersion"}},
		"a release of no serie": {do: func(t *testing.T, p project) { minor(t, p, "1.37", "1.36") }, words: []string{"no series fits", "v1.36", "there are series for v1.37"}},
		"another KUBE_VERSION":  {env: []string{"KUBE_VERSION=v1.36.1"}, words: []string{"KUBE_VERSION is v1.36.1", "has the sources of kubernetes 1.37"}},
		"no version":            {env: []string{"KUBE_VERSION=banana"}, words: []string{`"banana" is not a kubernetes release`}},
		"a missing patch": {do: func(_ *testing.T, p project) {
			write(p.dir, map[string]string{"patches/v1.37/series": "rules\ngone\n"})
		}, words: []string{"gone", "neither the series nor that of a newer release"}},
		"a patch twice": {do: func(_ *testing.T, p project) {
			write(p.dir, map[string]string{"patches/v1.37/series": "rules\nrules\n"})
		}, words: []string{`names "rules" twice`}},
		"no patch":        {do: func(_ *testing.T, p project) { write(p.dir, map[string]string{"patches/v1.37/series": "# rules\n"}) }, words: []string{"has no patch to apply"}},
		"a word too much": {args: []string{"apply", "--nonsense"}, words: []string{"unknown flag: --nonsense"}},
		"an old git":      {env: fake(t, map[string]string{"git": "echo git version 2.31.9\n"}), words: []string{"git 2.31 is too old"}},
		// The second patch does not apply.
		"a fork that the series does not fit": {do: func(t *testing.T, p project) {
			edit(t, filepath.Join(p.root, kubelet), `return "stock"`, `return "fork"`)
			p.git(p.root, "commit", "-q", "-a", "-m", "fork")
		}, words: []string{"decide (", "does not apply to ", kubelet, "Nothing has changed", "git am -3"}},
		"a fork that a hunk is misplaced in": {do: func(t *testing.T, p project) {
			edit(t, filepath.Join(p.root, kubelet), "// Late is", "// Early is early.\nfunc Early() bool {\n\t// a\n\t// b\n\t// c\n\treturn true\n}\n\n// Late is")
			p.git(p.root, "commit", "-q", "-a", "-m", "fork")
		}, words: []string{"late: a hunk of " + kubelet + " is misplaced", "func Late()", "func Early()"}},
		"the disk is full": {env: gitBefore(t, "*\\ apply\\ --cached*", `echo "error: No space left on device" >&2; exit 128`), words: []string{"No space left on device"}},
		"the disk is full at the checkout": {env: gitBefore(t, "*\\ checkout\\ -q\\ *", halfCheckout+`rm "$2/pkg/kubelet/our.go"; echo "error: No space left on device" >&2; exit 128`),
			words: []string{"No space left on device"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProject(t).clone(t)
			if tc.do != nil {
				tc.do(t, p)
			}
			if tc.args == nil {
				tc.args = []string{"apply"}
			}
			p.refuses(t, tc.env, tc.words, tc.args...)
		})
	}
}

const base = "staging/src/k8s.io/component-base/version/base.go"

func minor(t *testing.T, p project, old, new string) {
	edit(t, filepath.Join(p.root, base), old, new)
}

// link makes a link to another directory, which git ignores.
func link(t *testing.T, p project, there string) {
	write(p.root, map[string]string{".git/info/exclude": there + "\n"})
	require.NoError(t, os.Symlink(t.TempDir(), filepath.Join(p.root, there)))
}

// TestSources: what cannot be brought is refused, and named.
func TestSources(t *testing.T) {
	p := newProject(t).clone(t)
	src := func(path string) string { return filepath.Join(p.dir, "patches/_src/decide", path) }
	for path, tc := range map[string]struct{ content, words string }{
		kubelet:     {"package kubelet\n", "already there:"},
		"go.work":   {"go 1.22.0\n", "already there:"},
		decided:     {"package kuberuntime\n", "are both " + decided + " in the tree"},
		"x/dos.txt": {"one\r\n", "x/dos.txt must be a regular text file"},
		"x/nul":     {"a\x00b\n", "x/nul must be a regular text file"},
		"x/end.txt": {"one", "x/end.txt must be a regular text file"},
	} {
		write(src(""), map[string]string{path: tc.content})
		p.refuses(t, nil, []string{path, tc.words}, "apply")
		require.NoError(t, os.Remove(src(path)))
	}
	require.NoError(t, os.Symlink("pkg/kubelet/our.go", src("link")))
	p.refuses(t, nil, []string{"link must be a regular"}, "apply")
	require.NoError(t, os.Remove(src("link")))
	for line, words := range map[string]string{
		"rules backoff": `must be "PATCH`, "rules backoff staging/other *.go": "same last element",
	} {
		write(p.dir, map[string]string{"hack/mirror.txt": line + "\n"})
		p.refuses(t, nil, []string{"mirror.txt", words}, "apply")
	}
	write(p.dir, map[string]string{"hack/mirror.txt": library["hack/mirror.txt"]})
	edit(t, filepath.Join(p.dir, "kuberuntime/decide.go"), "/kubelet-backoff/backoff\"", "/kubelet-backoff/config\"")
	p.refuses(t, nil, []string{"imports config, which hack/mirror.txt does not copy"}, "apply")
	write(p.dir, map[string]string{"kuberuntime/decide.go": "package\n"})
	p.refuses(t, nil, []string{"decide.go is not valid Go source"}, "apply")
	write(p.dir, map[string]string{"kuberuntime/decide.go": library["kuberuntime/decide.go"]})
	// What editors and killed commands leave is no source.
	write(p.dir, map[string]string{"patches/_src/decide/pkg/.new.x.go": "package", "patches/_src/decide/pkg/x.go~": "package", "patches/_src/decide/pkg/x.go.orig": "package"})
	p.patchset(t, "apply")
	assert.Empty(t, p.git(p.root, "ls-files", "pkg/*x.go*"))
}

// TestApplyAgain: the branch is there, and something is in the way of checking it out.
func TestApplyAgain(t *testing.T) {
	t.Run("a rebase in progress", func(t *testing.T) {
		p := applied(t)
		p.git(p.root, "-c", "sequence.editor=sed -i '1i break'", "rebase", "-i", "HEAD~3")
		for _, args := range [][]string{{"apply"}, {"apply", "--keep"}, {"refresh"}} {
			p.refuses(t, nil, []string{"in the middle of a git rebase"}, args...)
		}
	})
	t.Run("an ignored file", func(t *testing.T) {
		p := newProject(t).clone(t)
		write(p.dir, map[string]string{"patches/_src/decide/pkg/kubelet/mine.log": "theirs\n"})
		p.patchset(t, "apply")
		p.git(p.root, "checkout", "-q", "main")
		write(p.root, map[string]string{"pkg/kubelet/mine.log": "mine"})
		p.refuses(t, nil, []string{"pkg/kubelet/mine.log"}, "apply")
	})
	t.Run("another worktree", func(t *testing.T) {
		p := newProject(t).clone(t)
		q := p
		q.root += " 2"
		p.git(p.root, "worktree", "add", "-q", "-b", "second", q.root)
		before := p.snapshot(t, q.root)
		q.patchset(t, "apply")
		// Each has its own untracked file of a killed command, or none.
		for _, command := range []string{"apply", "reverse"} {
			p.refuses(t, nil, []string{q.root}, command)
		}
		q.patchset(t, "reverse")
		assert.Equal(t, before, p.snapshot(t, q.root))
		p.roundTrip(t)
	})
	t.Run("at the same time", func(t *testing.T) {
		p := newProject(t).clone(t)
		other := p.command(nil, "hack/patchset.sh", "apply")
		require.NoError(t, other.Start())
		p.patchset(t, "apply")
		require.NoError(t, other.Wait())
		assert.Contains(t, p.patchset(t, "apply"), "Already applied")
	})
	t.Run("the patches have changed", func(t *testing.T) {
		p := newProject(t).clone(t)
		before := p.snapshot(t, p.root)
		p.patchset(t, "apply")
		edit(t, p.series("late.patch"), "+\treturn false", "+\treturn !true")
		edit(t, filepath.Join(p.dir, "backoff/rules.go"), "return 1", "return 2")
		p.patchset(t, "apply")
		assert.Contains(t, read(filepath.Join(p.root, kubelet)), "return !true")
		assert.Contains(t, read(filepath.Join(p.root, "staging/src/k8s.io/client-go/util/backoff/rules.go")), "return 2")
		// The branch of the former patches stays if the new ones do not apply.
		edit(t, p.series("late.patch"), "-\treturn true", "-\treturn maybe")
		p.refuses(t, nil, []string{"late (", "does not apply"}, "apply")
		p.patchset(t, "reverse")
		assert.Equal(t, before, p.snapshot(t, p.root))
	})
}

// TestEditedBranch: commits of the user are in the way of apply and reverse.
func TestEditedBranch(t *testing.T) {
	p := newProject(t).clone(t)
	before := p.snapshot(t, p.root)
	p.patchset(t, "apply")
	p.commit(p.root, "my own work", "A <a@example.com>", "none", map[string]string{"mine.txt": "1"})
	p.refuses(t, nil, []string{"commits that no patch has", "my own work", "make refresh", "git reset --hard"}, "reverse")
	p.refuses(t, nil, []string{"has been edited", "make refresh"}, "apply")
	assert.Contains(t, p.patchset(t, "apply", "--keep"), "using it as it is")
	edit(t, p.series("late.patch"), "+\treturn false", "+\treturn !true")
	assert.Contains(t, p.patchset(t, "apply", "--keep"), "using it as it is")
	// Also when another branch is checked out.
	p.git(p.root, "checkout", "-q", "main")
	p.refuses(t, nil, []string{"my own work"}, "reverse")
	p.refuses(t, nil, []string{"has been edited"}, "apply", "--keep")
	p.git(p.root, "checkout", "-q", branch)
	write(p.root, map[string]string{"mine.txt": "2"})
	p.git(p.root, "reset", "-q", "HEAD~1")
	p.git(p.root, "add", "mine.txt")
	p.refuses(t, nil, []string{"not committed", "mine.txt"}, "reverse")
	p.git(p.root, "reset", "-q", "--hard", branch)
	p.patchset(t, "reverse")
	assert.Equal(t, before, p.snapshot(t, p.root))

	// Other branches and stashes stay.
	p.patchset(t, "apply")
	p.git(p.root, "branch", "mine")
	write(p.root, map[string]string{kubelet: "package kubelet\n\n// Mine.\n"})
	p.git(p.root, "stash")
	p.patchset(t, "reverse")
	assert.Contains(t, p.git(p.root, "branch"), "mine")
	assert.Contains(t, p.git(p.root, "stash", "show", "-p"), "// Mine.")
	// What was checked out is gone.
	p.patchset(t, "apply")
	p.git(p.root, "branch", "-q", "-m", "main", "other")
	p.patchset(t, "reverse")
	assert.Equal(t, "HEAD", p.git(p.root, "rev-parse", "--abbrev-ref", "HEAD"))
	assert.Equal(t, p.git(p.root, "rev-parse", "other"), p.git(p.root, "rev-parse", "HEAD"))
}

// TestPick: a line of the file series, SKIP and SERIES leave patches out, unless others depend on them.
func TestPick(t *testing.T) {
	p := newProject(t).clone(t)
	edit(t, p.series("late.patch"), "Series: core", "Series: cost")
	for _, tc := range []struct {
		env   string
		lines string // of the file series
		words []string
	}{
		{"SKIP=late", "", []string{"left out: late", "2 commits"}},
		{"SKIP=decide,late", "", []string{"left out: decide late", "1 commits"}},
		{"SKIP=late decide rules", "", []string{"error: "}},
		{"SKIP=rules", "", []string{"error: decide depends on rules", "Leave out as well: decide"}},
		{"SKIP=three", "", []string{`error: SKIP="three": v1.37 has no patch three. Its patches are rules decide late`}},
		{"SKIP=2", "", []string{`error: SKIP="2"`}},
		{"SERIES=core", "", []string{"left out: late", "2 commits"}},
		{"SERIES=core,cost", "", []string{"3 commits"}},
		{"SERIES=cost", "", []string{"left out: rules decide", "1 commits"}},
		{"SERIES=core costs", "", []string{`error: SERIES="core costs": there is no "costs"`}},
		{"", "# a comment\nrules\n\n#decide\n# left out: x: why not\nlate\n", []string{"left out: decide", "2 commits"}},
		{"", "decide\nlate\n", []string{"error: decide depends on rules"}},
		{"", "decide\nrules\nlate\n", []string{"error: decide depends on rules", "before it"}},
	} {
		if tc.lines != "" {
			write(p.dir, map[string]string{"patches/v1.37/series": tc.lines})
		}
		before := p.snapshot(t, p.root)
		out, err := p.try([]string{tc.env}, "make", "apply")
		for _, words := range tc.words {
			assert.Contains(t, out, words, "%s %s", tc.env, tc.lines)
		}
		assert.Equal(t, strings.HasPrefix(tc.words[0], "error: "), err != nil, tc.env)
		if err != nil {
			assert.Equal(t, before, p.snapshot(t, p.root))
		} else if tc.env != "" {
			p.refuses(t, []string{tc.env}, []string{"refresh takes no SKIP, and no SERIES but all"}, "refresh")
		} else {
			p.refuses(t, nil, []string{"comments out decide"}, "refresh")
		}
	}
	// What is asked for is applied only on request, and refresh is about all patches.
	write(p.dir, map[string]string{"patches/v1.37/series": "rules\ndecide\nlate\n"})
	edit(t, p.series("late.patch"), "Series: cost", "Series: asked")
	assert.Contains(t, p.ok(t, "make", "apply"), "left out: late")
	p.refuses(t, nil, []string{"is not the whole series", "make apply SERIES=all"}, "refresh")
	p.ok(t, "make", "reverse")
	assert.Contains(t, p.ok(t, "make", "apply", "SERIES=all"), "3 commits")
	p.ok(t, "make", "refresh")
	assert.NotContains(t, p.ok(t, "make", "refresh", "SERIES=all"), "left out")
	edit(t, p.series("rules.patch"), "Series: core", "Series: other")
	p.refuses(t, []string{"SERIES=core"}, []string{`must have a trailer "Series: PART", where PART is one of core, cost, asked`}, "apply")
}

// TestBrackets: the name of a directory is no pattern.
func TestBrackets(t *testing.T) {
	p := newProject(t).clone(t)
	dir := filepath.Join(t.TempDir(), "a [b] c")
	require.NoError(t, os.Rename(p.dir, dir))
	p.dir = dir
	write(p.dir, map[string]string{"_output/series/v1.37/0009-old.patch": "old"})
	assert.Contains(t, p.patchset(t, "apply"), "3 commits")
	assert.FileExists(t, filepath.Join(p.root, decided))
	p.patchset(t, "refresh")
	assert.Contains(t, p.patchset(t, "export"), "3 mails")
	assert.NoFileExists(t, filepath.Join(p.dir, "_output/series/v1.37/0009-old.patch"))
	p.patchset(t, "reverse")
}

// TestFullDisk: git checkout succeeds although it could not write a file.
func TestFullDisk(t *testing.T) {
	p := newProject(t).clone(t)
	env := gitAt(t, "$3 == checkout", `"$git" "$@" && echo "error: unable to write file pkg/x" >&2; exit 0`)
	p.fails(t, env, []string{"git could not write all files of " + p.root, "unable to write file pkg/x"}, "hack/patchset.sh", "apply")
	p.patchset(t, "apply")
	p.patchset(t, "reverse")
	p.noLeftovers(t)
}
