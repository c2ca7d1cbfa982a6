// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"crypto/sha256"
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

// branchCommit is a commit of the series branch, and the patch that it is.
type branchCommit struct {
	id, subject, slug string
	name              string // of the patch
	changed           map[string]file
}

func (c branchCommit) String() string { return fmt.Sprintf("%.12s (%s)", c.id, c.subject) }

// refresher is one run of refresh.
type refresher struct {
	*program
	options refreshOptions
	t       *tree
	a       *applied
	git     git // where new objects go
	scratch git // a repository of our own, so that no setting of the user's repository has a say
	s       *series
	base    string

	commits []branchCommit
	before  []branchCommit // those of the patches, when the branch and the sources were last the same
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
	p.skip = ""
	s, err := p.loadSeries(filepath.Join(p.patches, a.series))
	if err != nil {
		return err
	}
	if err := t.requireSamePatches(a, s); err != nil {
		return err
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

	base := a.base
	if o.base != "" {
		if base = t.commitID(o.base); base == "" {
			return fmt.Errorf("--base %s: no such commit in %s", o.base, t.dir)
		}
	}
	hint := "If the branch was rebased, say where it starts now: hack/patchset.sh refresh --base COMMIT"
	if !t.ok("merge-base", "--is-ancestor", base, a.branch) {
		return fail(fmt.Sprintf("%s no longer starts at %s", a.branch, base), hint)
	}
	if t.try("rev-list", "--merges", base+".."+a.branch) != "" {
		return fail(a.branch+" has merge commits, which cannot become patches", hint)
	}
	if n := t.try("rev-list", "--count", base+".."+a.branch); len(n) > 2 {
		return fail(fmt.Sprintf("%s has %s commits since %.12s", a.branch, n, base), hint)
	}
	r := &refresher{program: p, options: o, t: t, a: a, git: t.git, s: s, base: base, entries: map[owned]*entry{}}
	if r.commits, err = r.read(base + ".." + a.branch); err != nil {
		return err
	}
	if err := p.findVersion(t); err == nil && t.version != s.tag {
		p.warn("%s is made on %s, and this is %s: the patches get the hunks that fit here", s.dir, s.tag, t.version)
	}
	p.say("Refreshing %s from %s in %s (%d commits)", s.dir, a.branch, t.dir, len(r.commits))
	if r.scratch, err = t.borrow(filepath.Join(work, "repository"), t.commitID("HEAD")); err != nil {
		return err
	}
	if o.check {
		r.git = r.scratch
	}
	r.git = r.git.with("GIT_INDEX_FILE=" + filepath.Join(work, "index"))
	for _, step := range []func() error{r.nameCommits, r.readBefore, r.readKept, r.readWas, r.readTree, r.merge, r.finish} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// requireSamePatches: the patch files are those that the branch was made from.
func (t *tree) requireSamePatches(a *applied, s *series) error {
	if writing := strings.Fields(t.state(a.branch, "writing")); len(writing) > 0 {
		// A refresh that was killed while it wrote the patches left some of them old. The branch has what they are to be.
		var edited []string
		for _, f := range append(glob(s.dir, "*.patch"), filepath.Join(s.dir, "series")) {
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
		return fail("a refresh was killed, and these files are neither as they were before it nor as it writes them:",
			append(edited, "They would be overwritten. Make your changes on the branch, take the files back (git checkout -- FILE), and refresh then.")...)
	}
	if len(s.dropped) > 0 {
		return fail(fmt.Sprintf("%s/series leaves out patches, and refresh would forget them:", s.dir),
			append(s.dropped, "Put them back into series (or delete their files), make apply, and refresh then.")...)
	}
	if _, mails := s.digest(); t.state(a.branch, "mails") != mails {
		n := t.try("rev-list", "--count", a.base+".."+a.tip)
		return fail(fmt.Sprintf("%s was made from %s patches that are not the %d in %s: applied with SKIP, or they have changed since", a.branch, n, len(s.active), s.dir),
			`Run "make reverse" and "make apply", and refresh then.`)
	}
	return nil
}

// fingerprint tells a patch file, with its content, from any other.
func fingerprint(name, content string) string {
	sum := sha256.Sum256([]byte(name + "\n" + content))
	return fmt.Sprintf("%x", sum[:8])
}

// read reads commits, oldest first.
func (r *refresher) read(args ...string) ([]branchCommit, error) {
	lines, err := r.t.lines(append([]string{"log", "--reverse", "--topo-order", "--format=%H%x00%s%x00%f"}, args...)...)
	if err != nil {
		return nil, err
	}
	var commits []branchCommit
	for _, line := range lines {
		f := strings.Split(line, "\x00")
		c := branchCommit{id: f[0], subject: f[1], slug: strings.Trim(fmt.Sprintf("%.52s", f[2]), "-.")}
		if c.changed, err = r.t.changed(c.id+"^", c.id); err != nil {
			return nil, err
		}
		commits = append(commits, c)
	}
	return commits, nil
}

// nameCommits finds which patch each commit is. One with the subject of a patch is that patch; where between two such
// commits as many are left as there are patches between, they have other subjects now. Others are new.
func (r *refresher) nameCommits() error {
	position := map[string]int{} // of patches, by name
	taken := map[string]bool{}
	take := func(c *branchCommit, name string) { c.name, taken[name] = name, true }
	for i, q := range r.s.active {
		position[q.name] = i
		msg, err := r.message(q.mail)
		if err != nil {
			return err
		}
		same := func(c branchCommit) bool { return c.name == "" && c.subject == msg.subject() }
		if k := slices.IndexFunc(r.commits, same); k >= 0 {
			take(&r.commits[k], q.name)
		}
	}
	for i := 0; i < len(r.commits); i++ {
		end := i
		for end < len(r.commits) && r.commits[end].name == "" {
			end++
		}
		from, to := 0, len(r.s.active)
		if i > 0 {
			from = position[r.commits[i-1].name] + 1
		}
		if end < len(r.commits) {
			to = position[r.commits[end].name]
		}
		if to-from == end-i && !slices.ContainsFunc(r.s.active[from:to], func(q *patch) bool { return taken[q.name] }) {
			for k := range end - i {
				take(&r.commits[i+k], r.s.active[from+k].name)
			}
		}
		i = end
	}
	for i := range r.commits {
		c := &r.commits[i]
		for _, mark := range []string{"fixup! ", "squash! ", "amend! "} {
			if strings.HasPrefix(c.subject, mark) {
				return fail(fmt.Sprintf("commit %s is meant to become part of another", c),
					fmt.Sprintf("git -C %s rebase -i --autosquash %.12s", quoteShell(r.t.dir), r.base))
			}
		}
		if c.name != "" {
			continue
		}
		if c.slug == "" || taken[c.slug] {
			return fmt.Errorf("commit %s: a patch %q is there already; give the commit another subject", c, c.slug)
		}
		take(c, c.slug)
	}
	return nil
}

// index is which commit a patch is, or -1.
func (r *refresher) index(patch string) int {
	return slices.IndexFunc(r.commits, func(c branchCommit) bool { return c.name == patch })
}

func (r *refresher) has(patch string) bool { return r.index(patch) >= 0 }

func (r *refresher) entry(patch, path string) *entry {
	k := owned{patch, path}
	if r.entries[k] == nil {
		r.entries[k] = &entry{}
	}
	return r.entries[k]
}

// readBefore: the last commits up to the tip are those of the patches. They may be gone, after a rebase long ago.
func (r *refresher) readBefore() (err error) {
	if n := len(r.s.active); n > 0 && r.t.commitID(fmt.Sprintf("%s~%d", r.a.tip, n)) != "" {
		r.before, err = r.read("--first-parent", fmt.Sprintf("-n%d", n), r.a.tip)
	}
	return err
}

// readKept reads the files in the sources.
func (r *refresher) readKept() error {
	for _, rule := range r.s.travel.rules {
		if !r.has(rule.patch) {
			r.warn("hack/travel.txt: %s goes with a patch %q, which %s does not have; not carried", rule.from, rule.patch, r.s.branch)
		}
	}
	var names, paths []string
	for _, c := range r.commits {
		names = append(names, c.name)
	}
	for _, q := range r.s.active {
		names = append(names, q.name)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		files, err := r.filesOf(r.s, name)
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
				e.library, _ = r.s.travel.home(name, path)
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
		r.release, err = r.git.files(r.base, paths...)
	}
	return err
}

// owner is the entry for a path that a patch changes, or nil if it is one of the release's.
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
	e.library, _ = r.s.travel.home(patch, path)
	return e
}

// readWas reads the branch as it was when it was last the same as the sources.
func (r *refresher) readWas() error {
	for i, c := range r.before {
		for path, f := range c.changed {
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
				if k := r.index(e.library.patch); i < k {
					return fmt.Errorf("%s changes %s, which hack/travel.txt gives to patch %d", say, path, k+1)
				}
				if f.blob != "" {
					f.mode = "100644"
				}
			case f.blob == "":
				return fail(fmt.Sprintf("%s removes %s, which an earlier commit adds: a patch cannot do that", say, path), "Leave it out there (git rebase -i).")
			case f.mode != "100644" && f.mode != "100755":
				return fmt.Errorf("%s adds %s, which is no regular file (mode %s): a patch can bring only files", say, path, f.mode)
			}
			e.tree = f
		}
	}
	return nil
}

// merge decides what each file is to be.
func (r *refresher) merge() error {
	var conflicts []string
	for _, k := range r.sorted() {
		e := r.entries[k]
		switch {
		case !r.has(k.patch) && (e.library != nil || len(r.elsewhere(k.patch)) > 0):
			// Only this branch does without the patch.
			e.final = e.kept
		case e.tree == e.was || r.options.sourceWins && e.kept != e.was:
			e.final = e.kept
		case e.kept == e.was || e.kept == e.tree:
			e.final = e.tree
		case e.kept.blob == "":
			conflicts = append(conflicts, fmt.Sprintf("%s was edited on the branch, and %s removed", k.path, r.rel(r.keptAt(k, e))))
		case e.tree.blob == "":
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
	return fail(fmt.Sprintf("%d files were edited both on %s and where they are kept, so nothing is written:", len(conflicts), r.s.branch),
		append(conflicts, "Make the branch's change where the file is kept, and then: hack/patchset.sh refresh --library-wins")...)
}

func (r *refresher) sorted() []owned {
	return slices.SortedFunc(maps.Keys(r.entries), func(a, b owned) int {
		return cmp.Or(cmp.Compare(a.path, b.path), cmp.Compare(a.patch, b.patch))
	})
}

// difference is a diff from a file where it is kept to that on the branch.
func (r *refresher) difference(k owned, e *entry) (string, error) {
	diff, err := r.git.out(slices.Concat([]string{"diff"}, diffOptions, []string{e.kept.blob, e.tree.blob})...)
	if err != nil {
		return "", err
	}
	if at := strings.Index(diff, "\n@@"); at >= 0 {
		diff = diff[at+1:]
	}
	return fmt.Sprintf("--- %s (as it travels)\n+++ %s (branch)\n%s", r.rel(r.keptAt(k, e)), k.path, firstLines(diff, 40)), nil
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
	for _, rule := range r.s.travel.rules {
		had, has := false, false
		for _, e := range r.entries {
			had = had || e.library == rule && e.kept.blob != ""
			has = has || e.library == rule && e.final.blob != ""
		}
		if had && !has {
			return nil, fail(fmt.Sprintf("%s has none of the files any more that %s brings from %s in the library", r.s.branch, rule.patch, rule.from),
				fmt.Sprintf("Remove the line from %s, and refresh then.", r.s.travel.file))
		}
	}
	for _, k := range r.sorted() {
		e := r.entries[k]
		if e.final == e.kept {
			continue
		}
		at := r.keptAt(k, e)
		if e.final.blob == "" {
			if rel, ok := strings.CutPrefix(at, r.patches+string(filepath.Separator)+"v"); ok {
				return nil, fail(fmt.Sprintf("%s was removed on %s, but is the version of v%s", k.path, r.s.branch, strings.Split(rel, string(filepath.Separator))[0]),
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
			if content, err = r.s.travel.toLibrary(e.library, k.path, content); err != nil {
				return nil, err
			}
		}
		changes[at] = source{path: k.path, exec: e.final.mode == "100755", content: append([]byte{}, content...)}
	}
	return changes, nil
}

// elsewhere are the directories of the other series that have a patch of this name.
func (r *refresher) elsewhere(name string) []string {
	return slices.DeleteFunc(r.allSeries(), func(dir string) bool {
		return dir == r.s.dir || len(glob(dir, "[0-9][0-9][0-9][0-9]-"+name+".patch")) == 0
	})
}

// rebuild makes the commits of the branch anew, with the files as they are to be, and returns which patches they are.
func (r *refresher) rebuild() ([]composed, error) {
	brings := map[string]bool{}
	for k := range r.entries {
		brings[k.path] = true
	}
	var done []composed
	parent := r.base
	for i, c := range r.commits {
		if err := r.git.do("read-tree", c.id); err != nil {
			return nil, err
		}
		staged := map[string]file{}
		for k := range r.entries {
			staged[k.path] = r.release[k.path]
		}
		for _, earlier := range r.commits[:i+1] {
			for k, e := range r.entries {
				if k.patch == earlier.name && e.final.blob != "" {
					staged[k.path] = e.final
				}
			}
		}
		if err := r.git.stage(staged); err != nil {
			return nil, err
		}
		author, err := r.t.lines("log", "-1", "--format=%an%n%ae%n%ad", "--date=raw", c.id)
		if err != nil {
			return nil, err
		}
		raw, err := r.t.bytes("cat-file", "commit", c.id)
		if err != nil {
			return nil, err
		}
		_, body, _ := strings.Cut(string(raw), "\n\n")
		text, err := r.git.input(body).bytes("stripspace")
		if err != nil {
			return nil, err
		}
		next, err := r.git.commitIndex(parent, string(text),
			"GIT_AUTHOR_NAME="+author[0], "GIT_AUTHOR_EMAIL="+author[1], "GIT_AUTHOR_DATE=@"+author[2], "GIT_COMMITTER_DATE=@"+author[2])
		if err != nil {
			return nil, err
		}
		if next == parent {
			r.note("commit %s is gone: all that it changed is another patch's", c)
			continue
		}
		parent = next
		mail, err := r.stored(r.scratch, next, brings)
		if err != nil {
			return nil, err
		}
		q := &patch{file: fmt.Sprintf("%04d-%s.patch", len(done)+1, c.name), name: c.name}
		done = append(done, composed{q, next, mail})
	}
	return done, nil
}

// seriesText is the file "series" with other patches. The lines above a patch stay there, as long as it has its name.
func seriesText(old string, list []string) string {
	if old == "" {
		old = "# In this order. Comment a line out to leave that patch out.\n"
	}
	above := map[string]string{}
	text, lines := "", ""
	for line := range strings.Lines(old) {
		if m := patchFile.FindStringSubmatch(strings.TrimSpace(line)); m == nil {
			lines += line
		} else if len(above) == 0 {
			// The top of the file stays there, whatever comes first.
			above[m[2]], text, lines = "", lines, ""
		} else {
			above[m[2]], lines = lines, ""
		}
	}
	if len(above) == 0 {
		text, lines = lines, ""
	}
	for _, file := range list {
		text += above[patchFile.FindStringSubmatch(file)[2]] + file + "\n"
	}
	return text + lines
}

// finish writes everything, or says what it would write.
func (r *refresher) finish() error {
	changes, err := r.sourceChanges()
	if err != nil {
		return err
	}
	commits, err := r.rebuild()
	if err != nil {
		return err
	}
	head := r.t.commitID("HEAD")
	tip := r.base
	was := map[string]string{} // the patch files, by name
	for _, q := range r.s.active {
		was[q.file] = q.mail
	}
	wanted := map[string]string{}
	list := []string{}
	changed := len(changes) > 0
	for _, c := range commits {
		tip = c.commit
		name := c.patch.file
		list = append(list, name)
		if old, ok := was[name]; !ok {
			r.note("%s is new", name)
		} else if old != c.mail {
			r.note("%s changed", name)
		} else {
			continue
		}
		wanted[name] = c.mail
	}
	for _, q := range r.s.active {
		if !slices.Contains(list, q.file) {
			r.note("%s is gone", q.file)
			changed = true
		}
	}
	old, _ := os.ReadFile(filepath.Join(r.s.dir, "series"))
	if text := seriesText(string(old), list); text != string(old) {
		wanted["series"] = text
	}
	changed = changed || tip != head || len(wanted) > 0
	if err := r.sayFiles(); err != nil {
		return err
	}
	if changed && r.options.check {
		return fmt.Errorf("%s and its sources differ, as said above: run \"make refresh\"", r.s.branch)
	}
	if !r.options.check {
		if err := r.write(head, tip, changes, wanted, list); err != nil {
			return err
		}
	}
	if !changed {
		r.say("Nothing to refresh: %d patches, all as they were", len(list))
		return nil
	}
	r.say("Refreshed: %d patches in %s", len(list), r.s.dir)
	return r.requireOthers()
}

// sayFiles says which files go which way.
func (r *refresher) sayFiles() error {
	for _, k := range r.sorted() {
		e := r.entries[k]
		if !r.has(k.patch) {
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
		if r.options.check && e.kept.blob != "" && e.tree.blob != "" {
			diff, err := r.difference(k, e)
			if err != nil {
				return err
			}
			fmt.Fprintln(r.out, diff)
		}
	}
	return nil
}

// write moves the branch, and writes the sources and the patch files that are wanted; those that are not in the list go.
func (r *refresher) write(head, tip string, changes map[string]source, wanted map[string]string, list []string) error {
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
		r.note("%s is now at %.12s", r.a.branch, tip)
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
		mode := os.FileMode(0o666)
		if f.exec {
			mode = 0o777
		}
		if f.content != nil {
			if err := writeFile(at, f.content, mode); err != nil {
				return err
			}
		}
	}
	// Whoever is killed from here on leaves old patches among new ones, and no others.
	var writing []string
	for _, f := range append(glob(r.s.dir, "*.patch"), filepath.Join(r.s.dir, "series")) {
		content, _ := os.ReadFile(f)
		writing = append(writing, fingerprint(filepath.Base(f), string(content)))
	}
	for name, text := range wanted {
		writing = append(writing, fingerprint(name, text))
	}
	if err := t.setState(r.a.branch, "writing", strings.Join(writing, " ")); err != nil {
		return err
	}
	// The series last, so that the patches that it names are always there.
	names := slices.Sorted(maps.Keys(wanted))
	for _, name := range names {
		if err := writeFile(filepath.Join(r.s.dir, name), []byte(wanted[name]), 0o666); err != nil {
			return err
		}
	}
	for _, f := range glob(r.s.dir, "[0-9][0-9][0-9][0-9]-*.patch") {
		if !slices.Contains(list, filepath.Base(f)) {
			if err := os.Remove(f); err != nil {
				return err
			}
		}
	}
	s, err := p.loadSeries(r.s.dir)
	if err != nil {
		return err
	}
	if err := p.recordApplied(t, s, r.base, tip); err != nil {
		return err
	}
	return t.do("config", "--local", "--unset", stateKey(r.a.branch, "writing"))
}

// requireOthers: no other release has files that this refresh changed, unless its branch has them already as they are now.
func (r *refresher) requireOthers() error {
	others := map[string]*series{} // by directory
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
			// A file that was removed is known no more.
			i := slices.IndexFunc(s.active, func(q *patch) bool { return q.name == k.patch })
			if f, ok := s.active[i].files[k.path]; !ok || f.path == r.keptAt(k, e) {
				changed[dir] = true
			}
		}
	}
	var names, commands []string
	for _, dir := range slices.Sorted(maps.Keys(changed)) {
		s := others[dir]
		t := &tree{git: r.program.git(r.treeDir(s.tag))}
		digest, _ := s.digest()
		command := "make verify KUBE_VERSION=" + s.tag
		switch t.state(s.branch, "digest") {
		case digest:
			continue
		case "":
		default:
			command = "make refresh KUBE_VERSION=" + s.tag
		}
		names, commands = append(names, s.name), append(commands, command)
	}
	if len(names) == 0 {
		return nil
	}
	return fail(fmt.Sprintf("%s is refreshed, but %s has files that have changed, too. Run:", r.s.name, strings.Join(names, " and ")), commands...)
}
