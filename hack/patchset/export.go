// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

func (p *program) export() error {
	t, s, err := p.target()
	if err != nil {
		return err
	}
	work, remove, err := scratch(p.output)
	if err != nil {
		return err
	}
	defer remove()
	r, base, err := p.stock(t, filepath.Join(work, "kubernetes"))
	if err != nil {
		return err
	}
	commits, err := p.compose(r, base, s, t)
	if err != nil {
		return err
	}
	dir := filepath.Join(p.output, "series", s.name)
	written, err := writeMails(commits, dir)
	if err != nil {
		return err
	}
	for _, f := range written {
		p.note("%s", filepath.Base(f))
	}
	for _, f := range glob(dir, "[0-9]*.patch") {
		if !slices.Contains(written, f) {
			if err := os.Remove(f); err != nil {
				return err
			}
		}
	}
	p.say("%d mails for kubernetes %s are in %s: git am %s/*.patch", len(commits), t.version, dir, quoteShell(dir))
	return nil
}

// dist writes a release archive.
func (p *program) dist() error {
	g := p.git(p.root)
	if g.commitID("HEAD") == "" {
		return fmt.Errorf("%s is no git checkout: an archive is made of a commit", p.root)
	}
	dirty, err := g.lines("status", "--porcelain", "--untracked-files=normal")
	if err != nil {
		return err
	}
	if len(dirty) > 0 {
		return fail(fmt.Sprintf("%s has changes that are not committed, and an archive is made of a commit:", p.root), dirty...)
	}
	version := cmp.Or(g.try("describe", "--tags", "--exact-match"), fmt.Sprintf("%.12s", g.commitID("HEAD")))
	at, err := strconv.ParseInt(g.try("log", "-1", "--format=%ct"), 10, 64)
	if err != nil {
		return err
	}
	work, remove, err := scratch(p.output)
	if err != nil {
		return err
	}
	defer remove()

	files, err := g.files("HEAD")
	if err != nil {
		return err
	}
	content := map[string][]byte{}
	for path, f := range files {
		if content[path], err = g.bytes("cat-file", "blob", f.blob); err != nil {
			return err
		}
	}
	// Whatever SKIP, KUBE_ROOT and KUBE_VERSION say: an archive has every patch, made on the release that BASE names.
	p.skip, p.kubeRoot = "", ""
	for _, dir := range p.allSeries() {
		s, err := p.loadSeries(dir)
		if err != nil {
			return err
		}
		p.kubeVersion = s.tag
		t, err := p.resolve()
		if err != nil {
			return err
		}
		// Whatever is checked out there by now.
		release := t.commitID("refs/tags/" + s.tag)
		if release == "" {
			return fmt.Errorf("%s has no tag %s", t.dir, s.tag)
		}
		r, err := t.borrow(filepath.Join(work, s.name), release)
		if err != nil {
			return err
		}
		commits, err := p.compose(r, release, s, t)
		if err != nil {
			return err
		}
		for _, c := range commits {
			content["series/"+s.name+"/"+c.patch.file] = []byte(c.mail)
		}
	}
	var sums strings.Builder
	for _, path := range slices.Sorted(maps.Keys(content)) {
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(content[path]), path)
	}
	content["SHA256SUMS"] = []byte(sums.String())

	name := "kubelet-backoff-" + version
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return err
	}
	w := tar.NewWriter(z)
	for _, path := range slices.Sorted(maps.Keys(content)) {
		h := &tar.Header{Name: name + "/" + path, Mode: 0o644, Size: int64(len(content[path])), ModTime: time.Unix(at, 0), Format: tar.FormatPAX}
		switch files[path].mode {
		case "100755":
			h.Mode = 0o755
		case "120000":
			h.Typeflag, h.Linkname, h.Size, content[path] = tar.TypeSymlink, string(content[path]), 0, nil
		}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		if _, err := w.Write(content[path]); err != nil {
			return err
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		return err
	}
	dir := filepath.Join(p.output, "dist")
	archive := name + ".tar.gz"
	if err := writeFile(filepath.Join(dir, archive), b.Bytes(), 0o666); err != nil {
		return err
	}
	if err := writeFile(filepath.Join(dir, "SHA256SUMS"), fmt.Appendf(nil, "%x  %s\n", sha256.Sum256(b.Bytes()), archive), 0o666); err != nil {
		return err
	}
	p.say("%s", filepath.Join(dir, archive))
	return nil
}
