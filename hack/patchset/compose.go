// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// composed is a patch as a commit.
type composed struct {
	patch  *patch
	commit string
}

// notApplicable is the error of a patch that does not fit.
func (p *program) notApplicable(q *patch, t *tree, said string) error {
	return fail(fmt.Sprintf("%s does not apply to kubernetes %s in %s:", q.file, t.version, t.dir), explainAm(said),
		"git says: "+strings.ReplaceAll(lastLines(said, 3), "\n", " "), "There are, in "+p.patches+":", p.describeSeries())
}

// compose makes the commits of a series on top of base, in a repository without looking at its files: the hunks of each
// patch, and the files that it brings.
func (p *program) compose(r git, base string, s *series, t *tree) ([]composed, error) {
	index, err := os.CreateTemp("", "patchset-index-")
	if err != nil {
		return nil, err
	}
	index.Close()
	defer os.Remove(index.Name())
	m, err := p.readTravel()
	if err != nil {
		return nil, err
	}
	// git takes an empty file for a broken index.
	if err := os.Remove(index.Name()); err != nil {
		return nil, err
	}
	x := r.with("GIT_INDEX_FILE=" + index.Name())
	if err := x.do("read-tree", base); err != nil {
		return nil, err
	}
	var done []composed
	parent := base
	for _, q := range s.active {
		hunks, err := p.hunks(q)
		if err != nil {
			return nil, err
		}
		for _, path := range slices.Sorted(maps.Keys(hunks)) {
			if f, ok := q.files[path]; ok {
				return nil, fail(fmt.Sprintf("%s changes %s, but %s is that file", q.file, path, f.path), "Remove one of them.")
			}
		}
		if len(hunks) > 0 {
			if err := x.input(q.mail).do("apply", "--cached", "-"); err != nil {
				if p.ctx.Err() != nil {
					return nil, err
				}
				return nil, p.notApplicable(q, t, err.Error())
			}
		}
		upstream, err := r.files(base, slices.Sorted(maps.Keys(q.files))...)
		if err != nil {
			return nil, err
		}
		staged := map[string]file{}
		for path, f := range q.files {
			if _, there := upstream[path]; there && !m.replaces(path) {
				return nil, p.notApplicable(q, t, fmt.Sprintf("error: %s: already exists in index\n%s is where the patch has it from", path, f.path))
			}
			blob, err := r.store(f.content)
			if err != nil {
				return nil, err
			}
			staged[path] = file{f.mode(), blob}
		}
		if err := x.stage(staged); err != nil {
			return nil, err
		}
		next, err := x.out("write-tree")
		if err != nil {
			return nil, err
		}
		if now, err := r.out("rev-parse", parent+"^{tree}"); err != nil || now == next {
			if err == nil {
				err = fail(fmt.Sprintf("%s changes nothing in kubernetes %s", q.file, t.version))
			}
			return nil, err
		}
		msg, err := p.message(q.mail)
		if err != nil {
			return nil, err
		}
		if parent, err = r.with(msg.author...).input(msg.text).out("commit-tree", next, "-p", parent); err != nil {
			return nil, err
		}
		done = append(done, composed{q, parent})
	}
	return done, nil
}

// writeMails writes composed patches as mails to a directory, and returns their paths.
func (p *program) writeMails(r git, commits []composed, dir string) ([]string, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	var files []string
	for _, c := range commits {
		mail, err := r.mail(c.commit)
		if err != nil {
			return nil, err
		}
		file := filepath.Join(dir, c.patch.file)
		if err := os.WriteFile(file, []byte(mail), 0o666); err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}

// stored is a commit as the patch file that holds it: the mail without the files that the patch brings.
func (p *program) stored(r git, commit string, brings func(path string) bool) (string, error) {
	changed, err := r.changed(commit+"^", commit)
	if err != nil {
		return "", err
	}
	var hunks []string
	for _, path := range slices.Sorted(maps.Keys(changed)) {
		if !brings(path) {
			hunks = append(hunks, path)
		}
	}
	mail, err := r.mail(commit)
	if err != nil {
		return "", err
	}
	head, _, _ := strings.Cut(mail, "\ndiff --git ")
	text := strings.TrimRight(head, "\n") + "\n"
	if len(hunks) > 0 {
		diff, err := r.bytes(slices.Concat([]string{"--literal-pathspecs", "diff-tree", "-p"}, diffOptions, []string{commit + "^", commit, "--"}, hunks)...)
		if err != nil {
			return "", err
		}
		text += "\n" + string(diff)
	}
	// What git would read differently must not get into a patch file.
	msg, err := p.message(text)
	if err != nil {
		return "", err
	}
	author, err := r.lines("log", "-1", "--format=GIT_AUTHOR_NAME=%an%nGIT_AUTHOR_EMAIL=%ae", commit)
	if err != nil {
		return "", err
	}
	if !slices.Equal(author, msg.author[:2]) {
		return "", fail(fmt.Sprintf("the author of commit %s (%s) cannot be in a mail: git would read it as", commit[:12], msg.subject()),
			append(msg.author[:2], "Give it another one (git commit --amend --author).")...)
	}
	if strings.Contains(text, "\r\n") {
		return "", fail(fmt.Sprintf("commit %s (%s) has lines that end in CR LF, of which git am drops the CR", commit[:12], msg.subject()))
	}
	raw, err := r.out("log", "-1", "--format=%B", commit)
	if err != nil {
		return "", err
	}
	if strings.TrimSpace(raw) != strings.TrimSpace(msg.text) {
		return "", fail(fmt.Sprintf("the message of commit %s (%s) cannot be in a mail: git would read it as", commit[:12], msg.subject()), msg.text,
			"Reword it: it may have a line that looks like the beginning of a diff.")
	}
	return text, nil
}
