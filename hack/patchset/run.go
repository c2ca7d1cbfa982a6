// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// glob are the entries of a directory whose names match. The directory's own name may have anything in it.
func glob(dir, pattern string) []string {
	entries, _ := os.ReadDir(dir)
	var found []string
	for _, e := range entries {
		if ok, _ := path.Match(pattern, e.Name()); ok {
			found = append(found, filepath.Join(dir, e.Name()))
		}
	}
	return found
}

// need fails if a tool is missing, with how to get it.
func need(tools ...string) error {
	var missing, hints []string
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			missing = append(missing, tool)
			hint := tool + ": on Debian or Ubuntu: apt-get install " + tool
			if tool == "go" {
				hint = "go: install Go 1.26 or newer and put its bin directory on PATH"
			}
			hints = append(hints, hint)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fail("missing on PATH: "+strings.Join(missing, " "), hints...)
}

// scratch makes a directory below parent, and the function that removes it. What programs that were killed left there
// goes too; the name holds the process that owns it.
func scratch(parent string) (dir string, remove func(), err error) {
	if err := os.MkdirAll(parent, 0o777); err != nil {
		return "", nil, fail(fmt.Sprintf("cannot create %s: %v", parent, err))
	}
	for _, d := range glob(parent, ".scratch.*") {
		owner, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(d), ".scratch."), ".")
		pid, err := strconv.Atoi(owner)
		// The process of another user cannot be asked after: EPERM.
		if err == nil && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			removeAll(d)
		}
	}
	dir, err = os.MkdirTemp(parent, fmt.Sprintf(".scratch.%d.", os.Getpid()))
	if err != nil {
		return "", nil, fail(fmt.Sprintf("cannot create a scratch directory in %s: %v", parent, err))
	}
	return dir, func() { removeAll(dir) }, nil
}

// removeAll removes directories that are read-only, too.
func removeAll(dir string) {
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

// lock takes an exclusive lock on a file in the output directory, saying what for if it has to wait.
func (p *program) lock(name, what string) (unlock func(), err error) {
	if err := os.MkdirAll(p.output, 0o777); err != nil {
		return nil, fail(fmt.Sprintf("cannot create %s: %v", p.output, err))
	}
	f, err := os.OpenFile(filepath.Join(p.output, name), os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return nil, err
	}
	if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		p.say("Waiting for another %s in %s to end", what, p.output)
		for syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
			select {
			case <-p.ctx.Done():
				f.Close()
				return nil, context.Cause(p.ctx)
			case <-time.After(200 * time.Millisecond):
			}
		}
	}
	return func() { f.Close() }, nil
}

// alone runs what changes a tree when nothing else does.
func (p *program) alone(run func() error) error {
	unlock, err := p.lock(".tree.lock", "apply, reverse or refresh")
	if err != nil {
		return err
	}
	defer unlock()
	return run()
}

// setEnv is env with the variables, which replace those of the same name; "NAME" alone removes it.
func setEnv(env []string, variables ...string) []string {
	var out []string
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		keep := true
		for _, v := range variables {
			n, _, _ := strings.Cut(v, "=")
			keep = keep && n != name
		}
		if keep {
			out = append(out, kv)
		}
	}
	for _, v := range variables {
		if strings.Contains(v, "=") {
			out = append(out, v)
		}
	}
	return out
}

// goEnvForTree is for building a kubernetes tree: as its own go.work says (releases before 1.30 have none), whatever the
// user's Go settings are. Nothing is left empty: what `go env -w` wrote counts for empty variables.
//
//	-trimpath       without paths in the objects, trees in different directories share one build cache
//	CGO_ENABLED=0   the kubelet then runs on a node with any C library, and is the same with and without gcc here
func goEnvForTree(env []string, dir string) []string {
	work := "off"
	if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
		work = filepath.Join(dir, "go.work")
	}
	return setEnv(env, "GOFLAGS=-trimpath -buildvcs=false", "GO111MODULE=on", "CGO_ENABLED=0", "GOWORK="+work)
}

var packageLine = regexp.MustCompile(`(?m)^[A-Za-z0-9._/-]+$`)

// long runs a command and prints a line every 15 s. It returns what the command said, and how long it took.
func (p *program) long(label string, cmd *exec.Cmd) (string, time.Duration, error) {
	if err := context.Cause(p.ctx); err != nil {
		return "", 0, err
	}
	var mu sync.Mutex
	var out bytes.Buffer
	w := writerFunc(func(b []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return out.Write(b)
	})
	cmd.Stdout, cmd.Stderr = w, w
	// What a killed command leaves behind may hold its output open.
	cmd.WaitDelay = time.Second
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return "", 0, err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	tick := time.NewTicker(15 * time.Second)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			if cause := context.Cause(p.ctx); cause != nil {
				err = cause
			}
			return out.String(), time.Since(start), err
		case <-p.ctx.Done():
			killTree(cmd.Process.Pid)
			<-done
			return out.String(), time.Since(start), context.Cause(p.ctx)
		case <-tick.C:
			mu.Lock()
			n := len(packageLine.FindAll(out.Bytes(), -1))
			mu.Unlock()
			seconds := int(time.Since(start).Seconds())
			if n > 0 {
				p.note("%s: %d s, %d packages compiled", label, seconds, n)
			} else {
				p.note("%s: %d s", label, seconds)
			}
		}
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// killTree ends a process and everything below it, which a signal to this process alone does not reach.
func killTree(pid int) {
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		children, _ = exec.Command("pgrep", "-P", strconv.Itoa(pid)).Output()
	}
	for _, child := range strings.Fields(string(children)) {
		if n, err := strconv.Atoi(child); err == nil {
			killTree(n)
		}
	}
	_ = syscall.Kill(pid, syscall.SIGTERM)
}

var noiseLine = regexp.MustCompile(`^([a-z0-9][A-Za-z0-9._/-]*|go: downloading .*)$`)

// showErrors prints the end of what a build said, without the package names that `go build -v` prints.
func showErrors(w io.Writer, out string) {
	var lines []string
	for _, l := range strings.Split(strings.TrimRight(out, "\n"), "\n") {
		if !noiseLine.MatchString(l) {
			lines = append(lines, l)
		}
	}
	fmt.Fprintln(w, strings.Join(tail(lines, 60), "\n"))
}

func tail[T any](s []T, n int) []T { return s[max(0, len(s)-n):] }

func lastLines(text string, n int) string {
	return strings.Join(tail(strings.Split(strings.TrimRight(text, "\n"), "\n"), n), "\n")
}

// writeFile replaces a file at once: whoever is interrupted has the old one or the new one.
func writeFile(path string, data []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	tmp := filepath.Join(filepath.Dir(path), newPrefix+filepath.Base(path))
	_ = os.Remove(tmp)
	err := os.WriteFile(tmp, data, mode)
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		_ = os.Remove(tmp)
	}
	return err
}

// newPrefix is for files that are being written. Whoever is killed leaves one behind, until the file is written again.
const newPrefix = ".new."
