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
)

const (
	// requestTimeout is the default of the kubelet's runtimeRequestTimeout.
	requestTimeout = 2 * time.Minute
	// relistPeriod is the one of the kubelet's pod lifecycle event generator.
	relistPeriod = time.Second
	// instancesKept is how many instances of a container there are at most: the
	// newest and the one before, as with the kubelet's maximumDeadContainersPerContainer.
	instancesKept = 2
	// stopPeriod is how long at most the stop of one instance keeps others from
	// being begun. Containerd 2.2's shim, which is one for the whole pod, hangs for
	// good when many are at once.
	stopPeriod = 100 * time.Millisecond
)

// What New has in a pod's folder: LogsDir has a folder with logs for each container,
// and StatusFile is the file that is to be agent.Options.StatusFile, for a pod that
// outlives its agent.
const (
	LogsDir    = podfiles.Logs
	StatusFile = podfiles.Status
)

// Runtime runs one pod through a CRI endpoint. It implements agent.Runtime. An
// error of any method may be that the endpoint does not answer at present;
// nothing is lost by calling it again.
type Runtime struct {
	pod     *v1.Pod
	dir     string
	runtime criapi.RuntimeService
	images  criapi.ImageManagerService
	changed chan struct{}
	// stops has a value while the stop of an instance is being begun.
	stops chan struct{}
	logs  *followers
	// ctx ends with Close, and wg waits for what ends with it.
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu sync.Mutex
	// sandbox is the status of the newest sandbox, of which only the state can
	// change.
	sandbox *runtimeapi.PodSandboxStatus
	// statuses are those of the newest instances, by ID. One is as old as the
	// newest change of its state.
	statuses map[string]*runtimeapi.ContainerStatus
	// unstartable are the statuses of instances whose start failed, by ID, as
	// containerd has them. Other runtimes may leave these instances as created.
	unstartable map[string]*runtimeapi.ContainerStatus
}

// New connects to a CRI endpoint, such as unix:///run/containerd/containerd.sock,
// and adopts the pod if it is there. A pod of the same name that an agent
// made of another manifest, which is to say with another UID, is removed. dir is
// the pod's folder, an absolute path; New makes those of its volumes. Output gets
// the lines that containers write from now on. The caller is to call Close at the
// end: ctx is for New alone.
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
	if err := r.makeVolumes(); err != nil {
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

// removeOthers removes the sandboxes and volumes of a pod with this name but
// another UID.
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
			return fmt.Errorf("pod %s/%s is there already, with its files in %s: end that one first, or go on with it in the same folder",
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

// Close ends what New began and leaves the pod as it is. It returns when output
// is no longer called.
func (r *Runtime) Close() error {
	r.cancel()
	r.wg.Wait()
	r.logs.wg.Wait()
	ctx := context.WithoutCancel(r.ctx)
	return errors.Join(r.images.Close(ctx), r.runtime.Close(ctx))
}

// Changed implements agent.Runtime.
func (r *Runtime) Changed() <-chan struct{} { return r.changed }

// watch reports changes as the runtime tells of them, and once a second for
// what it may not tell: not every runtime can, and the stream ends with it.
func (r *Runtime) watch() {
	events := make(chan *runtimeapi.ContainerEventResponse)
	r.wg.Go(func() {
		defer close(events)
		for r.ctx.Err() == nil {
			// Why the stream ended does not matter: it is tried again.
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

// CreateSandbox implements agent.Runtime. The old sandboxes are stopped; Start
// removes them when nothing in them is kept any more.
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
		err = errors.New("the pod has no sandbox that is ready")
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
	if err := r.makeLogFolder(container.Name, restarts); err != nil {
		return "", &agent.WaitingError{Reason: "CreateContainerConfigError", Err: err}
	}
	id, err := r.runtime.CreateContainer(ctx, sandbox, config, sandboxConfig)
	if err != nil {
		return "", &agent.WaitingError{Reason: "CreateContainerError", Err: err}
	}
	if err := r.runtime.StartContainer(ctx, id); err != nil {
		// It may run nevertheless, if it was the answer that got lost.
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

// removeOld makes room for a new instance of a container: of those that were
// started only the newest stay, and one that was not may have its name.
// A sandbox goes when it is neither the newest nor has a container.
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

// ensureImage pulls a container's image where its policy says so, and returns
// what the runtime knows it by.
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

// Stop implements agent.Runtime. The grace period is rounded up to seconds. The
// signal may be another than SIGTERM if the image says so.
func (r *Runtime) Stop(ctx context.Context, id string, grace time.Duration) error {
	select {
	case r.stops <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	begun := sync.OnceFunc(func() { <-r.stops })
	defer begun()
	defer time.AfterFunc(stopPeriod, begun).Stop()
	if err := r.runtime.StopContainer(ctx, id, int64(seconds(grace)/time.Second)); err != nil && status.Code(err) != codes.NotFound {
		return err
	}
	return nil
}

// seconds rounds up, as CRI knows no fractions of them.
func seconds(d time.Duration) time.Duration {
	return (max(d, 0) + time.Second - 1).Truncate(time.Second)
}

// Exec implements agent.Runtime. The output is cut after 10 KiB.
func (r *Runtime) Exec(ctx context.Context, id string, command []string) ([]byte, int, error) {
	var timeout time.Duration // 0 is for none.
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

// Remove implements agent.Runtime. It waits until output has all lines.
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
