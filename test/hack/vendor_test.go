// SPDX-License-Identifier: Apache-2.0

package hack

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	libraryPath = "github.com/kubelet-backoff/kubelet-backoff"
	modules     = "## workspace\n# example.com/a v1.0.0\n## explicit; go 1.20\nexample.com/a\n# k8s.io/klog/v2 v2.1.0\n## explicit; go 1.18\n"
)

var vendor = []string{"VENDOR=1"}

// vendored is a project that is a git checkout, and as KUBE_ROOT a clone that has a vendor folder.
func vendored(t *testing.T) project {
	t.Helper()
	p := newProject(t).clone(t)
	p.git(p.dir, "init", "-q")
	p.git(p.dir, "commit", "-q", "-m", "before", "--allow-empty")
	p.git(p.dir, "add", "-A", ".")
	p.git(p.dir, "commit", "-q", "-m", "all", "--date=2026-01-02T03:04:05Z")
	write(p.root, map[string]string{
		"vendor/modules.txt":                    modules,
		"LICENSES/vendor/example.com/a/LICENSE": "= vendor/example.com/a licensed under: =\n",
		"go.mod":                                kubernetes["go.mod"] + "\nrequire (\n\texample.com/a v1.0.0\n\tk8s.io/klog/v2 v2.1.0\n)\n\nrequire github.com/x/y v1.0.0 // indirect\n",
		"go.sum":                                "example.com/a v1.0.0/go.mod h1:x\nk8s.io/klog/v2 v2.1.0/go.mod h1:z\n",
	})
	p.git(p.root, "add", "-f", "-A", ".")
	p.git(p.root, "commit", "-q", "-m", "vendor")
	return p
}

// of is a file of the commit that is checked out in the tree.
func (p project) of(file string) string { return p.git(p.root, "show", "HEAD:"+file) + "\n" }

// TestVendor: with VENDOR=1 the tree imports the library from its vendor folder.
func TestVendor(t *testing.T) {
	p := vendored(t)
	before := p.snapshot(t, p.root)
	assert.Contains(t, p.with(t, vendor, "make", "apply"), "4 commits")
	version := regexp.MustCompile(`# ` + libraryPath + ` (.*)`).FindStringSubmatch(p.of("vendor/modules.txt"))[1]
	assert.Regexp(t, `^v0\.0\.0-20\d{12}-`+p.git(p.dir, "rev-parse", "HEAD")[:12]+"$", version)
	assert.Equal(t, strings.Replace(modules, "# k8s.io", "# "+libraryPath+" "+version+"\n## explicit; go 1.22.0\n"+libraryPath+"/backoff\n"+libraryPath+"/kuberuntime\n# k8s.io", 1), p.of("vendor/modules.txt"))
	assert.Contains(t, p.of("go.mod"), "require (\n\texample.com/a v1.0.0\n\t"+libraryPath+" "+version+"\n\tk8s.io/klog/v2 v2.1.0\n)\n\nrequire github.com/x/y v1.0.0 // indirect\n")
	assert.Regexp(t, "(?s)^example.com/a .*\n"+libraryPath+" "+version+" h1:[^\n]*\n"+libraryPath+" "+version+"/go.mod h1:[^\n]*\nk8s.io/klog", p.of("go.sum"))
	assert.Equal(t, library["kuberuntime/decide.go"], p.of("vendor/"+libraryPath+"/kuberuntime/decide.go"))
	assert.Equal(t, "a licence\n", p.of("vendor/"+libraryPath+"/LICENSE"))
	assert.Contains(t, p.of("LICENSES/vendor/"+libraryPath+"/LICENSE"), "= vendor/"+libraryPath+" licensed under: =\n\na licence\n\n= vendor/"+libraryPath+"/LICENSE ")
	assert.Contains(t, p.of(kubelet), `"`+libraryPath+`/kuberuntime"`)
	assert.NotContains(t, p.git(p.root, "ls-tree", "-r", "--name-only", "HEAD"), "\n"+decided)
	assert.NotContains(t, p.git(p.root, "ls-tree", "-r", "--name-only", "HEAD", "vendor"), "_test.go")
	assert.Empty(t, p.git(p.root, "status", "--porcelain"))

	assert.Contains(t, p.with(t, vendor, "hack/patchset.sh", "apply"), "Already applied")
	head := p.git(p.root, "rev-parse", "HEAD")
	// Without VENDOR it is another series.
	assert.Contains(t, p.patchset(t, "apply"), "3 commits")
	p.with(t, vendor, "hack/patchset.sh", "apply")
	assert.Equal(t, head, p.git(p.root, "rev-parse", "HEAD"), "the same commits at any time")
	p.refuses(t, vendor, []string{"refresh takes no SERIES, SKIP or VENDOR"}, "refresh")
	p.refuses(t, nil, []string{"was applied with SERIES, SKIP or VENDOR"}, "refresh") // The last commit has no patch.
	p.patchset(t, "reverse")
	assert.Equal(t, before, p.snapshot(t, p.root))
	// Without a patch that brings a package of the library, there is nothing to vendor.
	assert.Contains(t, p.with(t, []string{"VENDOR=1", "SKIP=rules decide"}, "hack/patchset.sh", "apply"), "1 commits")
	p.patchset(t, "reverse")
	assert.Equal(t, before, p.snapshot(t, p.root))
}

// TestVendorRefuses: a library that is not committed, and a tree that cannot take it.
func TestVendorRefuses(t *testing.T) {
	p := vendored(t)
	inTree := func(file, old, new string) func() {
		return func() {
			edit(t, filepath.Join(p.root, file), old, new)
			p.git(p.root, "commit", "-qam", "fork")
		}
	}
	for name, tc := range map[string]struct {
		do    func()
		words []string
	}{
		"an edited file": {func() {
			edit(t, filepath.Join(p.dir, "kuberuntime/decide.go"), "Decide decides", "Decide decides soon")
		},
			[]string{"has changes that are not committed, and VENDOR=1 vendors a commit", "kuberuntime/decide.go"}},
		"a new file": {func() { write(p.dir, map[string]string{"backoff/new.go": "package backoff\n"}) }, []string{"backoff/new.go"}},
		"no vendor folder": {func() {
			p.git(p.root, "rm", "-q", "vendor/modules.txt")
			p.git(p.root, "commit", "-qm", "fork")
		}, []string{"VENDOR=1 needs a tree with vendor/modules.txt, as kubernetes' git repository has it", "go work vendor"}},
		"vendored already": {inTree("vendor/modules.txt", "# example.com/a", "# "+libraryPath+" v0.0.1\n# example.com/a"), []string{`vendor/modules.txt has "# ` + libraryPath + ` v0.0.1" already`}},
		"replaced":         {inTree("go.mod", "require (\n", "replace "+libraryPath+" => ../mine\n\nrequire (\n"), []string{"go.mod replaces " + libraryPath + " by ../mine"}},
		"an old module": {func() {
			edit(t, filepath.Join(p.dir, "go.mod"), "\ngo ", "\nrequire example.com/a v1.2.0\n\ngo ")
			p.git(p.dir, "commit", "-qam", "newer")
		}, []string{"go.mod requires example.com/a v1.0.0, and the library needs v1.2.0"}},
		"no git checkout": {func() {
			require.NoError(t, os.Rename(filepath.Join(p.dir, ".git"), filepath.Join(p.dir, "_output/git")))
		},
			[]string{p.dir + " is not a git checkout", "VENDOR=1 vendors a commit"}},
	} {
		ours, theirs := p.git(p.dir, "rev-parse", "HEAD"), p.git(p.root, "rev-parse", "HEAD")
		tc.do()
		t.Log(name)
		p.refuses(t, vendor, tc.words, "apply")
		if name == "no git checkout" {
			require.NoError(t, os.Rename(filepath.Join(p.dir, "_output/git"), filepath.Join(p.dir, ".git")))
		}
		for dir, commit := range map[string]string{p.dir: ours, p.root: theirs} {
			p.git(dir, "reset", "-q", "--hard", commit)
			p.git(dir, "clean", "-qfd")
		}
	}
}

// TestVendorVersion: the version is the one that the go command gives the commit.
func TestVendorVersion(t *testing.T) {
	for name, tc := range map[string]struct{ at, before, want string }{
		"no tag of the module":    {"v1 v0.3 v2.0.0 next", "", "v0.0.0-20"},
		"a tag before the commit": {"", "v0.1.5 v0.2.0 vnext v3.0.0", "v0.2.1-0.20"},
		"a tag":                   {"v0.3.0 v0.4.0-rc.1", "v0.5.0", "v0.4.0-rc.1\n"},
		"a moved tag":             {"v0.3.0", "", "v0.3.0\n"},
	} {
		t.Run(name, func(t *testing.T) {
			p := vendored(t)
			if name == "a moved tag" {
				p.git(p.dir, "tag", "v0.3.0")
				p.with(t, vendor, "hack/patchset.sh", "apply")
				edit(t, filepath.Join(p.dir, "backoff/rules.go"), "return 1", "return 9")
				p.git(p.dir, "commit", "-qam", "edited")
				p.git(p.dir, "tag", "-d", "v0.3.0")
			}
			for commit, tags := range map[string]string{"HEAD": tc.at, "HEAD~1": tc.before} {
				for _, tag := range strings.Fields(tags) {
					p.git(p.dir, "tag", tag, commit)
				}
			}
			// What git ignores is not in the commit.
			write(p.dir, map[string]string{".git/info/exclude": "ignored.go\n", "backoff/ignored.go": "package backoff\n"})
			// In a worktree, .git is a file.
			q := p
			q.dir = filepath.Join(t.TempDir(), "worktree")
			p.git(p.dir, "worktree", "add", "-q", q.dir, "HEAD")
			p.with(t, vendor, "hack/patchset.sh", "apply")
			assert.Contains(t, p.of("go.mod"), libraryPath+" "+tc.want)
			assert.NotContains(t, p.git(p.root, "ls-tree", "-r", "--name-only", "HEAD", "vendor"), "ignored.go")
			assert.Equal(t, read(filepath.Join(p.dir, "backoff/rules.go")), p.of("vendor/"+libraryPath+"/backoff/rules.go"))
			tree := p.git(p.root, "rev-parse", "HEAD^{tree}")
			p.patchset(t, "reverse")
			q.with(t, vendor, "hack/patchset.sh", "apply")
			assert.Equal(t, tree, p.git(p.root, "rev-parse", "HEAD^{tree}"), "a worktree makes the same tree")
			p.with(t, vendor, "hack/patchset.sh", "verify", "--no-build")
		})
	}
}

// TestVendorInFork: what a fork has otherwise stays. Versions of modules in the tree rise to those that the library needs.
func TestVendorInFork(t *testing.T) {
	const inStaging = " => ./staging/src/k8s.io/api\n## explicit; go 1.22.0\n"
	for name, tc := range map[string]struct {
		other string // another module of the workspace, or none
		want  string
	}{
		"nothing else requires it":             {"", "# k8s.io/api v0.31.0" + inStaging + "# k8s.io/klog"},
		"another module requires the old one":  {"module k8s.io/other\n\nrequire k8s.io/api v0.0.0\n", "# k8s.io/api v0.0.0" + inStaging + "# k8s.io/api v0.31.0" + inStaging + "# k8s.io/klog"},
		"another module requires another":      {"module k8s.io/other\n\nrequire k8s.io/api v0.31.0\n", "# k8s.io/api v0.31.0" + inStaging + "# k8s.io/klog"},
		"another module already needs the new": {"new", "# k8s.io/api v0.31.0" + inStaging + "# k8s.io/klog"},
	} {
		t.Run(name, func(t *testing.T) {
			p := vendored(t)
			write(p.root, map[string]string{kubelet: read(filepath.Join(p.root, kubelet)) + "\nvar  mine  =  1\n"})
			edit(t, filepath.Join(p.root, "go.mod"), "require (\n", "replace k8s.io/api => ./staging/src/k8s.io/api\n\nrequire (\n\tk8s.io/api v0.0.0\n")
			entry := "# k8s.io/api v0.0.0" + inStaging
			if tc.other == "new" {
				entry += "# k8s.io/api v0.31.0" + inStaging
			} else if tc.other != "" {
				write(p.root, map[string]string{"staging/src/k8s.io/other/go.mod": tc.other})
			}
			edit(t, filepath.Join(p.root, "vendor/modules.txt"), "# k8s.io", entry+"# k8s.io")
			require.NoError(t, os.Chmod(filepath.Join(p.root, "go.mod"), 0o755))
			p.git(p.root, "add", "-f", "-A", ".")
			p.git(p.root, "commit", "-qm", "fork")
			edit(t, filepath.Join(p.dir, "go.mod"), "\ngo ", "\nrequire k8s.io/api v0.31.0\n\ngo ")
			p.git(p.dir, "commit", "-qam", "newer")
			before := p.snapshot(t, p.root)
			p.with(t, vendor, "hack/patchset.sh", "apply")
			assert.Contains(t, p.of(kubelet), "var  mine  =  1\n")
			assert.Contains(t, p.of("go.mod"), "k8s.io/api v0.31.0\n")
			assert.Contains(t, p.of("vendor/modules.txt"), "example.com/a\n# "+libraryPath)
			_, list, _ := strings.Cut(p.of("vendor/modules.txt"), libraryPath+"/kuberuntime\n")
			assert.True(t, strings.HasPrefix(list, tc.want), list)
			assert.Contains(t, p.git(p.root, "ls-tree", "HEAD", "go.mod"), "100755 ")
			p.patchset(t, "reverse")
			assert.Equal(t, before, p.snapshot(t, p.root))
		})
	}
}
