// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// mails are the mails of a series, by file name, made on a commit of a tree; if it names none, on what the tree has
// without the series.
func (p *program) mails(t *tree, s *series, base string) (map[string][]byte, error) {
	work, remove, err := scratch(p.output)
	if err != nil {
		return nil, err
	}
	defer remove()
	var r git
	if base == "" {
		r, base, err = p.stock(t, filepath.Join(work, "kubernetes"))
	} else {
		r, err = t.borrow(filepath.Join(work, "kubernetes"), base)
	}
	if err != nil {
		return nil, err
	}
	commits, err := p.compose(r, base, s, t)
	if err != nil {
		return nil, err
	}
	mails := map[string][]byte{}
	for _, c := range commits {
		mail, err := r.mail(c.commit)
		if err != nil {
			return nil, err
		}
		mails[c.patch.file] = []byte(mail)
	}
	return mails, nil
}

func (p *program) export() error {
	t, err := p.resolve()
	if err != nil {
		return err
	}
	s, err := p.pickSeries(t.version)
	if err != nil {
		return err
	}
	if err := p.checkDependencies(s); err != nil {
		return err
	}
	mails, err := p.mails(t, s, "")
	if err != nil {
		return err
	}
	dir := filepath.Join(p.output, "series", s.name)
	for _, name := range slices.Sorted(maps.Keys(mails)) {
		if err := writeFile(filepath.Join(dir, name), mails[name], 0o666); err != nil {
			return err
		}
		p.note("%s", name)
	}
	for _, f := range glob(dir, "[0-9]*.patch") {
		if mails[filepath.Base(f)] == nil {
			if err := os.Remove(f); err != nil {
				return err
			}
		}
	}
	p.say("%d mails for kubernetes %s are in %s: git am %s/*.patch", len(mails), t.version, dir, quoteShell(dir))
	return nil
}

// dist writes a release archive.
func (p *program) dist() error {
	if err := p.needGit(); err != nil {
		return err
	}
	g := p.git(p.root)
	if g.commitID("HEAD") == "" {
		return fail(fmt.Sprintf("%s is no git checkout: an archive is made of a commit", p.root))
	}
	dirty, err := g.lines("status", "--porcelain", "--untracked-files=normal")
	if err != nil {
		return err
	}
	if len(dirty) > 0 {
		return fail(fmt.Sprintf("%s has changes that are not committed, and an archive is made of a commit:", p.root), dirty...)
	}
	version := g.try("describe", "--tags", "--exact-match")
	if version == "" {
		version = fmt.Sprintf("%.12s", g.commitID("HEAD"))
	}
	seconds, err := g.out("log", "-1", "--format=%ct")
	if err != nil {
		return err
	}
	at, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return err
	}

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
	all := *p
	all.skip, all.kubeRoot = "", ""
	for _, dir := range p.allSeries() {
		s, err := all.loadSeries(dir)
		if err != nil {
			return err
		}
		all.kubeVersion, all.seriesName = s.tag, s.name
		t, err := all.resolve()
		if err != nil {
			return err
		}
		// Whatever is checked out there by now.
		release := t.commitID("refs/tags/" + s.tag)
		if release == "" {
			return fail(fmt.Sprintf("%s has no tag %s", t.dir, s.tag))
		}
		mails, err := all.mails(t, s, release)
		if err != nil {
			return err
		}
		for name, mail := range mails {
			content["series/"+s.name+"/"+name] = mail
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
	if err := w.Close(); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
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
