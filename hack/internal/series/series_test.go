// SPDX-License-Identifier: Apache-2.0

package series

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubelet-backoff/kubelet-backoff/hack/internal/git"
)

const (
	header  = "/*\nCopyright YEAR The Kubernetes Authors.\n*/\n"
	mirror  = "# comment\nrules backoff staging/src/k8s.io/client-go/util/backoff *.go -*_test.go\ndecide agent/kuberuntime pkg/kubelet/kuberuntime decide.go\n"
	mail    = "From: A <a@example.com>\nDate: Fri, 20 Nov 2026 12:00:00 +0100\nSubject: [PATCH] x\n\nWhy.\n\nSeries: core\nDepends-On: none\n---\n"
	library = `"github.com/kubelet-backoff/kubelet-backoff/`
)

// store is a repository with a library and two series: the older one inherits all but BASE and series.
func store(t *testing.T, files map[string]string) Store {
	t.Helper()
	g, err := git.New(t.Context())
	require.NoError(t, err)
	p := Store{Root: filepath.Join(t.TempDir(), "a [path] with spaces"), Git: g}
	all := map[string]string{
		"hack/mirror.txt": mirror, "hack/header.go.txt": header, "agent/go.mod": "module agent\n", "backoff/rules.go": "package backoff\n",
		"patches/v1.9/BASE": "tag: v1.9.3\n", "patches/v1.9/series": "rules\ndecide\n",
		"patches/v1.10/BASE": "# comment\ntag: v1.10.1\napplies: v1.10.0 v1.10.2\nvendor: yes\n", "patches/v1.10/series": "rules\n# decide\n# late\n",
		"patches/v1.10/rules.patch": mail, "patches/v1.10/decide.patch": strings.Replace(mail, "On: none", "On: rules", 1),
	}
	maps.Copy(all, files)
	for name, content := range all {
		file := filepath.Join(p.Root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o777))
		require.NoError(t, os.WriteFile(file, []byte(content), 0o666))
	}
	return p
}

func names(s *Series) (names []string) {
	for _, q := range s.Patches {
		names = append(names, q.Name)
	}
	return names
}

func TestLoad(t *testing.T) {
	p := store(t, nil)
	all, err := p.LoadAll()
	require.NoError(t, err)
	require.Len(t, all, 2)
	newer, older := all[0], all[1]
	assert.Equal(t, []any{"v1.10", "v1.10.1", []string{"v1.10.0", "v1.10.2"}, true}, []any{newer.Name, newer.Tag, newer.Applies, newer.Vendor})
	assert.Equal(t, []string{"rules"}, names(newer))
	assert.Equal(t, []string{"decide"}, newer.Dropped, "late has no file")
	assert.Equal(t, []any{"v1.9", "v1.9.3", false}, []any{older.Name, older.Tag, older.Vendor})
	assert.Equal(t, []string{"rules", "decide"}, names(older))
	q := older.Patches[1]
	assert.Equal(t, filepath.Join(p.Root, "patches/v1.10/decide.patch"), q.File)
	assert.Equal(t, []any{2, "x", "rules", ""}, []any{q.Number, q.Subject(), q.Trailer("Depends-On"), q.Trailer("Depends")})
}

func TestPick(t *testing.T) {
	of := func(part string) string { return strings.Replace(mail, "Series: core", "Series: "+part, 1) }
	p := store(t, map[string]string{
		"patches/v1.9/cost.patch": of(Cost), "patches/v1.9/asked.patch": of(Asked), "patches/v1.9/series": "rules\ndecide\ncost\nasked\n",
	})
	for name, tc := range map[string]struct {
		pick  Pick
		names []string
		error string
	}{
		"default":  {Pick{}, []string{"rules", "decide", "cost"}, ""},
		"all":      {Pick{Parts: Everything}, []string{"rules", "decide", "cost", "asked"}, ""},
		"asked":    {Pick{Parts: "core asked"}, []string{"rules", "decide", "asked"}, ""},
		"core":     {Pick{Parts: Core}, []string{"rules", "decide"}, ""},
		"cost":     {Pick{Parts: Cost}, []string{"cost"}, ""},
		"both":     {Pick{Parts: "core,cost"}, []string{"rules", "decide", "cost"}, ""},
		"names":    {Pick{Skip: "decide, cost"}, []string{"rules"}, ""},
		"mixed":    {Pick{Parts: Core, Skip: "decide"}, []string{"rules"}, ""},
		"no patch": {Pick{Skip: "late"}, nil, `SKIP="late": v1.9 has no patch late. Its patches are rules decide cost asked`},
		"no part":  {Pick{Parts: "rules"}, nil, `there is no "rules", only core, cost, asked and all`},
	} {
		s, err := p.Load(filepath.Join(p.Root, "patches/v1.9"), tc.pick)
		if tc.error != "" {
			assert.ErrorContains(t, err, tc.error, name)
			continue
		}
		require.NoError(t, err, name)
		assert.Equal(t, tc.names, names(s), name)
		assert.Len(t, s.Skipped, 4-len(tc.names), name)
	}
}

func TestDependencies(t *testing.T) {
	on := func(names string) string { return strings.Replace(mail, "On: none", "On: "+names, 1) }
	p := store(t, map[string]string{"patches/v1.9/series": "rules\ndecide\nlate\nlast\n", "patches/v1.9/late.patch": on("rules, decide"), "patches/v1.9/last.patch": on("none")})
	check := func(skip string) error {
		s, err := p.Load(filepath.Join(p.Root, "patches/v1.9"), Pick{Skip: skip})
		require.NoError(t, err)
		return s.CheckDependencies()
	}
	assert.NoError(t, check(""))
	assert.NoError(t, check("decide late"))
	assert.EqualError(t, check("decide"), "late depends on decide, which the series does not have before it\nLeave out as well: late")
	assert.ErrorContains(t, check("rules"), "Leave out as well: decide late")
}

// What is wrong in a file is named with the file.
func TestLoadErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		file, content string
		words         []string
	}{
		"another key":          {"patches/v1.9/BASE", "tag: v1.9.3\napply: v1.9.2\n", []string{"patches/v1.9/BASE", `"apply: v1.9.2" must be`}},
		"another minor":        {"patches/v1.9/BASE", "tag: v1.10.3\n", []string{`"tag: v1.10.3" must be`}},
		"other applies":        {"patches/v1.9/BASE", "tag: v1.9.3\napplies: v1.9.2 v1.8.1\n", []string{"v1.8.1", "must be"}},
		"no tag":               {"patches/v1.9/BASE", "vendor: yes\n", []string{`must have a line such as "tag: v1.9.1"`}},
		"no patch":             {"patches/v1.9/series", "rules\nnobody\n", []string{`"nobody", but neither`, "has nobody.patch"}},
		"a patch twice":        {"patches/v1.9/series", "rules\nrules\n", []string{`names "rules" twice`}},
		"other folders":        {"hack/mirror.txt", "rules backoff pkg/other *.go\n", []string{"hack/mirror.txt", "same last element"}},
		"no pattern":           {"hack/mirror.txt", "rules backoff pkg/backoff\n", []string{"must be"}},
		"a file twice":         {"patches/_src/rules/staging/src/k8s.io/client-go/util/backoff/rules.go", "package backoff\n", []string{"are both staging/src/k8s.io/client-go/util/backoff/rules.go in the tree"}},
		"CR LF":                {"patches/v1.9/_src/rules/x.txt", "a\r\nb\n", []string{"x.txt must be a regular text file"}},
		"no LF at the end":     {"patches/_src/rules/x.txt", "a", []string{"x.txt must be a regular text file"}},
		"NUL":                  {"patches/_src/rules/x.txt", "\x00\n", []string{"x.txt must be a regular text file"}},
		"no Go":                {"backoff/rules.go", "package\n", []string{"backoff/rules.go is not valid Go source"}},
		"an unknown import":    {"backoff/rules.go", "package backoff\n\nimport _ " + library + "other\"\n", []string{"backoff/rules.go imports other, which hack/mirror.txt does not copy"}},
		"a diff that is wrong": {"patches/v1.9/rules.patch", mail + "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,5 +1 @@\n x\n", []string{"patches/v1.9/rules.patch", "corrupt patch"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := store(t, map[string]string{tc.file: tc.content})
			_, err := p.LoadAll()
			for _, words := range tc.words {
				assert.ErrorContains(t, err, words)
			}
		})
	}
	p := store(t, nil)
	require.NoError(t, os.MkdirAll(filepath.Join(p.Root, "patches/_src/rules"), 0o777))
	require.NoError(t, os.Symlink("/dev/null", filepath.Join(p.Root, "patches/_src/rules/link")))
	_, err := p.LoadAll()
	assert.ErrorContains(t, err, "link must be a regular text file")
}

// A file is that of the series, of the next newer one that has it, or of patches/_src.
func TestFilesOf(t *testing.T) {
	p := store(t, map[string]string{
		"patches/_src/rules/a.txt": "1\n", "patches/_src/rules/b/b.txt": "1\n", "patches/_src/rules/c.txt": "1\n", "patches/_src/decide/d.txt": "1\n",
		"patches/v1.10/_src/rules/a.txt": "2\n", "patches/v1.10/_src/rules/b/b.txt": "2\n", "patches/v1.9/_src/rules/a.txt": "3\n", "patches/v1.8/_src/rules/c.txt": "4\n",
		"patches/_src/rules/a.txt~": "", "patches/_src/rules/.hidden": "", "patches/_src/rules/c.txt.orig": "", "patches/_src/rules/c.txt.rej": "",
		"backoff/rules_test.go": "package backoff\n", "agent/kuberuntime/decide.go": "package kuberuntime\n", "agent/kuberuntime/other.go": "package kuberuntime\n",
	})
	all, err := p.LoadAll()
	require.NoError(t, err)
	const ours = "staging/src/k8s.io/client-go/util/backoff/rules.go"
	content := func(q *Patch) map[string]string {
		of := map[string]string{}
		for path, f := range q.Files {
			of[path] = string(f.Content)
		}
		return of
	}
	assert.Equal(t, map[string]string{ours: "package backoff\n", "a.txt": "2\n", "b/b.txt": "2\n", "c.txt": "1\n"}, content(all[0].Patches[0]))
	assert.Equal(t, map[string]string{ours: "package backoff\n", "a.txt": "3\n", "b/b.txt": "2\n", "c.txt": "1\n"}, content(all[1].Patches[0]))
	assert.Equal(t, []string{"d.txt", "pkg/kubelet/kuberuntime/decide.go"}, slices.Sorted(maps.Keys(all[1].Patches[1].Files)))
}

func TestRender(t *testing.T) {
	const license = "/*\nCopyright The Kubernetes Authors.\n*/\n\n"
	for name, tc := range map[string]struct{ source, want string }{
		"header":     {spdx + "package p\n", license + "package p\n"},
		"no header":  {"// Package p is p.\npackage p\n", "// Package p is p.\npackage p\n"},
		"constraint": {spdx + "//go:build linux\n\npackage p\n", "//go:build linux\n\n" + license + "package p\n"},
		"an import":  {"package p\n\nimport " + library + "backoff\"\n", "package p\n\nimport \"k8s.io/client-go/util/backoff\"\n"},
		"imports, in order again": {"package p\n\nimport (\n\t\"fmt\"\n\n\tx " + library + "agent/kuberuntime\"\n\t" + library + "backoff\"\n\t\"k8s.io/a\"\n)\n",
			"package p\n\nimport (\n\t\"fmt\"\n\n\t\"k8s.io/a\"\n\t\"k8s.io/client-go/util/backoff\"\n\tx \"k8s.io/kubernetes/pkg/kubelet/kuberuntime\"\n)\n"},
		"not ours":      {"package p\n\nimport \"github.com/kubelet-backoff/kubelet-backoff-x\"\n", "package p\n\nimport \"github.com/kubelet-backoff/kubelet-backoff-x\"\n"},
		"in the header": {spdx + "// Copyright YEAR is ours.\npackage p\n", license + "// Copyright YEAR is ours.\npackage p\n"},
	} {
		t.Run(name, func(t *testing.T) {
			p := store(t, map[string]string{"backoff/rules.go": tc.source})
			rules, err := p.readMirror()
			require.NoError(t, err)
			out, err := p.render(rules, filepath.Join(p.Root, "backoff/rules.go"))
			require.NoError(t, err)
			assert.Equal(t, tc.want, string(out))
		})
	}
}

func TestSame(t *testing.T) {
	const patch = "From: A <a@example.com>\nDate: Fri, 20 Nov 2026 12:00:00 +0100\nSubject: x\n\n@@ -1,2 +1,3 @@ is no hunk\n---\ndiff --git a/x b/x\nindex 1111111..2222222 100644\n" +
		"--- a/x\n+++ b/x\n@@ -1,2 +1,3 @@ func a() {\n x\n+y\n+// Date: 1\n+// index 1\n"
	for name, tc := range map[string]struct {
		old, new string
		same     bool
	}{
		"itself":       {"", "", true},
		"the date":     {"20 Nov", "21 Nov", true},
		"the blobs":    {"2222222 100644", "2222223 100644", true},
		"line numbers": {"@@ -1,2 +1,3 @@ func", "@@ -11,2 +21,3 @@ func", true},
		"the function": {"func a", "func b", false},
		"a line":       {"+y", "+z", false},
		"another date": {"+// Date: 1", "+// Date: 2", false},
		"an index":     {"+// index 1", "+// index 2", false},
		"the author":   {"A <", "B <", false},
		"the subject":  {"Subject: x", "Subject: y", false},
		"the text":     {"is no hunk", "is a hunk", false},
		"the path":     {"b/x", "b/y", false},
	} {
		require.Contains(t, patch, tc.old)
		assert.Equal(t, tc.same, Same(patch, strings.Replace(patch, tc.old, tc.new, 1)), name)
	}
}

func TestPackages(t *testing.T) {
	for file, want := range map[string][]string{
		"pkg/kubelet/kubelet.go":                          {"./pkg/kubelet"},
		"staging/src/k8s.io/api/core/v1/types.go":         {"k8s.io/api/core/v1"},
		"pkg/kubelet/testdata/a/b.yaml":                   {"./pkg/kubelet"},
		"staging/src/k8s.io/api/testdata/HEAD/a.json":     {"k8s.io/api"},
		"staging/src/k8s.io/api/core/v1/generated.proto":  nil,
		"api/openapi-spec/swagger.json":                   nil,
		"test/e2e_node/testdata.go":                       {"./test/e2e_node"},
		"staging/src/k8s.io/api/core/v1/testdata_test.go": {"k8s.io/api/core/v1"},
	} {
		assert.Equal(t, want, Packages(&Patch{Hunks: map[string]int{file: 1}}), file)
		assert.Equal(t, want, Packages(&Patch{Files: map[string]Source{file: {}}}), file)
	}
	assert.Equal(t, []string{"./a", "./b"}, Packages(&Patch{Hunks: map[string]int{"b/x.go": 1, "a/x.go": 1}}, &Patch{Files: map[string]Source{"a/y.go": {}}}))
}

func TestRelease(t *testing.T) {
	for text, want := range map[string]string{
		"v1.37.1": "v1.37.1", "1.37.1": "v1.37.1", "v1.38.0-beta.0": "v1.38.0-beta.0", "1.38.0-rc.1": "v1.38.0-rc.1",
		"": "", "v": "", "v1.37": "", "vv1.37.1": "", "v2.0.0": "", "v1.037.1": "", "v1.37.1-x": "", "v1.37.1 ": "", "v1.37.1\n": "", "x v1.37.1": "", "v1.38.0-beta": "",
	} {
		got, err := Release(text)
		assert.Equal(t, want, got, text)
		assert.Equal(t, want == "", err != nil, text)
	}
}

func TestTrailer(t *testing.T) {
	for text, want := range map[string]string{
		"x\n\nDepends-On: a, b\nSeries: core":    "a, b",
		"x\n\nDepends-On:a":                      "a",
		"x\n\nDepends-On: a,\n b\nSeries: core":  "a,\n b",
		"x\n\nDepends-On: none\n\nDepends-On: a": "a",
		"x\n\nNot-Depends-On: a":                 "",
	} {
		q := &Patch{Text: text}
		assert.Equal(t, want, q.Trailer("Depends-On"), text)
	}
}
