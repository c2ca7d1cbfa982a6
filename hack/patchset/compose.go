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

// composed is a patch as a commit, and as a mail that has all of it.
type composed struct {
	patch        *patch
	commit, mail string
}

// otherCause is what git says when the patch is not to blame.
var otherCause = regexp.MustCompile(`No space left on device|Disk quota exceeded|Read-only file system|Permission denied|Input/output error|[uU]nable to write`)

// notApplicable is the error of a patch that does not fit, or that git could not apply for another reason.
func (p *program) notApplicable(q *patch, t *tree, said error) error {
	why := explainAm(said.Error())
	if why == "" || otherCause.MatchString(said.Error()) {
		return fail(fmt.Sprintf("%s cannot be applied to kubernetes %s in %s:", q.file, t.version, t.dir), said.Error())
	}
	return fail(fmt.Sprintf("%s does not apply to kubernetes %s in %s:", q.file, t.version, t.dir), why,
		"git says: "+indent(lastLines(said.Error(), 3), " "), "There are, in "+p.patches+":", p.describeSeries())
}

// compose makes the commits of a series on top of base, in a repository without looking at its files: the hunks of each
// patch, and the files that it brings.
func (p *program) compose(r git, base string, s *series, t *tree) ([]composed, error) {
	dir, err := os.MkdirTemp("", "patchset-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	x := r.with("GIT_INDEX_FILE=" + filepath.Join(dir, "index"))
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
				return nil, p.notApplicable(q, t, err)
			}
		}
		upstream, err := r.files(base, slices.Sorted(maps.Keys(q.files))...)
		if err != nil {
			return nil, err
		}
		staged := map[string]file{}
		for path, f := range q.files {
			if _, there := upstream[path]; there && !s.travel.replaces(path) {
				return nil, p.notApplicable(q, t, fmt.Errorf("error: %s: already exists in index\n%s is where the patch has it from", path, f.path))
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
		msg, err := p.message(q.mail)
		if err != nil {
			return nil, err
		}
		c := composed{patch: q}
		if c.commit, err = x.commitIndex(parent, msg.text, msg.author...); err != nil {
			return nil, err
		}
		if c.commit == parent {
			return nil, fmt.Errorf("%s changes nothing in kubernetes %s", q.file, t.version)
		}
		if c.mail, err = r.mail(c.commit); err != nil {
			return nil, err
		}
		done, parent = append(done, c), c.commit
	}
	return done, nil
}

// commitIndex commits the index that GIT_INDEX_FILE names; it is the parent itself if nothing differs.
func (g git) commitIndex(parent, text string, env ...string) (string, error) {
	tree, err := g.out("write-tree")
	if err != nil {
		return "", err
	}
	if now, err := g.out("rev-parse", parent+"^{tree}"); err != nil || now == tree {
		return parent, err
	}
	return g.with(env...).input(text).out("commit-tree", tree, "-p", parent)
}

// writeMails writes composed patches as mails to a directory, and returns their paths.
func writeMails(commits []composed, dir string) ([]string, error) {
	var files []string
	for _, c := range commits {
		files = append(files, filepath.Join(dir, c.patch.file))
		if err := writeFile(files[len(files)-1], []byte(c.mail), 0o666); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// stored is a commit as the patch file that holds it: the mail without the files that the patch brings.
func (p *program) stored(r git, commit string, brings map[string]bool) (string, error) {
	changed, err := r.changed(commit+"^", commit)
	if err != nil {
		return "", err
	}
	var hunks []string
	for _, path := range slices.Sorted(maps.Keys(changed)) {
		if !brings[path] {
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
		return "", fmt.Errorf("commit %s (%s) has lines that end in CR LF, of which git am drops the CR", commit[:12], msg.subject())
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
