// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
)

type kind int

const (
	missing kind = iota
	plain        // sources without git
	repository
)

func (k kind) String() string { return [...]string{"missing", "plain", "git"}[k] }

// tree is a kubernetes source tree. What is known about an applied series is kept in its git config, in the branch's own
// section, so that deleting the branch forgets it:
//
//	branch.<name>.kubelet-backoff-base     the commit the series was applied to
//	branch.<name>.kubelet-backoff-origin   what was checked out before: refs/heads/x, or a commit
//	branch.<name>.kubelet-backoff-tip      the last commit of the complete series; missing while it is incomplete
//	branch.<name>.kubelet-backoff-digest   a digest of the series that was applied, with the files it brings
//	branch.<name>.kubelet-backoff-mails    a digest of its patch files alone
//	branch.<name>.kubelet-backoff-writing  refresh has begun to write the patches, and not ended
//	kubelet-backoff.made-repository        apply made this repository around a plain source tree
type tree struct {
	git
	kind    kind
	version string // the release it was made from
}

var versionPattern = regexp.MustCompile(`^v1\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-(alpha|beta|rc)\.(0|[1-9]\d*))?$`)

// normalVersion is v1.37.1 for v1.37.1 and 1.37.1.
func normalVersion(text string) (string, error) {
	v := text
	if v != "" && v[0] >= '0' && v[0] <= '9' {
		v = "v" + v
	}
	if !versionPattern.MatchString(v) {
		return "", fmt.Errorf("%q is not a kubernetes release: it must look like v1.37.1 or v1.38.0-beta.0", text)
	}
	return v, nil
}

var forkPattern = regexp.MustCompile(`^(v1\.\d+\.\d+)(-(?:alpha|beta|rc)\.\d+)?([-+.].*)?$`)

// releaseOf is the release in a tag, a fork's suffix dropped: v1.37.1-acme.3 -> v1.37.1.
func releaseOf(tag string) string {
	m := forkPattern.FindStringSubmatch(tag)
	if m == nil {
		return ""
	}
	return m[1] + m[2]
}

// stagingVersion is the version of a release's staging modules.
func stagingVersion(version string) string { return "v0." + strings.TrimPrefix(version, "v1.") }

var plainWord = regexp.MustCompile(`^[\w./+:@%-]+$`)

func quoteShell(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// wantedVersion is KUBE_VERSION, or else the release that the newest series was made on.
func (p *program) wantedVersion() (string, error) {
	if p.kubeVersion != "" {
		return normalVersion(p.kubeVersion)
	}
	dirs := p.allSeries()
	if len(dirs) == 0 {
		return "", fmt.Errorf("no series in %s, so KUBE_VERSION must be given, e.g. KUBE_VERSION=v1.37.1", p.patches)
	}
	b, err := readBase(dirs[len(dirs)-1])
	return b.tag, err
}

// locate finds the tree. It fetches nothing.
func (p *program) locate() (*tree, error) {
	t := &tree{}
	dir, hint := p.kubeRoot, ""
	if dir != "" {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return nil, fmt.Errorf("KUBE_ROOT=%s is not a directory", dir)
		}
		if strings.Contains(dir, "\n") {
			return nil, fmt.Errorf("KUBE_ROOT=%q: git does not take a line break in a path", dir)
		}
		real, err := filepath.EvalSymlinks(dir)
		if err == nil {
			dir, err = filepath.Abs(real)
		}
		if err != nil {
			return nil, fmt.Errorf("KUBE_ROOT=%s cannot be entered: %w", p.kubeRoot, err)
		}
	} else {
		var err error
		if t.version, err = p.wantedVersion(); err != nil {
			return nil, err
		}
		dir = p.treeDir(t.version)
		hint = "Remove that directory; it is then fetched anew."
	}
	t.git = p.git(dir)
	if !exists(dir) {
		return t, nil
	}
	mod, _ := os.ReadFile(filepath.Join(dir, "go.mod"))
	if !hasLine(string(mod), "module k8s.io/kubernetes") {
		return nil, fail(fmt.Sprintf("%s is not a kubernetes source tree: its go.mod must say \"module k8s.io/kubernetes\"", dir), hint)
	}
	// A plain tree may lie inside some other repository: only its own .git counts.
	if !exists(filepath.Join(dir, ".git")) {
		t.kind = plain
		return t, nil
	}
	t.kind = repository
	if err := t.do("rev-parse", "--git-dir"); err != nil {
		return nil, fail(fmt.Sprintf("%s/.git is there, but git does not take it for a repository", dir), err.Error())
	}
	if t.commitID("HEAD") == "" {
		return nil, fmt.Errorf("the git repository %s has no commit", dir)
	}
	return t, nil
}

func (p *program) treeDir(version string) string {
	return filepath.Join(p.output, version, "kubernetes")
}

// findVersion sets t.version.
func (p *program) findVersion(t *tree) error {
	if p.kubeRoot == "" {
		return nil
	}
	if p.kubeVersion != "" {
		var err error
		if t.version, err = normalVersion(p.kubeVersion); err != nil {
			return err
		}
	}
	if t.kind == repository {
		rev := cmp.Or(t.state(t.branch(), "base"), "HEAD")
		all, _ := t.lines("tag", "--list", "v1.*", "--points-at", rev)
		tags := slices.DeleteFunc(slices.Clone(all), func(tag string) bool { return !versionPattern.MatchString(tag) })
		// At the first alpha release of a minor version, the tree is still of the one before.
		if m := t.minor(); m != "" {
			tags = slices.DeleteFunc(tags, func(tag string) bool { return semver.MajorMinor(tag) != m })
		}
		if len(tags) > 0 {
			t.version = cmp.Or(t.version, slices.MaxFunc(tags, semver.Compare))
			if !slices.Contains(tags, t.version) {
				return fail(fmt.Sprintf("KUBE_VERSION is %s, but KUBE_ROOT (%s) is at %s", t.version, t.dir, strings.Join(tags, " ")),
					fmt.Sprintf("Check out %s there, or leave KUBE_VERSION unset.", t.version))
			}
			return nil
		}
		if forks := slices.DeleteFunc(all, func(tag string) bool { return releaseOf(tag) == "" }); len(forks) > 0 && t.version == "" {
			tag := slices.MaxFunc(forks, func(a, b string) int { return semver.Compare(releaseOf(a), releaseOf(b)) })
			t.version = releaseOf(tag)
			p.note("%s is at %s, so it is taken for %s", t.dir, tag, t.version)
		}
		if tag := t.try("describe", "--tags", "--abbrev=0", "--match", "v1.*", rev); tag != "" && t.version == "" {
			if t.version = releaseOf(tag); t.version == "" {
				return fmt.Errorf("%s: the nearest tag, %s, is no kubernetes release; set KUBE_VERSION", t.dir, tag)
			}
			p.note("%s is at no tag; the nearest one before it is %s, so it is taken for %s", t.dir, tag, t.version)
		}
	}
	if t.version != "" {
		return t.checkMinor()
	}
	how := ""
	if t.version, how = t.saysVersion(); t.version == "" {
		t.version, how = p.releaseOfMinor(t.minor()), "the minor version in "+baseVersionFile
	}
	if t.version == "" {
		return fail(fmt.Sprintf("cannot tell which kubernetes release %s is: it has no git tag and no version file", t.dir),
			"Say it: KUBE_VERSION=v1.37.1 (for example)")
	}
	p.note("%s is taken for %s, because of %s", t.dir, t.version, how)
	return t.checkMinor()
}

var definedVersion = regexp.MustCompile(`(?m)^KUBE_GIT_VERSION='(.*)'`)

// saysVersion is what release archives and trees from the module proxy say about themselves. The changelog is not among
// it: at a tag it still ends with the release before.
func (t *tree) saysVersion() (version, how string) {
	read := func(name string) string {
		data, _ := os.ReadFile(filepath.Join(t.dir, name))
		return string(data)
	}
	line, _, _ := strings.Cut(read("version"), "\n")
	if v := releaseOf(line); v != "" {
		return v, `the file "version"`
	}
	if m := definedVersion.FindStringSubmatch(read(".dockerized-kube-version-defs")); m != nil && releaseOf(m[1]) != "" {
		return releaseOf(m[1]), `the file ".dockerized-kube-version-defs"`
	}
	const file = "staging/src/k8s.io/client-go/go.mod"
	mod, err := modfile.ParseLax(file, []byte(read(file)), nil)
	if err != nil {
		return "", ""
	}
	for _, r := range mod.Require {
		minor, ok := strings.CutPrefix(r.Mod.Version, "v0.")
		if v := "v1." + minor; r.Mod.Path == "k8s.io/api" && ok && versionPattern.MatchString(v) && semver.MajorMinor(v) != "v1.0" {
			return v, "the version that " + file + " asks of k8s.io/api"
		}
	}
	return "", ""
}

const baseVersionFile = "staging/src/k8s.io/component-base/version/base.go"

var binaryVersion = regexp.MustCompile(`DefaultKubeBinaryVersion\s*=\s*"(.*)"`)

// minor is the tree's own idea of its minor version, such as v1.37. Releases before 1.31 have none.
func (t *tree) minor() string {
	data, _ := os.ReadFile(filepath.Join(t.dir, baseVersionFile))
	if m := binaryVersion.FindSubmatch(data); m != nil {
		return "v" + string(m[1])
	}
	return ""
}

// checkMinor: the tree's own idea of its minor version must not contradict t.version.
func (t *tree) checkMinor() error {
	if m := t.minor(); m != "" && m != semver.MajorMinor(t.version) {
		return fail(fmt.Sprintf("%s says of itself that it is kubernetes %s, so it cannot be %s", t.dir, m[1:], t.version),
			"Set KUBE_VERSION to its release.")
	}
	return nil
}

// releaseOfMinor is the release that the series of a minor version was made on.
func (p *program) releaseOfMinor(minor string) string {
	b, _ := readBase(filepath.Join(p.patches, cmp.Or(minor, "none")))
	return b.tag
}

// resolve finds the tree and its version. A tree that is missing is fetched, unless KUBE_ROOT names it.
func (p *program) resolve() (*tree, error) {
	t, err := p.locate()
	if err == nil && t.kind == missing {
		if err = p.fetch(t.version); err == nil {
			t, err = p.locate()
		}
	}
	if err != nil {
		return nil, err
	}
	return t, p.findVersion(t)
}

// target is the tree, and the series for it.
func (p *program) target() (*tree, *series, error) {
	t, err := p.resolve()
	if err != nil {
		return nil, nil, err
	}
	s, err := p.pickSeries(t.version)
	if err != nil {
		return nil, nil, err
	}
	return t, s, p.checkDependencies(s)
}

func (t *tree) branch() string { return t.try("symbolic-ref", "-q", "--short", "HEAD") }
func (t *tree) hasBranch(name string) bool {
	return t.ok("show-ref", "-q", "--verify", "refs/heads/"+name)
}
func (t *tree) state(branch, key string) string {
	return t.try("config", "--local", "--get", stateKey(branch, key))
}
func (t *tree) setState(branch, key, value string) error {
	return t.do("config", "--local", stateKey(branch, key), value)
}
func stateKey(branch, key string) string { return "branch." + branch + ".kubelet-backoff-" + key }

// head is what is checked out: refs/heads/x, or a commit.
func (t *tree) head() string {
	return cmp.Or(t.try("symbolic-ref", "-q", "HEAD"), t.try("rev-parse", "HEAD"))
}

// operation is what git is in the middle of, if anything.
func (t *tree) operation() string {
	dir := t.try("rev-parse", "--absolute-git-dir")
	for _, o := range [][2]string{
		{"rebase-apply/applying", "git am"}, {"rebase-apply", "git rebase"}, {"rebase-merge", "git rebase"},
		{"MERGE_HEAD", "git merge"}, {"CHERRY_PICK_HEAD", "git cherry-pick"}, {"REVERT_HEAD", "git revert"},
	} {
		if exists(filepath.Join(dir, o[0])) {
			return o[1]
		}
	}
	return ""
}

func (t *tree) requireNoOperation() error {
	if op := t.operation(); op != "" {
		return fmt.Errorf("%s is in the middle of a %s: finish or abort it first (%s --continue, or %s --abort)", t.dir, op, op, op)
	}
	return nil
}

// dirty are the tracked files with changes, staged or not.
func (t *tree) dirty() ([]string, error) {
	return t.lines("status", "--porcelain", "--untracked-files=no")
}

// requireClean refuses a tree with changes that the command could lose.
func (t *tree) requireClean(what string) error {
	dirty, err := t.dirty()
	if err != nil || len(dirty) == 0 {
		return err
	}
	if n := len(dirty); n > 20 {
		dirty = append(dirty[:20], fmt.Sprintf("... and %d more", n-20))
	}
	return fail(fmt.Sprintf("%s has changes that are not committed, so %s is refused:", t.dir, what),
		append(dirty, "Commit or stash them (git stash), or take them back (git checkout -- FILE).")...)
}

// applied is the series branch of a tree.
type applied struct {
	branch, series string
	base, tip      string
}

// findApplied is the series branch of the tree, or nil if there is none.
func (t *tree) findApplied() (*applied, error) {
	if t.kind != repository {
		return nil, nil
	}
	found := []string{t.branch()}
	if !strings.HasPrefix(found[0], branchPrefix) || t.state(found[0], "base") == "" {
		branches, err := t.lines("for-each-ref", "--format=%(refname:short)", "refs/heads/"+branchPrefix+"*")
		if err != nil {
			return nil, err
		}
		found = slices.DeleteFunc(branches, func(b string) bool { return t.state(b, "base") == "" })
	}
	if len(found) == 0 {
		return nil, nil
	}
	if len(found) > 1 {
		return nil, fail(fmt.Sprintf("%s has several series branches: %s", t.dir, strings.Join(found, " ")), "Check out the one that is meant.")
	}
	a := &applied{branch: found[0], series: strings.TrimPrefix(found[0], branchPrefix), base: t.state(found[0], "base"), tip: t.state(found[0], "tip")}
	if t.commitID(a.base) == "" {
		return nil, fmt.Errorf("%s: branch %s was made on commit %s, which is no longer there", t.dir, a.branch, a.base)
	}
	return a, nil
}

// requireApplied: the tree has the series checked out, completely.
func (t *tree) requireApplied() (*applied, error) {
	if t.kind == missing {
		return nil, fmt.Errorf("there is no tree of kubernetes %s yet, so the patches are not applied: run \"make apply\" first", t.version)
	}
	a, err := t.findApplied()
	if err != nil {
		return nil, err
	}
	if a == nil {
		return nil, fmt.Errorf("the patches are not applied to %s: run \"make apply\" first", t.dir)
	}
	if b := t.branch(); b != a.branch {
		return nil, fail(fmt.Sprintf("%s has %q checked out, not %s", t.dir, cmp.Or(b, t.try("rev-parse", "--short", "HEAD")), a.branch),
			fmt.Sprintf("Run \"make apply\", or: git -C %s checkout %s", quoteShell(t.dir), a.branch))
	}
	if a.tip == "" {
		return nil, fmt.Errorf("%s: %s holds only part of the series: run \"make reverse\", then \"make apply\"", t.dir, a.branch)
	}
	return a, nil
}

// stock is a repository in dir with the tree as it is without the series, and the commit that has it, detached. The
// repository borrows what it can from the tree, to which nothing is written.
func (p *program) stock(t *tree, dir string) (git, string, error) {
	if t.kind == plain {
		r, err := t.asRelease(dir)
		if err != nil {
			return r, "", err
		}
		commit := r.commitID("HEAD")
		return r, commit, r.do("checkout", "-q", "--detach")
	}
	commit := t.commitID("HEAD")
	a, err := t.findApplied()
	if err != nil {
		return git{}, "", err
	}
	if a != nil && t.branch() == a.branch {
		commit = a.base
	}
	r, err := t.borrow(dir, commit)
	return r, commit, err
}

// requireRelease: a tree that fetch made has its release checked out, or the series on that. While a series is carried to
// it, it has another one.
func (p *program) requireRelease(t *tree) error {
	if p.kubeRoot != "" || t.kind != repository {
		return nil
	}
	a, err := t.findApplied()
	if err != nil {
		return err
	}
	base := t.commitID("HEAD")
	if a != nil && t.branch() == a.branch {
		base = a.base
	}
	if base == t.commitID("refs/tags/"+t.version) {
		return nil
	}
	return fail(fmt.Sprintf("%s has %.12s checked out, or the series on that, which is not %s", t.dir, base, t.version),
		"If a series is being carried to it: finish the git rebase and the refresh that \"carry\" printed.",
		fmt.Sprintf("Otherwise check out %s there, or name the tree with KUBE_ROOT.", t.version))
}

// unfinished is where apply makes the repository of a plain tree.
const unfinished = ".kubelet-backoff-unfinished"

// asRelease makes a repository in dir with a plain tree as its one commit.
func (t *tree) asRelease(dir string) (git, error) {
	removeAll(dir)
	r := t.p.git(dir)
	if err := r.initialize(); err != nil {
		return r, err
	}
	// Everything counts, ignored or not, but for what upstream's own builds leave behind.
	if err := r.do("--work-tree="+t.dir, "--git-dir="+filepath.Join(dir, ".git"), "-C", t.dir,
		"add", "-f", "-A", "--", ".", ":(exclude,top)_output", ":(exclude,top).git", ":(exclude,top)"+unfinished); err != nil {
		return r, err
	}
	return r, r.release("kubernetes " + t.version)
}

// treeCommand prints variables for a shell.
func (p *program) treeCommand(fetch, mustBeApplied bool) error {
	shell := p.out
	p.out = p.errOut
	find := p.locate
	if fetch {
		find = p.resolve
	}
	t, err := find()
	if err != nil {
		return err
	}
	var a *applied
	if mustBeApplied {
		if a, err = t.requireApplied(); err == nil {
			err = p.findVersion(t)
		}
	} else {
		a, err = t.findApplied()
	}
	if err != nil {
		return err
	}
	variables := [][2]string{{"TREE", t.dir}, {"TREE_KIND", t.kind.String()}, {"VERSION", t.version}}
	if t.kind == repository {
		state := "clean"
		if dirty, err := t.dirty(); err != nil || len(dirty) > 0 {
			state = "dirty"
		}
		variables = append(variables, [][2]string{{"COMMIT", t.commitID("HEAD")}, {"TREE_STATE", state}, {"COMMIT_TIME", t.try("log", "-1", "--format=%ct")}}...)
	}
	if a != nil && t.branch() == a.branch {
		variables = append(variables, [][2]string{{"BRANCH", a.branch}, {"BASE", a.base}, {"BASE_TIME", t.try("log", "-1", "--format=%ct", a.base)}}...)
	}
	for _, v := range variables {
		fmt.Fprintf(shell, "%s=%s\n", v[0], quoteShell(v[1]))
	}
	return nil
}

// checkoutCommand makes dir a checkout of the tree without the series, unless it is one already.
func (p *program) checkoutCommand(dir string) error {
	t, err := p.resolve()
	if err != nil {
		return err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	// What borrow makes can be told by its attributes and by the objects that are elsewhere.
	attributes, _ := os.ReadFile(filepath.Join(dir, ".git/info/attributes"))
	if exists(dir) && !(string(attributes) == neutralAttributes && exists(filepath.Join(dir, alternates))) {
		return fail(fmt.Sprintf("%s is there already, and is no checkout that this command made", dir), "Move it away.")
	}
	work, remove, err := scratch(filepath.Dir(dir))
	if err != nil {
		return err
	}
	defer remove()
	r, commit, err := p.stock(t, filepath.Join(work, "kubernetes"))
	if err != nil {
		return err
	}
	old := p.git(dir)
	if old.commitID("HEAD") == commit && old.ok("diff", "--quiet", "HEAD") {
		return nil
	}
	p.say("Checking out kubernetes %s without the series in %s", t.version, dir)
	if err := r.do("reset", "-q", "--hard"); err != nil {
		return err
	}
	removeAll(dir)
	return os.Rename(r.dir, dir)
}
