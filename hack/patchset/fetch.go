// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/console"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/fileutil"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/kubeversion"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/modproxy"
)

func (p *program) fetchCommand(args []string) error {
	if len(args) == 0 && p.kubeRoot != "" {
		p.Say("KUBE_ROOT is set (%s): nothing to fetch", p.kubeRoot)
		return nil
	}
	version, err := p.wantedVersion()
	if len(args) > 0 {
		version, err = kubeversion.Normal(args[0])
	}
	if err != nil {
		return err
	}
	return p.fetch(version)
}

// fetch makes the source tree of a release.
func (p *program) fetch(version string) error {
	dest := p.treeDir(version)
	there := func() bool {
		return fileutil.Exists(filepath.Join(dest, ".git")) && fileutil.Exists(filepath.Join(dest, "go.mod"))
	}
	if fileutil.Exists(dest) && !there() {
		return console.Error(fmt.Sprintf("%s exists, but \"make fetch\" did not make it (no .git or no go.mod)", dest), "Remove it and run this again.")
	}
	unlock, err := p.lock(".fetch.lock", "fetch")
	if err != nil {
		return err
	}
	defer unlock()
	// Another fetch may have made it meanwhile.
	if there() {
		p.Say("kubernetes %s is already in %s", version, dest)
		return nil
	}
	d, remove, err := p.download(version)
	if err != nil {
		return err
	}
	defer remove()
	p.Say("Making a git repository of it, tagged %s", version)
	g := p.Git.In(d.Dir)
	if err := g.Initialize(); err != nil {
		return err
	}
	if err := g.Run("config core.autocrlf false", "add -f -A ."); err != nil {
		return err
	}
	if err := g.Release(fmt.Sprintf("kubernetes %s from the Go module proxy", version)); err != nil {
		return err
	}
	if err := g.Run("tag "+version, "repack -q -a -d"); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dest), 0o777); err != nil {
		return err
	}
	if err := os.Rename(d.Dir, dest); err != nil {
		return err
	}
	p.Say("kubernetes %s is in %s", version, dest)
	return nil
}

// download downloads a release, and compares it with the hashes in its series.
func (p *program) download(version string) (d *modproxy.Download, remove func(), err error) {
	quiet := *p
	quiet.seriesName = ""
	file := ""
	dir, none := quiet.seriesFor(version)
	if none == nil {
		file = filepath.Join(dir, "kubernetes.sum")
	}
	pins, err := modproxy.ReadPins(file, version)
	if err != nil {
		return nil, nil, err
	}
	if none != nil {
		p.Note("no series fits kubernetes %s, so there are no hashes to compare with", version)
	} else if !pins.Pinned {
		p.Note("%s has no hashes of kubernetes %s to compare with", file, version)
	}
	return modproxy.Get(p.ctx, p.Log, p.output, version, pins)
}

// pin adds the hashes of a release to those of its series.
func (p *program) pin(version string) error {
	version, err := kubeversion.Normal(version)
	if err != nil {
		return err
	}
	if _, err := p.seriesFor(version); err != nil {
		return err
	}
	d, remove, err := p.download(version)
	if err != nil {
		return err
	}
	defer remove()
	changed, err := d.Pin()
	if err != nil {
		return err
	}
	if !changed {
		p.Say("%s already has all hashes", d.Pins.File)
		return nil
	}
	p.Say("%d hashes of kubernetes %s are in %s", len(d.Got), version, d.Pins.File)
	return nil
}
