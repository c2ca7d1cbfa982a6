// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
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

// sourceChanges returns the sources to write, by path. A source to remove has no content.
func (r *refresher) sourceChanges() (map[string]series.Source, error) {
	changes := map[string]series.Source{}
	for _, rule := range r.s.Mirror.Rules {
		had, has := false, false
		for _, e := range r.entries {
			had = had || e.library == rule && e.kept.Blob != ""
			has = has || e.library == rule && e.final.Blob != ""
		}
		if had && !has {
			return nil, console.Error(fmt.Sprintf("%s no longer has any of the files that %s brings from %s in the library", r.s.Branch, rule.Patch, rule.From),
				fmt.Sprintf("Remove the line from %s, then refresh.", r.s.Mirror.File))
		}
	}
	for _, k := range r.sorted() {
		e := r.entries[k]
		if e.final == e.kept {
			continue
		}
		at := r.keptAt(k, e)
		if e.final.Blob == "" {
			if rel, ok := strings.CutPrefix(at, r.Patches+string(filepath.Separator)+"v"); ok {
				return nil, console.Error(fmt.Sprintf("%s was removed on %s, but is the version of v%s", k.path, r.s.Branch, strings.Split(rel, string(filepath.Separator))[0]),
					fmt.Sprintf("Remove %s and its line in %s, then refresh.", at, series.ReasonsFile))
			}
			changes[at] = series.Source{Path: k.path}
			continue
		}
		content, err := r.git.Bytes("cat-file", "blob", e.final.Blob)
		if err != nil {
			return nil, err
		}
		if err := series.CheckContent(k.path, content); err != nil {
			return nil, err
		}
		if e.library != nil {
			if content, err = r.s.Mirror.ToLibrary(e.library, k.path, content); err != nil {
				return nil, err
			}
		}
		changes[at] = series.Source{Path: k.path, Exec: e.final.Mode == "100755", Content: append([]byte{}, content...)}
	}
	return changes, nil
}

// elsewhere returns the directories of the other series that have a patch of this name.
func (r *refresher) elsewhere(name string) []string {
	return slices.DeleteFunc(r.All(), func(dir string) bool {
		return dir == r.s.Dir || len(fileutil.Glob(dir, "[0-9][0-9][0-9][0-9]-"+name+".patch")) == 0
	})
}

// rebuild makes the commits of the branch again with the merged files, and returns their patches.
func (r *refresher) rebuild() ([]composed, error) {
	brings := map[string]bool{}
	for k := range r.entries {
		brings[k.path] = true
	}
	var done []composed
	parent := r.base
	for i, c := range r.commits {
		if err := r.git.Do("read-tree", c.id); err != nil {
			return nil, err
		}
		staged := map[string]git.File{}
		for k := range r.entries {
			staged[k.path] = r.release[k.path]
		}
		for _, earlier := range r.commits[:i+1] {
			for k, e := range r.entries {
				if k.patch == earlier.name && e.final.Blob != "" {
					staged[k.path] = e.final
				}
			}
		}
		if err := r.git.Stage(staged); err != nil {
			return nil, err
		}
		author, err := r.t.Lines("log", "-1", "--format=%an%n%ae%n%ad", "--date=raw", c.id)
		if err != nil {
			return nil, err
		}
		raw, err := r.t.Bytes("cat-file", "commit", c.id)
		if err != nil {
			return nil, err
		}
		_, body, _ := strings.Cut(string(raw), "\n\n")
		text, err := r.git.Input(body).Bytes("stripspace")
		if err != nil {
			return nil, err
		}
		next, err := r.git.CommitIndex(parent, string(text),
			"GIT_AUTHOR_NAME="+author[0], "GIT_AUTHOR_EMAIL="+author[1], "GIT_AUTHOR_DATE=@"+author[2], "GIT_COMMITTER_DATE=@"+author[2])
		if err != nil {
			return nil, err
		}
		if next == parent {
			r.Note("commit %s is gone: all its changes belong to another patch", c)
			continue
		}
		parent = next
		mail, err := r.stored(r.scratch, next, brings)
		if err != nil {
			return nil, err
		}
		q := &series.Patch{File: fmt.Sprintf("%04d-%s.patch", len(done)+1, c.name), Name: c.name}
		done = append(done, composed{q, next, mail})
	}
	return done, nil
}

// seriesText returns the file "series" with a new list of patches. The lines above a patch stay above it.
func seriesText(old string, list []string) string {
	if old == "" {
		old = "# In this order. Comment a line out to leave that patch out.\n"
	}
	above := map[string]string{}
	text, lines := "", ""
	for line := range strings.Lines(old) {
		if m := series.PatchName.FindStringSubmatch(strings.TrimSpace(line)); m == nil {
			lines += line
		} else if len(above) == 0 {
			// The lines at the top of the file stay there, even if another patch is first.
			above[m[2]], text, lines = "", lines, ""
		} else {
			above[m[2]], lines = lines, ""
		}
	}
	if len(above) == 0 {
		text, lines = lines, ""
	}
	for _, file := range list {
		text += above[series.PatchName.FindStringSubmatch(file)[2]] + file + "\n"
	}
	return text + lines
}

// finish writes everything, or prints what it would write.
func (r *refresher) finish() error {
	changes, err := r.sourceChanges()
	if err != nil {
		return err
	}
	commits, err := r.rebuild()
	if err != nil {
		return err
	}
	head := r.t.CommitID("HEAD")
	tip := r.base
	was := map[string]string{} // the patch files, by name
	for _, q := range r.s.Active {
		was[q.File] = q.Mail
	}
	wanted := map[string]string{}
	list := []string{}
	changed := len(changes) > 0
	for _, c := range commits {
		tip = c.commit
		name := c.patch.File
		list = append(list, name)
		if old, ok := was[name]; !ok {
			r.Note("%s is new", name)
		} else if old != c.mail {
			r.Note("%s changed", name)
		} else {
			continue
		}
		wanted[name] = c.mail
	}
	for _, q := range r.s.Active {
		if !slices.Contains(list, q.File) {
			r.Note("%s is gone", q.File)
			changed = true
		}
	}
	old, _ := os.ReadFile(filepath.Join(r.s.Dir, "series"))
	if text := seriesText(string(old), list); text != string(old) {
		wanted["series"] = text
	}
	changed = changed || tip != head || len(wanted) > 0
	if err := r.sayFiles(); err != nil {
		return err
	}
	if changed && r.options.check {
		return fmt.Errorf("%s and its sources differ, see above: run \"make refresh\"", r.s.Branch)
	}
	if !r.options.check {
		if err := r.write(head, tip, changes, wanted, list); err != nil {
			return err
		}
	}
	if !changed {
		r.Say("Nothing to refresh: %d patches, none changed", len(list))
		return nil
	}
	r.Say("Refreshed: %d patches in %s", len(list), r.s.Dir)
	return r.requireOthers()
}

// sayFiles prints which files are copied, and the direction.
func (r *refresher) sayFiles() error {
	for _, k := range r.sorted() {
		e := r.entries[k]
		if !r.has(k.patch) {
			continue
		}
		switch name := r.rel(r.keptAt(k, e)); {
		case e.final != e.tree:
			r.Note("%s -> %s on the branch", name, k.path)
		case e.final != e.kept:
			r.Note("%s on the branch -> %s", k.path, name)
		default:
			continue
		}
		if r.options.check && e.kept.Blob != "" && e.tree.Blob != "" {
			diff, err := r.difference(k, e)
			if err != nil {
				return err
			}
			fmt.Fprintln(r.Out, diff)
		}
	}
	return nil
}

// write moves the branch, writes the sources and the wanted patch files, and removes patch files that are not in the list.
func (r *refresher) write(head, tip string, changes map[string]series.Source, wanted map[string]string, list []string) error {
	// From here on signals do not stop this. The branch is first: if git refuses, nothing has changed.
	ignoreSignals()
	p := r.uninterrupted()
	t := &tree.Tree{Git: p.Git.In(r.t.Dir), Kind: r.t.Kind, Version: r.t.Version}
	return p.change(t, &tree.Journal{Branch: r.a.Branch, From: head, To: tip}, false, func() error {
		if tip != head {
			if err := t.Do("reset", "-q", "--keep", tip); err != nil {
				return err
			}
			r.Note("%s is now at %.12s", r.a.Branch, tip)
		}
		return r.writeSources(p, t, tip, changes, wanted, list)
	})
}

// writeSources writes all that write does, except for the branch.
func (r *refresher) writeSources(p *program, t *tree.Tree, tip string, changes map[string]series.Source, wanted map[string]string, list []string) error {
	for at, f := range changes {
		if f.Content == nil {
			if err := os.Remove(at); err != nil {
				return err
			}
			fileutil.RemoveEmpty("/", filepath.Dir(at))
		}
	}
	for at, f := range changes {
		mode := os.FileMode(0o666)
		if f.Exec {
			mode = 0o777
		}
		if f.Content != nil {
			if err := fileutil.Write(at, f.Content, mode); err != nil {
				return err
			}
		}
	}
	// From here on, a killed refresh leaves each patch file either old or new. The fingerprints allow the next one to continue.
	var writing []string
	for _, f := range append(fileutil.Glob(r.s.Dir, "*.patch"), filepath.Join(r.s.Dir, "series")) {
		content, _ := os.ReadFile(f)
		writing = append(writing, fingerprint(filepath.Base(f), string(content)))
	}
	for name, text := range wanted {
		writing = append(writing, fingerprint(name, text))
	}
	if err := t.SetState(r.a.Branch, "writing", strings.Join(writing, " ")); err != nil {
		return err
	}
	// The file series is last, so that the patches that it names exist.
	names := slices.Sorted(maps.Keys(wanted))
	for _, name := range names {
		if err := fileutil.Write(filepath.Join(r.s.Dir, name), []byte(wanted[name]), 0o666); err != nil {
			return err
		}
	}
	for _, f := range fileutil.Glob(r.s.Dir, "[0-9][0-9][0-9][0-9]-*.patch") {
		if !slices.Contains(list, filepath.Base(f)) {
			if err := os.Remove(f); err != nil {
				return err
			}
		}
	}
	s, err := p.loadSeries(r.s.Dir)
	if err != nil {
		return err
	}
	if err := t.RecordApplied(s, r.base, tip); err != nil {
		return err
	}
	return t.Do("config", "--local", "--unset", tree.StateKey(r.a.Branch, "writing"))
}

// requireOthers returns an error if this refresh changed files of another release, unless its branch has them already.
func (r *refresher) requireOthers() error {
	others := map[string]*series.Series{} // by directory
	changed := map[string]bool{}
	for k, e := range r.entries {
		if e.final == e.kept && e.final == e.tree {
			continue
		}
		for _, dir := range r.elsewhere(k.patch) {
			if others[dir] == nil {
				s, err := r.loadSeries(dir)
				if err != nil {
					return err
				}
				others[dir] = s
			}
			s := others[dir]
			// The series no longer has a file that was removed.
			i := slices.IndexFunc(s.Active, func(q *series.Patch) bool { return q.Name == k.patch })
			if f, ok := s.Active[i].Files[k.path]; !ok || f.Path == r.keptAt(k, e) {
				changed[dir] = true
			}
		}
	}
	var names, commands []string
	for _, dir := range slices.Sorted(maps.Keys(changed)) {
		s := others[dir]
		t := &tree.Tree{Git: r.program.Git.In(r.treeDir(s.Tag))}
		digest, _ := s.Digest()
		command := "make verify KUBE_VERSION=" + s.Tag
		switch t.State(s.Branch, "digest") {
		case digest:
			continue
		case "":
		default:
			command = "make refresh KUBE_VERSION=" + s.Tag
		}
		names, commands = append(names, s.Name), append(commands, command)
	}
	if len(names) == 0 {
		return nil
	}
	return console.Error(fmt.Sprintf("%s is refreshed, but files of %s have changed too. Run:", r.s.Name, strings.Join(names, " and ")), commands...)
}
