// SPDX-License-Identifier: Apache-2.0

package hack

import (
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestBuild(t *testing.T) {
	p := newProject(t)
	p.fails(t, nil, []string{"not applied", "make apply"}, "hack/build.sh")
	p.ok(t, "make", "kubelet")
	binary := filepath.Join(p.dir, "_output", version, "kubelet")
	out := p.ok(t, binary)
	assert.Equal(t, "Kubernetes v1.37.1+kubelet-backoff 1 37 clean\npatched 1\n", out)
	info, err := os.Stat(binary)
	require.NoError(t, err)
	p.ok(t, "make", "kubelet")
	again, err := os.Stat(binary)
	require.NoError(t, err)
	assert.True(t, os.SameFile(info, again), "a second build has nothing to do")

	before := p.snapshot(t, p.tree())
	p.ok(t, "hack/build.sh", "--stock", "kubelet", "kube-apiserver")
	assert.Equal(t, before, p.snapshot(t, p.tree()), "a stock build leaves the patched tree alone")
	assert.Equal(t, "Kubernetes v1.37.1 1 37 clean\nstock\n", p.ok(t, filepath.Join(p.dir, "_output", version, "stock/kubelet")))
	assert.Equal(t, "Kubernetes v1.37.1 1 37 clean\n", p.ok(t, filepath.Join(p.dir, "_output", version, "stock/kube-apiserver")))

	p.fails(t, nil, []string{"no cmd/kubectl"}, "hack/build.sh", "kubectl")
	p.fails(t, nil, []string{"restart/dobackoff.go does not say \"backoff.NewBackOff("}, "hack/build.sh", "kubelet-jittered")
	p.fails(t, nil, []string{"no cmd/kubelet-jittered"}, "hack/build.sh", "--stock", "kubelet-jittered")
	edit(t, filepath.Join(p.tree(), "pkg/kubelet/kubelet.go"), "return false", "return 5")
	p.fails(t, nil, []string{"does not build", "kubelet.go:"}, "hack/build.sh")
	assert.Contains(t, p.ok(t, "hack/patchset.sh", "clean"), "kept, because it has changes")
	p.git(p.tree(), "checkout", "-q", ".")
	p.ok(t, "make", "clean")
	assert.NoDirExists(t, filepath.Join(p.dir, "_output"))
}

func TestBuildKubeRoot(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			p := kind(newProject(t), t)
			before := p.snapshot(t, p.root)
			p.ok(t, "hack/build.sh", "--stock")
			assert.Equal(t, before, p.snapshot(t, p.root))
			p.ok(t, "make", "kubelet")
			assert.Contains(t, p.ok(t, filepath.Join(p.dir, "_output", version, "kubelet")), "patched 1")
			p.ok(t, "hack/build.sh", "--stock")
			assert.Contains(t, p.ok(t, filepath.Join(p.dir, "_output", version, "stock/kubelet")), "stock\n")
			p.ok(t, "make", "reverse")
			assert.Equal(t, before, p.snapshot(t, p.root))
		})
	}
}

// TestBuildGoSettings: what `go env -w` wrote must not matter either.
func TestBuildGoSettings(t *testing.T) {
	p := newProject(t)
	settings := filepath.Join(t.TempDir(), "env")
	write(filepath.Dir(settings), map[string]string{"env": "GOFLAGS=-mod=vendor\nGOWORK=off\nGO111MODULE=off\nCGO_ENABLED=1\n"})
	env := []string{"GOFLAGS=", "GOENV=" + settings}
	out, err := p.try(append(env, "KB_OUTPUT_DIR="+t.TempDir(), "GOMODCACHE="+modcache(t)), "hack/patchset.sh", "fetch", version)
	require.NoError(t, err, out)
	out, err = p.try(env, "make", "kubelet")
	require.NoError(t, err, out)
	info, err := buildinfo.ReadFile(filepath.Join(p.dir, "_output", version, "kubelet"))
	require.NoError(t, err)
	assert.Contains(t, info.Settings, debug.BuildSetting{Key: "CGO_ENABLED", Value: "0"})
	assert.Contains(t, info.Settings, debug.BuildSetting{Key: "-trimpath", Value: "true"})
}

// TestBuildGoTooOld: nothing is switched in a checkout that cannot be built.
func TestBuildGoTooOld(t *testing.T) {
	p := newProject(t).clone(t)
	edit(t, filepath.Join(p.root, "go.work"), "go 1.22.0", "go 1.999.0")
	p.git(p.root, "commit", "-q", "-a", "-m", "x")
	before := p.snapshot(t, p.root)
	p.fails(t, nil, []string{"cannot build " + p.root, "1.999.0"}, "make", "kubelet")
	assert.Equal(t, before, p.snapshot(t, p.root))
}

func TestBuildInterrupted(t *testing.T) {
	p := newProject(t)
	p.ok(t, "hack/patchset.sh", "apply")
	before := p.snapshot(t, p.tree())
	for _, script := range []string{"build", "verify", "test-patched"} {
		bin := t.TempDir()
		started := filepath.Join(bin, "started")
		// The type check of verify calls go list itself, which has no children.
		write(bin, map[string]string{"go": `#!/bin/bash
[[ "$1 $2" != "list -m" ]] || exit 0
echo >go.work.sum
if [[ $1 == build || $1 == test ]]; then
  sleep 3600 &
  echo $! >` + started + `
  wait
fi
echo $$ >` + started + `
exec sleep 3600
`})
		require.NoError(t, os.Chmod(filepath.Join(bin, "go"), 0o755))
		cmd := p.script([]string{"PATH=" + bin + ":" + os.Getenv("PATH")}, script)
		require.NoError(t, cmd.Start())
		require.Eventually(t, func() bool {
			pid, err := os.ReadFile(started)
			return err == nil && strings.HasSuffix(string(pid), "\n")
		}, patience, 10*time.Millisecond)
		require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
		err := cmd.Wait()
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit)
		assert.Equal(t, 130, exit.ExitCode(), script)
		var sleeper int
		_, err = fmt.Sscan(read(started), &sleeper)
		require.NoError(t, err)
		assert.Eventually(t, func() bool { return syscall.Kill(sleeper, 0) != nil }, patience, 10*time.Millisecond, "%s leaves no process", script)
		assertNoScratch(t, filepath.Join(p.dir, "_output"))
		assert.Equal(t, before, p.snapshot(t, p.tree()), script)
	}
}

// script is a script in hack/, or the program with that command.
func (p project) script(env []string, name string, args ...string) *exec.Cmd {
	if name == "build" || name == "test-patched" {
		return p.command(env, "hack/"+name+".sh", args...)
	}
	return p.command(env, "hack/patchset.sh", append([]string{name}, args...)...)
}

func TestTestPatched(t *testing.T) {
	p := newProject(t)
	out := p.ok(t, "make", "test-patched")
	for _, word := range []string{"k8s.io/client-go/util/flowcontrol", "ok  \tk8s.io/kubernetes/pkg/kubelet\t",
		"ok  \tk8s.io/kubernetes/pkg/kubelet/restart\t", "All 3 packages pass"} {
		assert.Contains(t, out, word)
	}
	edit(t, filepath.Join(p.tree(), "pkg/kubelet/kubelet_test.go"), `Describe() == ""`, `Describe() != ""`)
	p.fails(t, nil, []string{"FAIL: TestDescribe", "tests fail in the patched tree"}, "hack/test-patched.sh")
}
