// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/mod/semver"

	"github.com/kubelet-backoff/kubelet-backoff/hack/internal/git"
	"github.com/kubelet-backoff/kubelet-backoff/hack/internal/series"
	"github.com/kubelet-backoff/kubelet-backoff/hack/internal/sys"
)

// tree is a git checkout of kubernetes.
type tree struct {
	git.Git
	minor string // v1.37, the name of its series
}

const baseVersion = "staging/src/k8s.io/component-base/version/base.go"

var minorVersion = regexp.MustCompile(`DefaultKubeBinaryVersion\s*=\s*"(.*)"`)

// wanted returns KUBE_VERSION, or else the release that the newest series was made on.
func (p *program) wanted() (string, error) {
	dirs := p.Dirs()
	if p.kubeVersion != "" || len(dirs) == 0 {
		return p.kubeVersion, nil
	}
	s, err := series.ReadBase(dirs[len(dirs)-1])
	if err != nil {
		return "", err
	}
	return s.Tag, nil
}

// find finds the tree. It fetches a missing one, except KUBE_ROOT.
func (p *program) find() (*tree, error) {
	dir := p.kubeRoot
	if dir == "" {
		version, err := p.wanted()
		if err != nil {
			return nil, err
		}
		if dir = p.dirOf(version); !sys.Exists(dir) {
			if err := p.fetch(false); err != nil {
				return nil, err
			}
		}
	}
	dir, err := filepath.Abs(dir)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("KUBE_ROOT=%s: %w", p.kubeRoot, err)
	}
	t := &tree{Git: p.Git.In(dir)}
	mod, _ := os.ReadFile(filepath.Join(dir, "go.mod"))
	if !strings.HasPrefix(string(mod), "module k8s.io/kubernetes\n") && !strings.Contains(string(mod), "\nmodule k8s.io/kubernetes\n") {
		return nil, fmt.Errorf("%s is not a kubernetes source tree: its go.mod must say \"module k8s.io/kubernetes\"", dir)
	}
	// The tree may be inside another repository.
	if !sys.Exists(filepath.Join(dir, ".git")) {
		return nil, sys.Error(dir+" is not a git checkout. This makes one of it:",
			fmt.Sprintf("git -C '%s' init -q && git -C '%[1]s' add -f -A . && git -C '%[1]s' commit -q -m kubernetes", dir))
	}
	if err := t.Do("rev-parse", "-q", "--verify", "HEAD^{commit}"); err != nil {
		return nil, fmt.Errorf("git cannot read a commit of %s: %w", dir, err)
	}
	base, _ := os.ReadFile(filepath.Join(dir, baseVersion))
	m := minorVersion.FindStringSubmatch(string(base))
	if m == nil {
		return nil, fmt.Errorf("%s has no DefaultKubeBinaryVersion in %s: releases before 1.31 have no series", dir, baseVersion)
	}
	if t.minor = "v" + m[1]; p.kubeVersion != "" && semver.MajorMinor(p.kubeVersion) != t.minor {
		return nil, fmt.Errorf("KUBE_VERSION is %s, but %s has the sources of kubernetes %s", p.kubeVersion, dir, m[1])
	}
	return t, nil
}

// load loads the series that fits the tree.
func (p *program) load(t *tree) (*series.Series, error) {
	dir := filepath.Join(p.Root, "patches", t.minor)
	if !slices.Contains(p.Dirs(), dir) {
		var there []string
		for _, dir := range p.Dirs() {
			there = append(there, filepath.Base(dir))
		}
		return nil, fmt.Errorf("no series fits %s, which has the sources of kubernetes %s: there are series for %s", t.Dir, t.minor, strings.Join(there, ", "))
	}
	s, err := p.Load(dir, p.pick)
	if err != nil {
		return nil, err
	}
	return s, p.CheckDependencies(s)
}

// findSeries returns the tree and the series that fits it, and restores the tree if a command was killed.
func (p *program) findSeries() (*tree, *series.Series, error) {
	t, err := p.find()
	if err != nil {
		return nil, nil, err
	}
	s, err := p.load(t)
	return t, s, cmp.Or(err, p.recover(t))
}

// seriesBranch returns the name of the branch of the series that fits the tree.
func (t *tree) seriesBranch() string { return "kubelet-backoff-" + t.minor }

func (t *tree) branch() string { return t.Try("symbolic-ref", "-q", "--short", "HEAD") }

// state is what a tree knows about the branch of a series.
type state struct {
	Base   string // the commit to which the series was applied
	From   string // what was checked out before: refs/heads/x, or a commit
	Tip    string // the last commit of the series
	Digest string // of the patches and their files
	Whole  bool   // whether these are all patches
}

// The state is in the section of the branch in git's configuration, so that deleting the branch deletes it. While a command moves
// the branch, there are two: the one before, and the one after.
func (t *tree) states(branch string) (all []state) {
	for line := range strings.Lines(t.Try("config", "--local", "--get-all", "branch."+branch+".kubeletBackoff")) {
		var is state
		if json.Unmarshal([]byte(line), &is) == nil {
			all = append(all, is)
		}
	}
	return all
}

// state returns the state of the branch, or an empty one if apply did not make it.
func (t *tree) state(branch string) state {
	all := t.states(branch)
	if len(all) == 0 || t.Commit("refs/heads/"+branch) == "" {
		return state{}
	}
	head := t.Commit("refs/heads/" + branch)
	return all[max(0, slices.IndexFunc(all, func(is state) bool { return is.Tip == head }))]
}

// setState writes a state with git config --add or --replace-all.
func (t *tree) setState(how, branch string, is state) error {
	text, err := json.Marshal(is)
	if err != nil {
		return err
	}
	return t.Do("config", "--local", how, "branch."+branch+".kubeletBackoff", string(text))
}

// forget removes the states that are not that of the branch.
func (t *tree) forget(branch string) {
	is := t.state(branch)
	t.Uninterrupted().OK("config", "--local", "--unset-all", "branch."+branch+".kubeletBackoff")
	if is.Tip != "" {
		_ = t.setState("--add", branch, is)
	}
}

// requireHere refuses a branch that is checked out in another worktree.
func (t *tree) requireHere(branch string) error {
	at := t.Try("for-each-ref", "--format=%(worktreepath)", "refs/heads/"+branch)
	if at != "" && t.branch() != branch {
		return fmt.Errorf("%s is checked out in %s: reverse the series there", branch, at)
	}
	return nil
}

// requireIdle refuses a tree in the middle of a git operation, or with changes that are not committed.
func (t *tree) requireIdle() error {
	for _, o := range [][2]string{{"rebase-apply", "git am or git rebase"}, {"rebase-merge", "git rebase"}, {"MERGE_HEAD", "git merge"}, {"CHERRY_PICK_HEAD", "git cherry-pick"}, {"REVERT_HEAD", "git revert"}} {
		if sys.Exists(t.Try("rev-parse", "--path-format=absolute", "--git-path", o[0])) {
			return fmt.Errorf("%s is in the middle of a %s: finish or abort it first", t.Dir, o[1])
		}
	}
	dirty, err := t.Lines("status", "--porcelain", "--untracked-files=no")
	if len(dirty) > 0 {
		return sys.Error(t.Dir+" has changes that are not committed. Commit or stash them first:", dirty[:min(20, len(dirty))]...)
	}
	return err
}

// pending names the ref that keeps the commit that a command checks out, until the command has ended. Each worktree has its own; it is
// not below refs/worktree, which a git that prunes in another worktree ignores.
func (t *tree) pending() string {
	return "refs/kubelet-backoff/pending-" + filepath.Base(t.Try("rev-parse", "--absolute-git-dir"))
}

// requireAbsent returns an error if files are in the way of those that a checkout of the commit creates. Git would also refuse, but not
// if it ignores them.
func (t *tree) requireAbsent(to string) error {
	changed, err := t.Changed(to, "HEAD")
	if err != nil {
		return err
	}
	var there []string
	for path, f := range changed {
		for at, itself := path, true; f.Blob == "" && at != "."; at, itself = filepath.Dir(at), false {
			if info, err := os.Lstat(filepath.Join(t.Dir, at)); err == nil && (itself || !info.IsDir()) && !t.OK("--literal-pathspecs", "ls-files", "--error-unmatch", "--", at) {
				there = append(there, at)
			}
		}
	}
	if there == nil {
		return nil
	}
	slices.Sort(there)
	return sys.Error("files that git does not track are in the way in "+t.Dir+". Move them away first:", slices.Compact(there)...)
}

// checkOut checks out a commit, with the arguments of git checkout. If that fails, it restores the tree; if it is killed, the next
// command does.
func (p *program) checkOut(t *tree, to string, args ...string) error {
	// From here on, the command runs to its end.
	t = &tree{t.Uninterrupted(), t.minor}
	if err := t.requireAbsent(to); err != nil {
		return err
	}
	if err := t.Do("update-ref", t.pending(), to); err != nil {
		return err
	}
	if err := t.Do(append([]string{"checkout", "-q", "--no-overwrite-ignore"}, args...)...); err != nil {
		return errors.Join(err, p.recover(t))
	}
	return t.Do("update-ref", "-d", t.pending())
}

// recover restores the files that a killed checkout has left. A checkout that git has completed stays.
func (p *program) recover(t *tree) error {
	if !t.OK("show-ref", "-q", "--verify", t.pending()) {
		return nil
	}
	to := t.Commit(t.pending())
	if to == "" {
		return fmt.Errorf("%s of %s, the commit that a killed command was checking out, is gone: restore the tree with git", t.pending(), t.Dir)
	}
	if to != t.Commit("HEAD") {
		p.Say("A command that changed %s was killed, or failed: restoring the tree", t.Dir)
		if err := t.restore(to); err != nil {
			return err
		}
	}
	return t.Do("update-ref", "-d", t.pending())
}

// restore restores the files of HEAD that differ in the other commit. Git may have written them, or a part of each. Other content is
// the user's, and an error.
func (t *tree) restore(to string) error {
	changed, err := t.Changed("HEAD", to)
	if err != nil || len(changed) == 0 {
		return err
	}
	paths := slices.Sorted(maps.Keys(changed))
	var edited, there []string
	for _, path := range paths {
		info, err := os.Lstat(filepath.Join(t.Dir, path))
		if err != nil || info.IsDir() {
			continue
		}
		there = append(there, path)
		content, _ := os.ReadFile(filepath.Join(t.Dir, path))
		ours := false
		for _, commit := range []string{"HEAD", to} {
			whole, _, err := t.Both("cat-file", "--filters", commit+":"+path)
			ours = ours || err == nil && info.Mode().IsRegular() && strings.HasPrefix(whole, string(content))
		}
		if !ours {
			edited = append(edited, path)
		}
	}
	if len(edited) > 0 {
		return sys.Error("a command that changed "+t.Dir+" was killed, and these files have been edited since. Move them away, and run this again:", edited...)
	}
	list := []string{"--literal-pathspecs", "reset", "-q", "--pathspec-from-file=-", "--pathspec-file-nul"}
	if err := t.Input(strings.Join(paths, "\x00")).Do(list...); err != nil {
		return sys.Error(err.Error(), "If git was killed there, and none is running, remove its lock, and run this again.")
	}
	for _, path := range there {
		if err := os.Remove(filepath.Join(t.Dir, path)); err != nil {
			return err
		}
		// This stops at a directory that is not empty.
		for dir := filepath.Dir(path); dir != "." && os.Remove(filepath.Join(t.Dir, dir)) == nil; dir = filepath.Dir(dir) {
		}
	}
	// These do not include files that a sparse checkout leaves out.
	deleted, _, err := t.Both(append([]string{"--literal-pathspecs", "ls-files", "-d", "-z", "--"}, paths...)...)
	if err != nil || deleted == "" {
		return err
	}
	list[1] = "checkout"
	return t.Input(strings.TrimRight(deleted, "\x00")).Do(list...)
}

// printTree prints variables for a shell.
func (p *program) printTree(applied bool) error {
	out := p.Out
	p.Out = p.ErrOut
	t, err := p.find()
	if err != nil {
		return err
	}
	branch, head := t.seriesBranch(), t.Commit("HEAD")
	is := t.state(branch)
	if t.branch() != branch || is.Tip == "" {
		if applied {
			return fmt.Errorf("the patches are not applied to %s: run \"make apply\" first", t.Dir)
		}
		branch, is = "", state{Base: head}
	}
	// The nearest tag may be a fork's, such as v1.37.1-acme.3.
	version := regexp.MustCompile(`^v1\.\d+\.\d+(-(alpha|beta|rc)\.\d+)?`).FindString(t.Try("describe", "--tags", "--abbrev=0", "--match", t.minor+".*", is.Base))
	if version = cmp.Or(p.kubeVersion, version); version == "" {
		s, err := series.ReadBase(filepath.Join(p.Root, "patches", t.minor))
		if err != nil {
			return err
		}
		version = s.Tag
	}
	status, exact := "clean", ""
	if t.requireIdle() != nil {
		status = "dirty"
	} else if is.Tip == head && is.Base == t.Commit("refs/tags/"+version) {
		exact = "1"
	}
	time := func(commit string) string { return t.Try("log", "-1", "--format=%ct", commit) }
	for _, v := range [][2]string{{"TREE", t.Dir}, {"VERSION", version}, {"BRANCH", branch}, {"BASE", is.Base}, {"BASE_TIME", time(is.Base)},
		{"COMMIT", head}, {"COMMIT_TIME", time(head)}, {"TREE_STATE", status}, {"EXACT", exact}} {
		fmt.Fprintf(out, "%s='%s'\n", v[0], strings.ReplaceAll(v[1], "'", `'\''`))
	}
	return nil
}

func (p *program) printPackages() error {
	out := p.Out
	p.Out = p.ErrOut
	_, s, err := p.findSeries()
	if err != nil {
		return err
	}
	for _, name := range series.Packages(s.Patches...) {
		fmt.Fprintln(out, name)
	}
	return nil
}
