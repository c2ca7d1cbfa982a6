// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/kubelet-backoff/kubelet-backoff/hack/internal/sys"
)

// apply makes the branch of the series that fits the tree, and checks it out. With keep, it leaves a branch alone that was edited.
func (p *program) apply(keep bool) error {
	t, s, err := p.findSeries()
	if err != nil {
		return err
	}
	branch, digest := t.seriesBranch(), s.Digest()
	was, tip, current := t.state(branch), t.Commit("refs/heads/"+branch), t.branch() == branch
	is, worktree := was, t.Try("for-each-ref", "--format=%(worktreepath)", "refs/heads/"+branch)
	switch {
	case worktree != "" && !current:
		return fmt.Errorf("%s is checked out in %s: reverse the series there", branch, worktree)
	case tip != "" && is.Tip == "":
		return fmt.Errorf("%s has a branch %s that \"make apply\" did not make: rename or delete it", t.Dir, branch)
	case keep && current && (tip != is.Tip || t.requireIdle() != nil):
		p.Say("%s has been edited since the series was applied; using it as it is", branch)
		return nil
	case tip != is.Tip:
		return fmt.Errorf("%s of %s has been edited since the series was applied: \"make refresh\" writes its commits to the patches, and \"git branch -m\" keeps them under another name", branch, t.Dir)
	case current && is.Digest == digest:
		p.Say("Already applied: %s is checked out in %s (%d patches)", branch, t.Dir, len(s.Patches))
		return nil
	}
	if err := t.requireIdle(); err != nil {
		return err
	}
	if !current {
		is = state{Base: t.Commit("HEAD"), From: cmp.Or(t.Try("symbolic-ref", "-q", "HEAD"), t.Commit("HEAD"))}
	}
	p.Say("Applying %d patches of %s, which was made on %s, to %s", len(s.Patches), s.Name, s.Tag, t.Dir)
	if left := append(s.Skipped, s.Dropped...); len(left) > 0 {
		p.Note("left out: %s", strings.Join(left, " "))
	}
	commits, err := p.compose(t, is.Base, s)
	if err != nil {
		return err
	}
	is = state{Base: is.Base, From: is.From, Tip: commits[len(commits)-1], Before: &was, Digest: digest, Whole: len(s.Skipped) == 0}
	// This comes before the branch, because a branch without a state counts as the user's.
	if err := t.setState(branch, is); err != nil {
		return err
	}
	if err := p.checkOut(t, is.Tip, "-B", branch, is.Tip); err != nil {
		// Git may have moved the branch before it failed, and then the new state is right.
		if t.Git = t.Uninterrupted(); t.Commit("refs/heads/"+branch) == tip {
			err = errors.Join(err, t.setState(branch, was))
		}
		return err
	}
	p.Say("%s is checked out, %d commits on %.12s", branch, len(commits), is.Base)
	is.Before = nil
	return t.setState(branch, is)
}

// reverse checks out what was checked out before apply, and deletes the branch.
func (p *program) reverse() error {
	if p.kubeRoot == "" {
		if version, err := p.wanted(); err != nil || !sys.Exists(p.dirOf(version)) {
			p.Say("Nothing to reverse: there is no tree of kubernetes %s", version)
			return err
		}
	}
	t, err := p.find()
	if err != nil {
		return err
	}
	if err := p.recover(t); err != nil {
		return err
	}
	branch := t.seriesBranch()
	is, tip := t.state(branch), t.Commit("refs/heads/"+branch)
	if is.Tip == "" {
		_ = t.setState(branch, state{})
		p.Say("Nothing to reverse: no series is applied to %s", t.Dir)
		return nil
	}
	if extra, err := t.Lines("log", "--format=%h %s", tip, "^"+is.Tip, "^"+is.Base); err != nil || len(extra) > 0 {
		return cmp.Or(err, sys.Error(branch+" has commits that no patch has:", append(extra,
			`"make refresh" writes them to the patches. "git branch -m" keeps them under another name, and "git reset --hard `+is.Tip[:12]+`" drops them.`)...))
	}
	if t.branch() == branch {
		if err := t.requireIdle(); err != nil {
			return err
		}
		to, args := is.Base, []string{"--detach", is.Base}
		if name, ok := strings.CutPrefix(is.From, "refs/heads/"); ok && t.Commit(is.From) != "" {
			to, args = t.Commit(is.From), []string{name}
		}
		if err := p.checkOut(t, to, args...); err != nil {
			return err
		}
	}
	if err := t.Do("branch", "-q", "-D", branch); err != nil {
		return err
	}
	p.Say("%s is deleted; %s has %s checked out", branch, t.Dir, cmp.Or(t.branch(), t.Commit("HEAD")))
	return nil
}
