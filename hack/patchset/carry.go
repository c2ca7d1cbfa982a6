// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/mod/semver"
)

// neighbour is the series that is nearest to a minor version: the next newer one, or else the newest.
func (p *program) neighbour(minor string) (string, error) {
	dirs := p.allSeries()
	if len(dirs) == 0 {
		return "", fmt.Errorf("there is no series in %s to begin with", p.patches)
	}
	for _, d := range dirs {
		if semver.Compare(filepath.Base(d), minor) > 0 {
			return d, nil
		}
	}
	return dirs[len(dirs)-1], nil
}

// carry begins a series: with the patches of the neighbouring one, and with its commits on the branch of the new one.
func (p *program) carry(version string) error {
	version, err := normalVersion(version)
	if err != nil {
		return err
	}
	if p.kubeRoot != "" || p.skip != "" || p.seriesName != "" {
		return errors.New("carry takes no KUBE_ROOT, SKIP or KB_SERIES: a series is made on a release, with all of its patches")
	}
	minor := semver.MajorMinor(version)
	dir := filepath.Join(p.patches, minor)
	if exists(dir) {
		return fmt.Errorf("%s is there already", dir)
	}
	old, err := p.neighbour(minor)
	if err != nil {
		return err
	}
	from, err := p.loadSeries(old)
	if err != nil {
		return err
	}
	for _, v := range []string{from.tag, version} {
		if err := p.fetch(v); err != nil {
			return err
		}
	}
	t := &tree{git: p.git(p.treeDir(version)), kind: repository, version: version}
	branch := branchPrefix + minor
	if t.hasBranch(branch) {
		return fmt.Errorf("%s has a branch %s already", t.dir, branch)
	}
	if err := errors.Join(t.requireNoOperation(), t.requireClean("carrying patches to it")); err != nil {
		return err
	}
	// The commits of the old series, on the release that it was made on. With the old release's files git merges; the
	// hunks alone would have to fit.
	tag := "refs/tags/" + from.tag
	if err := t.do("fetch", "-q", "--no-tags", p.treeDir(from.tag), tag+":"+tag); err != nil {
		return err
	}
	base := t.commitID(tag)
	commits, err := p.compose(t.git, base, from, t)
	if err != nil {
		return err
	}
	if err := copySeries(from, dir, version); err != nil {
		removeAll(dir)
		return err
	}
	s, err := p.loadSeries(dir)
	if err != nil {
		return err
	}
	tip := commits[len(commits)-1].commit
	if err := errors.Join(t.setState(branch, "origin", t.head()), p.recordApplied(t, s, base, tip)); err != nil {
		return err
	}
	if err := t.do("checkout", "-q", "-b", branch, tip); err != nil {
		return err
	}
	p.say("%s has the %d patches of %s, and %s has them as commits, on kubernetes %s. Now:", dir, len(commits), from.name, branch, from.tag)
	at := quoteShell(t.dir)
	p.note("git -C %s rebase --onto %s %s", at, version, from.tag)
	p.note("hack/patchset.sh pin %s", version)
	p.note("KUBE_VERSION=%s hack/patchset.sh refresh --base %s", version, version)
	return nil
}

// copySeries copies the patches of a series. Versions of new files that an older release needs are inherited, and a newer
// one has those of all.
func copySeries(s *series, dir, version string) error {
	files := map[string][]byte{"BASE": fmt.Appendf(nil, "tag: %s\n", version)}
	var err error
	if files["series"], err = os.ReadFile(filepath.Join(s.dir, "series")); err != nil {
		return err
	}
	for _, q := range s.active {
		files[q.file] = []byte(q.mail)
	}
	if slices.ContainsFunc(glob(s.dir, "*.patch"), func(f string) bool { return files[filepath.Base(f)] == nil }) {
		return fmt.Errorf("%s/series leaves out patches: put them back, or delete their files", s.dir)
	}
	for name, content := range files {
		if err := writeFile(filepath.Join(dir, name), content, 0o666); err != nil {
			return err
		}
	}
	return nil
}
