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

	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/console"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/fileutil"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/series"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/tree"
)

func (p *program) export() error {
	if p.vendorLibrary {
		return errors.New("export takes no VENDOR: the mails have the copies of the library")
	}
	t, s, err := p.target()
	if err != nil {
		return err
	}
	work, remove, err := fileutil.Scratch(p.output)
	if err != nil {
		return err
	}
	defer remove()
	r, base, err := t.Stock(filepath.Join(work, "kubernetes"))
	if err != nil {
		return err
	}
	commits, err := p.compose(r, base, s, t)
	if err != nil {
		return err
	}
	dir := filepath.Join(p.output, "series", s.Name)
	written, err := writeMails(commits, dir)
	if err != nil {
		return err
	}
	for _, f := range written {
		p.Note("%s", filepath.Base(f))
	}
	for _, f := range fileutil.Glob(dir, "[0-9]*.patch") {
		if !slices.Contains(written, f) {
			if err := os.Remove(f); err != nil {
				return err
			}
		}
	}
	p.Say("%d mails for kubernetes %s are in %s: git am %s/*.patch", len(commits), t.Version, dir, console.QuoteShell(dir))
	return nil
}

// dist writes a release archive.
func (p *program) dist() error {
	g := p.Git.In(p.Root)
	if g.CommitID("HEAD") == "" {
		return fmt.Errorf("%s is not a git checkout: dist archives a commit", p.Root)
	}
	dirty, err := g.Lines("status", "--porcelain", "--untracked-files=normal")
	if err != nil {
		return err
	}
	if len(dirty) > 0 {
		return console.Error(fmt.Sprintf("%s has changes that are not committed, and dist archives a commit:", p.Root), dirty...)
	}
	version := cmp.Or(g.Try("describe", "--tags", "--exact-match", "--match", "v*"), fmt.Sprintf("%.12s", g.CommitID("HEAD")))
	at, err := strconv.ParseInt(g.Try("log", "-1", "--format=%ct"), 10, 64)
	if err != nil {
		return err
	}
	work, remove, err := fileutil.Scratch(p.output)
	if err != nil {
		return err
	}
	defer remove()

	files, err := g.Files("HEAD")
	if err != nil {
		return err
	}
	content := map[string][]byte{}
	for path, f := range files {
		if content[path], err = g.Bytes("cat-file", "blob", f.Blob); err != nil {
			return err
		}
	}
	// An archive has every patch, on the release that BASE names. So it ignores SERIES, SKIP, KUBE_ROOT and KUBE_VERSION.
	p.pick, p.kubeRoot = series.Pick{}, ""
	for _, dir := range p.All() {
		s, err := p.loadSeries(dir)
		if err != nil {
			return err
		}
		p.kubeVersion = s.Tag
		t, err := p.resolve()
		if err != nil {
			return err
		}
		// Another commit may be checked out in the tree.
		release := t.CommitID("refs/tags/" + s.Tag)
		if release == "" {
			return fmt.Errorf("%s has no tag %s", t.Dir, s.Tag)
		}
		r, err := t.Borrow(filepath.Join(work, s.Name), release)
		if err != nil {
			return err
		}
		commits, err := p.compose(r, release, s, t)
		if err != nil {
			return err
		}
		for _, c := range commits {
			content["series/"+s.Name+"/"+c.patch.File] = []byte(c.mail)
		}
	}
	var sums strings.Builder
	for _, path := range slices.Sorted(maps.Keys(content)) {
		// sha256sum -c follows links.
		if files[path].Mode != "120000" {
			fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(content[path]), path)
		}
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
		switch files[path].Mode {
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
	if err := fileutil.Write(filepath.Join(dir, archive), b.Bytes(), 0o666); err != nil {
		return err
	}
	if err := fileutil.Write(filepath.Join(dir, "SHA256SUMS"), fmt.Appendf(nil, "%x  %s\n", sha256.Sum256(b.Bytes()), archive), 0o666); err != nil {
		return err
	}
	p.Say("%s", filepath.Join(dir, archive))
	return nil
}

// clean removes _output. It does not remove KB_OUTPUT_DIR, which may contain other files.
func (p *program) clean() error {
	output := filepath.Join(p.Root, "_output")
	entries, err := os.ReadDir(output)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	kept := false
	for _, e := range entries {
		dir := filepath.Join(output, e.Name())
		t := &tree.Tree{Git: p.Git.In(filepath.Join(dir, "kubernetes")), Kind: tree.Repository}
		work := ""
		if fileutil.Exists(filepath.Join(t.Dir, ".git")) {
			work = t.Work(e.Name())
		}
		if work == "" {
			fileutil.RemoveAll(dir)
			continue
		}
		p.Warn("kept, because it has %s: %s", work, t.Dir)
		kept = true
		fileutil.RemoveAll(filepath.Join(dir, "stock"))
		fileutil.RemoveAll(filepath.Join(dir, "kubelet"))
	}
	if !kept {
		fileutil.RemoveAll(output)
	}
	return nil
}
