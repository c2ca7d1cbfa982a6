// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
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

type refreshOptions struct {
	base       string
	sourceWins bool
	check      bool
}

// entry is a new file of a patch in four states: when the branch and the sources were last equal (was), in the sources now
// (kept), on the branch now (tree), and as refresh will write it (final). A missing file has no blob.
type entry struct {
	source          series.Source
	was, kept, tree git.File
	final           git.File
	library         *series.Rule
}

// owned is a path and the patch that owns the file. Two patches may have versions of one file.
type owned struct{ patch, path string }

// branchCommit is a commit of the series branch, and the name of its patch.
type branchCommit struct {
	id, subject, slug string
	name              string // of the patch
	changed           map[string]git.File
}

func (c branchCommit) String() string { return fmt.Sprintf("%.12s (%s)", c.id, c.subject) }

// refresher is one run of refresh.
type refresher struct {
	*program
	options refreshOptions
	t       *tree.Tree
	a       *tree.Applied
	git     git.Git // the repository that gets the new objects
	scratch git.Git // a separate repository, without the user's settings
	s       *series.Series
	base    string

	commits []branchCommit
	before  []branchCommit // the commits of the patches when the branch and the sources were last equal
	entries map[owned]*entry
	release map[string]git.File // those of the touched files that the release has
}

func (p *program) refresh(o refreshOptions) error {
	p.pick = series.Pick{}
	t, a, s, err := p.applied()
	if err != nil {
		return err
	}
	if err := requireSamePatches(t, a, s); err != nil {
		return err
	}
	if err := t.RequireNoOperation(); err != nil {
		return err
	}
	if err := t.RequireClean("refreshing the patches"); err != nil {
		return err
	}
	work, remove, err := fileutil.Scratch(p.output)
	if err != nil {
		return err
	}
	defer remove()

	base := a.Base
	if o.base != "" {
		if base = t.CommitID(o.base); base == "" {
			return fmt.Errorf("--base %s: no such commit in %s", o.base, t.Dir)
		}
	}
	hint := "If the branch was rebased, pass the commit at which it now starts: hack/patchset.sh refresh --base COMMIT"
	if !t.OK("merge-base", "--is-ancestor", base, a.Branch) {
		return console.Error(fmt.Sprintf("%s no longer starts at %s", a.Branch, base), hint)
	}
	if t.Try("rev-list", "--merges", base+".."+a.Branch) != "" {
		return console.Error(a.Branch+" has merge commits, which cannot become patches", hint)
	}
	if n := t.Try("rev-list", "--count", base+".."+a.Branch); len(n) > 2 {
		return console.Error(fmt.Sprintf("%s has %s commits since %.12s", a.Branch, n, base), hint)
	}
	r := &refresher{program: p, options: o, t: t, a: a, git: t.Git, s: s, base: base, entries: map[owned]*entry{}}
	if r.commits, err = r.read(base + ".." + a.Branch); err != nil {
		return err
	}
	if err := p.findVersion(t); err == nil && t.Version != s.Tag {
		if o.base == "" {
			return console.Error(fmt.Sprintf("%s is made on %s, and the branch starts at %s: the patches would get the line numbers and blob IDs of that tree", s.Dir, s.Tag, t.Version),
				fmt.Sprintf("To change the series, refresh it on %s. To move it to this tree, pass the commit at which the branch starts: hack/patchset.sh refresh --base %.12s", s.Tag, base))
		}
		p.Warn("%s is made on %s, and this is %s: the patches will have the hunks that fit this tree", s.Dir, s.Tag, t.Version)
	}
	p.Say("Refreshing %s from %s in %s (%d commits)", s.Dir, a.Branch, t.Dir, len(r.commits))
	if r.scratch, err = t.Borrow(filepath.Join(work, "repository"), t.CommitID("HEAD")); err != nil {
		return err
	}
	if o.check {
		r.git = r.scratch
	}
	r.git = r.git.With("GIT_INDEX_FILE=" + filepath.Join(work, "index"))
	for _, step := range []func() error{r.nameCommits, r.readBefore, r.readKept, r.readWas, r.readTree, r.merge, r.finish} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// fingerprint identifies a patch file with its content.
func fingerprint(name, content string) string {
	sum := sha256.Sum256([]byte(name + "\n" + content))
	return fmt.Sprintf("%x", sum[:8])
}

// read reads commits, oldest first.
func (r *refresher) read(args ...string) ([]branchCommit, error) {
	lines, err := r.t.Lines(append([]string{"log", "--reverse", "--topo-order", "--format=%H%x00%s%x00%f"}, args...)...)
	if err != nil {
		return nil, err
	}
	var commits []branchCommit
	for _, line := range lines {
		f := strings.Split(line, "\x00")
		c := branchCommit{id: f[0], subject: f[1], slug: strings.Trim(fmt.Sprintf("%.52s", f[2]), "-.")}
		if c.changed, err = r.t.Changed(c.id+"^", c.id); err != nil {
			return nil, err
		}
		commits = append(commits, c)
	}
	return commits, nil
}

// nameCommits finds the patch of each commit. A commit with the subject of a patch is that patch. If there are as many other
// commits between two of these as there are patches, their subjects were edited. All other commits are new patches.
func (r *refresher) nameCommits() error {
	position := map[string]int{} // of patches, by name
	taken := map[string]bool{}
	take := func(c *branchCommit, name string) { c.name, taken[name] = name, true }
	for i, q := range r.s.Active {
		position[q.Name] = i
		msg, err := r.Message(q.Mail)
		if err != nil {
			return err
		}
		same := func(c branchCommit) bool { return c.name == "" && c.subject == msg.Subject() }
		if k := slices.IndexFunc(r.commits, same); k >= 0 {
			take(&r.commits[k], q.Name)
		}
	}
	for i := 0; i < len(r.commits); i++ {
		end := i
		for end < len(r.commits) && r.commits[end].name == "" {
			end++
		}
		from, to := 0, len(r.s.Active)
		if i > 0 {
			from = position[r.commits[i-1].name] + 1
		}
		if end < len(r.commits) {
			to = position[r.commits[end].name]
		}
		if to-from == end-i && !slices.ContainsFunc(r.s.Active[from:to], func(q *series.Patch) bool { return taken[q.Name] }) {
			for k := range end - i {
				take(&r.commits[i+k], r.s.Active[from+k].Name)
			}
		}
		i = end
	}
	for i := range r.commits {
		c := &r.commits[i]
		for _, mark := range []string{"fixup! ", "squash! ", "amend! "} {
			if strings.HasPrefix(c.subject, mark) {
				return console.Error(fmt.Sprintf("commit %s is a fixup of another commit, so squash it first:", c),
					fmt.Sprintf("git -C %s rebase -i --autosquash %.12s", console.QuoteShell(r.t.Dir), r.base))
			}
		}
		if c.name != "" {
			continue
		}
		if c.slug == "" || taken[c.slug] {
			return fmt.Errorf("commit %s: there is already a patch %q; change the subject of the commit", c, c.slug)
		}
		take(c, c.slug)
	}
	return nil
}

// index returns the index of the commit of a patch, or -1.
func (r *refresher) index(patch string) int {
	return slices.IndexFunc(r.commits, func(c branchCommit) bool { return c.name == patch })
}

func (r *refresher) has(patch string) bool { return r.index(patch) >= 0 }

// requireSamePatches returns an error if the patch files are not those that the branch was made from.
func requireSamePatches(t *tree.Tree, a *tree.Applied, s *series.Series) error {
	if writing := strings.Fields(t.State(a.Branch, "writing")); len(writing) > 0 {
		// A refresh that was killed while it wrote the patches left some of them old. The branch has the new ones.
		var edited []string
		for _, f := range append(fileutil.Glob(s.Dir, "*.patch"), filepath.Join(s.Dir, "series")) {
			content, err := os.ReadFile(f)
			if err != nil {
				return err
			}
			if !slices.Contains(writing, fingerprint(filepath.Base(f), string(content))) {
				edited = append(edited, f)
			}
		}
		if len(edited) == 0 {
			return nil
		}
		return console.Error("a refresh was killed, and these files differ from both the old and the new ones:",
			append(edited, "Refresh would overwrite them. Make your changes on the branch, restore the files (git checkout -- FILE), then refresh.")...)
	}
	if len(s.Dropped) > 0 {
		return console.Error(fmt.Sprintf("%s/series leaves out patches, and refresh would forget them:", s.Dir),
			append(s.Dropped, "Add them to series again (or delete their files), run \"make apply\", then refresh.")...)
	}
	if _, mails := s.Digest(); t.State(a.Branch, "mails") != mails {
		n := t.Try("rev-list", "--count", a.Base+".."+a.Tip)
		return console.Error(fmt.Sprintf("%s was made from %s patches that are not the %d in %s: applied with SERIES, SKIP or VENDOR, or they have changed since", a.Branch, n, len(s.Active), s.Dir),
			`Run "make reverse" and "make apply" without these variables, then refresh. If you have commits on the branch, first name it: git branch mine;`,
			`"make reverse" then takes --force, and git cherry-pick puts them on the new branch.`)
	}
	return nil
}
