// SPDX-License-Identifier: Apache-2.0

package main

import (
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

// The table is between these lines in README.md.
const statBegin, statEnd = "<!-- make stat -->\n", "<!-- end of make stat -->\n"

func (p *program) statCommand(write bool) error {
	table, err := p.stat()
	if err != nil {
		return err
	}
	if !write {
		_, err = fmt.Fprint(p.out, table)
		return err
	}
	file := filepath.Join(p.root, "README.md")
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, ok1 := strings.Cut(string(data), statBegin)
	_, after, ok2 := strings.Cut(rest, statEnd)
	if !ok1 || !ok2 {
		return fail(fmt.Sprintf("%s does not have the lines %q and %q, between which the table belongs", file, statBegin, statEnd))
	}
	return writeFile(file, []byte(before+statBegin+table+statEnd+after), 0o666)
}

// stat is the table of README: the changed lines of upstream's files, by patch and file.
func (p *program) stat() (string, error) {
	var b strings.Builder
	dirs := p.allSeries()
	if len(dirs) == 0 {
		return "", fail("no series in " + p.patches)
	}
	all := *p
	all.skip = ""
	s, err := all.loadSeries(dirs[len(dirs)-1])
	if err != nil {
		return "", err
	}
	m, err := p.readTravel()
	if err != nil {
		return "", err
	}
	fmt.Fprintf(&b, "| patch of %s | file | lines |\n|---|---|---|\n", s.name)
	total, generated := 0, 0
	for _, q := range s.active {
		hunks, err := p.hunks(q)
		if err != nil {
			return "", err
		}
		label := fmt.Sprintf("%d %s", q.number, q.name)
		var others []string
		for _, file := range slices.Sorted(maps.Keys(hunks)) {
			n := hunks[file].added + hunks[file].removed
			if generatedPattern.MatchString(file) {
				others = append(others, file)
				generated += n
				continue
			}
			fmt.Fprintf(&b, "| %s | %s | %d |\n", label, file, n)
			total += n
			label = ""
		}
		for _, file := range others {
			fmt.Fprintf(&b, "| %s | %s (generated) | %d |\n", label, file, hunks[file].added+hunks[file].removed)
			label = ""
		}
		for _, path := range slices.Sorted(maps.Keys(q.files)) {
			if m.replaces(path) {
				rel := filepath.ToSlash(p.rel(q.files[path].path))
				fmt.Fprintf(&b, "| %s | %s | is %s, %d lines |\n", label, path, rel, strings.Count(string(q.files[path].content), "\n"))
				label = ""
			}
		}
	}
	fmt.Fprintf(&b, "| all | | %d |\n| all | (generated) | %d |\n", total, generated)
	return b.String(), nil
}
