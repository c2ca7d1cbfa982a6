// SPDX-License-Identifier: Apache-2.0

// Package process runs long-running programs.
package process

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/console"
	"github.com/kubelet-backoff/kubelet-backoff/hack/patchset/internal/fileutil"
)

// Need returns an error if a tool is missing; the error says how to install it.
func Need(tools ...string) error {
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
	return console.Error("missing on PATH: "+strings.Join(missing, " "), hints...)
}

// GoEnvironment returns the environment for building a kubernetes tree: with its own go.work (releases before 1.30 have none)
// and without the user's Go settings. No variable is empty, because go would then use the value that `go env -w` wrote.
//
//	-trimpath       removes paths from the objects, so that trees in different directories share one build cache
//	CGO_ENABLED=0   makes a kubelet that runs with any C library, and is the same with and without gcc on this machine
func GoEnvironment(env []string, dir string) []string {
	work := filepath.Join(dir, "go.work")
	if !fileutil.Exists(work) {
		work = "off"
	}
	return slices.Concat(env, []string{"GOFLAGS=-trimpath -buildvcs=false", "GO111MODULE=on", "CGO_ENABLED=0", "GOWORK=" + work})
}

var packageLine = regexp.MustCompile(`(?m)^[A-Za-z0-9._/-]+$`)

// output collects the output of a command, and can be read while the command runs.
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

// Long runs a command and prints a line every 15 s. It returns the command's output, and how long it took.
func Long(ctx context.Context, l console.Log, label, dir string, env []string, name string, args ...string) (string, time.Duration, error) {
	var out output
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, append(slices.Clone(env), "PWD="+dir), &out, &out
	cmd.Cancel = func() error { killTree(cmd.Process.Pid); return nil }
	// Children of a killed command may keep its output open.
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
			return out.String(), time.Since(start), cmp.Or(context.Cause(ctx), err)
		case <-tick.C:
			if n := len(packageLine.FindAllString(out.String(), -1)); n > 0 {
				l.Note("%s: %d s, %d packages compiled", label, seconds(), n)
			} else {
				l.Note("%s: %d s", label, seconds())
			}
		}
	}
}

// killTree terminates a process and its descendants.
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
