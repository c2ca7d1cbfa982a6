// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"crypto/md5"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
	"golang.org/x/mod/sumdb/dirhash"
	modzip "golang.org/x/mod/zip"

	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/console"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/fileutil"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/git"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/series"
)

// libraryVersion returns the version of the library at the commit that is checked out, as the go command names it: the tag, or
// else a pseudo-version. It returns an error if a file of the folders, which are vendored, differs from that commit.
func (p *program) libraryVersion(folders []string) (string, error) {
	g := p.Git.In(p.Root)
	if top, err := g.Out("rev-parse", "--show-cdup"); err != nil || top != "" || g.CommitID("HEAD") == "" {
		return "", fmt.Errorf("%s is not a git checkout: VENDOR=1 vendors a commit", p.Root)
	}
	dirty, err := g.Lines(append([]string{"status", "--porcelain", "--", "go.mod", "LICENSE"}, folders...)...)
	if err != nil {
		return "", err
	}
	if len(dirty) > 0 {
		return "", console.Error(fmt.Sprintf("%s has changes that are not committed, and VENDOR=1 vendors a commit:", p.Root), dirty...)
	}
	// newest returns the newest of the tags that are versions, or "".
	newest := func(which string) (version string) {
		for _, tag := range strings.Fields(g.Try("tag", which, "HEAD")) {
			if semver.Canonical(tag) == tag && slices.Contains([]string{"v0", "v1"}, semver.Major(tag)) && semver.Compare(tag, version) > 0 {
				version = tag
			}
		}
		return version
	}
	if tag := newest("--points-at"); tag != "" {
		return tag, nil
	}
	at, err := time.Parse(time.RFC3339, g.Try("log", "-1", "--format=%cI"))
	if err != nil {
		return "", err
	}
	older := newest("--merged")
	return module.PseudoVersion(cmp.Or(semver.Major(older), "v0"), older, at.UTC(), g.CommitID("HEAD")[:12]), nil
}

// checkOutLibrary writes the files of the library's commit to a directory.
func (p *program) checkOutLibrary(dir string) error {
	g := p.Git.In(p.Root).With("GIT_INDEX_FILE=" + filepath.Join(dir, "library-index"))
	if err := g.Do("read-tree", "HEAD"); err != nil {
		return err
	}
	// The settings are those of the go command.
	return g.Do("-c", "core.autocrlf=input", "-c", "core.eol=lf", "checkout-index", "--all", "--prefix="+filepath.Join(dir, "library")+"/")
}

// librarySums returns the lines in go.sum of the library in dir.
func librarySums(dir, version string) (string, error) {
	f, err := os.Create(filepath.Join(dir, "module.zip"))
	if err != nil {
		return "", err
	}
	defer f.Close()
	library := filepath.Join(dir, "library")
	if err := modzip.CreateFromDir(f, module.Version{Path: series.LibraryModule, Version: version}, library); err != nil {
		return "", err
	}
	all, err := dirhash.HashZip(f.Name(), dirhash.Hash1)
	if err != nil {
		return "", err
	}
	mod, err := dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) { return os.Open(filepath.Join(library, "go.mod")) })
	return fmt.Sprintf("%[1]s %[2]s %[3]s\n%[1]s %[2]s/go.mod %[4]s\n", series.LibraryModule, version, all, mod), err
}

// vendoring has the changed files of a commit. The first error stays, and ends it.
type vendoring struct {
	git.Git
	commit string
	files  map[string]git.File
	err    error
}

// put writes a file with the mode of an ordinary one.
func (c *vendoring) put(file string, content []byte, err error) {
	c.putAs("100644", file, content, err)
}

func (c *vendoring) putAs(mode, file string, content []byte, err error) {
	if c.err = cmp.Or(c.err, err); c.err == nil {
		blob, err := c.Store(content)
		c.files[file], c.err = git.File{Mode: mode, Blob: blob}, err
	}
}

// edit changes a file that the commit must have.
func (c *vendoring) edit(file string, to func(old []byte) ([]byte, error)) {
	if c.err != nil {
		return
	}
	old, err := c.Bytes("cat-file", "blob", c.commit+":"+file)
	if err != nil {
		c.err = console.Error("VENDOR=1 needs a tree with "+file+", as kubernetes' git repository has it.", `If the tree has no vendor folder, run "go work vendor" in it and commit that.`)
		return
	}
	if now, err := to(old); err != nil || !bytes.Equal(now, old) {
		is, failed := c.Files(c.commit, file)
		c.putAs(is[file].Mode, file, now, cmp.Or(err, failed))
	}
}

// vendor commits, on top of the commit of a series that is in the index, that the library is in vendor instead of copies of its
// packages. It changes what upstream's hack/update-vendor.sh would: go.mod, go.sum, vendor and LICENSES. It uses the directory
// dir.
func (p *program) vendor(index git.Git, s *series.Series, commit string, author []string, dir string) (composed, error) {
	c := &vendoring{Git: index, commit: commit, files: map[string]git.File{}}
	for _, q := range s.Active {
		hunks, err := p.Hunks(q)
		if err != nil {
			return composed{}, err
		}
		for _, file := range slices.Concat(slices.Collect(maps.Keys(hunks)), slices.Collect(maps.Keys(q.Files))) {
			if rule, _ := s.Mirror.Home(q.Name, file); rule != nil && !rule.Nested {
				c.files[file] = git.File{}
			} else if strings.HasSuffix(file, ".go") {
				c.edit(file, func(old []byte) ([]byte, error) { return s.Mirror.ImportLibrary(file, old) })
			}
		}
	}

	if err := p.checkOutLibrary(dir); err != nil {
		return composed{}, err
	}
	root, folder := filepath.Join(dir, "library"), path.Join("vendor", series.LibraryModule)
	licence, err := os.ReadFile(filepath.Join(root, "LICENSE"))
	c.put(path.Join(folder, "LICENSE"), licence, err)
	if c.OK("cat-file", "-e", commit+":LICENSES/vendor") {
		c.put(path.Join("LICENSES", folder, "LICENSE"), fmt.Appendf(nil, "= %s licensed under: =\n\n%s\n= %[1]s/LICENSE %[3]x\n", folder, licence, md5.Sum(licence)), nil)
	}
	goMod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return composed{}, err
	}
	library, err := modfile.ParseLax("go.mod", goMod, nil)
	if err != nil {
		return composed{}, err
	}
	entry := fmt.Sprintf("# %s %s\n## explicit; go %s\n", series.LibraryModule, s.Vendor, library.Go.Version)
	for _, from := range s.Vendored() {
		entry += path.Join(series.LibraryModule, from) + "\n"
		for _, file := range fileutil.Glob(filepath.Join(root, from), "*.go") {
			if !strings.HasSuffix(file, "_test.go") {
				content, err := os.ReadFile(file)
				c.put(path.Join(folder, from, filepath.Base(file)), content, err)
			}
		}
	}
	var raised []raise
	c.edit("go.mod", func(old []byte) (now []byte, err error) {
		now, raised, err = requireLibrary(old, s.Vendor, library)
		return now, err
	})
	c.edit("vendor/modules.txt", func(old []byte) ([]byte, error) {
		if m := libraryLine.FindString(string(old)); m != "" {
			return nil, console.Error(fmt.Sprintf("vendor/modules.txt has %q already:", m), "Remove the module from the tree, with go mod edit -droprequire and go work vendor, and commit that.")
		}
		for _, m := range raised {
			old = m.inModules(old, c.OK("grep", "-q", "-F", m.path+" "+m.from, commit, "--", "staging/*/go.mod"))
		}
		return insert(old, "# ", entry), nil
	})
	sums, err := librarySums(dir, s.Vendor)
	c.edit("go.sum", func(old []byte) ([]byte, error) { return insert(old, "", sums), err })
	if c.err != nil {
		return composed{}, c.err
	}

	if err := c.Stage(c.files); err != nil {
		return composed{}, err
	}
	done := composed{patch: &series.Patch{File: "vendor: " + series.LibraryModule + " " + s.Vendor}}
	done.commit, err = c.CommitIndex(commit, "vendor: "+series.LibraryModule+"\n\nThe kubelet imports the module, and not copies of its packages.\n", author...)
	return done, err
}

// insert adds lines about the library to a list of modules, which is sorted by their paths. The line of a module begins with
// prefix.
func insert(list []byte, prefix, lines string) []byte {
	at := 0
	for line := range strings.Lines(string(list)) {
		if name, ok := strings.CutPrefix(line, prefix); ok && name > series.LibraryModule {
			break
		}
		at += len(line)
	}
	return slices.Insert(list, at, []byte(lines)...)
}

// libraryLine matches the line of the library in vendor/modules.txt.
var libraryLine = regexp.MustCompile(`(?m)^# ` + regexp.QuoteMeta(series.LibraryModule) + ` .*$`)

// raise is a module that the tree has in a directory, and whose required version rises.
type raise struct{ path, from, to string }

// inModules changes the content of vendor/modules.txt for the raised version. It keeps the lines of the old one if other modules
// of the workspace still require it.
func (m raise) inModules(list []byte, keep bool) []byte {
	lines := func(version string) *regexp.Regexp {
		return regexp.MustCompile(`(?m)^(# ` + regexp.QuoteMeta(m.path) + ` )` + regexp.QuoteMeta(version) + `( => .*\n## explicit.*\n)`)
	}
	now := "${1}" + m.to + "${2}"
	if lines(m.to).Match(list) {
		now = ""
	}
	if keep {
		now = "${0}" + now
	}
	return lines(m.from).ReplaceAll(list, []byte(now))
}

// requireLibrary adds a requirement of the library to the content of a go.mod file. It raises the versions of modules in the
// tree to those that the library requires, and returns these: in kubernetes' git repository they are v0.0.0. It returns an error
// if another module is older than the library requires itself. What only the library's requirements require stays: its packages
// do not use it.
func requireLibrary(content []byte, version string, library *modfile.File) (now []byte, raised []raise, err error) {
	f, err := modfile.Parse("go.mod", content, nil)
	if err != nil {
		return nil, nil, err
	}
	for _, r := range f.Replace {
		if r.Old.Path == series.LibraryModule {
			return nil, nil, fmt.Errorf("go.mod replaces %s by %s: remove that, and commit it", r.Old.Path, r.New.Path)
		}
	}
	local := func(module string) bool {
		return slices.ContainsFunc(f.Replace, func(r *modfile.Replace) bool { return r.Old.Path == module && r.New.Version == "" })
	}
	for _, r := range f.Require {
		i := slices.IndexFunc(library.Require, func(l *modfile.Require) bool { return l.Mod.Path == r.Mod.Path })
		switch {
		case i < 0 || library.Require[i].Indirect || semver.Compare(r.Mod.Version, library.Require[i].Mod.Version) >= 0:
		case local(r.Mod.Path):
			raised = append(raised, raise{r.Mod.Path, r.Mod.Version, library.Require[i].Mod.Version})
			r.Mod.Version = library.Require[i].Mod.Version
		default:
			return nil, nil, fmt.Errorf("go.mod requires %s %s, and the library needs %s: update it in the tree first", r.Mod.Path, r.Mod.Version, library.Require[i].Mod.Version)
		}
	}
	f.SetRequireSeparateIndirect(append(slices.Clone(f.Require), &modfile.Require{Mod: module.Version{Path: series.LibraryModule, Version: version}}))
	f.Cleanup()
	now, err = f.Format()
	return now, raised, err
}
