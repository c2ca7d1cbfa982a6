// SPDX-License-Identifier: Apache-2.0

package memcri

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

type sandbox struct {
	id, name  string
	config    *runtimeapi.PodSandboxConfig
	handler   string
	ready     bool
	createdAt time.Time
	ip        string
}

func (s *sandbox) state() runtimeapi.PodSandboxState {
	if s.ready {
		return runtimeapi.PodSandboxState_SANDBOX_READY
	}
	return runtimeapi.PodSandboxState_SANDBOX_NOTREADY
}

func (s *sandbox) namespaces() *runtimeapi.NamespaceOption {
	return s.config.GetLinux().GetSecurityContext().GetNamespaceOptions()
}

// reserve reserves a name, which must be unique, as in containerd.
func (r *Runtime) reserve(name string) error {
	if r.names[name] {
		return status.Errorf(codes.AlreadyExists, "the name %q is reserved", name)
	}
	r.names[name] = true
	return nil
}

// RunPodSandbox creates a sandbox.
func (r *Runtime) RunPodSandbox(ctx context.Context, req *runtimeapi.RunPodSandboxRequest) (*runtimeapi.RunPodSandboxResponse, error) {
	m := req.GetConfig().GetMetadata()
	s := &sandbox{
		id: newID(), name: fmt.Sprintf("%s_%s_%s_%d", m.GetName(), m.GetNamespace(), m.GetUid(), m.GetAttempt()),
		config: req.GetConfig(), handler: req.GetRuntimeHandler(), ready: true,
	}
	r.mu.Lock()
	err := r.reserve(s.name)
	r.mu.Unlock()
	if err != nil {
		return nil, err
	}
	err = r.work(ctx, r.options.Sandbox)
	private := s.namespaces().GetNetwork() != runtimeapi.NamespaceMode_NODE
	if err == nil && private && r.network != nil {
		s.ip, err = r.network.add(ctx, s.id)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		delete(r.names, s.name)
		return nil, err
	}
	if private && r.network == nil {
		r.addresses++
		s.ip = fmt.Sprintf("10.89.%d.%d", r.addresses/250, r.addresses%250+2)
	}
	s.createdAt = time.Now()
	r.sandboxes[s.id] = s
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: s.id}, nil
}

// StopPodSandbox stops a sandbox and all its containers.
func (r *Runtime) StopPodSandbox(ctx context.Context, req *runtimeapi.StopPodSandboxRequest) (*runtimeapi.StopPodSandboxResponse, error) {
	r.mu.Lock()
	s := r.sandboxes[req.GetPodSandboxId()]
	ready := s != nil && s.ready
	r.mu.Unlock()
	if ready {
		if err := r.work(ctx, r.options.Stop); err != nil {
			return nil, err
		}
		if r.network != nil {
			if err := r.network.remove(ctx, s.id); err != nil {
				return nil, err
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopSandbox(s)
	return &runtimeapi.StopPodSandboxResponse{}, nil
}

func (r *Runtime) stopSandbox(s *sandbox) {
	if s == nil {
		return
	}
	s.ready = false
	for _, c := range r.containers {
		if c.sandbox == s {
			r.exit(c, killed)
		}
	}
}

// RemovePodSandbox removes a sandbox and its containers.
func (r *Runtime) RemovePodSandbox(_ context.Context, req *runtimeapi.RemovePodSandboxRequest) (*runtimeapi.RemovePodSandboxResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sandboxes[req.GetPodSandboxId()]
	if s == nil {
		return &runtimeapi.RemovePodSandboxResponse{}, nil
	}
	r.stopSandbox(s)
	for _, c := range r.containers {
		if c.sandbox == s {
			r.remove(c)
		}
	}
	delete(r.sandboxes, s.id)
	delete(r.names, s.name)
	return &runtimeapi.RemovePodSandboxResponse{}, nil
}

// PodSandboxStatus describes a sandbox.
func (r *Runtime) PodSandboxStatus(_ context.Context, req *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sandboxes[req.GetPodSandboxId()]
	if s == nil {
		return nil, notFound("sandbox", req.GetPodSandboxId())
	}
	return &runtimeapi.PodSandboxStatusResponse{Status: s.status()}, nil
}

func (s *sandbox) status() *runtimeapi.PodSandboxStatus {
	return &runtimeapi.PodSandboxStatus{
		Id: s.id, Metadata: s.config.GetMetadata(), State: s.state(), CreatedAt: s.createdAt.UnixNano(),
		Network: &runtimeapi.PodSandboxNetworkStatus{Ip: s.ip},
		Linux:   &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: s.namespaces()}},
		Labels:  s.config.GetLabels(), Annotations: s.config.GetAnnotations(), RuntimeHandler: s.handler,
	}
}

// ListPodSandbox lists sandboxes.
func (r *Runtime) ListPodSandbox(_ context.Context, req *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	f := req.GetFilter()
	r.mu.Lock()
	defer r.mu.Unlock()
	all := &runtimeapi.ListPodSandboxResponse{}
	for _, s := range r.sandboxes {
		if f.GetId() != "" && f.GetId() != s.id ||
			f.GetState() != nil && f.GetState().GetState() != s.state() ||
			!matches(s.config.GetLabels(), f.GetLabelSelector()) {
			continue
		}
		all.Items = append(all.Items, &runtimeapi.PodSandbox{
			Id: s.id, Metadata: s.config.GetMetadata(), State: s.state(), CreatedAt: s.createdAt.UnixNano(),
			Labels: s.config.GetLabels(), Annotations: s.config.GetAnnotations(), RuntimeHandler: s.handler,
		})
	}
	return all, nil
}

// PodSandboxStats returns empty statistics, because sandboxes use nothing.
func (r *Runtime) PodSandboxStats(_ context.Context, req *runtimeapi.PodSandboxStatsRequest) (*runtimeapi.PodSandboxStatsResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sandboxes[req.GetPodSandboxId()]
	if s == nil {
		return nil, notFound("sandbox", req.GetPodSandboxId())
	}
	return &runtimeapi.PodSandboxStatsResponse{Stats: s.stats()}, nil
}

// ListPodSandboxStats returns the statistics of sandboxes.
func (r *Runtime) ListPodSandboxStats(_ context.Context, req *runtimeapi.ListPodSandboxStatsRequest) (*runtimeapi.ListPodSandboxStatsResponse, error) {
	f := req.GetFilter()
	r.mu.Lock()
	defer r.mu.Unlock()
	all := &runtimeapi.ListPodSandboxStatsResponse{}
	for _, s := range r.sandboxes {
		if f.GetId() != "" && f.GetId() != s.id || !matches(s.config.GetLabels(), f.GetLabelSelector()) {
			continue
		}
		all.Stats = append(all.Stats, s.stats())
	}
	return all, nil
}

func (s *sandbox) stats() *runtimeapi.PodSandboxStats {
	return &runtimeapi.PodSandboxStats{
		Attributes: &runtimeapi.PodSandboxAttributes{
			Id: s.id, Metadata: s.config.GetMetadata(), Labels: s.config.GetLabels(), Annotations: s.config.GetAnnotations(),
		},
		Linux: &runtimeapi.LinuxPodSandboxStats{Cpu: cpuUsage(), Memory: memoryUsage()},
	}
}
