// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kubelet-backoff/kubelet-backoff/hack/internal/series"
)

func TestCodeDigest(t *testing.T) {
	const mail = `From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001
Subject: [PATCH] kubelet: wait

It waits.
---
 pkg/a.go | 3 +++

diff --git a/pkg/a.go b/pkg/a.go
index 1111111..2222222 100644
--- a/pkg/a.go
+++ b/pkg/a.go
@@ -10,2 +10,5 @@ func a() {
 // Theirs.
+// Ours.
+	wait() // why
+//go:noinline
 }
diff --git a/b.yaml b/b.yaml
index 3333333..4444444 100644
--- a/b.yaml
+++ b/b.yaml
@@ -1 +1,2 @@
 a: 1
+// b
`
	const golang = "// Package p waits.\npackage p\n\n// +optional\nvar a = `// raw`\n"
	digest := func(mail, content string) string {
		q := &series.Patch{Name: "a", Mail: mail, Files: map[string]series.Source{"pkg/c.go": {Content: []byte(content)}}}
		return codeDigest(&series.Series{Patches: []*series.Patch{q}})
	}
	want := digest(mail, golang)
	for _, tc := range []struct {
		name, of, old, new string
		same               bool
	}{
		{"the message", mail, "It waits.", "It also waits.", true},
		{"a comment in a hunk", mail, "+// Ours.\n", "+// Also\n+// ours.\n+\n", true},
		{"how many lines a hunk has", mail, "+10,5 @@ func a() {", "+10,7 @@ func b() {", true},
		{"the blobs", mail, "2222222", "5555555", true},
		{"a comment in a new file", golang, "// Package p waits.\n", "// Package p\n//\n//\twaits.\n\n", true},
		{"a line of a hunk", mail, "+	wait()", "+	stay()", false},
		{"the place of a hunk", mail, "-10,2", "-20,2", false},
		{"a directive in a hunk", mail, "+//go:noinline\n", "", false},
		{"a file that is no Go", mail, "+// b", "+// c", false},
		{"another file", mail, "pkg/a.go", "pkg/b.go", false},
		{"a line of a new file", golang, "var a", "var b", false},
		{"a marker", golang, "+optional", "+required", false},
		{"what looks like a comment in a string", golang, "// raw", "// row", false},
		{"what an example prints", golang + "\nfunc ExampleA() {\n\t// Output: 1\n}\n", "Output: 1", "Output: 2", false},
		{"a comment in what does not parse", golang + "`\n// c\n", "// c", "// d", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if !assert.Contains(t, tc.of, tc.old) {
				return
			}
			changed := strings.ReplaceAll(tc.of, tc.old, tc.new)
			before, after := want, digest(changed, golang)
			if !strings.HasPrefix(tc.of, "From ") {
				before, after = digest(mail, tc.of), digest(mail, changed)
			}
			assert.Equal(t, tc.same, before == after)
		})
	}
}
