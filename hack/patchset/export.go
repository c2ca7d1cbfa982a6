// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

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
	there, _ := fs.Glob(os.DirFS(dir), "*.patch")
	for _, name := range there {
		if file := filepath.Join(dir, name); !slices.Contains(files, file) {
			err = errors.Join(err, os.Remove(file))
		}
	}
	return files, err
}
