// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// sourceFolder returns the folder of this module, which has the programs of the
// images and the runtimes' versions. It is the working directory, or its parent in a
// test that go test runs.
func sourceFolder() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	var missing error
	for _, folder := range []string{filepath.Dir(dir), dir} {
		missing = nil
		for _, name := range []string{"containerd/go.mod", "images/crasher/main.go"} {
			if _, err := os.Stat(filepath.Join(folder, name)); err != nil {
				missing = err
			}
		}
		if missing == nil {
			return folder, nil
		}
	}
	return "", fmt.Errorf("%s is not the folder test/node of the repository (%w); use: go run -C test/node ./timing timing …", dir, missing)
}

// Program is a flag that names a program.
type Program struct {
	Flag string
	// Path is the flag's value.
	Path *string
}

// prerequisites makes the paths absolute and returns the path of etcd, if it is
// needed. An error lists everything that is missing.
func prerequisites(needed []Program, needs Needs) (etcd string, err error) {
	var missing []string
	miss := func(format string, args ...any) { missing = append(missing, fmt.Sprintf(format, args...)) }
	for _, b := range needed {
		if *b.Path == "" {
			miss("%s: not given", b.Flag)
			continue
		}
		abs, err := filepath.Abs(*b.Path)
		if err != nil {
			return "", err
		}
		*b.Path = abs
		if info, err := os.Stat(abs); err != nil {
			miss("%s: %v", b.Flag, err)
		} else if info.IsDir() || info.Mode()&0o111 == 0 {
			miss("%s %s: not an executable file", b.Flag, abs)
		}
	}
	if os.Geteuid() != 0 {
		miss("root: a node has namespaces of its own; run this as root")
	}
	program := func(name, pkg string) string {
		path, err := exec.LookPath(name)
		if err != nil {
			miss("%s: not on PATH (Debian package %s)", name, pkg)
		}
		return path
	}
	if needs.Runtime != "" {
		runtime, err := runtimeNamed(needs.Runtime)
		if err != nil {
			return "", err
		}
		needed := runtime.needs(needs.Built)
		for _, name := range slices.Sorted(maps.Keys(needed)) {
			program(name, needed[name])
		}
	}
	if needs.JobSet || needs.Runtime != "" && !needs.Built {
		program("go", "golang-go")
	}
	if needs.APIServer {
		etcd = program("etcd", "etcd-server")
	}
	if all, err := mounts(); err != nil {
		return "", err
	} else if !hasCgroups(all) {
		miss("cgroups: no cgroup file system is mounted (Debian package cgroupfs-mount, or systemd)")
	}
	if len(missing) > 0 {
		return "", fmt.Errorf("missing:\n  %s", strings.Join(missing, "\n  "))
	}
	return etcd, nil
}

func hasCgroups(all []mount) bool {
	for _, m := range all {
		if m.fstype == "cgroup" || m.fstype == "cgroup2" {
			return true
		}
	}
	return false
}
