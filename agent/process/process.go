// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/kubelet-backoff/kubelet-backoff/agent"
	"github.com/kubelet-backoff/kubelet-backoff/agent/internal/podfiles"
	"github.com/kubelet-backoff/kubelet-backoff/agent/manifest"
	"github.com/kubelet-backoff/kubelet-backoff/agent/process/internal/shim"
	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

const (
	podIP = "127.0.0.1"
	// exitCodeKilled is that of a process which got SIGKILL.
	exitCodeKilled = 137
)

// Runtime runs the containers of a pod as processes. It implements
// agent.Runtime.
type Runtime struct {
	pod      *v1.Pod
	dir      string
	confined bool
	output   func(container string, line []byte)
	warn     func(container, message string)
	changed  chan struct{}

	// starting is held by Start, so that Remove can wait for it.
	starting sync.RWMutex

	// mu guards what follows.
	mu    sync.Mutex
	ready bool
	// parent is nil without confinement.
	parent    *parent
	instances map[string]*instance // the newest of each container
	logs      map[string]*containerLog
}

// instance is one of a container that was started.
type instance struct {
	parent  *parent // which is its own without confinement
	run     *run
	command shim.Command // without Args
	term    sync.Once
	// running ends with the first process.
	running context.Context
	// done is closed when status is that of an exit.
	done chan struct{}

	// mu of the Runtime guards what follows.
	status agent.Instance
	// execs is not added to after running has ended.
	execs sync.WaitGroup
}

// New returns the runtime of a pod. It makes the pod's emptyDir volumes in the
// folder dir, which has to exist, and removes what they had before. Confined is for
// a pod with namespaces of its own, where CanConfine returns nil; what Validate
// refuses is not to be in the pod. Of a container the logs of the newest five
// instances are kept, and of each the last 10 MiB at least. Those of an earlier run
// stay until instances of the same number take over.
//
// output gets what the containers write, of each container one line at a time
// but of several at once; a line is the callee's to keep. It is cut after 16 KiB,
// and goes on as the next line. warn gets a message when a container's log cannot
// be written, and again only after it could be; the container goes on, and output
// misses nothing.
func New(pod *v1.Pod, dir string, confined bool, output func(container string, line []byte), warn func(container, message string)) (*Runtime, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	r := &Runtime{
		pod: pod, dir: dir, confined: confined, output: output, warn: warn, changed: make(chan struct{}, 1),
		instances: map[string]*instance{}, logs: map[string]*containerLog{},
	}
	if err := removeAll(r.volumes()); err != nil {
		return nil, err
	}
	for _, name := range manifest.EmptyDirs(pod) {
		volume := filepath.Join(r.volumes(), name)
		if err := os.MkdirAll(volume, 0o755); err != nil {
			return nil, err
		}
		mode := os.FileMode(0o777) // With no umask, for users of all containers.
		if sc := pod.Spec.SecurityContext; sc != nil && sc.FSGroup != nil && os.Geteuid() == 0 {
			if err := os.Chown(volume, -1, int(*sc.FSGroup)); err != nil {
				return nil, err
			}
			mode |= os.ModeSetgid
		}
		if err := os.Chmod(volume, mode); err != nil {
			return nil, err
		}
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
	r.starting.RLock()
	defer r.starting.RUnlock()
	var p *parent
	if r.confined {
		points, err := r.mountPoints()
		if err != nil {
			return err
		}
		u := userOf(r.pod, &v1.Container{}) // An agent that is not root has one for all containers.
		if list := containers(&r.pod.Spec); len(list) > 0 {
			u = userOf(r.pod, list[0].Container)
		}
		if p, err = startParent(r.parentOf(true, points), u.UID, u.GID); err != nil {
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

// Changed implements agent.Runtime.
func (r *Runtime) Changed() <-chan struct{} { return r.changed }

// Start implements agent.Runtime.
func (r *Runtime) Start(ctx context.Context, c *v1.Container, restarts int) (string, error) {
	r.starting.RLock()
	defer r.starting.RUnlock()
	if err := ctx.Err(); err != nil {
		return "", err
	}
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
	running := before != nil && before.status.State != restartpod.StateExited
	r.mu.Unlock()
	switch {
	case !ready:
		return "", errors.New("there is no sandbox")
	case running:
		return "", fmt.Errorf("container %s runs already", c.Name)
	}

	env, err := manifest.Environment(r.pod, c, podIP)
	if err != nil {
		return "", err
	}
	i := &instance{
		parent:  parent,
		command: r.command(c, env),
		done:    make(chan struct{}),
		status: agent.Instance{
			Status:   restartpod.Status{ID: string(uuid.NewUUID()), State: restartpod.StateRunning},
			Restarts: restarts,
		},
	}
	first := i.command
	first.Args = manifest.Command(c, env)
	if parent == nil {
		if i.parent, err = startParent(r.parentOf(false, nil), 0, 0); err != nil {
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
		s.writer.Close() // The container has it.
	}
	i.status.StartedAt = i.run.startedAt
	var ended context.CancelFunc
	i.running, ended = context.WithCancel(context.Background())

	r.mu.Lock()
	r.instances[c.Name] = i
	r.mu.Unlock()
	go r.wait(i, ended, end)
	if i.run.err != "" {
		<-i.done
	}
	return i.status.ID, nil
}

// abandon ends the parent of an instance if it has one of its own.
func (r *Runtime) abandon(i *instance) {
	if !r.confined {
		i.parent.end()
		<-i.parent.ended
	}
}

// wait puts the end of an instance into its status when nothing of it is left
// and all its output has been read.
func (r *Runtime) wait(i *instance, ended context.CancelFunc, end func()) {
	<-i.run.done
	r.mu.Lock()
	ended()
	r.mu.Unlock()
	r.abandon(i)
	i.execs.Wait()
	end()

	r.mu.Lock()
	s := &i.status
	s.State = restartpod.StateExited
	s.ExitCode, s.FinishedAt = i.run.exitCode, i.run.at
	if !i.run.known {
		// With the parent everything gets SIGKILL.
		s.ExitCode, s.Message = exitCodeKilled, errParent.Error()
	}
	if i.run.err != "" {
		s.ExitCode, s.Reason, s.Message = agent.ExitCodeStartError, agent.ReasonStartError, i.run.err
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

// Stop implements agent.Runtime. Of several calls the one counts whose grace
// period ends first. When ctx is done it returns that error, and whether the
// instance ends is open.
func (r *Runtime) Stop(ctx context.Context, id string, grace time.Duration) error {
	r.mu.Lock()
	i := r.find(id)
	r.mu.Unlock()
	if i == nil {
		return nil
	}
	if grace > 0 {
		i.term.Do(func() { i.parent.signal(i.run, unix.SIGTERM) })
		if err := i.waitDone(ctx, time.After(grace)); err != errGrace {
			return err
		}
	}
	i.kill()
	return i.waitDone(ctx, nil)
}

// kill ends all processes of an instance.
func (i *instance) kill() { i.parent.signal(i.run, unix.SIGKILL) }

var errGrace = errors.New("the grace period has ended")

// waitDone returns nil when the instance has ended, and errGrace at a value from
// graceEnd.
func (i *instance) waitDone(ctx context.Context, graceEnd <-chan time.Time) error {
	select {
	case <-i.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-graceEnd:
		return errGrace
	}
}

// find returns the newest instance of a container, if it has that ID. An earlier
// one has ended.
func (r *Runtime) find(id string) *instance {
	for _, i := range r.instances {
		if i.status.ID == id {
			return i
		}
	}
	return nil
}

// Exec implements agent.Runtime. It returns the first 10 KiB of the output. What
// the command started ends with it.
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

	output := &boundedBuffer{max: podfiles.MaxExecOutput}
	s, err := newStream(output)
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
	if run.exitCode == exitCodeKilled {
		// With its container it ends a moment before that.
		select {
		case <-i.running.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	switch inContainer := i.running.Err() == nil; {
	case !inTime():
		return output.bytes, 0, context.Cause(ctx)
	case !inContainer:
		return output.bytes, 0, errNotRunning
	case run.err != "":
		return nil, 0, errors.New(run.err)
	}
	return output.bytes, int(run.exitCode), nil
}

var errNotRunning = errors.New("the container does not run")

// Remove implements agent.Runtime. State has the instances as they ended.
func (r *Runtime) Remove(ctx context.Context) error {
	r.mu.Lock()
	r.ready = false
	r.mu.Unlock()
	r.starting.Lock()
	defer r.starting.Unlock()
	r.mu.Lock()
	parent := r.parent
	instances := slices.Collect(maps.Values(r.instances))
	r.mu.Unlock()
	for _, i := range instances {
		i.kill()
	}
	for _, i := range instances {
		if err := i.waitDone(ctx, nil); err != nil {
			return err
		}
	}
	if parent != nil {
		parent.end()
		<-parent.ended
	}
	return removeAll(r.volumes())
}

// removeAll removes a folder, also if folders in it are not writable.
func removeAll(dir string) error {
	if os.RemoveAll(dir) == nil {
		return nil
	}
	filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			os.Chmod(path, 0o700)
		}
		return nil
	})
	return os.RemoveAll(dir)
}
