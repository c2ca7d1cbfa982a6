// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/console"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/fileutil"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/git"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/series"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/tree"
)

func (p *program) apply(keep bool) error {
	t, s, err := p.target()
	if err != nil {
		return err
	}
	if err := p.requireRelease(t); err != nil {
		return err
	}
	p.Say("Series %s (%d patches, made on %s) for kubernetes %s in %s", s.Name, len(s.Active), s.Tag, t.Version, t.Dir)
	if len(s.Dropped) > 0 {
		p.Note("left out: %s", strings.Join(s.Dropped, " "))
	}
	work, remove, err := fileutil.Scratch(p.output)
	if err != nil {
		return err
	}
	defer remove()
	if t.Kind == tree.Repository && t.HasBranch(s.Branch) {
		done, err := p.applyOver(t, s, keep, work)
		if done || err != nil {
			return err
		}
		// Reversing the old series may have removed the repository that apply made for it.
		if !fileutil.Exists(filepath.Join(t.Dir, ".git")) {
			t.Kind = tree.Plain
		}
	}
	if err := t.RequireReady(s.Created()); err != nil {
		return err
	}
	return p.applyTo(t, s, work)
}

// rehearse composes the series on a commit in a separate repository, and returns its mails.
func (p *program) rehearse(t *tree.Tree, s *series.Series, commit, dir string) ([]string, error) {
	r, err := t.Borrow(filepath.Join(dir, "repository"), commit)
	if err != nil {
		return nil, err
	}
	commits, err := p.compose(r, commit, s, t)
	if err != nil {
		return nil, err
	}
	return writeMails(commits, filepath.Join(dir, "mails"))
}

// keepOrDrop is the advice for commits on a series branch that are in no patch.
const keepOrDrop = `"make refresh" writes the commits into the patches, "hack/patchset.sh reverse --force" drops them, both with the same KUBE_ROOT.`

// applyOver handles a series branch that exists already. It reports whether nothing is left to do.
func (p *program) applyOver(t *tree.Tree, s *series.Series, keep bool, work string) (done bool, err error) {
	base, tip := t.State(s.Branch, "base"), t.State(s.Branch, "tip")
	head := t.CommitID("refs/heads/" + s.Branch)
	current := t.Branch() == s.Branch
	if base == "" {
		return false, console.Error(fmt.Sprintf("%s has a branch %s that \"make apply\" did not make", t.Dir, s.Branch),
			fmt.Sprintf("Rename or delete it: git -C %s branch -m %s other-name", console.QuoteShell(t.Dir), s.Branch))
	}
	count := t.Try("rev-list", "--count", base+".."+head)
	if tip == "" {
		return false, console.Error(fmt.Sprintf("%s has a half-applied series: %s holds %s of %d patches", t.Dir, s.Branch, count, len(s.Active)),
			t.Try("log", "--reverse", "--format=%h %s", base+".."+head),
			`Run "make reverse" to restore the tree, then "make apply" again.`)
	}
	dirty, err := t.Dirty()
	if err != nil {
		return false, err
	}
	if head != tip {
		edited := fmt.Sprintf("%s has been edited since the series was applied (%s commits on it)", s.Branch, count)
		if !keep || !current {
			return false, console.Error(edited, keepOrDrop)
		}
		p.Say("%s; using it as it is", edited)
		return true, nil
	}
	if digest, _ := s.Digest(); t.State(s.Branch, "digest") == digest {
		if current {
			p.Say("Already applied: %s is checked out and complete (%d patches)", s.Branch, len(s.Active))
			if len(dirty) > 0 {
				p.Note("it has changes that are not committed: %d files", len(dirty))
			}
			return true, nil
		}
		if now := t.CommitID("HEAD"); now != base {
			return false, console.Error(fmt.Sprintf("%s exists already, made on another commit than the one checked out", s.Branch),
				fmt.Sprintf("%s is on %.12s, HEAD is %.12s.", s.Branch, base, now),
				fmt.Sprintf("Check it out (git checkout %s), or remove it (make reverse) to apply the series here.", s.Branch))
		}
		if err := t.RequireReady(s.Created()); err != nil {
			return false, err
		}
		origin := t.Head()
		if err := t.Do("checkout", "-q", s.Branch); err != nil {
			return false, err
		}
		if err := t.SetState(s.Branch, "origin", origin); err != nil {
			return false, err
		}
		p.Say("Already applied: %s was complete, and is now checked out", s.Branch)
		return true, nil
	}
	if keep && len(dirty) > 0 && current {
		p.Warn("%s was made from older sources than those in %s, and has uncommitted changes; using it as it is", s.Branch, s.Dir)
		return true, nil
	}
	p.Say("The patches, their files or SKIP have changed since %s was made: reversing it first", s.Branch)
	// First make sure that the new patches apply to the commit that reverse will check out.
	if err := t.RequireReady(s.Created()); err != nil {
		return false, err
	}
	start := t.CommitID("HEAD")
	if current {
		start = cmp.Or(t.CommitID(t.State(s.Branch, "origin")), base)
	}
	if _, err := p.rehearse(t, s, start, filepath.Join(work, "rehearsal")); err != nil {
		return false, err
	}
	return false, p.reverse(false)
}

// applyTo applies the series to a tree that has none.
func (p *program) applyTo(t *tree.Tree, s *series.Series, work string) (err error) {
	u := tree.Tree{Git: p.uninterrupted().Git.In(t.Dir)}
	made := t.Kind == tree.Plain
	origin, base := "", ""
	defer func() {
		if err == nil {
			return
		}
		ignoreSignals()
		if base != "" {
			u.Rollback(s, origin, base)
		}
		if made {
			fileutil.RemoveAll(filepath.Join(t.Dir, ".git"))
			fileutil.RemoveAll(filepath.Join(t.Dir, tree.Unfinished))
		}
		fmt.Fprintf(p.ErrOut, "==> %s is restored\n", t.Dir)
	}()

	if made {
		p.Say("Making a git repository of %s, with the tree as its only commit (make reverse removes it again)", t.Dir)
		// The rename is atomic: if this is killed, there is a plain tree, or a repository that reverse can remove.
		r, err := t.AsRelease(filepath.Join(t.Dir, tree.Unfinished))
		if err != nil {
			return err
		}
		if err := r.Run("config kubelet-backoff.made-repository true", "tag "+t.Version); err != nil {
			return err
		}
		if err := os.Rename(filepath.Join(r.Dir, ".git"), filepath.Join(t.Dir, ".git")); err != nil {
			return err
		}
		fileutil.RemoveAll(r.Dir)
	}
	head, commit := t.Head(), t.CommitID("HEAD")
	mails, err := p.rehearse(t, s, commit, filepath.Join(work, "composed"))
	if err != nil {
		return err
	}
	origin, base = head, commit
	// This comes before the branch, because a branch without these settings counts as the user's.
	if err := errors.Join(t.SetState(s.Branch, "base", base), t.SetState(s.Branch, "origin", origin)); err != nil {
		return err
	}
	if err := t.Do("checkout", "-q", "-b", s.Branch); err != nil {
		return err
	}
	for i, mail := range mails {
		if err := t.Am(mail); err != nil {
			return p.notApplicable(s.Active[i], t, err)
		}
		p.Note("%s", s.Active[i].File)
	}
	if err := t.RecordApplied(s, base, t.CommitID("HEAD")); err != nil {
		return err
	}
	p.Say("Applied: %s is checked out in %s, %d commits on %.12s", s.Branch, t.Dir, len(s.Active), base)
	return nil
}

func (p *program) reverse(force bool) error {
	t, err := p.locate()
	if err != nil {
		return err
	}
	if t.Kind == tree.Missing {
		p.Say("Nothing to reverse: there is no tree of kubernetes %s", t.Version)
		return nil
	}
	made := false
	if t.Kind == tree.Repository {
		t.ForgetGone()
		made = t.Try("config", "--local", "--get", "kubelet-backoff.made-repository") == "true"
	}
	a, err := t.FindApplied()
	if err != nil {
		return err
	}
	if a == nil {
		p.Say("Nothing to reverse: no series is applied to %s", t.Dir)
		// An apply that was killed may have left this.
		fileutil.RemoveAll(filepath.Join(t.Dir, tree.Unfinished))
		if made {
			return p.unmake(t)
		}
		return nil
	}
	origin := cmp.Or(t.State(a.Branch, "origin"), a.Base)
	current := t.Branch() == a.Branch
	p.Say("Removing %s from %s", a.Branch, t.Dir)

	if op := t.Operation(); op != "" {
		// An apply that was killed leaves a git am, which looks like a rebase at first. During a rebase no branch is checked
		// out. Any other operation is the user's.
		if op != "git am" && op != "git rebase" || !current || a.Tip != "" {
			return t.RequireNoOperation()
		}
		p.Note("aborting the git am that an interrupted apply left behind")
		t.AbortAm()
	}
	head := t.CommitID("refs/heads/" + a.Branch)
	if current && !force {
		if err := t.RequireClean("reversing the series (--force discards them)"); err != nil {
			return err
		}
	}
	// Find the commits that are in no patch. In a half-applied series, these are the ones that apply did not make.
	lines, err := t.Lines("log", "--reverse", "--format=%ce %h %s", head, "^"+cmp.Or(a.Tip, a.Base), "^"+a.Base)
	if err != nil {
		return err
	}
	var extra []string
	for _, l := range lines {
		if who, what, _ := strings.Cut(l, " "); a.Tip != "" || who != git.CommitterEmail {
			extra = append(extra, what)
		}
	}
	if len(extra) > 0 {
		if !force {
			return console.Error(fmt.Sprintf("%s has commits that no patch file holds:", a.Branch),
				append(extra, keepOrDrop)...)
		}
		p.Note("dropping: %d commits", len(extra))
	}

	if !current {
		p.Note("%s is not checked out, so HEAD does not change", a.Branch)
	} else {
		if force {
			if err := t.Do("reset", "-q", "--hard"); err != nil {
				return err
			}
		}
		name, isBranch := strings.CutPrefix(origin, "refs/heads/")
		if isBranch && !t.HasBranch(name) {
			p.Warn("%s, which was checked out before the series, no longer exists; checking out commit %s", name, a.Base)
			isBranch, name = false, a.Base
		}
		to := []string{"checkout", "-q", name}
		if !isBranch {
			to = []string{"checkout", "-q", "--detach", name}
		}
		if err := t.Do(to...); err != nil {
			return err
		}
	}
	if err := t.Do("branch", "-q", "-D", a.Branch); err != nil {
		return err
	}
	if made {
		return p.unmake(t)
	}
	p.Say("Done: %s has %s checked out", t.Dir, cmp.Or(t.Branch(), t.Try("rev-parse", "--short=12", "HEAD")))
	return nil
}

// unmake removes the repository that apply made around a plain tree.
func (p *program) unmake(t *tree.Tree) error {
	others, err1 := t.Lines("for-each-ref", "--format=%(refname)", "refs/heads", "refs/stash")
	others = slices.DeleteFunc(others, func(r string) bool { return r == "refs/heads/base" })
	commits, err2 := t.Lines("rev-list", "-n2", "--all", "HEAD")
	dirty, err3 := t.Dirty()
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	if len(others) > 0 || len(commits) > 1 || len(dirty) > 0 {
		p.Warn("\"make apply\" made %s/.git, but it now holds other work too; it is kept", t.Dir)
		return nil
	}
	fileutil.RemoveAll(filepath.Join(t.Dir, ".git"))
	p.Say("Done: %s is a plain source tree again", t.Dir)
	return nil
}
