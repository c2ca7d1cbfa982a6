// SPDX-License-Identifier: Apache-2.0

package series

import (
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// forTest returns the store of this repository.
func forTest(t *testing.T) Store {
	t.Helper()
	root, err := filepath.Abs("../../../..")
	require.NoError(t, err)

	return Store{Root: root, Patches: filepath.Join(root, "patches")}
}

// TestMirrorBothWays: mirroring a file to the tree and back gives the same file.
func TestMirrorBothWays(t *testing.T) {
	p := forTest(t)
	m, err := p.ReadMirror()
	require.NoError(t, err)
	require.NotEmpty(t, m.Rules)
	for _, r := range m.Rules {
		files, err := m.render(p.Root, r.Patch)
		require.NoError(t, err)
		for treePath, f := range files {
			assert.Regexp(t, `\A(//go:build .*\n\n)?/\*\nCopyright The Kubernetes Authors\.\n`, string(f.Content), treePath)
			assert.NotContains(t, string(f.Content), LibraryModule, treePath)
			rule, lib := m.Home(r.Patch, treePath)
			require.NotNil(t, rule, treePath)
			assert.Equal(t, f.Path, filepath.Join(p.Root, lib))
			want, err := os.ReadFile(f.Path)
			require.NoError(t, err)
			back, err := m.ToLibrary(rule, treePath, f.Content)
			require.NoError(t, err)
			assert.Equal(t, string(want), string(back), treePath)
		}
	}
}

func TestRules(t *testing.T) {
	r := &Rule{From: "backoff", to: "pkg/kubelet/backoff", patterns: []string{"*.go", "-doc.go", "-*_test.go", "rules_test.go"}}
	for _, name := range []string{"curve.go", "rules_test.go"} {
		assert.True(t, r.Takes(name), name)
		assert.Equal(t, path.Join("backoff", name), r.InLibrary(path.Join(r.to, name)))
	}
	for _, name := range []string{"doc.go", "curve_test.go", "notes.txt", "_curve.go", ".curve.go"} {
		assert.False(t, r.Takes(name), name)
		assert.Empty(t, r.InLibrary(path.Join(r.to, name)), name)
	}
	assert.Empty(t, r.InLibrary("pkg/kubelet/backoff/x/curve.go"))
	assert.Empty(t, r.InLibrary("pkg/kubelet/curve.go"))
}

func TestMirrorRewrites(t *testing.T) {
	const header = "/*\nCopyright YEAR The Kubernetes Authors.\n*/\n"
	m := &mirror{header: header, Rules: []*Rule{
		{From: "backoff", to: "staging/src/k8s.io/client-go/util/flowcontrol", patterns: []string{"*.go"}},
		{From: "kuberuntime", to: "pkg/kubelet/crashloop", patterns: []string{"*.go"}},
	}}
	const lib = spdx + `
//go:build linux

// Package kuberuntime decides.
package kuberuntime_test

import (
	"testing"

	"k8s.io/api/core/v1"

	kuberuntime "github.com/kubelet-backoff/kubelet-backoff/kuberuntime"
	backoff "github.com/kubelet-backoff/kubelet-backoff/backoff" // the state
)

// "github.com/kubelet-backoff/kubelet-backoff/backoff" in a comment stays.
var _ = kuberuntime.Key
`
	const tree = `//go:build linux

/*
Copyright The Kubernetes Authors.
*/

// Package kuberuntime decides.
package crashloop_test

import (
	"testing"

	"k8s.io/api/core/v1"

	backoff "k8s.io/client-go/util/flowcontrol" // the state
	kuberuntime "k8s.io/kubernetes/pkg/kubelet/crashloop"
)

// "github.com/kubelet-backoff/kubelet-backoff/backoff" in a comment stays.
var _ = kuberuntime.Key
`
	got, err := m.ToTree(m.Rules[1], "kuberuntime/key_test.go", []byte(lib))
	require.NoError(t, err)
	assert.Equal(t, tree, string(got))
	back, err := m.ToLibrary(m.Rules[1], "pkg/kubelet/crashloop/key_test.go", got)
	require.NoError(t, err)
	// gofmt sorts the imports by their new paths.
	assert.Equal(t, strings.Replace(lib, `	kuberuntime "github.com/kubelet-backoff/kubelet-backoff/kuberuntime"
	backoff "github.com/kubelet-backoff/kubelet-backoff/backoff" // the state
`, `	backoff "github.com/kubelet-backoff/kubelet-backoff/backoff" // the state
	kuberuntime "github.com/kubelet-backoff/kubelet-backoff/kuberuntime"
`, 1), string(back))

	const old = spdx + "\n//go:build linux\n// +build linux\n\npackage kuberuntime\n"
	got, err = m.ToTree(m.Rules[1], "kuberuntime/key.go", []byte(old))
	require.NoError(t, err)
	assert.Equal(t, "//go:build linux\n// +build linux\n\n"+header+"\npackage crashloop\n", strings.Replace(string(got), "Copyright The", "Copyright YEAR The", 1))
	back, err = m.ToLibrary(m.Rules[1], "pkg/kubelet/crashloop/key.go", got)
	require.NoError(t, err)
	assert.Equal(t, old, string(back))

	for src, want := range map[string]string{
		"package x\n\nimport \"" + LibraryModule + "/backoff\"\n": "line 3: give the import a name",
		"package x\n\nimport a \"" + LibraryModule + "/agent\"\n": "imports agent, which hack/mirror.txt does not mirror",
		"pakage x\n":                "is not valid Go source",
		"package x\n\nfunc f() {\n": "is not valid Go source",
	} {
		_, err := m.ToTree(m.Rules[1], "kuberuntime/x.go", []byte(src))
		assert.ErrorContains(t, err, want)
		assert.ErrorContains(t, err, "kuberuntime/x.go")
	}
	for src, want := range map[string]string{
		"package crashloop\n\nimport k \"k8s.io/kubernetes/pkg/kubelet/crashloop\"\n\nvar  x = 1\n": "would differ",
		"/*\nCopyright 2020 The Kubernetes Authors.\n*/\n\npackage crashloop\n":                     "would differ",
	} {
		_, err := m.ToLibrary(m.Rules[1], "pkg/kubelet/crashloop/x.go", []byte(src))
		assert.ErrorContains(t, err, want)
	}
}
