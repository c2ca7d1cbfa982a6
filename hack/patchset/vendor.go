// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"crypto/md5"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"

	"github.com/kubelet-backoff/kubelet-backoff/hack/internal/git"
	"github.com/kubelet-backoff/kubelet-backoff/hack/internal/series"
	"github.com/kubelet-backoff/kubelet-backoff/hack/internal/sys"
)

// libraryModule is the library at the commit that is checked out, as `go mod download -json` describes it.
type libraryModule struct{ Version, Dir, Sum, GoModSum, Error string }

// library gets the library from this clone: at its tag, or else at a pseudo-version. It returns an error if a file of the folders, which
// are vendored, differs from the commit. The module cache is in the directory dir: a tag may have moved since another one got it.
func (p *program) library(folders []string, dir string) (m libraryModule, err error) {
	g := p.Git.In(p.Root)
	if g.Commit("HEAD") == "" || g.Try("rev-parse", "--show-cdup") != "" {
		return m, fmt.Errorf("%s is not a git checkout: VENDOR=1 vendors a commit", p.Root)
	}
	dirty, err := g.Lines(append([]string{"status", "--porcelain", "--", "go.mod", "LICENSE"}, folders...)...)
	if err != nil || len(dirty) > 0 {
		return m, cmp.Or(err, sys.Error(p.Root+" has changes that are not committed, and VENDOR=1 vendors a commit:", dirty...))
	}
	if err := cmp.Or(sys.Need("go"), sys.Write(filepath.Join(dir, "get/go.mod"), []byte("module scratch\n"))); err != nil {
		return m, err
	}
	env := append(os.Environ(), "GOFLAGS=-buildvcs=false", "GOWORK=off", "GO111MODULE=on", "GOPROXY=direct", "GONOSUMDB="+series.LibraryModule, "GOMODCACHE="+filepath.Join(dir, "modcache"),
		"GIT_CONFIG_COUNT=3", "GIT_CONFIG_KEY_0=url.file://"+p.Root+".insteadOf", "GIT_CONFIG_VALUE_0=https://"+series.LibraryModule,
		"GIT_CONFIG_KEY_1=core.attributesFile", "GIT_CONFIG_VALUE_1=/dev/null", "GIT_CONFIG_KEY_2=core.autocrlf", "GIT_CONFIG_VALUE_2=false")
	out, failed := p.Long(p.ctx, filepath.Join(dir, "get"), env, "go", "mod", "download", "-json", series.LibraryModule+"@"+g.Commit("HEAD"))
	if err := json.Unmarshal([]byte(out), &m); err != nil || failed != nil {
		return m, sys.Error("go cannot get the library from "+p.Root+":", cmp.Or(m.Error, sys.LastLines(out, 20)))
	}
	return m, nil
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
		c.files[file], c.err = c.Store(mode, content)
	}
}

// edit changes a file that the commit must have.
func (c *vendoring) edit(file string, to func(old string) (string, error)) {
	if c.err != nil {
		return
	}
	old, _, err := c.Both("cat-file", "blob", c.commit+":"+file)
	if err != nil {
		c.err = sys.Error("VENDOR=1 needs a tree with "+file+", as kubernetes' git repository has it.", `If the tree has no vendor folder, run "go work vendor" in it and commit that.`)
		return
	}
	if now, err := to(old); err != nil || now != old {
		mode, _, _ := strings.Cut(c.Try("--literal-pathspecs", "ls-tree", c.commit, "--", file), " ")
		c.putAs(mode, file, []byte(now), err)
	}
}

// vendorLibrary commits, on top of the commit of a series that is in the index, that the library is in vendor instead of copies of its
// packages. It changes what upstream's hack/update-vendor.sh would: go.mod, go.sum, vendor and LICENSES. It uses the directory
// dir.
func (p *program) vendorLibrary(index git.Git, s *series.Series, commit, dir string) (string, error) {
	m, err := p.library(s.Vendored(), dir)
	if err != nil {
		return "", err
	}
	c := &vendoring{Git: index, commit: commit, files: map[string]git.File{}}
	for _, q := range s.Patches {
		for _, file := range slices.Concat(slices.Collect(maps.Keys(q.Hunks)), slices.Collect(maps.Keys(q.Files))) {
			if rule := q.Files[file].Rule; rule != nil && !rule.Nested {
				c.files[file] = git.File{}
			} else if strings.HasSuffix(file, ".go") {
				c.edit(file, func(old string) (string, error) { return s.ImportLibrary(file, old) })
			}
		}
	}
	root, folder := m.Dir, path.Join("vendor", series.LibraryModule)
	licence, err := os.ReadFile(filepath.Join(root, "LICENSE"))
	c.put(path.Join(folder, "LICENSE"), licence, err)
	if c.OK("cat-file", "-e", commit+":LICENSES/vendor") {
		c.put(path.Join("LICENSES", folder, "LICENSE"), fmt.Appendf(nil, "= %s licensed under: =\n\n%s\n= %[1]s/LICENSE %[3]x\n", folder, licence, md5.Sum(licence)), nil)
	}
	goMod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return "", err
	}
	library, err := modfile.ParseLax("go.mod", goMod, nil)
	if err != nil {
		return "", err
	}
	entry := fmt.Sprintf("# %s %s\n## explicit; go %s\n", series.LibraryModule, m.Version, library.Go.Version)
	for _, from := range s.Vendored() {
		entry += path.Join(series.LibraryModule, from) + "\n"
		found, _ := series.Glob(filepath.Join(root, from), "*.go")
		for _, file := range found {
			if !strings.HasSuffix(file, "_test.go") {
				content, err := os.ReadFile(file)
				c.put(path.Join(folder, from, filepath.Base(file)), content, err)
			}
		}
	}
	var raised []raise
	c.edit("go.mod", func(old string) (now string, err error) {
		now, raised, err = requireLibrary(old, m.Version, library)
		return now, err
	})
	c.edit("vendor/modules.txt", func(old string) (string, error) {
		if m := libraryLine.FindString(old); m != "" {
			return "", sys.Error(fmt.Sprintf("vendor/modules.txt has %q already:", m), "Remove the module from the tree, with go mod edit -droprequire and go work vendor, and commit that.")
		}
		for _, m := range raised {
			old = m.inModules(old, c.OK("grep", "-q", "-F", m.path+" "+m.from, commit, "--", "staging/*/go.mod"))
		}
		return insert(old, "# ", entry), nil
	})
	sums := fmt.Sprintf("%[1]s %[2]s %[3]s\n%[1]s %[2]s/go.mod %[4]s\n", series.LibraryModule, m.Version, m.Sum, m.GoModSum)
	c.edit("go.sum", func(old string) (string, error) { return insert(old, "", sums), nil })
	if c.err != nil {
		return "", c.err
	}
	if err := c.Stage(c.files); err != nil {
		return "", err
	}
	return c.CommitIndex(commit, "vendor: "+series.LibraryModule+"\n\nThe kubelet imports the module, and not copies of its packages.\n", s.Patches[len(s.Patches)-1].Author...)
}

// insert adds lines about the library to a list of modules, which is sorted by their paths. The line of a module begins with
// prefix.
func insert(list, prefix, lines string) string {
	at := 0
	for line := range strings.Lines(list) {
		if name, ok := strings.CutPrefix(line, prefix); ok && name > series.LibraryModule {
			break
		}
		at += len(line)
	}
	return list[:at] + lines + list[at:]
}

// libraryLine matches the line of the library in vendor/modules.txt.
var libraryLine = regexp.MustCompile(`(?m)^# ` + regexp.QuoteMeta(series.LibraryModule) + ` .*$`)

// raise is a module that the tree has in a directory, and whose required version rises.
type raise struct{ path, from, to string }

// inModules changes the content of vendor/modules.txt for the raised version. It keeps the lines of the old one if other modules
// of the workspace still require it.
func (m raise) inModules(list string, keep bool) string {
	lines := func(version string) *regexp.Regexp {
		return regexp.MustCompile(`(?m)^(# ` + regexp.QuoteMeta(m.path) + ` )` + regexp.QuoteMeta(version) + `( => .*\n## explicit.*\n)`)
	}
	now := "${1}" + m.to + "${2}"
	if lines(m.to).MatchString(list) {
		now = ""
	}
	if keep {
		now = "${0}" + now
	}
	return lines(m.from).ReplaceAllString(list, now)
}

// requireLibrary adds a requirement of the library to the content of a go.mod file. It raises the versions of modules in the
// tree to those that the library requires, and returns these: in kubernetes' git repository they are v0.0.0. It returns an error
// if another module is older than the library requires itself. What only the library's requirements require stays: its packages
// do not use it.
func requireLibrary(content, version string, library *modfile.File) (now string, raised []raise, err error) {
	f, err := modfile.Parse("go.mod", []byte(content), nil)
	if err != nil {
		return "", nil, err
	}
	for _, r := range f.Replace {
		if r.Old.Path == series.LibraryModule {
			return "", nil, fmt.Errorf("go.mod replaces %s by %s: remove that, and commit it", r.Old.Path, r.New.Path)
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
			return "", nil, fmt.Errorf("go.mod requires %s %s, and the library needs %s: update it in the tree first", r.Mod.Path, r.Mod.Version, library.Require[i].Mod.Version)
		}
	}
	f.SetRequireSeparateIndirect(append(slices.Clone(f.Require), &modfile.Require{Mod: module.Version{Path: series.LibraryModule, Version: version}}))
	f.Cleanup()
	out, err := f.Format()
	return string(out), raised, err
}
