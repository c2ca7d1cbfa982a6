// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// startLimit is how long a program may take to answer. It is long because an emulated
// machine is slow. A program that ends is noticed at once.
const startLimit = 10 * time.Minute

// supervisor starts the node's long-running programs. If one of them ends
// unexpectedly, it cancels the context with an error that has the end of its log.
type supervisor struct {
	ctx  context.Context
	fail context.CancelCauseFunc
	logs string
	// started are all programs, including those that have ended.
	started []*Process
}

// Process is one of the node's long-running programs.
type Process struct {
	name string
	cmd  *exec.Cmd
	done chan struct{}
	stop chan struct{}
}

// Context ends when a program ends unexpectedly, and with the harness.
func (s *supervisor) Context() context.Context { return s.ctx }

// Start runs a program with its output in NAME.log.
func (s *supervisor) Start(name, program string, args ...string) (*Process, error) {
	path := filepath.Join(s.logs, name+".log")
	log, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	defer log.Close()
	p := &Process{name: name, cmd: exec.Command(program, args...), done: make(chan struct{}), stop: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	s.started = append(s.started, p)
	go func() {
		err := p.cmd.Wait()
		close(p.done)
		select {
		case <-p.stop:
		default:
			if err == nil {
				err = errors.New("exit status 0")
			}
			s.fail(fmt.Errorf("%s ended unexpectedly: %w; the end of its log:\n%s", name, err, Tail(path)))
		}
	}()
	return p, nil
}

// PID returns the program's process ID in the node's PID namespace.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// End asks the program to stop, and kills it if it does not stop in time.
func (p *Process) End() {
	close(p.stop)
	// An error means that it has already ended.
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(5 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// Kill ends the program as a crash would, without notice.
func (p *Process) Kill() {
	close(p.stop)
	_ = p.cmd.Process.Kill()
	<-p.done
}

// Output runs a short program and returns its output. An error includes the output.
func Output(ctx context.Context, program string, args ...string) (string, error) {
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(out.String()))
	}
	return strings.TrimSpace(out.String()), nil
}

// Knows reports whether a program of kubernetes has a feature gate that is not
// locked.
func Knows(ctx context.Context, program, gate string) (bool, error) {
	help, _ := helps.LoadOrStore(program, sync.OnceValues(func() (string, error) { return Output(ctx, program, "--help") }))
	text, err := help.(func() (string, error))()
	return strings.Contains(text, gate+"="), err
}

// helps are functions that return what programs print with --help, which takes seconds in an
// emulated machine.
var helps sync.Map

// Await repeats a check until it succeeds or the limit is over. The error then
// includes the last error of the check.
func Await(ctx context.Context, what string, limit time.Duration, check func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check(limited)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-limited.Done():
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return fmt.Errorf("waited %v for %s: %w", limit, what, err)
		}
	}
}

// Tail returns the last lines of a log, indented.
func Tail(path string) string {
	const lines = 8
	data, err := os.ReadFile(path)
	if err != nil {
		return "  " + err.Error()
	}
	all := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	return "  " + strings.Join(all[max(0, len(all)-lines):], "\n  ")
}

// given has the ports that FreePort returned. The kernel may choose one again until its user listens.
var given sync.Map

// FreePort asks the kernel for a port on loopback that nothing uses. It returns no port twice.
func FreePort() (int, error) {
	for {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return 0, fmt.Errorf("no free port on 127.0.0.1: %w", err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		l.Close()
		if _, taken := given.LoadOrStore(port, true); !taken {
			return port, nil
		}
	}
}
