// SPDX-License-Identifier: Apache-2.0

//go:build linux

package shim

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// volumesDir is the directory of the pod's volumes. Containers do not see it.
	volumesDir = "/.crashloop"
	// locked is the set of attributes of every mount in a container.
	locked = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
)

// makeRoot gives this mount namespace a new root: a directory in memory, into which
// everything in the root of the machine is mounted read-only. Directories for volumes can
// be created in it without changing the machine.
func (p Parent) makeRoot() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make / private: %w", err)
	}
	var volumes int
	if p.Volumes != "" {
		var err error
		if volumes, err = openTree(unix.AT_FDCWD, p.Volumes); err != nil {
			return fmt.Errorf("%s: %w", p.Volumes, err)
		}
	}
	const root = "/tmp" // Containers get their own /tmp.
	if err := mountTmpfs(root, "mode=755"); err != nil {
		return err
	}
	r := mirrors{}
	if err := r.register(root); err != nil {
		return err
	}
	own := []string{"dev", "proc", "tmp", path.Base(volumesDir), path.Base(staging)}
	if err := r.fill("/", root, own...); err != nil {
		return err
	}
	for _, name := range own {
		if err := os.Mkdir(path.Join(root, name), 0o755); err != nil {
			return err
		}
	}
	if err := makeDev(root + "/dev"); err != nil {
		return err
	}
	// In a user namespace this needs another visible /proc, so it is before pivot_root.
	if err := unix.Mount("proc", root+"/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount proc: %w", err)
	}
	if err := os.Chdir(root); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("umount the machine's root: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	for _, point := range p.MountPoints {
		if err := r.add(point); err != nil {
			return fmt.Errorf("mountPath: %w", err)
		}
	}
	if err := setAttr(unix.AT_FDCWD, "/", unix.MountAttr{Attr_set: locked | unix.MOUNT_ATTR_RDONLY}); err != nil {
		return err
	}
	if err := setAttr(unix.AT_FDCWD, "/dev", unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_NODEV}); err != nil {
		return err
	}
	for _, dir := range []string{"/dev/pts", "/dev/shm"} {
		if err := setAttr(unix.AT_FDCWD, dir, unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY}); err != nil {
			return err
		}
	}
	if p.Volumes != "" {
		if err := setAttr(volumes, "", unix.MountAttr{Attr_set: locked}); err != nil {
			return err
		}
		if err := attach(volumes, volumesDir); err != nil {
			return err
		}
	}
	return unix.Sethostname([]byte(p.Hostname))
}

func makeDev(dir string) error {
	if err := mountTmpfs(dir, "mode=755"); err != nil {
		return err
	}
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		if err := bind("/dev/"+name, path.Join(dir, name), 0); err != nil {
			return err
		}
	}
	for _, name := range []string{"pts", "shm"} {
		if err := os.Mkdir(path.Join(dir, name), 0o755); err != nil {
			return err
		}
	}
	if err := unix.Mount("devpts", dir+"/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620"); err != nil {
		return fmt.Errorf("mount devpts: %w", err)
	}
	for name, target := range map[string]string{"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"} {
		if err := os.Symlink(target, path.Join(dir, name)); err != nil {
			return err
		}
	}
	return mountTmpfs(dir+"/shm", "mode=1777")
}

// mirrors is the set of the device numbers of the directories in memory that replace
// directories of the machine.
type mirrors map[uint64]bool

// staging is the path at which such a directory is filled.
const staging = "/.crashloop-new"

func (m mirrors) register(dir string) error {
	var stat unix.Stat_t
	err := unix.Stat(dir, &stat)
	m[stat.Dev] = true
	return err
}

// add creates a mount point if it does not exist: a directory if it ends with a slash,
// else a file.
func (m mirrors) add(point string) error {
	existing := path.Clean(point)
	for {
		if _, err := os.Stat(existing); err == nil {
			break
		}
		existing = path.Dir(existing) // A path that may not be read counts as missing.
	}
	if existing == path.Clean(point) {
		return nil
	}
	var stat unix.Stat_t
	if err := unix.Stat(existing, &stat); err != nil {
		return err
	}
	if !m[stat.Dev] {
		if err := m.replace(existing, stat.Mode); err != nil {
			return err
		}
	}
	return makeMountPoint(point)
}

// makeMountPoint creates a directory, or a file and its directories.
func makeMountPoint(point string) error {
	if strings.HasSuffix(point, "/") {
		return os.MkdirAll(point, 0o755)
	}
	if err := os.MkdirAll(path.Dir(point), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(point, os.O_CREATE|os.O_RDONLY, 0o644) // Does not truncate.
	if err != nil {
		return err
	}
	return f.Close()
}

// replace mounts a directory in memory over a directory of the machine, with the same
// content.
func (m mirrors) replace(dir string, mode uint32) error {
	if err := mountTmpfs(staging, fmt.Sprintf("mode=%o", mode&0o777)); err != nil {
		return err
	}
	if err := m.register(staging); err != nil {
		return err
	}
	if err := m.fill(dir, staging); err != nil {
		return err
	}
	if err := unix.Mount(staging, dir, "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move a mount to %s: %w", dir, err)
	}
	return nil
}

// fill mounts the entries of a directory into another one, except the excluded names. It
// skips entries that this user may not see, because containers may not see them either.
func (m mirrors) fill(from, to string, excluded ...string) error {
	entries, err := os.ReadDir(from)
	if err != nil && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	for _, e := range entries {
		if slices.Contains(excluded, e.Name()) {
			continue
		}
		from, to := path.Join(from, e.Name()), path.Join(to, e.Name())
		if e.Type() != fs.ModeSymlink {
			err = bind(from, to, e.Type())
		} else if target, readErr := os.Readlink(from); readErr == nil {
			err = os.Symlink(target, to)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			return err
		}
	}
	return nil
}

// bind creates a file or a directory at to, and mounts from on it, with all mounts in it.
func bind(from, to string, mode fs.FileMode) error {
	point := to
	if mode.IsDir() {
		point += "/"
	}
	if err := makeMountPoint(point); err != nil {
		return err
	}
	if err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return &os.PathError{Op: "bind", Path: from, Err: err}
	}
	return nil
}

func mountTmpfs(dir, options string) error {
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return &os.PathError{Op: "mount tmpfs on", Path: dir, Err: err}
	}
	return nil
}

// openTree returns a detached mount of a path, or of the file descriptor dir if the path
// is "".
func openTree(dir int, path string) (int, error) {
	return unix.OpenTree(dir, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE|unix.AT_EMPTY_PATH)
}

func attach(tree int, target string) error {
	err := unix.MoveMount(tree, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_SYMLINKS)
	if err != nil {
		return &os.PathError{Op: "mount on", Path: target, Err: err}
	}
	return nil
}

// setAttr changes the attributes of a mount and of all mounts in it. It requires Linux
// 5.12.
func setAttr(dir int, path string, attr unix.MountAttr) error {
	if err := unix.MountSetattr(dir, path, unix.AT_RECURSIVE|unix.AT_EMPTY_PATH, &attr); err != nil {
		return fmt.Errorf("mount_setattr %s: %w", path, err)
	}
	return nil
}

// mount mounts the file system of a container, except /proc.
func (c Command) mount() error {
	if err := mountTmpfs("/tmp", "mode=1777"); err != nil {
		return err
	}
	var readOnly []int
	if c.ReadOnlyTmp {
		tmp, err := unix.Open("/tmp", unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		readOnly = append(readOnly, tmp)
	}
	for _, m := range c.Mounts {
		tree, err := m.attach()
		if err != nil {
			return fmt.Errorf("volume %s: %w", m.Source, err)
		}
		if m.ReadOnly {
			readOnly = append(readOnly, tree)
		}
	}
	// This is after all mounts, because a volume may be mounted in another one.
	for _, mount := range readOnly {
		if err := unix.MountSetattr(mount, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
			return fmt.Errorf("readOnly: %w", err)
		}
	}
	// Hide the volumes of other containers, and writable ones mounted with readOnly.
	empty, err := openTree(unix.AT_FDCWD, staging)
	if err != nil {
		return err
	}
	return attach(empty, volumesDir)
}

// attach mounts a volume or a path in it.
func (m Mount) attach() (int, error) {
	name, below, _ := strings.Cut(m.Source, "/")
	volume, err := unix.Open(path.Join(volumesDir, name), unix.O_PATH|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return 0, err
	}
	source, err := openBelow(volume, below)
	if err != nil {
		return 0, fmt.Errorf("subPath: %w", err)
	}
	var stat unix.Stat_t
	if err := unix.Fstat(source, &stat); err != nil {
		return 0, err
	}
	point := m.Target
	if stat.Mode&unix.S_IFMT == unix.S_IFDIR {
		point += "/"
	}
	if _, err := os.Stat(m.Target); errors.Is(err, fs.ErrNotExist) {
		if err := makeMountPoint(point); err != nil {
			return 0, err
		}
	}
	tree, err := openTree(source, "")
	if err != nil {
		return 0, err
	}
	return tree, attach(tree, m.Target)
}

// openBelow opens a path in a directory and creates missing directories. No symbolic link
// can lead out of the directory.
func openBelow(dir int, below string) (int, error) {
	how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS}
	done := "."
	at := dir
	for _, name := range strings.Split(path.Clean(below), "/") {
		next := path.Join(done, name)
		fd, err := unix.Openat2(dir, next, how)
		if err == unix.ENOENT {
			if err := unix.Mkdirat(at, name, 0o777); err != nil {
				return 0, &os.PathError{Op: "mkdir", Path: next, Err: err}
			}
			if fd, err = unix.Openat2(dir, next, how); err == nil {
				err = os.Chmod("/proc/self/fd/"+strconv.Itoa(fd), 0o777) // As in the kubelet, without the umask.
			}
		}
		if err != nil {
			return 0, &os.PathError{Op: "open", Path: next, Err: err}
		}
		done, at = next, fd
	}
	return at, nil
}
