// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
	"golang.org/x/mod/zip"

	"github.com/kubelet-backoff/kubelet-backoff/hack/internal/sys"
)

// dirOf returns the place of the tree that fetch makes.
func (p *program) dirOf(version string) string {
	return filepath.Join(p.Output, version, "kubernetes")
}

// fetch makes the source tree of KUBE_VERSION, unless it is there. With pin, it adds the hashes of its modules to those of its series.
func (p *program) fetch(pin bool) error {
	version, err := p.wanted()
	if err != nil {
		return err
	}
	if version == "" {
		return errors.New("set KUBE_VERSION to the release to fetch, such as KUBE_VERSION=v1.37.1")
	}
	unlock, err := sys.Lock(p.ctx, filepath.Join(p.Output, ".fetch.lock"), func() { p.Say("Waiting for another fetch in %s to end", p.Output) })
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
	if err := d.get(version, pin); err != nil {
		return err
	}
	if pin || sys.Exists(dest) {
		return nil
	}
	p.Say("Making a git repository of it, tagged %s", version)
	g := p.Git.In(d.dir)
	if err := g.Run("init -q --template= -b base ."); err != nil {
		return err
	}
	// These override the tree's .gitattributes, so that git does not convert files.
	if err := sys.Write(filepath.Join(d.dir, ".git/info/attributes"), []byte("* -text -ident -eol -filter -working-tree-encoding\n")); err != nil {
		return err
	}
	if err := g.Run("config core.autocrlf false", "add -f -A ."); err != nil {
		return err
	}
	if err := g.Release("kubernetes " + version + " from the Go module proxy"); err != nil {
		return err
	}
	if err := g.Run("tag "+version, "repack -q -a -d"); err != nil {
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
	goMod     []byte
}

var goLine = regexp.MustCompile(`(?m)^go .*$`)

var stagingModule = regexp.MustCompile(`\./staging/src/(k8s\.io/[\w./-]+)`)

// get downloads a release to the directory.
func (d *download) get(version string, pin bool) error {
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
	if d.goMod, err = os.ReadFile(filepath.Join(d.dir, "go.mod")); err != nil {
		return err
	}
	work, err := os.ReadFile(filepath.Join(d.dir, "go.work"))
	if err != nil {
		return fmt.Errorf("kubernetes %s: %w; releases before 1.30 have none, and no series fits them", version, err)
	}
	var modules []module.Version
	for _, m := range stagingModule.FindAllStringSubmatch(string(work), -1) {
		modules = append(modules, module.Version{Path: m[1], Version: "v0." + strings.TrimPrefix(version, "v1.")})
		if err := os.RemoveAll(filepath.Join(d.dir, "staging/src", m[1])); err != nil {
			return err
		}
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

// unpack downloads modules and unpacks them: one module to the directory, several below it. It compares their hashes.
func (d *download) unpack(pinned bool, got map[module.Version]string, dir string, modules ...module.Version) error {
	// A separate module, so that go neither reads nor writes an enclosing one.
	cwd := filepath.Join(d.work, "cwd")
	if err := sys.Write(filepath.Join(cwd, "go.mod"), []byte("module scratch\n")); err != nil {
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
	if err := sys.Need("go"); err != nil {
		return err
	}
	out, failed := d.Long(d.ctx, cwd, env, "go", args...)
	found := map[string]struct{ Path, Zip, Sum, Error string }{}
	// There may be warnings between the objects.
	for _, object := range regexp.MustCompile(`(?ms)^\{\n.*?^\}$`).FindAllString(out, -1) {
		var m struct{ Path, Zip, Sum, Error string }
		if err := json.Unmarshal([]byte(object), &m); err != nil {
			return fmt.Errorf("go mod download -json: %w", err)
		}
		found[m.Path] = m
	}
	for _, m := range modules {
		to, is := dir, found[m.Path]
		if len(modules) > 1 {
			to = filepath.Join(dir, m.Path)
		}
		// Nothing needs the samples, which the proxy may lack. A workspace needs the go.mod of every module that it names.
		if strings.HasPrefix(m.Path, "k8s.io/sample-") && (is.Error != "" || pinned && d.hashes[m] == "") {
			d.Note("an empty module replaces %s, which the proxy lacks", m)
			if err := sys.Write(filepath.Join(to, "go.mod"), fmt.Appendf(nil, "module %s\n\n%s\n", m.Path, goLine.Find(d.goMod))); err != nil {
				return err
			}
			continue
		}
		if is.Zip == "" {
			return sys.Error(fmt.Sprintf("%s cannot be downloaded:", m), is.Error, sys.LastLines(out, 5), fmt.Sprint(failed),
				fmt.Sprintf("Check that it is a release, or use a git checkout of it: KUBE_ROOT=/path/to/kubernetes. Without hashes in %s, GONOSUMDB='k8s.io/*' is for modules that the checksum database lacks.", d.sums))
		}
		if pinned && d.hashes[m] != is.Sum {
			return sys.Error(fmt.Sprintf("%s has the wrong hash:", m), "expected  "+d.hashes[m]+"  ("+d.sums+")", "actual    "+is.Sum)
		}
		got[m] = is.Sum
		if err := zip.Unzip(to, m, is.Zip); err != nil {
			return fmt.Errorf("%s: %w", m, err)
		}
	}
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		return os.Chmod(path, 0o644)
	})
}
