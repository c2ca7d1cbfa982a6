// SPDX-License-Identifier: Apache-2.0

// Package modproxy gets the source of a kubernetes release from the Go module proxy.
package modproxy

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

	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/console"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/fileutil"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/kubeversion"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/process"
)

const kubernetesModule = "k8s.io/kubernetes"

// Download is a release that is being assembled from modules of the proxy.
type Download struct {
	ctx context.Context
	console.Log
	work string
	Dir  string // the assembled release
	Pins *pins
	Got  map[module.Version]string // the hashes of what was downloaded
}

// downloaded is the output of `go mod download -json` for a module.
type downloaded struct{ Path, Version, Zip, Error string }

// Get assembles a release in a scratch directory below output, which remove removes.
func Get(ctx context.Context, l console.Log, output, version string, pins *pins) (d *Download, remove func(), err error) {
	if err := process.Need("go"); err != nil {
		return nil, nil, err
	}
	work, remove, err := fileutil.Scratch(output)
	if err != nil {
		return nil, nil, err
	}
	d = &Download{ctx: ctx, Log: l, work: work, Dir: filepath.Join(work, "kubernetes"), Pins: pins, Got: map[module.Version]string{}}
	if err = d.release(version); err != nil {
		remove()
	}
	return d, remove, err
}

// release assembles the modules of a release.
func (d *Download) release(version string) error {
	d.Say("Fetching kubernetes %s from the Go module proxy", version)
	main := module.Version{Path: kubernetesModule, Version: version}
	found, err := d.ask([]module.Version{main})
	if err != nil {
		return err
	}
	k := found[main.Path]
	if ok, err := d.get(main, k, d.Dir); err != nil {
		return console.Error(fmt.Sprintf("kubernetes %s cannot be downloaded", version), err.Error())
	} else if !ok {
		return console.Error(fmt.Sprintf("kubernetes %s cannot be downloaded: the Go module proxy has no k8s.io/kubernetes@%s", version, version), k.Error,
			fmt.Sprintf("Check that %s is a release, or use a git checkout of it: KUBE_ROOT=/path/to/kubernetes", version))
	}
	// The module has only a stub of the vendor directory, and go build would use it.
	fileutil.RemoveAll(filepath.Join(d.Dir, "vendor"))

	modules, goVersion, err := stagingModules(d.Dir, version)
	if err != nil {
		return err
	}
	d.Say("Fetching %d staging modules at %s", len(modules), kubeversion.OfStaging(version))
	if found, err = d.ask(modules); err != nil {
		return err
	}
	for _, m := range modules {
		to := filepath.Join(d.Dir, "staging/src", m.Path)
		fileutil.RemoveAll(to)
		said := found[m.Path].Error
		ok, err := d.get(m, found[m.Path], to)
		switch {
		case err != nil:
			return err
		case ok:
			continue
		// A module is absent only if the proxy says so. After any other error it must not become an empty module.
		case !absentPattern.MatchString(said):
			return console.Error(fmt.Sprintf("%s cannot be downloaded:", m), said)
		case d.Pins.hashes[m] != "":
			return console.Error(fmt.Sprintf("the proxy has no %s, but %s has its hash", m, d.Pins.File), said)
		}
		// A workspace needs the go.mod of every module that it names, used or not.
		if err := fileutil.Write(filepath.Join(to, "go.mod"), fmt.Appendf(nil, "module %s\n\ngo %s\n", m.Path, goVersion), 0o666); err != nil {
			return err
		}
		if strings.HasPrefix(m.Path, "k8s.io/sample-") {
			d.Note("%s does not exist; an empty module replaces it", m)
		} else {
			d.Warn("the proxy has no %s; an empty module replaces it, and packages that import it will not build", m)
		}
	}
	return nil
}

// "disabled" is the answer with GOPROXY=off.
var absentPattern = regexp.MustCompile(` (403|404|410) |not found|no such file|not available|unknown revision|disabled`)

// stagingModules returns the modules that go.work names, or go.mod in releases before 1.30.
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
			modules = append(modules, module.Version{Path: m, Version: kubeversion.OfStaging(version)})
		}
	}
	if len(modules) == 0 {
		return nil, "", fmt.Errorf("k8s.io/kubernetes@%s names no staging modules in go.work or go.mod", version)
	}
	return modules, goVersion, nil
}

// ask downloads modules to the module cache. The checksum database does not have every staging module. Ask downloads those
// without a check. A wrong checksum is an error, and so is a database that does not answer.
func (d *Download) ask(modules []module.Version) (map[string]downloaded, error) {
	found, err := d.modDownload(modules)
	if err != nil {
		return nil, err
	}
	var again []module.Version
	var names []string
	for _, m := range modules {
		switch said := found[m.Path].Error; {
		case strings.Contains(said, "checksum mismatch"), strings.Contains(said, "SECURITY ERROR"):
			return nil, console.Error(fmt.Sprintf("%s: the download differs from what the checksum database expects", m), said)
		case !strings.Contains(said, "verifying"):
		case strings.Contains(said, ": 404 "), strings.Contains(said, ": 410 "):
			again = append(again, m)
			names = append(names, m.Path)
		default:
			return nil, console.Error(fmt.Sprintf("%s cannot be checked against the checksum database:", m), said)
		}
	}
	if len(again) == 0 {
		return found, nil
	}
	d.Note("NOT checked against the checksum database, which does not have them: %s", strings.Join(names, " "))
	more, err := d.modDownload(again, "GONOSUMDB="+strings.TrimSuffix("k8s.io/*,"+os.Getenv("GONOSUMDB"), ","))
	maps.Copy(found, more)
	return found, err
}

func (d *Download) modDownload(modules []module.Version, env ...string) (map[string]downloaded, error) {
	// A separate module, so that `go mod download` neither reads nor writes an enclosing one.
	dir := filepath.Join(d.work, "cwd")
	if err := fileutil.Write(filepath.Join(dir, "go.mod"), []byte("module scratch\n"), 0o666); err != nil {
		return nil, err
	}
	args := []string{"mod", "download", "-json"}
	found := map[string]downloaded{}
	for _, m := range modules {
		args = append(args, m.String())
		found[m.Path] = downloaded{Error: "go mod download did not report it"}
	}
	// Disable workspaces, vendor directories and flags for other modules. No variable is empty, because go would then use
	// the value that `go env -w` wrote.
	env = slices.Concat(os.Environ(), []string{"GOFLAGS=-buildvcs=false", "GOWORK=off", "GO111MODULE=on"}, env)
	out, _, failed := process.Long(d.ctx, d.Log, "downloading", dir, env, "go", args...)
	if err := context.Cause(d.ctx); err != nil {
		return nil, err
	}
	// There may be warnings between the objects.
	objects := regexp.MustCompile(`(?ms)^\{\n.*?^\}$`).FindAllString(out, -1)
	if len(objects) == 0 {
		return nil, console.Error(fmt.Sprintf("go mod download failed: %v", failed), console.LastLines(out, 20))
	}
	for _, o := range objects {
		var m downloaded
		if err := json.Unmarshal([]byte(o), &m); err != nil {
			return nil, console.Error("go mod download -json: cannot read the output: "+err.Error(), console.LastLines(out, 20))
		}
		if m.Error != "" || m.Zip != "" {
			found[m.Path] = m
		}
	}
	return found, nil
}

// get unpacks a module to dir, and reports whether the proxy has it. For some modules the proxy has the zip but not the .info
// and .mod files that go asks for first.
func (d *Download) get(m module.Version, found downloaded, dir string) (bool, error) {
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
		return false, nil // the error of the go command has the reason
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
	d.Note("%s: the proxy has only its zip, NOT checked against the checksum database", m)
	return true, d.place(m, f.Name(), dir)
}

// place checks the hash of a module's zip and unpacks it to dir.
func (d *Download) place(m module.Version, file, dir string) error {
	hash, err := dirhash.HashZip(file, dirhash.Hash1)
	if err != nil {
		return fmt.Errorf("%s: %w", m, err)
	}
	if err := d.Pins.check(m, hash); err != nil {
		return err
	}
	d.Got[m] = hash
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
