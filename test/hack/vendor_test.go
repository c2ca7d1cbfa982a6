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
	p.git(p.dir, "commit", "-q", "-m", "before", "--allow-empty")
	p.git(p.dir, "add", "-A", ".")
	p.git(p.dir, "commit", "-q", "-m", "all", "--date=2026-01-02T03:04:05Z")
	fails("VENDOR=1 needs a tree with vendor/modules.txt, as kubernetes' git repository has it", "go work vendor")

	const modules = "## workspace\n# example.com/a v1.0.0\n## explicit; go 1.20\nexample.com/a\n# k8s.io/klog/v2 v2.1.0\n## explicit; go 1.18\n"
	write(p.root, map[string]string{
		"vendor/modules.txt":                    modules,
		"LICENSES/vendor/example.com/a/LICENSE": "= vendor/example.com/a licensed under: =\n",
		"go.mod":                                kubernetes["go.mod"] + "\nrequire (\n\texample.com/a v1.0.0\n\tk8s.io/klog/v2 v2.1.0\n)\n\nrequire github.com/x/y v1.0.0 // indirect\n",
		"go.sum":                                "example.com/a v1.0.0/go.mod h1:x\nk8s.io/klog/v2 v2.1.0/go.mod h1:z\n",
	})
	p.git(p.root, "add", "-f", "-A", ".")
	p.git(p.root, "commit", "-q", "-m", "vendor")
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
	p.fails(t, nil, []string{"applied with SERIES, SKIP or VENDOR"}, "hack/patchset.sh", "refresh")
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
	// What git ignores is not in the commit.
	write(p.dir, map[string]string{".git/info/exclude": "ignored.go\n", "backoff/ignored.go": "package backoff\n"})

	// The version is the one that the go command gives.
	for _, tc := range []struct {
		tags [2]string // of the commit, and of the one before it
		want string
	}{
		{[2]string{"v1 v0.3 v0.3.0+x v2.0.0 next vnext", ""}, "v0.0.0-20"},
		{[2]string{"", "v0.1.5 v0.2.0 vnext v3.0.0"}, "v0.2.1-0.20"},
		{[2]string{"v0.3.0 v0.4.0-rc.1", "v0.5.0"}, "v0.4.0-rc.1\n"},
	} {
		for i, at := range []string{"HEAD", "HEAD~1"} {
			for _, tag := range strings.Fields(tc.tags[i]) {
				p.git(p.dir, "tag", tag, at)
			}
		}
		out, err = vendor("hack/patchset.sh", "apply")
		require.NoError(t, err, out)
		assert.Contains(t, of("go.mod"), libraryPath+" "+tc.want)
		assert.NotContains(t, p.git(p.root, "ls-tree", "-r", "--name-only", "HEAD", "vendor"), "ignored.go")
		p.ok(t, "hack/patchset.sh", "reverse")
		for _, tag := range strings.Fields(tc.tags[0] + " " + tc.tags[1]) {
			p.git(p.dir, "tag", "-d", tag)
		}
	}

	// In a worktree, .git is a file.
	worktree := p
	worktree.dir = filepath.Join(t.TempDir(), "worktree")
	p.git(p.dir, "worktree", "add", "-q", worktree.dir, "HEAD")
	out, err = worktree.try([]string{"VENDOR=1"}, "hack/patchset.sh", "apply")
	require.NoError(t, err, out)
	assert.Contains(t, of("go.mod"), libraryPath+" v0.0.0-20")
	require.NoError(t, os.Chmod(filepath.Join(p.root, "pkg/kubelet/kubelet.go"), 0o755))
	p.git(p.root, "commit", "-qam", "mine")
	p.fails(t, []string{"VENDOR=1"}, []string{"applied with SERIES, SKIP or VENDOR", "git branch mine"}, "hack/patchset.sh", "refresh")
	p.fails(t, []string{"VENDOR=maybe"}, []string{`VENDOR="maybe" must be 1 or 0`}, "hack/patchset.sh", "apply")
	p.fails(t, []string{"VENDOR=1"}, []string{"export takes no VENDOR"}, "hack/patchset.sh", "export")
	out, err = vendor("hack/patchset.sh", "verify", "--no-build")
	require.NoError(t, err, out)
	assert.Contains(t, out, "SERIES, SKIP and VENDOR are only for apply")
	p.ok(t, "hack/patchset.sh", "reverse", "--force")

	// What a fork has otherwise stays.
	write(p.root, map[string]string{"pkg/kubelet/kubelet.go": read(filepath.Join(p.root, "pkg/kubelet/kubelet.go")) + "\nvar  mine  =  1\n"})
	edit(t, filepath.Join(p.root, "go.mod"), "require (\n", "replace k8s.io/api => ./staging/src/k8s.io/api\n\nrequire (\n\tk8s.io/api v0.0.0\n")
	edit(t, filepath.Join(p.root, "vendor/modules.txt"), "# k8s.io", "# k8s.io/api v0.0.0 => ./staging/src/k8s.io/api\n## explicit; go 1.22.0\n# k8s.io")
	require.NoError(t, os.Chmod(filepath.Join(p.root, "go.mod"), 0o755))
	p.git(p.root, "commit", "-qam", "fork")
	edit(t, filepath.Join(p.dir, "go.mod"), "\ngo ", "\nrequire k8s.io/api v0.31.0\n\ngo ")
	p.git(p.dir, "commit", "-qam", "newer")
	out, err = vendor("hack/patchset.sh", "apply")
	require.NoError(t, err, out)
	assert.Contains(t, of("pkg/kubelet/kubelet.go"), "var  mine  =  1\n")
	assert.Contains(t, of("go.mod"), "k8s.io/api v0.31.0\n")
	const staging = " => ./staging/src/k8s.io/api\n## explicit; go 1.22.0\n"
	assert.Contains(t, of("vendor/modules.txt"), "example.com/a\n# github.com/kubelet-backoff")
	assert.NotContains(t, of("vendor/modules.txt"), "k8s.io/api v0.0.0")
	assert.Contains(t, of("vendor/modules.txt"), "# k8s.io/api v0.31.0"+staging+"# k8s.io/klog")
	p.ok(t, "hack/patchset.sh", "reverse")
	// Another module of the workspace still requires the old version.
	write(p.root, map[string]string{"staging/src/k8s.io/other/go.mod": "module k8s.io/other\n\nrequire k8s.io/api v0.0.0\n"})
	p.git(p.root, "add", "-f", "staging")
	p.git(p.root, "commit", "-qm", "other")
	out, err = vendor("hack/patchset.sh", "apply")
	require.NoError(t, err, out)
	assert.Contains(t, of("vendor/modules.txt"), "# k8s.io/api v0.0.0"+staging+"# k8s.io/api v0.31.0"+staging+"# k8s.io/klog")
	assert.Contains(t, p.git(p.root, "ls-tree", "HEAD", "go.mod"), "100755 ")
	p.ok(t, "hack/patchset.sh", "reverse")

	for _, tc := range []struct{ file, old, new, want string }{
		{"vendor/modules.txt", "# example.com/a", "# " + libraryPath + " v0.0.1\n# example.com/a", `vendor/modules.txt has "# ` + libraryPath + ` v0.0.1" already`},
		{"go.mod", "require (\n", "replace " + libraryPath + " => ../mine\n\nrequire (\n", "go.mod replaces " + libraryPath + " by ../mine"},
		{"go.mod", "replace k8s.io/api => ./staging/src/k8s.io/api\n", "", "go.mod requires k8s.io/api v0.0.0, and the library needs v0.31.0"},
	} {
		edit(t, filepath.Join(p.root, tc.file), tc.old, tc.new)
		p.git(p.root, "commit", "-qam", "fork")
		fails(tc.want)
		p.git(p.root, "reset", "-q", "--hard", "HEAD~1")
	}
}
