// SPDX-License-Identifier: Apache-2.0

//go:build linux

package shim

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// start starts the command without a sandbox.
func (c Command) start(stdio []uintptr) (pid, pidfd int, err error) {
	root, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, 0, err
	}
	defer unix.Close(root)
	wd, err := os.Getwd()
	if err != nil {
		wd = "/"
	}
	dir := path.Join(wd, c.Dir)
	if path.IsAbs(c.Dir) {
		dir = c.Dir
	}
	program, err := c.check(root, dir)
	if err != nil {
		return 0, 0, err
	}
	attr := &syscall.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL, PidFD: &pidfd}
	if u := c.User; u != nil {
		attr.Credential = &syscall.Credential{Uid: uint32(u.UID), Gid: uint32(u.GID)}
		for _, g := range u.Groups {
			attr.Credential.Groups = append(attr.Credential.Groups, uint32(g))
		}
	}
	pid, _, err = syscall.StartProcess(program, c.Args, &syscall.ProcAttr{Dir: dir, Env: c.Env, Files: stdio, Sys: attr})
	if err != nil {
		err = &os.PathError{Op: "exec", Path: program, Err: err}
	}
	return pid, pidfd, err
}

// check returns the path of the program, or an error if the working directory or the
// program does not exist in the root directory of the command.
func (c Command) check(root int, dir string) (program string, err error) {
	open := func(path string, flags uint64) (int, error) {
		return unix.Openat2(root, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC | flags, Resolve: unix.RESOLVE_IN_ROOT})
	}
	if len(c.Args) == 0 {
		return "", errNoCommand
	}
	fd, err := open(dir, unix.O_DIRECTORY)
	if err != nil {
		return "", fmt.Errorf("workingDir: %w", &os.PathError{Op: "chdir", Path: c.Dir, Err: err})
	}
	unix.Close(fd)
	executable := func(name string) error {
		if !path.IsAbs(name) {
			name = path.Join(dir, name)
		}
		fd, err := open(name, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		var stat unix.Stat_t
		if err := unix.Fstat(fd, &stat); err != nil {
			return err
		}
		if stat.Mode&unix.S_IFMT != unix.S_IFREG || stat.Mode&0o111 == 0 {
			return unix.EACCES
		}
		return nil
	}
	name := c.Args[0]
	if strings.Contains(name, "/") {
		if err := executable(name); err != nil && err != unix.EXDEV { // A link such as /proc/self/exe.
			return "", &os.PathError{Op: "exec", Path: name, Err: err}
		}
		return name, nil
	}
	for _, in := range strings.Split(c.Path, ":") {
		if in != "" && executable(in+"/"+name) == nil {
			return in + "/" + name, nil
		}
	}
	return "", fmt.Errorf("exec: %q: executable file not found in $PATH", name)
}

var errNoCommand = errors.New("no command: the command of the image is not known")
