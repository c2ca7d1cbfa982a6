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
)

func (p *program) apply(keep bool) error {
	t, s, err := p.target()
	if err != nil {
		return err
	}
	if err := p.requireRelease(t); err != nil {
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
	if t.kind == repository && t.hasBranch(s.branch) {
		done, err := p.applyOver(t, s, keep, work)
		if done || err != nil {
			return err
		}
		// Taking the old series back may have removed the repository that was made for it.
		if !exists(filepath.Join(t.dir, ".git")) {
			t.kind = plain
		}
	}
	if err := t.requireReady(s.created()); err != nil {
		return err
	}
	return p.applyTo(t, s, work)
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
	// A file that the release has is a matter for the patch itself.
	there := slices.DeleteFunc(slices.Clone(created), func(f string) bool {
		return !exists(filepath.Join(t.dir, f)) || t.kind == repository && t.tracks(f)
	})
	if len(there) == 0 {
		return nil
	}
	return fail(fmt.Sprintf("the series creates files that are in %s already, unknown to git:", t.dir), append(there, "Move them away first.")...)
}

func (t *tree) tracks(path string) bool {
	return t.ok("--literal-pathspecs", "ls-files", "--error-unmatch", "--", path)
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
	return writeMails(commits, filepath.Join(dir, "mails"))
}

// applyOver deals with a series branch that is there already. It says whether there is nothing left to do.
func (p *program) applyOver(t *tree, s *series, keep bool, work string) (done bool, err error) {
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
		if err := t.requireReady(s.created()); err != nil {
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
	if err := t.requireReady(s.created()); err != nil {
		return false, err
	}
	start := t.commitID("HEAD")
	if current {
		start = cmp.Or(t.commitID(t.state(s.branch, "origin")), base)
	}
	if _, err := p.rehearse(t, s, start, filepath.Join(work, "rehearsal")); err != nil {
		return false, err
	}
	return false, p.reverse(false)
}

// applyTo applies the series to a tree that has none.
func (p *program) applyTo(t *tree, s *series, work string) (err error) {
	u := tree{git: p.uninterrupted().git(t.dir)}
	made := t.kind == plain
	origin, base := "", ""
	defer func() {
		if err == nil {
			return
		}
		ignoreSignals()
		if base != "" {
			u.rollback(s, origin, base)
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
		if err := r.run("config kubelet-backoff.made-repository true", "tag "+t.version); err != nil {
			return err
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
	if err := errors.Join(t.setState(s.branch, "base", base), t.setState(s.branch, "origin", origin)); err != nil {
		return err
	}
	if err := t.do("checkout", "-q", "-b", s.branch); err != nil {
		return err
	}
	for i, mail := range mails {
		if err := t.am(mail); err != nil {
			return p.notApplicable(s.active[i], t, err)
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
func (t *tree) rollback(s *series, origin, base string) {
	t.abortAm()
	if dirty, _ := t.dirty(); t.commitID("HEAD") != base || len(dirty) > 0 {
		t.ok("reset", "-q", "--hard", base)
	}
	// An interrupted git am may have written new files that git does not know yet. None of them was there before.
	for _, f := range s.created() {
		if exists(filepath.Join(t.dir, f)) && !t.tracks(f) {
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
	t.forgetGone()
}

// abortAm ends a git am that an apply left behind, if there is one.
func (t *tree) abortAm() {
	if t.operation() != "" && !t.ok("am", "--abort") {
		removeAll(filepath.Join(t.try("rev-parse", "--absolute-git-dir"), "rebase-apply"))
	}
}

// forgetGone removes what the configuration says of series branches that are not there. An apply that is killed before it
// makes the branch leaves such lines.
func (t *tree) forgetGone() {
	keys, _ := t.lines("config", "--local", "--name-only", "--get-regexp", `^branch\.`+branchPrefix+`.*\.`+branchPrefix)
	for _, key := range keys {
		if name := strings.TrimPrefix(key[:strings.LastIndex(key, ".")], "branch."); !t.hasBranch(name) {
			t.ok("config", "--local", "--unset-all", key)
		}
	}
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
	made := false
	if t.kind == repository {
		t.forgetGone()
		made = t.try("config", "--local", "--get", "kubelet-backoff.made-repository") == "true"
	}
	a, err := t.findApplied()
	if err != nil {
		return err
	}
	if a == nil {
		p.say("Nothing to take back: no series is applied to %s", t.dir)
		// But for what an apply may have left that was killed.
		removeAll(filepath.Join(t.dir, unfinished))
		if made {
			return p.unmake(t)
		}
		return nil
	}
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
		t.abortAm()
	}
	head := t.commitID("refs/heads/" + a.branch)
	if current && !force {
		if err := t.requireClean("taking the series back (--force loses them)"); err != nil {
			return err
		}
	}
	// What no patch holds; in a series that is half applied that is all that apply did not commit itself.
	lines, err := t.lines("log", "--reverse", "--format=%ce %h %s", head, "^"+cmp.Or(a.tip, a.base), "^"+a.base)
	if err != nil {
		return err
	}
	var extra []string
	for _, l := range lines {
		if who, what, _ := strings.Cut(l, " "); a.tip != "" || who != identEmail {
			extra = append(extra, what)
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
			isBranch, name = false, a.base
		}
		to := []string{"checkout", "-q", name}
		if !isBranch {
			to = []string{"checkout", "-q", "--detach", name}
		}
		if err := t.do(to...); err != nil {
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
