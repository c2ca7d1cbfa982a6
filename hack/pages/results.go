// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kubelet-backoff/kubelet-backoff/hack/internal/series"
	"github.com/kubelet-backoff/kubelet-backoff/hack/internal/sys"
)

// check is a check of a series.
type check struct {
	Name, What string
	// exact is true if the check depends on the bytes of the patch files, and not only on the code.
	exact bool
	// parts can run one by one, because all of them together take hours. Each has a result of its own.
	parts []string
}

// groups are the parts of node-vm: the groups of scenarios.
var groups = []string{"Pods", "Machine", "Disruptions", "Persist", "Metrics", "CrashloopRun", "Twins"}

// checks are in the order of the columns: later ones take longer. hack/verify-all.sh runs the first five, and the others store
// their results themselves.
var checks = []check{
	{Name: "patches", What: "apply, reformat, plain git am, one place for each hunk, and reverse", exact: true},
	{Name: "tests", What: "upstream's tests and ours of the packages that the patches touch, with the race detector"},
	{Name: "build", What: "type-check kubelet, kube-apiserver and tests after each patch; build both programs and run go vet after the last one"},
	{Name: "others", What: "apply to these other patch versions, and reverse", exact: true},
	{Name: "vendor", What: "the same tests, and a build of kubelet, with the library in vendor"},
	{Name: "node-timing", What: "restarts on a real node, compared with the stock kubelet; [timing.md](timing.md) lists the criteria that do not hold"},
	{Name: "node-e2e", What: "pods on a real node, in every scenario that the release supports"},
	{Name: "node-crio", What: "the same with CRI-O and crun instead of containerd and runc, without upstream's tests"},
	{Name: "node-vm", What: "the same as node-e2e in a virtual machine with systemd and cgroup v2, with what only cgroup v2 has and without upstream's tests; some run only in part", parts: groups},
	{Name: "node-vm-crio", What: "the same as node-vm with CRI-O and crun", parts: groups},
	{Name: "node-conformance", What: "upstream's NodeConformance specs: the patched kubelet passes those that the stock kubelet passes"},
	{Name: "node-vm-conformance", What: "the same as node-conformance in a virtual machine with systemd and cgroup v2", parts: []string{"sig-storage", "lifecycle", "probes", "others"}},
	{Name: "node-skew", What: "pods on a real node that runs kubelets of these releases one after the other, stock and patched, with the API server of this release"},
	{Name: "node-cluster", What: "workloads in a cluster of three nodes with the control plane of this release, whose kubelets are replaced, stock and patched, while pods crash and nodes are drained and lost"},
}

// skips reports whether a series does not need the check.
func (c check) skips(s *series.Series) bool {
	return c.Name == "others" && len(s.Applies) == 0 || c.Name == "vendor" && !s.Vendor
}

// names returns the names of the check's results: its own, and those of its parts.
func (c check) names() []string {
	names := []string{c.Name}
	for _, part := range c.parts {
		names = append(names, c.Name+"/"+part)
	}
	return names
}

// of returns the result of the check, which may consist of those of its parts, or nil.
func (c check) of(results map[string]*Result) *Result {
	whole := results[c.Name]
	var passed, failed []string
	for _, part := range c.parts {
		r := results[c.Name+"/"+part]
		switch {
		case r == nil || whole != nil && whole.At.After(r.At):
		case r.Passed:
			passed = append(passed, part)
		default:
			failed = append(failed, part)
		}
	}
	switch {
	case len(failed) > 0:
		return &Result{Details: strings.Join(failed, ", ")}
	case len(passed) > 0 && len(passed) == len(c.parts):
		return &Result{Passed: true}
	case whole == nil && len(passed) > 0:
		return &Result{Passed: true, partly: true, Details: "only " + strings.Join(passed, ", ")}
	}
	return whole
}

// Result is the result of a check. A clone stores those of its own checks in _output. The repository has those on the page of make
// matrix, because one machine needs more than a day for the checks of all releases.
type Result struct {
	// Series identifies the series that was checked. The result is not valid for another one.
	Series  string    `json:"series"`
	Passed  bool      `json:"passed"`
	Seconds int       `json:"seconds,omitempty"`
	At      time.Time `json:"at"`
	// Details are printed in the matrix after the result.
	Details string `json:"details,omitempty"`
	// partly is true if not all parts of the check have run.
	partly bool
}

// applied returns the series without the patches that are not applied by default.
func applied(s *series.Series) *series.Series {
	d := *s
	d.Patches = slices.DeleteFunc(slices.Clone(s.Patches), func(q *series.Patch) bool {
		part, err := q.Part()
		return err == nil && !slices.Contains(series.DefaultParts, part)
	})
	return &d
}

// identity returns the identity of the state of a series for a check.
func identity(s *series.Series, name string) string {
	i := slices.IndexFunc(checks, func(c check) bool { return c.Name == name })
	if strings.HasPrefix(name, "node-") {
		s = applied(s) // The nodes run that.
	}
	digest := codeDigest(s)
	if i >= 0 && checks[i].exact {
		digest = s.Digest()
	}
	if name == "others" {
		digest += " " + strings.Join(s.Applies, " ")
	}
	return s.Tag + " " + digest
}

func (p *pages) file(s *series.Series, check string) string {
	return filepath.Join(p.Output, "releases", s.Tag, strings.ReplaceAll(check, "/", "-")+".json")
}

// result returns the result of a check of the series in its current state in this clone, or nil.
func (p *pages) result(s *series.Series, check string) *Result {
	data, err := os.ReadFile(p.file(s, check))
	var r Result
	if err != nil || json.Unmarshal(data, &r) != nil || r.Series != identity(s, check) {
		return nil
	}
	return &r
}

// record stores the result of a check, unless the series has changed since the check began.
func (p *pages) record(name string, r Result) error {
	if !slices.ContainsFunc(checks, func(c check) bool { return slices.Contains(c.names(), name) }) {
		return fmt.Errorf("there is no check %q", name)
	}
	r.Series = os.Getenv("KB_CHECKED")
	if r.Series == "" {
		fmt.Println("    not stored: only whole series on an unchanged release have results")
		return nil
	}
	release, _, _ := strings.Cut(r.Series, " ")
	s, err := p.of(release)
	if err != nil {
		return err
	}
	if identity(s, name) != r.Series {
		return fmt.Errorf("the series for %s has changed since %s began: run it again", release, name)
	}
	r.At = time.Now().UTC().Truncate(time.Second)
	return writeJSON(p.file(s, name), r)
}

func writeJSON(file string, value any) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	return sys.Write(file, append(data, '\n'))
}

// read returns the latest results of the series in their current state, from this clone and from the page's file, by release and
// check.
func (p *pages) read() (map[string]map[string]*Result, error) {
	file := filepath.Join(p.Root, resultsFile)
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		data, err = []byte("{}"), nil
	}
	stored, latest := map[string]map[string]*Result{}, map[string]map[string]*Result{}
	if err = cmp.Or(err, json.Unmarshal(data, &stored)); err != nil {
		return nil, fmt.Errorf("%s: %w; restore the file, or remove it", file, err)
	}
	for _, s := range p.all {
		latest[s.Tag] = map[string]*Result{}
		for _, c := range checks {
			for _, name := range c.names() {
				r := p.result(s, name)
				if old := stored[s.Tag][name]; old != nil && old.Series == identity(s, name) && (r == nil || old.At.After(r.At)) {
					r = old
				}
				if r != nil {
					latest[s.Tag][name] = r
				}
			}
		}
	}
	return latest, nil
}

func (r *Result) cell() string {
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

// row prints a row of a table in Markdown.
func row(w io.Writer, cells ...string) { fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | ")) }

// head prints the first row of a table.
func head(w io.Writer, cells ...string) {
	row(w, cells...)
	row(w, slices.Repeat([]string{"---"}, len(cells))...)
}

// summary prints the results, as tables that fit a page.
func summary(w io.Writer, all []*series.Series, results map[string]map[string]*Result) {
	for some := range slices.Chunk(checks, 5) {
		columns := []string{"release"}
		for _, c := range some {
			columns = append(columns, c.Name)
		}
		head(w, columns...)
		for _, s := range all {
			cells := []string{s.Tag}
			for _, c := range some {
				cell := c.of(results[s.Tag]).cell()
				if c.skips(s) {
					cell = "–"
				}
				cells = append(cells, cell)
			}
			row(w, cells...)
		}
		fmt.Fprintln(w)
	}
}
