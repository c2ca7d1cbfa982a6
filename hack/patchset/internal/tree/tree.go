// SPDX-License-Identifier: Apache-2.0

// Package tree works on kubernetes source trees, and records in them which series is applied.
package tree

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

	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/console"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/fileutil"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/git"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/kubeversion"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/series"
)

type kind int

const (
	Missing kind = iota
	Plain        // sources without git
	Repository
)

func (k kind) String() string { return [...]string{"missing", "plain", "git"}[k] }

// Tree is a kubernetes source tree. Its git config records the applied series, in the section of the branch, so that deleting
// the branch deletes the record:
//
//	branch.<name>.kubelet-backoff-base     the commit the series was applied to
//	branch.<name>.kubelet-backoff-origin   what was checked out before: refs/heads/x, or a commit
//	branch.<name>.kubelet-backoff-tip      the last commit of the series
//	branch.<name>.kubelet-backoff-digest   a digest of the applied series, with its new files
//	branch.<name>.kubelet-backoff-mails    a digest of its patch files alone
//	branch.<name>.kubelet-backoff-writing  fingerprints of the patch files while refresh writes them
//	kubelet-backoff.made-repository        apply made this repository around a plain source tree
type Tree struct {
	git.Git
	Kind    kind
	Version string // the release it was made from
}

var definedVersion = regexp.MustCompile(`(?m)^KUBE_GIT_VERSION='(.*)'`)

// SaysVersion returns the version in a file of a release archive or of a tree from the module proxy, and the name of that file.
// It does not use the changelog, which at a tag still ends with the previous release.
func (t *Tree) SaysVersion() (version, how string) {
	read := func(name string) string {
		data, _ := os.ReadFile(filepath.Join(t.Dir, name))
		return string(data)
	}
	line, _, _ := strings.Cut(read("version"), "\n")
	if v := kubeversion.OfTag(line); v != "" {
		return v, `the file "version"`
	}
	if m := definedVersion.FindStringSubmatch(read(".dockerized-kube-version-defs")); m != nil && kubeversion.OfTag(m[1]) != "" {
		return kubeversion.OfTag(m[1]), `the file ".dockerized-kube-version-defs"`
	}
	const file = "staging/src/k8s.io/client-go/go.mod"
	mod, err := modfile.ParseLax(file, []byte(read(file)), nil)
	if err != nil {
		return "", ""
	}
	for _, r := range mod.Require {
		minor, ok := strings.CutPrefix(r.Mod.Version, "v0.")
		if v := "v1." + minor; r.Mod.Path == "k8s.io/api" && ok && kubeversion.Pattern.MatchString(v) && semver.MajorMinor(v) != "v1.0" {
			return v, "the version that " + file + " asks of k8s.io/api"
		}
	}
	return "", ""
}

const BaseVersionFile = "staging/src/k8s.io/component-base/version/base.go"

var binaryVersion = regexp.MustCompile(`DefaultKubeBinaryVersion\s*=\s*"(.*)"`)

// Minor returns the minor version in the tree's sources, such as v1.37. Releases before 1.31 have none.
func (t *Tree) Minor() string {
	data, _ := os.ReadFile(filepath.Join(t.Dir, BaseVersionFile))
	if m := binaryVersion.FindSubmatch(data); m != nil {
		return "v" + string(m[1])
	}
	return ""
}

// CheckMinor returns an error if the minor version in the tree's sources is not that of t.Version.
func (t *Tree) CheckMinor() error {
	if m := t.Minor(); m != "" && m != semver.MajorMinor(t.Version) {
		return console.Error(fmt.Sprintf("%s has the sources of kubernetes %s, so it cannot be %s", t.Dir, m[1:], t.Version),
			"Set KUBE_VERSION to its release.")
	}
	return nil
}

func (t *Tree) Branch() string { return t.Try("symbolic-ref", "-q", "--short", "HEAD") }
func (t *Tree) HasBranch(name string) bool {
	return t.OK("show-ref", "-q", "--verify", "refs/heads/"+name)
}
func (t *Tree) State(branch, key string) string {
	return t.Try("config", "--local", "--get", StateKey(branch, key))
}
func (t *Tree) SetState(branch, key, value string) error {
	return t.Do("config", "--local", StateKey(branch, key), value)
}
func StateKey(branch, key string) string { return "branch." + branch + ".kubelet-backoff-" + key }

// Head returns what is checked out: refs/heads/x, or a commit.
func (t *Tree) Head() string {
	return cmp.Or(t.Try("symbolic-ref", "-q", "HEAD"), t.Try("rev-parse", "HEAD"))
}

// Operation returns the git operation that is in progress, or nothing.
func (t *Tree) Operation() string {
	dir := t.Try("rev-parse", "--absolute-git-dir")
	for _, o := range [][2]string{
		{"rebase-apply/applying", "git am"}, {"rebase-apply", "git rebase"}, {"rebase-merge", "git rebase"},
		{"MERGE_HEAD", "git merge"}, {"CHERRY_PICK_HEAD", "git cherry-pick"}, {"REVERT_HEAD", "git revert"},
	} {
		if fileutil.Exists(filepath.Join(dir, o[0])) {
			return o[1]
		}
	}
	return ""
}

func (t *Tree) RequireNoOperation() error {
	if op := t.Operation(); op != "" {
		return fmt.Errorf("%s is in the middle of a %s: finish or abort it first (%s --continue, or %s --abort)", t.Dir, op, op, op)
	}
	return nil
}

// Dirty returns the tracked files with changes, staged or not.
func (t *Tree) Dirty() ([]string, error) {
	return t.Lines("status", "--porcelain", "--untracked-files=no")
}

// RequireClean refuses a tree with changes that the command could lose.
func (t *Tree) RequireClean(what string) error {
	dirty, err := t.Dirty()
	if err != nil || len(dirty) == 0 {
		return err
	}
	if n := len(dirty); n > 20 {
		dirty = append(dirty[:20], fmt.Sprintf("... and %d more", n-20))
	}
	return console.Error(fmt.Sprintf("%s has changes that are not committed, so %s is refused:", t.Dir, what),
		append(dirty, "Commit or stash them (git stash), or take them back (git checkout -- FILE).")...)
}

// Applied is the series branch of a tree.
type Applied struct {
	Branch, Series string
	Base, Tip      string
}

// FindApplied returns the series branch of the tree, or nil if there is none.
func (t *Tree) FindApplied() (*Applied, error) {
	if t.Kind != Repository {
		return nil, nil
	}
	found := []string{t.Branch()}
	if !strings.HasPrefix(found[0], series.BranchPrefix) || t.State(found[0], "base") == "" {
		branches, err := t.Lines("for-each-ref", "--format=%(refname:short)", "refs/heads/"+series.BranchPrefix+"*")
		if err != nil {
			return nil, err
		}
		found = slices.DeleteFunc(branches, func(b string) bool { return t.State(b, "base") == "" })
	}
	if len(found) == 0 {
		return nil, nil
	}
	if len(found) > 1 {
		return nil, console.Error(fmt.Sprintf("%s has several series branches: %s", t.Dir, strings.Join(found, " ")), "Check out one of them.")
	}
	a := &Applied{Branch: found[0], Series: strings.TrimPrefix(found[0], series.BranchPrefix), Base: t.State(found[0], "base"), Tip: t.State(found[0], "tip")}
	if t.CommitID(a.Base) == "" {
		return nil, fmt.Errorf("%s: branch %s was made on commit %s, which no longer exists", t.Dir, a.Branch, a.Base)
	}
	return a, nil
}

// RequireApplied returns the series branch, or an error unless the whole series is applied and checked out.
func (t *Tree) RequireApplied() (*Applied, error) {
	if t.Kind == Missing {
		return nil, fmt.Errorf("there is no tree of kubernetes %s yet, so the patches are not applied: run \"make apply\" first", t.Version)
	}
	a, err := t.FindApplied()
	if err != nil {
		return nil, err
	}
	if j, err := t.Journal(); j != nil || err != nil {
		return nil, cmp.Or(err, fmt.Errorf("an apply, reverse or refresh is changing %s, or was killed: run \"make apply\" or \"make reverse\"", t.Dir))
	}
	if a == nil {
		return nil, fmt.Errorf("the patches are not applied to %s: run \"make apply\" first", t.Dir)
	}
	if b := t.Branch(); b != a.Branch {
		return nil, console.Error(fmt.Sprintf("%s has %q checked out, not %s", t.Dir, cmp.Or(b, t.Try("rev-parse", "--short", "HEAD")), a.Branch),
			fmt.Sprintf("Run \"make apply\", or: git -C %s checkout %s", console.QuoteShell(t.Dir), a.Branch))
	}
	return a, nil
}

// Stock makes a repository in dir that contains the tree without the series, and returns it and its commit, which is HEAD. The
// repository borrows objects from the tree and writes nothing to it.
func (t *Tree) Stock(dir string) (git.Git, string, error) {
	if t.Kind == Plain {
		r, err := t.AsRelease(dir)
		if err != nil {
			return r, "", err
		}
		commit := r.CommitID("HEAD")
		return r, commit, r.Do("checkout", "-q", "--detach")
	}
	commit := t.CommitID("HEAD")
	a, err := t.FindApplied()
	if err != nil {
		return git.Git{}, "", err
	}
	if a != nil && t.Branch() == a.Branch {
		commit = a.Base
	}
	r, err := t.Borrow(dir, commit)
	return r, commit, err
}

// Unfinished is the directory in which apply makes the repository of a plain tree.
const Unfinished = ".kubelet-backoff-unfinished"

// AsRelease makes a repository in dir with a plain tree as its only commit.
func (t *Tree) AsRelease(dir string) (git.Git, error) {
	fileutil.RemoveAll(dir)
	r := t.In(dir)
	if err := r.Initialize(); err != nil {
		return r, err
	}
	// All files, ignored or not, except the output of upstream's builds.
	if err := r.Do("--work-tree="+t.Dir, "--git-dir="+filepath.Join(dir, ".git"), "-C", t.Dir,
		"add", "-f", "-A", "--", ".", ":(exclude,top)_output", ":(exclude,top).git", ":(exclude,top)"+Unfinished); err != nil {
		return r, err
	}
	return r, r.Release("kubernetes " + t.Version)
}

func (t *Tree) RecordApplied(s *series.Series, base, tip string) error {
	all, mails := s.Digest()
	for _, kv := range [][2]string{{"base", base}, {"digest", all}, {"mails", mails}, {"tip", tip}} {
		if err := t.SetState(s.Branch, kv[0], kv[1]); err != nil {
			return err
		}
	}
	return nil
}

// RequireReady returns an error if the tree is not ready for the series: uncommitted changes, a git operation in progress, or
// files that the series creates.
func (t *Tree) RequireReady(created []string) error {
	if t.Kind == Repository {
		if err := t.RequireNoOperation(); err != nil {
			return err
		}
		if err := t.RequireClean("applying patches"); err != nil {
			return err
		}
	}
	// If the release has the file, applying the patch reports it.
	return t.requireAbsent(created)
}

// requireAbsent returns an error if there are untracked files in the places of files that git creates, or of their
// directories. It would overwrite those that it ignores.
func (t *Tree) requireAbsent(created []string) error {
	there := slices.DeleteFunc(fileutil.WithParents(created...), func(f string) bool {
		info, err := os.Lstat(filepath.Join(t.Dir, f))
		_, itself := slices.BinarySearch(created, f)
		return err != nil || !itself && info.IsDir() || t.Kind == Repository && t.tracks(f)
	})
	if len(there) == 0 {
		return nil
	}
	return console.Error(fmt.Sprintf("files that already exist in %s, and are not tracked by git, are in the way:", t.Dir), append(there, "Move them away first.")...)
}

func (t *Tree) tracks(path string) bool {
	return t.OK("--literal-pathspecs", "ls-files", "--error-unmatch", "--", path)
}

// forgetGone removes the settings of series branches that do not exist. An apply that is killed before it makes the branch
// leaves such settings.
func (t *Tree) forgetGone() {
	keys, _ := t.Lines("config", "--local", "--name-only", "--get-regexp", `^branch\.`+series.BranchPrefix+`.*\.`+series.BranchPrefix)
	for _, key := range keys {
		if name := strings.TrimPrefix(key[:strings.LastIndex(key, ".")], "branch."); !t.HasBranch(name) {
			t.OK("config", "--local", "--unset-all", key)
		}
	}
}

// DiffersFrom returns why a tree is not exactly the release with the series, or nothing if it is.
func (t *Tree) DiffersFrom(s *series.Series) string {
	a, err := t.RequireApplied()
	if err != nil {
		return err.Error()
	}
	digest, _ := s.Digest()
	switch {
	case a.Base != t.CommitID("refs/tags/"+t.Version):
		return fmt.Sprintf("%s of %s is not based on %s", a.Branch, t.Dir, t.Version)
	case t.CommitID("HEAD") != a.Tip:
		return fmt.Sprintf("%s of %s has been edited since the series was applied", a.Branch, t.Dir)
	case t.State(a.Branch, "digest") != digest:
		return fmt.Sprintf("%s of %s was made from other sources than those in %s", a.Branch, t.Dir, s.Dir)
	}
	if dirty, err := t.Dirty(); err != nil || len(dirty) > 0 {
		return t.Dir + " has changes that are not committed"
	}
	return ""
}

// Work describes the work of a user in the tree, or returns nothing if there is none. Only commits of the release's tag and of
// complete series may be lost.
func (t *Tree) Work(version string) string {
	var ours []string
	states, _ := t.Lines("config", "--local", "--get-regexp", `^branch\..*\.kubelet-backoff-tip$`)
	for _, line := range states {
		_, commit, _ := strings.Cut(line, " ")
		ours = append(ours, commit)
	}
	changes, err := t.Out("status", "--porcelain", "--untracked-files=normal")
	if err == nil && changes != "" {
		return "changes or new files that are not committed"
	}
	// --all includes a stash, but not a detached HEAD.
	commits, err2 := t.Out(slices.Concat([]string{"rev-list", "-n1", "--all", "HEAD", "--not", "refs/tags/" + version}, ours)...)
	switch {
	case err != nil || err2 != nil:
		return "content that git cannot read"
	case commits != "":
		return "stashes or commits that no patch file holds"
	}
	return ""
}
