// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/fileutil"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/series"
)

func tableRow(w io.Writer, cells ...string) { fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | ")) }

func tableHead(w io.Writer, cells ...string) {
	tableRow(w, cells...)
	tableRow(w, slices.Repeat([]string{"---"}, len(cells))...)
}

// summary prints the results as a table in Markdown.
func summary(w io.Writer, all []*series.Series, of func(*series.Series, string) *result) {
	head := []string{"release"}
	for _, c := range checks {
		head = append(head, c.name)
	}
	tableHead(w, head...)
	for _, s := range all {
		cells := []string{s.Tag}
		for _, c := range checks {
			cell := of(s, c.name).cell()
			if c.skips(s) {
				cell = "–"
			}
			cells = append(cells, cell)
		}
		tableRow(w, cells...)
	}
}

// overview returns the table for patchesPage: the number of patches of each release, those that it lacks, and the checks that
// it passed.
func overview(all []*series.Series, latest results) (string, error) {
	var b strings.Builder
	tableHead(&b, "release", "patches", "left out", "passed")
	for _, s := range all {
		leftOut, err := s.LeftOut()
		if err != nil {
			return "", err
		}
		var passed []string
		for _, c := range checks {
			if r := latest.of(s, c.name); r != nil && r.Passed {
				passed = append(passed, c.name)
			}
		}
		tableRow(&b, s.Tag, strconv.Itoa(len(s.Active)), strings.Join(slices.Sorted(maps.Keys(leftOut)), ", "), strings.Join(passed, ", "))
	}
	return b.String(), nil
}

func (p *program) matrixCommand(write bool) error {
	all, err := p.loadAll()
	if err != nil {
		return err
	}
	latest, err := p.results(all)
	if err != nil {
		return err
	}
	if write {
		table, err := overview(all, latest)
		if err != nil {
			return err
		}
		if err := p.intoPage("make matrix", table); err != nil {
			return err
		}
	}
	if err := p.page(write, "docs/results/releases.md", func(w io.Writer) error { return matrix(w, all, latest) }); err != nil || !write {
		return err
	}
	data, err := json.MarshalIndent(latest, "", "  ")
	if err != nil {
		return err
	}
	return fileutil.Write(filepath.Join(p.Root, resultsFile), append(data, '\n'), 0o666)
}

func (r *result) cell() string {
	if r == nil {
		return "not run"
	}
	cell := "passes"
	if !r.Passed {
		cell = "**fails**"
	}
	if r.Details != "" {
		cell += ": " + strings.NewReplacer("|", `\|`, "\n", " ").Replace(r.Details)
	}
	if r.Seconds > 0 {
		cell += fmt.Sprintf(" (%v)", time.Duration(r.Seconds)*time.Second)
	}
	return cell
}

// matrix prints in Markdown which release has which patch, and the results of the checks.
func matrix(w io.Writer, all []*series.Series, latest results) error {
	fmt.Fprint(w, `<!-- SPDX-License-Identifier: Apache-2.0 -->
<!-- Written by: make matrix -->

# Releases

This page has the results of the checks of each series, on the release that it was made on. The commands that ran the checks stored them.
"not run" means that the check has not run since the series changed. [releases.json](releases.json) has the time of each check.

`)
	summary(w, all, latest.of)
	fmt.Fprintln(w)
	for _, c := range checks {
		fmt.Fprintf(w, "* %s: %s\n", c.name, c.what)
	}
	fmt.Fprint(w, "\n## Which release has which patch\n\n")
	head := []string{"patch"}
	var names, why []string
	leftOut := map[*series.Series]map[string]string{}
	for _, s := range all {
		head = append(head, s.Name)
		for i, q := range s.Active {
			if !slices.Contains(names, q.Name) {
				names = slices.Insert(names, min(i, len(names)), q.Name)
			}
		}
		reasons, err := s.LeftOut()
		if err != nil {
			return err
		}
		leftOut[s] = reasons
	}
	for _, s := range all {
		for name := range leftOut[s] {
			if !slices.Contains(names, name) {
				return fmt.Errorf("%s: \"# left out: %s\" names a patch that no series has", filepath.Join(s.Dir, "series"), name)
			}
		}
	}
	tableHead(w, head...)
	for _, name := range names {
		cells := []string{name}
		for _, s := range all {
			reason := leftOut[s][name]
			switch i := slices.IndexFunc(s.Active, func(q *series.Patch) bool { return q.Name == name }); {
			case i >= 0:
				cells = append(cells, strconv.Itoa(s.Active[i].Number))
			case reason != "":
				cells = append(cells, "–")
				why = append(why, fmt.Sprintf("* %s lacks %s: %s", s.Name, name, reason))
			default:
				return fmt.Errorf("%s has no patch %q, and no line \"# left out: %s: REASON\"", filepath.Join(s.Dir, "series"), name, name)
			}
		}
		tableRow(w, cells...)
	}
	if why != nil {
		fmt.Fprintf(w, "\n%s\n", strings.Join(why, "\n"))
	}
	return nil
}
