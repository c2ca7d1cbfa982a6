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
	"time"

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
	if p.vendorLibrary {
		if s.Vendor, err = p.libraryVersion(s.Vendored()); err != nil {
			return err
		}
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
		if err := p.change(t, &tree.Journal{Branch: s.Branch, From: base, To: tip}, false, func() error {
			was := t.State(s.Branch, "origin")
			err := t.SetState(s.Branch, "origin", t.Head())
			if err == nil {
				if err = t.Do("checkout", "-q", s.Branch); err != nil {
					// It may be checked out in another worktree.
					err = errors.Join(err, t.SetState(s.Branch, "origin", was))
				}
			}
			return err
		}); err != nil {
			return false, err
		}
		p.Say("Already applied: %s was complete, and is now checked out", s.Branch)
		return true, nil
	}
	if keep && len(dirty) > 0 && current {
		p.Warn("%s was made from older sources than those in %s, and has uncommitted changes; using it as it is", s.Branch, s.Dir)
		return true, nil
	}
	p.Say("The patches, their files, SERIES or SKIP have changed since %s was made: reversing it first", s.Branch)
	// First make sure that the new patches apply to the commit that reverse will check out.
	if err := t.RequireReady(s.Created()); err != nil {
		return false, err
	}
	start := t.CommitID("HEAD")
	if current {
		start = cmp.Or(t.CommitID(t.State(s.Branch, "origin")), base)
	}
	r, err := t.Borrow(filepath.Join(work, "rehearsal"), start)
	if err == nil {
		_, err = p.compose(r, start, s, t)
	}
	if err != nil {
		return false, err
	}
	return false, p.reverse(false)
}

// applyTo applies the series to a tree that has none.
func (p *program) applyTo(t *tree.Tree, s *series.Series, work string) error {
	plain := t.Kind == tree.Plain
	var r git.Git
	var err error
	if plain {
		p.Say("Making a git repository of %s, with the tree as its only commit (make reverse removes it again)", t.Dir)
		r, err = t.AsRelease(filepath.Join(t.Dir, tree.Unfinished))
		defer fileutil.RemoveAll(r.Dir)
	} else {
		r, err = t.Borrow(filepath.Join(work, "repository"), t.CommitID("HEAD"))
	}
	if err != nil {
		return err
	}
	base := r.CommitID("HEAD")
	commits, err := p.compose(r, base, s, t)
	if err != nil {
		fmt.Fprintf(p.ErrOut, "==> %s is unchanged\n", t.Dir)
		return err
	}
	tip := base
	for _, c := range commits {
		tip = c.commit
		p.Note("%s", c.patch.File)
	}
	if plain {
		// The rename is atomic: if this is killed, there is a plain tree, or a repository with a journal.
		j := &tree.Journal{Branch: s.Branch, Drop: tip, From: base, To: tip}
		err = errors.Join(r.Run("config kubelet-backoff.made-repository true", "tag "+t.Version), (&tree.Tree{Git: r}).Begin(j))
		if err == nil {
			err = os.Rename(filepath.Join(r.Dir, ".git"), filepath.Join(t.Dir, ".git"))
		}
		t.Kind = tree.Repository
	} else {
		err = t.Take(r, base, tip)
	}
	if err == nil {
		err = p.checkOutNew(t, s, base, tip)
	}
	if err == nil {
		p.Say("Applied: %s is checked out in %s, %d commits on %.12s", s.Branch, t.Dir, len(commits), base)
	}
	return err
}

// checkOutNew makes the branch of a series from base to tip, and checks it out.
func (p *program) checkOutNew(t *tree.Tree, s *series.Series, base, tip string) error {
	j := &tree.Journal{Branch: s.Branch, Drop: tip, From: t.CommitID("HEAD"), To: tip}
	return p.change(t, j, false, func() error {
		// This comes before the branch, because a branch without these settings counts as the user's.
		if err := errors.Join(t.SetState(s.Branch, "origin", t.Head()), t.RecordApplied(s, base, tip)); err != nil {
			return err
		}
		return t.Do("checkout", "-q", "-b", s.Branch, tip)
	})
}

// change changes what is checked out in a tree. If that fails, it restores the tree; if it is killed, the next command does.
func (p *program) change(t *tree.Tree, j *tree.Journal, force bool, do func() error) error {
	if err := t.Begin(j); err != nil {
		return err
	}
	err := do()
	if err == nil {
		return t.End()
	}
	// A Ctrl-C that ended git also reaches this process, but maybe a little later.
	select {
	case <-p.ctx.Done():
	case <-time.After(50 * time.Millisecond):
	}
	ignoreSignals()
	if err := p.restore(&tree.Tree{Git: p.uninterrupted().Git.In(t.Dir)}, j, force); err != nil {
		p.Warn("%s is not restored: %v\nRun \"make reverse\" to try again.", t.Dir, err)
	} else if j.From != j.To {
		fmt.Fprintf(p.ErrOut, "==> %s is restored\n", t.Dir)
	}
	return err
}

// restore takes back a change that is not complete.
func (p *program) restore(t *tree.Tree, j *tree.Journal, force bool) error {
	if err := t.Restore(j, force); err != nil {
		return err
	}
	if made(t) && !t.HasBranch(j.Branch) {
		if err := p.unmake(t); err != nil {
			return err
		}
	}
	return t.End()
}

// recover restores the tree if a command was killed. It resets force if it has to use it.
func (p *program) recover(force *bool) error {
	t, err := p.locate()
	if err != nil || t.Kind == tree.Missing {
		return nil // The command itself reports it.
	}
	fileutil.RemoveAll(filepath.Join(t.Dir, tree.Unfinished))
	if t.Kind == tree.Plain {
		return nil
	}
	if err := t.RemoveUnwritten(); err != nil {
		return err
	}
	j, err := t.Journal()
	if j == nil || err != nil {
		return err
	}
	if err := t.RemoveLocks(j); err != nil {
		return err
	}
	p.Say("A command that changed %s was killed: removing what it left", t.Dir)
	err = p.restore(t, j, false)
	if err != nil && *force {
		*force = false
		err = p.restore(t, j, true)
	}
	return err
}

// made reports whether apply made the repository around a plain tree.
func made(t *tree.Tree) bool {
	return t.Try("config", "--local", "--get", "kubelet-backoff.made-repository") == "true"
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
	a, err := t.FindApplied()
	if err != nil {
		return err
	}
	if a == nil {
		p.Say("Nothing to reverse: no series is applied to %s", t.Dir)
		if t.Kind == tree.Repository && made(t) {
			return p.unmake(t)
		}
		return nil
	}
	p.Say("Removing %s from %s", a.Branch, t.Dir)
	if err := t.RequireNoOperation(); err != nil {
		return err
	}
	current := t.Branch() == a.Branch
	head := t.CommitID("refs/heads/" + a.Branch)
	if current && !force {
		if err := t.RequireClean("reversing the series (--force discards them)"); err != nil {
			return err
		}
	}
	// Find the commits that are in no patch.
	extra, err := t.Lines("log", "--reverse", "--format=%h %s", head, "^"+a.Tip, "^"+a.Base)
	if err != nil {
		return err
	}
	if len(extra) > 0 {
		if !force {
			return console.Error(fmt.Sprintf("%s has commits that no patch file holds:", a.Branch),
				append(extra, keepOrDrop)...)
		}
		p.Note("dropping: %d commits", len(extra))
	}

	j := &tree.Journal{Branch: a.Branch, Drop: head, From: t.CommitID("HEAD"), To: t.CommitID("HEAD")}
	var checkout []string
	if !current {
		p.Note("%s is not checked out, so HEAD does not change", a.Branch)
	} else {
		name, isBranch := strings.CutPrefix(cmp.Or(t.State(a.Branch, "origin"), a.Base), "refs/heads/")
		if isBranch && !t.HasBranch(name) {
			p.Warn("%s, which was checked out before the series, no longer exists; checking out commit %s", name, a.Base)
			isBranch, name = false, a.Base
		}
		checkout = []string{"checkout", "-q", name}
		if !isBranch {
			checkout = []string{"checkout", "-q", "--detach", name}
		}
		j.To = t.CommitID(name)
	}
	unmake := made(t)
	err = p.change(t, j, force, func() error {
		if current && force {
			if err := t.Do("reset", "-q", "--hard"); err != nil {
				return err
			}
		}
		if current {
			if err := t.Do(checkout...); err != nil {
				return err
			}
		}
		if err := t.Do("branch", "-q", "-D", a.Branch); err != nil || !unmake {
			return err
		}
		return p.unmake(t)
	})
	if err == nil && !unmake {
		p.Say("Done: %s has %s checked out", t.Dir, cmp.Or(t.Branch(), t.Try("rev-parse", "--short=12", "HEAD")))
	}
	return err
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
	// The rename is atomic: if this is killed, there is a repository, or a plain tree.
	gone := filepath.Join(t.Dir, tree.Unfinished)
	fileutil.RemoveAll(gone)
	if err := os.Rename(filepath.Join(t.Dir, ".git"), gone); err != nil {
		return err
	}
	fileutil.RemoveAll(gone)
	p.Say("Done: %s is a plain source tree again", t.Dir)
	return nil
}
