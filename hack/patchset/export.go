// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/kubelet-backoff/kubelet-backoff/hack/internal/series"
	"github.com/kubelet-backoff/kubelet-backoff/hack/internal/sys"
)

// export writes the series that fits the tree in mailbox format.
func (p *program) export() error {
	t, s, err := p.findSeries()
	if err != nil {
		return err
	}
	dir := filepath.Join(p.Output, "series", s.Name)
	files, err := p.writeMails(t, s, dir)
	if err != nil {
		return err
	}
	p.Say("%d mails for kubernetes %s are in %s: git am %s/*.patch", len(files), s.Name, dir, dir)
	return nil
}

// writeMails writes the commits of the series in mailbox format to a directory, removes other mails there, and returns their paths.
func (p *program) writeMails(t *tree, s *series.Series, dir string) (files []string, err error) {
	commits, err := p.compose(t, t.current().Base, s)
	if err != nil {
		return nil, err
	}
	old, _ := fs.Glob(os.DirFS(dir), "*.patch")
	for _, name := range old {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			return nil, err
		}
	}
	for i, q := range s.Patches {
		mail, err := t.Mail(commits[i])
		if err != nil {
			return nil, err
		}
		file := filepath.Join(dir, fmt.Sprintf("%04d-%s.patch", q.Number, q.Name))
		files = append(files, file)
		if err := sys.Write(file, []byte(mail)); err != nil {
			return nil, err
		}
	}
	return files, nil
}
