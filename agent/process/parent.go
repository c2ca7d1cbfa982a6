// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubelet-backoff/kubelet-backoff/agent/process/internal/shim"
)

// parent is the agent's side of a shim, which is the parent process of containers. Its
// methods may be called concurrently.
type parent struct {
	cmd     *exec.Cmd
	control *net.UnixConn
	// ended is closed when the shim and all its descendants have ended.
	ended chan struct{}

	// mu guards what follows.
	mu   sync.Mutex
	last int
	// running is nil after the end of the shim.
	running map[int]*run
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

// capabilities are those that a parent in a user namespace needs: for mounts, for commands
// in containers, and for dropping capabilities.
var capabilities = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SYS_CHROOT, unix.CAP_SYS_PTRACE, unix.CAP_SETPCAP}

// startParent starts a parent and waits until it is ready. If the agent is not root, a
// confined parent gets its own user namespace, with uid and gid as the only user and
// group.
func startParent(p shim.Parent, uid, gid int) (*parent, error) {
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
	s := &parent{control: conn.(*net.UnixConn), ended: make(chan struct{}), running: map[int]*run{}}
	s.cmd = &exec.Cmd{
		Path: "/proc/self/exe", // The file of os.Executable may have been replaced.
		Args: p.Args(),
		// One thread is enough. The agent's variables, such as GOGC, do not apply to the shim.
		Env:         []string{"GOMAXPROCS=1"},
		ExtraFiles:  []*os.File{theirs},
		SysProcAttr: &unix.SysProcAttr{Setsid: true},
	}
	if attr := s.cmd.SysProcAttr; p.Confined {
		attr.Cloneflags = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS
		if os.Geteuid() != 0 {
			attr.Cloneflags |= unix.CLONE_NEWUSER
			attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: os.Geteuid(), Size: 1}}
			attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: os.Getegid(), Size: 1}}
			attr.AmbientCaps = capabilities
		}
	}
	if err := s.cmd.Start(); err != nil {
		s.control.Close()
		return nil, err
	}
	theirs.Close() // Otherwise reads would not end when the parent does.
	if report, _ := s.read(); report != shim.Ready {
		s.end()
		if err := s.cmd.Wait(); report == "" {
			return nil, errors.Join(errParent, err)
		}
		return nil, errors.New(report)
	}
	go s.receive()
	return s, nil
}

// end ends the parent and all its descendants. It does not wait for them.
func (s *parent) end() { s.control.Close() }

func (s *parent) read() (string, error) {
	buffer := make([]byte, 1<<12)
	n, err := s.control.Read(buffer)
	return string(buffer[:n]), err
}

// receive handles the reports of the parent until it ends.
func (s *parent) receive() {
	for {
		report, err := s.read()
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
		}
	}
	s.end()
	s.cmd.Wait() // The result does not matter.
	s.mu.Lock()
	for _, r := range s.running {
		if r.at = time.Now(); r.err == "" && r.startedAt.IsZero() {
			close(r.begun)
		}
		close(r.done)
	}
	s.running = nil
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
