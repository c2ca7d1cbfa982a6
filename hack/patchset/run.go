// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
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
		return "", nil, fmt.Errorf("cannot create %s: %v", parent, err)
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
		return "", nil, fmt.Errorf("cannot create a scratch directory in %s: %v", parent, err)
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
		return nil, fmt.Errorf("cannot create %s: %v", p.output, err)
	}
	f, err := os.OpenFile(filepath.Join(p.output, name), os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return nil, err
	}
	for said := false; syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil; said = true {
		if !said {
			p.say("Waiting for another %s in %s to end", what, p.output)
		}
		select {
		case <-p.ctx.Done():
			f.Close()
			return nil, context.Cause(p.ctx)
		case <-time.After(200 * time.Millisecond):
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

// goEnvForTree is for building a kubernetes tree: as its own go.work says (releases before 1.30 have none), whatever the
// user's Go settings are. Nothing is left empty: what `go env -w` wrote counts for empty variables.
//
//	-trimpath       without paths in the objects, trees in different directories share one build cache
//	CGO_ENABLED=0   the kubelet then runs on a node with any C library, and is the same with and without gcc here
func goEnvForTree(env []string, dir string) []string {
	work := filepath.Join(dir, "go.work")
	if !exists(work) {
		work = "off"
	}
	return slices.Concat(env, []string{"GOFLAGS=-trimpath -buildvcs=false", "GO111MODULE=on", "CGO_ENABLED=0", "GOWORK=" + work})
}

var packageLine = regexp.MustCompile(`(?m)^[A-Za-z0-9._/-]+$`)

// output is what a command says, to be read while it runs.
type output struct {
	mu   sync.Mutex
	said bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.said.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.said.String()
}

// long runs a command and prints a line every 15 s. It returns what the command said, and how long it took.
func (p *program) long(label, dir string, env []string, name string, args ...string) (string, time.Duration, error) {
	var out output
	cmd := exec.CommandContext(p.ctx, name, args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, append(slices.Clone(env), "PWD="+dir), &out, &out
	cmd.Cancel = func() error { killTree(cmd.Process.Pid); return nil }
	// What a killed command leaves behind may hold its output open.
	cmd.WaitDelay = time.Second
	start := time.Now()
	seconds := func() int { return int(time.Since(start).Seconds()) }
	done := make(chan error, 1)
	go func() { done <- cmd.Run() }()
	tick := time.NewTicker(15 * time.Second)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			return out.String(), time.Since(start), cmp.Or(context.Cause(p.ctx), err)
		case <-tick.C:
			if n := len(packageLine.FindAllString(out.String(), -1)); n > 0 {
				p.note("%s: %d s, %d packages compiled", label, seconds(), n)
			} else {
				p.note("%s: %d s", label, seconds())
			}
		}
	}
}

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

var noiseLine = regexp.MustCompile(`(?m)^([a-z0-9][A-Za-z0-9._/-]*|go: downloading .*)\n`)

// errorLines is the end of what a build said, without the package names that `go build -v` prints.
func errorLines(out string) string { return lastLines(noiseLine.ReplaceAllString(out+"\n", ""), 60) }

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

func firstLines(text string, n int) string {
	if lines := strings.Split(text, "\n"); len(lines) > n {
		text = strings.Join(append(lines[:n], "..."), "\n")
	}
	return text
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// writeFile replaces a file at once: whoever is interrupted has the old one or the new one.
func writeFile(path string, data []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	tmp := filepath.Join(filepath.Dir(path), newPrefix+filepath.Base(path))
	_ = os.Remove(tmp)
	defer os.Remove(tmp)
	if err := os.WriteFile(tmp, data, mode); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// newPrefix is for files that are being written. Whoever is killed leaves one behind, until the file is written again.
const newPrefix = ".new."
