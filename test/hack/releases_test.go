// SPDX-License-Identifier: Apache-2.0

package hack

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// addSeries gives the project a series for another release, which has the same files.
func (p project) addSeries(t *testing.T, release, name string) {
	t.Helper()
	command := func(dir string, args ...string) {
		cmd := exec.Command("cp", append([]string{"-Rp"}, args...)...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
	}
	command(filepath.Join(p.dir, "patches"), "v1.37", name)
	write(p.dir, map[string]string{"patches/" + name + "/BASE": "tag: " + release + "\n"})
	require.NoError(t, os.Mkdir(filepath.Join(p.dir, "_output", release), 0o755))
	command(filepath.Join(p.dir, "_output"), version+"/kubernetes", release)
	tree := filepath.Join(p.dir, "_output", release, "kubernetes")
	const base = "staging/src/k8s.io/component-base/version/base.go"
	write(tree, map[string]string{base: ofMinor(read(filepath.Join(tree, base)), release)})
	p.git(tree, "-c", "user.name=A", "-c", "user.email=a@example.com", "commit", "-q", "-a", "-m", release)
	p.git(tree, "tag", release)
}

// TestVerifyAll: a series that fails does not stop the others, and a check that passed does not run again until the series
// changes.
func TestVerifyAll(t *testing.T) {
	long(t)
	const other = "v1.38.0"
	p := newProject(t)
	p.addSeries(t, other, "v1.38")
	broken := filepath.Join(p.dir, "patches/v1.38", p.patches(t)[2])
	edit(t, broken, "-\treturn true", "-\treturn maybe")
	p.fails(t, nil, []string{
		other + " patches: apply", "does not apply to kubernetes " + other, version + " patches: apply",
		"| v1.38.0 | **fails**", "| v1.37.1 | passes", "1 of 2 series fail",
	}, "hack/patchset.sh", "verify-all", "--check", "patches")
	assert.Contains(t, read(filepath.Join(p.dir, "_output/releases", other, "patches.log")), "does not apply to kubernetes "+other)

	edit(t, broken, "-\treturn maybe", "-\treturn true")
	out := p.ok(t, "hack/patchset.sh", "verify-all", "--check", "patches")
	assert.Contains(t, out, other+" patches: apply")
	assert.Contains(t, out, version+" patches: passed on ")
	assert.NotContains(t, out, version+" patches: apply")

	out = p.ok(t, "hack/patchset.sh", "verify-all")
	assert.Contains(t, out, version+" patches: passed on ")
	assert.Contains(t, out, version+" build: type-check")
	assert.Contains(t, out, version+" others: "+filepath.Join(p.dir, "patches/v1.37/BASE")+" has no line \"applies:\"")
	assert.Regexp(t, `\| v1.37.1 \| passes[^|]*\| passes[^|]*\| passes[^|]*\| – \| – \|`, out)

	// What is in the tree beside the series, or in its place, has not been tested with it.
	tree := filepath.Join(p.dir, "_output", version, "kubernetes")
	require.NoError(t, os.RemoveAll(filepath.Join(p.dir, "_output/releases", version, "tests.json")))
	write(tree, map[string]string{"pkg/kubelet/mine.go": "package kubelet\n"})
	p.git(tree, "add", "-A")
	p.fails(t, nil, []string{"has changes that are not committed", "**fails**"}, "hack/patchset.sh", "verify-all", "--only", "v1.37", "--check", "tests")
	p.git(tree, "-c", "user.name=A", "-c", "user.email=a@example.com", "commit", "-q", "-m", "mine")
	p.fails(t, nil, []string{"has been edited since the series was applied", "**fails**"}, "hack/patchset.sh", "verify-all", "--only", "v1.37", "--check", "tests")
	p.git(tree, "reset", "-q", "--hard", "HEAD~")
	assert.Contains(t, p.ok(t, "hack/patchset.sh", "verify-all", "--only", "v1.37", "--check", "tests"), version+" tests: upstream's tests")

	// A series that is edited while a check runs gets no result, whichever it was that was checked.
	results := filepath.Join(p.dir, "_output/releases", version, "tests.json")
	require.NoError(t, os.RemoveAll(results))
	bin, rules := t.TempDir(), filepath.Join(p.dir, "backoff/rules.go")
	write(bin, map[string]string{"go": "#!/bin/sh\n[ \"$1\" != test ] || echo 'var x int' >>'" + rules + "'\nexec \"$REAL_GO\" \"$@\"\n"})
	require.NoError(t, os.Chmod(filepath.Join(bin, "go"), 0o755))
	realGo, err := exec.LookPath("go")
	require.NoError(t, err)
	before := read(rules)
	out, err = p.try([]string{"PATH=" + bin + ":" + os.Getenv("PATH"), "REAL_GO=" + realGo}, "hack/patchset.sh", "verify-all", "--only", "v1.37", "--check", "tests")
	require.Error(t, err, out)
	assert.Contains(t, out, "changed while this ran")
	assert.NoFileExists(t, results)
	write(p.dir, map[string]string{"backoff/rules.go": before})
	p.ok(t, "hack/patchset.sh", "verify-all", "--only", "v1.37", "--check", "tests")

	// Another patch version, to which one patch does not apply; the release itself passed already.
	const newer = "v1.37.2"
	proxy, base := filepath.Join(t.TempDir(), "proxy"), filepath.Join(p.dir, "patches/v1.37/BASE")
	files := maps.Clone(kubernetes)
	files["pkg/kubelet/kubelet.go"] = strings.Replace(files["pkg/kubelet/kubelet.go"], "return true", "return early", 1)
	makeProxy(proxy, newer)
	module(proxy, "k8s.io/kubernetes", newer, files)
	edit(t, base, "tag:", "applies: "+newer+"\ntag:")
	env := []string{"GOPROXY=file://" + proxy, "GOMODCACHE=" + modcache(t)}
	p.fails(t, env, []string{
		version + " tests: passed on ", version + " others: apply to these", p.patches(t)[2] + " does not apply to kubernetes " + newer, "pkg/kubelet/kubelet.go",
		"| v1.37.1 | passes", "**fails**",
	}, "hack/patchset.sh", "verify-all", "--only", "v1.37")
	makeProxy(proxy, newer)
	env[1] = "GOMODCACHE=" + modcache(t)
	out, err = p.try(env, "hack/patchset.sh", "verify-all", "--only", "v1.37")
	require.NoError(t, err, out)
	assert.Contains(t, out, "passes: "+newer)
	assert.Empty(t, scratch(t, filepath.Join(p.dir, "_output")))
	edit(t, base, newer, "v1.36.2")
	p.fails(t, nil, []string{`BASE: "applies: v1.36.2" must name releases of v1.37`}, "hack/patchset.sh", "verify-all")
	edit(t, base, "applies: v1.36.2\n", "apply: v1.37.2\n")
	p.fails(t, nil, []string{`BASE line 1: "apply: v1.37.2" must begin with "tag:" or "applies:", or be "vendor: yes"`}, "hack/patchset.sh", "verify-all")
	edit(t, base, "apply: v1.37.2\n", "")

	edit(t, filepath.Join(p.dir, "backoff/rules.go"), "return 1", "return 2")
	out = p.ok(t, "hack/patchset.sh", "verify-all", "--check", "patches", "--only", "v1.37")
	assert.Contains(t, out, version+" patches: apply", "the library is part of the series")
	assert.NotContains(t, out, other)
	assert.Regexp(t, `\| v1.37.1 \| passes[^|]*\| not run \| not run \|`, out)

	write(p.dir, map[string]string{"patches/v1.38/series": "nonsense\n"})
	p.fails(t, nil, []string{`FAIL: v1.38: `, `"nonsense" is not the name of a patch`, version + " patches: passed on ", "1 of 2 series"}, "hack/patchset.sh", "verify-all", "--check", "patches")

	p.fails(t, []string{"KUBE_VERSION=" + other}, []string{"verify-all takes no KUBE_ROOT, KUBE_VERSION"}, "hack/patchset.sh", "verify-all")
	p.fails(t, []string{"VENDOR=1"}, []string{"SKIP or VENDOR: it checks whole series"}, "hack/patchset.sh", "verify-all")
	out = p.ok(t, "hack/patchset.sh", "verify-all", "--check", "patches,build", "--only", "v1.37")
	assert.Contains(t, out, version+" build: ")
	assert.NotContains(t, out, version+" tests")
	p.fails(t, nil, []string{"--only is empty"}, "hack/patchset.sh", "verify-all", "--only=")
	p.fails(t, nil, []string{`"node-e2e" is not a check that verify-all runs: must be one of patches, tests, build, others, vendor`}, "hack/patchset.sh", "verify-all", "--check", "node-e2e")
	p.fails(t, nil, []string{"FAIL: v1.38", "1 of 1 series"}, "hack/patchset.sh", "verify-all", "--check", "patches", "--only", "newest")
	p.fails(t, nil, []string{`there is no series "v1.2"`, "v1.38: made on v1.38.0"}, "hack/patchset.sh", "verify-all", "--only", "v1.2")
}

// The matrix claims nothing that no command has shown, and gives the reason for each patch that a release lacks.
func TestMatrix(t *testing.T) {
	const other = "v1.38.0"
	p := newProject(t)
	p.addSeries(t, other, "v1.38")
	series := filepath.Join(p.dir, "patches/v1.38/series")
	last := p.patches(t)[2]
	edit(t, series, last+"\n", "")
	require.NoError(t, os.Remove(filepath.Join(p.dir, "patches/v1.38", last)))
	p.fails(t, nil, []string{`patches/v1.38/series has no patch "kubelet-not-late", and no line "# left out: kubelet-not-late: REASON"`}, "hack/patchset.sh", "matrix")
	edit(t, series, p.patches(t)[1]+"\n", p.patches(t)[1]+"\n# left out: kubelet-not-late: it is never late\n")

	edit(t, series, "it is never late\n", "it is never late\n# left out: client-go-rules: it is there\n")
	p.fails(t, nil, []string{`"# left out: client-go-rules: it is there" must be`}, "hack/patchset.sh", "matrix")
	edit(t, series, "# left out: client-go-rules: it is there\n", "# left out: nobody: x\n")
	p.fails(t, nil, []string{`"# left out: nobody" names a patch that no series has`}, "hack/patchset.sh", "matrix")
	edit(t, series, "# left out: nobody: x\n", "")

	record := func(checked string, args ...string) string {
		t.Helper()
		out, err := p.try([]string{"KUBE_VERSION=" + version, "KB_CHECKED=" + checked}, "hack/patchset.sh", append([]string{"record"}, args...)...)
		require.NoError(t, err, out)
		return out
	}
	assert.Contains(t, record("", "node-e2e"), "not stored", "the series is not applied")
	p.ok(t, "make", "apply", "KUBE_VERSION="+version)
	checked, err := p.try([]string{"KUBE_VERSION=" + version}, "hack/patchset.sh", "checked")
	require.NoError(t, err, checked)
	record("another one", "node-e2e", "82 scenarios")
	assert.Contains(t, p.ok(t, "hack/patchset.sh", "matrix"), "| v1.37.1 | not run | not run | not run | – | – | not run | not run | not run | not run |", "the programs were built of another series")
	tree := filepath.Join(p.dir, "_output", version, "kubernetes")
	p.git(tree, "-c", "user.name=A", "-c", "user.email=a@example.com", "commit", "-q", "--allow-empty", "-m", "mine")
	assert.Contains(t, record(strings.TrimSpace(checked), "node-e2e"), "has been edited since the series was applied")
	p.git(tree, "reset", "-q", "--hard", "HEAD~")
	record(strings.TrimSpace(checked), "node-e2e", "82|scenarios")
	record("", "node-timing", "--failed")
	partial, err := p.try([]string{"KUBE_VERSION=" + version, "SKIP=3"}, "hack/patchset.sh", "record", "node-e2e")
	require.NoError(t, err, partial)
	assert.Contains(t, partial, "not stored")
	withSkip, err := p.try([]string{"SKIP=3"}, "hack/patchset.sh", "matrix")
	require.NoError(t, err, withSkip)
	out := p.ok(t, "hack/patchset.sh", "matrix")
	assert.Equal(t, out, withSkip, "SKIP is only for apply")
	for _, line := range []string{
		"| release | patches | tests | build | others | vendor | node-timing | node-e2e | node-conformance | node-skew |",
		"| v1.38.0 | not run | not run | not run | – | – | not run | not run | not run | not run |",
		"| v1.37.1 | not run | not run | not run | – | – | **fails** | passes: 82\\|scenarios | not run | not run |",
		"| patch | v1.38 | v1.37 |",
		"| kubelet-not-late | – | 3 |",
		"* v1.38 lacks kubelet-not-late: it is never late\n",
	} {
		assert.Contains(t, out, line)
	}
	write(p.dir, map[string]string{"docs/patches.md": "a\n<!-- make matrix -->\nold\n<!-- end of make matrix -->\nb\n"})
	p.ok(t, "hack/patchset.sh", "matrix", "--write")
	assert.Equal(t, "a\n<!-- make matrix -->\n| release | patches | left out | passed |\n| --- | --- | --- | --- |\n"+
		"| v1.38.0 | 2 | kubelet-not-late |  |\n| v1.37.1 | 3 |  | node-e2e |\n<!-- end of make matrix -->\nb\n", read(filepath.Join(p.dir, "docs/patches.md")))
	assert.Equal(t, out, read(filepath.Join(p.dir, "docs/results/releases.md")))

	require.NoError(t, os.RemoveAll(filepath.Join(p.dir, "_output/releases")))
	assert.Equal(t, out, p.ok(t, "hack/patchset.sh", "matrix"), "the checks ran in a clone that is gone")
	record("", "node-timing")
	assert.Contains(t, p.ok(t, "hack/patchset.sh", "matrix"), "| passes | passes: 82\\|scenarios |", "the later result counts")
	results := filepath.Join(p.dir, "docs/results/releases.json")
	kept := read(results)
	write(p.dir, map[string]string{"docs/results/releases.json": "{"})
	p.fails(t, nil, []string{results + ": unexpected end of JSON input"}, "hack/patchset.sh", "matrix", "--write")
	assert.Equal(t, "{", read(results))
	write(p.dir, map[string]string{"docs/results/releases.json": kept})

	edit(t, filepath.Join(p.dir, "docs/patches.md"), "b\n", "<!-- make matrix -->\nold\n<!-- end of make matrix -->\n")
	p.fails(t, nil, []string{"docs/patches.md must have the lines"}, "hack/patchset.sh", "matrix", "--write")

	edit(t, filepath.Join(p.dir, "backoff/rules.go"), "// Rule rules.", "// Rule is the rule.")
	assert.Contains(t, p.ok(t, "hack/patchset.sh", "matrix"), "passes: 82\\|scenarios |", "a comment is no code")
	edit(t, filepath.Join(p.dir, "backoff/rules.go"), "return 1", "return 2")
	assert.Contains(t, p.ok(t, "hack/patchset.sh", "matrix"), "| v1.37.1 | not run | not run | not run | – | – | not run | not run | not run | not run |")
	p.fails(t, nil, []string{`"build" is not a check that scripts record: must be one of node-timing, node-e2e, node-conformance, node-skew`}, "hack/patchset.sh", "record", "build")
}

// What differs from upstream is what the messages say, of each release that has another message its own.
func TestDeviations(t *testing.T) {
	p := newProject(t)
	p.addSeries(t, "v1.38.0", "v1.38")
	edit(t, filepath.Join(p.dir, "patches/v1.37", p.patches(t)[2]), "Drop-When: ", "Drop-When: v1.38 is out, or ")
	out := p.ok(t, "make", "deviations")
	out += read(filepath.Join(p.dir, "docs/deviations.md"))
	assert.Contains(t, out, "\n## client-go-rules: client-go: rules\n\nIn v1.38, v1.37:\n\n```text\n")
	assert.Contains(t, out, "\n## kubelet-not-late: kubelet: not late\n\nIn v1.38:\n\n```text\n")
	assert.Regexp(t, "(?s)## kubelet-not-late.*\nIn v1.37:\n\n```text\n.*Drop-When: v1.38 is out, or ", out)

	cmd := exec.Command(shared.program, "deviations")
	cmd.Dir = "../.."
	page, err := cmd.CombinedOutput()
	require.NoError(t, err, string(page))
	assert.Equal(t, string(page), read("../../docs/deviations.md"), "run make deviations")
}

// TestCarry: a series for the next minor version starts with the commits of its neighbour, and the commands that carry
// prints move them to the new release.
func TestCarry(t *testing.T) {
	const next = "v1.38.0"
	p := newProject(t)
	proxy := filepath.Join(t.TempDir(), "proxy")
	files := maps.Clone(kubernetes)
	files["pkg/kubelet/kubelet.go"] = strings.Replace(files["pkg/kubelet/kubelet.go"], "package kubelet\n", "// Package kubelet is newer.\npackage kubelet\n", 1)
	makeProxy(proxy, version)
	makeProxy(proxy, next)
	module(proxy, "k8s.io/kubernetes", next, files)
	env := []string{"GOPROXY=file://" + proxy, "GOMODCACHE=" + modcache(t)}
	run := func(name string, args ...string) string {
		t.Helper()
		out, err := p.try(env, name, args...)
		require.NoError(t, err, out)
		return out
	}
	p.fails(t, env, []string{"patches/v1.37 exists already"}, "hack/patchset.sh", "carry", "v1.37.5")
	out := run("hack/patchset.sh", "carry", next)
	tree := filepath.Join(p.dir, "_output", next, "kubernetes")
	assert.Contains(t, out, "rebase --onto "+next+" "+version+"\n")
	for _, args := range [][]string{{"verify", "--no-build"}, {"apply", "--keep"}} {
		p.fails(t, append(env, "KUBE_VERSION="+next), []string{"which is not " + next, "finish the git rebase"}, "hack/patchset.sh", args...)
	}
	p.git(tree, "rebase", "-q", "--onto", next, version)
	for _, command := range []string{"hack/patchset.sh pin " + next, "KUBE_VERSION=" + next + " hack/patchset.sh refresh --base " + next} {
		assert.Contains(t, out, command)
		run("bash", "-c", command)
	}
	assert.Equal(t, "tag: "+next+"\n", read(filepath.Join(p.dir, "patches/v1.38/BASE")))
	env = append(env, "KUBE_VERSION="+next)
	assert.Contains(t, run("hack/patchset.sh", "verify", "--no-build"), "Series v1.38 is in order on kubernetes "+next)
	assert.Contains(t, read(filepath.Join(tree, "pkg/kubelet/kubelet.go")), "// Package kubelet is newer.\n")
	assert.Contains(t, read(filepath.Join(tree, "pkg/kubelet/kubelet.go")), "return false", "the last patch is applied")
	p.fails(t, env[:2], []string{"patches/v1.38 exists already"}, "hack/patchset.sh", "carry", next)
}
