// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kubelet-backoff/kubelet-backoff/hack/internal/git"
	"github.com/kubelet-backoff/kubelet-backoff/hack/internal/series"
	"github.com/kubelet-backoff/kubelet-backoff/hack/internal/sys"
)

// compose makes the commits of a series on top of base. It uses an index of its own and no
// working tree. So the tree does not change if a patch does not apply.
func (p *program) compose(t *tree, base string, s *series.Series) (commits []string, err error) {
	work, remove, err := sys.Scratch(p.Output)
	if err != nil {
		return nil, err
	}
	defer remove()
	x := t.With("GIT_INDEX_FILE=" + filepath.Join(work, "index"))
	if err := x.Do("read-tree", base); err != nil {
		return nil, err
	}
	parent := base
	for _, q := range s.Patches {
		if err := p.applyHunks(x, q); err != nil {
			return nil, err
		}
		if err := stageNew(x, base, q); err != nil {
			return nil, err
		}
		commit, err := x.CommitIndex(parent, q.Text, q.Author...)
		if err != nil {
			return nil, err
		}
		if commit == parent {
			return nil, fmt.Errorf("%s changes nothing in %s", q.Name, t.Dir)
		}
		commits, parent = append(commits, commit), commit
	}
	if len(commits) == 0 {
		return nil, fmt.Errorf("%s has no patch to apply", s.Dir)
	}
	return commits, nil
}

// stageNew puts the new files of a patch into the index, where a file of the release must not be in their place.
func stageNew(x git.Git, base string, q *series.Patch) error {
	if len(q.Files) == 0 {
		return nil
	}
	paths := slices.Sorted(maps.Keys(q.Files))
	there, err := x.Lines(append([]string{"--literal-pathspecs", "ls-tree", "--name-only", base, "--"}, paths...)...)
	if err != nil || len(there) > 0 {
		return cmp.Or(err, sys.Error(q.Name+" adds files that are already there:", there...))
	}
	args := []string{"update-index", "--add"}
	for _, path := range paths {
		f, err := x.Store("100644", q.Files[path].Content)
		if err != nil {
			return err
		}
		args = append(args, "--cacheinfo", f.Mode+","+f.Blob+","+path)
	}
	// Without --replace, git refuses a file in the place of a directory.
	return x.Do(args...)
}

// applyHunks applies the hunks of a patch to the index, if each is in the function that it was made for.
func (p *program) applyHunks(x git.Git, q *series.Patch) error {
	if len(q.Hunks) == 0 {
		return nil
	}
	before := map[string]string{}
	for path := range q.Hunks {
		before[path], _, _ = x.Both("show", ":"+path)
	}
	tree, err := x.Out("write-tree")
	if err != nil {
		return err
	}
	if err := x.Input(q.Mail).Do("apply", "--cached", "-"); err != nil {
		return sys.Error(fmt.Sprintf("%s (%s) does not apply to %s:", q.Name, q.File, x.Dir), err.Error(),
			"Nothing has changed. \"make series\" without KUBE_ROOT writes mails: git am -3 can merge them, and leaves conflicts for you to resolve.")
	}
	diff, err := x.DiffIndex(tree)
	if err != nil {
		return err
	}
	return requirePlaced(q.Name, readHunks(q.Mail), readHunks(diff), before)
}

// format returns a commit as its patch file: the mail without the files for which isNew is true.
func (p *program) format(g git.Git, commit string, isNew func(path string) bool) (*series.Patch, error) {
	changed, err := g.Changed(commit+"^", commit)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(changed, func(path string, _ git.File) bool { return isNew(path) })
	mail, err := g.Mail(commit)
	if err != nil {
		return nil, err
	}
	head, _, _ := strings.Cut(mail, "\ndiff --git ")
	q := &series.Patch{Mail: strings.TrimRight(head, "\n") + "\n"}
	if len(changed) > 0 {
		diff, err := g.Diff(commit, slices.Sorted(maps.Keys(changed)))
		if err != nil {
			return nil, err
		}
		q.Mail += "\n" + diff
	}
	// Git must read the file as the same commit.
	if err := p.Parse(q); err != nil {
		return nil, err
	}
	is, err := g.Out("log", "-1", "--format=%an%n%ae%n%B", commit)
	if err != nil {
		return nil, err
	}
	author := strings.TrimPrefix(q.Author[0], "GIT_AUTHOR_NAME=") + "\n" + strings.TrimPrefix(q.Author[1], "GIT_AUTHOR_EMAIL=") + "\n"
	if now := author + strings.TrimSpace(q.Text); now != strings.TrimSpace(is) || strings.Contains(q.Mail, "\r\n") {
		return nil, sys.Error(fmt.Sprintf("commit %.12s cannot be a mail. Reword it, or remove CR LF from its lines: git would read it as", commit), now)
	}
	return q, nil
}
