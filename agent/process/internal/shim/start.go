// SPDX-License-Identifier: Apache-2.0

//go:build linux

package shim

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// start starts the command from this thread. The thread keeps the restrictions of the
// command.
func (c Command) start(stdio []uintptr, attr *syscall.SysProcAttr) (pid, pidfd int, err error) {
	path, err := c.prepare()
	if err != nil {
		return 0, 0, err
	}
	if u := c.User; u != nil && u.Root {
		attr.Credential = &syscall.Credential{Uid: uint32(u.UID), Gid: uint32(u.GID)}
		for _, g := range u.Groups {
			attr.Credential.Groups = append(attr.Credential.Groups, uint32(g))
		}
	}
	attr.PidFD = &pidfd
	pid, _, err = syscall.StartProcess(path, c.Args, &syscall.ProcAttr{Env: c.Env, Files: stdio, Sys: attr})
	if err != nil {
		err = &os.PathError{Op: "exec", Path: path, Err: err}
	}
	return pid, pidfd, err
}

// prepare applies the restrictions and the working directory of the command to this
// thread, and returns the path of the program.
func (c Command) prepare() (string, error) {
	if len(c.Args) == 0 {
		return "", errors.New("no command: the command of the image is not known")
	}
	if err := c.User.drop(); err != nil {
		return "", err
	}
	if c.Dir != "" {
		if err := unix.Chdir(c.Dir); err != nil {
			return "", fmt.Errorf("workingDir: %w", &os.PathError{Op: "chdir", Path: c.Dir, Err: err})
		}
	} else if unix.Chdir(c.OrDir) != nil {
		unix.Chdir("/")
	}
	return c.lookPath()
}

// lookPath is exec.LookPath without relative paths. An import of os/exec would cost CPU
// time at the start of the process.
func (c Command) lookPath() (string, error) {
	name := c.Args[0]
	if strings.Contains(name, "/") {
		return name, nil // execve reports what is wrong with it.
	}
	for _, dir := range strings.Split(c.Path, ":") {
		path := dir + "/" + name
		if info, err := os.Stat(path); dir != "" && err == nil && !info.IsDir() && unix.Access(path, unix.X_OK) == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("exec: %q: executable file not found in $PATH", name)
}

// drop limits the capabilities of programs that this thread starts, and prevents them
// from gaining privileges. The thread itself keeps its capabilities.
func (u *User) drop() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("PR_SET_NO_NEW_PRIVS: %w", err)
	}
	if u == nil {
		return nil
	}
	for c := uintptr(0); c < 64; c++ { // The error for an unknown capability is ignored.
		if u.Capabilities&(1<<c) == 0 {
			unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		}
	}
	// Only inheritable, ambient and bounding capabilities survive execve.
	header := &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var has [2]unix.CapUserData
	err := unix.Capget(header, &has[0])
	if err == nil {
		has[0].Inheritable, has[1].Inheritable = 0, 0
		err = unix.Capset(header, &has[0]) // This also clears the ambient set.
	}
	if err != nil {
		return fmt.Errorf("capset: %w", err)
	}
	return nil
}

// kept refers to all values whose addresses are in steps. Because it is a global variable,
// they are on the heap and not on the stack, which may move. Containers start one at a
// time.
var kept []any

// step is a system call between fork and exec.
type step struct {
	name string
	call uintptr
	args [6]uintptr
}

// protected lists the paths in /proc that root can write without any capability.
var protected = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}

// startContainer makes the container's file system and starts the command as the first
// process of the container. /proc can only be mounted from inside the PID namespace, in
// which the command is PID 1 from the start. Go code cannot run between fork and exec,
// and to execute this program again for the mount would take longer than everything
// else. So the new process makes a prepared list of system calls.
func (c Command) startContainer(stdio []uintptr) (pid, pidfd int, err error) {
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return 0, 0, fmt.Errorf("unshare: %w", err)
	}
	if err := c.mount(); err != nil {
		return 0, 0, err
	}
	path, err := c.prepare()
	if err != nil {
		return 0, 0, err
	}
	kept = nil
	text := func(s string) uintptr {
		b, _ := unix.BytePtrFromString(strings.ReplaceAll(s, "\x00", ""))
		kept = append(kept, b)
		return uintptr(unsafe.Pointer(b))
	}
	texts := func(list []string) uintptr {
		pointers := make([]uintptr, len(list)+1)
		for i, s := range list {
			pointers[i] = text(s)
		}
		kept = append(kept, pointers)
		return uintptr(unsafe.Pointer(&pointers[0]))
	}
	var steps []step
	add := func(name string, call uintptr, args ...uintptr) {
		s := step{name: name, call: call}
		copy(s.args[:], args)
		steps = append(steps, s)
	}
	add("setsid", unix.SYS_SETSID)
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	add("mount proc", unix.SYS_MOUNT, text("proc"), text("/proc"), text("proc"), flags, 0)
	if u := c.User; u.Root {
		for _, p := range protected {
			if _, err := os.Stat(p); err == nil {
				add("bind "+p, unix.SYS_MOUNT, text(p), text(p), 0, unix.MS_BIND|unix.MS_REC, 0)
				add("remount "+p, unix.SYS_MOUNT, 0, text(p), 0, unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|flags, 0)
			}
		}
		groups := make([]uint32, len(u.Groups)+1)
		for i, g := range u.Groups {
			groups[i] = uint32(g)
		}
		kept = append(kept, groups)
		setgroups, setresgid, setresuid := uintptr(unix.SYS_SETGROUPS), uintptr(unix.SYS_SETRESGID), uintptr(unix.SYS_SETRESUID)
		if runtime.GOARCH == "386" || runtime.GOARCH == "arm" {
			// There these take 16-bit IDs. SYS_SETGROUPS32 and so on are not defined elsewhere.
			setgroups, setresgid, setresuid = 206, 210, 208
		}
		add("supplementalGroups", setgroups, uintptr(len(u.Groups)), uintptr(unsafe.Pointer(&groups[0])))
		add("runAsGroup", setresgid, uintptr(u.GID), uintptr(u.GID), uintptr(u.GID))
		add("runAsUser", setresuid, uintptr(u.UID), uintptr(u.UID), uintptr(u.UID))
	}
	for i, fd := range stdio {
		add("dup3", unix.SYS_DUP3, fd, uintptr(i), 0)
	}
	add("exec "+path, unix.SYS_EXECVE, text(path), texts(c.Args), texts(c.Env))
	return fork(steps)
}

// fork starts a process in a new PID namespace that makes these steps. The last step is
// execve.
func fork(steps []step) (pid, pidfd int, err error) {
	var report [2]int
	if err := unix.Pipe2(report[:], unix.O_CLOEXEC); err != nil {
		return 0, 0, err
	}
	defer unix.Close(report[0])
	all, before := unix.Sigset_t{}, unix.Sigset_t{}
	for i := range all.Val {
		all.Val[i]--
	}
	// No signal handler of this program may run in the new process.
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, &before); err != nil {
		unix.Close(report[1])
		return 0, 0, err
	}
	fd := new(int32)
	kept = append(kept, fd)
	clone := &cloneArgs{flags: unix.CLONE_NEWPID | unix.CLONE_PIDFD, pidfd: uint64(uintptr(unsafe.Pointer(fd))), exitSignal: uint64(unix.SIGCHLD)}
	child, errno := forkSteps(clone, steps, &before, uintptr(report[1]))
	unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil)
	unix.Close(report[1])
	if errno != 0 {
		return 0, 0, fmt.Errorf("clone3: %w", errno)
	}
	var failed [2]uintptr
	buffer := unsafe.Slice((*byte)(unsafe.Pointer(&failed)), unsafe.Sizeof(failed))
	n, err := unix.Read(report[0], buffer)
	for err == unix.EINTR {
		n, err = unix.Read(report[0], buffer)
	}
	if n > 0 {
		unix.Close(int(*fd))
		return 0, 0, fmt.Errorf("%s: %w", steps[failed[0]].name, syscall.Errno(failed[1]))
	}
	return int(child), int(*fd), err
}

// cloneArgs is struct clone_args of the kernel.
type cloneArgs struct {
	flags, pidfd, childTID, parentTID, exitSignal, stack, stackSize, tls uint64
}

// forkSteps is the part of fork for which all signals are blocked. In the new process it
// does not call the Go runtime and does not return, as syscall.forkAndExecInChild.
//
//go:nosplit
//go:norace
//go:noinline
func forkSteps(clone *cloneArgs, steps []step, mask *unix.Sigset_t, report uintptr) (pid uintptr, errno syscall.Errno) {
	var none [8]uint64 // A struct sigaction with SIG_DFL.
	var failed [2]uintptr
	pid, _, errno = syscall.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(clone)), unsafe.Sizeof(*clone), 0)
	if errno != 0 || pid != 0 {
		return pid, errno
	}
	const signals = 64
	for s := uintptr(1); s <= signals; s++ {
		syscall.RawSyscall6(unix.SYS_RT_SIGACTION, s, uintptr(unsafe.Pointer(&none)), 0, signals/8, 0, 0)
	}
	syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(mask)), 0, signals/8, 0, 0)
	for i := range steps {
		s := &steps[i]
		if _, _, errno = syscall.RawSyscall6(s.call, s.args[0], s.args[1], s.args[2], s.args[3], s.args[4], s.args[5]); errno != 0 {
			failed[0], failed[1] = uintptr(i), uintptr(errno)
			break
		}
	}
	syscall.RawSyscall(unix.SYS_WRITE, report, uintptr(unsafe.Pointer(&failed)), unsafe.Sizeof(failed))
	for {
		syscall.RawSyscall(unix.SYS_EXIT_GROUP, 1, 0, 0)
	}
}
