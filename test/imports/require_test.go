// SPDX-License-Identifier: Apache-2.0

package imports

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// next is the version of the modules that agent and crashloop require.
const next = "v0.1.0"

// directory returns the directory of a module of this repository, by its path below root.
func directory(t *testing.T, name string) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("../..", name))
	require.NoError(t, err)
	return dir
}

// goMod returns the go.mod of a directory.
func goMod(t *testing.T, dir string) *modfile.File {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	require.NoError(t, err)
	mod, err := modfile.Parse("go.mod", data, nil)
	require.NoError(t, err)
	return mod
}

// goOutput runs go in a directory and returns what it prints.
func goOutput(t *testing.T, dir string, env []string, args ...string) string {
	t.Helper()
	var stderr strings.Builder
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Env, cmd.Stderr = dir, append(os.Environ(), env...), &stderr
	output, err := cmd.Output()
	require.NoError(t, err, stderr.String())
	return strings.TrimSpace(string(output))
}

// goCommand runs go outside the workspace.
func goCommand(t *testing.T, dir string, env []string, args ...string) string {
	t.Helper()
	return goOutput(t, dir, append([]string{"GOWORK=off", "GOFLAGS=-mod=mod"}, env...), args...)
}

// The library has few requirements, and each module only requires those of this repository that its name allows: the arrows of
// docs/development.md.
func TestModules(t *testing.T) {
	direct := 0
	for _, r := range goMod(t, directory(t, "")).Require {
		if !r.Indirect {
			direct++
		}
	}
	require.LessOrEqual(t, direct, 8)

	for name, allowed := range map[string][]string{
		"":          nil,
		"agent":     {root},
		"crashloop": {root, root + "/agent"},
		"hack":      nil,
		"test":      {root},
	} {
		mod := goMod(t, directory(t, name))
		require.Empty(t, mod.Replace, "go install of a version refuses a module with a replacement: %s", name)
		for _, r := range mod.Require {
			if strings.HasPrefix(r.Mod.Path, root) {
				require.Contains(t, allowed, r.Mod.Path, "%s requires it", mod.Module.Mod.Path)
				require.Equal(t, next, r.Mod.Version, "%s requires %s", name, r.Mod.Path)
			}
		}
	}
}

// A module with the go line and the versions of a Kubernetes release keeps both if it requires the library and imports all of
// it, and the release's own Go builds it.
func TestVersionsStay(t *testing.T) {
	// The version is the newest patch version that these releases of Kubernetes may be built with.
	releases := map[int]string{31: "go1.22.12", 32: "go1.23.12", 33: "go1.24.13", 34: "go1.24.13", 35: "go1.25.5", 36: "local", 37: "local"}
	for minor, toolchain := range releases {
		t.Run(fmt.Sprintf("v1.%d", minor), func(t *testing.T) {
			if testing.Short() && toolchain != "local" {
				t.Skip("make test-all runs it: it downloads " + toolchain)
			}
			env := []string{"GOTOOLCHAIN=" + toolchain}
			dir, version := t.TempDir(), fmt.Sprintf("v0.%d.0", minor)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module example.com/fork\n"), 0o666))
			goVersion := goCommand(t, dir, nil, "list", "-m", "-f", "{{.GoVersion}}", "k8s.io/api@"+version)
			goCommand(t, dir, env, "mod", "edit", "-go="+goVersion, "-require=k8s.io/api@"+version, "-require=k8s.io/apimachinery@"+version, "-require=k8s.io/client-go@"+version)
			write := func(name, text string) {
				require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666))
			}
			versions := func() map[string]string {
				goCommand(t, dir, env, "mod", "tidy")
				mod := goMod(t, dir)
				require.Equal(t, goVersion, mod.Go.Version)
				require.Nil(t, mod.Toolchain)
				required := map[string]string{}
				for _, r := range mod.Require {
					required[r.Mod.Path] = r.Mod.Version
				}
				return required
			}
			write("main.go", "package main\n\nimport (\n\t_ \"k8s.io/api/core/v1\"\n\t_ \"k8s.io/apimachinery/pkg/apis/meta/v1\"\n\t_ \"k8s.io/client-go/util/flowcontrol\"\n)\n\nfunc main() {}\n")
			write("main_test.go", "package main\n\nimport _ \"github.com/stretchr/testify/require\"\n")
			before := versions()
			require.Equal(t, version, before["k8s.io/api"])

			goCommand(t, dir, env, "mod", "edit", "-require="+root+"@"+next, "-replace="+root+"="+directory(t, ""))
			library := "package main\n\nimport (\n"
			for _, name := range []string{"asked", "backoff", "config", "restart", "restartpod", "validation"} {
				library += "\t_ \"" + root + "/" + name + "\"\n"
			}
			write("library.go", library+")\n")
			after := versions()
			for path, version := range before {
				// k8s.io v0.31 requires later commits of these two, which only tests use, than some newer versions do.
				if path != "github.com/davecgh/go-spew" && path != "github.com/pmezard/go-difflib" {
					assert.Equal(t, version, after[path], path)
				}
			}
			goCommand(t, dir, env, "build", "-o", os.DevNull, ".")
		})
	}
}

// The command of the commit can be installed by its path and a version.
func TestInstall(t *testing.T) {
	if testing.Short() {
		t.Skip("make test-all runs it: it builds the command with an empty module cache")
	}
	if _, err := os.Stat(filepath.Join(directory(t, ""), ".git")); err != nil {
		t.Skip("the modules are made from the commit, and this is no clone")
	}
	proxy, bin := t.TempDir(), t.TempDir()
	for _, name := range []string{"", "agent", "crashloop"} {
		mod := goMod(t, directory(t, name))
		dir := filepath.Join(proxy, mod.Module.Mod.Path, "@v")
		require.NoError(t, os.MkdirAll(dir, 0o777))
		archive, err := os.Create(filepath.Join(dir, next+".zip"))
		require.NoError(t, err)
		require.NoError(t, zip.CreateFromVCS(archive, module.Version{Path: mod.Module.Mod.Path, Version: next}, directory(t, ""), "HEAD", name))
		require.NoError(t, archive.Close())
		data, err := os.ReadFile(filepath.Join(directory(t, name), "go.mod"))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, next+".mod"), data, 0o666))
		require.NoError(t, os.WriteFile(filepath.Join(dir, next+".info"), []byte(`{"Version":"`+next+`"}`), 0o666))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "list"), []byte(next+"\n"), 0o666))
	}
	// Another cache, because an earlier commit had the same version. What is in the usual one is not downloaded again.
	downloaded := "file://" + filepath.Join(goCommand(t, bin, nil, "env", "GOMODCACHE"), "cache/download")
	env := []string{
		"GOBIN=" + bin, "GOMODCACHE=" + t.TempDir(), "GOFLAGS=-modcacherw -trimpath", "GOSUMDB=off",
		"GOPROXY=file://" + proxy + "," + downloaded + "," + goCommand(t, bin, nil, "env", "GOPROXY"),
	}
	goCommand(t, bin, env, "install", root+"/crashloop@"+next)
	output, err := exec.Command(filepath.Join(bin, "crashloop"), "--version").CombinedOutput()
	require.NoError(t, err, string(output))
	require.Contains(t, string(output), next)
}
