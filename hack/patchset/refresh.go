// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

type refreshOptions struct {
	base       string
	sourceWins bool
	check      bool
}

// entry is a file that a patch brings: as it was when the branch and the sources were last the same, as it is in the
// sources, on the branch, and as it is to be. Where there is no such file there is no blob.
type entry struct {
	source          source
	was, kept, tree file
	final           file
	library         *rule
}

// owned is a path and the patch that brings it. A patch may bring a version of its own of an earlier one's file.
type owned struct{ patch, path string }

// refresher is one run of refresh.
type refresher struct {
	*program
	t    *tree
	git  git // where new objects go
	s    *series
	m    *travel
	base string

	commits []string // of the branch
	before  []string // the commits of the patches, when the branch and the sources were last the same
	names   []string // of their patches
	entries map[owned]*entry
	release map[string]file // the files of the release, of those that matter here
}

func (p *program) refresh(o refreshOptions) error {
	t, err := p.locate()
	if err != nil {
		return err
	}
	a, err := t.requireApplied()
	if err != nil {
		return err
	}
	all := *p
	all.skip = ""
	s, err := all.loadSeries(filepath.Join(p.patches, a.series))
	if err != nil {
		return err
	}
	// A refresh that was killed while it wrote the patches left some of them old. The branch has what they are to be.
	half := t.state(a.branch, "writing") != ""
	if len(s.dropped) > 0 && !half {
		return fail(fmt.Sprintf("%s/series leaves out patches, and refresh would forget them:", s.dir),
			append(s.dropped, "Put them back into series (or delete their files), make apply, and refresh then.")...)
	}
	if _, mails := s.digest(); t.state(a.branch, "mails") != mails && !half {
		n := t.try("rev-list", "--count", a.base+".."+a.tip)
		return fail(fmt.Sprintf("%s was made from %s patches that are not the %d in %s: applied with SKIP, or they have changed since", a.branch, n, len(s.active), s.dir),
			`Run "make reverse" and "make apply", and refresh then.`)
	}
	if err := t.requireNoOperation(); err != nil {
		return err
	}
	if err := t.requireClean("refreshing the patches"); err != nil {
		return err
	}
	work, remove, err := scratch(p.output)
	if err != nil {
		return err
	}
	defer remove()

	head := t.commitID("refs/heads/" + a.branch)
	base := a.base
	if o.base != "" {
		if base = t.commitID(o.base); base == "" {
			return fail(fmt.Sprintf("--base %s: no such commit in %s", o.base, t.dir))
		}
	}
	hint := "If the branch was rebased, say where it starts now: hack/patchset.sh refresh --base COMMIT"
	if !t.ok("merge-base", "--is-ancestor", base, head) {
		return fail(fmt.Sprintf("%s no longer starts at %s", a.branch, base), hint)
	}
	commits, err := t.lines("rev-list", "--reverse", "--topo-order", base+".."+head)
	if err != nil {
		return err
	}
	if len(commits) > 99 {
		return fail(fmt.Sprintf("%s has %d commits since %.12s", a.branch, len(commits), base), hint)
	}
	if t.try("rev-list", "--merges", base+".."+head) != "" {
		return fail(a.branch+" has merge commits, which cannot become patches", hint)
	}
	if err := p.findVersion(t); err == nil && t.version != s.tag {
		p.warn("%s is made on %s, and this is %s: the patches get the hunks that fit here", s.dir, s.tag, t.version)
	}
	p.say("Refreshing %s from %s in %s (%d commits)", s.dir, a.branch, t.dir, len(commits))

	// In a repository of our own, so that no setting of the user's repository has a say.
	scratchRepo, err := t.borrow(filepath.Join(work, "repository"), head)
	if err != nil {
		return err
	}
	r := &refresher{program: p, t: t, git: t.git, s: s, base: base, commits: commits, entries: map[owned]*entry{}}
	if o.check {
		r.git = scratchRepo
	}
	r.git = r.git.with("GIT_INDEX_FILE=" + filepath.Join(work, "index"))
	if r.m, err = p.readTravel(); err != nil {
		return err
	}
	if r.names, err = r.nameCommits(); err != nil {
		return err
	}
	if err := r.findBefore(a.tip); err != nil {
		return err
	}
	if err := r.readKept(); err != nil {
		return err
	}
	if err := r.readWas(); err != nil {
		return err
	}
	if err := r.readTree(); err != nil {
		return err
	}
	if err := r.merge(o.sourceWins); err != nil {
		return err
	}
	return r.finish(a, head, scratchRepo, o.check)
}

// nameCommits finds which patch each commit is. One with the subject of a patch is that patch; where between two such
// commits as many are left as there are patches between, they have other subjects now. Others are new.
func (r *refresher) nameCommits() ([]string, error) {
	names := make([]string, len(r.commits))
	subjects := make([]string, len(r.commits))
	for i, c := range r.commits {
		var err error
		if subjects[i], err = r.t.out("log", "-1", "--format=%s", c); err != nil {
			return nil, err
		}
		for _, mark := range []string{"fixup! ", "squash! ", "amend! "} {
			if strings.HasPrefix(subjects[i], mark) {
				return nil, fail(fmt.Sprintf("commit %.12s (%s) is meant to become part of another", c, subjects[i]),
					fmt.Sprintf("git -C %s rebase -i --autosquash %.12s", quoteShell(r.t.dir), r.base))
			}
		}
	}
	old := make([]string, len(r.s.active))
	position := map[string]int{} // of patches, by name
	for i, q := range r.s.active {
		msg, err := r.message(q.mail)
		if err != nil {
			return nil, err
		}
		old[i] = msg.subject()
		position[q.name] = i
	}
	taken := map[string]bool{}
	for i, subject := range subjects {
		if j := slices.Index(old, subject); j >= 0 && !taken[r.s.active[j].name] {
			names[i] = r.s.active[j].name
			taken[names[i]] = true
		}
	}
	for i := 0; i < len(names); {
		end := i
		for end < len(names) && names[end] == "" {
			end++
		}
		from, to := 0, len(old)
		if i > 0 {
			from = position[names[i-1]] + 1
		}
		if end < len(names) {
			to = position[names[end]]
		}
		if end > i && to-from == end-i && !slices.ContainsFunc(r.s.active[from:to], func(q *patch) bool { return taken[q.name] }) {
			for k := range end - i {
				names[i+k] = r.s.active[from+k].name
				taken[names[i+k]] = true
			}
		}
		i = max(end, i+1)
	}
	for i, c := range r.commits {
		if names[i] != "" {
			continue
		}
		slug := strings.Trim(fmt.Sprintf("%.52s", r.t.try("log", "-1", "--format=%f", c)), "-.")
		if slug == "" || taken[slug] {
			return nil, fail(fmt.Sprintf("commit %.12s (%s): a patch %q is there already; give the commit another subject", c, subjects[i], slug))
		}
		names[i] = slug
		taken[slug] = true
	}
	return names, nil
}

func (r *refresher) entry(patch, path string) *entry {
	k := owned{patch, path}
	if r.entries[k] == nil {
		r.entries[k] = &entry{}
	}
	return r.entries[k]
}

// readKept reads the files in the sources.
func (r *refresher) readKept() error {
	names := slices.Clone(r.names)
	for _, q := range r.s.active {
		if !slices.Contains(names, q.name) {
			names = append(names, q.name)
		}
	}
	var paths []string
	for _, rule := range r.m.rules {
		if !slices.Contains(r.names, rule.patch) {
			r.warn("hack/travel.txt: %s goes with a patch %q, which %s does not have; not carried", rule.from, rule.patch, r.s.branch)
		}
	}
	for _, name := range names {
		files, err := r.filesOf(r.m, r.s, name)
		if err != nil {
			return err
		}
		for path, f := range files {
			e := r.entry(name, path)
			e.source = f
			blob, err := r.git.store(f.content)
			if err != nil {
				return err
			}
			e.kept = file{f.mode(), blob}
			if f.library {
				e.library, _ = r.m.home(name, path)
			}
			paths = append(paths, path)
		}
	}
	for i, c := range slices.Concat(r.commits, r.before) {
		from := c + "^"
		if i < len(r.commits) {
			from = r.parent(i)
		}
		changed, err := r.git.changed(from, c)
		if err != nil {
			return err
		}
		paths = slices.AppendSeq(paths, maps.Keys(changed))
	}
	slices.Sort(paths)
	var err error
	if paths = slices.Compact(paths); len(paths) > 0 {
		r.release, err = r.git.files(r.base, paths...)
	}
	return err
}

func (r *refresher) parent(i int) string {
	if i == 0 {
		return r.base
	}
	return r.commits[i-1]
}

// owner is the entry for a path that a patch changes, or nil if it is one of the release's.
func (r *refresher) owner(patch, path string) *entry {
	for k, e := range r.entries {
		if k.path == path && e.library != nil && slices.Contains(r.names, k.patch) {
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
	e.library, _ = r.m.home(patch, path)
	return e
}

// findBefore: the last commits up to tip are those of the patches. They may be gone, after a rebase long ago.
func (r *refresher) findBefore(tip string) error {
	if len(r.s.active) == 0 || r.t.commitID(tip) == "" {
		return nil
	}
	commits, err := r.t.lines("rev-list", "--reverse", "--first-parent", fmt.Sprint("-n", len(r.s.active)), tip)
	if err != nil || len(commits) != len(r.s.active) || r.t.commitID(commits[0]+"^") == "" {
		return err
	}
	r.before = commits
	return nil
}

// readWas reads the branch as it was when it was last the same as the sources.
func (r *refresher) readWas() error {
	for i, c := range r.before {
		changed, err := r.git.changed(c+"^", c)
		if err != nil {
			return err
		}
		for path, f := range changed {
			if f.blob == "" {
				continue
			}
			if e := r.owner(r.s.active[i].name, path); e != nil {
				e.was = f
			}
		}
	}
	return nil
}

// readTree reads the branch.
func (r *refresher) readTree() error {
	for i, c := range r.commits {
		changed, err := r.git.changed(r.parent(i), c)
		if err != nil {
			return err
		}
		say := func() string { return fmt.Sprintf("commit %d (%s)", i+1, r.t.try("log", "-1", "--format=%h %s", c)) }
		if len(changed) == 0 {
			return fail(say() + " changes nothing")
		}
		for path, f := range changed {
			e := r.owner(r.names[i], path)
			switch {
			case e == nil:
			case e.library != nil:
				if k := slices.Index(r.names, e.library.patch); i < k {
					return fail(fmt.Sprintf("%s changes %s, which hack/travel.txt gives to patch %d", say(), path, k+1))
				}
				e.tree = f
			case f.blob == "":
				return fail(fmt.Sprintf("%s removes %s, which an earlier commit adds: a patch cannot do that", say(), path), "Leave it out there (git rebase -i).")
			case f.mode != "100644" && f.mode != "100755":
				return fail(fmt.Sprintf("%s adds %s, which is no regular file (mode %s): a patch can bring only files", say(), path, f.mode))
			default:
				e.tree = f
			}
		}
	}
	for _, e := range r.entries {
		if e.library != nil && e.tree.blob != "" {
			e.tree.mode = "100644"
		}
	}
	return nil
}

// merge decides what each file is to be.
func (r *refresher) merge(sourceWins bool) error {
	var conflicts []string
	count := 0
	for _, k := range r.sorted() {
		e := r.entries[k]
		switch {
		case !slices.Contains(r.names, k.patch) && (e.library != nil || r.usedElsewhere(k.patch)):
			// Only this branch does without the patch.
			e.final = e.kept
		case e.tree == e.was || sourceWins && e.kept != e.was:
			e.final = e.kept
		case e.kept == e.was || e.kept == e.tree:
			e.final = e.tree
		default:
			count++
			diff, err := r.conflict(k, e)
			if err != nil {
				return err
			}
			conflicts = append(conflicts, diff)
		}
	}
	if count == 0 {
		return nil
	}
	return fail(fmt.Sprintf("%d files were edited both on %s and where they are kept, so nothing is written:", count, r.s.branch),
		append(conflicts, "Make the branch's change where the file is kept, and then: hack/patchset.sh refresh --library-wins")...)
}

func (r *refresher) sorted() []owned {
	return slices.SortedFunc(maps.Keys(r.entries), func(a, b owned) int {
		return cmp.Or(cmp.Compare(a.path, b.path), cmp.Compare(a.patch, b.patch))
	})
}

// conflict shows what was edited on both sides.
func (r *refresher) conflict(k owned, e *entry) (string, error) {
	name := r.rel(r.keptAt(k, e))
	switch {
	case e.kept.blob == "":
		return fmt.Sprintf("%s was edited on the branch, and %s removed", k.path, name), nil
	case e.tree.blob == "":
		return fmt.Sprintf("%s was removed on the branch, and %s edited", k.path, name), nil
	}
	return r.difference(k, e)
}

// difference is a diff from a file where it is kept to that on the branch.
func (r *refresher) difference(k owned, e *entry) (string, error) {
	diff, err := r.git.out(append(append([]string{"diff"}, diffOptions...), e.kept.blob, e.tree.blob)...)
	if err != nil {
		return "", err
	}
	lines := strings.Split(diff, "\n")
	if at := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "@@") }); at >= 0 {
		lines = lines[at:]
	}
	if len(lines) > 40 {
		lines = append(lines[:40], "...")
	}
	return fmt.Sprintf("--- %s (as it travels)\n+++ %s (branch)\n%s", r.rel(r.keptAt(k, e)), k.path, strings.Join(lines, "\n")), nil
}

// keptAt is where a file is kept, or would be.
func (r *refresher) keptAt(k owned, e *entry) string {
	if e.source.path != "" {
		return e.source.path
	}
	if e.library != nil {
		return filepath.Join(r.root, e.library.inLibrary(k.path))
	}
	return filepath.Join(r.patches, sourceDir, k.patch, filepath.FromSlash(k.path))
}

func (p *program) rel(path string) string {
	if rel, err := filepath.Rel(p.root, path); err == nil && filepath.IsLocal(rel) {
		return rel
	}
	return path
}

// sourceChanges are the files to be written where they are kept; those to be removed have no content.
func (r *refresher) sourceChanges() (map[string]source, error) {
	changes := map[string]source{}
	for _, rule := range r.m.rules {
		had, has := false, false
		for _, e := range r.entries {
			if e.library == rule {
				had, has = had || e.kept.blob != "", has || e.final.blob != ""
			}
		}
		if had && !has {
			return nil, fail(fmt.Sprintf("%s has none of the files any more that %s brings from %s in the library", r.s.branch, rule.patch, rule.from),
				fmt.Sprintf("Remove the line from %s, and refresh then.", r.m.file))
		}
	}
	for _, k := range r.sorted() {
		e := r.entries[k]
		if e.final == e.kept {
			continue
		}
		at := r.keptAt(k, e)
		if e.final.blob == "" {
			if strings.HasPrefix(at, filepath.Join(r.s.dir, sourceDir)+string(filepath.Separator)) {
				return nil, fail(fmt.Sprintf("%s was removed on %s, but is a version of this release alone", k.path, r.s.branch),
					fmt.Sprintf("Remove %s and its line in %s, then refresh.", at, reasonsFile))
			}
			changes[at] = source{path: k.path}
			continue
		}
		content, err := r.git.bytes("cat-file", "blob", e.final.blob)
		if err != nil {
			return nil, err
		}
		if err := checkContent(k.path, content); err != nil {
			return nil, err
		}
		if e.library != nil {
			if content, err = r.m.toLibrary(e.library, k.path, content); err != nil {
				return nil, err
			}
		}
		changes[at] = source{path: k.path, exec: e.final.mode == "100755", content: append([]byte{}, content...)}
	}
	return changes, nil
}

// usedElsewhere: another release has a patch of this name.
func (r *refresher) usedElsewhere(name string) bool {
	return slices.ContainsFunc(glob(r.patches, "v*"), func(dir string) bool {
		return dir != r.s.dir && len(glob(dir, "[0-9][0-9][0-9][0-9]-"+name+".patch")) > 0
	})
}

// rebuild makes the commits of the branch anew, with the files as they are to be, and returns which patches they are.
func (r *refresher) rebuild() ([]composed, error) {
	var done []composed
	parent := r.base
	for i, c := range r.commits {
		if err := r.git.do("read-tree", c); err != nil {
			return nil, err
		}
		staged := map[string]file{}
		for k := range r.entries {
			staged[k.path] = r.release[k.path]
		}
		for _, name := range r.names[:i+1] {
			for k, e := range r.entries {
				if k.patch == name && e.final.blob != "" {
					staged[k.path] = e.final
				}
			}
		}
		if err := r.git.stage(staged); err != nil {
			return nil, err
		}
		next, err := r.git.out("write-tree")
		if err != nil {
			return nil, err
		}
		now, err := r.git.out("rev-parse", parent+"^{tree}")
		if err != nil {
			return nil, err
		}
		if now == next {
			r.note("commit %s is gone: all that it changed is another patch's", r.t.try("log", "-1", "--format=%h (%s)", c))
			continue
		}
		f, err := r.t.out("log", "-1", "--format=%an%n%ae%n%ad", "--date=raw", c)
		if err != nil {
			return nil, err
		}
		author := strings.Split(f, "\n")
		raw, err := r.t.bytes("cat-file", "commit", c)
		if err != nil {
			return nil, err
		}
		_, body, _ := strings.Cut(string(raw), "\n\n")
		text, err := r.git.input(body).bytes("stripspace")
		if err != nil {
			return nil, err
		}
		parent, err = r.git.with("GIT_AUTHOR_NAME="+author[0], "GIT_AUTHOR_EMAIL="+author[1], "GIT_AUTHOR_DATE=@"+author[2], "GIT_COMMITTER_DATE=@"+author[2]).
			input(string(text)).out("commit-tree", next, "-p", parent)
		if err != nil {
			return nil, err
		}
		q := &patch{number: len(done) + 1, name: r.names[i]}
		q.file = fmt.Sprintf("%04d-%s.patch", q.number, q.name)
		done = append(done, composed{q, parent})
	}
	return done, nil
}

// seriesText is the file "series" with other patches. The lines above a patch stay there, as long as it has its name.
func seriesText(old string, list []string) string {
	if old == "" {
		old = "# In this order. Comment a line out to leave that patch out.\n"
	}
	above := map[string]string{}
	top, lines := true, ""
	for _, line := range strings.SplitAfter(old, "\n") {
		m := patchFile.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			lines += line
			continue
		}
		name := m[2]
		if top {
			name, top = "", false
		}
		above[name], lines = lines, ""
	}
	if top {
		above[""], lines = lines, ""
	}
	text := above[""]
	for _, file := range list {
		text += above[patchFile.FindStringSubmatch(file)[2]] + file + "\n"
	}
	return text + lines
}

// finish writes everything, or says what it would write.
func (r *refresher) finish(a *applied, head string, scratchRepo git, check bool) error {
	changes, err := r.sourceChanges()
	if err != nil {
		return err
	}
	commits, err := r.rebuild()
	if err != nil {
		return err
	}
	tip := r.base
	brings := map[string]bool{}
	for k := range r.entries {
		brings[k.path] = true
	}
	wanted := map[string][]byte{}
	list := []string{}
	for _, c := range commits {
		tip = c.commit
		mail, err := r.stored(scratchRepo, c.commit, func(path string) bool { return brings[path] })
		if err != nil {
			return err
		}
		wanted[c.patch.file] = []byte(mail)
		list = append(list, c.patch.file)
	}
	seriesFile := filepath.Join(r.s.dir, "series")
	old, _ := os.ReadFile(seriesFile)
	newSeries := seriesText(string(old), list)

	changed := tip != head || newSeries != string(old)
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		i := slices.IndexFunc(r.s.active, func(q *patch) bool { return q.file == name })
		if i < 0 {
			r.note("%s is new", name)
		} else if r.s.active[i].mail != string(wanted[name]) {
			r.note("%s changed", name)
		} else {
			delete(wanted, name)
			continue
		}
		changed = true
	}
	for _, q := range r.s.active {
		if !slices.Contains(list, q.file) {
			r.note("%s is gone", q.file)
			changed = true
		}
	}
	for _, k := range r.sorted() {
		e := r.entries[k]
		if !slices.Contains(r.names, k.patch) {
			continue
		}
		switch name := r.rel(r.keptAt(k, e)); {
		case e.final != e.tree:
			r.note("%s -> %s on the branch", name, k.path)
		case e.final != e.kept:
			r.note("%s on the branch -> %s", k.path, name)
		default:
			continue
		}
		if check && e.kept.blob != "" && e.tree.blob != "" {
			diff, err := r.difference(k, e)
			if err != nil {
				return err
			}
			fmt.Fprintln(r.out, diff)
		}
	}
	changed = changed || len(changes) > 0
	if check {
		if changed {
			return fail(fmt.Sprintf("%s and its sources differ, as said above: run \"make refresh\"", r.s.branch))
		}
		r.say("Nothing to refresh: %d patches, all as they were", len(list))
		return nil
	}

	// Where it ignores a file, git does not mind overwriting it.
	onBranch, err := r.t.changed(head, tip)
	if err != nil {
		return err
	}
	maps.DeleteFunc(onBranch, func(_ string, f file) bool { return f.blob == "" })
	if err := r.t.requireReady(slices.Sorted(maps.Keys(onBranch))); err != nil {
		return err
	}
	// All or nothing from here on. The branch first, because git may still refuse that, and then nothing has changed.
	ignoreSignals()
	p := r.uninterrupted()
	t := &tree{git: p.git(r.t.dir), kind: r.t.kind, version: r.t.version}
	if tip != head {
		if err := t.do("reset", "-q", "--keep", tip); err != nil {
			return err
		}
		r.note("%s is now at %.12s", a.branch, tip)
	}
	for at, f := range changes {
		if f.content == nil {
			if err := os.Remove(at); err != nil {
				return err
			}
			removeEmpty("/", filepath.Dir(at))
		}
	}
	for at, f := range changes {
		if f.content == nil {
			continue
		}
		mode := os.FileMode(0o666)
		if f.exec {
			mode = 0o777
		}
		if err := writeFile(at, f.content, mode); err != nil {
			return err
		}
	}
	if err := t.setState(a.branch, "writing", "true"); err != nil {
		return err
	}
	for name, mail := range wanted {
		if err := writeFile(filepath.Join(r.s.dir, name), mail, 0o666); err != nil {
			return err
		}
	}
	if newSeries != string(old) {
		if err := writeFile(seriesFile, []byte(newSeries), 0o666); err != nil {
			return err
		}
	}
	gone := r.s.dropped
	for _, q := range r.s.active {
		gone = append(gone, q.file)
	}
	for _, name := range gone {
		if !slices.Contains(list, name) {
			if err := os.Remove(filepath.Join(r.s.dir, name)); err != nil {
				return err
			}
		}
	}
	p.skip = ""
	s, err := p.loadSeries(r.s.dir)
	if err != nil {
		return err
	}
	if err := p.recordApplied(t, s, r.base, tip); err != nil {
		return err
	}
	if err := t.do("config", "--local", "--unset", stateKey(a.branch, "writing")); err != nil {
		return err
	}
	if changed {
		r.say("Refreshed: %d patches in %s", len(list), r.s.dir)
	} else {
		r.say("Nothing to refresh: %d patches, all as they were", len(list))
	}
	return nil
}
