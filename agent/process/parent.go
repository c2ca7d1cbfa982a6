// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubelet-backoff/kubelet-backoff/agent/process/internal/shim"
)

// parent is the agent's side of a shim, which is the parent process of containers. Its
// methods may be called concurrently.
type parent struct {
	cmd     *exec.Cmd
	control *net.UnixConn
	cgroup  string
	// ended is closed when the shim and all its descendants have ended.
	ended chan struct{}

	// mu guards what follows.
	mu   sync.Mutex
	last int
	// running and dials are nil after the end of the shim. Each channel has a buffer.
	running map[int]*run
	dials   map[int]chan dialed
}

// dialed is the result of a Dial request.
type dialed struct {
	file *os.File
	err  error
}

// run is a command that a parent has started.
type run struct {
	id int
	// begun is closed when startedAt is set or, after a failed start, err. After a failed
	// start done is closed too.
	begun     chan struct{}
	startedAt time.Time
	err       string

	// done is closed at the end of the command, when the fields below are set.
	done     chan struct{}
	exitCode int32
	at       time.Time
	// known is false if the parent ended before the command.
	known bool
}

// startParent starts a parent and waits until it is ready. command is that of a sandbox
// with a parent in it, or nil for a parent without one. cgroup is the directory of its
// cgroup, which is removed at the end, or "".
func startParent(p shim.Parent, command []string, cgroup string) (*parent, error) {
	sockets, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	ours, theirs := os.NewFile(uintptr(sockets[0]), "control"), os.NewFile(uintptr(sockets[1]), "control")
	defer ours.Close()
	defer theirs.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		return nil, err
	}
	s := &parent{control: conn.(*net.UnixConn), ended: make(chan struct{}), cgroup: cgroup, running: map[int]*run{}, dials: map[int]chan dialed{}}
	var output strings.Builder
	s.cmd = &exec.Cmd{
		Path: "/proc/self/exe", // The file of os.Executable may have been replaced.
		Args: p.Args(),
		// One thread is enough. The agent's variables, such as GOGC, do not apply to the shim.
		Env:         []string{"GOMAXPROCS=1"},
		ExtraFiles:  []*os.File{theirs},
		SysProcAttr: &unix.SysProcAttr{Setsid: true},
	}
	if command != nil {
		s.cmd.Path, s.cmd.Args, s.cmd.Stderr = command[0], command, &output
	}
	if err := s.cmd.Start(); err != nil {
		s.control.Close()
		return nil, err
	}
	theirs.Close() // Otherwise reads would not end when the parent does.
	report, pidfd, _ := s.read()
	if report != shim.Ready || pidfd == nil {
		s.end()
		err := s.cmd.Wait()
		if text := strings.TrimSpace(output.String()); text != "" {
			return nil, fmt.Errorf("%s (%w)", text, err)
		}
		if report == "" {
			return nil, fmt.Errorf("%w: %w", errParent, err)
		}
		return nil, errors.New(report)
	}
	go s.receive(pidfd)
	if command != nil {
		go func() { // If bwrap is killed, the parent in it does not end by itself.
			s.cmd.Process.Wait()
			s.end()
		}()
	}
	return s, nil
}

// end ends the parent and all its descendants. It does not wait for them.
func (s *parent) end() { s.control.Close() }

// read reads a report, and the file that comes with it or nil.
func (s *parent) read() (report string, file *os.File, err error) {
	buffer, rights := make([]byte, 1<<12), make([]byte, unix.CmsgSpace(4))
	n, r, _, _, err := s.control.ReadMsgUnix(buffer, rights)
	if err != nil {
		return "", nil, err
	}
	if messages, err := unix.ParseSocketControlMessage(rights[:r]); err == nil && len(messages) == 1 {
		if fds, err := unix.ParseUnixRights(&messages[0]); err == nil && len(fds) == 1 {
			file = os.NewFile(uintptr(fds[0]), "connection")
		}
	}
	return string(buffer[:n]), file, err
}

// receive handles the reports of the parent until it ends.
func (s *parent) receive(pidfd *os.File) {
	for {
		report, file, err := s.read()
		if err != nil || report == "" {
			break
		}
		var id, code int
		var at int64
		var text string
		if _, err := fmt.Sscanf(report, shim.Started, &id, &at); err == nil {
			s.update(id, func(r *run) {
				r.startedAt = time.Unix(0, at)
				close(r.begun)
			})
		} else if _, err := fmt.Sscanf(report, shim.Failed, &id, &text); err == nil {
			s.update(id, func(r *run) {
				r.err = text
				close(r.begun)
			})
		} else if _, err := fmt.Sscanf(report, shim.Exit, &id, &code, &at); err == nil {
			s.update(id, func(r *run) {
				delete(s.running, id)
				r.exitCode, r.at, r.known = int32(code), time.Unix(0, at), true
				close(r.done)
			})
		} else if _, err := fmt.Sscanf(report, shim.Dialed, &id); err == nil {
			s.dialed(id, dialed{file: file})
		} else if _, err := fmt.Sscanf(report, shim.NotDialed, &id, &text); err == nil {
			s.dialed(id, dialed{err: errors.New(text)})
		}
	}
	s.end()
	// When PID 1 has ended, so have all processes of the pod. The kernel closes the socket
	// before that.
	poll := []unix.PollFd{{Fd: int32(pidfd.Fd()), Events: unix.POLLIN}}
	for _, err := unix.Poll(poll, -1); err == unix.EINTR; _, err = unix.Poll(poll, -1) {
	}
	pidfd.Close()
	s.cmd.Wait() // The result does not matter.
	os.Remove(s.cgroup)
	s.mu.Lock()
	for _, r := range s.running {
		if r.at = time.Now(); r.err == "" && r.startedAt.IsZero() {
			close(r.begun)
		}
		close(r.done)
	}
	for _, d := range s.dials {
		d <- dialed{err: errParent}
	}
	s.running, s.dials = nil, nil
	s.mu.Unlock()
	close(s.ended)
}

func (s *parent) update(id int, f func(*run)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.running[id]; r != nil {
		f(r)
	}
}

var errParent = errors.New("the container's parent process ended early")

// start starts a command: the first command of a container or, if target is not nil, a
// command in the container of target. If the command cannot be executed, start returns no
// error and sets run.err.
func (s *parent) start(c shim.Command, target *run, stdout, stderr *os.File) (*run, error) {
	command, writer, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer writer.Close()
	s.mu.Lock()
	if s.running == nil {
		s.mu.Unlock()
		command.Close()
		return nil, errParent
	}
	s.last++
	r := &run{id: s.last, begun: make(chan struct{}), done: make(chan struct{})}
	s.running[r.id] = r
	s.mu.Unlock()
	in := 0
	if target != nil {
		in = target.id
	}
	// After an error here the parent ends, and receive closes begun.
	rights := unix.UnixRights(int(stdout.Fd()), int(stderr.Fd()), int(command.Fd()))
	s.control.WriteMsgUnix(fmt.Appendf(nil, shim.Start, r.id, in), rights, nil)
	command.Close()
	json.NewEncoder(writer).Encode(c)
	<-r.begun
	if r.err == "" && r.startedAt.IsZero() {
		return nil, errParent
	}
	if r.err != "" {
		<-r.done
	}
	return r, nil
}

// signal sends a signal to the process of a run.
func (s *parent) signal(r *run, signal unix.Signal) {
	fmt.Fprintf(s.control, shim.Signal, r.id, int(signal))
}

// dial connects to an address in the network of the pod.
func (s *parent) dial(ctx context.Context, address string, limit time.Duration) (net.Conn, error) {
	result := make(chan dialed, 1)
	s.mu.Lock()
	if s.dials == nil {
		s.mu.Unlock()
		return nil, errParent
	}
	s.last++
	id := s.last
	s.dials[id] = result
	s.mu.Unlock()
	fmt.Fprintf(s.control, shim.Dial, id, int64(limit), address)
	select {
	case d := <-result:
		if d.err != nil {
			return nil, d.err
		}
		defer d.file.Close()
		return net.FileConn(d.file)
	case <-ctx.Done():
		go func() {
			if d := <-result; d.file != nil {
				d.file.Close()
			}
		}()
		return nil, context.Cause(ctx)
	}
}

func (s *parent) dialed(id int, d dialed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if result := s.dials[id]; result != nil {
		result <- d
		delete(s.dials, id)
	}
}
