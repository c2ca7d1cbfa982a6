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

const libraryPath = "github.com/kubelet-backoff/kubelet-backoff"

// vendored is a project that is a git checkout, and as KUBE_ROOT a clone that has a vendor folder, with the series applied.
func vendored(t *testing.T) project {
	t.Helper()
	p := newProject(t).clone(t)
	p.git(p.dir, "init", "-q")
	p.git(p.dir, "add", "-A", ".")
	p.git(p.dir, "commit", "-q", "-m", "all", "--date=2026-01-02T03:04:05Z")
	write(p.root, map[string]string{
		"vendor/modules.txt":                    "## workspace\n",
		"LICENSES/vendor/example.com/a/LICENSE": "= vendor/example.com/a licensed under: =\n",
	})
	p.git(p.root, "add", "-f", "-A", ".")
	p.git(p.root, "commit", "-q", "-m", "vendor")
	p.patchset(t, "apply")
	return p
}

// of is a file of the commit that is checked out in the tree.
func (p project) of(file string) string { return p.git(p.root, "show", "HEAD:"+file) + "\n" }

// TestVendor: the tree imports the library from its vendor folder, and what works on a series that is applied still does.
func TestVendor(t *testing.T) {
	p := vendored(t)
	tip := p.git(p.root, "rev-parse", "HEAD")
	p.with(t, nil, "make", "vendor")
	version := regexp.MustCompile(`# ` + libraryPath + ` (.*)`).FindStringSubmatch(p.of("vendor/modules.txt"))[1]
	assert.Regexp(t, `^v0\.0\.0-20\d{12}-`+p.git(p.dir, "rev-parse", "HEAD")[:12]+"$", version)
	assert.Equal(t, "## workspace\n# "+libraryPath+" "+version+"\n## explicit; go 1.22.0\n"+libraryPath+"/backoff\n"+libraryPath+"/kuberuntime\n# k8s.io/api v0.37.1\n## explicit; go 1.22.0\n", p.of("vendor/modules.txt"))
	assert.Contains(t, p.of("go.mod"), libraryPath+" "+version+"\n")
	assert.Equal(t, library["kuberuntime/decide.go"], p.of("vendor/"+libraryPath+"/kuberuntime/decide.go"))
	assert.Equal(t, "a license\n", p.of("vendor/"+libraryPath+"/LICENSE"))
	assert.Contains(t, p.of("LICENSES/vendor/"+libraryPath+"/LICENSE"), "= vendor/"+libraryPath+" licensed under: =\n\na license\n\n= vendor/"+libraryPath+"/LICENSE ")
	assert.Contains(t, p.of(kubelet), `"`+libraryPath+`/kuberuntime"`)
	assert.NotContains(t, p.git(p.root, "ls-tree", "-r", "--name-only", "HEAD"), "\n"+decided)
	assert.Contains(t, p.git(p.root, "ls-tree", "-r", "--name-only", "HEAD"), "\n"+our)
	assert.NotContains(t, p.git(p.root, "ls-tree", "-r", "--name-only", "HEAD", "vendor"), "_test.go")
	assert.Empty(t, p.git(p.root, "status", "--porcelain"))
	assert.Equal(t, tip, p.git(p.root, "rev-parse", "HEAD^"))

	assert.Contains(t, p.patchset(t, "apply", "--keep"), "using it as it is")
	p.fails(t, nil, []string{"has " + libraryPath + " already"}, "hack/vendor.sh")
	p.refuses(t, nil, []string{"files on the branch are not those that apply makes", decided}, "refresh")
	p.refuses(t, nil, []string{"vendor: " + libraryPath, "git reset --hard " + tip[:12]}, "reverse")
	p.git(p.root, "reset", "-q", "--hard", tip)
	p.patchset(t, "reverse")
}

// TestVendorRefuses: a library that is not committed, and a tree that cannot take it.
func TestVendorRefuses(t *testing.T) {
	p := vendored(t)
	for name, tc := range map[string]struct {
		do    func()
		words []string
	}{
		"an edited file": {func() {
			edit(t, filepath.Join(p.dir, "kuberuntime/decide.go"), "Decide decides", "Decide decides soon")
		}, []string{"has changes that are not committed, and this vendors a commit", "kuberuntime/decide.go"}},
		"a new file":     {func() { write(p.dir, map[string]string{"backoff/new.go": "package backoff\n"}) }, []string{"backoff/new.go"}},
		"an edited tree": {func() { edit(t, filepath.Join(p.root, our), "Ours is", "Ours was") }, []string{p.root + " has changes that are not committed"}},
		"no vendor folder": {func() {
			p.git(p.root, "rm", "-q", "vendor/modules.txt")
			p.git(p.root, "commit", "-qm", "fork")
		}, []string{"has no vendor/modules.txt, as kubernetes' git repository has it", "go work vendor"}},
		"a module that nobody has": {func() {
			edit(t, filepath.Join(p.root, "go.mod"), "\ngo ", "\nrequire example.invalid/a v1.2.0\n\ngo ")
			p.git(p.root, "commit", "-qam", "fork")
		}, []string{"go work vendor fails", "example.invalid/a"}},
		"no series": {func() { p.git(p.root, "checkout", "-q", "--detach", "HEAD~3") }, []string{"the patches are not applied"}},
		"no git checkout": {func() {
			require.NoError(t, os.Rename(filepath.Join(p.dir, ".git"), filepath.Join(p.dir, "_output/git")))
		}, []string{p.dir + " is not a git checkout"}},
	} {
		ours, theirs := p.git(p.dir, "rev-parse", "HEAD"), p.git(p.root, "rev-parse", "HEAD")
		branch := p.git(p.root, "symbolic-ref", "--short", "HEAD")
		tc.do()
		t.Log(name)
		before := p.snapshot(t, p.root)
		p.fails(t, []string{"GOPROXY=off"}, tc.words, "hack/vendor.sh")
		assert.Equal(t, before, p.snapshot(t, p.root))
		if name == "no git checkout" {
			require.NoError(t, os.Rename(filepath.Join(p.dir, "_output/git"), filepath.Join(p.dir, ".git")))
		}
		p.git(p.root, "checkout", "-q", "-f", branch)
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
		"a moved tag":             {"v0.6.0", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := vendored(t)
			tip := p.git(p.root, "rev-parse", "HEAD")
			if name == "a moved tag" {
				p.git(p.dir, "tag", "v0.6.0")
				p.with(t, nil, "hack/vendor.sh")
				p.git(p.root, "reset", "-q", "--hard", tip)
				p.patchset(t, "reverse")
				p.git(p.dir, "tag", "-d", "v0.6.0")
			} else {
				p.patchset(t, "reverse")
			}
			edit(t, filepath.Join(p.dir, "backoff/rules.go"), "return 1", "return 9")
			p.git(p.dir, "commit", "-qam", "edited")
			for commit, tags := range map[string]string{"HEAD": tc.at, "HEAD~1": tc.before} {
				for _, tag := range strings.Fields(tags) {
					p.git(p.dir, "tag", tag, commit)
				}
			}
			// What git ignores is not in the commit.
			write(p.dir, map[string]string{".git/info/exclude": "ignored.txt\n", "backoff/ignored.txt": "x\n"})
			// In a worktree, .git is a file.
			q := p
			q.dir = filepath.Join(t.TempDir(), "worktree")
			p.git(p.dir, "worktree", "add", "-q", q.dir, "HEAD")
			for _, p := range []project{p, q} {
				p.patchset(t, "apply")
				tip := p.git(p.root, "rev-parse", "HEAD")
				if name == "a moved tag" {
					p.fails(t, nil, []string{"the tag has moved since the module cache got it"}, "hack/vendor.sh")
					p.patchset(t, "reverse")
					continue
				}
				p.with(t, nil, "hack/vendor.sh")
				assert.Contains(t, p.of("go.mod"), libraryPath+" "+tc.want)
				assert.Equal(t, read(filepath.Join(p.dir, "backoff/rules.go")), p.of("vendor/"+libraryPath+"/backoff/rules.go"))
				p.git(p.root, "reset", "-q", "--hard", tip)
				p.patchset(t, "reverse")
			}
		})
	}
}
