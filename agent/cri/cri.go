// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	criapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	criclient "k8s.io/cri-client/pkg"
	utilexec "k8s.io/utils/exec"

	"github.com/kubelet-backoff/kubelet-backoff/agent"
	"github.com/kubelet-backoff/kubelet-backoff/agent/internal/podfiles"
	"github.com/kubelet-backoff/kubelet-backoff/agent/podspec"
)

const (
	// requestTimeout is the default of the kubelet's runtimeRequestTimeout.
	requestTimeout = 2 * time.Minute
	// relistPeriod is the relist period of the kubelet's pod lifecycle event generator.
	relistPeriod = time.Second
	// instancesKept limits the instances of a container to the newest and the one before
	// it, as the kubelet's maximumDeadContainersPerContainer.
	instancesKept = 2
	// stopPeriod is the longest time for which the stop of one instance delays the next
	// stop. The shim of containerd 2.2, one per pod, hangs forever if it gets many stops
	// at once.
	stopPeriod = 100 * time.Millisecond
	// slice is the path of the systemd unit of all pods, as a kubelet passes its own.
	slice = "/crashloop.slice"
)

// StatusFile is the file in the directory of a pod for agent.Options.StatusFile.
const StatusFile = podfiles.Status

// Runtime runs one pod through a CRI endpoint. It implements agent.Runtime. Every
// method may return an error because the endpoint does not respond. Then it may be called
// again.
type Runtime struct {
	pod     *v1.Pod
	dir     string
	runtime criapi.RuntimeService
	images  criapi.ImageManagerService
	// cgroupParent is of the pod's sandboxes. It is empty for the runtime's default.
	cgroupParent string
	changed      chan struct{}
	// stops is a semaphore: it has a value while a stop of an instance begins.
	stops chan struct{}
	logs  *followers
	// ctx is done after Close. wg waits for the goroutines that end then.
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu sync.Mutex
	// sandbox is the status of the newest sandbox. Only its state can change.
	sandbox *runtimeapi.PodSandboxStatus
	// statuses maps the ID of the newest instance of each container to its status, as of
	// the last change of its state.
	statuses map[string]*runtimeapi.ContainerStatus
	// unstartable maps the IDs of instances whose start failed to the status that
	// containerd would report. Other runtimes may leave such instances in the state
	// created.
	unstartable map[string]*runtimeapi.ContainerStatus
}

// New connects to a CRI endpoint such as unix:///run/containerd/containerd.sock and
// adopts the pod if it exists. It removes a pod of the same name with another UID,
// because it comes from another manifest. dir is the absolute path of the pod's
// directory, in which New creates the volumes. output is called with the lines that the
// containers write from now on. ctx is only for New. Call Close at the end.
func New(ctx context.Context, endpoint string, pod *v1.Pod, dir string, output func(container string, line []byte)) (r *Runtime, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("runtime endpoint %s: %w", endpoint, err)
		}
	}()
	runtime, err := criclient.NewRemoteRuntimeServiceBuilder().WithEndpoint(endpoint).WithConnectionTimeout(requestTimeout).Build(ctx)
	if err != nil {
		return nil, err
	}
	images, err := criclient.NewRemoteImageServiceBuilder().WithEndpoint(endpoint).WithConnectionTimeout(requestTimeout).Build(ctx)
	if err != nil {
		return nil, errors.Join(err, runtime.Close(ctx))
	}
	if r, err = newRuntime(ctx, runtime, images, pod, dir, output); err != nil {
		return nil, errors.Join(err, images.Close(ctx), runtime.Close(ctx))
	}
	return r, nil
}

func newRuntime(ctx context.Context, runtime criapi.RuntimeService, images criapi.ImageManagerService, pod *v1.Pod, dir string, output func(container string, line []byte)) (*Runtime, error) {
	r := &Runtime{
		pod: pod, dir: dir, runtime: runtime, images: images,
		changed: make(chan struct{}, 1), stops: make(chan struct{}, 1), unstartable: map[string]*runtimeapi.ContainerStatus{},
	}
	if err := r.removeOthers(ctx); err != nil {
		return nil, err
	}
	if err := r.findCgroupParent(ctx); err != nil {
		return nil, err
	}
	if err := podspec.MakeVolumes(pod, dir, -1); err != nil {
		return nil, err
	}
	now := time.Now()
	containers, err := r.listContainers(ctx)
	if err != nil {
		return nil, err
	}
	r.ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	r.logs = newFollowers(runtime, output)
	for _, c := range containers {
		if c.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
			r.logs.follow(r.ctx, c.Id, c.Metadata.Name, r.logFile(c.Metadata.Name, int(c.Metadata.Attempt)), now)
		}
	}
	r.wg.Go(r.watch)
	return r, nil
}

// removeOthers removes the sandboxes and volumes of pods with the same name and another
// UID.
func (r *Runtime) removeOthers(ctx context.Context) error {
	sandboxes, err := r.runtime.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{
		labelManagedBy: managedBy, labelPodName: r.pod.Name, labelPodNamespace: r.pod.Namespace,
	}})
	if err != nil {
		return err
	}
	for _, s := range sandboxes {
		dir := s.Annotations[annotationDir]
		if filepath.Dir(dir) != filepath.Dir(r.dir) {
			return fmt.Errorf("pod %s/%s exists already, with its files in %s: stop it first, or use the same directory",
				r.pod.Namespace, r.pod.Name, dir)
		}
		if s.Labels[labelPodUID] != string(r.pod.UID) {
			err := errors.Join(r.runtime.StopPodSandbox(ctx, s.Id), r.runtime.RemovePodSandbox(ctx, s.Id), os.RemoveAll(filepath.Join(dir, podfiles.Volumes)),
				os.RemoveAll(filepath.Join(dir, podfiles.Status)))
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// findCgroupParent sets cgroupParent. With the systemd cgroup driver containerd has no
// default. A runtime that cannot report its driver, such as containerd 1.7, gets none
// either.
func (r *Runtime) findCgroupParent(ctx context.Context) error {
	config, err := r.runtime.RuntimeConfig(ctx)
	if status.Code(err) == codes.Unimplemented {
		return nil
	}
	if err != nil {
		return err
	}
	// The zero value of a driver is systemd, so an empty response would be one with it.
	if config.Linux != nil && config.Linux.CgroupDriver == runtimeapi.CgroupDriver_SYSTEMD {
		r.cgroupParent = slice
	}
	return nil
}

// Close disconnects and leaves the pod as it is. After Close, output is not called.
func (r *Runtime) Close() error {
	r.cancel()
	r.wg.Wait()
	r.logs.wg.Wait()
	ctx := context.WithoutCancel(r.ctx)
	return errors.Join(r.images.Close(ctx), r.runtime.Close(ctx))
}

// Changed implements agent.Runtime.
func (r *Runtime) Changed() <-chan struct{} { return r.changed }

// watch signals a change for each event of the runtime. It also signals once per second,
// because not every runtime has events, and the stream of events may end.
func (r *Runtime) watch() {
	events := make(chan *runtimeapi.ContainerEventResponse)
	r.wg.Go(func() {
		defer close(events)
		for r.ctx.Err() == nil {
			// The error does not matter: the loop tries again.
			_ = r.runtime.GetContainerEvents(r.ctx, events, nil)
			select {
			case <-r.ctx.Done():
			case <-time.After(relistPeriod):
			}
		}
	})
	tick := time.NewTicker(relistPeriod)
	defer tick.Stop()
	for {
		select {
		case e, open := <-events:
			if !open {
				return
			}
			if uid := e.GetPodSandboxStatus().GetMetadata().GetUid(); uid != "" && uid != string(r.pod.UID) {
				continue
			}
		case <-tick.C:
		}
		select {
		case r.changed <- struct{}{}:
		default:
		}
	}
}

// CreateSandbox implements agent.Runtime. It stops old sandboxes. Start removes them when
// they have no instances.
func (r *Runtime) CreateSandbox(ctx context.Context) error {
	sandboxes, err := r.listSandboxes(ctx)
	if err != nil {
		return err
	}
	var attempt uint32
	if len(sandboxes) > 0 {
		attempt = sandboxes[0].Metadata.Attempt + 1
	}
	if err := each(ctx, sandboxes, r.runtime.StopPodSandbox); err != nil {
		return err
	}
	_, err = r.runtime.RunPodSandbox(ctx, r.sandboxConfig(attempt), "")
	return err
}

// Start implements agent.Runtime.
func (r *Runtime) Start(ctx context.Context, container *v1.Container, restarts int) (string, error) {
	sandboxes, err := r.listSandboxes(ctx)
	if err != nil {
		return "", err
	}
	sandbox, ip, ready, err := r.readySandbox(ctx, sandboxes)
	if err == nil && !ready {
		err = errors.New("the pod has no ready sandbox")
	}
	if err != nil {
		return "", err
	}
	containers, err := r.listContainers(ctx)
	if err != nil {
		return "", err
	}
	if err := r.removeOld(ctx, container.Name, sandboxes, containers); err != nil {
		return "", err
	}
	sandboxConfig := r.sandboxConfig(sandboxes[0].Metadata.Attempt)
	image, err := r.ensureImage(ctx, container, sandboxConfig)
	if err != nil {
		return "", err
	}
	config, err := r.containerConfig(container, restarts, image, ip)
	if err != nil {
		return "", &agent.WaitingError{Reason: "CreateContainerConfigError", Err: err}
	}
	if err := r.makeLogsDir(container.Name, restarts); err != nil {
		return "", &agent.WaitingError{Reason: "CreateContainerConfigError", Err: err}
	}
	id, err := r.runtime.CreateContainer(ctx, sandbox, config, sandboxConfig)
	if err != nil {
		return "", &agent.WaitingError{Reason: "CreateContainerError", Err: err}
	}
	if err := r.runtime.StartContainer(ctx, id); err != nil {
		// If only the response was lost, the container may be running. State prefers the
		// state that the runtime reports.
		r.mu.Lock()
		r.unstartable[id] = &runtimeapi.ContainerStatus{
			Id: id, Metadata: config.Metadata, State: runtimeapi.ContainerState_CONTAINER_EXITED, FinishedAt: time.Now().UnixNano(),
			ExitCode: agent.ExitCodeStartError, Reason: agent.ReasonStartError, Message: err.Error(),
		}
		r.mu.Unlock()
	}
	r.logs.follow(r.ctx, id, container.Name, r.logFile(container.Name, restarts), time.Time{})
	return id, nil
}

// removeOld makes room for a new instance of a container. It keeps only the newest
// instance that was started. It removes instances that were not started, because they may
// have the name of the new one. It removes sandboxes without containers, except the
// newest.
func (r *Runtime) removeOld(ctx context.Context, name string, sandboxes []*runtimeapi.PodSandbox, containers []*runtimeapi.Container) error {
	kept := 0
	used := map[string]bool{sandboxes[0].Id: true}
	for _, c := range containers {
		started := c.State != runtimeapi.ContainerState_CONTAINER_CREATED || r.knownStatus(c) != nil
		if c.Metadata.Name == name && started {
			kept++
		}
		if c.Metadata.Name != name || started && kept < instancesKept {
			used[c.PodSandboxId] = true
			continue
		}
		if err := r.runtime.RemoveContainer(ctx, c.Id); err != nil {
			return err
		}
		r.mu.Lock()
		delete(r.unstartable, c.Id)
		r.mu.Unlock()
	}
	unused := slices.DeleteFunc(slices.Clone(sandboxes), func(s *runtimeapi.PodSandbox) bool { return used[s.Id] })
	return each(ctx, unused, r.runtime.RemovePodSandbox)
}

// ensureImage pulls the image of a container if its pull policy requires it, and returns
// the runtime's reference to the image.
func (r *Runtime) ensureImage(ctx context.Context, c *v1.Container, sandbox *runtimeapi.PodSandboxConfig) (string, error) {
	image := &runtimeapi.ImageSpec{Image: c.Image}
	if c.ImagePullPolicy != v1.PullAlways {
		answer, err := r.images.ImageStatus(ctx, image, false)
		if err != nil {
			return "", &agent.WaitingError{Reason: "ImageInspectError", Err: err}
		}
		if answer.Image != nil {
			return answer.Image.Id, nil
		}
		if c.ImagePullPolicy == v1.PullNever {
			return "", &agent.WaitingError{Reason: "ErrImageNeverPull", Err: fmt.Errorf("container image %q is not present with pull policy of Never", c.Image)}
		}
	}
	ref, err := r.images.PullImage(ctx, image, nil, sandbox)
	if err != nil {
		return "", &agent.WaitingError{Reason: "ErrImagePull", Err: err}
	}
	return ref, nil
}

// Stop implements agent.Runtime. It rounds the grace period up to seconds. An image may
// define a stop signal other than SIGTERM.
func (r *Runtime) Stop(ctx context.Context, id string, grace time.Duration) error {
	select {
	case r.stops <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	begun := sync.OnceFunc(func() { <-r.stops })
	defer begun()
	defer time.AfterFunc(stopPeriod, begun).Stop()
	// CRI-O would change FinishedAt to the time of the stop. An exit from before it would count as
	// one that the agent caused.
	if s, err := r.runtime.ContainerStatus(ctx, id, false); err == nil && s.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
		return nil
	}
	if err := r.runtime.StopContainer(ctx, id, int64(seconds(grace)/time.Second)); err != nil && status.Code(err) != codes.NotFound {
		return err
	}
	return nil
}

// seconds rounds up, because CRI has no fractions of seconds.
func seconds(d time.Duration) time.Duration {
	return (max(d, 0) + time.Second - 1).Truncate(time.Second)
}

// Exec implements agent.Runtime. It returns the first 10 KiB of the output.
func (r *Runtime) Exec(ctx context.Context, id string, command []string) ([]byte, int, error) {
	var timeout time.Duration // 0 is no limit.
	if deadline, ok := ctx.Deadline(); ok {
		timeout = max(seconds(time.Until(deadline)), time.Second)
	}
	stdout, stderr, err := r.runtime.ExecSync(ctx, id, command, timeout)
	output := slices.Concat(stdout, stderr)
	output = output[:min(len(output), podfiles.MaxExecOutput)]
	var exit utilexec.CodeExitError
	if errors.As(err, &exit) {
		return output, exit.Code, nil
	}
	return output, 0, err
}

// Remove implements agent.Runtime. It waits until output was called with all lines.
func (r *Runtime) Remove(ctx context.Context) error {
	sandboxes, err := r.listSandboxes(ctx)
	if err != nil {
		return err
	}
	if err := each(ctx, sandboxes, r.runtime.StopPodSandbox); err != nil {
		return err
	}
	if err := r.logs.finish(ctx); err != nil {
		return err
	}
	if err := each(ctx, sandboxes, r.runtime.RemovePodSandbox); err != nil {
		return err
	}
	return os.RemoveAll(filepath.Join(r.dir, podfiles.Volumes))
}
