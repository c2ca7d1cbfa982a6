// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/ptr"

	"github.com/kubelet-backoff/kubelet-backoff/agent"
	"github.com/kubelet-backoff/kubelet-backoff/agent/internal/podfiles"
	"github.com/kubelet-backoff/kubelet-backoff/agent/podspec"
	"github.com/kubelet-backoff/kubelet-backoff/agent/process/internal/shim"
	"github.com/kubelet-backoff/kubelet-backoff/restart"
)

const (
	podIP = "127.0.0.1"
	// exitCodeKilled is the exit code of a process killed by SIGKILL.
	exitCodeKilled = 137
)

// Runtime runs the containers of a pod as processes. It implements agent.Runtime. Remove
// must not be called concurrently with CreateSandbox or Start.
type Runtime struct {
	pod *v1.Pod
	dir string
	// sandbox is nil if the pod is not confined.
	sandbox *sandbox
	output  func(container string, line []byte)
	warn    func(container, message string)
	changed chan struct{}

	// mu guards what follows.
	mu    sync.Mutex
	ready bool
	// parent is nil if the pod is not confined.
	parent *parent
	// idle maps the containers of an unconfined pod that are not running to their
	// parents. The next instance reuses the parent, because the start of a parent takes
	// more CPU time than the rest of a start.
	idle      map[string]*parent
	instances map[string]*instance // The newest of each container.
	logs      map[string]*containerLog
}

// instance is an instance of a container.
type instance struct {
	parent  *parent // The instances of a confined pod share it.
	run     *run
	command shim.Command // Without Args.
	term    sync.Once
	// running is done when the first process has ended.
	running context.Context
	// done is closed when status has the exit.
	done chan struct{}

	// mu of the Runtime guards what follows.
	status agent.Instance
	// execs counts commands of Exec. No command is added after running is done.
	execs sync.WaitGroup
}

// New returns the runtime of a pod that Validate accepts. It creates empty volumes for the
// pod in the existing directory dir. If the pod is confined, CanConfine must have returned
// nil.
//
// Each instance of a container has a log file, of which at least the last 10 MiB are
// kept. The start of an instance removes all but the newest five. If an earlier Runtime
// left a log for an instance of the same number, the instance appends to it.
//
// output is called with the lines that the containers write. It may keep them. It is
// called concurrently for several containers, but not for one. A line of more than 16 KiB
// is split. warn is called with the first of several errors in a row when the log of a
// container cannot be written. output is still called with all lines.
func New(pod *v1.Pod, dir string, o Options, output func(container string, line []byte), warn func(container, message string)) (*Runtime, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	r := &Runtime{
		pod: pod, dir: dir, output: output, warn: warn, changed: make(chan struct{}, 1),
		instances: map[string]*instance{}, logs: map[string]*containerLog{}, idle: map[string]*parent{},
	}
	if !o.Unconfined {
		if r.sandbox, err = newSandbox(o); err != nil {
			return nil, err
		}
	}
	if err := removeAll(r.volumes()); err != nil {
		return nil, err
	}
	group := -1
	if sc := pod.Spec.SecurityContext; sc != nil && os.Geteuid() == 0 && o.Unconfined {
		group = int(ptr.Deref(sc.FSGroup, -1))
	}
	if err := podspec.MakeVolumes(pod, dir, group); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *Runtime) volumes() string { return filepath.Join(r.dir, podfiles.Volumes) }

// State implements agent.Runtime.
func (r *Runtime) State(context.Context) (agent.State, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := agent.State{SandboxReady: r.ready, IP: podIP, Instances: map[string]agent.Instance{}}
	for name, i := range r.instances {
		s.Instances[name] = i.status
	}
	return s, nil
}

// CreateSandbox implements agent.Runtime.
func (r *Runtime) CreateSandbox(context.Context) error {
	var p *parent
	if r.sandbox != nil {
		var err error
		if p, err = r.startParent(); err != nil {
			return err
		}
		go func() {
			<-p.ended
			r.mu.Lock()
			if r.parent == p {
				r.ready = false
			}
			r.mu.Unlock()
			r.notify()
		}()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.parent, r.ready = p, true
	return nil
}

// Dial implements agent.Dialer: it connects to an address in the network of the pod.
func (r *Runtime) Dial(ctx context.Context, address string, limit time.Duration) (net.Conn, error) {
	r.mu.Lock()
	p := r.parent
	r.mu.Unlock()
	if p == nil {
		return (&net.Dialer{Timeout: limit}).DialContext(ctx, "tcp", address)
	}
	return p.dial(ctx, address, limit)
}

// Changed implements agent.Runtime.
func (r *Runtime) Changed() <-chan struct{} { return r.changed }

// Start implements agent.Runtime.
func (r *Runtime) Start(_ context.Context, c *v1.Container, restarts int) (string, error) {
	r.mu.Lock()
	ready, parent, before := r.ready, r.parent, r.instances[c.Name]
	log := r.logs[c.Name]
	if log == nil {
		log = &containerLog{
			dir:    filepath.Join(r.dir, podfiles.Logs, c.Name),
			output: func(line []byte) { r.output(c.Name, line) },
			warn:   func(message string) { r.warn(c.Name, message) },
		}
		r.logs[c.Name] = log
	}
	running := before != nil && before.status.State != restart.ContainerStateExited
	r.mu.Unlock()
	switch {
	case !ready:
		return "", errors.New("the pod has no sandbox")
	case running:
		return "", fmt.Errorf("container %s is already running", c.Name)
	}

	env, err := podspec.Environment(r.pod, c, podIP)
	if err != nil {
		return "", err
	}
	command, err := r.command(c, env)
	if err != nil {
		return "", err
	}
	i := &instance{
		parent:  parent,
		command: command,
		done:    make(chan struct{}),
		status: agent.Instance{
			ContainerStatus: restart.ContainerStatus{ID: string(uuid.NewUUID()), State: restart.ContainerStateRunning, RestartCount: restarts},
		},
	}
	first := i.command
	first.Args = podspec.Command(c, env)
	if parent == nil {
		if i.parent, err = r.unconfinedParent(c.Name); err != nil {
			return "", err
		}
	}

	streams, err := log.streams()
	if err != nil {
		r.abandon(i)
		return "", err
	}
	log.begin(restarts)
	i.run, err = i.parent.start(first, nil, streams[0].writer, streams[1].writer)
	end := func() {
		for _, s := range streams {
			s.drain()
		}
		log.end()
	}
	if err != nil {
		end()
		r.abandon(i)
		return "", err
	}
	for _, s := range streams {
		s.writer.Close() // The container has its own copy.
	}
	i.status.StartedAt = i.run.startedAt
	var ended context.CancelFunc
	i.running, ended = context.WithCancel(context.Background())

	r.mu.Lock()
	r.instances[c.Name] = i
	r.mu.Unlock()
	go r.wait(c.Name, i, ended, end)
	if i.run.err != "" {
		<-i.done
	}
	return i.status.ID, nil
}

// unconfinedParent returns the parent of the container's last instance, or a new one.
func (r *Runtime) unconfinedParent(container string) (*parent, error) {
	r.mu.Lock()
	p := r.idle[container]
	delete(r.idle, container)
	r.mu.Unlock()
	if p != nil {
		select {
		case <-p.ended:
		default:
			return p, nil
		}
	}
	return r.startParent()
}

// abandon ends the parent of an instance that did not start, unless the pod shares it.
func (r *Runtime) abandon(i *instance) {
	if r.sandbox == nil {
		i.parent.end()
		<-i.parent.ended
	}
}

// wait sets the exit status of an instance after all its processes have ended and all
// output has been read.
func (r *Runtime) wait(container string, i *instance, ended context.CancelFunc, end func()) {
	<-i.run.done // All descendants have ended too.
	r.mu.Lock()
	ended()
	r.mu.Unlock()
	i.execs.Wait()
	end()

	r.mu.Lock()
	s := &i.status
	s.State = restart.ContainerStateExited
	s.ExitCode, s.FinishedAt = i.run.exitCode, i.run.at
	if !i.run.known {
		// The end of the parent kills all its descendants.
		s.ExitCode, s.Message = exitCodeKilled, errParent.Error()
	}
	message := i.run.err
	if message == "" && i.run.exitCode == shim.NotExecuted {
		message = r.logs[container].last()
	}
	if message != "" {
		s.ExitCode, s.Reason, s.Message = agent.ExitCodeStartError, agent.ReasonStartError, message
	}
	if r.sandbox == nil {
		r.idle[container] = i.parent
	}
	r.mu.Unlock()
	close(i.done)
	r.notify()
}

func (r *Runtime) notify() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// Stop implements agent.Runtime. It waits for the end of the instance. If ctx is done
// first, it returns the cause.
func (r *Runtime) Stop(ctx context.Context, id string, grace time.Duration) error {
	r.mu.Lock()
	i := r.find(id)
	r.mu.Unlock()
	if i == nil {
		return nil
	}
	if grace > 0 {
		i.term.Do(func() { i.parent.signal(i.run, unix.SIGTERM) })
		defer time.AfterFunc(grace, i.kill).Stop()
	} else {
		i.kill()
	}
	return i.waitDone(ctx)
}

// kill ends all processes of an instance.
func (i *instance) kill() { i.parent.signal(i.run, unix.SIGKILL) }

// waitDone waits for the end of the instance.
func (i *instance) waitDone(ctx context.Context) error {
	select {
	case <-i.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// find returns the instance with an ID, or nil if its container has a newer one.
func (r *Runtime) find(id string) *instance {
	for _, i := range r.instances {
		if i.status.ID == id {
			return i
		}
	}
	return nil
}

// Exec implements agent.Runtime. It returns the first 10 KiB of the output.
func (r *Runtime) Exec(ctx context.Context, id string, args []string) ([]byte, int, error) {
	r.mu.Lock()
	i := r.find(id)
	if i == nil || i.running.Err() != nil {
		r.mu.Unlock()
		return nil, 0, errNotRunning
	}
	i.execs.Add(1)
	r.mu.Unlock()
	defer i.execs.Done()

	var output []byte
	s, err := newStream(func(r io.Reader) {
		output, _ = io.ReadAll(io.LimitReader(r, podfiles.MaxExecOutput))
		io.Copy(io.Discard, r)
	})
	if err != nil {
		return nil, 0, err
	}
	defer s.drain()
	command := i.command
	command.Args = args
	run, err := i.parent.start(command, i.run, s.writer, s.writer)
	if err != nil {
		return nil, 0, err
	}
	inTime := context.AfterFunc(ctx, func() { i.parent.signal(run, unix.SIGKILL) })
	<-run.done
	s.drain()
	if run.exitCode == exitCodeKilled || run.exitCode == shim.NotExecuted {
		// When a container ends, its commands are killed just before running is done.
		select {
		case <-i.running.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	switch inContainer := i.running.Err() == nil; {
	case !inTime():
		return output, 0, context.Cause(ctx)
	case !inContainer:
		return output, 0, errNotRunning
	case run.err != "":
		return nil, 0, errors.New(run.err)
	case run.exitCode == shim.NotExecuted:
		return nil, 0, errors.New(strings.TrimSpace(string(output)))
	}
	return output, int(run.exitCode), nil
}

var errNotRunning = errors.New("the container is not running")
