// SPDX-License-Identifier: Apache-2.0

package hack

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// record stores a result of v1.37.1 for the series whose identity is given.
func (p project) record(t *testing.T, identity string, args ...string) string {
	t.Helper()
	return p.with(t, []string{"KB_CHECKED=" + identity}, "hack/pages.sh", append([]string{"record"}, args...)...)
}

// identity is that of the series for v1.37.1, for a check.
func (p project) identity(t *testing.T, check string) string {
	t.Helper()
	return strings.TrimSpace(p.ok(t, "hack/pages.sh", "identity", version, check))
}

// passed reports whether v1.37.1 has passed a check.
func (p project) passed(check string) bool {
	_, err := p.try(nil, "hack/pages.sh", "passed", version, check)
	return err == nil
}

// A result counts until the series changes. Hours of tests need not be repeated for a comment, but the form of the patches must be.
func TestResults(t *testing.T) {
	p := newProject(t)
	for _, check := range []string{"patches", "tests"} {
		assert.False(t, p.passed(check))
		identity := p.identity(t, check)
		assert.True(t, strings.HasPrefix(identity, version+" "), identity)
		p.record(t, identity, check, "--failed")
		assert.False(t, p.passed(check), "it has failed")
		p.record(t, identity, check)
		assert.True(t, p.passed(check))
	}
	assert.Contains(t, p.record(t, "", "build"), "not stored")
	assert.False(t, p.passed("build"))
	p.fails(t, nil, []string{`no series was made on "v1.36.0"`}, "hack/pages.sh", "passed", "v1.36.0", "tests")
	p.fails(t, nil, []string{`no series was made on "v1.37"`}, "hack/pages.sh", "identity", "v1.37", "tests")
	p.fails(t, nil, []string{`there is no check "nonsense"`}, "hack/pages.sh", "record", "nonsense")

	rules, late, applies := filepath.Join(p.dir, "backoff/rules.go"), p.series("late.patch"), p.series("BASE")
	for _, tc := range []struct {
		name, file, old, new   string
		patches, tests, others bool // whether the results still count
	}{
		{"a comment of the library", rules, "// Rule rules.", "// Rule is the rule.", false, true, false},
		{"code of the library", rules, "return 1", "return 2", false, false, false},
		{"a new file", filepath.Join(p.dir, "patches/_src/decide", our), "return 1", "return 2", false, false, false},
		{"a message", late, "Why it is so.", "Why it is not so.", false, true, false},
		{"a hunk", late, "+\treturn false", "+\treturn 1 == 2", false, false, false},
		{"the patches", p.series("series"), "late\n", "", false, false, false},
		{"the release", applies, "v1.37.1", "v1.37.2", false, false, false},
		{"the other releases", applies, "\n", "\napplies: v1.37.0\n", true, true, false},
		{"what is no part of it", filepath.Join(p.dir, "backoff/export_test.go"), "backoff\n", "backoff\n\nvar x int\n", true, true, true},
	} {
		before := read(tc.file)
		identities := []string{p.identity(t, "patches"), p.identity(t, "tests"), p.identity(t, "others")}
		edit(t, tc.file, tc.old, tc.new)
		now := make([]string, 3)
		for i, check := range []string{"patches", "tests", "others"} {
			out, err := p.try(nil, "hack/pages.sh", "identity", version, check)
			if err == nil {
				now[i] = strings.TrimSpace(out)
			}
		}
		assert.Equal(t, []bool{tc.patches, tc.tests, tc.others}, []bool{now[0] == identities[0], now[1] == identities[1], now[2] == identities[2]}, tc.name)
		assert.Equal(t, []bool{tc.patches, tc.tests}, []bool{p.passed("patches"), p.passed("tests")}, tc.name)
		if !tc.tests && tc.file != applies {
			p.fails(t, []string{"KB_CHECKED=" + identities[1]}, []string{"the series for " + version + " has changed since tests began: run it again"}, "hack/pages.sh", "record", "tests")
		}
		write("", map[string]string{tc.file: before})
	}
	assert.True(t, p.passed("patches") && p.passed("tests"), "the series is as it was")
}

const page = "a\n<!-- make stat -->\nold\n<!-- end of make stat -->\nb\n<!-- make matrix -->\nold\n<!-- end of make matrix -->\nc\n"

// The matrix claims nothing that no command has shown, and gives the reason for each patch that a release lacks.
func TestMatrix(t *testing.T) {
	p := newProject(t)
	older := filepath.Join(p.dir, "patches/v1.36/series")
	write(p.dir, map[string]string{"docs/patches.md": page, "patches/v1.36/BASE": "tag: v1.36.2\napplies: v1.36.0\n", "patches/v1.36/series": "rules\ndecide\n"})
	p.fails(t, nil, []string{older + ` has no patch "late", and no line "# left out: late: REASON"`}, "hack/pages.sh", "matrix")
	for lines, words := range map[string]string{
		"rules\ndecide\n# left out: late\n":                                    `"# left out: late" must be`,
		"rules\ndecide\n# left out: late: x\n# left out: late: y\n":            `"# left out: late: y" must be`,
		"rules\ndecide\n# left out: late: x\n# left out: rules: it is there\n": `"# left out: rules: it is there" must be`,
		"rules\ndecide\n# left out: late: x\n# left out: nobody: x\n":          `"# left out: nobody" names a patch that no series has`,
	} {
		write(p.dir, map[string]string{"patches/v1.36/series": lines})
		p.fails(t, nil, []string{older, words}, "hack/pages.sh", "matrix")
	}
	write(p.dir, map[string]string{"patches/v1.36/series": "rules\ndecide\n# left out: late: it is never late\n"})
	p.record(t, p.identity(t, "node-e2e"), "node-e2e", "82|scenarios", "--seconds", "61")
	p.record(t, p.identity(t, "tests"), "tests", "--failed")
	out := p.ok(t, "hack/pages.sh", "matrix")
	for _, line := range []string{
		"| release | patches | tests | build | others | vendor |", "| v1.37.1 | not run | **fails** | not run | – | – |", "| v1.36.2 | not run | not run | not run | not run | – |",
		"| release | node-timing | node-e2e | node-crio | node-vm | node-vm-crio |", "| v1.37.1 | not run | passes: 82\\|scenarios (1m1s) | not run | not run | not run |",
		"| release | node-conformance | node-vm-conformance | node-skew | node-cluster |", "| v1.37.1 | not run | not run | not run | not run |",
		"| patch | releases | reason |", "| rules | v1.36 and later |  |", "| late | v1.37 | not in v1.36: it is never late |",
	} {
		assert.Contains(t, out, line)
	}
	assert.Equal(t, out, p.with(t, []string{"SKIP=late", "SERIES=cost"}, "hack/pages.sh", "matrix"), "SERIES and SKIP are only for apply")
	assert.Equal(t, page, read(filepath.Join(p.dir, "docs/patches.md")), "without --write it is only printed")

	p.ok(t, "hack/pages.sh", "matrix", "--write")
	const table = "| release | patches | left out | passed |\n| --- | --- | --- | --- |\n| v1.37.1 | 3 |  | node-e2e |\n| v1.36.2 | 2 | late |  |\n"
	assert.Equal(t, strings.Replace(page, "<!-- make matrix -->\nold\n", "<!-- make matrix -->\n"+table, 1), read(filepath.Join(p.dir, "docs/patches.md")))
	assert.Equal(t, out, read(filepath.Join(p.dir, "docs/results/releases.md")))

	require.NoError(t, os.RemoveAll(filepath.Join(p.dir, "_output/releases")))
	assert.Equal(t, out, p.ok(t, "hack/pages.sh", "matrix"), "the checks ran in a clone that is gone")
	results := filepath.Join(p.dir, "docs/results/releases.json")
	kept := read(results)
	stored := map[string]map[string]map[string]any{}
	require.NoError(t, json.Unmarshal([]byte(kept), &stored))
	stored[version]["tests"]["at"] = "2126-01-01T00:00:00Z"
	stored[version]["node-e2e"]["at"] = "2026-01-01T00:00:00Z"
	changed, err := json.Marshal(stored)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(results, changed, 0o644))
	p.record(t, p.identity(t, "tests"), "tests")
	p.record(t, p.identity(t, "node-e2e"), "node-e2e", "83 scenarios")
	assert.Contains(t, p.ok(t, "hack/pages.sh", "matrix"), "| v1.37.1 | not run | **fails** | not run | – | – |", "the later result counts")
	assert.Contains(t, p.ok(t, "hack/pages.sh", "matrix"), "| v1.37.1 | not run | passes: 83 scenarios | not run | not run | not run |")

	write(p.dir, map[string]string{"docs/results/releases.json": "{"})
	p.fails(t, nil, []string{results + ": unexpected end of JSON input"}, "hack/pages.sh", "matrix", "--write")
	assert.Equal(t, "{", read(results))
	write(p.dir, map[string]string{"docs/results/releases.json": kept})
	for _, wrong := range []string{page + "<!-- make matrix -->\nold\n<!-- end of make matrix -->\n", page + "<!-- make matrix -->\n", "a\n", "<!-- end of make matrix -->\n<!-- make matrix -->\n"} {
		write(p.dir, map[string]string{"docs/patches.md": wrong})
		p.fails(t, nil, []string{"docs/patches.md must have the lines"}, "hack/pages.sh", "matrix", "--write")
		assert.Equal(t, wrong, read(filepath.Join(p.dir, "docs/patches.md")))
	}
	edit(t, filepath.Join(p.dir, "backoff/rules.go"), "return 1", "return 2")
	out = p.ok(t, "hack/pages.sh", "matrix")
	assert.Contains(t, out, "| v1.37.1 | not run | not run | not run | – | – |")
	assert.Contains(t, out, "| v1.37.1 | not run | not run | not run | not run | not run |")
}

// The table counts the lines of upstream's files, and says which of them generators write.
func TestStat(t *testing.T) {
	p := newProject(t)
	const zz = "pkg/a/zz_generated.go" // before the others by name
	late := read(p.series("late.patch"))
	write(p.dir, map[string]string{
		"docs/patches.md":          page,
		"patches/v1.37/late.patch": strings.Replace(late, "Series: core", "Series: cost", 1) + "diff --git a/" + zz + " b/" + zz + "\n--- a/" + zz + "\n+++ b/" + zz + "\n@@ -1 +1,2 @@\n x\n+y\n",
		"patches/v1.36/BASE":       "tag: v1.36.2\n",
		"patches/v1.36/late.patch": late,
		"patches/v1.36/series":     "late\n",
	})
	const table = "|---|---|---|\n" +
		"| 1 rules | staging/src/k8s.io/client-go/util/flowcontrol/backoff.go | 4 |\n" +
		"| 2 decide | pkg/kubelet/kubelet.go | 4 |\n| 3 late | pkg/kubelet/kubelet.go | 2 |\n|  | pkg/a/zz_generated.go (generated) | 1 |\n" +
		"| all of core | | 8 |\n| all of cost | | 2 |\n| all of asked | | 0 |\n| all | (generated) | 1 |\n" +
		"| new files of core | without tests | 16 |\n| | tests | 13 |\n| new files of cost | without tests | 0 |\n| | tests | 0 |\n| new files of asked | without tests | 0 |\n| | tests | 0 |\n"
	assert.Equal(t, "| patch of v1.37 | file | lines |\n"+table, p.ok(t, "hack/pages.sh", "stat"))
	for _, v := range []string{"v1.36.2", "1.36", "v1.36.9"} {
		assert.Contains(t, p.with(t, []string{"KUBE_VERSION=" + v}, "hack/pages.sh", "stat"), "| patch of v1.36 | file | lines |\n|---|---|---|\n| 1 late |")
	}
	p.fails(t, []string{"KUBE_VERSION=v1.3.1"}, []string{"KUBE_VERSION=v1.3.1: there is no series"}, "hack/pages.sh", "stat")
	p.ok(t, "hack/pages.sh", "stat", "--write")
	assert.Contains(t, read(filepath.Join(p.dir, "docs/patches.md")), "a\n<!-- make stat -->\n| patch of v1.37 | file | lines |\n"+table+"<!-- end of make stat -->\nb\n<!-- make matrix -->\nold\n")
	edit(t, p.series("rules.patch"), "Series: core", "Series: none")
	p.fails(t, nil, []string{"rules.patch must have a trailer", `not "none"`}, "hack/pages.sh", "stat")
}

// What differs from upstream is what the messages say, of each release that has another message its own.
func TestDeviations(t *testing.T) {
	p := newProject(t)
	write(p.dir, map[string]string{
		"patches/v1.36/BASE": "tag: v1.36.2\n", "patches/v1.36/series": "rules\nlate\n",
		"patches/v1.36/late.patch": strings.Replace(read(p.series("late.patch")), "Drop-When: ", "Drop-When: v1.37 is out, or ", 1),
	})
	out := p.ok(t, "hack/pages.sh", "deviations")
	assert.Contains(t, out, "\n## rules: client-go: rules\n\nIn v1.37, v1.36:\n\n```text\nWhy it is so.\n")
	assert.Contains(t, out, "\n## decide: kubelet: a subject that is so long that a mail has to fold it, because it goes on and on\n\nIn v1.37:\n\n```text\n")
	assert.Regexp(t, "(?s)\n## late: kubelet: not late\n\nIn v1.37:\n\n```text\n.*Drop-When: fixed upstream\n```\n\nIn v1.36:\n\n```text\n.*Drop-When: v1.37 is out, or fixed upstream\n```\n$", out)
	p.ok(t, "hack/pages.sh", "deviations", "--write")
	assert.Equal(t, out, read(filepath.Join(p.dir, "docs/deviations.md")))
}

// The pages of this repository are those of its series.
func TestRealPages(t *testing.T) {
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	run := func(command string) string {
		cmd := exec.Command(filepath.Join(shared.programs, "pages"), command)
		cmd.Env = append(project{}.env(nil), "KB_ROOT="+root)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		return string(out)
	}
	assert.Equal(t, run("deviations"), read(filepath.Join(root, "docs/deviations.md")), "run make deviations")
	assert.Contains(t, read(filepath.Join(root, "docs/patches.md")), "<!-- make stat -->\n"+run("stat")+"<!-- end of make stat -->\n", "run hack/pages.sh stat --write")
}
