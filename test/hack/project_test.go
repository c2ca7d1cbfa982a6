// SPDX-License-Identifier: Apache-2.0

// Package hack tests the scripts in hack/ and the Makefile. They run here on a kubernetes of a dozen files, served by a module proxy
// that is a directory, from a copy of hack/ in a path with spaces. The user whom they run as has git settings that would spoil
// everything if the scripts did not shut them out.
package hack

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/semver"
)

const (
	version = "v1.37.1"
	branch  = "kubelet-backoff-v1.37"
	// patience is how long a test waits for what has to come. Only a failing test waits so long.
	patience = 5 * time.Minute
)

var kubernetes = map[string]string{
	"go.mod":  "module k8s.io/kubernetes\n\ngo 1.22.0\n",
	"go.work": "go 1.22.0\n\nuse (\n\t.\n\t./staging/src/k8s.io/api\n\t./staging/src/k8s.io/client-go\n\t./staging/src/k8s.io/component-base\n\t./staging/src/k8s.io/sample-controller\n)\n",
	"cmd/kubelet/main.go": "package main\n\nimport (\n\t\"fmt\"\n\n\t\"k8s.io/client-go/pkg/version\"\n\t\"k8s.io/kubernetes/pkg/kubelet\"\n)\n\n" +
		"func main() {\n\tfmt.Println(\"Kubernetes \" + version.Get())\n\tfmt.Println(kubelet.Describe())\n}\n",
	"cmd/kube-apiserver/main.go": "package main\n\nimport (\n\t\"fmt\"\n\n\t\"k8s.io/client-go/pkg/version\"\n)\n\nfunc main() { fmt.Println(\"Kubernetes \" + version.Get()) }\n",
	"pkg/kubelet/kubelet.go": `package kubelet

// one
// two
// three

// Describe describes.
func Describe() string {
	return "stock"
}

// four
// five
// six

// Late is late.
func Late() bool {
	// a
	// b
	// c
	return true
}
`,
	"pkg/kubelet/kubelet_test.go":   "package kubelet\n\nimport \"testing\"\n\nfunc TestDescribe(t *testing.T) {\n\tif Describe() == \"\" {\n\t\tt.Fatal(\"empty\")\n\t}\n}\n",
	"pkg/kubelet/testdata/crlf.txt": "one\r\ntwo\r\n",
	".gitattributes":                "* text=auto eol=lf\n",
	".gitignore":                    "/_output\n*.log\n",
	"ignored-but-needed.log":        "in the release\n",
	"vendor/modules.txt":            "stub\n",
}

var staging = map[string]map[string]string{
	"api": {"go.mod": "module k8s.io/api\n\ngo 1.22.0\n", "doc.go": "package api\n"},
	"client-go": {
		"go.mod": "module k8s.io/client-go\n\ngo 1.22.0\n\nrequire (\n\tk8s.io/api v0.37.1\n)\n",
		"pkg/version/base.go": "package version\n\nvar (\n\tgitVersion   = \"v0.0.0\"\n\tgitMajor     string\n\tgitMinor     string\n\tgitCommit    string\n\tgitTreeState string\n)\n\n" +
			"// Get gets.\nfunc Get() string { return gitVersion + \" \" + gitMajor + \" \" + gitMinor + \" \" + gitTreeState }\n",
		"util/flowcontrol/backoff.go": "package flowcontrol\n\n// Delay is how long to wait.\nfunc Delay() int { return 10 }\n",
	},
	"component-base": {
		"go.mod":          "module k8s.io/component-base\n\ngo 1.22.0\n",
		"version/base.go": "package version\n\n// DefaultKubeBinaryVersion is the release.\nconst DefaultKubeBinaryVersion = \"1.37\"\n",
	},
}

// library is the project: a library of two packages, and what the series is made of. The patches are rules, decide and late.
var library = map[string]string{
	"backoff/rules.go":       "package backoff\n\n// Rule rules.\nfunc Rule() int { return 1 }\n",
	"backoff/export_test.go": "package backoff\n",
	"kuberuntime/decide.go":  "package kuberuntime\n\nimport (\n\tbackoff \"github.com/kubelet-backoff/kubelet-backoff/backoff\"\n)\n\n// Decide decides.\nfunc Decide() int { return backoff.Rule() }\n",
	"kuberuntime/decide_test.go": "package kuberuntime_test\n\nimport (\n\t\"testing\"\n\n\tkuberuntime \"github.com/kubelet-backoff/kubelet-backoff/kuberuntime\"\n)\n\n" +
		"func TestDecide(t *testing.T) {\n\tif kuberuntime.Decide() != 1 {\n\t\tt.Fatal()\n\t}\n}\n",
	"hack/mirror.txt": "# comment\nrules backoff staging/src/k8s.io/client-go/util/backoff *.go -export_test.go\n\n" +
		"decide kuberuntime pkg/kubelet/kuberuntime *.go\n",
	"patches/v1.37/BASE":                     "tag: v1.37.1\n",
	"patches/_src/decide/pkg/kubelet/our.go": "package kubelet\n\n// Ours is ours.\nfunc Ours() int { return 1 }\n",
	"go.mod":                                 "module github.com/kubelet-backoff/kubelet-backoff\n\ngo 1.22.0\n",
	"LICENSE":                                "a license\n",
	".gitignore":                             "/_output/\n",
}

const (
	decided = "pkg/kubelet/kuberuntime/decide.go" // a file of the library in the tree
	kubelet = "pkg/kubelet/kubelet.go"
	our     = "pkg/kubelet/our.go" // a file of patches/_src/decide
)

const evilConfig = `[user]
	name = Somebody Else
	email = else@example.com
[core]
	autocrlf = true
	hooksPath = HOME/hooks
	excludesFile = HOME/excludes
	attributesFile = HOME/attributes
[commit]
	gpgSign = true
[am]
	threeWay = true
[diff]
	noprefix = true
	mnemonicPrefix = true
	context = 9
[format]
	signature = evil
	attach = true
	numbered = true
	signOff = true
	headers = "X-Evil: yes\n"
[apply]
	whitespace = fix
`

// shared is made once by TestMain: the proxy, the programs, and a project with a series that was made on the fetched tree.
var shared struct{ dir, proxy, home, project, programs string }

func TestMain(m *testing.M) {
	// A shell cannot trap what was ignored when it began, as SIGHUP is under nohup and SIGINT in the background of a script.
	// A signal that is handled here is at its default in the scripts under test.
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	os.Exit(func() int {
		for _, tool := range []string{"bash", "git", "make"} {
			if _, err := exec.LookPath(tool); err != nil {
				fmt.Printf("SKIP: the tests of the scripts need %s, which is not on PATH\n", tool)
				return 0
			}
		}
		dir, err := os.MkdirTemp("", "hack-test-")
		if err != nil {
			panic(err)
		}
		defer func() {
			// The module cache is read-only.
			_ = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
				if err == nil && d.IsDir() {
					_ = os.Chmod(p, 0o755)
				}
				return nil
			})
			os.RemoveAll(dir)
		}()
		shared.dir, shared.proxy, shared.home, shared.programs = dir, filepath.Join(dir, "proxy"), filepath.Join(dir, "home"), filepath.Join(dir, "programs")
		shared.project = filepath.Join(dir, "a path with spaces", "kubelet-backoff")
		if err := setUp(); err != nil {
			fmt.Println("FAIL: preparing the tests of the scripts:", err)
			return 1
		}
		return m.Run()
	}())
}

func setUp() error {
	makeProxy(shared.proxy, version)
	write(shared.home, map[string]string{
		".gitconfig": strings.ReplaceAll(evilConfig, "HOME", shared.home), "excludes": "*.go\n",
		"attributes": "*.go diff=golang\n* text eol=crlf\n", "config/git/attributes": "* text eol=crlf\n",
	})
	for _, hook := range []string{"pre-commit", "applypatch-msg", "post-checkout"} {
		script(filepath.Join(shared.home, "hooks", hook), "exit 1\n")
	}
	if out, err := exec.Command("go", "build", "-o", shared.programs+"/", "../../hack/patchset", "../../hack/pages").CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	write(shared.project, library)
	for _, pattern := range []string{"../../hack/*.sh", "../../hack/*.txt", "../../Makefile"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		for _, file := range files {
			name := strings.TrimPrefix(file, "../../")
			if library[name] == "" {
				write(shared.project, map[string]string{name: read(file)})
				_ = os.Chmod(filepath.Join(shared.project, name), 0o755)
			}
		}
	}

	// The series is made as a maintainer makes one for a new release: commits on its branch, and refresh --base.
	p := project{dir: shared.project}
	run := func(args ...string) error {
		out, err := p.try([]string{"KUBE_VERSION=" + version}, "hack/patchset.sh", args...)
		if err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	}
	if err := run("fetch"); err != nil {
		return err
	}
	tree := p.tree()
	p.git(tree, "checkout", "-q", "-b", branch)
	file := filepath.Join(tree, kubelet)
	change := func(subject, author, depends, file, old, new string) {
		text := read(filepath.Join(tree, file))
		if !strings.Contains(text, old) {
			panic(old)
		}
		p.commit(tree, subject, author, depends, map[string]string{file: strings.Replace(text, old, new, 1)})
	}
	const flow = "staging/src/k8s.io/client-go/util/flowcontrol/backoff.go"
	write(tree, map[string]string{flow: strings.Replace(read(filepath.Join(tree, flow)), "flowcontrol\n", "flowcontrol\n\nimport \"k8s.io/client-go/util/backoff\"\n", 1)})
	change("client-go: rules", "Ada <ada@example.com>", "none", flow, "return 10", "return backoff.Rule() * 10")
	write(tree, map[string]string{kubelet: strings.Replace(read(file), "package kubelet\n", "package kubelet\n\nimport \"k8s.io/kubernetes/pkg/kubelet/kuberuntime\"\n", 1)})
	change("kubelet: a subject that is so long that a mail has to fold it, because it goes on and on", "Grüße <g@example.com>", "client-go-rules",
		kubelet, `"stock"`, `"patched " + string(rune('0'+kuberuntime.Decide()))`)
	change("kubelet: not late", "Ada <ada@example.com>", "none", kubelet, "return true", "return false")
	// The names are those of the subjects, until somebody changes them.
	write(p.dir, map[string]string{"hack/mirror.txt": ""})
	if err := run("refresh", "--base", version); err != nil {
		return err
	}
	if err := run("reverse"); err != nil {
		return err
	}
	series := filepath.Join(p.dir, "patches/v1.37/series")
	for from, to := range map[string]string{
		"client-go-rules": "rules", "kubelet-not-late": "late",
		"kubelet-a-subject-that-is-so-long-that-a-mail-has-to-fold-it-because-it-goes-on-and-on": "decide",
	} {
		if err := os.Rename(filepath.Join(p.dir, "patches/v1.37", from+".patch"), filepath.Join(p.dir, "patches/v1.37", to+".patch")); err != nil {
			return err
		}
		write(p.dir, map[string]string{"patches/v1.37/series": strings.Replace(read(series), from+"\n", to+"\n", 1)})
	}
	decide := p.series("decide.patch")
	write(p.dir, map[string]string{"hack/mirror.txt": library["hack/mirror.txt"], "patches/v1.37/decide.patch": strings.Replace(read(decide), "Depends-On: client-go-rules", "Depends-On: rules", 1)})
	p.git(tree, "checkout", "-q", "base")
	p.git(tree, "repack", "-a", "-d", "-q") // Each test copies the project: one pack instead of 80 files and directories.
	return nil
}

// makeProxy writes a module proxy that has the small kubernetes. sample-controller is missing from it.
func makeProxy(dir, version string) {
	staged := "v0." + strings.TrimPrefix(version, "v1.")
	module(dir, "k8s.io/kubernetes", version, kubernetes)
	for name, files := range staging {
		files = maps.Clone(files)
		if base, ok := files["version/base.go"]; ok {
			files["version/base.go"] = ofMinor(base, version)
		}
		module(dir, "k8s.io/"+name, staged, files)
	}
}

// ofMinor is base.go of a release.
func ofMinor(base, version string) string {
	return strings.Replace(base, "1.37", strings.TrimPrefix(semver.MajorMinor(version), "v"), 1)
}

func module(dir, path, version string, files map[string]string) {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f, err := w.Create(path + "@" + version + "/" + name)
		if err == nil {
			_, err = f.Write([]byte(files[name]))
		}
		if err != nil {
			panic(err)
		}
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	write(filepath.Join(dir, path, "@v"), map[string]string{
		version + ".info": fmt.Sprintf(`{"Version":%q,"Time":"2026-01-01T00:00:00Z"}`, version),
		version + ".mod":  files["go.mod"],
		version + ".zip":  b.String(),
	})
}

func write(dir string, files map[string]string) {
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
			panic(err)
		}
	}
}

// script writes a script of bash.
func script(path, text string) {
	write(filepath.Dir(path), map[string]string{filepath.Base(path): "#!/bin/bash\n" + text})
	if err := os.Chmod(path, 0o755); err != nil {
		panic(err)
	}
}

func read(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// edit replaces old by new in a file, which must have it.
func edit(t *testing.T, path, old, new string) {
	t.Helper()
	text := read(path)
	require.Contains(t, text, old, path)
	require.NoError(t, os.WriteFile(path, []byte(strings.Replace(text, old, new, 1)), 0o644))
}

// project is a copy of this repository's scripts with a small library and series of its own.
type project struct {
	dir  string
	root string // KUBE_ROOT, if any
	t    *testing.T
}

// long skips a test that takes more than ten seconds in make test, which passes -short.
func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("make test-all runs it")
	}
}

// newProject copies the shared project, fetched tree included.
func newProject(t *testing.T) project {
	t.Helper()
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a path with spaces", "kubelet-backoff")
	copyDir(t, shared.project, dir)
	return project{dir: dir, t: t}
}

func copyDir(t *testing.T, from, to string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(to), 0o755))
	out, err := exec.Command("cp", "-Rp", from, to).CombinedOutput()
	require.NoError(t, err, string(out))
}

func (p project) tree() string {
	if p.root != "" {
		return p.root
	}
	return filepath.Join(p.dir, "_output", version, "kubernetes")
}

// series is a path in the directory of the series.
func (p project) series(name string) string { return filepath.Join(p.dir, "patches/v1.37", name) }

// goCache is the user's build cache, which builds in projects share.
var goCache = sync.OnceValue(func() string {
	cache, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		panic(err)
	}
	return strings.TrimSpace(string(cache))
})

func (p project) env(extra []string) []string {
	var env []string
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		strange := slices.ContainsFunc([]string{"GIT_", "GO", "KUBE_", "KB_", "MAKE"}, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
		if !strange && !slices.Contains([]string{"HOME", "SERIES", "SKIP", "MFLAGS", "XDG_CONFIG_HOME"}, name) {
			env = append(env, kv)
		}
	}
	env = append(env, "HOME="+shared.home, "GOCACHE="+goCache(), "GOMODCACHE="+filepath.Join(shared.dir, "modcache"), "GOPROXY=file://"+shared.proxy,
		"GOSUMDB=off", "GOTOOLCHAIN=local", "KB_PROGRAM_DIR="+shared.programs,
		// These must not matter.
		"GOFLAGS=-mod=vendor -v", "OUTPUT_DIR="+shared.home, "STREAM=1")
	if p.root != "" {
		env = append(env, "KUBE_ROOT="+p.root)
	}
	return append(env, extra...)
}

func (p project) command(extra []string, name string, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	context.AfterFunc(ctx, cancel)
	if strings.HasPrefix(name, "hack/") {
		name = filepath.Join(p.dir, name)
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = p.dir, p.env(extra)
	return cmd
}

// try runs a script (or any command) in the project and returns all it says.
func (p project) try(extra []string, name string, args ...string) (string, error) {
	out, err := p.command(extra, name, args...).CombinedOutput()
	return string(out), err
}

// with runs a command that must succeed, with more environment variables.
func (p project) with(t *testing.T, extra []string, name string, args ...string) string {
	t.Helper()
	out, err := p.try(extra, name, args...)
	require.NoError(t, err, "%s %v\n%s", name, args, out)
	return out
}

func (p project) ok(t *testing.T, name string, args ...string) string {
	t.Helper()
	return p.with(t, nil, name, args...)
}

// patchset runs hack/patchset.sh.
func (p project) patchset(t *testing.T, args ...string) string {
	t.Helper()
	return p.with(t, nil, "hack/patchset.sh", args...)
}

// fails runs a script that must fail and say every one of the words.
func (p project) fails(t *testing.T, extra []string, words []string, name string, args ...string) {
	t.Helper()
	out, err := p.try(extra, name, args...)
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, "%s %v\n%s", name, args, out)
	for _, w := range words {
		require.Contains(t, out, w)
	}
}

// refuses runs patchset.sh, which must fail, say every one of the words, and change neither the tree nor the project.
func (p project) refuses(t *testing.T, extra []string, words []string, args ...string) {
	t.Helper()
	before, sources := p.snapshot(t, p.tree()), p.sources(t)
	p.fails(t, extra, words, "hack/patchset.sh", args...)
	assert.Equal(t, before, p.snapshot(t, p.tree()), args)
	assert.Equal(t, sources, p.sources(t), args)
	assertNoScratch(t, filepath.Join(p.dir, "_output"))
}

// roundTrip applies and reverses, which must leave the tree as it is.
func (p project) roundTrip(t *testing.T) {
	t.Helper()
	before := p.snapshot(t, p.tree())
	p.patchset(t, "apply")
	p.patchset(t, "reverse")
	assert.Equal(t, before, p.snapshot(t, p.tree()))
	p.noLeftovers(t)
}

// git runs git in dir as a user would, but without the settings.
func (p project) git(dir string, args ...string) string {
	cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=U", "-c", "user.email=u@example.com"}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_EDITOR=:")
	out, err := cmd.CombinedOutput()
	if err != nil {
		text := fmt.Sprintf("git %v: %v\n%s", args, err, out)
		if p.t == nil {
			panic(text)
		}
		p.t.Helper()
		p.t.Fatal(text)
	}
	return strings.TrimSpace(string(out))
}

func (p project) commit(tree, subject, author, depends string, files map[string]string) {
	write(tree, files)
	p.git(tree, "add", "-A", ".")
	p.git(tree, "commit", "-q", "--author", author, "--date", "2026-11-20T12:00:00+0100", "-m", subject,
		"-m", "Why it is so.\n\n--\nnot a signature: two dashes",
		"-m", "Series: core\nUpstream-Issue: 123602\nDiffers-From-Upstream: yes\nDepends-On: "+depends+"\nDrop-When: fixed upstream")
}

// amend puts what is in the tree into the commit that is n before the last one.
func (p project) amend(n int) {
	p.git(p.tree(), "add", "-A", ".")
	target := p.git(p.tree(), "rev-parse", fmt.Sprintf("HEAD~%d", n))
	p.git(p.tree(), "commit", "-q", "--fixup", target)
	p.git(p.tree(), "-c", "sequence.editor=:", "rebase", "-q", "-i", "--autosquash", target+"~1")
}

// clone makes a git clone of the stock tree, on a branch main, as KUBE_ROOT.
func (p project) clone(t *testing.T) project {
	t.Helper()
	root := filepath.Join(t.TempDir(), "my kubernetes")
	p.git(p.dir, "clone", "-q", p.tree(), root)
	p.git(root, "checkout", "-q", "-b", "main")
	p.root = root
	return p
}

// worktree makes a worktree of a clone, on a branch second, as KUBE_ROOT.
func (p project) worktree(t *testing.T) project {
	t.Helper()
	p = p.clone(t)
	root := p.root + " 2"
	p.git(p.root, "worktree", "add", "-q", "-b", "second", root)
	p.root = root
	return p
}

// shallow makes a clone without the history of the stock tree.
func (p project) shallow(t *testing.T) project {
	t.Helper()
	p = p.clone(t)
	p.commit(p.root, "ours", "A <a@example.com>", "none", map[string]string{"ours.txt": "1"})
	root := p.root + " shallow"
	p.git(p.dir, "clone", "-q", "--depth=1", "file://"+p.root, root)
	p.root = root
	return p
}

// kinds are the trees that KUBE_ROOT may name.
var kinds = map[string]func(project, *testing.T) project{"clone": project.clone, "worktree": project.worktree}

// applied is a clone with the series applied.
func applied(t *testing.T) project {
	p := newProject(t).clone(t)
	p.patchset(t, "apply")
	return p
}

// snapshot is everything about a tree: every file with its mode, and git's view of it.
func (p project) snapshot(t *testing.T, tree string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(tree, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(tree, path)
		if rel == ".git" {
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil // of a worktree
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		content := ""
		if info.Mode().IsRegular() {
			content = read(path)
		}
		fmt.Fprintf(&b, "%s %v %q\n", rel, info.Mode(), content)
		return nil
	})
	require.NoError(t, err)
	if _, err := os.Stat(filepath.Join(tree, ".git")); err == nil {
		head, _ := exec.Command("git", "-C", tree, "symbolic-ref", "-q", "HEAD").Output()
		fmt.Fprintln(&b, "HEAD", string(head))
		if p.git(tree, "rev-list", "--all", "-n1") == "" {
			return b.String()
		}
		for _, command := range []string{"rev-parse HEAD", "status --porcelain --ignored", "for-each-ref", "config --local --list", "ls-files -s", "stash list"} {
			fmt.Fprintln(&b, p.git(tree, strings.Fields(command)...))
		}
	}
	return b.String()
}

// sources is a snapshot of the library and the patches.
func (p project) sources(t *testing.T) string {
	t.Helper()
	return p.snapshot(t, filepath.Join(p.dir, "patches")) + p.snapshot(t, filepath.Join(p.dir, "backoff")) + p.snapshot(t, filepath.Join(p.dir, "kuberuntime"))
}

// noLeftovers checks that nothing of a killed command is in the tree or in its git directory.
func (p project) noLeftovers(t *testing.T) {
	t.Helper()
	for _, dir := range []string{p.tree(), p.git(p.tree(), "rev-parse", "--path-format=absolute", "--git-common-dir")} {
		require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if name := d.Name(); strings.HasSuffix(name, ".lock") || strings.HasPrefix(name, "kubelet-backoff-") || name == "packed-refs.new" {
				t.Error(path, "is left")
			}
			return err
		}))
	}
}

func scratch(t *testing.T, dir string) []string {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(dir, ".scratch.*"))
	require.NoError(t, err)
	return left
}

func assertNoScratch(t *testing.T, dir string) {
	t.Helper()
	assert.Empty(t, scratch(t, dir), "nothing half done is left")
}

// gitBefore makes a git that runs what is given first, at the first call whose arguments match a pattern of bash. $git is the real one.
func gitBefore(t *testing.T, arguments, what string) []string {
	t.Helper()
	done := filepath.Join(t.TempDir(), "done")
	return gitAt(t, fmt.Sprintf("$* == %s && ! -e %q", arguments, done), fmt.Sprintf("touch %q\n  %s", done, what))
}

// gitAt makes a git that runs what is given first, if a condition of bash is true.
func gitAt(t *testing.T, condition, what string) []string {
	t.Helper()
	return fake(t, map[string]string{"git": fmt.Sprintf("git=%q\nif [[ %s ]]; then\n  %s\nfi\nexec \"$git\" \"$@\"\n", mustLook(t, "git"), condition, what)})
}

// fake makes a directory of programs for PATH.
func fake(t *testing.T, programs map[string]string) []string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range programs {
		script(filepath.Join(dir, name), text)
	}
	return []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
}

func mustLook(t *testing.T, tool string) string {
	t.Helper()
	path, err := exec.LookPath(tool)
	require.NoError(t, err)
	return path
}

// modcache is a module cache of its own, which can be removed afterwards.
func modcache(t *testing.T) string {
	dir, err := os.MkdirTemp(shared.dir, "modcache-")
	require.NoError(t, err)
	return dir
}
