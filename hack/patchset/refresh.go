// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/kubelet-backoff/kubelet-backoff/hack/internal/series"
	"github.com/kubelet-backoff/kubelet-backoff/hack/internal/sys"
)

// refresh writes the commits of the branch to the patches, and applies the series again. If it is killed, it can run again.
func (p *program) refresh(base string) error {
	everything := series.Pick{Parts: series.Everything}
	if p.pick != (series.Pick{}) && p.pick != everything {
		return errors.New("refresh takes no SKIP, and no SERIES but all: it is about whole series")
	}
	p.pick = everything
	t, s, err := p.findSeries()
	if err != nil {
		return err
	}
	if err := t.requireIdle(); err != nil {
		return err
	}
	branch := t.seriesBranch()
	is := t.state(branch)
	switch {
	case t.branch() != branch:
		return fmt.Errorf("%s has %q checked out, not %s: run \"make apply\" first", t.Dir, t.branch(), branch)
	case len(s.Dropped) > 0:
		return fmt.Errorf("%s/series comments out %s, and refresh would forget them", s.Dir, strings.Join(s.Dropped, ", "))
	case is.Tip != "" && !is.Whole:
		return fmt.Errorf("%s is not the whole series: run \"make reverse\" and \"make apply SERIES=all\" first", branch)
	case base == "" && is.Base == "":
		return fmt.Errorf("\"make apply\" did not make %s: pass the commit at which it starts with --base", branch)
	}
	base = cmp.Or(base, is.Base)
	start := t.Commit(base)
	if !t.OK("merge-base", "--is-ancestor", cmp.Or(start, base), "HEAD") || t.Try("rev-list", "--merges", start+"..HEAD") != "" {
		return fmt.Errorf("%s does not start at %s, or has merges. If it was rebased, pass the commit at which it starts with --base", branch, base)
	}
	patches, err := p.read(t, s, start)
	if err != nil {
		return err
	}
	// Nothing is written if apply would refuse it, or make other files.
	commits, refused := p.compose(t, start, &series.Series{Dir: s.Dir, Patches: patches})
	if err := cmp.Or(p.requireSources(t, s, patches, start, commits, is), refused, requireUnedited(t, s, patches, is)); err != nil {
		return err
	}
	p.Say("Refreshing %s from %s in %s (%d commits)", s.Dir, branch, t.Dir, len(patches))
	if err := p.writeSeries(s, patches); err != nil {
		return err
	}
	// The commits are in the patches now, so apply may replace them.
	is = state{Base: start, From: cmp.Or(is.From, start), Tip: t.Commit("HEAD"), Digest: is.Digest, Whole: true}
	if err := t.setState(branch, is); err != nil {
		return err
	}
	return p.apply(false)
}

// read reads the commits since start as patches, oldest first, and finds the name of each. A commit with the subject of a patch of this
// or of another series is that patch. If there are as many commits as patches, one with another subject is the patch in its place.
// All others are new patches.
func (p *program) read(t *tree, s *series.Series, start string) (patches []*series.Patch, err error) {
	all, err := p.LoadAll()
	if err != nil {
		return nil, err
	}
	names, taken := map[string]string{}, map[string]bool{}
	slices.Reverse(all)
	for _, s := range append(all, s) {
		for _, q := range s.Patches {
			names[q.Subject()] = q.Name
		}
	}
	lines, err := t.Lines("log", "--reverse", "--topo-order", "--format=%H%x00%s%x00%f", start+"..HEAD")
	if err != nil {
		return nil, err
	}
	for i, line := range lines {
		f := strings.Split(line, "\x00")
		id, subject, name := f[0], f[1], names[f[1]]
		if kind, _, ok := strings.Cut(subject, "! "); ok && slices.Contains([]string{"fixup", "squash", "amend"}, kind) {
			return nil, fmt.Errorf("commit %.12s (%s) must be squashed first: git rebase -i --autosquash %.12s", id, subject, start)
		}
		if name == "" && len(lines) == len(s.Patches) && !slices.ContainsFunc(lines, func(l string) bool { return strings.Split(l, "\x00")[1] == s.Patches[i].Subject() }) {
			name = s.Patches[i].Name
		}
		if name = cmp.Or(name, f[2]); name == "" || taken[name] {
			return nil, fmt.Errorf("commit %.12s (%s) gives its patch the name %q, which is empty or taken: change the subject of the commit", id, subject, name)
		}
		taken[name] = true
		q := &series.Patch{Name: name, File: filepath.Join(s.Dir, name+".patch")}
		if q.Mail, err = t.format(start, id); err != nil {
			return nil, err
		}
		if err := p.Parse(q); err != nil {
			return nil, fmt.Errorf("commit %.12s cannot be a mail. Reword it: %w", id, err)
		}
		// Git must read the file as the same commit.
		is, err := t.Out("log", "-1", "--format=GIT_AUTHOR_NAME=%an%nGIT_AUTHOR_EMAIL=%ae%n%B", id)
		if err != nil {
			return nil, err
		}
		if now := strings.Join(append(q.Author[:2:2], strings.TrimSpace(q.Text)), "\n"); now != strings.TrimSpace(is) || strings.Contains(q.Mail, "\r\n") {
			return nil, sys.Error(fmt.Sprintf("commit %.12s cannot be a mail. Reword it, or remove CR LF from its lines: git would read it as", id), now)
		}
		if q.Files, err = p.FilesOf(s, name); err != nil {
			return nil, err
		}
		patches = append(patches, q)
	}
	return patches, nil
}

// requireSources returns an error if a commit has other new files than apply makes of their sources, unless only the sources have
// changed since apply. composed has the commits that apply makes, or nothing if it refuses them.
func (p *program) requireSources(t *tree, s *series.Series, patches []*series.Patch, start string, composed []string, is state) error {
	commits, err := t.Lines("rev-list", "--reverse", "--topo-order", start+"..HEAD")
	if err != nil {
		return err
	}
	at := func(rev, path string) string { return t.Try("--literal-pathspecs", "ls-tree", rev, "--", path) }
	var problems []string
	before, sources := map[string]series.Source{}, map[string]series.Source{}
	for _, q := range s.Patches {
		maps.Copy(before, q.Files)
	}
	for i, commit := range commits {
		maps.Copy(sources, patches[i].Files)
		changed, err := t.Changed(append(composed, slices.Repeat([]string{start}, len(commits))...)[i], commit)
		if err != nil {
			return err
		}
		for path, status := range changed {
			source, has := sources[path]
			blob := t.Input(string(source.Content)).Try("hash-object", "--no-filters", "--stdin")
			// A file of the release is not new, and one whose source is still here needs its patch.
			same := at(commit, path) == at(cmp.Or(is.Tip, start), path)
			lost := !has && (before[path].Path != "" || at(cmp.Or(is.Base, start), path) != "")
			if composed == nil && status != "A" || same && !lost || has && strings.HasPrefix(at(commit, path), "100644 blob "+blob+"\t") {
				continue
			}
			problems = append(problems, path+", whose source is "+cmp.Or(source.Path, before[path].Path, filepath.Join(p.Root, "patches/_src", patches[i].Name, path)))
		}
	}
	return sys.Problem(problems, "files on the branch are not those that apply makes of their sources here. Make an edit there, and take it back on the branch, or make the same one:")
}

// requireUnedited returns an error if a patch file has been edited since apply, and refresh would overwrite that. After a killed
// refresh, some files are already those that it writes.
func requireUnedited(t *tree, s *series.Series, patches []*series.Patch, is state) error {
	if is.Tip == "" || is.Digest == s.Digest() {
		return nil
	}
	var known, edited []string
	files := map[string]string{}
	for _, q := range patches {
		known = append(known, q.Mail)
	}
	// The series may no longer name a file that refresh would write.
	for _, q := range slices.Concat(patches, s.Patches) {
		if text, err := os.ReadFile(q.File); err == nil {
			files[q.File] = string(text)
		}
	}
	commits, err := t.Lines("rev-list", is.Base+".."+is.Tip)
	if err != nil {
		return err
	}
	for _, commit := range commits {
		mail, err := t.format(is.Base, commit)
		if err != nil {
			return err
		}
		known = append(known, mail)
	}
	place := regexp.MustCompile(`(?m)^@@ .*$`) // a fork may have another signature in it
	for file, text := range files {
		if !slices.ContainsFunc(known, func(mail string) bool {
			return series.Same(place.ReplaceAllString(text, ""), place.ReplaceAllString(mail, ""))
		}) {
			edited = append(edited, file)
		}
	}
	return sys.Problem(edited, "patches have been edited since they were applied. Restore them, or name the branch's commits (git branch mine), then \"make reverse\", \"make apply\" and git cherry-pick:")
}

// writeSeries writes the patches and their order. A patch that is the same as the one that the series would inherit has no file.
func (p *program) writeSeries(s *series.Series, patches []*series.Patch) error {
	var names []string
	for _, q := range patches {
		names = append(names, q.Name)
		inherited, _ := os.ReadFile(series.PatchFile(p.Newer(s.Dir)[1:], q.Name))
		old, _ := os.ReadFile(q.File)
		switch {
		case series.Same(string(inherited), q.Mail):
			_ = os.Remove(q.File)
		case string(old) != q.Mail:
			p.Note("%s", q.File)
			if err := sys.Write(q.File, []byte(q.Mail)); err != nil {
				return err
			}
		}
	}
	text, _ := os.ReadFile(filepath.Join(s.Dir, "series"))
	comments := regexp.MustCompile(`(?m)^#.*`).FindAllString(string(text), -1)
	if comments == nil {
		comments = []string{"# The patches, in this order. Comment a line out to leave that patch out."}
	}
	lines := slices.Concat(comments[:1], names, comments[1:])
	err := sys.Write(filepath.Join(s.Dir, "series"), []byte(strings.Join(lines, "\n")+"\n"))
	// A series that names a patch without a file could not be read.
	for _, q := range s.Patches {
		if err == nil && !slices.Contains(names, q.Name) && filepath.Dir(q.File) == s.Dir {
			p.Note("removing %s", q.File)
			err = os.Remove(q.File)
		}
	}
	return err
}
