// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

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
		if len(q.Hunks) > 0 {
			if err := x.Input(q.Mail).Do("apply", "--cached", "-"); err != nil {
				return nil, sys.Error(fmt.Sprintf("%s (%s) does not apply to %s:", q.Name, q.File, t.Dir), err.Error(),
					"Nothing has changed. \"make series\" without KUBE_ROOT writes mails: git am -3 can merge them, and leaves conflicts for you to resolve.")
			}
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
		if err := requirePlaced(x, q, commit); err != nil {
			return nil, err
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
		blob, err := x.Store(q.Files[path].Content)
		if err != nil {
			return err
		}
		args = append(args, "--cacheinfo", "100644,"+blob+","+path)
	}
	// Without --replace, git refuses a file in the place of a directory.
	return x.Do(args...)
}

// format returns a commit as its patch file: the mail, with the files that the base has.
func (t *tree) format(base, commit string) (string, error) {
	var without []string
	for _, at := range []string{commit + "^", commit} {
		changed, err := t.Changed(base, at)
		if err != nil {
			return "", err
		}
		for path, status := range changed {
			if status == "A" {
				without = append(without, path)
			}
		}
	}
	return t.Mail(commit, without...)
}
