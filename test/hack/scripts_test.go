// SPDX-License-Identifier: Apache-2.0

package hack

import (
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
	out := func(file string) string { return filepath.Join(p.dir, "_output", version, file) }
	p.fails(t, nil, []string{"not applied", "make apply"}, "hack/build.sh")
	p.ok(t, "make", "kubelet")
	assert.Equal(t, "Kubernetes v1.37.1+kubelet-backoff 1 37 clean\npatched 1\n", p.ok(t, out("kubelet")))
	info, err := os.Stat(out("kubelet"))
	require.NoError(t, err)
	p.ok(t, "make", "kubelet")
	again, err := os.Stat(out("kubelet"))
	require.NoError(t, err)
	assert.True(t, os.SameFile(info, again), "a second build has nothing to do")

	before := p.snapshot(t, p.tree())
	p.ok(t, "hack/build.sh", "--stock", "kubelet", "kube-apiserver")
	assert.Equal(t, before, p.snapshot(t, p.tree()), "a stock build leaves the patched tree alone")
	assert.Equal(t, "Kubernetes v1.37.1 1 37 clean\nstock\n", p.ok(t, out("stock/kubelet")))
	assert.Equal(t, "Kubernetes v1.37.1 1 37 clean\n", p.ok(t, out("stock/kube-apiserver")))

	p.fails(t, nil, []string{"no cmd/kubectl"}, "hack/build.sh", "kubectl")
	p.fails(t, nil, []string{`unknown argument "--stok"`}, "hack/build.sh", "--stok")
	p.fails(t, nil, []string{`restart/dobackoff.go does not say "backoff.NewBackOff(`}, "hack/build.sh", "kubelet-jittered")
	p.fails(t, nil, []string{"no cmd/kubelet-jittered"}, "hack/build.sh", "--stock", "kubelet-jittered")
	write(p.tree(), map[string]string{"pkg/kubelet/restart/dobackoff.go": "package restart\n\n// backoff.NewBackOff(curve.Initial, curve.Max)\n"})
	p.ok(t, "hack/build.sh", "kubelet-jittered")
	assert.Contains(t, p.ok(t, out("kubelet-jittered")), "Kubernetes v1.37.1+kubelet-backoff.jittered 1 37 ")
	assert.Contains(t, read(out("kubelet-jittered.go")), "backoff.NewBackOffWithJitter(curve.Initial, curve.Max, 0.5)")
	edit(t, filepath.Join(p.tree(), kubelet), "return false", "return 5")
	p.fails(t, nil, []string{"does not build", "kubelet.go:"}, "hack/build.sh")
	p.ok(t, "make", "clean")
	assert.DirExists(t, p.tree())
	assert.NoFileExists(t, out("kubelet"))
	assert.NoDirExists(t, out("stock"))
}

// The scripts of node-* call build_for_tests, and are too slow for these tests.
func TestBuildForTests(t *testing.T) {
	p := newProject(t)
	src := t.TempDir()
	sum := filepath.Join(src, "go.work.sum")
	write(src, map[string]string{"go.work.sum": "kept\n"})
	for status := range 2 {
		line := fmt.Sprintf("source hack/lib.sh; build_for_tests %s it sh -c 'echo added >>go.work.sum; exit %d'", src, status)
		out, err := p.try(nil, "bash", "-c", line)
		assert.Equal(t, status == 0, err == nil, out)
		assert.Contains(t, out, "Building it in "+src)
		assert.Equal(t, "kept\n", read(sum))
		assertNoScratch(t, filepath.Join(p.dir, "_output"))
	}
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
	settings := t.TempDir()
	write(settings, map[string]string{"env": "GOFLAGS=-mod=vendor\nGOWORK=off\nGO111MODULE=off\nCGO_ENABLED=1\n"})
	env := []string{"GOFLAGS=", "GOENV=" + filepath.Join(settings, "env")}
	_, out, err := p.fetch(t, env...)
	require.NoError(t, err, out)
	p.with(t, env, "make", "kubelet")
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

// TestBuildInterrupted: Ctrl-C ends what runs, and leaves nothing.
func TestBuildInterrupted(t *testing.T) {
	p := newProject(t)
	p.patchset(t, "apply")
	before := p.snapshot(t, p.tree())
	for _, args := range [][]string{{"hack/build.sh"}, {"hack/test-patched.sh"}, {"hack/patchset.sh", "verify", "--no-form"}} {
		started := filepath.Join(t.TempDir(), "started")
		require.NoError(t, syscall.Mkfifo(started, 0o600))
		env := fake(t, map[string]string{"go": fmt.Sprintf("[[ \"$1 $2\" != 'list -m' ]] || exit 0\necho >go.work.sum\n"+
			"if [[ $1 == list ]]; then\n  echo $$ >%[1]q\n  exec sleep 3600\nfi\nsleep 3600 &\necho $! >%[1]q\nwait\n", started)})
		cmd := p.command(env, args[0], args[1:]...)
		require.NoError(t, cmd.Start())
		var sleeper int
		_, err := fmt.Sscan(read(started), &sleeper) // waits for the writer
		require.NoError(t, err)
		require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
		require.Error(t, cmd.Wait())
		assert.Equal(t, 130, cmd.ProcessState.ExitCode(), args)
		assert.Eventually(t, func() bool { return syscall.Kill(sleeper, 0) != nil }, patience, 10*time.Millisecond, "%s leaves no process", args)
		assertNoScratch(t, filepath.Join(p.dir, "_output"))
		assert.Equal(t, before, p.snapshot(t, p.tree()), args)
	}
}

func TestTestPatched(t *testing.T) {
	p := newProject(t)
	out := p.ok(t, "make", "test-patched")
	for _, word := range []string{"k8s.io/client-go/util/flowcontrol", "ok  \tk8s.io/kubernetes/pkg/kubelet\t",
		"ok  \tk8s.io/kubernetes/pkg/kubelet/kuberuntime\t", "All 4 packages pass"} {
		assert.Contains(t, out, word)
	}
	edit(t, filepath.Join(p.tree(), "pkg/kubelet/kubelet_test.go"), `Describe() == ""`, `Describe() != ""`)
	p.fails(t, nil, []string{"FAIL: TestDescribe", "tests fail in the patched tree"}, "hack/test-patched.sh")
}

func TestMake(t *testing.T) {
	p := newProject(t)
	out := p.ok(t, "make")
	assert.Contains(t, out, "now: v1.37.1")
	makefile := read(filepath.Join(p.dir, "Makefile"))
	targets := strings.Fields(regexp.MustCompile(`(?m)^\.PHONY: (.*)$`).FindStringSubmatch(makefile)[1])
	for _, target := range targets {
		require.Regexp(t, `(?m)^`+target+`:`, makefile)
		if target != "test-modules" {
			assert.Regexp(t, `(?m)^  `+target+` +[a-z]`, out)
		}
	}
	commands := p.ok(t, "make", append([]string{"-n"}, targets...)...)
	scripts := regexp.MustCompile(`hack/[\w-]+\.sh`).FindAllString(commands, -1)
	assert.Greater(t, len(scripts), 15)
	for _, script := range scripts {
		assert.FileExists(t, filepath.Join(p.dir, script))
	}
	help := p.patchset(t, "help")
	for _, m := range regexp.MustCompile(`hack/patchset\.sh ([a-z]+)`).FindAllStringSubmatch(commands, -1) {
		assert.Contains(t, help, "\n  "+m[1]+" ")
	}
}

// TestScriptsSayWhatTheyAre: -h prints the comment at the top of a script.
func TestScriptsSayWhatTheyAre(t *testing.T) {
	p := newProject(t)
	scripts, err := filepath.Glob(filepath.Join(p.dir, "hack/*.sh"))
	require.NoError(t, err)
	for _, s := range scripts {
		text, ok := strings.CutPrefix(read(s), "#!/usr/bin/env bash\n# SPDX-License-Identifier: Apache-2.0\n#\n")
		assert.True(t, ok, s)
		if !strings.Contains(text, "--help") {
			continue
		}
		comment, _, _ := strings.Cut(text, "\n\n")
		want := regexp.MustCompile(`(?m)^# ?`).ReplaceAllString(comment, "")
		for _, flag := range []string{"-h", "--help"} {
			assert.Equal(t, want, strings.TrimRight(p.ok(t, s, flag), "\n"), s)
		}
	}
	assert.Contains(t, p.patchset(t, "apply", "--help"), "SKIP=")
}

// TestLint: every module with packages is checked, each in its own folder.
func TestLint(t *testing.T) {
	p := newProject(t)
	log, staticcheck := filepath.Join(t.TempDir(), "log"), filepath.Join(t.TempDir(), "static check")
	script(staticcheck, fmt.Sprintf("echo \"$PWD staticcheck $*\" >>%q\n[[ ! -e wrong ]]\n", log))
	env := fake(t, map[string]string{"gofmt": "[[ ! -e unformatted ]] || echo x.go", "shellcheck": "[[ ! -e wrong ]]", "go": fmt.Sprintf(`case "$*" in
list*) [[ ! -e main.go ]] || echo x ;;
*" -n staticcheck") echo %q ;;
vet*) echo "$PWD GOWORK=${GOWORK:-} $*" >>%q; [[ ! -e wrong-vet ]] ;;
esac
`, staticcheck, log)})
	write(p.dir, map[string]string{"go.work": "go 1.22.0\n\nuse (\n\t.\n\t./test/node\n)\n", "test/node/go.mod": "", "test/node/main.go": "",
		"examples/an agent/go.mod": "", "examples/an agent/main.go": "", "hack/tools/go.mod": "", "_output/tree/go.mod": "", "_output/tree/main.go": ""})
	p.with(t, env, "hack/lint.sh")
	said := read(log)
	for dir, vet := range map[string]string{"test/node": " GOWORK= vet", "examples/an agent": " GOWORK=off vet"} {
		assert.Contains(t, said, filepath.Join(p.dir, dir)+vet+" ./...\n")
		assert.Contains(t, said, filepath.Join(p.dir, dir)+" staticcheck ./...\n")
	}
	assert.NotContains(t, said, "hack/tools", "a module without packages")
	assert.NotContains(t, said, "_output")
	for _, file := range []string{"test/node/wrong", "examples/an agent/wrong-vet", "wrong", "unformatted"} {
		write(p.dir, map[string]string{file: ""})
		p.fails(t, env, nil, "hack/lint.sh")
		require.NoError(t, os.Remove(filepath.Join(p.dir, file)))
	}
}

// TestScenario: whether there is such a scenario is known before anything is built.
func TestScenario(t *testing.T) {
	p := newProject(t)
	write(p.dir, map[string]string{"test/node/e2e/x_test.go": "package e2e\n\nvar podScenarios = []scenario{\n\t{\"Deleted\", nil},\n}\n\n" +
		"var gateDisruptions = []scenario{\n\t{\"GateOff\", nil},\n}\n\nvar crashloopScenarios = []scenario{\n\t{\"Killed\", nil},\n}\n"})
	env := fake(t, map[string]string{"id": "echo 1000"}) // so that it ends after the check
	for scenario, test := range map[string]string{
		"Delted": "TestNode", "^eleted": "TestNode", "Pods/GateOff": "TestNode", "Disruptions/Deleted": "TestNode", "Killed": "TestNode", "Nothing/Deleted": "TestNode",
		"CrashloopRun/Deleted": "TestCrashloopRun", "CrashloopRun/Disruptions/Killed": "TestCrashloopRun",
	} {
		p.fails(t, env, []string{"no scenario of " + test + " matches", "There are:", "Pods/"}, "make", "node-e2e", "SCENARIO="+scenario)
	}
	for _, scenario := range []string{
		"", "Upstream", "Twins", "Pods", "Disruptions", "Deleted", "^Del", "Deleted|Nothing", "Pods/Deleted", "Pods/Deleted/below", "Disruptions/Gate", "CrashloopRun", "CrashloopRun/Killed", "CrashloopRun/Pods/Kil",
	} {
		p.fails(t, env, []string{"node-e2e needs root"}, "make", "node-e2e", "SCENARIO="+scenario)
	}
}

// TestMissingTools: each command names the tool that it lacks, and changes nothing.
func TestMissingTools(t *testing.T) {
	p := newProject(t)
	for tool, commands := range map[string][]string{
		"git": {"hack/patchset.sh apply", "hack/patchset.sh reverse", "hack/patchset.sh refresh", "hack/patchset.sh verify", "hack/patchset.sh fetch", "hack/build.sh", "hack/test-patched.sh", "hack/dist.sh"},
		"go": {"hack/patchset.sh fetch", "hack/patchset.sh verify", "hack/build.sh", "hack/test-patched.sh", "hack/lint.sh", "hack/node-timing.sh", "make kubelet",
			"env KB_PROGRAM_DIR= hack/patchset.sh apply"},
		"gzip": {"make dist"},
	} {
		path := t.TempDir()
		for _, dir := range []string{"/usr/bin", "/bin"} {
			entries, err := os.ReadDir(dir)
			require.NoError(t, err)
			for _, e := range entries {
				if e.Name() != tool && e.Name() != "go" {
					_ = os.Symlink(filepath.Join(dir, e.Name()), filepath.Join(path, e.Name()))
				}
			}
		}
		if tool != "go" {
			require.NoError(t, os.Symlink(mustLook(t, "go"), filepath.Join(path, "go")))
		}
		before := p.snapshot(t, p.tree())
		for _, command := range commands {
			env := []string{"PATH=" + path}
			if strings.Contains(command, "fetch") {
				env = append(env, "KUBE_VERSION=v1.37.2")
			}
			words := strings.Fields(command)
			cmd := p.command(env, words[0], words[1:]...)
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit, command)
			assert.Contains(t, string(out), "missing on PATH: "+tool, command)
		}
		assert.Equal(t, before, p.snapshot(t, p.tree()), tool)
	}
}
