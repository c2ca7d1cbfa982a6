// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// shimName is the first argument of a shim, by which it knows what it is. It is
// no environment variable, because those would be the container's too.
const shimName = "crashloop-shim"

// The files of a shim that are not its container's.
const (
	controlFile = 3 + iota // a command, then an empty object for SIGTERM, and the end for SIGKILL
	reportFile             // a started, and an ended if the first has no Error
)

// command is what a shim runs.
type command struct {
	Args []string
	Env  []string
	Path string // to look for Args[0] in
	Dir  string // the shim's own if empty
}

type started struct {
	At time.Time
	// Error says why there is no process.
	Error string
}

type ended struct {
	At       time.Time
	ExitCode int32
}

// shim is an agent's side of a shim. Its methods may be called concurrently, but
// wait.
type shim struct {
	cmd     *exec.Cmd
	control *os.File
	reports *os.File
	decoder *json.Decoder
	started started
}

// startShim starts a shim and what it is to run. An error is for a shim without
// a report; that its command could not be executed is none. title shows in lists
// of processes.
func startShim(title string, c command, stdout, stderr *os.File) (_ *shim, err error) {
	controlReader, control, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer controlReader.Close()
	reports, reportWriter, err := os.Pipe()
	if err != nil {
		control.Close()
		return nil, err
	}
	defer reportWriter.Close()

	s := &shim{control: control, reports: reports, decoder: json.NewDecoder(reports)}
	s.cmd = &exec.Cmd{
		Path: "/proc/self/exe", // What it names may have been replaced since.
		Args: []string{shimName, title},
		// A shim waits nearly always. It must not see the container's environment,
		// of which the Go runtime and the dynamic linker would take some for theirs.
		Env:         []string{"GOMAXPROCS=1"},
		Stdout:      stdout,
		Stderr:      stderr,
		ExtraFiles:  []*os.File{controlReader, reportWriter},
		SysProcAttr: &unix.SysProcAttr{Setsid: true},
	}
	if err := s.cmd.Start(); err != nil {
		control.Close()
		reports.Close()
		return nil, err
	}
	reportWriter.Close() // The reports are to end with the shim.
	err = json.NewEncoder(control).Encode(c)
	if err == nil {
		err = s.decoder.Decode(&s.started)
	}
	if err != nil {
		s.kill()
		waitErr := s.cmd.Wait()
		reports.Close()
		return nil, fmt.Errorf("the container's parent process ended early: %w", errors.Join(err, waitErr))
	}
	return s, nil
}

// terminate sends SIGTERM to the first process.
func (s *shim) terminate() { fmt.Fprintln(s.control, "{}") }

// kill ends everything at once. It does not wait.
func (s *shim) kill() { s.control.Close() }

// wait returns when all processes have ended. It calls atExit before, when the
// first has, and returns false if it is not known how that ended.
func (s *shim) wait(atExit func()) (ended, bool) {
	var e ended
	err := errors.New(s.started.Error)
	if s.started.Error == "" {
		err = s.decoder.Decode(&e)
	}
	atExit()
	s.cmd.Wait() // How the shim itself ended does not matter.
	s.kill()
	s.reports.Close()
	return e, err == nil
}

// Shim acts as a container's parent and does not return if the process was
// started as that. It is to be called first in main, and in TestMain of tests in
// which New is called.
func Shim() {
	if os.Args[0] == shimName {
		// The parent-death signal of the container comes when this thread ends. Two
		// of the settings below are of a thread as well.
		runtime.LockOSThread()
		runShim()
		unix.Exit(0) // os.Exit takes a second with the race detector.
	}
}

func runShim() {
	// Whoever started the agent may have left files open to it.
	unix.CloseRange(controlFile, ^uint(0), unix.CLOSE_RANGE_CLOEXEC)
	unix.CloseOnExec(controlFile) // For kernels before 5.11.
	unix.CloseOnExec(reportFile)
	// Of all signals only SIGKILL is to end a shim. Ignored ones would be ignored
	// in the container too.
	signal.Notify(make(chan os.Signal, 1))

	control := json.NewDecoder(os.NewFile(controlFile, "control"))
	reports := json.NewEncoder(os.NewFile(reportFile, "reports"))
	var c command
	if control.Decode(&c) != nil {
		return // The agent has ended, or there was none.
	}
	first, err := c.start()
	if err != nil {
		reports.Encode(started{Error: err.Error()})
		return
	}
	reports.Encode(started{At: time.Now()})

	go func() {
		for control.Decode(&struct{}{}) == nil {
			if heeds(first.Pid, unix.SIGTERM) {
				first.Signal(unix.SIGTERM)
			}
		}
		first.Kill()
	}()
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		if err == nil && pid == first.Pid {
			code := status.ExitStatus()
			if status.Signaled() {
				code = 128 + int(status.Signal())
			}
			reports.Encode(ended{At: time.Now(), ExitCode: int32(code)})
			break
		}
	}
	killChildren()
}

// heeds tells whether a signal has an effect on a process that is the first of
// its PID namespace, as that of a container is: it has a handler, or waits for
// it. Otherwise the kernel passes it over there.
func heeds(pid int, signal unix.Signal) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false // It has ended.
	}
	for line := range bytes.Lines(status) {
		name, mask, _ := bytes.Cut(bytes.TrimSpace(line), []byte(":\t"))
		if string(name) != "SigCgt" && string(name) != "SigBlk" {
			continue
		}
		if set, err := strconv.ParseUint(string(mask), 16, 64); err == nil && set&(1<<(signal-1)) != 0 {
			return true
		}
	}
	return false
}

// start starts the first process.
func (c command) start() (*os.Process, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("PR_SET_CHILD_SUBREAPER: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("PR_SET_NO_NEW_PRIVS: %w", err)
	}
	if len(c.Args) == 0 {
		return nil, errors.New("no command: that of the image is not known")
	}
	if c.Dir != "" {
		if err := os.Chdir(c.Dir); err != nil {
			return nil, fmt.Errorf("workingDir: %w", err)
		}
	}
	os.Setenv("PATH", c.Path)
	path, err := exec.LookPath(c.Args[0])
	if err != nil {
		return nil, err
	}
	return os.StartProcess(path, c.Args, &os.ProcAttr{
		Env:   c.Env,
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys:   &unix.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL},
	})
}

// killChildren ends what this process started, and what that started, and
// returns when nothing of it is left. As all of it becomes a child of this
// process when its parent ends, that is when there is no child.
func killChildren() {
	for {
		pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
		if err == unix.ECHILD {
			return
		}
		if err != nil || pid > 0 {
			continue
		}
		// There is a child that runs, and that is still there for killDescendants:
		// the wait ends.
		killDescendants(os.Getpid())
		unix.Wait4(-1, nil, 0, nil)
	}
}

// killDescendants sends SIGKILL to all processes below one, and to their process
// groups. A group gets it as one, so that none of it can get away by forking;
// whoever forks into a new one meanwhile is for the next call.
func killDescendants(root int) {
	proc, err := os.Open("/proc")
	if err != nil {
		return
	}
	defer proc.Close()
	names, _ := proc.Readdirnames(-1)
	children := map[int][]int{}
	group := map[int]int{}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		// The command may have any character, and nothing after it a parenthesis.
		stat, _ := os.ReadFile("/proc/" + name + "/stat")
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) < 3 {
			continue
		}
		parent, _ := strconv.Atoi(string(fields[1]))
		children[parent] = append(children[parent], pid)
		group[pid], _ = strconv.Atoi(string(fields[2]))
	}
	for todo := children[root]; len(todo) > 0; {
		pid := todo[0]
		todo = append(todo[1:], children[pid]...)
		if g := group[pid]; g > 1 && g != root {
			unix.Kill(-g, unix.SIGKILL)
		}
		unix.Kill(pid, unix.SIGKILL)
	}
}
