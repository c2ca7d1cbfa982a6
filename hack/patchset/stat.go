// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// generatedPattern is for files that upstream's tools write.
var generatedPattern = regexp.MustCompile(`^api/openapi-spec/|/zz_generated\.|/generated\.proto$|/types_swagger_doc_generated\.go$|/applyconfigurations/|^test/compatibility_lifecycle/reference/`)

func (p *program) statCommand(write bool) error {
	table, err := p.stat()
	if err != nil {
		return err
	}
	if !write {
		_, err = fmt.Fprint(p.out, table)
		return err
	}
	return p.intoPage("make stat", table)
}

// patchesPage is the page that has the tables of stat and matrix.
const patchesPage = "docs/patches.md"

// intoPage puts a table between the lines of patchesPage that name the command which prints it.
func (p *program) intoPage(command, table string) error {
	begin, end := "<!-- "+command+" -->\n", "<!-- end of "+command+" -->\n"
	file := filepath.Join(p.root, patchesPage)
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, _ := strings.Cut(string(data), begin)
	_, after, ok := strings.Cut(rest, end)
	if !ok || strings.Count(string(data), begin) != 1 || strings.Count(string(data), end) != 1 {
		return fmt.Errorf("%s must have the lines %q and %q once, between which the table belongs", file, begin, end)
	}
	return writeFile(file, []byte(before+begin+table+end+after), 0o666)
}

// stat returns a table for patchesPage: the changed lines of upstream's files, by patch and file.
func (p *program) stat() (string, error) {
	dirs := p.allSeries()
	if len(dirs) == 0 {
		return "", errors.New("no series in " + p.patches)
	}
	p.skip = ""
	s, err := p.loadSeries(dirs[len(dirs)-1])
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "| patch of %s | file | lines |\n|---|---|---|\n", s.name)
	total, generated := 0, 0
	for _, q := range s.active {
		hunks, err := p.hunks(q)
		if err != nil {
			return "", err
		}
		label := fmt.Sprintf("%d %s", q.number, q.name)
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
			total += hunks[file]
		}
		for _, file := range others {
			row("%s (generated) | %d", file, hunks[file])
		}
		for _, path := range slices.Sorted(maps.Keys(q.files)) {
			if f := q.files[path]; s.travel.replaces(path) {
				row("%s | is %s, %d lines", path, filepath.ToSlash(p.rel(f.path)), bytes.Count(f.content, []byte("\n")))
			}
		}
	}
	fmt.Fprintf(&b, "| all | | %d |\n| all | (generated) | %d |\n", total, generated)
	return b.String(), nil
}
