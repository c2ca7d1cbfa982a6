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
			if err := p.fetch(false, false); err != nil {
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
	base, _ := os.ReadFile(filepath.Join(dir, baseVersion))
	m := minorVersion.FindStringSubmatch(string(base))
	if m == nil {
		return nil, fmt.Errorf("%s is not a source tree of kubernetes 1.31 or newer: it has no DefaultKubeBinaryVersion in %s", dir, baseVersion)
	}
	// The tree may be inside another repository.
	t := &tree{Git: p.Git.In(dir)}
	if !sys.Exists(filepath.Join(dir, ".git")) || !t.OK("rev-parse", "-q", "--verify", "HEAD^{commit}") {
		return nil, sys.Error("git cannot read a commit of "+dir, "If it is not a git checkout, this makes one of it:",
			fmt.Sprintf("git -C '%s' init -q && git -C '%[1]s' add -f -A . && git -C '%[1]s' commit -q -m kubernetes", dir))
	}
	if t.minor = "v" + m[1]; p.kubeVersion != "" && semver.MajorMinor(p.kubeVersion) != t.minor {
		return nil, fmt.Errorf("KUBE_VERSION is %s, but %s has the sources of kubernetes %s", p.kubeVersion, dir, m[1])
	}
	return t, nil
}

// findSeries returns the tree and the series that fits it, and restores the tree if a command was killed.
func (p *program) findSeries() (*tree, *series.Series, error) {
	t, err := p.find()
	if err != nil {
		return nil, nil, err
	}
	dir := filepath.Join(p.Root, "patches", t.minor)
	if !slices.Contains(p.Dirs(), dir) {
		var there []string
		for _, dir := range p.Dirs() {
			there = append(there, filepath.Base(dir))
		}
		return nil, nil, fmt.Errorf("no series fits %s, which has the sources of kubernetes %s: there are series for %s", t.Dir, t.minor, strings.Join(there, ", "))
	}
	s, err := p.Load(dir, p.pick)
	if err != nil {
		return nil, nil, err
	}
	return t, s, cmp.Or(s.CheckDependencies(), p.recover(t))
}

// seriesBranch returns the name of the branch of the series that fits the tree.
func (t *tree) seriesBranch() string { return "kubelet-backoff-" + t.minor }

func (t *tree) branch() string { return t.Try("symbolic-ref", "-q", "--short", "HEAD") }

// state is what a tree knows about the branch of a series.
type state struct {
	Base   string // the commit to which the series was applied
	From   string // what was checked out before: refs/heads/x, or a commit
	Tip    string // the last commit of the series
	Before *state // the one before, while a command moves the branch
	Digest string // of the patches and their files
	Whole  bool   // whether these are all patches
}

// state returns the state of the branch, or an empty one if apply did not make it. It is in the section of the branch in git's
// configuration, so that deleting the branch deletes it.
func (t *tree) state(branch string) (is state) {
	head := t.Commit("refs/heads/" + branch)
	if head == "" || json.Unmarshal([]byte(t.Try("config", "--local", "--get", "branch."+branch+".kubeletBackoff")), &is) != nil {
		return state{}
	}
	if is.Before != nil && head == is.Before.Tip {
		return *is.Before
	}
	return is
}

// setState stores the state of a branch, or removes an empty one.
func (t *tree) setState(branch string, is state) error {
	key := "branch." + branch + ".kubeletBackoff"
	if is == (state{}) {
		return t.Do("config", "--local", "--unset-all", key)
	}
	text, err := json.Marshal(is)
	if err != nil {
		return err
	}
	return t.Do("config", "--local", "--replace-all", key, string(text))
}

// current returns the state of the series that is checked out. If there is none, it has only the commit to which it would be applied.
func (t *tree) current() state {
	is := t.state(t.seriesBranch())
	if t.branch() != t.seriesBranch() || is.Tip == "" {
		return state{Base: t.Commit("HEAD")}
	}
	return is
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
	for path, status := range changed {
		for at, itself := path, true; status == "D" && at != "."; at, itself = filepath.Dir(at), false {
			if info, err := os.Lstat(filepath.Join(t.Dir, at)); err == nil && (itself || !info.IsDir()) && !t.OK("--literal-pathspecs", "ls-files", "--error-unmatch", "--", at) {
				there = append(there, at)
			}
		}
	}
	return sys.Problem(there, "files that git does not track are in the way in "+t.Dir+". Move them away first:")
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
	_, said, err := t.Both(append([]string{"checkout", "-q", "--no-overwrite-ignore"}, args...)...)
	if err != nil {
		return errors.Join(err, p.recover(t))
	}
	// If the disk is full, git goes on, and succeeds.
	if strings.Contains(said, "error: unable to ") {
		err = sys.Error("git could not write all files of "+t.Dir+". Make room, and run git reset --hard there:", said)
	}
	return errors.Join(err, t.Do("update-ref", "-d", t.pending()))
}

// recover restores the files that a killed checkout has left. A checkout that git has completed stays.
func (p *program) recover(t *tree) error {
	to := t.Commit(t.pending())
	if to == "" {
		return nil
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
	p.Out = os.Stderr
	t, err := p.find()
	if err != nil {
		return err
	}
	branch, head, is := t.branch(), t.Commit("HEAD"), t.current()
	if is.Tip == "" {
		if applied {
			return fmt.Errorf("the patches are not applied to %s: run \"make apply\" first", t.Dir)
		}
		branch = ""
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
	if t.Commit("refs/tags/"+version+changedSuffix) != "" {
		return fmt.Errorf("%s has only the staging modules that the series changes (fetch --changed), and does not build: remove it", t.Dir)
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
		fmt.Printf("%s='%s'\n", v[0], strings.ReplaceAll(v[1], "'", `'\''`))
	}
	return nil
}

func (p *program) printPackages() error {
	p.Out = os.Stderr
	_, s, err := p.findSeries()
	if err != nil {
		return err
	}
	for _, name := range series.Packages(s.Patches...) {
		fmt.Println(name)
	}
	return nil
}
