// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
	"golang.org/x/mod/sumdb/dirhash"

	"github.com/kubelet-backoff/kubelet-backoff/hack/internal/series"
	"github.com/kubelet-backoff/kubelet-backoff/hack/internal/sys"
)

// dirOf returns the place of the tree that fetch makes.
func (p *program) dirOf(version string) string {
	return filepath.Join(p.Output, version, "kubernetes")
}

// changedSuffix is at the end of the tag of a tree that fetch --changed made. It is not the release, and does not build.
const changedSuffix = "-changed"

// fetch makes the source tree of KUBE_VERSION, unless it is there. With pin, it adds the hashes of its modules to those of its series.
// With changed, the tree has only those staging modules that the series changes, and component-base, which has the version.
func (p *program) fetch(pin, changed bool) error {
	version, err := p.wanted()
	if err != nil {
		return err
	}
	unlock, err := p.Lock(p.ctx, filepath.Join(p.Output, ".fetch.lock"), "fetch")
	if err != nil {
		return err
	}
	defer unlock()
	dest := p.dirOf(version)
	if sys.Exists(dest) && !pin {
		p.Say("kubernetes %s is already in %s", version, dest)
		return nil
	}
	work, remove, err := sys.Scratch(p.Output)
	if err != nil {
		return err
	}
	defer remove()
	d := &download{program: p, work: work, dir: filepath.Join(work, "kubernetes"), sums: filepath.Join(p.Root, "patches", semver.MajorMinor(version), "kubernetes.sum"), hashes: map[module.Version]string{}}
	if err := d.get(version, pin, changed); err != nil {
		return err
	}
	if pin || sys.Exists(dest) {
		return nil
	}
	tag := version
	if changed {
		tag += changedSuffix
	}
	p.Say("Making a git repository of it, tagged %s", tag)
	// The commit is the same on every machine.
	g := p.Git.In(d.dir).With("GIT_AUTHOR_NAME=kubelet-backoff", "GIT_AUTHOR_EMAIL=noreply@kubelet-backoff.invalid",
		"GIT_AUTHOR_DATE=@946684800 +0000", "GIT_COMMITTER_DATE=@946684800 +0000").Input("kubernetes " + version + " from the Go module proxy")
	if err := g.Run("init -q --template= -b base .", "config core.autocrlf false"); err != nil {
		return err
	}
	// These override the tree's .gitattributes, so that git does not convert files.
	if err := sys.Write(filepath.Join(d.dir, ".git/info/attributes"), []byte("* -text -ident -eol -filter -working-tree-encoding\n")); err != nil {
		return err
	}
	if err := g.Run("add -f -A .", "commit -q -F -", "tag "+tag, "repack -q -a -d"); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dest), 0o777); err != nil {
		return err
	}
	p.Say("kubernetes %s is in %s", version, dest)
	return os.Rename(d.dir, dest)
}

// download is a release that is being assembled from modules of the proxy.
type download struct {
	*program
	work, dir string
	sums      string                    // kubernetes.sum, in the format of go.sum
	hashes    map[module.Version]string // in that file
}

var goLine = regexp.MustCompile(`(?m)^go .*$`)

var stagingModule = regexp.MustCompile(`\./staging/src/(k8s\.io/[\w./-]+)`)

// get downloads a release to the directory.
func (d *download) get(version string, pin, changed bool) error {
	lines, err := sys.Lines(d.sums)
	if err != nil {
		return err
	}
	for _, line := range lines {
		f := strings.Fields(line)
		if len(f) != 3 || !strings.HasPrefix(f[2], "h1:") {
			return fmt.Errorf("%s: %q must be \"MODULE VERSION h1:HASH\"", d.sums, line)
		}
		d.hashes[module.Version{Path: f[0], Version: f[1]}] = f[2]
	}
	main := module.Version{Path: "k8s.io/kubernetes", Version: version}
	pinned := d.hashes[main] != ""
	if !pinned {
		d.Note("%s has no hashes of kubernetes %s to compare with", d.sums, version)
	}
	d.Say("Fetching kubernetes %s from the Go module proxy", version)
	got := map[module.Version]string{}
	if err := d.unpack(pinned, got, d.dir, main); err != nil {
		return err
	}
	// The module has only a stub of the vendor directory, and go build would use it.
	if err := os.RemoveAll(filepath.Join(d.dir, "vendor")); err != nil {
		return err
	}
	work, err := os.ReadFile(filepath.Join(d.dir, "go.work"))
	if err != nil {
		return fmt.Errorf("kubernetes %s: %w; releases before 1.30 have none, and no series fits them", version, err)
	}
	var modules []module.Version
	for _, m := range stagingModule.FindAllStringSubmatch(string(work), -1) {
		modules = append(modules, module.Version{Path: m[1], Version: "v0." + strings.TrimPrefix(version, "v1.")})
	}
	if changed {
		// All of them, because the next apply may select others.
		s, err := d.Load(filepath.Dir(d.sums), series.Pick{Parts: series.Everything})
		if err != nil {
			return err
		}
		files := []string{baseVersion}
		for _, q := range s.Patches {
			files = append(files, q.Paths()...)
		}
		modules = slices.DeleteFunc(modules, func(m module.Version) bool {
			return !slices.ContainsFunc(files, func(file string) bool { return strings.HasPrefix(file, "staging/src/"+m.Path+"/") })
		})
	}
	d.Say("Fetching its %d staging modules", len(modules))
	if err := d.unpack(pinned, got, filepath.Join(d.dir, "staging/src"), modules...); err != nil || !pin {
		return err
	}
	maps.Copy(got, d.hashes)
	lines = nil
	for m, hash := range got {
		lines = append(lines, fmt.Sprintf("%s %s %s\n", m.Path, m.Version, hash))
	}
	slices.Sort(lines)
	d.Say("The hashes of kubernetes %s are in %s", version, d.sums)
	return sys.Write(d.sums, []byte(strings.Join(lines, "")))
}

// unpack downloads modules and unpacks them: kubernetes to the directory, others below it. It compares their hashes.
func (d *download) unpack(pinned bool, got map[module.Version]string, dir string, modules ...module.Version) error {
	// A separate module, so that go neither reads nor writes an enclosing one.
	if err := sys.Write(filepath.Join(d.work, "go.mod"), []byte("module scratch\n")); err != nil {
		return err
	}
	// No variable is empty, because go would then use the value that `go env -w` wrote.
	env := append(os.Environ(), "GOFLAGS=-buildvcs=false", "GOWORK=off", "GO111MODULE=on")
	if pinned {
		// The checksum database does not have every staging module.
		env = append(env, "GONOSUMDB=k8s.io/*")
	}
	args := []string{"mod", "download", "-json"}
	for _, m := range modules {
		args = append(args, m.String())
	}
	out, failed := d.Long(d.ctx, d.work, env, "go", args...)
	found := map[string]struct{ Path, Dir, Sum, Error string }{}
	// There may be warnings between the objects.
	for _, object := range regexp.MustCompile(`(?ms)^\{\n.*?^\}$`).FindAllString(out, -1) {
		var m struct{ Path, Dir, Sum, Error string }
		if err := json.Unmarshal([]byte(object), &m); err != nil {
			return fmt.Errorf("go mod download -json: %w", err)
		}
		found[m.Path] = m
	}
	for _, m := range modules {
		to, is := dir, found[m.Path]
		if m.Path != "k8s.io/kubernetes" {
			to = filepath.Join(dir, m.Path)
		}
		// Nothing needs the samples, which the proxy may lack. A workspace needs the go.mod of every module that it names.
		if strings.HasPrefix(m.Path, "k8s.io/sample-") && (is.Error != "" || pinned && d.hashes[m] == "") {
			mod, _ := os.ReadFile(filepath.Join(d.dir, "go.mod"))
			d.Note("an empty module replaces %s, which the proxy lacks", m)
			if err := sys.Write(filepath.Join(to, "go.mod"), fmt.Appendf(nil, "module %s\n\n%s\n", m.Path, goLine.Find(mod))); err != nil {
				return err
			}
			continue
		}
		if is.Dir == "" {
			return sys.Error(fmt.Sprintf("%s cannot be downloaded:", m), is.Error, sys.LastLines(out, 5), fmt.Sprint(failed),
				fmt.Sprintf("Check that it is a release, or use a git checkout of it: KUBE_ROOT=/path/to/kubernetes. Without hashes in %s, GONOSUMDB='k8s.io/*' is for modules that the checksum database lacks.", d.sums))
		}
		// That of the files which are copied: the module cache may have been edited.
		sum, err := dirhash.HashDir(is.Dir, m.String(), dirhash.Hash1)
		if err != nil || sum != is.Sum {
			return cmp.Or(err, fmt.Errorf("%s was edited: go clean -modcache, and fetch it again", is.Dir))
		}
		if pinned && d.hashes[m] != sum {
			return sys.Error(fmt.Sprintf("%s has the wrong hash:", m), "expected  "+d.hashes[m]+"  ("+d.sums+")", "actual    "+sum)
		}
		got[m] = sum
		if err := os.CopyFS(to, os.DirFS(is.Dir)); err != nil {
			return fmt.Errorf("%s: %w", m, err)
		}
	}
	return nil
}
