// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kubelet-backoff/kubelet-backoff/hack/internal/series"
	"github.com/kubelet-backoff/kubelet-backoff/hack/internal/sys"
)

// base returns the commit of the tree to which the series is applied, or would be.
func (t *tree) base() string {
	if branch := t.seriesBranch(); t.branch() == branch {
		return cmp.Or(t.state(branch).Base, t.Commit("HEAD"))
	}
	return t.Commit("HEAD")
}

// export writes the series that fits the tree in mailbox format.
func (p *program) export() error {
	t, s, err := p.findSeries()
	if err != nil {
		return err
	}
	dir := filepath.Join(p.Output, "series", s.Name)
	old, err := series.Glob(dir, "*.patch")
	if err != nil {
		return err
	}
	files, err := p.writeMails(t, s, dir)
	if err != nil {
		return err
	}
	for _, file := range old {
		if !files[file] {
			if err := os.Remove(file); err != nil {
				return err
			}
		}
	}
	p.Say("%d mails for kubernetes %s are in %s: git am %s/*.patch", len(files), s.Name, dir, dir)
	return nil
}

// writeMails writes the commits of the series in mailbox format to a directory, and returns their paths.
func (p *program) writeMails(t *tree, s *series.Series, dir string) (map[string]bool, error) {
	commits, err := p.compose(t, t.base(), s)
	if err != nil {
		return nil, err
	}
	files := map[string]bool{}
	for i, q := range s.Patches {
		mail, err := t.Mail(commits[i])
		if err != nil {
			return nil, err
		}
		file := filepath.Join(dir, fmt.Sprintf("%04d-%s.patch", q.Number, q.Name))
		files[file] = true
		if err := sys.Write(file, []byte(mail)); err != nil {
			return nil, err
		}
	}
	return files, nil
}
