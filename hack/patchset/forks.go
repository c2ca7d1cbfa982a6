// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strings"

	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/git"
)

// forkRounds is the number of forks that forks makes, each with other numbers of lines.
const forkRounds = 3

// forks composes the series on forks, which have 1 to 100 more lines at the top of, and between the functions of, each Go
// file that the series changes. The result must have the same lines more, and every hunk in its place.
func (v *verifier) forks() error {
	v.Say("Composing the series on forks with more lines")
	taken := map[string]string{} // the lines of the hunks in each file
	for _, q := range v.s.Active {
		for _, h := range readHunks(q.Mail, "") {
			if strings.HasSuffix(h.path, ".go") {
				taken[h.path] += "\n" + strings.Join(h.lines, "\n") + "\n"
			}
		}
	}
	tip := v.base
	if len(v.commits) > 0 {
		tip = v.commits[len(v.commits)-1].commit
	}
	places := 0
	for round := range forkRounds {
		fork, want := map[string]git.File{}, map[string]git.File{}
		for rev, files := range map[string]map[string]git.File{v.base: fork, tip: want} {
			old, err := v.git.Files(rev, slices.Sorted(maps.Keys(taken))...)
			if err != nil {
				return err
			}
			for path, f := range old {
				content, err := v.git.Bytes("cat-file", "blob", f.Blob)
				if err != nil {
					return err
				}
				grown, n := withMoreLines(string(content), taken[path], round)
				if f.Blob, err = v.git.Store([]byte(grown)); err != nil {
					return err
				}
				files[path], places = f, places+n
			}
		}
		base, err := v.commitOf(v.base, fork)
		if err != nil {
			return err
		}
		commits, err := v.program.compose(v.git, base, v.s, v.t)
		if err != nil {
			v.bad(fmt.Sprintf("fork %d", round+1), err.Error())
			continue
		}
		got, err := v.git.Files(commits[len(commits)-1].commit, slices.Sorted(maps.Keys(want))...)
		if err != nil {
			return err
		}
		for path := range want {
			if got[path] != want[path] {
				v.bad(fmt.Sprintf("fork %d: a hunk of %s is in another place than without the fork's lines", round+1, path))
			}
		}
	}
	if v.failures == 0 {
		v.good("the hunks are in place on %d forks, with lines added in %d places", forkRounds, places/2)
	}
	return nil
}

// withMoreLines adds comment lines to a Go file, after the package clause and before each function, unless a hunk has the
// line. The number of lines depends on that line and the round.
func withMoreLines(content, taken string, round int) (string, int) {
	var b strings.Builder
	places := 0
	for line := range strings.Lines(content) {
		text := strings.TrimSuffix(line, "\n")
		isPackage := strings.HasPrefix(text, "package ")
		free := !strings.Contains(taken, " "+text+"\n") && !strings.Contains(taken, "+"+text+"\n") && !strings.Contains(taken, "-"+text+"\n")
		more := ""
		if free && (isPackage || strings.HasPrefix(text, "func ")) {
			n := 1 + (int(crc32.ChecksumIEEE([]byte(text)))+37*round)%100
			more = strings.Repeat("// a line of the fork\n", n)
			places++
		}
		if !isPackage {
			b.WriteString(more)
		}
		b.WriteString(line)
		if isPackage {
			b.WriteString(more)
		}
	}
	return b.String(), places
}

// commitOf returns a commit on parent with other versions of files.
func (v *verifier) commitOf(parent string, files map[string]git.File) (string, error) {
	x := v.git.With("GIT_INDEX_FILE=" + v.work + "/fork-index")
	if err := x.Do("read-tree", parent); err != nil {
		return "", err
	}
	if err := x.Stage(files); err != nil {
		return "", err
	}
	return x.CommitIndex(parent, "A fork", "GIT_AUTHOR_NAME="+git.CommitterEmail, "GIT_AUTHOR_EMAIL="+git.CommitterEmail, "GIT_AUTHOR_DATE=2026-01-01T00:00:00Z")
}
