// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// check is something that a series is tried with.
type check struct {
	name string
	what string
	// run is nil where a script runs the check, and has the result recorded.
	run func(*program) error
	// details say more of a series that passes, or nothing.
	details func(*series) string
	// exact is true if the check looks at the patch files, and not at what they make of the code.
	exact bool
}

// others is the name of the check that depends on more than the series.
const others = "others"

// checks are in the order in which they are run: each one says more, and takes longer.
var checks = []check{
	{name: "patches", what: "apply, formatting again, plain git am, and reverse", exact: true, run: func(p *program) error { return p.verify(true, false) }},
	{name: "tests", what: "upstream's tests and ours of the packages that the patches touch", run: (*program).testPatched},
	{name: "build", what: "after each patch the packages of the kubelet and go vet, after the last one kubelet and kube-apiserver", run: func(p *program) error { return p.verify(false, true) }},
	{
		name: others, what: "the series applies to these other patch versions, and reverses",
		exact: true, run: (*program).applyToOthers, details: func(s *series) string { return strings.Join(s.applies, " ") },
	},
	{name: "node-timing", what: "restarts on a real node, stock against ours"},
	{name: "node-e2e", what: "pods on a real node, in every scenario"},
	{name: "node-conformance", what: "upstream's NodeConformance specs: ours passes what stock passes"},
	{name: "node-skew", what: "pods on a real node that goes from kubelet to kubelet of these releases, stock and ours, with the API server of this one"},
}

// result is what came of a check. A clone runs its checks itself, and keeps their results in _output. make matrix copies them
// to the repository, for the page alone: the checks of all releases are more than one machine runs in a day.
type result struct {
	// Series is what was checked. Of another series it says nothing.
	Series  string    `json:"series"`
	Passed  bool      `json:"passed"`
	Seconds int       `json:"seconds,omitempty"`
	At      time.Time `json:"at"`
	// Details say more in the matrix.
	Details string `json:"details,omitempty"`
}

// checked identifies what a check of the series has looked at.
func (s *series) checked(name string) string {
	digest := s.codeDigest()
	if slices.ContainsFunc(checks, func(c check) bool { return c.name == name && c.exact }) {
		digest, _ = s.digest()
	}
	if name == others {
		digest += " " + strings.Join(s.applies, " ")
	}
	return s.tag + " " + digest
}

func (p *program) resultFile(s *series, check, ext string) string {
	return filepath.Join(p.output, "releases", s.tag, check+ext)
}

// result returns what came of a check of the series as it is now, or nil.
func (p *program) result(s *series, check string) *result {
	data, err := os.ReadFile(p.resultFile(s, check, ".json"))
	var r result
	if err != nil || json.Unmarshal(data, &r) != nil || r.Series != s.checked(check) {
		return nil
	}
	return &r
}

// results are results by release and check.
type results map[string]map[string]*result

func (r results) of(s *series, check string) *result { return r[s.tag][check] }

// resultsFile is what the page of make matrix is made of.
const resultsFile = "docs/results/releases.json"

// results returns the latest results of the series as they are now, of this clone and of those that wrote resultsFile.
func (p *program) results(all []*series) (results, error) {
	file := filepath.Join(p.root, resultsFile)
	data, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var stored results
	if err == nil {
		if err := json.Unmarshal(data, &stored); err != nil {
			return nil, fmt.Errorf("%s: %w; restore the file, or remove it", file, err)
		}
	}
	latest := results{}
	for _, s := range all {
		latest[s.tag] = map[string]*result{}
		for _, c := range checks {
			r := p.result(s, c.name)
			if old := stored.of(s, c.name); old != nil && old.Series == s.checked(c.name) && (r == nil || old.At.After(r.At)) {
				r = old
			}
			if r != nil {
				latest[s.tag][c.name] = r
			}
		}
	}
	return latest, nil
}

func (p *program) keepResult(s *series, check string, r result) error {
	r.Series, r.At = s.checked(check), time.Now().UTC().Truncate(time.Second)
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(p.resultFile(s, check, ".json"), append(data, '\n'), 0o666)
}

// checkNames are the checks that verify-all runs, or those that scripts record.
func checkNames(recorded bool) string {
	var names []string
	for _, c := range checks {
		if (c.run == nil) == recorded {
			names = append(names, c.name)
		}
	}
	return strings.Join(names, ", ")
}

// record keeps what came of a check that a script has run with the series of the tree, if that is still the one that the
// script began with.
func (p *program) record(name string, passed bool, details string) error {
	if !slices.ContainsFunc(checks, func(c check) bool { return c.run == nil && c.name == name }) {
		return fmt.Errorf("%q is no check that is recorded; there are: %s", name, checkNames(true))
	}
	t, s, err := p.target()
	if err != nil {
		return err
	}
	if t.version != s.tag || p.kubeRoot != "" || p.skip != "" {
		p.note("not kept in %s: that is for the whole series on %s as it was released", filepath.Join(p.output, "releases"), s.tag)
		return nil
	}
	if why := t.differsFrom(s); why != "" {
		p.note("not kept in %s: %s", filepath.Join(p.output, "releases"), why)
		return nil
	}
	if p.checked != "" && p.checked != s.checked(name) {
		p.note("not kept in %s: series %s is not any more what the programs were built of", filepath.Join(p.output, "releases"), s.name)
		return nil
	}
	return p.keepResult(s, name, result{Passed: passed, Details: details})
}

// checkedCommand prints what identifies the tree's series, for a script to have with it while it builds and runs.
func (p *program) checkedCommand() error {
	shell := p.out
	p.out = p.errOut
	_, s, err := p.target()
	if err == nil {
		fmt.Fprintln(shell, s.checked(""))
	}
	return err
}

// differsFrom says why a tree is not the release with the series, and no more; or nothing.
func (t *tree) differsFrom(s *series) string {
	a, err := t.requireApplied()
	if err != nil {
		return err.Error()
	}
	digest, _ := s.digest()
	switch {
	case a.base != t.commitID("refs/tags/"+t.version):
		return fmt.Sprintf("%s of %s is not based on %s", a.branch, t.dir, t.version)
	case t.commitID("HEAD") != a.tip:
		return fmt.Sprintf("%s of %s has been edited since the series was applied", a.branch, t.dir)
	case t.state(a.branch, "digest") != digest:
		return fmt.Sprintf("%s of %s was made from other sources than %s has", a.branch, t.dir, s.dir)
	}
	if dirty, err := t.dirty(); err != nil || len(dirty) > 0 {
		return t.dir + " has changes that are not committed"
	}
	return ""
}

func (p *program) testPatched() error {
	if err := p.alone(func() error { return p.apply(false) }); err != nil {
		return err
	}
	t, s, err := p.target()
	if err != nil {
		return err
	}
	if why := t.differsFrom(s); why != "" {
		return errors.New(why)
	}
	script := filepath.Join(p.root, "hack", "test-patched.sh")
	env := append(os.Environ(), "KB_ROOT="+p.root, "KUBE_ROOT=", "SKIP=", "KB_SERIES=", "KUBE_VERSION="+p.kubeVersion)
	out, took, err := p.long("test-patched.sh", p.root, env, "bash", script)
	if err != nil {
		return fail("tests fail in the patched tree:", lastLines(out, 80))
	}
	p.note("ok: tests pass (%d s)", int(took.Seconds()))
	return nil
}

// applyToOthers applies the series to the other releases that its BASE names, in trees that it removes again.
func (p *program) applyToOthers() error {
	s, err := p.pickSeries(p.kubeVersion)
	if err != nil {
		return err
	}
	work, remove, err := scratch(p.output)
	if err != nil {
		return err
	}
	defer remove()
	var failed []error
	for _, version := range s.applies {
		q := *p
		q.kubeVersion, q.output = version, filepath.Join(work, version)
		err := q.apply(false)
		if err == nil {
			err = q.reverse(false)
		}
		removeAll(q.output)
		if p.ctx.Err() != nil {
			return context.Cause(p.ctx)
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// verifyAll runs the checks, each for all series, newest first. What passed before, with the same series, is not run again.
func (p *program) verifyAll(only, names []string) error {
	if p.kubeRoot != "" || p.kubeVersion != "" || p.seriesName != "" || p.skip != "" {
		return errors.New("verify-all takes no KUBE_ROOT, KUBE_VERSION, KB_SERIES or SKIP: it is for whole series, on the releases that they were made on")
	}
	selected := slices.DeleteFunc(slices.Clone(checks), func(c check) bool {
		return c.run == nil || len(names) > 0 && !slices.Contains(names, c.name)
	})
	for _, name := range names {
		if !slices.ContainsFunc(selected, func(c check) bool { return c.name == name }) {
			return fmt.Errorf("%q is no check that verify-all runs; there are: %s", name, checkNames(false))
		}
	}
	dirs, err := p.seriesDirs(only)
	if err != nil {
		return err
	}
	var all []*series
	failed := 0
	for _, dir := range dirs {
		s, err := p.loadSeries(dir)
		if err != nil {
			fmt.Fprintf(p.errOut, "FAIL: %s: %s\n", filepath.Base(dir), indent(err.Error(), "      "))
			failed++
			continue
		}
		all = append(all, s)
	}
	// What is quick is done for all of them before what takes long. Where one check fails, those after it would, too.
	left := slices.Clone(all)
	for _, c := range selected {
		left = slices.DeleteFunc(left, func(s *series) bool {
			if r := p.result(s, c.name); r != nil && r.Passed {
				p.say("%s %s: passed on %s", s.tag, c.name, r.At.Local().Format(time.DateTime))
				return false
			}
			if c.name == others && len(s.applies) == 0 {
				p.say("%s %s: %s names none (\"applies:\")", s.tag, c.name, filepath.Join(s.dir, "BASE"))
				return false
			}
			return p.ctx.Err() == nil && p.check(s, c) != nil
		})
		if p.ctx.Err() != nil {
			return context.Cause(p.ctx)
		}
	}
	failed += len(all) - len(left)
	p.say("In short:")
	summary(p.out, all, p.result)
	if failed > 0 {
		return fmt.Errorf("%d of %d series are not in order; what was said is in %s", failed, len(dirs), filepath.Join(p.output, "releases"))
	}
	return nil
}

// seriesDirs are the directories of the series with these names, or of all of them, newest first. "newest" stands for the
// name of that one.
func (p *program) seriesDirs(only []string) ([]string, error) {
	dirs := p.allSeries()
	slices.Reverse(dirs)
	only = slices.Clone(only)
	for i, name := range only {
		if name == "newest" && len(dirs) > 0 {
			name = filepath.Base(dirs[0])
			only[i] = name
		}
		if !slices.ContainsFunc(dirs, func(d string) bool { return filepath.Base(d) == name }) {
			return nil, fail(fmt.Sprintf("there is no series %q", name), p.describeSeries())
		}
	}
	return slices.DeleteFunc(dirs, func(d string) bool { return len(only) > 0 && !slices.Contains(only, filepath.Base(d)) }), nil
}

// loadAll loads all series, newest first. SKIP is for applying.
func (p *program) loadAll() ([]*series, error) {
	p.skip = ""
	dirs, err := p.seriesDirs(nil)
	var all []*series
	for _, d := range dirs {
		s, err := p.loadSeries(d)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, err
}

// check runs one check of a series, with a log of what it says.
func (p *program) check(s *series, c check) error {
	p.say("%s %s: %s", s.tag, c.name, c.what)
	name := p.resultFile(s, c.name, ".log")
	if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		return err
	}
	log, err := os.Create(name)
	if err != nil {
		return err
	}
	defer log.Close()
	q := *p
	q.kubeVersion, q.out, q.errOut = s.tag, io.MultiWriter(p.out, log), io.MultiWriter(p.errOut, log)
	start := time.Now()
	err = c.run(&q)
	if p.ctx.Err() != nil {
		return context.Cause(p.ctx)
	}
	// Whoever edits the series meanwhile must not have the result for what it was.
	now, failed := p.loadSeries(s.dir)
	changed := failed != nil || now.checked(c.name) != s.checked(c.name)
	if changed {
		err = fmt.Errorf("%s changed while this ran: run it again", s.dir)
	}
	if err != nil {
		fmt.Fprintf(q.errOut, "FAIL: %s %s: %s\n", s.tag, c.name, indent(err.Error(), "      "))
	}
	if changed {
		return err
	}
	r := result{Passed: err == nil, Seconds: int(time.Since(start).Seconds())}
	if c.details != nil && r.Passed {
		r.Details = c.details(s)
	}
	return cmp.Or(p.keepResult(s, c.name, r), err)
}

// tableRow prints a row of a table in Markdown.
func tableRow(w io.Writer, cells ...string) { fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | ")) }

// tableHead prints the head of a table in Markdown.
func tableHead(w io.Writer, cells ...string) {
	tableRow(w, cells...)
	tableRow(w, slices.Repeat([]string{"---"}, len(cells))...)
}

// summary prints a table in Markdown of what came of the checks.
func summary(w io.Writer, all []*series, of func(*series, string) *result) {
	head := []string{"release"}
	for _, c := range checks {
		head = append(head, c.name)
	}
	tableHead(w, head...)
	for _, s := range all {
		cells := []string{s.tag}
		for _, c := range checks {
			cells = append(cells, of(s, c.name).cell())
		}
		tableRow(w, cells...)
	}
}

// overview returns a table for patchesPage: how many patches each release has, which it lacks, and which checks it passed.
func overview(all []*series, latest results) (string, error) {
	var b strings.Builder
	tableHead(&b, "release", "patches", "left out", "passed")
	for _, s := range all {
		leftOut, err := s.leftOut()
		if err != nil {
			return "", err
		}
		var passed []string
		for _, c := range checks {
			if r := latest.of(s, c.name); r != nil && r.Passed {
				passed = append(passed, c.name)
			}
		}
		tableRow(&b, s.tag, strconv.Itoa(len(s.active)), strings.Join(slices.Sorted(maps.Keys(leftOut)), ", "), strings.Join(passed, ", "))
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
	return writeFile(filepath.Join(p.root, resultsFile), append(data, '\n'), 0o666)
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

// leftOut are the reasons for which a series lacks a patch: the lines "# left out: NAME: reason" of its file.
func (s *series) leftOut() (map[string]string, error) {
	data, err := os.ReadFile(filepath.Join(s.dir, "series"))
	reasons := map[string]string{}
	for l := range strings.Lines(string(data)) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(l), "# left out: "); ok {
			name, reason, _ := strings.Cut(text, ": ")
			active := slices.ContainsFunc(s.active, func(q *patch) bool { return q.name == name })
			if reason == "" || active || reasons[name] != "" {
				return nil, fmt.Errorf("%s: \"# left out: %s\" must be \"# left out: NAME: REASON\", once, of a patch that the series lacks", filepath.Join(s.dir, "series"), text)
			}
			reasons[name] = reason
		}
	}
	return reasons, err
}

// matrix prints in Markdown which release has which patch, and what came of the checks.
func matrix(w io.Writer, all []*series, latest results) error {
	fmt.Fprint(w, `<!-- SPDX-License-Identifier: Apache-2.0 -->
<!-- Written by: make matrix -->

# Releases

What came of the checks of each series, on the release that it was made on, by the commands that ran. What was not run with
the series as it is now says so. [releases.json](releases.json) says when each one ran.

`)
	summary(w, all, latest.of)
	fmt.Fprintln(w)
	for _, c := range checks {
		fmt.Fprintf(w, "* %s: %s\n", c.name, c.what)
	}
	fmt.Fprint(w, "\n## Which release has which patch\n\n")
	head := []string{"patch"}
	var names, why []string
	leftOut := map[*series]map[string]string{}
	for _, s := range all {
		head = append(head, s.name)
		for i, q := range s.active {
			if !slices.Contains(names, q.name) {
				names = slices.Insert(names, min(i, len(names)), q.name)
			}
		}
		reasons, err := s.leftOut()
		if err != nil {
			return err
		}
		leftOut[s] = reasons
	}
	for _, s := range all {
		for name := range leftOut[s] {
			if !slices.Contains(names, name) {
				return fmt.Errorf("%s: \"# left out: %s\" names a patch that no series has", filepath.Join(s.dir, "series"), name)
			}
		}
	}
	tableHead(w, head...)
	for _, name := range names {
		cells := []string{name}
		for _, s := range all {
			reason := leftOut[s][name]
			switch i := slices.IndexFunc(s.active, func(q *patch) bool { return q.name == name }); {
			case i >= 0:
				cells = append(cells, strconv.Itoa(s.active[i].number))
			case reason != "":
				cells = append(cells, "–")
				why = append(why, fmt.Sprintf("* %s lacks %s: %s", s.name, name, reason))
			default:
				return fmt.Errorf("%s has no patch %q, and no line \"# left out: %s: REASON\"", filepath.Join(s.dir, "series"), name, name)
			}
		}
		tableRow(w, cells...)
	}
	if why != nil {
		fmt.Fprintf(w, "\n%s\n", strings.Join(why, "\n"))
	}
	return nil
}
