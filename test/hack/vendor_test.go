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

// TestVendor: with VENDOR=1 the tree imports the library from its vendor folder, at the version that the go command would give
// the commit.
func TestVendor(t *testing.T) {
	const libraryPath = "github.com/kubelet-backoff/kubelet-backoff"
	p := newProject(t).clone(t)
	vendor := func(command string, args ...string) (string, error) {
		return p.try([]string{"VENDOR=1"}, command, args...)
	}
	fails := func(want ...string) {
		t.Helper()
		before := p.snapshot(t, p.root)
		p.fails(t, []string{"VENDOR=1"}, want, "hack/patchset.sh", "apply")
		assert.Equal(t, before, p.snapshot(t, p.root))
	}
	fails(p.dir+" is not a git checkout", "VENDOR=1 vendors a commit")

	write(p.dir, map[string]string{".gitignore": "/_output/\n", "LICENSE": "a licence\n"})
	p.git(p.dir, "init", "-q")
	p.git(p.dir, "add", "-A", ".")
	p.git(p.dir, "-c", "user.name=A", "-c", "user.email=a@example.com", "commit", "-q", "-m", "all", "--date=2026-01-02T03:04:05Z")
	fails("VENDOR=1 needs a tree with vendor/modules.txt, as kubernetes' git repository has it", "go work vendor")

	const modules = "## workspace\n# example.com/a v1.0.0\n## explicit; go 1.20\nexample.com/a\n# k8s.io/klog/v2 v2.1.0\n## explicit; go 1.18\n"
	write(p.root, map[string]string{
		"vendor/modules.txt":                    modules,
		"LICENSES/vendor/example.com/a/LICENSE": "= vendor/example.com/a licensed under: =\n",
		"go.mod":                                kubernetes["go.mod"] + "\nrequire (\n\texample.com/a v1.0.0\n\tk8s.io/klog/v2 v2.1.0\n)\n\nrequire github.com/x/y v1.0.0 // indirect\n",
		"go.sum":                                "example.com/a v1.0.0/go.mod h1:x\nk8s.io/klog/v2 v2.1.0/go.mod h1:z\n",
	})
	p.git(p.root, "add", "-f", "-A", ".")
	p.git(p.root, "-c", "user.name=A", "-c", "user.email=a@example.com", "commit", "-q", "-m", "vendor")
	before := p.snapshot(t, p.root)

	out, err := vendor("make", "apply")
	require.NoError(t, err, out)
	assert.Contains(t, out, "4 commits")
	of := func(file string) string { return p.git(p.root, "show", "HEAD:"+file) + "\n" }
	commit := p.git(p.dir, "rev-parse", "HEAD")[:12]
	entry := strings.Split(of("vendor/modules.txt"), "# "+libraryPath+" ")
	require.Len(t, entry, 2)
	version := entry[1][:strings.Index(entry[1], "\n")]
	assert.Regexp(t, `^v0\.0\.0-20\d{12}-`+commit+"$", version)
	assert.Equal(t, strings.Replace(modules, "# k8s.io", "# "+libraryPath+" "+version+"\n## explicit; go 1.22.0\n"+libraryPath+"/backoff\n"+libraryPath+"/kuberuntime\n# k8s.io", 1), of("vendor/modules.txt"))
	assert.Contains(t, of("go.mod"), "require (\n\texample.com/a v1.0.0\n\t"+libraryPath+" "+version+"\n\tk8s.io/klog/v2 v2.1.0\n)\n\nrequire github.com/x/y v1.0.0 // indirect\n")
	assert.Regexp(t, "(?s)^example.com/a .*\n"+libraryPath+" "+version+" h1:[^\n]*\n"+libraryPath+" "+version+"/go.mod h1:[^\n]*\nk8s.io/klog", of("go.sum"))
	assert.Equal(t, library["kuberuntime/decide.go"], of("vendor/"+libraryPath+"/kuberuntime/decide.go"))
	assert.Equal(t, "a licence\n", of("vendor/"+libraryPath+"/LICENSE"))
	assert.Contains(t, of("LICENSES/vendor/"+libraryPath+"/LICENSE"), "= vendor/"+libraryPath+" licensed under: =\n\na licence\n\n= vendor/"+libraryPath+"/LICENSE ")
	assert.Contains(t, of("pkg/kubelet/kubelet.go"), `"`+libraryPath+`/kuberuntime"`)
	assert.NotContains(t, p.git(p.root, "grep", "-l", "", "HEAD"), "restart/decide")
	assert.NotContains(t, p.git(p.root, "ls-tree", "-r", "--name-only", "HEAD", "vendor"), "_test.go")
	assert.Empty(t, p.git(p.root, "status", "--porcelain"))

	out, err = vendor("hack/patchset.sh", "apply")
	require.NoError(t, err, out)
	assert.Contains(t, out, "Already applied")
	head := p.git(p.root, "rev-parse", "HEAD")
	p.fails(t, nil, []string{"applied with SKIP or VENDOR"}, "hack/patchset.sh", "refresh")
	// Without VENDOR it is another series.
	assert.Contains(t, p.ok(t, "hack/patchset.sh", "apply"), "3 commits")
	out, err = vendor("hack/patchset.sh", "apply")
	require.NoError(t, err, out)
	assert.Equal(t, head, p.git(p.root, "rev-parse", "HEAD"), "the same commits at any time")
	p.ok(t, "hack/patchset.sh", "reverse")
	assert.Equal(t, before, p.snapshot(t, p.root))

	// Without a patch that brings a package of the library, there is nothing to vendor.
	out, err = p.try([]string{"VENDOR=1", "SKIP=client-go-rules " + second}, "hack/patchset.sh", "apply")
	require.NoError(t, err, out)
	assert.Contains(t, out, "1 commits")
	p.ok(t, "hack/patchset.sh", "reverse")

	edit(t, filepath.Join(p.dir, "kuberuntime/decide.go"), "Decide decides", "Decide decides soon")
	fails("has changes that are not committed, and VENDOR=1 vendors a commit", "kuberuntime/decide.go")
	p.git(p.dir, "checkout", "-q", "--", ".")
	require.NoError(t, os.WriteFile(filepath.Join(p.dir, "backoff/new.go"), []byte("package backoff\n"), 0o644))
	fails("backoff/new.go")
	require.NoError(t, os.Remove(filepath.Join(p.dir, "backoff/new.go")))
	p.git(p.dir, "tag", "v0.3.0")
	out, err = vendor("hack/patchset.sh", "apply")
	require.NoError(t, err, out)
	assert.Contains(t, of("go.mod"), libraryPath+" v0.3.0\n")
}
