// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/mod/semver"

	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/fileutil"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/kubeversion"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/series"
)

// generatedPattern matches files that upstream's generators write.
var generatedPattern = regexp.MustCompile(`^api/openapi-spec/|/zz_generated\.|/generated\.proto$|/types_swagger_doc_generated\.go$|/applyconfigurations/|/container/testing/(mocks|runtime_mock)\.go$|^test/compatibility_lifecycle/reference/`)

func (p *program) statCommand(write bool) error {
	table, err := p.stat(write)
	if err != nil {
		return err
	}
	if !write {
		_, err = fmt.Fprint(p.Out, table)
		return err
	}
	return p.intoPage("make stat", table)
}

// patchesPage is the page that has the tables of stat and matrix.
const patchesPage = "docs/patches.md"

// intoPage puts a table into patchesPage, between the two lines that name its command.
func (p *program) intoPage(command, table string) error {
	begin, end := "<!-- "+command+" -->\n", "<!-- end of "+command+" -->\n"
	file := filepath.Join(p.Root, patchesPage)
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, _ := strings.Cut(string(data), begin)
	_, after, ok := strings.Cut(rest, end)
	if !ok || strings.Count(string(data), begin) != 1 || strings.Count(string(data), end) != 1 {
		return fmt.Errorf("%s must have the lines %q and %q once, between which the table belongs", file, begin, end)
	}
	return fileutil.Write(file, []byte(before+begin+table+end+after), 0o666)
}

// stat returns a table with the changed lines of upstream's files, by patch and file. The table is about the series of
// KUBE_VERSION, or the newest one. That for patchesPage is always about the newest one.
func (p *program) stat(write bool) (string, error) {
	dirs := p.All()
	if len(dirs) == 0 {
		return "", errors.New("no series in " + p.Patches)
	}
	dir := dirs[len(dirs)-1]
	if p.kubeVersion != "" && !write {
		version, err := kubeversion.Normal(p.kubeVersion)
		if err != nil {
			return "", err
		}
		if dir = filepath.Join(p.Patches, semver.MajorMinor(version)); !slices.Contains(dirs, dir) {
			return "", fmt.Errorf("KUBE_VERSION=%s: there is no series for it in %s", p.kubeVersion, p.Patches)
		}
	}
	p.pick = series.Pick{}
	s, err := p.loadSeries(dir)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "| patch of %s | file | lines |\n|---|---|---|\n", s.Name)
	total, generated := map[string]int{}, 0
	for _, q := range s.Active {
		hunks, err := p.Hunks(q)
		if err != nil {
			return "", err
		}
		part, err := p.Part(q)
		if err != nil {
			return "", err
		}
		label := fmt.Sprintf("%d %s", q.Number, q.Name)
		row := func(format string, args ...any) {
			fmt.Fprintf(&b, "| %s | "+format+" |\n", append([]any{label}, args...)...)
			label = ""
		}
		var others []string
		for _, file := range slices.Sorted(maps.Keys(hunks)) {
			if generatedPattern.MatchString(file) {
				others = append(others, file)
				generated += hunks[file]
				continue
			}
			row("%s | %d", file, hunks[file])
			total[part] += hunks[file]
		}
		for _, file := range others {
			row("%s (generated) | %d", file, hunks[file])
		}
	}
	for _, part := range []string{series.PartCore, series.PartCost} {
		fmt.Fprintf(&b, "| all of %s | | %d |\n", part, total[part])
	}
	fmt.Fprintf(&b, "| all | (generated) | %d |\n", generated)
	return b.String(), nil
}

// deviations prints the messages of the patches in Markdown: how each patch of the newest series changes the behaviour of the
// kubelet, and why. If the message of another release differs, it prints that one too.
func (p *program) deviations(w io.Writer) error {
	all, err := p.loadAll()
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return fmt.Errorf("there is no series in %s", p.Patches)
	}
	fmt.Fprint(w, `<!-- SPDX-License-Identifier: Apache-2.0 -->
<!-- Written by: make deviations -->

# How this differs from upstream

This page has the messages of the patches: what each one changes and why, which of upstream's tests expected something else, and
when the patch can be dropped. To leave a patch out, comment out its line in patches/RELEASE/series, or name it in SKIP. SERIES=core leaves
out the patches that say "Series: cost".
[results/releases.md](results/releases.md) lists the patches that a release lacks, with the reasons.
`)
	for _, q := range all[0].Active {
		var texts []string // of the newest series first
		releases := map[string][]string{}
		for _, s := range all {
			i := slices.IndexFunc(s.Active, func(r *series.Patch) bool { return r.Name == q.Name })
			if i < 0 {
				continue
			}
			m, err := p.Message(s.Active[i].Mail)
			if err != nil {
				return err
			}
			subject, body, _ := strings.Cut(m.Text, "\n")
			if len(texts) == 0 {
				fmt.Fprintf(w, "\n## %s: %s\n", q.Name, subject)
			}
			text := strings.TrimSpace(body)
			if releases[text] == nil {
				texts = append(texts, text)
			}
			releases[text] = append(releases[text], s.Name)
		}
		for _, text := range texts {
			fmt.Fprintf(w, "\nIn %s:\n\n```text\n%s\n```\n", strings.Join(releases[text], ", "), text)
		}
	}
	return nil
}

// page prints a page, or writes it to its file.
func (p *program) page(write bool, file string, print func(io.Writer) error) error {
	if !write {
		return print(p.Out)
	}
	var b bytes.Buffer
	if err := print(&b); err != nil {
		return err
	}
	return fileutil.Write(filepath.Join(p.Root, file), b.Bytes(), 0o666)
}
