// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"

	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/console"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/fileutil"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/git"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/process"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/series"
)

// check is a check of a series.
type check struct {
	name string
	what string
	// run is nil if a script runs the check and records the result.
	run func(*program) error
	// details returns more about a series that passes. It may be nil.
	details func(*series.Series) string
	// line is the line of BASE without which a series does not need the check.
	line string
	// exact is true if the check depends on the bytes of the patch files, and not only on the code.
	exact bool
}

// others is the name of the check that depends on more than the series.
const others = "others"

// checks are in the order in which they run: later ones take longer.
var checks = []check{
	{name: "patches", what: "apply, reformat, plain git am, and reverse", exact: true, run: func(p *program) error { return p.verify(true, false) }},
	{name: "tests", what: "upstream's tests and ours of the packages that the patches touch, with the race detector", run: (*program).testPatched},
	{name: "build", what: "type-check kubelet, kube-apiserver and tests after each patch; build both programs and run go vet after the last one", run: func(p *program) error { return p.verify(false, true) }},
	{
		name: others, what: "apply to these other patch versions, and reverse",
		exact: true, run: (*program).applyToOthers, details: func(s *series.Series) string { return strings.Join(s.Applies, " ") },
		line: "applies:",
	},
	{
		name: "vendor", what: "the same tests, and a build of kubelet, with the library in vendor", run: (*program).testVendored,
		line: "vendor: yes",
	},
	{name: "node-timing", what: "restarts on a real node, compared with the stock kubelet"},
	{name: "node-e2e", what: "pods on a real node, in every scenario"},
	{name: "node-conformance", what: "upstream's NodeConformance specs: the patched kubelet passes those that the stock kubelet passes"},
	{name: "node-skew", what: "pods on a real node that runs kubelets of these releases one after the other, stock and patched, with the API server of this release"},
}

// skips reports whether a series does not need the check.
func (c check) skips(s *series.Series) bool {
	return c.line == "applies:" && len(s.Applies) == 0 || c.line == "vendor: yes" && !s.VendorToo
}

// result is the result of a check. A clone stores the results of its own checks in _output. make matrix copies them to the
// repository for the page, because one machine needs more than a day for the checks of all releases.
type result struct {
	// Series identifies the series that was checked. The result is not valid for another one.
	Series  string    `json:"series"`
	Passed  bool      `json:"passed"`
	Seconds int       `json:"seconds,omitempty"`
	At      time.Time `json:"at"`
	// Details are printed in the matrix after the result.
	Details string `json:"details,omitempty"`
}

// checked returns the identity of the state of the series for a check.
func checked(s *series.Series, name string) string {
	digest := s.CodeDigest()
	if slices.ContainsFunc(checks, func(c check) bool { return c.name == name && c.exact }) {
		digest, _ = s.Digest()
	}
	if name == others {
		digest += " " + strings.Join(s.Applies, " ")
	}
	return s.Tag + " " + digest
}

func (p *program) resultFile(s *series.Series, check, ext string) string {
	return filepath.Join(p.output, "releases", s.Tag, check+ext)
}

// result returns the result of a check of the series in its current state, or nil.
func (p *program) result(s *series.Series, check string) *result {
	data, err := os.ReadFile(p.resultFile(s, check, ".json"))
	var r result
	if err != nil || json.Unmarshal(data, &r) != nil || r.Series != checked(s, check) {
		return nil
	}
	return &r
}

// results are results by release and check.
type results map[string]map[string]*result

func (r results) of(s *series.Series, check string) *result { return r[s.Tag][check] }

// resultsFile has the results on the page of make matrix.
const resultsFile = "docs/results/releases.json"

// results returns the latest results of the series in their current state, from this clone and from resultsFile.
func (p *program) results(all []*series.Series) (results, error) {
	file := filepath.Join(p.Root, resultsFile)
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
		latest[s.Tag] = map[string]*result{}
		for _, c := range checks {
			r := p.result(s, c.name)
			if old := stored.of(s, c.name); old != nil && old.Series == checked(s, c.name) && (r == nil || old.At.After(r.At)) {
				r = old
			}
			if r != nil {
				latest[s.Tag][c.name] = r
			}
		}
	}
	return latest, nil
}

func (p *program) keepResult(s *series.Series, check string, r result) error {
	r.Series, r.At = checked(s, check), time.Now().UTC().Truncate(time.Second)
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return fileutil.Write(p.resultFile(s, check, ".json"), append(data, '\n'), 0o666)
}

// checkNames lists the checks that verify-all runs, or those that scripts record.
func checkNames(recorded bool) string {
	var names []string
	for _, c := range checks {
		if (c.run == nil) == recorded {
			names = append(names, c.name)
		}
	}
	return strings.Join(names, ", ")
}

// record stores the result of a check that a script ran with the series of the tree, unless the series changed after the
// script started.
func (p *program) record(name string, passed bool, details string) error {
	if !slices.ContainsFunc(checks, func(c check) bool { return c.run == nil && c.name == name }) {
		return fmt.Errorf("%q is not a check that scripts record: must be one of %s", name, checkNames(true))
	}
	t, s, err := p.target()
	if err != nil {
		return err
	}
	if t.Version != s.Tag || p.kubeRoot != "" || p.pick != (series.Pick{}) {
		p.Note("not stored in %s, which is only for whole series on an unchanged %s", filepath.Join(p.output, "releases"), s.Tag)
		return nil
	}
	if why := t.DiffersFrom(s); why != "" {
		p.Note("not stored in %s: %s", filepath.Join(p.output, "releases"), why)
		return nil
	}
	if p.checked != "" && p.checked != checked(s, name) {
		p.Note("not stored in %s: series %s has changed since the programs were built", filepath.Join(p.output, "releases"), s.Name)
		return nil
	}
	return p.keepResult(s, name, result{Passed: passed, Details: details})
}

// checkedCommand prints the identity of the tree's series, which a script keeps while it builds and runs.
func (p *program) checkedCommand() error {
	shell := p.Out
	p.Out = p.ErrOut
	_, s, err := p.target()
	if err == nil {
		fmt.Fprintln(shell, checked(s, ""))
	}
	return err
}

// testPatched runs test-patched.sh with the race detector.
func (p *program) testPatched() error {
	if err := p.alone(false, func(bool) error { return p.apply(false) }); err != nil {
		return err
	}
	t, s, err := p.target()
	if err != nil {
		return err
	}
	if why := t.DiffersFrom(s); why != "" {
		return errors.New(why)
	}
	return p.script("tests fail in the patched tree:", "test-patched.sh", "-race")
}

// script runs a script of hack on the program's tree.
func (p *program) script(failed, name string, args ...string) error {
	vendor := ""
	if p.vendorLibrary {
		vendor = "1"
	}
	env := append(os.Environ(), "KB_ROOT="+p.Root, "KUBE_ROOT="+p.kubeRoot, "SERIES=", "SKIP=", "KB_SERIES=", "KUBE_VERSION="+p.kubeVersion, "VENDOR="+vendor, "KB_OUTPUT_DIR="+p.output)
	out, took, err := p.long(name, p.Root, env, "bash", append([]string{filepath.Join(p.Root, "hack", name)}, args...)...)
	if err != nil {
		return console.Error(failed, console.LastLines(out, 120))
	}
	p.Note("ok: %s (%d s)", name, int(took.Seconds()))
	return nil
}

// testVendored tests the series with the library in vendor, on a copy of the release that has a vendor folder.
func (p *program) testVendored() error {
	t, err := p.resolve()
	if err != nil {
		return err
	}
	work, remove, err := fileutil.Scratch(p.output)
	if err != nil {
		return err
	}
	defer remove()
	q := *p
	q.kubeRoot, q.output, q.vendorLibrary = filepath.Join(work, "kubernetes"), work, true
	r, _, err := t.Stock(q.kubeRoot)
	if err == nil {
		err = r.Do("reset", "-q", "--hard")
	}
	if err != nil {
		return err
	}
	if out, _, err := p.long("go work vendor", r.Dir, process.GoEnvironment(os.Environ(), r.Dir), "go", "work", "vendor"); err != nil {
		return console.Error("the release has no vendor folder, and go work vendor cannot make it:", console.LastLines(out, 20))
	}
	if err := errors.Join(r.Do("add", "-f", "vendor"), r.Release("vendor")); err != nil {
		return err
	}
	if err := q.apply(false); err != nil {
		return err
	}
	if err := p.requireVendored(r); err != nil {
		return err
	}
	if err := q.script("tests fail in the tree with the library in vendor:", "test-patched.sh", "-race"); err != nil {
		return err
	}
	return q.script("the kubelet with the library in vendor does not build:", "build.sh", "kubelet")
}

// requireVendored returns an error if go work vendor changes what VENDOR=1 made. It gets the library from this clone.
func (p *program) requireVendored(r git.Git) error {
	indirect := func(file string) (map[string]string, error) {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		f, err := modfile.ParseLax(file, data, nil)
		if err != nil {
			return nil, err
		}
		versions := map[string]string{}
		for _, m := range f.Require {
			if m.Indirect {
				versions[m.Mod.Path] = m.Mod.Version
			}
		}
		return versions, nil
	}
	is, err := indirect(filepath.Join(r.Dir, "go.mod"))
	if err != nil {
		return err
	}
	needs, err := indirect(filepath.Join(p.Root, "go.mod"))
	if err != nil {
		return err
	}
	for m, version := range needs {
		if is[m] != "" && semver.Compare(is[m], version) < 0 {
			p.Note("not compared with go work vendor, which would also raise %s from %s to %s", m, is[m], version)
			return nil
		}
	}
	env := append(process.GoEnvironment(os.Environ(), r.Dir), "GOPRIVATE="+series.LibraryModule,
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url.file://"+p.Root+".insteadOf", "GIT_CONFIG_VALUE_0=https://"+series.LibraryModule)
	if out, _, err := p.long("go work vendor", r.Dir, env, "go", "work", "vendor"); err != nil {
		return console.Error("go work vendor fails with the library in vendor:", console.LastLines(out, 20))
	}
	if err := r.Do("add", "-f", "-A", "vendor"); err != nil {
		return err
	}
	if changed, err := r.Lines("status", "--porcelain"); err != nil || len(changed) > 0 {
		return errors.Join(err, console.Error("go work vendor changes what VENDOR=1 made:", changed...))
	}
	return nil
}

// applyToOthers applies the series to the other releases that its BASE names, and reverses it, in temporary trees.
func (p *program) applyToOthers() error {
	s, err := p.pickSeries(p.kubeVersion)
	if err != nil {
		return err
	}
	work, remove, err := fileutil.Scratch(p.output)
	if err != nil {
		return err
	}
	defer remove()
	var failed []error
	for _, version := range s.Applies {
		q := *p
		q.kubeVersion, q.output = version, filepath.Join(work, version)
		err := q.apply(false)
		if err == nil {
			err = q.reverse(false)
		}
		fileutil.RemoveAll(q.output)
		if p.ctx.Err() != nil {
			return context.Cause(p.ctx)
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// verifyAll runs the checks, each for all series, newest first. It does not repeat a check that the series has passed.
func (p *program) verifyAll(only, names []string) error {
	if p.kubeRoot != "" || p.kubeVersion != "" || p.seriesName != "" || p.pick != (series.Pick{}) || p.vendorLibrary {
		return errors.New("verify-all takes no KUBE_ROOT, KUBE_VERSION, KB_SERIES, SERIES, SKIP or VENDOR: it checks whole series on the releases that they were made on")
	}
	selected := slices.DeleteFunc(slices.Clone(checks), func(c check) bool {
		return c.run == nil || len(names) > 0 && !slices.Contains(names, c.name)
	})
	for _, name := range names {
		if !slices.ContainsFunc(selected, func(c check) bool { return c.name == name }) {
			return fmt.Errorf("%q is not a check that verify-all runs: must be one of %s", name, checkNames(false))
		}
	}
	dirs, err := p.seriesDirs(only)
	if err != nil {
		return err
	}
	var all []*series.Series
	failed := 0
	for _, dir := range dirs {
		s, err := p.loadSeries(dir)
		if err != nil {
			fmt.Fprintf(p.ErrOut, "FAIL: %s: %s\n", filepath.Base(dir), console.Indent(err.Error(), "      "))
			failed++
			continue
		}
		all = append(all, s)
	}
	// Quick checks come first, for all series. After a failure, later checks of that series would fail as well.
	left := slices.Clone(all)
	for _, c := range selected {
		left = slices.DeleteFunc(left, func(s *series.Series) bool {
			if r := p.result(s, c.name); r != nil && r.Passed {
				p.Say("%s %s: passed on %s", s.Tag, c.name, r.At.Local().Format(time.DateTime))
				return false
			}
			if c.skips(s) {
				p.Say("%s %s: %s has no line %q", s.Tag, c.name, filepath.Join(s.Dir, "BASE"), c.line)
				return false
			}
			return p.ctx.Err() == nil && p.check(s, c) != nil
		})
		if p.ctx.Err() != nil {
			return context.Cause(p.ctx)
		}
	}
	failed += len(all) - len(left)
	p.Say("Summary:")
	summary(p.Out, all, p.result)
	if failed > 0 {
		return fmt.Errorf("%d of %d series fail; the logs are in %s", failed, len(dirs), filepath.Join(p.output, "releases"))
	}
	return nil
}

// seriesDirs returns the directories of the series with these names, or of all, newest first. "newest" names the newest one.
func (p *program) seriesDirs(only []string) ([]string, error) {
	dirs := p.All()
	slices.Reverse(dirs)
	only = slices.Clone(only)
	for i, name := range only {
		if name == "newest" && len(dirs) > 0 {
			name = filepath.Base(dirs[0])
			only[i] = name
		}
		if !slices.ContainsFunc(dirs, func(d string) bool { return filepath.Base(d) == name }) {
			return nil, console.Error(fmt.Sprintf("there is no series %q", name), p.Describe())
		}
	}
	return slices.DeleteFunc(dirs, func(d string) bool { return len(only) > 0 && !slices.Contains(only, filepath.Base(d)) }), nil
}

// loadAll loads all series, newest first. It ignores SERIES and SKIP, which are only for apply.
func (p *program) loadAll() ([]*series.Series, error) {
	p.pick = series.Pick{}
	dirs, err := p.seriesDirs(nil)
	var all []*series.Series
	for _, d := range dirs {
		s, err := p.loadSeries(d)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, err
}

// check runs one check of a series, logs its output and stores the result.
func (p *program) check(s *series.Series, c check) error {
	p.Say("%s %s: %s", s.Tag, c.name, c.what)
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
	q.kubeVersion, q.Out, q.ErrOut = s.Tag, io.MultiWriter(p.Out, log), io.MultiWriter(p.ErrOut, log)
	start := time.Now()
	err = c.run(&q)
	if p.ctx.Err() != nil {
		return context.Cause(p.ctx)
	}
	// If the series was edited during the check, the result is for neither state.
	now, failed := p.loadSeries(s.Dir)
	changed := failed != nil || checked(now, c.name) != checked(s, c.name)
	if changed {
		err = fmt.Errorf("%s changed while this ran: run it again", s.Dir)
	}
	if err != nil {
		fmt.Fprintf(q.ErrOut, "FAIL: %s %s: %s\n", s.Tag, c.name, console.Indent(err.Error(), "      "))
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
