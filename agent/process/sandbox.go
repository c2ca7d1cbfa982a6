// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/agent/process/internal/shim"
)

// sandbox is what the sandboxes of a pod and of its containers have in common.
type sandbox struct {
	pod     shim.Pod
	prlimit string
	// pids and memory are the limits of processes and of bytes. They are not positive if
	// there is none. inCgroup is true if a cgroup has that of memory.
	pids, memory int64
	inCgroup     bool
	// dirs are the directories of the machine that containers see.
	dirs []hostDir
}

// hostDir is a directory with the same path on the machine and in containers. source is
// the path for bwrap.
type hostDir struct{ path, source string }

// systemDirs have the programs of the machine. Other directories, such as /run, /home and
// /var, have sockets, FIFOs and data of users. A read-only mount does not keep a process
// from writing to a socket or a FIFO.
var systemDirs = []string{"/bin", "/etc", "/gnu", "/lib", "/lib32", "/lib64", "/libx32", "/nix", "/opt", "/sbin", "/usr"}

// newSandbox returns a sandbox. It returns an error if a program that makes it is missing.
func newSandbox(o Options) (*sandbox, error) {
	s := &sandbox{pod: shim.Pod{Root: os.Geteuid() == 0, HostNetwork: o.HostNetwork}, pids: cmp.Or(o.PIDsLimit, DefaultPIDsLimit), memory: cmp.Or(o.MemoryLimit, DefaultMemoryLimit)}
	var err error
	if s.pod.Executable, err = os.Executable(); err != nil {
		return nil, err
	}
	if info, err := os.Stat(s.pod.Executable); s.pod.Root && err == nil && info.Mode()&1 == 0 {
		return nil, fmt.Errorf("%s: the mode is %v, but the user nobody must be able to execute it: chmod a+x", s.pod.Executable, info.Mode())
	}
	for _, p := range []struct {
		name, in string
		path     *string
	}{{"bwrap", "bubblewrap", &s.pod.Bwrap}, {"setpriv", "util-linux", &s.pod.Setpriv}, {"prlimit", "util-linux", &s.prlimit}} {
		if *p.path, err = exec.LookPath(p.name); err != nil {
			return nil, fmt.Errorf("the program %s is not installed; install it with: apt-get install %s", p.name, p.in)
		}
	}
	s.pod.MemoryFiles = max(s.memory, 0) / 2 // They count as memory of the pod too.
	for _, dir := range systemDirs {
		s.dirs = append(s.dirs, hostDir{dir, dir})
	}
	for n, dir := range o.HostDirs {
		if dir, err = filepath.Abs(dir); err != nil {
			return nil, err
		}
		if dir, err = filepath.EvalSymlinks(dir); err != nil {
			return nil, fmt.Errorf("directory of the machine: %w", err)
		}
		s.pod.HostDirs = append(s.pod.HostDirs, dir)
		s.dirs = append(s.dirs, hostDir{dir, shim.HostDir(n)})
	}
	return s, nil
}

// limits returns the command that sets the limits of a container for another command.
func (s *sandbox) limits() (limits []string) {
	if s.pids > 0 {
		limits = append(limits, fmt.Sprintf("--nproc=%d:%d", s.pids, s.pids))
	}
	if s.memory > 0 && !s.inCgroup {
		limits = append(limits, fmt.Sprintf("--data=%d:%d", s.memory, s.memory))
	}
	if len(limits) > 0 {
		limits = append([]string{s.prlimit}, limits...)
	}
	return limits
}

// CanConfine returns nil if this process can confine pods, else the reason why not. It
// runs a program in a sandbox.
func CanConfine() error {
	dir, err := os.MkdirTemp("", "crashloop-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var output []byte
	pod := &v1.Pod{}
	pod.Name = "sandbox"
	r, err := New(pod, dir, Options{}, func(_ string, line []byte) { output = line }, func(string, string) {})
	if err != nil {
		return err
	}
	ctx := context.Background()
	defer r.Remove(ctx)
	if err := r.CreateSandbox(ctx); err != nil {
		return err
	}
	if _, err := r.Start(ctx, &v1.Container{Name: "true", Command: []string{"true"}}, 0); err != nil {
		return err
	}
	<-r.instances["true"].done
	if s := r.instances["true"].status; s.ExitCode != 0 {
		return errors.New(cmp.Or(string(output), s.Message))
	}
	return nil
}

// within returns the path below the directory, and whether target is in it.
func (d hostDir) within(target string) (rest string, ok bool) {
	rest, ok = strings.CutPrefix(target, d.path)
	return rest, ok && (rest == "" || rest[0] == '/')
}

// files returns the options of bwrap that mount the directories of the machine, so that
// volumes can be mounted on the targets. bwrap cannot create a mount point in a read-only
// directory. Such a directory becomes a tmpfs with the entries of the directory. files
// returns these too.
func (s *sandbox) files(targets []string) (options, mirrors []string, err error) {
	mount := func(path, source string) error {
		info, err := os.Lstat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return err
		case info.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			options = append(options, "--symlink", to, path)
		case info.IsDir() || info.Mode().IsRegular():
			options = append(options, "--ro-bind", source, path)
		}
		return nil
	}
	for _, dir := range s.dirs {
		if err := mount(dir.path, dir.source); err != nil {
			return nil, nil, err
		}
	}
	if to, err := filepath.EvalSymlinks("/etc/resolv.conf"); s.pod.HostNetwork && err == nil && !strings.HasPrefix(to, "/etc/") {
		options = append(options, "--ro-bind", to, to) // It is often in /run.
	}
	for _, target := range targets {
		if dir := missingIn(target); dir != "" && !slices.Contains(mirrors, dir) {
			mirrors = append(mirrors, dir)
		}
	}
	slices.SortFunc(mirrors, func(a, b string) int { return cmp.Compare(len(a), len(b)) })
	mirrors = slices.DeleteFunc(mirrors, func(dir string) bool {
		i := slices.IndexFunc(s.dirs, func(d hostDir) bool { _, ok := d.within(dir); return ok })
		if i < 0 {
			return true // bwrap creates what is not in one of them.
		}
		entries, readErr := os.ReadDir(dir)
		err = errors.Join(err, readErr)
		options = append(options, "--tmpfs", dir)
		rest, _ := s.dirs[i].within(dir)
		for _, e := range entries {
			err = errors.Join(err, mount(path.Join(dir, e.Name()), path.Join(s.dirs[i].source, rest, e.Name())))
		}
		return false
	})
	return options, mirrors, err
}

// missingIn returns the directory in which the target, or a directory above it, does not
// exist. It returns "" if the target exists.
func missingIn(target string) string {
	if _, err := os.Stat(target); err == nil {
		return ""
	}
	for dir := path.Dir(target); ; dir = path.Dir(dir) {
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			return real
		}
	}
}

// workingDir returns the working directory of a container without one: that of the agent
// if the container sees it, else the root directory.
func (s *sandbox) workingDir() string {
	wd, err := os.Getwd()
	if err == nil && slices.ContainsFunc(s.dirs, func(d hostDir) bool { _, ok := d.within(wd); return ok }) {
		return wd
	}
	return "/"
}
