// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/mod/semver"

	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/console"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/fileutil"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/kubeversion"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/series"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/tree"
)

// neighbour returns the series nearest to a minor version: the next newer one, or else the newest.
func (p *program) neighbour(minor string) (string, error) {
	dirs := p.All()
	if len(dirs) == 0 {
		return "", fmt.Errorf("there is no series in %s to carry from", p.Patches)
	}
	for _, d := range dirs {
		if semver.Compare(filepath.Base(d), minor) > 0 {
			return d, nil
		}
	}
	return dirs[len(dirs)-1], nil
}

// carry starts a series with the patches of the neighbouring series, and commits them to the new branch.
func (p *program) carry(version string) error {
	version, err := kubeversion.Normal(version)
	if err != nil {
		return err
	}
	if p.kubeRoot != "" || p.pick != (series.Pick{}) || p.seriesName != "" {
		return errors.New("carry takes no KUBE_ROOT, SERIES, SKIP or KB_SERIES: a series is made on a release, with all of its patches")
	}
	minor := semver.MajorMinor(version)
	dir := filepath.Join(p.Patches, minor)
	if fileutil.Exists(dir) {
		return fmt.Errorf("%s exists already", dir)
	}
	old, err := p.neighbour(minor)
	if err != nil {
		return err
	}
	from, err := p.loadSeries(old)
	if err != nil {
		return err
	}
	for _, v := range []string{from.Tag, version} {
		if err := p.fetch(v); err != nil {
			return err
		}
	}
	t := &tree.Tree{Git: p.Git.In(p.treeDir(version)), Kind: tree.Repository, Version: version}
	branch := series.BranchPrefix + minor
	if t.HasBranch(branch) {
		return fmt.Errorf("%s already has a branch %s", t.Dir, branch)
	}
	if err := errors.Join(t.RequireNoOperation(), t.RequireClean("carrying patches to it")); err != nil {
		return err
	}
	// The commits are on the release of the old series, so that git rebase can merge. Plain hunks would have to fit exactly.
	tag := "refs/tags/" + from.Tag
	if err := t.Do("fetch", "-q", "--no-tags", p.treeDir(from.Tag), tag+":"+tag); err != nil {
		return err
	}
	base := t.CommitID(tag)
	commits, err := p.compose(t.Git, base, from, t)
	if err != nil {
		return err
	}
	if err := copySeries(from, dir, version); err != nil {
		fileutil.RemoveAll(dir)
		return err
	}
	s, err := p.loadSeries(dir)
	if err != nil {
		return err
	}
	if err := p.checkOutNew(t, s, base, commits[len(commits)-1].commit); err != nil {
		return err
	}
	p.Say("%s has the %d patches of %s, and %s has them as commits, on kubernetes %s. Now:", dir, len(commits), from.Name, branch, from.Tag)
	at := console.QuoteShell(t.Dir)
	p.Note("git -C %s rebase --onto %s %s", at, version, from.Tag)
	p.Note("hack/patchset.sh pin %s", version)
	p.Note("KUBE_VERSION=%s hack/patchset.sh refresh --base %s", version, version)
	return nil
}

// copySeries copies the patches of a series. It copies no files of _src: an older release inherits the versions of newer ones,
// and a newer release uses the files for all.
func copySeries(s *series.Series, dir, version string) error {
	files := map[string][]byte{"BASE": fmt.Appendf(nil, "tag: %s\n", version)}
	var err error
	if files["series"], err = os.ReadFile(filepath.Join(s.Dir, "series")); err != nil {
		return err
	}
	for _, q := range s.Active {
		files[q.File] = []byte(q.Mail)
	}
	if slices.ContainsFunc(fileutil.Glob(s.Dir, "*.patch"), func(f string) bool { return files[filepath.Base(f)] == nil }) {
		return fmt.Errorf("%s/series leaves out patches: add them again, or delete their files", s.Dir)
	}
	for name, content := range files {
		if err := fileutil.Write(filepath.Join(dir, name), content, 0o666); err != nil {
			return err
		}
	}
	return nil
}
