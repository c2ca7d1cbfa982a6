// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func (p *program) apply(keep bool) error {
	t, err := p.resolve()
	if err != nil {
		return err
	}
	s, err := p.pickSeries(t.version)
	if err != nil {
		return err
	}
	if err := p.checkDependencies(s); err != nil {
		return err
	}
	m, err := p.readTravel()
	if err != nil {
		return err
	}
	p.say("Series %s (%d patches, made on %s) for kubernetes %s in %s", s.name, len(s.active), s.tag, t.version, t.dir)
	if len(s.dropped) > 0 {
		p.note("left out: %s", strings.Join(s.dropped, " "))
	}
	work, remove, err := scratch(p.output)
	if err != nil {
		return err
	}
	defer remove()
	created := s.created(m)
	if t.kind == repository {
		done, err := p.applyOver(t, s, created, keep, work)
		if done || err != nil {
			return err
		}
	}
	if err := t.requireReady(created); err != nil {
		return err
	}
	return p.applyTo(t, s, created, work)
}

// requireReady: nothing in the tree is in the way of the series.
func (t *tree) requireReady(created []string) error {
	if t.kind == repository {
		if err := t.requireNoOperation(); err != nil {
			return err
		}
		if err := t.requireClean("applying patches"); err != nil {
			return err
		}
	}
	var there []string
	for _, f := range created {
		if _, err := os.Lstat(filepath.Join(t.dir, f)); err != nil {
			continue
		}
		// A file that the release has is a matter for the patch itself.
		if t.kind == plain || !t.ok("--literal-pathspecs", "ls-files", "--error-unmatch", "--", f) {
			there = append(there, f)
		}
	}
	if there == nil {
		return nil
	}
	return fail(fmt.Sprintf("the series creates files that are in %s already, unknown to git:", t.dir), append(there, "Move them away first.")...)
}

// rehearse composes the series on a commit, and returns its mails.
func (p *program) rehearse(t *tree, s *series, commit, dir string) ([]string, error) {
	r, err := t.borrow(filepath.Join(dir, "repository"), commit)
	if err != nil {
		return nil, err
	}
	commits, err := p.compose(r, commit, s, t)
	if err != nil {
		return nil, err
	}
	return p.writeMails(r, commits, filepath.Join(dir, "mails"))
}

// applyOver deals with a series that is applied already. It says whether there is nothing left to do.
func (p *program) applyOver(t *tree, s *series, created []string, keep bool, work string) (done bool, err error) {
	if !t.hasBranch(s.branch) {
		return false, nil
	}
	base, tip := t.state(s.branch, "base"), t.state(s.branch, "tip")
	head := t.commitID("refs/heads/" + s.branch)
	current := t.branch() == s.branch
	if base == "" {
		return false, fail(fmt.Sprintf("%s has a branch %s that \"make apply\" did not make", t.dir, s.branch),
			fmt.Sprintf("Rename or delete it: git -C %s branch -m %s other-name", quoteShell(t.dir), s.branch))
	}
	count := t.try("rev-list", "--count", base+".."+head)
	if tip == "" {
		return false, fail(fmt.Sprintf("%s has a half-applied series: %s holds %s of %d patches", t.dir, s.branch, count, len(s.active)),
			t.try("log", "--reverse", "--format=%h %s", base+".."+head),
			`Run "make reverse" to go back to where it started, then "make apply" again.`)
	}
	dirty, err := t.dirty()
	if err != nil {
		return false, err
	}
	if head != tip {
		edited := fmt.Sprintf("%s has been edited since the series was applied (%s commits on it)", s.branch, count)
		if !keep || !current {
			return false, fail(edited, `"make refresh" writes the commits into the patches, "make reverse" drops the branch.`)
		}
		p.say("%s; it is used as it is", edited)
		return true, nil
	}
	if digest, _ := s.digest(); t.state(s.branch, "digest") == digest {
		if current {
			p.say("Already applied: %s is checked out and complete (%d patches)", s.branch, len(s.active))
			if len(dirty) > 0 {
				p.note("it has changes that are not committed: %d files", len(dirty))
			}
			return true, nil
		}
		if now := t.commitID("HEAD"); now != base {
			return false, fail(fmt.Sprintf("%s exists already, made on another commit than the one checked out", s.branch),
				fmt.Sprintf("%s is on %.12s, HEAD is %.12s.", s.branch, base, now),
				fmt.Sprintf("Check it out (git checkout %s), or remove it (make reverse) to apply the series here.", s.branch))
		}
		if err := t.requireReady(created); err != nil {
			return false, err
		}
		origin := t.head()
		if err := t.do("checkout", "-q", s.branch); err != nil {
			return false, err
		}
		if err := t.setState(s.branch, "origin", origin); err != nil {
			return false, err
		}
		p.say("Already applied: %s was complete, and is now checked out", s.branch)
		return true, nil
	}
	if keep && len(dirty) > 0 && current {
		p.warn("%s was made from older sources than %s has, and has uncommitted changes; it is used as it is", s.branch, s.dir)
		return true, nil
	}
	p.say("The patches or the files they bring have changed since %s was made: taking it back first", s.branch)
	// But not before it is known that the new ones apply to what is checked out then.
	if err := t.requireReady(created); err != nil {
		return false, err
	}
	start := t.commitID("HEAD")
	if current {
		start = cmp.Or(t.commitID(t.state(s.branch, "origin")), base)
	}
	if _, err := p.rehearse(t, s, start, filepath.Join(work, "rehearsal")); err != nil {
		return false, err
	}
	if err := p.reverse(false); err != nil {
		return false, err
	}
	// Taking it back may have removed the repository that was made for it.
	now, err := p.locate()
	if err == nil {
		t.kind = now.kind
	}
	return false, err
}

// applyTo applies the series to a tree that has none.
func (p *program) applyTo(t *tree, s *series, created []string, work string) (err error) {
	u := tree{git: p.uninterrupted().git(t.dir), kind: t.kind, version: t.version}
	made := t.kind == plain
	origin, base := "", ""
	defer func() {
		if err == nil {
			return
		}
		ignoreSignals()
		if base != "" {
			u.rollback(s, origin, base, created)
		}
		if made {
			removeAll(filepath.Join(t.dir, ".git"))
			removeAll(filepath.Join(t.dir, unfinished))
		}
		fmt.Fprintf(p.errOut, "==> %s is as it was before\n", t.dir)
	}()

	if made {
		p.say("Making a git repository of %s, with the tree as it is as its one commit (make reverse removes it again)", t.dir)
		// In one step: whoever is killed leaves a plain tree, or a repository that reverse knows how to remove.
		r, err := t.asRelease(filepath.Join(t.dir, unfinished))
		if err != nil {
			return err
		}
		for _, args := range [][]string{{"config", "kubelet-backoff.made-repository", "true"}, {"tag", t.version}} {
			if err := r.do(args...); err != nil {
				return err
			}
		}
		if err := os.Rename(filepath.Join(r.dir, ".git"), filepath.Join(t.dir, ".git")); err != nil {
			return err
		}
		removeAll(r.dir)
	}
	head, commit := t.head(), t.commitID("HEAD")
	mails, err := p.rehearse(t, s, commit, filepath.Join(work, "composed"))
	if err != nil {
		return err
	}
	origin, base = head, commit
	// Before there is a branch: one without these would pass for somebody else's.
	for _, kv := range [][2]string{{"base", base}, {"origin", origin}} {
		if err := t.setState(s.branch, kv[0], kv[1]); err != nil {
			return err
		}
	}
	if err := t.do("checkout", "-q", "-b", s.branch); err != nil {
		return err
	}
	for i, mail := range mails {
		if err := t.am(mail); err != nil {
			if context.Cause(p.ctx) != nil {
				return err
			}
			return p.notApplicable(s.active[i], t, err.Error())
		}
		p.note("%s", s.active[i].file)
	}
	if err := p.recordApplied(t, s, base, t.commitID("HEAD")); err != nil {
		return err
	}
	p.say("Applied: %s is checked out in %s, %d commits on %.12s", s.branch, t.dir, len(s.active), base)
	return nil
}

// rollback undoes what was applied so far. It ignores errors: the caller has one to return, and later steps may succeed.
func (t *tree) rollback(s *series, origin, base string, created []string) {
	if t.operation() != "" {
		t.ok("am", "--abort")
	}
	if dir := t.try("rev-parse", "--absolute-git-dir"); dir != "" {
		removeAll(filepath.Join(dir, "rebase-apply"))
	}
	if dirty, _ := t.dirty(); t.commitID("HEAD") != base || len(dirty) > 0 {
		t.ok("reset", "-q", "--hard", base)
	}
	// An interrupted git am may have written new files that git does not know yet. None of them was there before.
	for _, f := range created {
		if _, err := os.Lstat(filepath.Join(t.dir, f)); err == nil && !t.ok("--literal-pathspecs", "ls-files", "--error-unmatch", "--", f) {
			_ = os.Remove(filepath.Join(t.dir, f))
			removeEmpty(t.dir, filepath.Dir(f))
		}
	}
	if strings.HasPrefix(origin, "refs/heads/") {
		t.ok("symbolic-ref", "HEAD", origin)
	} else {
		t.ok("checkout", "-q", "--detach", base)
	}
	t.ok("branch", "-q", "-D", s.branch)
	t.ok("config", "--local", "--remove-section", "branch."+s.branch)
}

// removeEmpty removes dir, a path below root, and those above it, as far as they are empty.
func removeEmpty(root, dir string) {
	for ; dir != "." && dir != "/"; dir = filepath.Dir(dir) {
		if os.Remove(filepath.Join(root, dir)) != nil {
			return
		}
	}
}

func (p *program) reverse(force bool) error {
	t, err := p.locate()
	if err != nil {
		return err
	}
	if t.kind == missing {
		p.say("Nothing to take back: there is no tree of kubernetes %s", t.version)
		return nil
	}
	a, err := t.findApplied()
	if err != nil {
		return err
	}
	made := t.kind == repository && t.try("config", "--local", "--get", "kubelet-backoff.made-repository") == "true"
	if a == nil {
		p.say("Nothing to take back: no series is applied to %s", t.dir)
		// But for what an apply may have left that was killed.
		removeAll(filepath.Join(t.dir, unfinished))
		if made {
			return p.unmake(t)
		}
		return nil
	}
	head := t.commitID("refs/heads/" + a.branch)
	origin := cmp.Or(t.state(a.branch, "origin"), a.base)
	current := t.branch() == a.branch
	p.say("Taking %s back from %s", a.branch, t.dir)

	if op := t.operation(); op != "" {
		// An apply that was killed leaves a git am behind, which at its very beginning looks like a rebase; but during a
		// rebase no branch is checked out. Anything else is not ours to abort.
		if op != "git am" && op != "git rebase" || !current || a.tip != "" {
			return t.requireNoOperation()
		}
		p.note("aborting the git am that an interrupted apply left behind")
		if !t.ok("am", "--abort") {
			removeAll(filepath.Join(t.try("rev-parse", "--absolute-git-dir"), "rebase-apply"))
		}
		head = t.commitID("refs/heads/" + a.branch)
	}
	if current && !force {
		if err := t.requireClean("taking the series back (--force loses them)"); err != nil {
			return err
		}
	}
	var extra []string
	if a.tip == "" {
		// Half applied: what apply committed itself may go.
		lines, err := t.lines("log", "--reverse", "--format=%ce %h %s", a.base+".."+head)
		if err != nil {
			return err
		}
		for _, l := range lines {
			if who, what, _ := strings.Cut(l, " "); who != identEmail {
				extra = append(extra, what)
			}
		}
	} else if head != a.tip {
		if extra, err = t.lines("log", "--reverse", "--format=%h %s", head, "^"+a.tip, "^"+a.base); err != nil {
			return err
		}
	}
	if len(extra) > 0 {
		if !force {
			return fail(fmt.Sprintf("%s has commits that no patch file holds:", a.branch),
				append(extra, `"make refresh" writes them into the patches; hack/patchset.sh reverse --force drops them.`)...)
		}
		p.note("dropping: %d commits", len(extra))
	}

	if !current {
		p.note("%s is not checked out; what is stays", a.branch)
	} else {
		if force {
			if err := t.do("reset", "-q", "--hard"); err != nil {
				return err
			}
		}
		name, isBranch := strings.CutPrefix(origin, "refs/heads/")
		if isBranch && !t.hasBranch(name) {
			p.warn("%s, checked out before the series, no longer exists; going back to commit %s", name, a.base)
			isBranch, origin = false, a.base
		}
		if isBranch {
			err = t.do("checkout", "-q", name)
		} else {
			err = t.do("checkout", "-q", "--detach", origin)
		}
		if err != nil {
			return err
		}
	}
	if err := t.do("branch", "-q", "-D", a.branch); err != nil {
		return err
	}
	if made {
		return p.unmake(t)
	}
	p.say("Done: %s has %s checked out", t.dir, cmp.Or(t.branch(), t.try("rev-parse", "--short=12", "HEAD")))
	return nil
}

// unmake removes the repository that apply made around a plain tree.
func (p *program) unmake(t *tree) error {
	others, err1 := t.lines("for-each-ref", "--format=%(refname)", "refs/heads", "refs/stash")
	others = slices.DeleteFunc(others, func(r string) bool { return r == "refs/heads/base" })
	commits, err2 := t.lines("rev-list", "-n2", "--all", "HEAD")
	dirty, err3 := t.dirty()
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	if len(others) > 0 || len(commits) > 1 || len(dirty) > 0 {
		p.warn("%s/.git was made by \"make apply\", but holds more than that by now; it is kept", t.dir)
		return nil
	}
	removeAll(filepath.Join(t.dir, ".git"))
	p.say("Done: %s is a plain source tree again", t.dir)
	return nil
}
