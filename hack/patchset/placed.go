// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/kubelet-backoff/kubelet-backoff/hack/internal/git"
	"github.com/kubelet-backoff/kubelet-backoff/hack/internal/series"
	"github.com/kubelet-backoff/kubelet-backoff/hack/internal/sys"
)

// hunk is a hunk of a diff.
type hunk struct {
	function string // the line that git shows in the header
	lines    []string
}

var (
	fileLine = regexp.MustCompile(`^\+\+\+ b/(.*)$`)
	hunkLine = regexp.MustCompile(`^@@ -\S+ \+\S+ @@ ?(.*)$`)
	// topLevel matches what git shows as the function in the header of a hunk.
	topLevel = regexp.MustCompile(`^[A-Za-z_$]`)
	// goName is the part of a function's line that a fork does not change without moving the code: its receiver and name.
	goName = regexp.MustCompile(`^func (?:\([^)]*?\*?(\w+)(?:\[[^)]*\])?\) )?(\w+)`)
)

// readHunks returns the hunks of a diff, by the path of their file.
func readHunks(diff string) map[string][]*hunk {
	_, diff, _ = strings.Cut("\n"+diff, "\ndiff --git ")
	hunks, path := map[string][]*hunk{}, ""
	for _, line := range strings.Split(diff, "\n") {
		if m := hunkLine.FindStringSubmatch(line); m != nil && path != "" {
			hunks[path] = append(hunks[path], &hunk{function: m[1]})
		} else if strings.HasPrefix(line, "diff --git ") {
			path = ""
		} else if m := fileLine.FindStringSubmatch(line); m != nil && path == "" {
			path = m[1]
		} else if n := len(hunks[path]); n > 0 && line != "" && strings.Contains(" +-", line[:1]) {
			hunks[path][n-1].lines = append(hunks[path][n-1].lines, line)
		}
	}
	return hunks
}

// nameOf returns what identifies a function by its line, of which git shows the beginning.
func nameOf(line string) string {
	if m := goName.FindStringSubmatch(line); m != nil {
		return m[1] + "." + m[2]
	}
	return strings.TrimSpace(line)
}

// requirePlaced returns an error if a hunk of the patch is not in the function that it was made for. Git takes the nearest place that
// its lines fit, which may be in another function if the fork has other lines there.
func requirePlaced(g git.Git, q *series.Patch, commit string) error {
	mail, err := g.Mail(commit)
	if err != nil {
		return err
	}
	made, is := readHunks(q.Mail), readHunks(mail)
	for _, path := range slices.Sorted(maps.Keys(made)) {
		before, _, _ := g.Both("show", commit+"^:"+path)
		for i, h := range made[path] {
			now := &hunk{function: "an unknown place: it is joined with another hunk"}
			if len(is[path]) == len(made[path]) {
				now = is[path][i]
			}
			fits, namesakes := h.fits(before), 0
			for line := range strings.Lines(before) {
				if topLevel.MatchString(line) && nameOf(line) == nameOf(h.function) {
					namesakes++
				}
			}
			// Git may have swapped hunks whose old lines are equal.
			named := nameOf(h.function) == nameOf(now.function) && slices.Equal(h.added(), now.added())
			// Two functions of that name: one may be a copy in a comment.
			twins := namesakes > 1 && goName.MatchString(h.function)
			if named && (namesakes < 2 || fits == 1 && !twins) || !h.inside() && fits == 1 {
				continue
			}
			return sys.Error(fmt.Sprintf("%s: a hunk of %s is misplaced", q.Name, path),
				fmt.Sprintf("It was made for %q. Git put it in %q. Places that its lines fit: %d.", h.function, now.function, fits),
				"The tree has other lines around the place that it was made for. Apply the series with git am -3, and resolve the conflict there.")
		}
	}
	return nil
}

// inside reports whether a change of the hunk is in the function of its header, as far as the hunk shows.
func (h *hunk) inside() bool {
	for _, line := range h.lines {
		switch {
		case line[0] != ' ':
			return true
		case topLevel.MatchString(line[1:]), line == " }", line == " )":
			return false
		}
	}
	return false
}

// added returns the lines that the hunk adds, sorted: a diff may begin an equal change a line later.
func (h *hunk) added() []string {
	added := slices.DeleteFunc(slices.Clone(h.lines), func(line string) bool { return line[0] != '+' })
	slices.Sort(added)
	return added
}

// old returns the lines of the file that the hunk has, each after a line feed.
func (h *hunk) old() string {
	var old strings.Builder
	for _, line := range h.lines {
		if line[0] != '+' {
			old.WriteString("\n" + line[1:])
		}
	}
	return old.String()
}

// fits counts the places in the file that the old lines of the hunk fit.
func (h *hunk) fits(file string) int { return strings.Count("\n"+file, h.old()+"\n") }
