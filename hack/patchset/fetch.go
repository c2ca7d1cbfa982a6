// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
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
	version, err := p.wantedVersion()
	if len(args) > 0 {
		version, err = normalVersion(args[0])
	}
	if err != nil {
		return err
	}
	return p.fetch(version)
}

// fetch makes the source tree of a release.
func (p *program) fetch(version string) error {
	dest := p.treeDir(version)
	there := func() bool { return exists(filepath.Join(dest, ".git")) && exists(filepath.Join(dest, "go.mod")) }
	if exists(dest) && !there() {
		return fail(fmt.Sprintf("%s exists, but \"make fetch\" did not make it (no .git or no go.mod)", dest), "Remove it and run this again.")
	}
	unlock, err := p.lock(".fetch.lock", "fetch")
	if err != nil {
		return err
	}
	defer unlock()
	// Maybe another fetch has made it by now.
	if there() {
		p.say("kubernetes %s is already in %s", version, dest)
		return nil
	}
	d, remove, err := p.download(version)
	if err != nil {
		return err
	}
	defer remove()
	p.say("Making a git repository of it, tagged %s", version)
	g := p.git(d.dir)
	if err := g.initialize(); err != nil {
		return err
	}
	if err := g.run("config core.autocrlf false", "add -f -A ."); err != nil {
		return err
	}
	if err := g.release(fmt.Sprintf("kubernetes %s from the Go module proxy", version)); err != nil {
		return err
	}
	if err := g.run("tag "+version, "repack -q -a -d"); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dest), 0o777); err != nil {
		return err
	}
	if err := os.Rename(d.dir, dest); err != nil {
		return err
	}
	p.say("kubernetes %s is in %s", version, dest)
	return nil
}

// downloader gets modules from the proxy.
type downloader struct {
	*program
	work string
	dir  string // where the release is put together
	pins *pins
	got  map[module.Version]string // the hashes of what was downloaded
}

// downloaded is what `go mod download -json` says of a module.
type downloaded struct{ Path, Version, Zip, Error string }

// download puts a release together in a scratch directory, which remove removes.
func (p *program) download(version string) (d *downloader, remove func(), err error) {
	if err := need("go"); err != nil {
		return nil, nil, err
	}
	work, remove, err := scratch(p.output)
	if err != nil {
		return nil, nil, err
	}
	d = &downloader{program: p, work: work, dir: filepath.Join(work, "kubernetes"), got: map[module.Version]string{}}
	if d.pins, err = p.readPins(version); err == nil {
		err = d.release(version)
	}
	if err != nil {
		remove()
	}
	return d, remove, err
}

// release puts the modules of a release together.
func (d *downloader) release(version string) error {
	d.say("Fetching kubernetes %s from the Go module proxy", version)
	main := module.Version{Path: kubernetesModule, Version: version}
	found, err := d.ask([]module.Version{main})
	if err != nil {
		return err
	}
	k := found[main.Path]
	if ok, err := d.get(main, k, d.dir); err != nil {
		return fail(fmt.Sprintf("kubernetes %s cannot be had", version), err.Error())
	} else if !ok {
		return fail(fmt.Sprintf("kubernetes %s cannot be had: the Go module proxy has no k8s.io/kubernetes@%s", version, version), k.Error,
			fmt.Sprintf("Is %s a release that exists? Otherwise use a git checkout of it: KUBE_ROOT=/path/to/kubernetes", version))
	}
	// In the module this is but a stub, and it would make go build look there.
	removeAll(filepath.Join(d.dir, "vendor"))

	modules, goVersion, err := stagingModules(d.dir, version)
	if err != nil {
		return err
	}
	d.say("Fetching %d staging modules at %s", len(modules), stagingVersion(version))
	if found, err = d.ask(modules); err != nil {
		return err
	}
	for _, m := range modules {
		to := filepath.Join(d.dir, "staging/src", m.Path)
		removeAll(to)
		said := found[m.Path].Error
		ok, err := d.get(m, found[m.Path], to)
		switch {
		case err != nil:
			return err
		case ok:
			continue
		// Only a plain no makes a module absent. Anything else is a fault on the way, and must not become an empty module.
		case !absentPattern.MatchString(said):
			return fail(fmt.Sprintf("%s cannot be had:", m), said)
		case d.pins.hashes[m] != "":
			return fail(fmt.Sprintf("the proxy has no %s, but %s has its hash", m, d.pins.file), said)
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
	data, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return nil, "", err
	}
	mod, err := modfile.Parse("go.mod", data, nil)
	if err != nil {
		return nil, "", err
	}
	goVersion = "1.22.0"
	if mod.Go != nil {
		goVersion = mod.Go.Version
	}
	var paths []string
	for _, r := range mod.Replace {
		paths = append(paths, r.New.Path)
	}
	if data, err = os.ReadFile(filepath.Join(dir, "go.work")); err == nil {
		work, err := modfile.ParseWork("go.work", data, nil)
		if err != nil {
			return nil, "", err
		}
		paths = nil
		for _, u := range work.Use {
			paths = append(paths, u.Path)
		}
	}
	slices.Sort(paths)
	for _, path := range slices.Compact(paths) {
		if m, ok := strings.CutPrefix(path, "./staging/src/"); ok && strings.HasPrefix(m, "k8s.io/") {
			modules = append(modules, module.Version{Path: m, Version: stagingVersion(version)})
		}
	}
	if len(modules) == 0 {
		return nil, "", fmt.Errorf("k8s.io/kubernetes@%s names no staging modules, neither in go.work nor in go.mod", version)
	}
	return modules, goVersion, nil
}

// ask fills the module cache. The checksum database does not know every staging module, so modules that it does not have
// come from the proxy alone. A checksum that differs is an error, and so is a database that does not answer.
func (d *downloader) ask(modules []module.Version) (map[string]downloaded, error) {
	found, err := d.modDownload(modules)
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
	more, err := d.modDownload(again, "GONOSUMDB="+strings.TrimSuffix("k8s.io/*,"+os.Getenv("GONOSUMDB"), ","))
	maps.Copy(found, more)
	return found, err
}

func (d *downloader) modDownload(modules []module.Version, env ...string) (map[string]downloaded, error) {
	// A module of its own, so that `go mod download` does not look at, or write to, the one around it.
	dir := filepath.Join(d.work, "cwd")
	if err := writeFile(filepath.Join(dir, "go.mod"), []byte("module scratch\n"), 0o666); err != nil {
		return nil, err
	}
	args := []string{"mod", "download", "-json"}
	found := map[string]downloaded{}
	for _, m := range modules {
		args = append(args, m.String())
		found[m.Path] = downloaded{Error: "go mod download says nothing of it"}
	}
	// Only the proxy's answers count here, not a workspace, a vendor directory or flags meant for other modules. Not
	// empty, because what `go env -w` wrote counts for empty variables.
	env = slices.Concat(os.Environ(), []string{"GOFLAGS=-buildvcs=false", "GOWORK=off", "GO111MODULE=on"}, env)
	out, _, failed := d.long("downloading", dir, env, "go", args...)
	if err := context.Cause(d.ctx); err != nil {
		return nil, err
	}
	// Warnings come between the objects.
	objects := regexp.MustCompile(`(?ms)^\{\n.*?^\}$`).FindAllString(out, -1)
	if len(objects) == 0 {
		return nil, fail(fmt.Sprintf("go mod download failed: %v", failed), lastLines(out, 20))
	}
	for _, o := range objects {
		var m downloaded
		if err := json.Unmarshal([]byte(o), &m); err != nil {
			return nil, fail("go mod download -json says what cannot be read: "+err.Error(), lastLines(out, 20))
		}
		if m.Error != "" || m.Zip != "" {
			found[m.Path] = m
		}
	}
	return found, nil
}

// get unpacks a module to dir. Of some the proxy has the zip, but refuses the .info and .mod files that go wants to see
// first.
func (d *downloader) get(m module.Version, found downloaded, dir string) (bool, error) {
	if found.Error == "" {
		return true, d.place(m, found.Zip, dir)
	}
	proxy := exec.Command("go", "env", "GOPROXY")
	proxy.Dir = d.work
	out, err := proxy.Output()
	if err != nil {
		return false, fmt.Errorf("go env GOPROXY: %w", err)
	}
	url := strings.FieldsFunc(strings.TrimSpace(string(out)), func(r rune) bool { return r == ',' || r == '|' })
	if len(url) == 0 || !strings.HasPrefix(url[0], "http") {
		return false, nil
	}
	escaped, err := module.EscapePath(m.Path)
	if err != nil {
		return false, err
	}
	req, err := http.NewRequestWithContext(d.ctx, http.MethodGet, strings.TrimSuffix(url[0], "/")+"/"+escaped+"/@v/"+m.Version+".zip", nil)
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
	d.got[m] = hash
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
	dir, err := quiet.seriesFor(version)
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
			return nil, fmt.Errorf("%s line %d: %q must be \"MODULE VERSION h1:HASH\"", s.file, i+1, line)
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
	if _, err := p.seriesFor(version); err != nil {
		return err
	}
	d, remove, err := p.download(version)
	if err != nil {
		return err
	}
	defer remove()
	maps.Copy(d.pins.hashes, d.got)
	var lines []string
	for m, hash := range d.pins.hashes {
		lines = append(lines, fmt.Sprintf("%s %s %s\n", m.Path, m.Version, hash))
	}
	slices.Sort(lines)
	content := strings.Join(lines, "")
	if content == string(d.pins.content) {
		p.say("%s has all of them already", d.pins.file)
		return nil
	}
	p.say("%d hashes of kubernetes %s are in %s", len(d.got), version, d.pins.file)
	return writeFile(d.pins.file, []byte(content), 0o666)
}
