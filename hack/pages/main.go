// SPDX-License-Identifier: Apache-2.0

// Pages writes the pages about the series, from the patches and from the results of their checks, which it stores. It knows nothing
// of kubernetes trees. hack/pages.sh runs it.
package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubelet-backoff/kubelet-backoff/hack/internal/series"
	"github.com/kubelet-backoff/kubelet-backoff/hack/internal/sys"
)

const (
	patchesPage = "docs/patches.md" // it has the tables of stat and matrix
	resultsFile = "docs/results/releases.json"
)

func main() {
	if err := command().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "error: "+sys.Indent(err.Error(), "       "))
		os.Exit(1)
	}
}

// pages is the repository, and its series with all patches, newest first.
type pages struct {
	series.Store
	all []*series.Series
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use:           "hack/pages.sh COMMAND",
		Short:         "Write the pages about the series, and store the results of their checks.",
		SilenceErrors: true, SilenceUsage: true, CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	add := func(use, short string, args cobra.PositionalArgs, run func(p *pages, args []string) error) *cobra.Command {
		c := &cobra.Command{Use: use, Short: short, Args: args, DisableFlagsInUseLine: true, RunE: func(_ *cobra.Command, args []string) error {
			p, err := open()
			if err != nil {
				return err
			}
			return run(p, args)
		}}
		root.AddCommand(c)
		return c
	}
	var write, failed bool
	page := func(use, short string, make func(w io.Writer, p *pages) error, save func(p *pages, text string) error) {
		add(use+" [--write]", short, cobra.NoArgs, func(p *pages, _ []string) error {
			var b bytes.Buffer
			if err := make(&b, p); err != nil {
				return err
			}
			if write {
				return save(p, b.String())
			}
			_, err := os.Stdout.Write(b.Bytes())
			return err
		}).Flags().BoolVar(&write, "write", false, "write it to docs/")
	}
	page("stat", "Print the changed lines of upstream's files, of KUBE_VERSION or the newest release", stat, func(p *pages, text string) error { return p.intoPage("make stat", text) })
	page("deviations", "Print how the kubelet's behavior differs from upstream: the messages of the patches", deviations,
		func(p *pages, text string) error { return p.write("docs/deviations.md", text) })
	page("matrix", "Print the patches of each release, and the results of the checks", matrix, (*pages).saveMatrix)
	var seconds int
	record := add("record CHECK [DETAILS]", "Store the result of a check of the series whose identity is KB_CHECKED", cobra.RangeArgs(1, 2), func(p *pages, args []string) error {
		return p.record(args[0], Result{Passed: !failed, Seconds: seconds, Details: strings.Join(args[1:], "")})
	})
	record.Flags().BoolVar(&failed, "failed", false, "the check has failed")
	record.Flags().IntVar(&seconds, "seconds", 0, "how long it took")
	add("identity RELEASE CHECK", "Print the identity of the series of a release for a check, which changes with its patches", cobra.ExactArgs(2), func(p *pages, args []string) error {
		s, err := p.of(args[0])
		if err == nil {
			fmt.Println(identity(s, args[1]))
		}
		return err
	})
	add("passed RELEASE CHECK", "Print when the series in its present state passed a check here, or fail", cobra.ExactArgs(2), func(p *pages, args []string) error {
		s, err := p.of(args[0])
		if err != nil {
			return err
		}
		r := p.result(s, args[1])
		if r == nil || !r.Passed {
			return fmt.Errorf("%s has not passed %s here", args[0], args[1])
		}
		fmt.Println(r.At.Local().Format(time.DateTime))
		return nil
	})
	return root
}

// open loads all series. The pages are about whole series: SERIES and SKIP are only for apply.
func open() (*pages, error) {
	var p pages
	var err error
	if p.Store, err = series.Open(context.Background()); err != nil {
		return nil, err
	}
	if p.all, err = p.LoadAll(); err == nil && len(p.all) == 0 {
		err = fmt.Errorf("there is no series in %s/patches", p.Root)
	}
	return &p, err
}

// of returns the series that was made on a release.
func (p *pages) of(release string) (*series.Series, error) {
	for _, s := range p.all {
		if s.Tag == release {
			return s, nil
		}
	}
	return nil, fmt.Errorf("no series was made on %q", release)
}

func (p *pages) write(file, text string) error {
	return sys.Write(filepath.Join(p.Root, file), []byte(text))
}

// intoPage puts a table into patchesPage, between the two lines that name its command.
func (p *pages) intoPage(command, table string) error {
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
	return p.write(patchesPage, before+begin+table+end+after)
}

// generated matches files that upstream's generators write.
var generated = regexp.MustCompile(`^api/openapi-spec/|/zz_generated\.|/generated\.proto$|/types_swagger_doc_generated\.go$|/applyconfigurations/|/container/testing/(mocks|runtime_mock)\.go$|^test/compatibility_lifecycle/reference/`)

// stat prints a table with the changed lines of upstream's files, by patch and file, and with the lines of the new files.
func stat(w io.Writer, p *pages) error {
	s := p.all[0]
	if v := os.Getenv("KUBE_VERSION"); v != "" {
		i := slices.IndexFunc(p.all, func(s *series.Series) bool { return strings.HasPrefix("v"+strings.TrimPrefix(v, "v")+".", s.Name+".") })
		if i < 0 {
			return fmt.Errorf("KUBE_VERSION=%s: there is no series for it", v)
		}
		s = p.all[i]
	}
	fmt.Fprintf(w, "| patch of %s | file | lines |\n|---|---|---|\n", s.Name)
	total, code, tests := map[string]int{}, map[string]int{}, map[string]int{}
	for _, q := range s.Patches {
		part, err := q.Part()
		if err != nil {
			return err
		}
		for path, f := range q.Files {
			of := code
			if strings.HasSuffix(path, "_test.go") {
				of = tests
			}
			of[part] += bytes.Count(f.Content, []byte("\n"))
		}
		label := fmt.Sprintf("%d %s", q.Number, q.Name)
		byHand := func(file string) int {
			if generated.MatchString(file) {
				return 1
			}
			return 0
		}
		for _, file := range slices.SortedFunc(maps.Keys(q.Hunks), func(a, b string) int {
			return cmp.Or(byHand(a)-byHand(b), cmp.Compare(a, b))
		}) {
			of, name := part, file
			if generated.MatchString(file) {
				of, name = "", file+" (generated)"
			}
			total[of] += q.Hunks[file]
			row(w, label, name, strconv.Itoa(q.Hunks[file]))
			label = ""
		}
	}
	for _, part := range series.Parts {
		fmt.Fprintf(w, "| all of %s | | %d |\n", part, total[part])
	}
	fmt.Fprintf(w, "| all | (generated) | %d |\n", total[""])
	for _, part := range series.Parts {
		fmt.Fprintf(w, "| new files of %s | without tests | %d |\n| | tests | %d |\n", part, code[part], tests[part])
	}
	return nil
}

// deviations prints the messages of the patches: how each patch of the newest series changes the behavior of the kubelet, and
// why. If the message of another release differs, it prints that one too.
func deviations(w io.Writer, p *pages) error {
	all := p.all
	fmt.Fprint(w, `<!-- SPDX-License-Identifier: Apache-2.0 -->
<!-- Written by: make deviations -->

# How this differs from upstream

This page has the messages of the patches: what each one changes and why, which of upstream's tests expected something else, and
when the patch can be dropped. To leave a patch out, comment out its line in patches/RELEASE/series, or name it in SKIP. SERIES=core leaves
out the patches that say "Series: cost", and SERIES=all adds those that say "Series: asked".
[results/releases.md](results/releases.md) lists the patches that a release lacks, with the reasons.
[development.md](development.md#container-runtimes) lists what differs between container runtimes.
`)
	for _, q := range all[0].Patches {
		var texts []string // of the newest series first
		releases := map[string][]string{}
		for _, s := range all {
			i := index(s, q.Name)
			if i < 0 {
				continue
			}
			subject, body, _ := strings.Cut(s.Patches[i].Text, "\n")
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

// index returns the index of the patch with this name, or -1.
func index(s *series.Series, name string) int {
	return slices.IndexFunc(s.Patches, func(q *series.Patch) bool { return q.Name == name })
}

// leftOut returns the reasons for the patches that the series lacks, by name. It reads the lines "# left out: NAME: REASON" of the file
// series.
func leftOut(s *series.Series) (map[string]string, error) {
	file := filepath.Join(s.Dir, "series")
	data, err := os.ReadFile(file)
	reasons := map[string]string{}
	for line := range strings.Lines(string(data)) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "# left out: "); ok {
			name, reason, _ := strings.Cut(text, ": ")
			if reason == "" || index(s, name) >= 0 || reasons[name] != "" {
				return nil, fmt.Errorf("%s: \"# left out: %s\" must be \"# left out: NAME: REASON\", once, of a patch that the series lacks", file, text)
			}
			reasons[name] = reason
		}
	}
	return reasons, err
}

// matrix prints which release has which patch, and the results of the checks.
func matrix(w io.Writer, p *pages) error {
	latest, err := p.read()
	if err != nil {
		return err
	}
	all := p.all
	fmt.Fprint(w, `<!-- SPDX-License-Identifier: Apache-2.0 -->
<!-- Written by: make matrix -->

# Releases

This page has the results of the checks of each series, on the release that it was made on. The commands that ran the checks stored them.
"not run" means that the check has not run since the series changed. [releases.json](releases.json) has the time of each check.

`)
	summary(w, all, latest)
	for _, c := range checks {
		fmt.Fprintf(w, "* %s: %s\n", c.Name, c.What)
	}
	fmt.Fprint(w, "\n## Which release has which patch\n\n")
	var names []string
	for _, s := range all {
		for i, q := range s.Patches {
			if !slices.Contains(names, q.Name) {
				names = slices.Insert(names, min(i, len(names)), q.Name)
			}
		}
	}
	reasons := map[*series.Series]map[string]string{}
	for _, s := range all {
		if reasons[s], err = leftOut(s); err != nil {
			return err
		}
		for name := range reasons[s] {
			if !slices.Contains(names, name) {
				return fmt.Errorf("%s: \"# left out: %s\" names a patch that no series has", filepath.Join(s.Dir, "series"), name)
			}
		}
	}
	head(w, "patch", "releases", "reason")
	for _, name := range names {
		// The releases that lack the patch, by the reason, which are sorted like all.
		var have, why []string
		lack := map[string][]string{}
		for _, s := range all {
			reason := reasons[s][name]
			switch {
			case index(s, name) >= 0:
				have = append(have, s.Name)
			case reason != "":
				if lack[reason] == nil {
					why = append(why, reason)
				}
				lack[reason] = append(lack[reason], s.Name)
			default:
				return fmt.Errorf("%s has no patch %q, and no line \"# left out: %s: REASON\"", filepath.Join(s.Dir, "series"), name, name)
			}
		}
		releases := strings.Join(have, ", ")
		if n := len(have); n > 1 && all[n-1].Name == have[n-1] {
			releases = have[n-1] + " and later"
		}
		for i, reason := range why {
			why[i] = "not in " + strings.Join(lack[reason], ", ") + ": " + reason
		}
		row(w, name, releases, strings.Join(why, "; "))
	}
	return nil
}

// saveMatrix writes the page and its results, and a table into patchesPage: the number of patches of each release, those that it lacks,
// and the checks that it passed.
func (p *pages) saveMatrix(page string) error {
	latest, err := p.read()
	if err != nil {
		return err
	}
	var b strings.Builder
	head(&b, "release", "patches", "left out", "passed")
	for _, s := range p.all {
		lacks, err := leftOut(s)
		if err != nil {
			return err
		}
		var passed []string
		for _, c := range checks {
			if r := c.of(latest[s.Tag]); r != nil && r.Passed && !r.partly {
				passed = append(passed, c.Name)
			}
		}
		row(&b, s.Tag, strconv.Itoa(len(s.Patches)), strings.Join(slices.Sorted(maps.Keys(lacks)), ", "), strings.Join(passed, ", "))
	}
	if err := p.intoPage("make matrix", b.String()); err != nil {
		return err
	}
	if err := p.write("docs/results/releases.md", page); err != nil {
		return err
	}
	return writeJSON(filepath.Join(p.Root, resultsFile), latest)
}
