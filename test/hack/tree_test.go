// SPDX-License-Identifier: Apache-2.0

package hack

import (
	"archive/zip"
	"bytes"
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
	"syscall"
	"testing"
	"time"

	"golang.org/x/mod/semver"
)

// The scripts run here on a kubernetes of a dozen files, served by a module proxy that is a directory, from a copy of
// hack/ in a path with spaces. The user whom they run as has git settings that would spoil everything if the scripts
// did not shut them out.

const version = "v1.37.1"

var kubernetes = map[string]string{
	"go.mod":  "module k8s.io/kubernetes\n\ngo 1.22.0\n",
	"go.work": "go 1.22.0\n\nuse (\n\t.\n\t./staging/src/k8s.io/api\n\t./staging/src/k8s.io/client-go\n\t./staging/src/k8s.io/component-base\n\t./staging/src/k8s.io/sample-controller\n)\n",
	"cmd/kubelet/main.go": `package main

import (
	"fmt"

	"k8s.io/client-go/pkg/version"
	"k8s.io/kubernetes/pkg/kubelet"
)

func main() {
	fmt.Println("Kubernetes " + version.Get())
	fmt.Println(kubelet.Describe())
}
`,
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
	return true
}
`,
	"pkg/kubelet/kubelet_test.go": `package kubelet

import "testing"

func TestDescribe(t *testing.T) {
	if Describe() == "" {
		t.Fatal("empty")
	}
}
`,
	"pkg/kubelet/testdata/crlf.txt": "one\r\ntwo\r\n",
	".gitattributes":                "* text=auto eol=lf\n",
	".gitignore":                    "/_output\n*.log\n",
	"ignored-but-needed.log":        "in the release\n",
	"vendor/modules.txt":            "stub\n",
}

var staging = map[string]map[string]string{
	"api": {"go.mod": "module k8s.io/api\n\ngo 1.22.0\n", "doc.go": "package api\n"},
	"client-go": {
		"go.mod":                      "module k8s.io/client-go\n\ngo 1.22.0\n\nrequire (\n\tk8s.io/api v0.37.1\n)\n",
		"pkg/version/base.go":         "package version\n\nvar (\n\tgitVersion   = \"v0.0.0\"\n\tgitMajor     string\n\tgitMinor     string\n\tgitCommit    string\n\tgitTreeState string\n)\n\n// Get gets.\nfunc Get() string { return gitVersion + \" \" + gitMajor + \" \" + gitMinor + \" \" + gitTreeState }\n",
		"util/flowcontrol/backoff.go": "package flowcontrol\n\n// Delay is how long to wait.\nfunc Delay() int { return 10 }\n",
	},
	"component-base": {
		"go.mod":          "module k8s.io/component-base\n\ngo 1.22.0\n",
		"version/base.go": "package version\n\n// DefaultKubeBinaryVersion is the release.\nconst DefaultKubeBinaryVersion = \"1.37\"\n",
	},
}

// second is the name of the second patch.
const second = "kubelet-a-subject-that-is-so-long-that-a-mail-has-to"

var library = map[string]string{
	"backoff/rules.go":           "package backoff\n\n// Rule rules.\nfunc Rule() int { return 1 }\n",
	"kuberuntime/decide.go":      "package kuberuntime\n\nimport (\n\tbackoff \"github.com/kubelet-backoff/kubelet-backoff/backoff\"\n)\n\n// Decide decides.\nfunc Decide() int { return backoff.Rule() }\n",
	"kuberuntime/decide_test.go": "package kuberuntime_test\n\nimport (\n\t\"testing\"\n\n\tkuberuntime \"github.com/kubelet-backoff/kubelet-backoff/kuberuntime\"\n)\n\nfunc TestDecide(t *testing.T) {\n\tif kuberuntime.Decide() != 1 {\n\t\tt.Fatal()\n\t}\n}\n",
	"hack/mirror.txt": `# comment
client-go-rules backoff staging/src/k8s.io/client-go/util/flowcontrol *.go -export_test.go

` + second + ` kuberuntime pkg/kubelet/restart *.go # and a comment
`,
	"patches/v1.37/BASE":       "tag: v1.37.1\n",
	"backoff/export_test.go":   "package backoff\n",
	"go.mod":                   "module github.com/kubelet-backoff/kubelet-backoff\n\ngo 1.22.0\n",
	"test/not-a-test/.gitkeep": "",
}

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

// shared is made once by TestMain: the proxy, and a project with a series that was made on the fetched tree.
var shared struct{ dir, proxy, home, project, program string }

// patience is how long a test waits for what has to come. Only a failing test waits so long.
const patience = 5 * time.Minute

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
		shared.dir = dir
		shared.proxy = filepath.Join(dir, "proxy")
		shared.home = filepath.Join(dir, "home")
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
		".gitconfig":            strings.ReplaceAll(evilConfig, "HOME", shared.home),
		"hooks/pre-commit":      "#!/bin/sh\nexit 1\n",
		"hooks/applypatch-msg":  "#!/bin/sh\nexit 1\n",
		"hooks/post-checkout":   "#!/bin/sh\nexit 1\n",
		"excludes":              "*.go\n",
		"attributes":            "*.go diff=golang\n* text eol=crlf\n",
		"config/git/attributes": "* text eol=crlf\n",
	})
	for _, hook := range []string{"pre-commit", "applypatch-msg", "post-checkout"} {
		if err := os.Chmod(filepath.Join(shared.home, "hooks", hook), 0o755); err != nil {
			return err
		}
	}
	shared.program = filepath.Join(shared.dir, "patchset")
	if out, err := exec.Command("go", "build", "-o", shared.program, "../../hack/patchset").CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	// Reading the scripts and the program here makes `go test` notice that they changed.
	scripts, err := filepath.Glob("../../hack/*")
	if err != nil {
		return err
	}
	err = filepath.WalkDir("../../hack/patchset", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		_, err = os.ReadFile(path)
		return err
	})
	if err != nil {
		return err
	}
	scripts = append(scripts, "../../Makefile")
	files := map[string]string{}
	for _, s := range scripts {
		data, err := os.ReadFile(s)
		if errors.Is(err, syscall.EISDIR) {
			continue
		}
		if err != nil {
			return err
		}
		files[strings.TrimPrefix(s, "../../")] = string(data)
	}
	maps.Copy(files, library)
	write(shared.project, files)
	for name := range files {
		if strings.HasSuffix(name, ".sh") {
			if err := os.Chmod(filepath.Join(shared.project, name), 0o755); err != nil {
				return err
			}
		}
	}

	// The series is made as a maintainer makes one: an empty series applied, commits on its branch, refresh.
	p := project{dir: shared.project}
	if out, err := p.try(nil, "hack/patchset.sh", "apply"); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	tree := p.tree()
	p.commit(tree, "client-go: rules", "Ada <ada@example.com>", "none", map[string]string{
		"staging/src/k8s.io/client-go/util/flowcontrol/backoff.go": strings.Replace(staging["client-go"]["util/flowcontrol/backoff.go"], "10", "Rule() * 10", 1),
	})
	p.commit(tree, "kubelet: a subject that is so long that a mail has to fold it, because it goes on and on", "Grüße <g@example.com>", "1", map[string]string{
		"pkg/kubelet/kubelet.go": strings.Replace(kubernetes["pkg/kubelet/kubelet.go"], `"stock"`, `"patched " + string(rune('0'+restart.Decide()))`, 1),
	})
	src := filepath.Join(tree, "pkg/kubelet/kubelet.go")
	data, _ := os.ReadFile(src)
	write(tree, map[string]string{"pkg/kubelet/kubelet.go": strings.Replace(string(data), "package kubelet\n", "package kubelet\n\nimport \"k8s.io/kubernetes/pkg/kubelet/restart\"\n", 1)})
	p.git(tree, "commit", "-q", "-a", "--amend", "--no-edit")
	p.commit(tree, "kubelet: not late", "Ada <ada@example.com>", "none", map[string]string{
		"pkg/kubelet/kubelet.go": strings.Replace(read(src), "return true", "return false", 1),
	})
	if out, err := p.try(nil, "hack/patchset.sh", "refresh"); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	if out, err := p.try(nil, "hack/patchset.sh", "reverse"); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
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
		if err != nil {
			panic(err)
		}
		if _, err := f.Write([]byte(files[name])); err != nil {
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
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			panic(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			panic(err)
		}
	}
}

func read(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		panic(err)
	}
	return string(data)
}
