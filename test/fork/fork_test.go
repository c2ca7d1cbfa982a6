// SPDX-License-Identifier: Apache-2.0

// Package fork has the test of a fork of another program that vendors the library.
package fork

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	library  = "github.com/kubelet-backoff/kubelet-backoff"
	ours     = `flowcontrol "` + library + `/backoff"`
	upstream = `"k8s.io/client-go/util/flowcontrol"`
	// These restarts are the same with both.
	before = `ran for 1s, restarts after 0s
ran for 1s, restarts after 10s
ran for 1s, restarts after 20s
ran for 1s, restarts after 40s
`
)

// command runs a command in dir, with env, and returns what it prints.
func command(t *testing.T, dir string, env []string, args ...string) string {
	t.Helper()
	var stderr strings.Builder
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Env, cmd.Stderr = dir, append(os.Environ(), env...), &stderr
	output, err := cmd.Output()
	require.NoError(t, err, stderr.String())
	return string(output)
}

// checkout returns a copy of the fork, with the library beside its files as a git submodule would be, and the
// environment in which go may add to its go.mod.
func checkout(t *testing.T) (dir string, env []string) {
	t.Helper()
	dir = t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("tree")))
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	require.NoError(t, os.Symlink(root, filepath.Join(dir, "library")))
	env = []string{"GOWORK=off", "GOFLAGS=" + os.Getenv("GOFLAGS") + " -mod=mod"}
	command(t, dir, env, "go", "mod", "edit", "-replace="+library+"=./library")
	return dir, env
}

// files returns the names and texts of a package's files, without tests.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	texts := map[string]string{}
	for _, name := range names {
		if !strings.HasSuffix(name, "_test.go") {
			data, err := os.ReadFile(name)
			require.NoError(t, err)
			texts[filepath.Base(name)] = string(data)
		}
	}
	return texts
}

// The fork builds from its vendor folder alone, and its waits are not cut short any more.
func TestVendor(t *testing.T) {
	dir, env := checkout(t)
	command(t, dir, env, "go", "mod", "vendor")
	vendored := filepath.Join(dir, "vendor", library)
	require.Equal(t, files(t, "../../backoff"), files(t, filepath.Join(vendored, "backoff")))
	names, err := filepath.Glob(filepath.Join(vendored, "*"))
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(vendored, "LICENSE"), filepath.Join(vendored, "backoff")}, names)

	// Neither the library's source, nor a module cache, nor a network is left.
	require.NoError(t, os.Remove(filepath.Join(dir, "library")))
	env = append(env, "GOPROXY=off", "GOMODCACHE="+t.TempDir())
	command(t, dir, env, "go", "build", "-mod=vendor", "-o", "fork", ".")
	require.Equal(t, before+"ran for 9m40s, restarts after 1m20s\n", command(t, dir, env, "./fork"))
}

// With the line of the import as it was, the same file uses client-go, whose GC cuts the last wait short.
func TestUpstream(t *testing.T) {
	dir, env := checkout(t)
	file := filepath.Join(dir, "main.go")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(text), ours))
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(string(text), ours, upstream, 1)), 0o666))
	command(t, dir, env, "go", "mod", "edit", "-require=k8s.io/client-go@v0.37.2")
	require.Equal(t, before+"ran for 9m40s, restarts after 21s\n", command(t, dir, env, "go", "run", "."))
}
