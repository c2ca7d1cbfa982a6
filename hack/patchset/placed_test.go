// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/series"
)

const twoFunctions = `package p

func (s *sandbox) start() {
	if a {
	}

	b()
}

func (c *container) start() {
	if a {
	}

	b()
}

// last is the last variable.
var last int
`

// A hunk with few lines fits many places, and git takes the nearest. A hunk in another function is an error.
func TestRequirePlaced(t *testing.T) {
	inContainer := "@@ -12,2 +12,3 @@ func (c *container) start() {\n \t}\n+\tdefer end()\n \n"
	topLevel := "@@ -16,2 +16,4 @@ func (c *container) start() {\n }\n \n+var first int\n+\n // last is the last variable.\n"
	for name, tc := range map[string]struct {
		fork  func(string) string
		hunk  string
		at    int // where git put it
		error []string
	}{
		"in place":                   {nil, inContainer, 12, nil},
		"in place, after more lines": {func(s string) string { return strings.Replace(s, "\n", strings.Repeat("\n// fork", 100)+"\n", 1) }, inContainer, 112, nil},
		"in place, another signature": {func(s string) string {
			return strings.Replace(s, "container) start()", "container) start(n int) error", 1)
		}, inContainer, 12, nil},
		"in the other function": {nil, inContainer, 5, []string{"0001-x.patch: a hunk of p.go is misplaced: @@ -12,2 +12,3 @@", `made for "func (c *container) start() {"`, `line 5, in "func (s *sandbox) start() {"`, "git am -3"}},
		"the function is gone":  {func(s string) string { return strings.Replace(s, "(c *container) start", "(c *container) run", 1) }, inContainer, 12, []string{"misplaced", "(c *container) run"}},
		"between functions, after one of the fork": {func(s string) string { return strings.Replace(s, "// last", "func fork() {\n}\n\n// last", 1) },
			topLevel, 18, nil},
		"between functions, and it fits two places": {func(s string) string {
			return strings.Replace(s, "// last", "func fork() {\n}\n\n// last is the last variable.\n\n// last", 1)
		}, strings.ReplaceAll(topLevel, " // last is the last variable.\n", ""), 18, []string{"misplaced", "func fork() {"}},
		"in a copy in a comment": {func(s string) string {
			return strings.Replace(s, "func (c", "/* before:\nfunc (c *container) start() {\n\tif a {\n\t}\n\n\tb()\n}\n*/\n\nfunc (c", 1)
		}, inContainer, 13, []string{"misplaced", `line 13, in "/* before:"`}},
		"in a copy in a comment after the function": {func(s string) string {
			return strings.Replace(s, "// last", "/*\nfunc (c *container) start() {\n\tif a {\n\t}\n\n\tb()\n}\n*/\n\n// last", 1)
		}, inContainer, 21, []string{"misplaced", `line 21, in "/*"`}},
		"after a comment in the function": {func(s string) string {
			return strings.Replace(s, "container) start() {\n", "container) start() {\n\t/*\nfunc (c *container) stop() {\n\t*/\n", 1)
		}, inContainer, 15, nil},
		"after a label": {func(s string) string {
			return strings.Replace(s, "container) start() {\n", "container) start() {\nagain:\n", 1)
		}, inContainer, 13, nil},
		"after a raw string": {func(s string) string {
			return strings.Replace(s, "container) start() {\n", "container) start() {\n\tc(`\nvar x\n`)\n", 1)
		}, inContainer, 15, nil},
		"the file is no Go code": {func(s string) string { return s + "}\n" }, inContainer, 12, nil},
		"the file becomes empty": {func(string) string { return "" }, "@@ -1,2 +0,0 @@\n-a\n-b\n", 0, nil},
		"in one of two functions of that name": {func(s string) string {
			return strings.NewReplacer("func (s *sandbox) start()", "func init()", "func (c *container) start()", "func init()").Replace(s)
		}, strings.ReplaceAll(inContainer, "func (c *container) start()", "func init()"), 12, []string{"misplaced", "func init()"}},
		"in the only place of two functions of that name": {func(s string) string {
			return strings.NewReplacer("func (s *sandbox) start() {\n\tif a {\n\t}\n", "func init() {\n", "func (c *container) start()", "func init()").Replace(s)
		}, strings.ReplaceAll(inContainer, "func (c *container) start()", "func init()"), 10, nil},
	} {
		t.Run(name, func(t *testing.T) {
			before := twoFunctions
			if tc.fork != nil {
				before = tc.fork(before)
			}
			mail := "Subject: x\n\ndiff --git a/gone.go b/gone.go\n--- a/gone.go\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\ndiff --git a/p.go b/p.go\n--- a/p.go\n+++ b/p.go\n" + tc.hunk
			hunks := readHunks(mail, "Checking patch gone.go...\nChecking patch p.go...\n")
			require.Len(t, hunks, 1)
			hunks[0].at = tc.at
			// The line of the hunk decides; what is below it does not matter.
			err := requirePlaced(&series.Patch{File: "0001-x.patch"}, hunks, map[string]string{"p.go": before}, map[string]string{"p.go": before})
			if tc.error == nil {
				require.NoError(t, err)
				return
			}
			for _, words := range tc.error {
				assert.ErrorContains(t, err, words)
			}
		})
	}
}

func TestReadHunks(t *testing.T) {
	mail := "Subject: x\n\ndiff --git a/a.go b/a.go\n--- a/a.go\n+++ b/a.go\n@@ -1,2 +1,3 @@\n x\n+y\n z\n@@ -9 +10 @@ func f() {\n-x\n+y\n" +
		"diff --git a/b.go b/b.go\n--- a/b.go\n+++ b/b.go\n@@ -3,0 +4 @@ func g() {\n+x\n"
	hunks := readHunks(mail, "Checking patch a.go...\nHunk #2 succeeded at 33 (offset 23 lines).\nChecking patch b.go...\nHunk #1 succeeded at 5 (offset 1 line).\n")
	var at []int
	for _, h := range hunks {
		at = append(at, h.at)
	}
	assert.Equal(t, []int{1, 33, 5}, at)
	assert.Equal(t, []string{" x", "+y", " z"}, hunks[0].lines)
	assert.Equal(t, "b.go", hunks[2].path)
}
