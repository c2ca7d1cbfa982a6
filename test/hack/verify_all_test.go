// SPDX-License-Identifier: Apache-2.0

package hack

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// boilerplate makes a python3 in the place of the one that runs upstream's boilerplate.py, which the small kubernetes lacks.
func boilerplate(t *testing.T, text string) []string {
	t.Helper()
	return fake(t, map[string]string{"python3": text})
}

// A check that passed does not run again until the series changes. A series that fails does not stop the others.
func TestVerifyAll(t *testing.T) {
	long(t)
	const older = "v1.36.2"
	p := newProject(t)
	p.addSeries(t, older, "v1.36")
	arguments := filepath.Join(t.TempDir(), "arguments")
	env := boilerplate(t, fmt.Sprintf("printf '%%s\\n' \"$@\" >%q\n", arguments))
	all := func(args ...string) string {
		t.Helper()
		return p.with(t, env, "hack/verify-all.sh", append([]string{"--check", "patches"}, args...)...)
	}
	out := all("--only", "newest")
	assert.Contains(t, out, "==> "+version+" patches\n")
	assert.NotContains(t, out, older)
	assert.Contains(t, out, "upstream's boilerplate.py passes")
	assert.Contains(t, read(arguments), "--rootdir="+p.tree()+"\n")
	assert.Contains(t, read(arguments), "\n"+kubelet+"\n")
	assert.Contains(t, read(filepath.Join(p.dir, "_output/releases", version, "patches.log")), "is in order")
	out = all()
	assert.Contains(t, out, "==> "+version+" patches: passed on 2")
	assert.Contains(t, out, "==> "+older+" patches\n")
	assert.Contains(t, out, "All series are in order")
	out = all("--only", "v1.36,"+version)
	assert.NotContains(t, out, " patches\n", "both have passed")
	assert.Contains(t, out, "==> "+older+" patches: passed on 2")

	// A patch of its own does not apply. The other series is checked nevertheless, because the library has changed.
	write(p.dir, map[string]string{"patches/v1.36/late.patch": strings.Replace(read(p.series("late.patch")), "-\treturn true", "-\treturn maybe", 1)})
	edit(t, filepath.Join(p.dir, "backoff/rules.go"), "return 1", "return 2 - 1")
	log := filepath.Join(p.dir, "_output/releases", older, "patches.log")
	fails := func(check string, words ...string) string {
		t.Helper()
		p.fails(t, env, append(words, "error: not in order:\n"), "hack/verify-all.sh", "--check", check)
		out, _ := p.try(env, "hack/verify-all.sh", "--check", check, "--only", older)
		return out
	}
	out = fails("patches", "==> "+version+" patches\n", "==> "+older+" patches\n", "late ("+filepath.Join(p.dir, "patches/v1.36/late.patch")+") does not apply", "       "+older+" patches fails: "+log)
	assert.NotContains(t, out, version, "it has passed, and is not asked for")
	assert.Contains(t, read(log), "does not apply")
	assert.Contains(t, all("--only", "v1.37"), version+" patches: passed on 2")
	out, err := p.try(env, "hack/verify-all.sh", "--check", "patches,tests", "--only", older)
	require.Error(t, err, out)
	assert.NotContains(t, out, older+" tests", "after a failure there is no later check")
	assert.Contains(t, p.ok(t, "hack/pages.sh", "matrix"), "| "+older+" | **fails**")
	require.NoError(t, os.Remove(filepath.Join(p.dir, "patches/v1.36/late.patch")))
	assert.Contains(t, all(), "==> "+older+" patches\n")

	// What upstream's script finds is a failure of the check.
	edit(t, filepath.Join(p.dir, "backoff/rules.go"), "return 2 - 1", "return 1")
	for text, words := range map[string]string{"echo pkg/kubelet/our.go\n": "files without upstream's license header:\n       pkg/kubelet/our.go", "exit 3\n": "upstream's boilerplate.py fails"} {
		env = boilerplate(t, text)
		fails("patches", words, version+" patches fails", older+" patches fails")
	}

	// A series that is edited while a check runs gets no result, whichever it was that was checked.
	rules := filepath.Join(p.dir, "backoff/rules.go")
	env = boilerplate(t, fmt.Sprintf("echo 'var x int' >>%q\n", rules))
	before, result := read(rules), filepath.Join(p.dir, "_output/releases", version, "patches.json")
	require.NoError(t, os.RemoveAll(filepath.Join(p.dir, "_output/releases")))
	p.fails(t, env, []string{"the series for " + version + " has changed since patches began", version + " patches fails"}, "hack/verify-all.sh", "--check", "patches", "--only", "newest")
	assert.NoFileExists(t, result)
	write("", map[string]string{rules: before})
	assertNoScratch(t, filepath.Join(p.dir, "_output"))
}

// The series is applied to the other releases that BASE names, in a directory that is removed.
func TestVerifyOthers(t *testing.T) {
	const newer = "v1.37.2"
	p := newProject(t)
	all := func(env ...string) (string, error) {
		return p.try(env, "hack/verify-all.sh", "--check", "others,vendor")
	}
	out, err := all()
	require.NoError(t, err, out)
	assert.NotContains(t, out, version, "BASE asks for neither")

	proxy := filepath.Join(t.TempDir(), "proxy")
	write(p.dir, map[string]string{"patches/v1.37/BASE": "tag: " + version + "\napplies: " + newer + "\n"})
	files := maps.Clone(kubernetes)
	files[kubelet] = strings.Replace(files[kubelet], "return true", "return early", 1)
	makeProxy(proxy, newer)
	module(proxy, "k8s.io/kubernetes", newer, files)
	out, err = all("GOPROXY=file://"+proxy, "GOMODCACHE="+modcache(t))
	require.Error(t, err, out)
	assert.Contains(t, out, "does not apply")
	assert.Contains(t, out, version+" others fails: ")
	makeProxy(proxy, newer)
	out, err = all("GOPROXY=file://"+proxy, "GOMODCACHE="+modcache(t))
	require.NoError(t, err, out)
	assert.Contains(t, p.ok(t, "hack/pages.sh", "matrix"), "passes: "+newer)
	out, err = all()
	require.NoError(t, err, out)
	assert.Contains(t, out, version+" others: passed on 2")
	assertNoScratch(t, filepath.Join(p.dir, "_output"))
	assert.NoDirExists(t, filepath.Join(p.dir, "_output", newer))
}

func TestVerifyAllRefuses(t *testing.T) {
	p := newProject(t)
	for _, variable := range []string{"KUBE_ROOT=/", "KUBE_VERSION=" + version, "SERIES=core", "SKIP=late"} {
		p.fails(t, []string{variable}, []string{"verify-all takes no KUBE_ROOT, KUBE_VERSION, SERIES or SKIP"}, "hack/verify-all.sh", "--check", "patches")
	}
	for _, tc := range []struct {
		args  []string
		words string
	}{
		{[]string{"--check", "node-e2e"}, `"node-e2e" is not a check: they are patches, tests, build, others, vendor`},
		{[]string{"--check", "nonsense,patches"}, `"nonsense" is not a check`},
		{[]string{"--check"}, "--check needs a list of checks"},
		{[]string{"--check", ""}, "--check needs a list of checks"},
		{[]string{"--only", "v1.2"}, "--only v1.2: there is no such series; they are made on:\n       " + version},
		{[]string{"--only", ""}, "--only needs a list of releases"},
		{[]string{"v1.37"}, `unknown argument "v1.37"`},
	} {
		p.fails(t, nil, []string{tc.words}, "hack/verify-all.sh", tc.args...)
	}
	write(p.dir, map[string]string{"patches/v1.37/series": "nobody\n"})
	p.fails(t, nil, []string{`names "nobody"`}, "hack/verify-all.sh", "--check", "patches")
	assert.NoDirExists(t, filepath.Join(p.dir, "_output/releases"))
	assert.Contains(t, p.ok(t, "hack/verify-all.sh", "--help"), "verify-all.sh [--only RELEASES] [--check CHECKS]")
}
