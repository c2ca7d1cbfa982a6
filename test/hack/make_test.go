// SPDX-License-Identifier: Apache-2.0

// Package hack tests the scripts in hack/ and the Makefile.
package hack

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const branch = "kubelet-backoff-v1.37"

// kinds are the trees that KUBE_ROOT may name: a git clone, and sources without git.
var kinds = map[string]func(project, *testing.T) project{"clone": project.clone, "plain": project.plain}

func TestMake(t *testing.T) {
	p := newProject(t)
	out := p.ok(t, "make")
	for _, target := range []string{"help", "kubelet", "test", "test-patched", "test-kubelet", "verify", "bench", "node-timing", "apply", "reverse", "refresh", "series", "stat", "dist", "fetch", "fuzz", "lint", "clean"} {
		assert.Regexp(t, `(?m)^  `+target+` +[a-z]`, out)
	}
	assert.Contains(t, out, "now: v1.37.1")
	p.ok(t, "make", "-n", "kubelet", "test-patched", "test-kubelet", "bench", "fuzz", "node-timing")
}

// fake makes a directory of programs for PATH.
func fake(t *testing.T, programs map[string]string) []string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range programs {
		write(dir, map[string]string{name: "#!/bin/bash\n" + text})
		require.NoError(t, os.Chmod(filepath.Join(dir, name), 0o755))
	}
	return []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
}

// TestLint: every module with packages is checked, each in its own folder.
func TestLint(t *testing.T) {
	p := newProject(t)
	log := filepath.Join(t.TempDir(), "log")
	staticcheck := filepath.Join(t.TempDir(), "static check")
	write(filepath.Dir(staticcheck), map[string]string{"static check": fmt.Sprintf("#!/bin/bash\necho \"$PWD staticcheck $*\" >>%q\n[[ ! -e wrong ]]\n", log)})
	require.NoError(t, os.Chmod(staticcheck, 0o755))
	env := fake(t, map[string]string{"gofmt": "", "shellcheck": "", "go": fmt.Sprintf(`case "$*" in
list*) [[ ! -e main.go ]] || echo x ;;
*" -n staticcheck") echo %q ;;
vet*) echo "$PWD $*" >>%q ;;
esac
`, staticcheck, log)})
	write(p.dir, map[string]string{"test/node/go.mod": "", "test/node/main.go": "", "examples/an agent/go.mod": "", "examples/an agent/main.go": "", "hack/tools/go.mod": "", "_output/tree/go.mod": "", "_output/tree/main.go": ""})
	out, err := p.try(env, "hack/lint.sh")
	require.NoError(t, err, out)
	said := read(log)
	for _, dir := range []string{"test/node", "examples/an agent"} {
		for _, tool := range []string{"vet", "staticcheck"} {
			assert.Contains(t, said, filepath.Join(p.dir, dir)+" "+tool+" ./...\n")
		}
	}
	assert.NotContains(t, said, "hack/tools", "a module without packages")
	assert.NotContains(t, said, "_output")
	write(p.dir, map[string]string{"test/node/wrong": ""})
	out, err = p.try(env, "hack/lint.sh")
	require.Error(t, err, out)
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
		"", "Upstream", "Pods", "Disruptions", "Deleted", "^Del", "Deleted|Nothing", "Pods/Deleted", "Pods/Deleted/below", "Disruptions/Gate", "CrashloopRun", "CrashloopRun/Killed", "CrashloopRun/Pods/Kil",
	} {
		p.fails(t, env, []string{"node-e2e needs root"}, "make", "node-e2e", "SCENARIO="+scenario)
	}
}

func TestMissingTools(t *testing.T) {
	p := newProject(t)
	for _, tool := range []string{"git", "go"} {
		dir := t.TempDir()
		for _, from := range []string{"/usr/bin", "/bin"} {
			entries, _ := os.ReadDir(from)
			for _, e := range entries {
				if e.Name() != tool && e.Name() != "go" {
					_ = os.Symlink(filepath.Join(from, e.Name()), filepath.Join(dir, e.Name()))
				}
			}
		}
		if tool == "git" {
			require.NoError(t, os.Symlink(mustLook(t, "go"), filepath.Join(dir, "go")))
		}
		for _, script := range map[string][]string{"git": {"apply", "reverse", "refresh", "verify", "fetch", "build", "test-patched"}, "go": {"fetch", "verify", "build", "test-patched"}}[tool] {
			args := []string{}
			if script == "fetch" {
				args = append(args, "v1.37.2")
			}
			cmd := p.script([]string{"PATH=" + dir}, script, args...)
			out, err := cmd.CombinedOutput()
			require.Error(t, err, script)
			require.Contains(t, string(out), "missing on PATH: "+tool, script)
		}
		if tool == "go" {
			before := p.snapshot(t, p.tree())
			p.fails(t, []string{"PATH=" + dir}, []string{"missing on PATH: go"}, "make", "node-timing")
			p.fails(t, []string{"PATH=" + dir}, []string{"missing on PATH: go"}, "make", "kubelet")
			assert.Equal(t, before, p.snapshot(t, p.tree()), "nothing is applied")
		}
	}
}

func TestScriptsSayWhatTheyAre(t *testing.T) {
	p := newProject(t)
	scripts, err := filepath.Glob(filepath.Join(p.dir, "hack/*.sh"))
	require.NoError(t, err)
	for _, s := range scripts {
		text := read(s)
		assert.True(t, strings.HasPrefix(text, "#!/usr/bin/env bash\n# SPDX-License-Identifier: Apache-2.0\n#\n"), s)
	}
	assert.Contains(t, p.ok(t, "hack/patchset.sh", "apply", "--help"), "SKIP=")
}
