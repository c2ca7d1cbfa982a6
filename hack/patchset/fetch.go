// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/mod/zip"
)

const kubernetesModule = "k8s.io/kubernetes"

func (p *program) fetchCommand(args []string) error {
	if len(args) == 0 && p.kubeRoot != "" {
		p.say("KUBE_ROOT is set (%s): nothing to fetch", p.kubeRoot)
		return nil
	}
	version := p.kubeVersion
	if len(args) > 0 {
		version = args[0]
	}
	if version == "" {
		var err error
		if version, err = p.defaultVersion(); err != nil {
			return err
		}
	}
	version, err := normalVersion(version)
	if err != nil {
		return err
	}
	return p.fetch(version)
}

// fetch makes the source tree of a release.
func (p *program) fetch(version string) error {
	dest := p.treeDir(version)
	has := func(name string) bool {
		_, err := os.Stat(filepath.Join(dest, name))
		return err == nil
	}
	if _, err := os.Lstat(dest); err == nil {
		if has(".git") && has("go.mod") {
			p.say("kubernetes %s is already in %s", version, dest)
			return nil
		}
		return fail(fmt.Sprintf("%s exists, but \"make fetch\" did not make it (no .git or no go.mod)", dest), "Remove it and run this again.")
	}
	if err := need("go"); err != nil {
		return err
	}
	if err := p.needGit(); err != nil {
		return err
	}
	unlock, err := p.lock(".fetch.lock", "fetch")
	if err != nil {
		return err
	}
	defer unlock()
	if has(".git") {
		p.say("kubernetes %s is already in %s", version, dest)
		return nil
	}
	work, remove, err := scratch(p.output)
	if err != nil {
		return err
	}
	defer remove()
	pins, err := p.readPins(version)
	if err != nil {
		return err
	}
	d := &downloader{program: p, work: work, pins: pins}
	dir := filepath.Join(work, "kubernetes")
	if err := d.release(version, dir); err != nil {
		return err
	}

	p.say("Making a git repository of it, tagged %s", version)
	g := p.git(dir)
	for _, step := range []func() error{
		func() error { return g.do("init", "-q", "--template=", "-b", "base") },
		func() error { return neutralAttributes(filepath.Join(dir, ".git")) },
		func() error { return g.do("config", "core.autocrlf", "false") },
		func() error { return g.do("add", "-f", "-A", ".") },
		func() error { return g.release(fmt.Sprintf("kubernetes %s from the Go module proxy", version)) },
		func() error { return g.do("tag", version) },
		func() error { return g.do("repack", "-q", "-a", "-d") },
		func() error { return os.MkdirAll(filepath.Dir(dest), 0o777) },
		func() error { return os.Rename(dir, dest) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	p.say("kubernetes %s is in %s", version, dest)
	return nil
}

// downloader gets modules from the proxy.
type downloader struct {
	*program
	work string
	pins *pins
	got  []sum // what was downloaded
}

// downloaded is what `go mod download -json` says of a module.
type downloaded struct{ Path, Version, Zip, Error string }

// sum is the hash of a module.
type sum struct {
	module.Version
	hash string
}

// release puts the modules of a release together in dir.
func (d *downloader) release(version, dir string) error {
	d.say("Fetching kubernetes %s from the Go module proxy", version)
	first := module.Version{Path: kubernetesModule, Version: version}
	found, err := d.download([]module.Version{first})
	if err != nil {
		return err
	}
	k := found[first.Path]
	if k.Error != "" {
		ok, err := d.zipOnly(first, dir)
		if err != nil {
			return fail(fmt.Sprintf("kubernetes %s cannot be had", version), err.Error())
		}
		if !ok {
			return fail(fmt.Sprintf("kubernetes %s cannot be had: the Go module proxy has no k8s.io/kubernetes@%s", version, version), k.Error,
				fmt.Sprintf("Is %s a release that exists? Otherwise use a git checkout of it: KUBE_ROOT=/path/to/kubernetes", version))
		}
	} else if err := d.place(first, k.Zip, dir); err != nil {
		return err
	}
	// In the module this is but a stub, and it would make go build look there.
	removeAll(filepath.Join(dir, "vendor"))

	modules, goVersion, err := stagingModules(dir, version)
	if err != nil {
		return err
	}
	d.say("Fetching %d staging modules at %s", len(modules), stagingVersion(version))
	if found, err = d.download(modules); err != nil {
		return err
	}
	for _, m := range modules {
		to := filepath.Join(dir, "staging/src", m.Path)
		removeAll(to)
		f := found[m.Path]
		if f.Error == "" {
			if err := d.place(m, f.Zip, to); err != nil {
				return err
			}
			continue
		}
		ok, err := d.zipOnly(m, to)
		if err != nil {
			return err
		}
		if ok {
			continue
		}
		// Only a plain no makes a module absent. Anything else is a fault on the way, and must not become an empty module.
		if !absentPattern.MatchString(f.Error) {
			return fail(fmt.Sprintf("%s cannot be had:", m), f.Error)
		}
		if d.pins.hashes[m] != "" {
			return fail(fmt.Sprintf("the proxy has no %s, but %s has its hash", m, d.pins.file), f.Error)
		}
		// A workspace wants a go.mod from every module it names, used or not.
		if err := writeFile(filepath.Join(to, "go.mod"), fmt.Appendf(nil, "module %s\n\ngo %s\n", m.Path, goVersion), 0o666); err != nil {
			return err
		}
		if strings.HasPrefix(m.Path, "k8s.io/sample-") {
			d.note("%s does not exist; an empty module stands in for it", m)
		} else {
			d.warn("the proxy has no %s; an empty module stands in for it, and what needs it will not build", m)
		}
	}
	return nil
}

// "disabled" is what GOPROXY=off says.
var absentPattern = regexp.MustCompile(` (403|404|410) |not found|no such file|not available|unknown revision|disabled`)

// stagingModules are those that go.work names; releases before 1.30 name them in go.mod.
func stagingModules(dir, version string) (modules []module.Version, goVersion string, err error) {
	file := filepath.Join(dir, "go.mod")
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, "", err
	}
	mod, err := modfile.Parse(file, data, nil)
	if err != nil {
		return nil, "", err
	}
	goVersion = "1.22.0"
	if mod.Go != nil {
		goVersion = mod.Go.Version
	}
	var paths []string
	file = filepath.Join(dir, "go.work")
	if data, err = os.ReadFile(file); err == nil {
		work, err := modfile.ParseWork(file, data, nil)
		if err != nil {
			return nil, "", err
		}
		for _, u := range work.Use {
			paths = append(paths, u.Path)
		}
	} else {
		for _, r := range mod.Replace {
			paths = append(paths, r.New.Path)
		}
	}
	slices.Sort(paths)
	for _, path := range slices.Compact(paths) {
		if m, ok := strings.CutPrefix(path, "./staging/src/"); ok && strings.HasPrefix(m, "k8s.io/") {
			modules = append(modules, module.Version{Path: m, Version: stagingVersion(version)})
		}
	}
	if len(modules) == 0 {
		return nil, "", fail(fmt.Sprintf("k8s.io/kubernetes@%s names no staging modules, neither in go.work nor in go.mod", version))
	}
	return modules, goVersion, nil
}

// download fills the module cache. The checksum database does not know every staging module, so modules that it does not
// have come from the proxy alone. A checksum that differs is an error, and so is a database that does not answer.
func (d *downloader) download(modules []module.Version) (map[string]downloaded, error) {
	found, err := d.ask(modules)
	if err != nil {
		return nil, err
	}
	var again []module.Version
	var names []string
	for _, m := range modules {
		switch said := found[m.Path].Error; {
		case strings.Contains(said, "checksum mismatch"), strings.Contains(said, "SECURITY ERROR"):
			return nil, fail(fmt.Sprintf("%s: the download differs from what the checksum database expects", m), said)
		case !strings.Contains(said, "verifying"):
		case strings.Contains(said, ": 404 "), strings.Contains(said, ": 410 "):
			again = append(again, m)
			names = append(names, m.Path)
		default:
			return nil, fail(fmt.Sprintf("%s cannot be checked against the checksum database:", m), said)
		}
	}
	if len(again) == 0 {
		return found, nil
	}
	d.note("NOT checked against the checksum database, which does not have them: %s", strings.Join(names, " "))
	unchecked := "k8s.io/*"
	if v := os.Getenv("GONOSUMDB"); v != "" {
		unchecked += "," + v
	}
	more, err := d.ask(again, "GONOSUMDB="+unchecked)
	for path, m := range more {
		found[path] = m
	}
	return found, err
}

func (d *downloader) ask(modules []module.Version, env ...string) (map[string]downloaded, error) {
	// A module of its own, so that `go mod download` does not look at, or write to, the one around it.
	dir := filepath.Join(d.work, "cwd")
	if err := writeFile(filepath.Join(dir, "go.mod"), []byte("module scratch\n"), 0o666); err != nil {
		return nil, err
	}
	args := []string{"mod", "download", "-json"}
	for _, m := range modules {
		args = append(args, m.String())
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	// Only the proxy's answers count here, not a workspace, a vendor directory or flags meant for other modules. Not
	// empty, because what `go env -w` wrote counts for empty variables.
	cmd.Env = setEnv(os.Environ(), append([]string{"GOFLAGS=-buildvcs=false", "GOWORK=off", "GO111MODULE=on", "PWD=" + dir}, env...)...)
	out, _, err := d.long("downloading", cmd)
	if cause := context.Cause(d.ctx); cause != nil {
		return nil, cause
	}
	found := map[string]downloaded{}
	// Warnings come between the objects.
	for rest := out; ; {
		at := strings.Index("\n"+rest, "\n{")
		if at < 0 {
			break
		}
		dec := json.NewDecoder(strings.NewReader(rest[at:]))
		var m downloaded
		if jsonErr := dec.Decode(&m); jsonErr != nil {
			return nil, fail("go mod download -json says what cannot be read: "+jsonErr.Error(), lastLines(out, 20))
		}
		found[m.Path] = m
		rest = rest[at+int(dec.InputOffset()):]
	}
	if len(found) == 0 {
		return nil, fail(fmt.Sprintf("go mod download failed: %v", err), lastLines(out, 20))
	}
	for _, m := range modules {
		if f, ok := found[m.Path]; !ok || f.Error == "" && f.Zip == "" {
			f.Path, f.Error = m.Path, "go mod download says nothing of it"
			found[m.Path] = f
		}
	}
	return found, nil
}

// zipOnly gets a module of which the proxy has the zip, but refuses the .info and .mod files that go wants to see first.
func (d *downloader) zipOnly(m module.Version, dir string) (bool, error) {
	proxy := exec.Command("go", "env", "GOPROXY")
	proxy.Dir = d.work
	out, err := proxy.Output()
	if err != nil {
		return false, fmt.Errorf("go env GOPROXY: %w", err)
	}
	url, _, _ := strings.Cut(strings.TrimSpace(string(out)), ",")
	url, _, _ = strings.Cut(url, "|")
	if !strings.HasPrefix(url, "http://") && !strings.HasPrefix(url, "https://") {
		return false, nil
	}
	escaped, err := module.EscapePath(m.Path)
	if err != nil {
		return false, err
	}
	req, err := http.NewRequestWithContext(d.ctx, http.MethodGet, strings.TrimSuffix(url, "/")+"/"+escaped+"/@v/"+m.Version+".zip", nil)
	if err != nil {
		return false, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false, nil // go's own error says why
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return false, nil
	}
	f, err := os.CreateTemp(d.work, "*.zip")
	if err != nil {
		return false, err
	}
	_, err = io.Copy(f, resp.Body)
	if err = errors.Join(err, f.Close()); err != nil {
		return false, err
	}
	d.note("%s: only its zip was to be had, NOT checked against the checksum database", m)
	return true, d.place(m, f.Name(), dir)
}

// place unpacks a module's zip, if it is the one that is meant, to dir.
func (d *downloader) place(m module.Version, file, dir string) error {
	hash, err := dirhash.HashZip(file, dirhash.Hash1)
	if err != nil {
		return fmt.Errorf("%s: %w", m, err)
	}
	if err := d.pins.check(m, hash); err != nil {
		return err
	}
	d.got = append(d.got, sum{m, hash})
	if err := zip.Unzip(dir, m, file); err != nil {
		return fmt.Errorf("%s: %w", m, err)
	}
	return filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		return os.Chmod(path, 0o644)
	})
}

// pins are the hashes of a release's modules, from a file as go.sum.
type pins struct {
	file    string
	pinned  bool // the release is in it
	hashes  map[module.Version]string
	content []byte
}

func (p *program) readPins(version string) (*pins, error) {
	s := &pins{hashes: map[module.Version]string{}}
	quiet := *p
	quiet.seriesName = ""
	dir, _, err := quiet.seriesFor(version)
	if err != nil {
		p.note("no series fits kubernetes %s, so there are no hashes to compare with", version)
		return s, nil
	}
	s.file = filepath.Join(dir, "kubernetes.sum")
	if s.content, err = os.ReadFile(s.file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for i, line := range strings.Split(string(s.content), "\n") {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		if len(f) != 3 || !strings.HasPrefix(f[2], "h1:") {
			return nil, fail(fmt.Sprintf("%s line %d: %q must be \"MODULE VERSION h1:HASH\"", s.file, i+1, line))
		}
		s.hashes[module.Version{Path: f[0], Version: f[1]}] = f[2]
	}
	if s.pinned = s.hashes[module.Version{Path: kubernetesModule, Version: version}] != ""; !s.pinned {
		p.note("%s has no hashes of kubernetes %s to compare with", s.file, version)
	}
	return s, nil
}

func (s *pins) check(m module.Version, hash string) error {
	want := s.hashes[m]
	if want == hash || want == "" && !s.pinned {
		return nil
	}
	if want == "" {
		want = "none: the file has other modules of this release, but not this one"
	}
	return fail(fmt.Sprintf("%s is not the source that is meant:", m), "expected  "+want+"  ("+s.file+")", "actual    "+hash,
		"Either the proxy or the module cache has something else in its place, or the file is wrong.")
}

// pin adds the hashes of a release to those of its series.
func (p *program) pin(version string) error {
	version, err := normalVersion(version)
	if err != nil {
		return err
	}
	if err := need("go"); err != nil {
		return err
	}
	if _, _, err := p.seriesFor(version); err != nil {
		return err
	}
	work, remove, err := scratch(p.output)
	if err != nil {
		return err
	}
	defer remove()
	pins, err := p.readPins(version)
	if err != nil {
		return err
	}
	d := &downloader{program: p, work: work, pins: pins}
	if err := d.release(version, filepath.Join(work, "kubernetes")); err != nil {
		return err
	}
	for _, s := range d.got {
		pins.hashes[s.Version] = s.hash
	}
	var lines []string
	for m, hash := range pins.hashes {
		lines = append(lines, fmt.Sprintf("%s %s %s\n", m.Path, m.Version, hash))
	}
	slices.Sort(lines)
	content := []byte(strings.Join(lines, ""))
	if bytes.Equal(content, pins.content) {
		p.say("%s has all of them already", pins.file)
		return nil
	}
	p.say("%d hashes of kubernetes %s are in %s", len(d.got), version, pins.file)
	return writeFile(pins.file, content, 0o666)
}
