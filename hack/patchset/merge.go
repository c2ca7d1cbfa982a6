// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/console"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/git"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/series"
)

func (r *refresher) entry(patch, path string) *entry {
	k := owned{patch, path}
	if r.entries[k] == nil {
		r.entries[k] = &entry{}
	}
	return r.entries[k]
}

// readBefore reads the commits that apply or refresh made last. After an old rebase they may be gone.
func (r *refresher) readBefore() (err error) {
	if n := len(r.s.Active); n > 0 && r.t.CommitID(fmt.Sprintf("%s~%d", r.a.Tip, n)) != "" {
		r.before, err = r.read("--first-parent", fmt.Sprintf("-n%d", n), r.a.Tip)
	}
	return err
}

// readKept reads the files in the sources.
func (r *refresher) readKept() error {
	for _, rule := range r.s.Mirror.Rules {
		if !r.has(rule.Patch) {
			r.Warn("hack/mirror.txt: %s belongs to a patch %q, which %s does not have; not copied", rule.From, rule.Patch, r.s.Branch)
		}
	}
	var names, paths []string
	for _, c := range r.commits {
		names = append(names, c.name)
	}
	for _, q := range r.s.Active {
		names = append(names, q.Name)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		files, err := r.FilesOf(r.s, name)
		if err != nil {
			return err
		}
		for path, f := range files {
			e := r.entry(name, path)
			e.source = f
			blob, err := r.git.Store(f.Content)
			if err != nil {
				return err
			}
			e.kept = git.File{Mode: f.Mode(), Blob: blob}
			if f.Library {
				e.library, _ = r.s.Mirror.Home(name, path)
			}
			paths = append(paths, path)
		}
	}
	for _, c := range slices.Concat(r.commits, r.before) {
		paths = slices.AppendSeq(paths, maps.Keys(c.changed))
	}
	slices.Sort(paths)
	var err error
	if paths = slices.Compact(paths); len(paths) > 0 {
		r.release, err = r.git.Files(r.base, paths...)
	}
	return err
}

// owner returns the entry for a path that a patch changes, or nil if the release has the file.
func (r *refresher) owner(patch, path string) *entry {
	for k, e := range r.entries {
		if k.path == path && e.library != nil && r.has(k.patch) {
			return e
		}
	}
	if e := r.entries[owned{patch, path}]; e != nil {
		return e
	}
	if _, ok := r.release[path]; ok {
		return nil
	}
	e := r.entry(patch, path)
	e.library, _ = r.s.Mirror.Home(patch, path)
	return e
}

// readWas reads the files of the branch as they were when it was last equal to the sources.
func (r *refresher) readWas() error {
	for i, c := range r.before {
		for path, f := range c.changed {
			if f.Blob == "" {
				continue
			}
			if e := r.owner(r.s.Active[i].Name, path); e != nil {
				e.was = f
			}
		}
	}
	return nil
}

// readTree reads the files of the branch.
func (r *refresher) readTree() error {
	for i, c := range r.commits {
		say := fmt.Sprintf("commit %d (%.12s %s)", i+1, c.id, c.subject)
		if len(c.changed) == 0 {
			return fmt.Errorf("%s changes nothing", say)
		}
		for path, f := range c.changed {
			e := r.owner(c.name, path)
			switch {
			case e == nil:
				continue
			case e.library != nil:
				if k := r.index(e.library.Patch); i < k {
					return fmt.Errorf("%s changes %s, which hack/mirror.txt assigns to patch %d", say, path, k+1)
				}
				if f.Blob != "" {
					f.Mode = "100644"
				}
			case f.Blob == "":
				return console.Error(fmt.Sprintf("%s removes %s, which an earlier commit adds: a patch cannot do that", say, path), "Remove it from the earlier commit (git rebase -i).")
			case f.Mode != "100644" && f.Mode != "100755":
				return fmt.Errorf("%s adds %s, which is not a regular file (mode %s): a patch can add only regular files", say, path, f.Mode)
			}
			e.tree = f
		}
	}
	return nil
}

// merge sets the final state of each file.
func (r *refresher) merge() error {
	var conflicts []string
	for _, k := range r.sorted() {
		e := r.entries[k]
		switch {
		case !r.has(k.patch) && (e.library != nil || len(r.elsewhere(k.patch)) > 0):
			// Other series still use the file.
			e.final = e.kept
		case e.tree == e.was || r.options.sourceWins && e.kept != e.was:
			e.final = e.kept
		case e.kept == e.was || e.kept == e.tree:
			e.final = e.tree
		case e.kept.Blob == "":
			conflicts = append(conflicts, fmt.Sprintf("%s was edited on the branch, and %s removed", k.path, r.rel(r.keptAt(k, e))))
		case e.tree.Blob == "":
			conflicts = append(conflicts, fmt.Sprintf("%s was removed on the branch, and %s edited", k.path, r.rel(r.keptAt(k, e))))
		default:
			diff, err := r.difference(k, e)
			if err != nil {
				return err
			}
			conflicts = append(conflicts, diff)
		}
	}
	if len(conflicts) == 0 {
		return nil
	}
	return console.Error(fmt.Sprintf("%d files were edited both on %s and in their sources, so nothing is written:", len(conflicts), r.s.Branch),
		append(conflicts, "Make the branch's change in the source too, then run: hack/patchset.sh refresh --library-wins")...)
}

func (r *refresher) sorted() []owned {
	return slices.SortedFunc(maps.Keys(r.entries), func(a, b owned) int {
		return cmp.Or(cmp.Compare(a.path, b.path), cmp.Compare(a.patch, b.patch))
	})
}

// difference returns a diff from a file's source to the file on the branch.
func (r *refresher) difference(k owned, e *entry) (string, error) {
	diff, err := r.git.Out(slices.Concat([]string{"diff"}, git.DiffOptions, []string{e.kept.Blob, e.tree.Blob})...)
	if err != nil {
		return "", err
	}
	if at := strings.Index(diff, "\n@@"); at >= 0 {
		diff = diff[at+1:]
	}
	return fmt.Sprintf("--- %s (as copied)\n+++ %s (branch)\n%s", r.rel(r.keptAt(k, e)), k.path, console.FirstLines(diff, 40)), nil
}

// keptAt returns the path of a file's source, which may not exist yet.
func (r *refresher) keptAt(k owned, e *entry) string {
	if e.source.Path != "" {
		return e.source.Path
	}
	if e.library != nil {
		return filepath.Join(r.Root, e.library.InLibrary(k.path))
	}
	return filepath.Join(r.Patches, series.SourceDir, k.patch, filepath.FromSlash(k.path))
}

func (p *program) rel(path string) string {
	if rel, err := filepath.Rel(p.Root, path); err == nil && filepath.IsLocal(rel) {
		return rel
	}
	return path
}
