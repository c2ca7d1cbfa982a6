// SPDX-License-Identifier: Apache-2.0

//go:build linux

package shim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// The formats of the agent's requests and the parent's reports. Each is one packet.
const (
	// Start requests a command. Its arguments are the ID of the new command, and the ID
	// of the container in which it runs, or 0 for a new container. The packet carries
	// three files: stdout, stderr, and a pipe with the Command as JSON.
	Start = "start %d %d"
	// Signal requests a signal. Its arguments are the ID and the signal.
	Signal = "signal %d %d"
	// Dial requests a TCP connection from the network of the pod. Its arguments are the ID
	// of the request, the time limit in nanoseconds or 0, and the address.
	Dial = "dial %d %d %s"
	// Ready reports that the parent accepts requests. The packet carries its pidfd. A report
	// in none of these formats is an error, after which the parent ends.
	Ready = "ready"
	// Started reports a start. Its arguments are the ID and the time in nanoseconds.
	Started = "started %d %d"
	// Failed reports a failed start. Its arguments are the ID and the error.
	Failed = "failed %d %q"
	// Exit reports an exit. Its arguments are the ID, the exit code or NotExecuted, and the
	// time in nanoseconds. It follows each Started and each Failed.
	Exit = "exit %d %d %d"
	// Dialed reports a connection. The packet carries it. Its argument is the ID.
	Dialed = "dialed %d"
	// NotDialed reports that there is no connection. Its arguments are the ID and the error.
	NotDialed = "notdialed %d %q"
)

// NotExecuted is the exit code of a command that could not be executed after the start.
const NotExecuted = -1

// killed is the exit code of a process killed by SIGKILL.
const killed = 128 + int(unix.SIGKILL)

type parent struct {
	Parent
	null int

	mu     sync.Mutex
	ids    map[int]int  // The IDs of commands, by PID.
	pidfds map[int]int  // The pidfds of commands, by ID.
	boxes  map[int]*box // The commands in sandboxes, by ID.
	// first is the PID of the first process of the newest container, or 0 after its end.
	first int
}

// run returns when the agent has ended or has closed the socket. In a PID namespace all
// other processes end with this one.
func (p Parent) run() {
	unix.CloseRange(Control, ^uint(0), unix.CLOSE_RANGE_CLOEXEC) // Files that the agent has inherited.
	// Only SIGKILL may end a parent. Other signals are handled and not ignored, because
	// containers would inherit ignored signals.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals)
	s := &parent{Parent: p, ids: map[int]int{}, pidfds: map[int]int{}, boxes: map[int]*box{}}
	if err := s.prepare(); err != nil {
		s.report("%v", err)
		return
	}
	go func() {
		for range signals {
			s.reap()
		}
	}()
	self, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		s.report("pidfd_open: %v", err)
		return
	}
	unix.Sendmsg(Control, []byte(Ready), unix.UnixRights(self), nil, 0)
	buffer, rights := make([]byte, 500), make([]byte, unix.CmsgSpace(3*4))
	for {
		n, r, _, _, err := unix.Recvmsg(Control, buffer, rights, unix.MSG_CMSG_CLOEXEC)
		if err == unix.EINTR {
			continue
		}
		if n <= 0 || err != nil {
			break
		}
		var a, b int
		var text string
		request := string(buffer[:n])
		if _, err := fmt.Sscanf(request, Start, &a, &b); err == nil {
			s.start(a, b, rights[:r])
		} else if _, err := fmt.Sscanf(request, Signal, &a, &b); err == nil {
			s.signal(a, unix.Signal(b))
		} else if _, err := fmt.Sscanf(request, Dial, &a, &b, &text); err == nil {
			go s.dial(a, time.Duration(b), text)
		}
	}
	if p.Bwrap == "" {
		killChildren()
	}
}

func (s *parent) prepare() (err error) {
	if s.Bwrap != "" {
		err = s.prepareSandbox()
	} else if err = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		err = fmt.Errorf("PR_SET_CHILD_SUBREAPER: %w", err)
	}
	if err == nil {
		if s.null, err = unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
			err = fmt.Errorf("/dev/null: %w", err)
		}
	}
	return err
}

// start starts a container, or a command in the container of target.
func (s *parent) start(id, target int, rights []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pid, pidfd, err := s.launch(id, target, rights)
	if err != nil {
		s.report(Failed, id, err.Error())
		s.report(Exit, id, killed, time.Now().UnixNano()) // As if the command was killed.
		return
	}
	if target == 0 {
		s.first = pid
	}
	s.ids[pid], s.pidfds[id] = id, pidfd
	s.report(Started, id, time.Now().UnixNano())
}

func (s *parent) launch(id, target int, rights []byte) (pid, pidfd int, err error) {
	var files []int
	if messages, err := unix.ParseSocketControlMessage(rights); err == nil && len(messages) == 1 {
		files, _ = unix.ParseUnixRights(&messages[0])
	}
	if len(files) != 3 {
		return 0, 0, errors.New("the start request needs three files: stdout, stderr and the command")
	}
	defer unix.Close(files[0])
	defer unix.Close(files[1])
	command := os.NewFile(uintptr(files[2]), "command")
	defer command.Close()
	var c Command
	if err := json.NewDecoder(command).Decode(&c); err != nil {
		return 0, 0, fmt.Errorf("the command is incomplete: %w", err)
	}
	stdio := []uintptr{uintptr(s.null), uintptr(files[0]), uintptr(files[1])}
	if s.Bwrap == "" {
		return c.start(stdio)
	}
	container := s.boxes[target]
	if target != 0 && container == nil {
		return 0, 0, errors.New("the container has ended")
	}
	b, err := c.startBox(s.Bwrap, id, container, stdio)
	if err != nil {
		return 0, 0, err
	}
	s.boxes[id] = b
	return b.waited, b.pidfd, nil
}

// dial connects to an address and reports the result.
func (s *parent) dial(id int, limit time.Duration, address string) {
	connection, err := net.DialTimeout("tcp", address, limit)
	if err == nil {
		defer connection.Close()
		var f *os.File
		if f, err = connection.(*net.TCPConn).File(); err == nil {
			defer f.Close()
			err = unix.Sendmsg(Control, fmt.Appendf(nil, Dialed, id), unix.UnixRights(int(f.Fd())), nil, 0)
		}
	}
	if err != nil {
		s.report(NotDialed, id, err.Error())
	}
}

func (s *parent) signal(id int, signal unix.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if pidfd, ok := s.pidfds[id]; ok {
		unix.PidfdSendSignal(pidfd, signal, nil, 0)
	}
}

func (s *parent) report(format string, args ...any) {
	unix.Write(Control, fmt.Appendf(nil, format, args...))
}

// reap reports all exits. When the first process of a container has ended, it kills the
// others.
func (s *parent) reap() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil || pid == 0 {
			return
		}
		if _, ok := s.ids[pid]; !ok {
			continue
		}
		if s.Bwrap == "" && pid == s.first {
			killChildren()
			s.first = 0
			for other := range s.ids {
				if other != pid {
					s.exited(other, killed)
				}
			}
		}
		code := status.ExitStatus()
		if status.Signaled() {
			code = 128 + int(status.Signal())
		}
		s.exited(pid, code)
	}
}

// exited reports the exit of a command and forgets it.
func (s *parent) exited(pid, code int) {
	id := s.ids[pid]
	if b := s.boxes[id]; b != nil {
		if code != killed && !b.executed() { // It may be killed before.
			code = NotExecuted
		}
		b.close(id)
		delete(s.boxes, id)
	} else {
		unix.Close(s.pidfds[id])
	}
	delete(s.ids, pid)
	delete(s.pidfds, id)
	s.report(Exit, id, code, time.Now().UnixNano())
}

// killChildren kills all descendants of this process and waits until they have ended.
// Orphans become children of this process, so it is done when there is no child.
func killChildren() {
	for {
		pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
		if err == unix.ECHILD {
			return
		}
		if err != nil || pid > 0 {
			continue
		}
		// A child is running, and killDescendants kills it, so the wait ends.
		killDescendants(os.Getpid())
		unix.Wait4(-1, nil, 0, nil)
	}
}

// killDescendants sends SIGKILL to all descendants of a process and to their process
// groups. A process cannot escape the signal to its group by forking. A process that moves
// to a new group at the same time may be missed until the next call.
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
		// The name of the command is in parentheses and may contain any character. The
		// fields after it contain no parenthesis.
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
