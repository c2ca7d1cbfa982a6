// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/console"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/series"
)

// hunk is a hunk of a patch, and where git apply put it.
type hunk struct {
	path, header string
	// at is the line in the new file, counted from 1.
	at    int
	lines []string
}

var (
	fileLine = regexp.MustCompile(`^\+\+\+ b/(.*)$`)
	hunkLine = regexp.MustCompile(`^@@ -\d+(?:,\d+)? \+(\d+)(?:,\d+)? @@ ?(.*)$`)
	movedTo  = regexp.MustCompile(`^Hunk #(\d+) succeeded at (\d+) `)
	checking = regexp.MustCompile(`^Checking patch (.*)\.\.\.$`)
	// function matches what git shows as the function in the header of a hunk.
	function = regexp.MustCompile(`^[A-Za-z_$]`)
	// declaration matches such a line that begins a declaration of Go, and not a label or a line of a string or of a comment.
	declaration = regexp.MustCompile(`^(package|import|const|type|var|func)\b`)
	// goName is the part of a function's line that a fork does not change without moving the code: its receiver and name.
	goName = regexp.MustCompile(`^func (?:\([^)]*?\*?(\w+)(?:\[[^)]*\])?\) )?(\w+)`)
)

// readHunks returns the hunks of a patch. said is what git apply --verbose printed: it names those that it moved.
func readHunks(mail, said string) (hunks []*hunk) {
	byPath := map[string][]*hunk{}
	path := ""
	_, diff, _ := strings.Cut(mail, "\ndiff --git ")
	for _, line := range strings.Split(diff, "\n") {
		if m := hunkLine.FindStringSubmatch(line); m != nil {
			at, _ := strconv.Atoi(m[1])
			h := &hunk{path: path, header: line, at: at}
			byPath[path] = append(byPath[path], h)
			if path != "" { // it deletes no file
				hunks = append(hunks, h)
			}
		} else if strings.HasPrefix(line, "diff --git ") {
			path = ""
		} else if m := fileLine.FindStringSubmatch(line); m != nil {
			path = m[1]
		} else if of := byPath[path]; len(of) > 0 && line != "" && strings.Contains(" +-", line[:1]) {
			of[len(of)-1].lines = append(of[len(of)-1].lines, line)
		}
	}
	for _, line := range strings.Split(said, "\n") {
		if m := checking.FindStringSubmatch(line); m != nil {
			path = m[1]
		} else if m := movedTo.FindStringSubmatch(line); m != nil {
			if n, _ := strconv.Atoi(m[1]); n <= len(byPath[path]) {
				byPath[path][n-1].at, _ = strconv.Atoi(m[2])
			}
		}
	}
	return hunks
}

// nameOf returns what identifies a function by its line.
func nameOf(line string) string {
	if m := goName.FindStringSubmatch(line); m != nil {
		return m[1] + "." + m[2]
	}
	return strings.TrimSpace(line)
}

// requirePlaced returns an error if a hunk is not in the function that it was made for. Git takes the nearest place that its
// lines fit, which may be in another function if the fork inserted lines. before and after are the files without and with
// the patch.
func requirePlaced(q *series.Patch, hunks []*hunk, before, after map[string]string) error {
	for _, h := range hunks {
		made := hunkLine.FindStringSubmatch(h.header)[2]
		is, namesakes := h.place(after[h.path], made)
		fits := h.fits(before[h.path])
		// Git cuts the line off.
		named := nameOf(made) == nameOf(is) || made != "" && strings.HasPrefix(is, made)
		if named && (namesakes < 2 || fits == 1) || !strings.HasPrefix(is, "/*") && !h.inside() && fits == 1 {
			continue
		}
		return console.Error(fmt.Sprintf("%s: a hunk of %s is misplaced: %s", q.File, h.path, h.header),
			fmt.Sprintf("It was made for %q. Git put it at line %d, in %q. Places that its lines fit: %d.", made, h.at, is, fits),
			"The tree has other lines around the place that it was made for. Apply the series with git am -3, and resolve the conflict there.")
	}
	return nil
}

// place returns the line before the hunk that names its place: that of the declaration, if the hunk was made for one, or the
// first line of a comment between declarations. It also returns how many declarations have the name it was made for.
func (h *hunk) place(file, made string) (is string, namesakes int) {
	lines := strings.Split(file, "\n")
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, "", file, parser.SkipObjectResolution|parser.ParseComments)
	if err != nil || !strings.HasSuffix(h.path, ".go") || !declaration.MatchString(made) {
		for _, line := range lines[:max(0, min(h.at-1, len(lines)))] {
			if function.MatchString(line) {
				is = line
			}
		}
		return is, 1
	}
	at := func(p token.Pos) int { return set.PositionFor(p, false).Line }
	is, end := lines[at(f.Package)-1], f.Name.End()
	for _, d := range f.Decls {
		line := lines[at(d.Pos())-1]
		if nameOf(line) == nameOf(made) {
			namesakes++
		}
		if at(d.Pos()) < h.at {
			is, end = line, d.End()
		}
	}
	change := h.at + slices.IndexFunc(h.lines, func(l string) bool { return l[0] != ' ' })
	for _, c := range f.Comments {
		if text := c.List[0].Text; text[1] == '*' && c.Pos() > end && at(c.Pos()) < change && change <= at(c.End()) {
			is, _, _ = strings.Cut(text, "\n")
		}
	}
	return is, namesakes
}

// inside reports whether a change of the hunk is in the function of its header, as far as the hunk shows.
func (h *hunk) inside() bool {
	for _, line := range h.lines {
		switch {
		case line[0] != ' ':
			return true
		case function.MatchString(line[1:]), line == " }", line == " )":
			return false
		}
	}
	return false
}

// fits counts the places in the file that the old lines of the hunk fit.
func (h *hunk) fits(file string) int {
	var old strings.Builder
	for _, line := range h.lines {
		if line[0] != '+' {
			old.WriteString("\n" + line[1:])
		}
	}
	return strings.Count("\n"+file, old.String()+"\n")
}
