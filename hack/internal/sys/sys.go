// SPDX-License-Identifier: Apache-2.0

// Package sys has what the programs of this module need of the system: messages, files that are written whole, scratch
// directories, a lock, and commands that take minutes.
package sys

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Log prints what a command does.
type Log struct{ Out io.Writer }

// Say prints a step that starts or is done.
func (l Log) Say(format string, args ...any) { fmt.Fprintf(l.Out, "==> "+format+"\n", args...) }

// Note prints a detail of the step.
func (l Log) Note(format string, args ...any) { fmt.Fprintf(l.Out, "    "+format+"\n", args...) }

// Error returns an error with lines of details below its message. It leaves out empty details.
func Error(message string, details ...string) error {
	for _, d := range details {
		if d = strings.TrimRight(d, "\n"); d != "" {
			message += "\n" + d
		}
	}
	return errors.New(message)
}

// Problem returns an error with the problems, in order and each once, or nil if there are none.
func Problem(problems []string, message string) error {
	if len(problems) == 0 {
		return nil
	}
	slices.Sort(problems)
	return Error(message, slices.Compact(problems)...)
}

// Indent prefixes all lines except the first with by.
func Indent(text, by string) string { return strings.ReplaceAll(text, "\n", "\n"+by) }

// LastLines returns at most the last n lines of text.
func LastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// Exists reports whether there is anything at path, also a link to nothing.
func Exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// Scratch makes a directory below parent, and returns a function that removes it. It also removes the directories of killed
// programs: their names contain the process ID of the owner.
func Scratch(parent string) (dir string, remove func(), err error) {
	if err := os.MkdirAll(parent, 0o777); err != nil {
		return "", nil, err
	}
	entries, _ := os.ReadDir(parent)
	for _, e := range entries {
		name, ours := strings.CutPrefix(e.Name(), ".scratch.")
		owner, _, _ := strings.Cut(name, ".")
		// The process of another user gives EPERM.
		if pid, err := strconv.Atoi(owner); ours && err == nil && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			_ = os.RemoveAll(filepath.Join(parent, e.Name()))
		}
	}
	if dir, err = os.MkdirTemp(parent, fmt.Sprintf(".scratch.%d.", os.Getpid())); err != nil {
		return "", nil, err
	}
	return dir, func() { _ = os.RemoveAll(dir) }, nil
}

// Write replaces a file atomically: after an interruption there is the old file or the new one.
func Write(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	tmp := filepath.Join(filepath.Dir(path), ".new."+filepath.Base(path))
	defer os.Remove(tmp)
	if err := os.WriteFile(tmp, data, 0o666); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// Lock takes an exclusive lock on a file. If it has to wait, it says so once. The programs that are started before unlock is called
// inherit the lock, because the file is open without O_CLOEXEC. If this one is killed, they keep it until they end.
func (l Log) Lock(ctx context.Context, file, what string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
		return nil, err
	}
	fd, err := syscall.Open(file, syscall.O_CREAT|syscall.O_RDWR, 0o666)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for said := false; syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB) != nil; said = true {
		if !said {
			l.Say("Waiting for another %s in %s to end", what, filepath.Dir(file))
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(200 * time.Millisecond):
		}
	}
	// Closing the file is not enough while a program that was started has it.
	return func() { _ = syscall.Flock(fd, syscall.LOCK_UN) }, nil
}

// Lines returns the lines of a file that is edited by hand, without comments and empty lines. A missing file has none.
func Lines(file string) (lines []string, err error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			lines = append(lines, line)
		}
	}
	return lines, err
}

// GoEnvironment returns the environment for building a kubernetes tree: with its own go.work and without the user's Go settings. No
// variable is empty, because go would then use the value that `go env -w` wrote.
//
//	-trimpath       removes paths from the objects, so that trees in different directories share one build cache
//	CGO_ENABLED=0   makes a kubelet that runs with any C library, and is the same with and without gcc on this machine
func GoEnvironment(dir string) []string {
	return append(os.Environ(), "GOFLAGS=-trimpath -buildvcs=false", "GO111MODULE=on", "CGO_ENABLED=0", "GOWORK="+filepath.Join(dir, "go.work"))
}

// Long runs a command, prints a line every 15 s, and returns what the command prints. When ctx is done, it ends the command and
// all that the command has started.
func (l Log) Long(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, append(env[:len(env):len(env)], "PWD="+dir), &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	// Children of a killed command may keep its output open.
	cmd.WaitDelay = time.Second
	start, done := time.Now(), make(chan error, 1)
	go func() { done <- cmd.Run() }()
	tick := time.NewTicker(15 * time.Second)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			return out.String(), cmp.Or(context.Cause(ctx), err)
		case <-tick.C:
			l.Note("%s %s: %d s", filepath.Base(name), args[0], int(time.Since(start).Seconds()))
		}
	}
}
