// SPDX-License-Identifier: Apache-2.0

//go:build linux

package shim

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// start starts the Command from this thread, which gives up for good what the
// Command is not to have.
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

// prepare has this thread be as the Command is to be, but for its user, and returns
// the Command's path.
func (c Command) prepare() (string, error) {
	if len(c.Args) == 0 {
		return "", errors.New("no command: that of the image is not known")
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

// lookPath is that of os/exec, without its relative paths, and without the time
// that importing it takes.
func (c Command) lookPath() (string, error) {
	name := c.Args[0]
	if strings.Contains(name, "/") {
		return name, isExecutable(name)
	}
	for _, dir := range strings.Split(c.Path, ":") {
		if path := dir + "/" + name; dir != "" && isExecutable(path) == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("exec: %q: executable file not found in $PATH", name)
}

func isExecutable(path string) error {
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		err = &os.PathError{Op: "exec", Path: path, Err: unix.EISDIR}
	} else if err == nil && unix.Access(path, unix.X_OK) != nil {
		err = &os.PathError{Op: "exec", Path: path, Err: unix.EACCES}
	}
	return err
}

// drop has this thread start only what has no more capabilities than the user, and
// gets none by executing a program. The thread itself keeps its own.
func (u *User) drop() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("PR_SET_NO_NEW_PRIVS: %w", err)
	}
	if u == nil {
		return nil
	}
	for c := uintptr(0); c < 64; c++ { // An unknown one is an error.
		if u.Capabilities&(1<<c) == 0 {
			unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		}
	}
	// What is neither inheritable nor ambient nor in the bounding set does not outlive
	// the execve.
	header := &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var has [2]unix.CapUserData
	err := unix.Capget(header, &has[0])
	if err == nil {
		has[0].Inheritable, has[1].Inheritable = 0, 0
		err = unix.Capset(header, &has[0]) // Which the ambient ones end with.
	}
	if err != nil {
		return fmt.Errorf("capset: %w", err)
	}
	return nil
}

// kept is what steps have the addresses of. As a global refers to it, it is on the
// heap, and not on a stack, which may move. Containers are started one at a time.
var kept []any

// step is a system call between fork and exec.
type step struct {
	name string
	call uintptr
	args [6]uintptr
}

// protected is what the user 0 could write in /proc without any privilege.
var protected = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}

// startContainer starts the Command as the first process of a container, of which
// this thread makes the file system. Only from within its PID namespace its /proc
// can be mounted. As that is the command's process from the beginning, and as Go
// cannot run between fork and exec, and executing this program once more for that
// would take longer than all the rest, the process does a list of system calls
// there.
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
		add("supplementalGroups", unix.SYS_SETGROUPS, uintptr(len(u.Groups)), uintptr(unsafe.Pointer(&groups[0])))
		add("runAsGroup", unix.SYS_SETRESGID, uintptr(u.GID), uintptr(u.GID), uintptr(u.GID))
		add("runAsUser", unix.SYS_SETRESUID, uintptr(u.UID), uintptr(u.UID), uintptr(u.UID))
	}
	for i, fd := range stdio {
		add("dup3", unix.SYS_DUP3, fd, uintptr(i), 0)
	}
	add("exec "+path, unix.SYS_EXECVE, text(path), texts(c.Args), texts(c.Env))
	return fork(steps)
}

// fork starts a process in a PID namespace of its own that does these steps, of
// which the last one is an execve.
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
	// A handler of this program must not run in the new process.
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
	n, err := unix.Read(report[0], unsafe.Slice((*byte)(unsafe.Pointer(&failed)), unsafe.Sizeof(failed)))
	for err == unix.EINTR {
		n, err = unix.Read(report[0], unsafe.Slice((*byte)(unsafe.Pointer(&failed)), unsafe.Sizeof(failed)))
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

// forkSteps is fork with all signals blocked. In the new process it calls nothing of
// the runtime, as syscall.forkAndExecInChild, and does not return.
//
//go:nosplit
//go:norace
//go:noinline
func forkSteps(clone *cloneArgs, steps []step, mask *unix.Sigset_t, report uintptr) (pid uintptr, errno syscall.Errno) {
	var none [8]uint64 // SIG_DFL for all that struct sigaction has
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
