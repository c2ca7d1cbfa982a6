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

	"github.com/kubelet-backoff/kubelet-backoff/hack/internal/git"
	"github.com/kubelet-backoff/kubelet-backoff/hack/internal/series"
	"github.com/kubelet-backoff/kubelet-backoff/hack/internal/sys"
)

// commit is a commit of the branch of a series.
type commit struct {
	id, subject string
	name        string // of the patch
	changed     map[string]git.File
	patch       *series.Patch // the commit as a patch file
}

// refresh writes the commits of the branch to the patches, and applies the series again. If it is killed, it can run again.
func (p *program) refresh(base string) error {
	everything := series.Pick{Parts: series.Everything}
	if p.pick != (series.Pick{}) && p.pick != everything {
		return errors.New("refresh takes no SKIP, and no SERIES but all: it is about whole series")
	}
	p.pick = everything
	t, err := p.find()
	if err != nil {
		return err
	}
	if err := cmp.Or(p.recover(t), t.requireIdle()); err != nil {
		return err
	}
	s, err := p.Load(filepath.Join(p.Root, "patches", t.minor), p.pick)
	if err != nil {
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
	all, err := p.LoadAll()
	if err != nil {
		return err
	}
	paths, err := t.Lines("ls-tree", "-r", "--name-only", start)
	if err != nil {
		return err
	}
	released := map[string]bool{}
	for _, path := range paths {
		released[path] = true
	}
	isNew := func(path string) bool { return !released[path] }
	was, err := p.read(t, s, all, is.Base, is.Tip, isNew)
	if err != nil {
		return err
	}
	commits, err := p.read(t, s, all, start, "HEAD", isNew)
	if err != nil {
		return err
	}
	if err := p.requireSources(t, s, commits, was, isNew); err != nil {
		return err
	}
	if err := requireUnedited(s, commits, was); err != nil {
		return err
	}
	p.Say("Refreshing %s from %s in %s (%d commits)", s.Dir, branch, t.Dir, len(commits))
	if err := p.writeSeries(s, commits); err != nil {
		return err
	}
	// The commits are in the patches now, so apply may replace them.
	is = state{Base: start, From: cmp.Or(is.From, start), Tip: t.Commit("HEAD"), Digest: is.Digest, Whole: true}
	if err := t.setState("--replace-all", branch, is); err != nil {
		return err
	}
	return p.apply(false)
}

// read reads the commits from start to tip, oldest first, and finds the patch of each. A commit with the subject of a patch of this
// or of another series is that patch. If there are as many commits as patches, one with another subject is the patch in its place.
// All others are new patches.
func (p *program) read(t *tree, s *series.Series, all []*series.Series, start, tip string, isNew func(string) bool) (commits []*commit, err error) {
	if tip == "" {
		return nil, nil
	}
	lines, err := t.Lines("log", "--reverse", "--topo-order", "--format=%H%x00%s%x00%f", start+".."+tip)
	if err != nil {
		return nil, err
	}
	names, taken := map[string]string{}, map[string]bool{}
	for _, s := range append([]*series.Series{s}, all...) {
		for _, q := range s.Patches {
			if names[q.Subject()] == "" {
				names[q.Subject()] = q.Name
			}
		}
	}
	for i, line := range lines {
		f := strings.Split(line, "\x00")
		c := &commit{id: f[0], subject: f[1], name: names[f[1]]}
		if kind, _, ok := strings.Cut(c.subject, "! "); ok && slices.Contains([]string{"fixup", "squash", "amend"}, kind) {
			return nil, fmt.Errorf("commit %.12s (%s) must be squashed first: git rebase -i --autosquash %.12s", c.id, c.subject, start)
		}
		if c.name == "" && len(lines) == len(s.Patches) && !slices.ContainsFunc(lines, func(l string) bool { return strings.Split(l, "\x00")[1] == s.Patches[i].Subject() }) {
			c.name = s.Patches[i].Name
		}
		if c.name = cmp.Or(c.name, f[2]); c.name == "" || taken[c.name] {
			return nil, fmt.Errorf("commit %.12s (%s) gives its patch the name %q, which is empty or taken: change the subject of the commit", c.id, c.subject, c.name)
		}
		taken[c.name] = true
		if c.changed, err = t.Changed(c.id+"^", c.id); err != nil {
			return nil, err
		}
		if len(c.changed) == 0 {
			return nil, fmt.Errorf("commit %.12s (%s) changes nothing", c.id, c.subject)
		}
		if c.patch, err = p.format(t.Git, c.id, isNew); err != nil {
			return nil, err
		}
		commits = append(commits, c)
	}
	return commits, nil
}

// find returns the commit of a patch, or an empty one.
func find(commits []*commit, name string) *commit {
	if i := slices.IndexFunc(commits, func(c *commit) bool { return c.name == name }); i >= 0 {
		return commits[i]
	}
	return &commit{patch: &series.Patch{}}
}

// requireSources returns an error if a new file was edited on the branch, and not in its source.
func (p *program) requireSources(t *tree, s *series.Series, commits, was []*commit, isNew func(string) bool) error {
	var problems []string
	for _, c := range commits {
		sources, err := p.FilesOf(s, c.name)
		if err != nil {
			return err
		}
		before := find(was, c.name).changed
		paths := map[string]git.File{}
		maps.Copy(paths, before)
		maps.Copy(paths, c.changed)
		for path := range paths {
			now, changed := c.changed[path]
			if old, ok := before[path]; !isNew(path) || ok && changed && old == now {
				continue
			}
			source, ok := sources[path]
			kept, err := t.Store("100644", source.Content)
			if err != nil {
				return err
			}
			if ok && kept != now || !ok && changed {
				problems = append(problems, fmt.Sprintf("%s, whose source is %s", path, cmp.Or(source.Path, filepath.Join(p.Root, "patches/_src", c.name, path))))
			}
		}
	}
	if problems == nil {
		return nil
	}
	slices.Sort(problems)
	return sys.Error("files were edited on the branch that have their source here. Make the edit there, and take it back on the branch, or make the same one:", problems...)
}

// requireUnedited returns an error if a patch file has been edited since apply, and refresh would overwrite that. After a killed
// refresh, some files are already those that it writes.
func requireUnedited(s *series.Series, commits, was []*commit) error {
	var edited []string
	place := regexp.MustCompile(`(?m)^@@ .*$`) // a fork may have another signature in it
	same := func(a, b string) bool {
		return series.Same(place.ReplaceAllString(a, ""), place.ReplaceAllString(b, ""))
	}
	for _, q := range s.Patches {
		if was != nil && !same(q.Mail, find(was, q.Name).patch.Mail) && !same(q.Mail, find(commits, q.Name).patch.Mail) {
			edited = append(edited, q.File)
		}
	}
	files, _ := series.Glob(s.Dir, "*.patch")
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".patch")
		if !slices.ContainsFunc(s.Patches, func(q *series.Patch) bool { return q.Name == name }) && find(commits, name).id == "" {
			edited = append(edited, file+" (not in series)")
		}
	}
	if edited == nil {
		return nil
	}
	return sys.Error("patches have been edited since they were applied. Restore them, or name the branch's commits (git branch mine), then \"make reverse\", \"make apply\" and git cherry-pick:", edited...)
}

// writeSeries writes the patches and their order. A patch that is the same as the one that the series would inherit has no file.
func (p *program) writeSeries(s *series.Series, commits []*commit) error {
	var names []string
	for _, c := range commits {
		names = append(names, c.name)
		file := filepath.Join(s.Dir, c.name+".patch")
		inherited, _ := os.ReadFile(series.PatchFile(p.Newer(s.Dir)[1:], c.name))
		old, _ := os.ReadFile(file)
		switch {
		case series.Same(string(inherited), c.patch.Mail):
			_ = os.Remove(file)
		case string(old) != c.patch.Mail:
			p.Note("%s", file)
			if err := sys.Write(file, []byte(c.patch.Mail)); err != nil {
				return err
			}
		}
	}
	// There is no other file: requireUnedited has refused it.
	for _, q := range s.Patches {
		if !slices.Contains(names, q.Name) && filepath.Dir(q.File) == s.Dir {
			p.Note("removing %s", q.File)
			if err := os.Remove(q.File); err != nil {
				return err
			}
		}
	}
	text, _ := os.ReadFile(filepath.Join(s.Dir, "series"))
	var comments []string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			comments = append(comments, strings.TrimSpace(line))
		}
	}
	if comments == nil {
		comments = []string{"# The patches, in this order. Comment a line out to leave that patch out."}
	}
	lines := slices.Concat(comments[:1], names, comments[1:])
	return sys.Write(filepath.Join(s.Dir, "series"), []byte(strings.Join(lines, "\n")+"\n"))
}
