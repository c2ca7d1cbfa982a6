// SPDX-License-Identifier: Apache-2.0

package memcri

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The exit codes of containers that a signal ended.
const (
	terminated = 128 + 15
	killed     = 128 + 9
)

// The labels by which the kubelet names containers.
const (
	labelPod       = "io.kubernetes.pod.name"
	labelUID       = "io.kubernetes.pod.uid"
	labelContainer = "io.kubernetes.container.name"
)

type container struct {
	id, name                         string
	sandbox                          *sandbox
	config                           *runtimeapi.ContainerConfig
	life                             Life
	state                            runtimeapi.ContainerState
	createdAt, startedAt, finishedAt time.Time
	code                             int32
	// asked is when the kubelet asked for it. told is when it first read that it had exited,
	// and toldBefore that the last one that had started before had.
	asked, told, toldBefore time.Time
	// end is the timer for the exit by itself. done is closed at the exit.
	end  *time.Timer
	done chan struct{}
}

// CreateContainer creates a container in a sandbox.
func (r *Runtime) CreateContainer(ctx context.Context, req *runtimeapi.CreateContainerRequest) (*runtimeapi.CreateContainerResponse, error) {
	config, m, sm := req.GetConfig(), req.GetConfig().GetMetadata(), req.GetSandboxConfig().GetMetadata()
	key := sm.GetUid() + "/" + m.GetName()
	c := &container{
		id: newID(), name: fmt.Sprintf("%s_%s_%s_%s_%d", m.GetName(), sm.GetName(), sm.GetNamespace(), sm.GetUid(), m.GetAttempt()),
		config: config, state: runtimeapi.ContainerState_CONTAINER_CREATED, done: make(chan struct{}), asked: time.Now(),
	}
	r.mu.Lock()
	c.sandbox = r.sandboxes[req.GetPodSandboxId()]
	if before := r.newest[key]; before != nil {
		c.toldBefore = before.told
		if before.startedAt.IsZero() {
			c.toldBefore = before.toldBefore
		}
	}
	life, err := lifeOf(config.GetArgs(), r.instances[key])
	switch {
	case c.sandbox == nil:
		err = notFound("sandbox", req.GetPodSandboxId())
	case !c.sandbox.ready:
		err = status.Errorf(codes.FailedPrecondition, "sandbox %s is not ready", c.sandbox.id)
	case err != nil:
		err = status.Error(codes.InvalidArgument, err.Error())
	default:
		err = r.reserve(c.name)
	}
	r.mu.Unlock()
	if err != nil {
		return nil, err
	}
	err = r.work(ctx, r.options.Create)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		delete(r.names, c.name)
		return nil, err
	}
	r.instances[key]++
	c.life, c.createdAt = life, time.Now()
	r.newest[key] = c
	r.containers[c.id] = c
	r.publish(c, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT)
	return &runtimeapi.CreateContainerResponse{ContainerId: c.id}, nil
}

// StartContainer starts a container. When it returns, the container has started.
func (r *Runtime) StartContainer(ctx context.Context, req *runtimeapi.StartContainerRequest) (*runtimeapi.StartContainerResponse, error) {
	r.mu.Lock()
	c := r.containers[req.GetContainerId()]
	r.mu.Unlock()
	if c == nil {
		return nil, notFound("container", req.GetContainerId())
	}
	if err := r.work(ctx, r.options.Start); err != nil {
		return nil, err
	}
	if path := c.logPath(); path != "" {
		if err := os.WriteFile(path, nil, 0o640); err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.state != runtimeapi.ContainerState_CONTAINER_CREATED || !c.sandbox.ready {
		return nil, status.Errorf(codes.FailedPrecondition, "container %s is in state %v", c.id, c.state)
	}
	c.state, c.startedAt = runtimeapi.ContainerState_CONTAINER_RUNNING, time.Now()
	r.record(c, c.startedAt, Started)
	r.publish(c, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	if c.life.Exits && (c.life.Needs == "" || r.away[c.life.Needs]) {
		r.exitAfter(c, c.life.Sleep, c.life.Code)
	}
	return &runtimeapi.StartContainerResponse{}, nil
}

func (c *container) logPath() string {
	if c.config.GetLogPath() == "" || c.sandbox.config.GetLogDirectory() == "" {
		return ""
	}
	return filepath.Join(c.sandbox.config.GetLogDirectory(), c.config.GetLogPath())
}

// exitAfter makes a running container exit after a delay.
func (r *Runtime) exitAfter(c *container, d time.Duration, code int32) {
	c.end = time.AfterFunc(d, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.exit(c, code)
	})
}

// exit ends a container if it is running.
func (r *Runtime) exit(c *container, code int32) {
	if c.state != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return
	}
	if c.end != nil {
		c.end.Stop()
	}
	c.state, c.finishedAt, c.code = runtimeapi.ContainerState_CONTAINER_EXITED, time.Now(), code
	close(c.done)
	r.record(c, c.finishedAt, Exited)
	r.publish(c, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
}

// StopContainer ends a container after the time in its life, or at the timeout if that
// is earlier.
func (r *Runtime) StopContainer(ctx context.Context, req *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
	timeout := time.Duration(req.GetTimeout()) * time.Second
	r.mu.Lock()
	c := r.containers[req.GetContainerId()]
	running := c != nil && c.state == runtimeapi.ContainerState_CONTAINER_RUNNING
	r.mu.Unlock()
	if !running {
		return &runtimeapi.StopContainerResponse{}, nil
	}
	if err := r.work(ctx, r.options.Stop); err != nil {
		return nil, err
	}
	code, after := int32(terminated), c.life.Term
	if after >= timeout {
		code, after = killed, timeout
	}
	term := time.NewTimer(after)
	defer term.Stop()
	select {
	case <-term.C:
	case <-c.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.exit(c, code)
	return &runtimeapi.StopContainerResponse{}, nil
}

// RemoveContainer removes a container, and first kills it if it is running.
func (r *Runtime) RemoveContainer(_ context.Context, req *runtimeapi.RemoveContainerRequest) (*runtimeapi.RemoveContainerResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.containers[req.GetContainerId()]; c != nil {
		r.exit(c, killed)
		r.remove(c)
	}
	return &runtimeapi.RemoveContainerResponse{}, nil
}

func (r *Runtime) remove(c *container) {
	delete(r.containers, c.id)
	delete(r.names, c.name)
	r.publish(c, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
}

// ListContainers lists containers.
func (r *Runtime) ListContainers(_ context.Context, req *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	f := req.GetFilter()
	r.mu.Lock()
	defer r.mu.Unlock()
	all := &runtimeapi.ListContainersResponse{}
	for _, c := range r.containers {
		if f.GetId() != "" && f.GetId() != c.id ||
			f.GetPodSandboxId() != "" && f.GetPodSandboxId() != c.sandbox.id ||
			f.GetState() != nil && f.GetState().GetState() != c.state ||
			!matches(c.config.GetLabels(), f.GetLabelSelector()) {
			continue
		}
		all.Containers = append(all.Containers, &runtimeapi.Container{
			Id: c.id, PodSandboxId: c.sandbox.id, Metadata: c.config.GetMetadata(), Image: c.config.GetImage(),
			ImageRef: imageID(c.config.GetImage().GetImage()), ImageId: imageID(c.config.GetImage().GetImage()),
			State: c.state, CreatedAt: c.createdAt.UnixNano(), Labels: c.config.GetLabels(), Annotations: c.config.GetAnnotations(),
		})
	}
	return all, nil
}

// ContainerStatus describes a container.
func (r *Runtime) ContainerStatus(_ context.Context, req *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[req.GetContainerId()]
	if c == nil {
		return nil, notFound("container", req.GetContainerId())
	}
	if c.state == runtimeapi.ContainerState_CONTAINER_EXITED && c.told.IsZero() {
		c.told = time.Now()
	}
	return &runtimeapi.ContainerStatusResponse{Status: c.status()}, nil
}

func (c *container) status() *runtimeapi.ContainerStatus {
	image := imageID(c.config.GetImage().GetImage())
	s := &runtimeapi.ContainerStatus{
		Id: c.id, Metadata: c.config.GetMetadata(), State: c.state, CreatedAt: c.createdAt.UnixNano(),
		Image: &runtimeapi.ImageSpec{Image: c.config.GetImage().GetUserSpecifiedImage()}, ImageRef: image, ImageId: image,
		Labels: c.config.GetLabels(), Annotations: c.config.GetAnnotations(), Mounts: c.config.GetMounts(), LogPath: c.logPath(),
		Resources: &runtimeapi.ContainerResources{Linux: c.config.GetLinux().GetResources()},
	}
	if !c.startedAt.IsZero() {
		s.StartedAt = c.startedAt.UnixNano()
	}
	if c.state == runtimeapi.ContainerState_CONTAINER_EXITED {
		s.FinishedAt, s.ExitCode, s.Reason = c.finishedAt.UnixNano(), c.code, "Error"
		if c.code == 0 {
			s.Reason = "Completed"
		}
	}
	return s
}

// UpdateContainerResources does nothing: there are no resources.
func (r *Runtime) UpdateContainerResources(context.Context, *runtimeapi.UpdateContainerResourcesRequest) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	return &runtimeapi.UpdateContainerResourcesResponse{}, nil
}

// ReopenContainerLog does nothing: nobody writes to a log.
func (r *Runtime) ReopenContainerLog(context.Context, *runtimeapi.ReopenContainerLogRequest) (*runtimeapi.ReopenContainerLogResponse, error) {
	return &runtimeapi.ReopenContainerLogResponse{}, nil
}

// ContainerStats returns empty statistics, because containers use nothing.
func (r *Runtime) ContainerStats(_ context.Context, req *runtimeapi.ContainerStatsRequest) (*runtimeapi.ContainerStatsResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[req.GetContainerId()]
	if c == nil {
		return nil, notFound("container", req.GetContainerId())
	}
	return &runtimeapi.ContainerStatsResponse{Stats: c.stats()}, nil
}

// ListContainerStats returns the statistics of running containers.
func (r *Runtime) ListContainerStats(_ context.Context, req *runtimeapi.ListContainerStatsRequest) (*runtimeapi.ListContainerStatsResponse, error) {
	f := req.GetFilter()
	r.mu.Lock()
	defer r.mu.Unlock()
	all := &runtimeapi.ListContainerStatsResponse{}
	for _, c := range r.containers {
		if c.state != runtimeapi.ContainerState_CONTAINER_RUNNING ||
			f.GetId() != "" && f.GetId() != c.id ||
			f.GetPodSandboxId() != "" && f.GetPodSandboxId() != c.sandbox.id ||
			!matches(c.config.GetLabels(), f.GetLabelSelector()) {
			continue
		}
		all.Stats = append(all.Stats, c.stats())
	}
	return all, nil
}

func (c *container) stats() *runtimeapi.ContainerStats {
	return &runtimeapi.ContainerStats{
		Attributes: &runtimeapi.ContainerAttributes{
			Id: c.id, Metadata: c.config.GetMetadata(), Labels: c.config.GetLabels(), Annotations: c.config.GetAnnotations(),
		},
		Cpu: cpuUsage(), Memory: memoryUsage(),
	}
}

func cpuUsage() *runtimeapi.CpuUsage {
	return &runtimeapi.CpuUsage{Timestamp: time.Now().UnixNano(), UsageCoreNanoSeconds: &runtimeapi.UInt64Value{}, UsageNanoCores: &runtimeapi.UInt64Value{}}
}

func memoryUsage() *runtimeapi.MemoryUsage {
	return &runtimeapi.MemoryUsage{Timestamp: time.Now().UnixNano(), WorkingSetBytes: &runtimeapi.UInt64Value{}}
}

// GetContainerEvents sends the events of containers from now on.
func (r *Runtime) GetContainerEvents(_ *runtimeapi.GetEventsRequest, stream runtimeapi.RuntimeService_GetContainerEventsServer) error {
	events := make(chan *runtimeapi.ContainerEventResponse, 1000)
	r.mu.Lock()
	r.subscribers[events] = true
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		delete(r.subscribers, events)
		r.mu.Unlock()
	}()
	for {
		select {
		case e := <-events:
			if err := stream.Send(e); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return nil
		}
	}
}

// publish sends an event to the subscribers. A slow reader misses events, which the
// kubelet's relist makes up for.
func (r *Runtime) publish(c *container, kind runtimeapi.ContainerEventType) {
	if len(r.subscribers) == 0 {
		return
	}
	e := &runtimeapi.ContainerEventResponse{
		ContainerId: c.id, ContainerEventType: kind, CreatedAt: time.Now().UnixNano(), PodSandboxStatus: c.sandbox.status(),
	}
	for _, other := range r.containers {
		if other.sandbox == c.sandbox {
			e.ContainersStatuses = append(e.ContainersStatuses, other.status())
		}
	}
	for s := range r.subscribers {
		select {
		case s <- e:
		default:
		}
	}
}
