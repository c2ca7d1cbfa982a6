// SPDX-License-Identifier: Apache-2.0

// Package fileutil adds to package os: scratch directories, file locks and atomic writes.
package fileutil

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func HasLine(text, line string) bool { return strings.Contains("\n"+text+"\n", "\n"+line+"\n") }

// Glob returns the paths of a directory's entries that match the pattern. Unlike in filepath.Glob, characters of the
// directory's name have no special meaning.
func Glob(dir, pattern string) []string {
	entries, _ := os.ReadDir(dir)
	var found []string
	for _, e := range entries {
		if ok, _ := path.Match(pattern, e.Name()); ok {
			found = append(found, filepath.Join(dir, e.Name()))
		}
	}
	return found
}

// Scratch makes a directory below parent, and returns a function that removes it. It also removes the directories of killed
// programs: their names contain the process ID of the owner.
func Scratch(parent string) (dir string, remove func(), err error) {
	if err := os.MkdirAll(parent, 0o777); err != nil {
		return "", nil, fmt.Errorf("cannot create %s: %v", parent, err)
	}
	for _, d := range Glob(parent, ".scratch.*") {
		owner, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(d), ".scratch."), ".")
		pid, err := strconv.Atoi(owner)
		// The process of another user gives EPERM.
		if err == nil && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			RemoveAll(d)
		}
	}
	dir, err = os.MkdirTemp(parent, fmt.Sprintf(".scratch.%d.", os.Getpid()))
	if err != nil {
		return "", nil, fmt.Errorf("cannot create a scratch directory in %s: %v", parent, err)
	}
	return dir, func() { RemoveAll(dir) }, nil
}

// RemoveAll removes a directory and everything below it, including read-only directories. It ignores errors.
func RemoveAll(dir string) {
	if os.RemoveAll(dir) == nil {
		return
	}
	_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
	_ = os.RemoveAll(dir)
}

func Exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// Write replaces a file atomically: after an interruption there is the old file or the new one.
func Write(path string, data []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	tmp := unwritten(path)
	_ = os.Remove(tmp)
	defer os.Remove(tmp)
	if err := os.WriteFile(tmp, data, mode); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// newPrefix marks files that are being written. A killed program leaves such a file, which the next write of the file removes.
const newPrefix = ".new."

func unwritten(path string) string {
	return filepath.Join(filepath.Dir(path), newPrefix+filepath.Base(path))
}

// RemoveUnwritten removes what a program left that was killed in Write.
func RemoveUnwritten(path string) { _ = os.Remove(unwritten(path)) }

// Lock takes an exclusive lock on a file. If it has to wait, it calls waiting once. If ctx is done, it returns the cause.
// The programs that are started before unlock is called inherit the lock. If this one is killed, they keep it until they end.
func Lock(ctx context.Context, file string, waiting func()) (unlock func(), err error) {
	dir := filepath.Dir(file)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("cannot create %s: %v", dir, err)
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return nil, err
	}
	for said := false; syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil; said = true {
		if !said {
			waiting()
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, context.Cause(ctx)
		case <-time.After(200 * time.Millisecond):
		}
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETFD, 0); err != nil {
		f.Close()
		return nil, err
	}
	return func() {
		// Closing the file is not enough while a program that was started has it.
		_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
		f.Close()
	}, nil
}

// RemoveEmpty removes dir, a path below root, and its parents, as long as they are empty or missing.
func RemoveEmpty(root, dir string) {
	for ; dir != "." && dir != "/"; dir = filepath.Dir(dir) {
		// os.Remove would remove a file or link of the user in the place of the directory.
		if err := syscall.Rmdir(filepath.Join(root, dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return
		}
	}
}

// WithParents returns the paths and those of the directories that they need, sorted.
func WithParents(paths ...string) []string {
	var all []string
	for _, path := range paths {
		for ; path != "."; path = filepath.Dir(path) {
			all = append(all, path)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// line is a line of a file that is edited by hand.
type line struct {
	Number int
	Text   string
}

// Lines returns the lines of a file, without comments and empty lines. A missing file has none.
func Lines(file string) ([]line, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var lines []line
	for i, text := range strings.Split(string(data), "\n") {
		if text = strings.TrimSpace(text); text != "" && text[0] != '#' {
			lines = append(lines, line{i + 1, text})
		}
	}
	return lines, err
}
