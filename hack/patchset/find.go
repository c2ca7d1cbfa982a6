// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/semver"

	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/console"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/fileutil"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/git"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/kubeversion"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/series"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/tree"
)

// wantedVersion returns KUBE_VERSION, or else the release that the newest series was made on.
func (p *program) wantedVersion() (string, error) {
	if p.kubeVersion != "" {
		return kubeversion.Normal(p.kubeVersion)
	}
	dirs := p.All()
	if len(dirs) == 0 {
		return "", fmt.Errorf("no series in %s, so KUBE_VERSION must be given, e.g. KUBE_VERSION=v1.37.1", p.Patches)
	}
	b, err := series.ReadBase(dirs[len(dirs)-1])
	return b.Tag, err
}

// locate finds the tree. It fetches nothing.
func (p *program) locate() (*tree.Tree, error) {
	t := &tree.Tree{}
	dir, hint := p.kubeRoot, ""
	if dir != "" {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return nil, fmt.Errorf("KUBE_ROOT=%s is not a directory", dir)
		}
		if strings.Contains(dir, "\n") {
			return nil, fmt.Errorf("KUBE_ROOT=%q: the path must not contain a line break, which git does not support here", dir)
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
		if t.Version, err = p.wantedVersion(); err != nil {
			return nil, err
		}
		dir = p.treeDir(t.Version)
		hint = "Remove that directory; the next command fetches it again."
	}
	t.Git = p.Git.In(dir)
	if !fileutil.Exists(dir) {
		return t, nil
	}
	mod, _ := os.ReadFile(filepath.Join(dir, "go.mod"))
	if !fileutil.HasLine(string(mod), "module k8s.io/kubernetes") {
		return nil, console.Error(fmt.Sprintf("%s is not a kubernetes source tree: its go.mod must say \"module k8s.io/kubernetes\"", dir), hint)
	}
	// A plain tree may be inside another repository: only its own .git counts.
	if !fileutil.Exists(filepath.Join(dir, ".git")) {
		t.Kind = tree.Plain
		return t, nil
	}
	t.Kind = tree.Repository
	if err := t.Do("rev-parse", "--git-dir"); err != nil {
		return nil, console.Error(fmt.Sprintf("%s/.git exists, but git does not accept it as a repository", dir), err.Error())
	}
	if t.CommitID("HEAD") == "" {
		return nil, fmt.Errorf("the git repository %s has no commit", dir)
	}
	return t, nil
}

func (p *program) treeDir(version string) string {
	return filepath.Join(p.output, version, "kubernetes")
}

// findVersion sets t.Version.
func (p *program) findVersion(t *tree.Tree) error {
	if p.kubeRoot == "" {
		return nil
	}
	if p.kubeVersion != "" {
		var err error
		if t.Version, err = kubeversion.Normal(p.kubeVersion); err != nil {
			return err
		}
	}
	if t.Kind == tree.Repository {
		rev := cmp.Or(t.State(t.Branch(), "base"), "HEAD")
		all, _ := t.Lines("tag", "--list", "v1.*", "--points-at", rev)
		tags := slices.DeleteFunc(slices.Clone(all), func(tag string) bool { return !kubeversion.Pattern.MatchString(tag) })
		// At the tag of the first alpha of a minor version, the tree is still that of the previous minor version.
		if m := t.Minor(); m != "" {
			tags = slices.DeleteFunc(tags, func(tag string) bool { return semver.MajorMinor(tag) != m })
		}
		if len(tags) > 0 {
			t.Version = cmp.Or(t.Version, slices.MaxFunc(tags, semver.Compare))
			if !slices.Contains(tags, t.Version) {
				return console.Error(fmt.Sprintf("KUBE_VERSION is %s, but KUBE_ROOT (%s) is at %s", t.Version, t.Dir, strings.Join(tags, " ")),
					fmt.Sprintf("Check out %s there, or leave KUBE_VERSION unset.", t.Version))
			}
			return nil
		}
		if forks := slices.DeleteFunc(all, func(tag string) bool { return kubeversion.OfTag(tag) == "" }); len(forks) > 0 && t.Version == "" {
			tag := slices.MaxFunc(forks, func(a, b string) int { return semver.Compare(kubeversion.OfTag(a), kubeversion.OfTag(b)) })
			t.Version = kubeversion.OfTag(tag)
			p.Note("%s is at %s, so its release is assumed to be %s", t.Dir, tag, t.Version)
		}
		if tag := t.Try("describe", "--tags", "--abbrev=0", "--match", "v1.*", rev); tag != "" && t.Version == "" {
			if t.Version = kubeversion.OfTag(tag); t.Version == "" {
				return fmt.Errorf("%s: the nearest tag, %s, is not a kubernetes release; set KUBE_VERSION", t.Dir, tag)
			}
			p.Note("%s is at no tag; the nearest one before it is %s, so its release is assumed to be %s", t.Dir, tag, t.Version)
		}
	}
	if t.Version != "" {
		return t.CheckMinor()
	}
	how := ""
	if t.Version, how = t.SaysVersion(); t.Version == "" {
		t.Version, how = p.releaseOfMinor(t.Minor()), "the minor version in "+tree.BaseVersionFile
	}
	if t.Version == "" {
		return console.Error(fmt.Sprintf("cannot find out which kubernetes release %s is: it has no git tag and no version file", t.Dir),
			"Set it, for example: KUBE_VERSION=v1.37.1")
	}
	p.Note("%s is assumed to be %s, because of %s", t.Dir, t.Version, how)
	return t.CheckMinor()
}

// releaseOfMinor returns the release that the series of a minor version was made on.
func (p *program) releaseOfMinor(minor string) string {
	b, _ := series.ReadBase(filepath.Join(p.Patches, cmp.Or(minor, "none")))
	return b.Tag
}

// resolve finds the tree and its version. A tree that is missing is fetched, unless KUBE_ROOT names it.
func (p *program) resolve() (*tree.Tree, error) {
	t, err := p.locate()
	if err == nil && t.Kind == tree.Missing {
		if err = p.fetch(t.Version); err == nil {
			t, err = p.locate()
		}
	}
	if err != nil {
		return nil, err
	}
	return t, p.findVersion(t)
}

// target is the tree, and the series for it.
func (p *program) target() (*tree.Tree, *series.Series, error) {
	t, err := p.resolve()
	if err != nil {
		return nil, nil, err
	}
	s, err := p.pickSeries(t.Version)
	if err != nil {
		return nil, nil, err
	}
	return t, s, p.CheckDependencies(s)
}

// requireRelease returns an error if a tree that fetch made has neither its release nor the series on that release checked
// out. This is the case while a series is being carried to the release.
func (p *program) requireRelease(t *tree.Tree) error {
	if p.kubeRoot != "" || t.Kind != tree.Repository {
		return nil
	}
	a, err := t.FindApplied()
	if err != nil {
		return err
	}
	base := t.CommitID("HEAD")
	if a != nil && t.Branch() == a.Branch {
		base = a.Base
	}
	if base == t.CommitID("refs/tags/"+t.Version) {
		return nil
	}
	return console.Error(fmt.Sprintf("%s has %.12s checked out, or the series on that, which is not %s", t.Dir, base, t.Version),
		"If a series is being carried to it: finish the git rebase and the refresh that \"carry\" printed.",
		fmt.Sprintf("Otherwise check out %s there, or name the tree with KUBE_ROOT.", t.Version))
}

// applied returns the tree, its series branch, and the series of that branch, without the patches to skip.
func (p *program) applied() (*tree.Tree, *tree.Applied, *series.Series, error) {
	t, err := p.locate()
	if err != nil {
		return nil, nil, nil, err
	}
	a, err := t.RequireApplied()
	if err != nil {
		return nil, nil, nil, err
	}
	s, err := p.loadSeries(filepath.Join(p.Patches, a.Series))
	return t, a, s, err
}

// treeCommand prints variables for a shell.
func (p *program) treeCommand(fetch, mustBeApplied bool) error {
	shell := p.Out
	p.Out = p.ErrOut
	find := p.locate
	if fetch {
		find = p.resolve
	}
	t, err := find()
	if err != nil {
		return err
	}
	var a *tree.Applied
	if mustBeApplied {
		if a, err = t.RequireApplied(); err == nil {
			err = p.findVersion(t)
		}
	} else {
		a, err = t.FindApplied()
	}
	if err != nil {
		return err
	}
	variables := [][2]string{{"TREE", t.Dir}, {"TREE_KIND", t.Kind.String()}, {"VERSION", t.Version}}
	if t.Kind == tree.Repository {
		state := "clean"
		if dirty, err := t.Dirty(); err != nil || len(dirty) > 0 {
			state = "dirty"
		}
		variables = append(variables, [][2]string{{"COMMIT", t.CommitID("HEAD")}, {"TREE_STATE", state}, {"COMMIT_TIME", t.Try("log", "-1", "--format=%ct")}}...)
	}
	if a != nil && t.Branch() == a.Branch {
		variables = append(variables, [][2]string{{"BRANCH", a.Branch}, {"BASE", a.Base}, {"BASE_TIME", t.Try("log", "-1", "--format=%ct", a.Base)}}...)
	}
	for _, v := range variables {
		fmt.Fprintf(shell, "%s=%s\n", v[0], console.QuoteShell(v[1]))
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
	// Borrow leaves these attributes, and the path of the objects of another repository.
	attributes, _ := os.ReadFile(filepath.Join(dir, ".git/info/attributes"))
	if fileutil.Exists(dir) && !(string(attributes) == git.NeutralAttributes && fileutil.Exists(filepath.Join(dir, git.Alternates))) {
		return console.Error(fmt.Sprintf("%s exists already, and this command did not make it", dir), "Move it away.")
	}
	work, remove, err := fileutil.Scratch(filepath.Dir(dir))
	if err != nil {
		return err
	}
	defer remove()
	r, commit, err := t.Stock(filepath.Join(work, "kubernetes"))
	if err != nil {
		return err
	}
	old := p.Git.In(dir)
	if old.CommitID("HEAD") == commit && old.OK("diff", "--quiet", "HEAD") {
		return nil
	}
	p.Say("Checking out kubernetes %s without the series in %s", t.Version, dir)
	if err := r.Do("reset", "-q", "--hard"); err != nil {
		return err
	}
	fileutil.RemoveAll(dir)
	return os.Rename(r.Dir, dir)
}
