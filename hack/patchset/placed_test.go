// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubelet-backoff/kubelet-backoff/hack/internal/git"
	"github.com/kubelet-backoff/kubelet-backoff/hack/internal/series"
)

const twoFunctions = `package p

func (s *sandbox) start() {
	one()
	two()
	three()
	if a {
	}

	b()
}

func (c *container) start() {
	one()
	two()
	three()
	if a {
	}

	b()
}

// last is the last variable.
var last int
`

// inserted returns an edit that inserts lines before the last occurrence of text.
func inserted(lines, text string) func(string) string {
	return func(s string) string {
		i := strings.LastIndex(s, text)
		return s[:i] + lines + s[i:]
	}
}

// replaced returns an edit of the last occurrence of old.
func replaced(old, new string) func(string) string {
	return func(s string) string {
		i := strings.LastIndex(s, old)
		return s[:i] + new + s[i+len(old):]
	}
}

func edits(all ...func(string) string) func(string) string {
	return func(s string) string {
		for _, edit := range all {
			s = edit(s)
		}
		return s
	}
}

// defers is a change in the second function, which fits the first one as well.
var defers = replaced("\t}\n\n\tb()", "\t}\n\tdefer end()\n\n\tb()")

// repository returns an empty repository with an index of its own.
func repository(t *testing.T) (*program, git.Git) {
	t.Helper()
	g, err := git.New(t.Context())
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, g.In(dir).Do("init", "-q"))
	return &program{Store: series.Store{Git: g, Output: t.TempDir()}}, g.In(dir).With("GIT_INDEX_FILE=" + filepath.Join(dir, ".git/index.of.test"))
}

// treeOf returns a tree of exactly these files.
func treeOf(t *testing.T, x git.Git, files map[string]string) string {
	t.Helper()
	require.NoError(t, x.Do("read-tree", "--empty"))
	for path, content := range files {
		blob, err := x.Store([]byte(content))
		require.NoError(t, err)
		require.NoError(t, x.Do("update-index", "--add", "--cacheinfo", "100644,"+blob+","+path))
	}
	tree, err := x.Out("write-tree")
	require.NoError(t, err)
	return tree
}

// patchOf returns the patch that changes files.
func patchOf(t *testing.T, x git.Git, from, to map[string]string) string {
	t.Helper()
	diff, _, err := x.Both("diff-tree", "-p", "--full-index", "--no-renames", treeOf(t, x, from), treeOf(t, x, to))
	require.NoError(t, err)
	return diff
}

// apply applies a diff to the files. It returns p.go as it is then, and the commit.
func apply(t *testing.T, p *program, x git.Git, diff string, files map[string]string) (now, commit string, err error) {
	t.Helper()
	q := &series.Patch{Name: "x", Mail: "From: A <a@example.com>\nDate: Fri, 20 Nov 2026 12:00:00 +0100\nSubject: x\n\n---\n" + diff}
	require.NoError(t, p.Parse(q))
	base, err := x.With(q.Author...).Out("commit-tree", "-m", "base", treeOf(t, x, files))
	require.NoError(t, err)
	commits, err := p.compose(&tree{Git: x}, base, &series.Series{Patches: []*series.Patch{q}})
	if err != nil {
		return "", "", err
	}
	now, _, err = x.Both("show", commits[0]+":p.go")
	require.NoError(t, err)
	return now, commits[0], nil
}

// Git puts a hunk in the nearest place that its lines fit. A place in another function is an error.
func TestPlaced(t *testing.T) {
	const function = "func (c *container) start() {\n\tone()\n\ttwo()\n\tthree()\n\tif a {\n\t}\n\n\tb()\n}\n"
	first := inserted("var first int\n\n", "// last")
	initTwice := strings.NewReplacer("func (s *sandbox) start()", "func init()", "func (c *container) start()", "func init()").Replace
	goneBefore := func(s string) string {
		before, rest, _ := strings.Cut(s, "func (s")
		return before + rest[strings.Index(rest, "func (c"):]
	}
	for name, tc := range map[string]struct {
		original, patch, fork func(string) string
		error                 []string
	}{
		"in place":                    {patch: defers},
		"after more lines":            {patch: defers, fork: replaced("package p\n", "package p\n\n// fork\n// fork\n")},
		"after more lines than fit":   {patch: defers, fork: replaced("package p\n", "package p\n"+strings.Repeat("\n// fork", 50)+"\n"), error: []string{"x: a hunk of p.go is misplaced", `made for "func (c *container) start() {"`, `put it in "func (s *sandbox) start() {"`, "fit: 2", "git am -3"}},
		"after many, in one place":    {patch: defers, fork: edits(replaced("package p\n", "package p\n"+strings.Repeat("\n// fork", 50)+"\n"), func(s string) string { return strings.Replace(s, "three()", "3()", 1) })},
		"another signature":           {patch: defers, fork: replaced("container) start()", "container) start(n int) error")},
		"a generic type":              {patch: defers, fork: replaced("(c *container)", "(c *container[T])")},
		"another receiver":            {patch: defers, fork: replaced("*container) start", "*process) start"), error: []string{"misplaced", "(c *process) start()"}},
		"fits only another function":  {patch: defers, fork: replaced("three()", "3()"), error: []string{"misplaced", `put it in "func (s *sandbox) start() {"`, "fit: 1"}},
		"fits nothing":                {patch: defers, fork: func(s string) string { return strings.ReplaceAll(s, "three()", "3()") }, error: []string{"x (", "does not apply", "Nothing has changed", "git am -3"}},
		"the function is gone":        {patch: defers, fork: replaced("(c *container) start", "(c *container) run"), error: []string{"misplaced", "(c *container) run"}},
		"the fork has a label before": {patch: defers, fork: replaced("\tone()\n", "again:\n\tone()\n"), error: []string{"misplaced", `"again:"`}},
		"the release has that label":  {original: replaced("\tone()\n", "again:\n\tone()\n"), patch: defers},
		"in a raw string":             {patch: defers, fork: replaced("\tone()\n", "\tone(`\nvar x\n`)\n"), error: []string{"misplaced", "var x"}},

		"between functions":            {patch: first},
		"after a function of the fork": {patch: first, fork: replaced("}\n\n", "}\n\nfunc fork() {\n\n\tb()\n}\n\n")},
		"between functions, and fits two places": {patch: first, fork: edits(goneBefore, func(s string) string {
			return s + "\nfunc fork() {\n\n\tb()\n}\n\n// last is the last variable.\nvar last int\n"
		}), error: []string{"misplaced", `put it in "func fork() {"`, "fit: 2"}},

		"two functions of that name":               {original: initTwice, patch: defers, error: []string{"misplaced", "func init()", "fit: 2"}},
		"two functions of that name, one place":    {original: edits(initTwice, func(s string) string { return strings.Replace(s, "three()", "3()", 1) }), patch: defers, error: []string{"misplaced", "fit: 1"}},
		"only in a copy in a comment":              {patch: defers, fork: edits(func(s string) string { return strings.ReplaceAll(s, "three()", "3()") }, inserted("/*\n"+function+"*/\n\n", "// last")), error: []string{"misplaced", "fit: 1"}},
		"in a copy in a comment":                   {patch: defers, fork: inserted("/* before:\n"+function+"*/\n\n", "func (c"), error: []string{"misplaced", "fit: 3"}},
		"before a copy in a comment":               {patch: defers, fork: inserted("/*\n"+function+"*/\n\n", "// last"), error: []string{"misplaced", "fit: 3"}},
		"at the first line":                        {patch: func(s string) string { return "// Package p is p.\n" + s }, fork: replaced("int\n", "string\n")},
		"the file becomes empty":                   {patch: func(string) string { return "" }},
		"one of two hunks in another function":     {patch: edits(defers, replaced("package p\n", "package p\n\nvar v int\n")), fork: replaced("three()", "3()"), error: []string{"misplaced", "fit: 1"}},
		"in two functions, each after other lines": {patch: func(s string) string { return strings.ReplaceAll(s, "\tb()", "\tc()") }, fork: replaced("package p\n", "package p\n\n// fork\n")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, x := repository(t)
			original, fork := twoFunctions, func(s string) string { return s }
			if tc.original != nil {
				original = tc.original(original)
			}
			if tc.fork != nil {
				fork = tc.fork
			}
			diff := patchOf(t, x, map[string]string{"p.go": original}, map[string]string{"p.go": tc.patch(original)})
			now, _, err := apply(t, p, x, diff, map[string]string{"p.go": fork(original)})
			if tc.error == nil {
				require.NoError(t, err)
				assert.Equal(t, fork(tc.patch(original)), now)
				return
			}
			for _, words := range tc.error {
				assert.ErrorContains(t, err, words)
			}
		})
	}
}

// The files of a mail may be in any order, and a mail may add and remove files.
func TestPlacedInAnyOrder(t *testing.T) {
	p, x := repository(t)
	from := map[string]string{"a.go": twoFunctions, "gone.go": twoFunctions, "p.go": twoFunctions}
	to := map[string]string{"a.go": strings.Replace(twoFunctions, "one()", "uno()", 1), "new.go": twoFunctions, "p.go": edits(replaced("package p\n", "package p\n\nvar v int\n"), defers)(twoFunctions)}
	diffs := strings.SplitAfter(patchOf(t, x, from, to), "\ndiff --git ")
	require.Len(t, diffs, 4)
	var mail strings.Builder
	for i := len(diffs) - 1; i >= 0; i-- {
		mail.WriteString("diff --git " + strings.TrimPrefix(strings.TrimSuffix(diffs[i], "diff --git "), "diff --git "))
	}
	diff := mail.String()
	require.Less(t, strings.Index(diff, "a/p.go"), strings.Index(diff, "a/a.go"))
	now, commit, err := apply(t, p, x, diff, from)
	require.NoError(t, err)
	assert.Equal(t, to["p.go"], now)
	paths, err := x.Lines("ls-tree", "--name-only", commit)
	require.NoError(t, err)
	assert.Equal(t, []string{"a.go", "new.go", "p.go"}, paths)

	// Each hunk is still compared with the one that it has become.
	from["p.go"] = strings.Replace(from["p.go"], "func (c *container) start", "func (c *container) run", 1)
	_, _, err = apply(t, p, x, diff, from)
	assert.ErrorContains(t, err, "a hunk of p.go is misplaced")
}

// What looks like a header in the text of a mail, or in the lines of a hunk, is none.
func TestReadHunks(t *testing.T) {
	mail := "Subject: x\n\n@@ -1 +1 @@ none\n+++ b/none.go\n\ndiff --git a/a.go b/a.go\n--- a/a.go\n+++ b/a.go\n@@ -1,2 +1,3 @@\n x\n+y\n+++ b/z\n z\n@@ -9 +10 @@ func f() {\n-x\n+y\n" +
		"\\ No newline at end of file\ndiff --git a/b.go b/b.go\n--- a/b.go\n+++ b/b.go\n@@ -3,0 +4 @@ func g() {\n+x\n"
	assert.Equal(t, map[string][]*hunk{
		"a.go": {{lines: []string{" x", "+y", "+++ b/z", " z"}}, {function: "func f() {", lines: []string{"-x", "+y"}}},
		"b.go": {{function: "func g() {", lines: []string{"+x"}}},
	}, readHunks(mail))
	assert.Empty(t, readHunks("Subject: x\n\n@@ -1 +1 @@ none\n"))
}

func TestMain(m *testing.M) {
	// The tests must not depend on the repository that they run in.
	for _, name := range []string{"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"} {
		os.Unsetenv(name)
	}
	os.Exit(m.Run())
}

// The functions are equal, so git would put each hunk into the other function, which is nearer in the fork.
func TestPlacedTwins(t *testing.T) {
	p, x := repository(t)
	file := func(comments int, cpu, memory string) map[string]string {
		body := func(limit string) string { return "\ta()\n\tb()\n\tc()\n\t" + limit + "(x)\n\td()\n\te()\n\tf()\n}\n" }
		return map[string]string{"p.go": "package p\n\n" + strings.Repeat("// about\n", comments) + "\nfunc CPU() {\n" + body(cpu) + "\nfunc Memory() {\n" + body(memory)}
	}
	diff := patchOf(t, x, file(20, "limit", "limit"), file(20, "limitCPU", "limitMemory"))
	for _, comments := range []int{20, 8, 9, 10, 11, 12, 30, 32} {
		now, _, err := apply(t, p, x, diff, file(comments, "limit", "limit"))
		if err == nil {
			assert.Equal(t, file(comments, "limitCPU", "limitMemory")["p.go"], now, "%d comments", comments)
		} else {
			assert.ErrorContains(t, err, "is misplaced", "%d comments", comments)
		}
	}
}
