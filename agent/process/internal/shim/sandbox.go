// SPDX-License-Identifier: Apache-2.0

//go:build linux

package shim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// box is a container, or a command in one, in a sandbox.
type box struct {
	// waited is bwrap, which ends after pid, the first process of the container or the
	// command.
	waited, pid, pidfd int
	// tmp is the /tmp of the container.
	tmp string
	// status is what bwrap reports.
	status *os.File
}

// prepareSandbox prepares the parent of a confined pod.
func (p Parent) prepareSandbox() error {
	if err := setFilter(); err != nil {
		return err
	}
	for _, dir := range []string{sharedDir, tmpDir} {
		if err := makeDir(dir, 0o777|os.ModeSticky); err != nil {
			return err
		}
	}
	if err := hide(p.Bwrap); err != nil {
		return err
	}
	// Containers have no capability for ports below 1024. With the network of the machine this fails.
	os.WriteFile("/proc/sys/net/ipv4/ip_unprivileged_port_start", []byte("0"), 0)
	return nil
}

// makeDir creates a directory without the umask.
func makeDir(dir string, mode os.FileMode) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	return os.Chmod(dir, mode)
}

// files are the files of a new process after stdin, stdout and stderr. They are closed in
// this one.
type files []*os.File

// add returns the number of a file in the new process.
func (f *files) add(file *os.File) (number int) {
	*f = append(*f, file)
	return 2 + len(*f)
}

// pipe adds the reader of a new pipe.
func (f *files) pipe() (number int, writer *os.File, err error) {
	reader, writer, err := os.Pipe()
	if err != nil {
		return 0, nil, err
	}
	return f.add(reader), writer, nil
}

func (f *files) close() {
	for _, file := range *f {
		file.Close()
	}
	*f = nil
}

// startBox starts the command in a sandbox of bwrap: in a new one, or in that of the
// container in.
//
// Before bwrap executes the command, it reads a byte from one pipe and the seccomp filter
// from another. The end of the first pipe says that the files of the container are
// mounted. The filter is written when the command has been found in them. So most errors
// are known at the start, and not only from the output and the exit code. The whole pod has
// the same filter already; bwrap needs one to wait for.
func (c Command) startBox(bwrap string, id int, in *box, stdio []uintptr) (_ *box, err error) {
	var f files
	defer f.close()
	b := &box{pidfd: -1, tmp: path.Join(tmpDir, strconv.Itoa(id))}
	defer func() {
		if err != nil {
			b.close(id)
		}
	}()
	var namespaces []string
	if len(c.Args) == 0 {
		return nil, errNoCommand
	}
	if in == nil {
		if err := makeDir(b.tmp, 0o777|os.ModeSticky); err != nil {
			return nil, err
		}
		namespaces = []string{"--unshare-user", "--disable-userns", "--uid", strconv.Itoa(c.Container.UID), "--gid", strconv.Itoa(c.Container.GID), "--unshare-pid", "--as-pid-1"}
	} else {
		b.tmp = in.tmp
		if err := c.checkIn(in); err != nil {
			return nil, err
		}
		if namespaces, err = in.join(&f); err != nil {
			return nil, err
		}
		bwrap = hiddenBwrap
	}
	subPaths := map[string]int{}
	for _, m := range c.Container.Mounts {
		if m.SubPath == "" {
			continue
		}
		file, err := openSubPath(m)
		if err != nil {
			return nil, fmt.Errorf("volume %s: subPath: %w", path.Join(m.Volume, m.SubPath), err)
		}
		subPaths[m.Target] = f.add(file)
	}
	block, mounted, err := f.pipe()
	if err != nil {
		return nil, err
	}
	defer mounted.Close()
	seccomp, filter, err := f.pipe()
	if err != nil {
		return nil, err
	}
	defer filter.Close()
	var status *os.File
	if b.status, status, err = os.Pipe(); err != nil {
		return nil, err
	}
	options := append(c.options(b.tmp, subPaths), namespaces...)
	options = append(options, "--block-fd", strconv.Itoa(block), "--seccomp", strconv.Itoa(seccomp), "--json-status-fd", strconv.Itoa(f.add(status)))
	for _, o := range options {
		if strings.ContainsRune(o, 0) { // What follows it would be the next option.
			return nil, fmt.Errorf("%.100q must not contain a NUL", o)
		}
	}
	list, err := textFile(strings.Join(options, "\x00") + "\x00")
	if err != nil {
		return nil, err
	}
	args := append(slices.Clone(c.Container.Limits), bwrap, "--args", strconv.Itoa(f.add(list)), "--")
	attr := &syscall.ProcAttr{Dir: "/", Files: stdio}
	for _, file := range f {
		attr.Files = append(attr.Files, file.Fd())
	}
	if b.waited, _, err = syscall.StartProcess(args[0], append(args, c.Args...), attr); err != nil {
		return nil, &os.PathError{Op: "exec", Path: args[0], Err: err}
	}
	f.close()

	var started struct {
		PID int `json:"child-pid"`
	}
	end := time.Now().Add(mountLimit)
	b.status.SetReadDeadline(end)
	if err := json.Unmarshal([]byte(readLine(b.status)), &started); err != nil {
		unix.Kill(b.waited, unix.SIGKILL)
		return nil, errSandbox
	}
	b.status.SetReadDeadline(time.Time{})
	b.pid = started.PID
	if b.pidfd, err = unix.PidfdOpen(b.pid, 0); err != nil {
		return nil, errSandbox
	}
	mounted.Write([]byte{0})
	poll := []unix.PollFd{{Fd: int32(mounted.Fd())}} // POLLERR is always reported.
	n, err := 0, unix.EINTR
	for err == unix.EINTR {
		n, err = unix.Poll(poll, int(max(time.Until(end), 0).Milliseconds()))
	}
	switch {
	case n == 0:
		err = errors.New("bwrap has not mounted the files of the container in time")
	case in == nil:
		err = c.checkIn(b)
	}
	if err == nil {
		_, err = filter.Write(filterBytes())
	}
	if err != nil {
		unix.PidfdSendSignal(b.pidfd, unix.SIGKILL, nil, 0)
		return nil, err
	}
	return b, nil
}

// mountLimit is the time that bwrap has to mount the files of a container, which takes
// milliseconds. A container can stop the bwrap that enters it, but not its parent.
const mountLimit = 10 * time.Second

var errSandbox = errors.New("bwrap cannot make the sandbox of the container: its output has the reason")

// readLine reads up to the end of a line, and nothing after it.
func readLine(r io.Reader) string {
	var line []byte
	for b := make([]byte, 1); len(line) == 0 || line[len(line)-1] != '\n'; line = append(line, b[0]) {
		if _, err := r.Read(b); err != nil {
			break
		}
	}
	return string(line)
}

// textFile returns a file in memory.
func textFile(text string) (*os.File, error) {
	fd, err := unix.MemfdCreate("args", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "args")
	if _, err = f.WriteString(text); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	return f, err
}

// proc returns a path in /proc/PID of a box.
func (b *box) proc(name string) string { return path.Join("/proc", strconv.Itoa(b.pid), name) }

// checkIn checks the command with the files of a container.
func (c Command) checkIn(b *box) error {
	root, err := unix.Open(b.proc("root"), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return errSandbox // The process has ended.
	}
	defer unix.Close(root)
	_, err = c.check(root, c.Dir)
	return err
}

// join returns the options for the namespaces of a container: the user namespace of its
// mounts and the one in it, which is that of its processes.
func (b *box) join(f *files) (options []string, err error) {
	add := func(option string, fd int, err error) error {
		if err != nil {
			return errors.New("the container has ended")
		}
		options = append(options, option, strconv.Itoa(f.add(os.NewFile(uintptr(fd), option))))
		return nil
	}
	user, err := unix.Open(b.proc("ns/user"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err := add("--userns2", user, err); err != nil {
		return nil, err
	}
	outer, err := unix.IoctlRetInt(user, unix.NS_GET_PARENT)
	if err := add("--userns", outer, err); err != nil {
		return nil, err
	}
	pid, err := unix.Open(b.proc("ns/pid"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	return options, add("--pidns", pid, err)
}

// executed reports whether bwrap could execute the command. It is called after the end.
func (b *box) executed() bool {
	rest, _ := io.ReadAll(b.status)
	return strings.Contains(string(rest), "exit-code")
}

// close removes what is left of the command with an ID.
func (b *box) close(id int) {
	unix.Close(b.pidfd)
	b.status.Close() // A nil *os.File returns an error.
	if path.Base(b.tmp) == strconv.Itoa(id) {
		go os.RemoveAll(b.tmp)
	}
}

// openSubPath opens a path in a volume and creates missing directories. No symbolic link
// can lead out of the volume.
func openSubPath(m Mount) (*os.File, error) {
	volume, err := unix.Open(path.Join(volumesDir, m.Volume), unix.O_PATH|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(volume)
	how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS}
	var at *os.File // nil is the volume.
	done := "."
	for _, name := range strings.Split(path.Clean(m.SubPath), "/") {
		next := path.Join(done, name)
		fd, err := unix.Openat2(volume, next, how)
		if err == unix.ENOENT {
			dir := volume
			if at != nil {
				dir = int(at.Fd())
			}
			if err := unix.Mkdirat(dir, name, 0o777); err != nil {
				return nil, &os.PathError{Op: "mkdir", Path: next, Err: err}
			}
			if fd, err = unix.Openat2(volume, next, how); err == nil {
				err = os.Chmod("/proc/self/fd/"+strconv.Itoa(fd), 0o777) // As in the kubelet, without the umask.
			}
		}
		at.Close() // A nil *os.File returns an error.
		if err != nil {
			return nil, &os.PathError{Op: "open", Path: next, Err: err}
		}
		done, at = next, os.NewFile(uintptr(fd), next)
	}
	return at, nil
}
