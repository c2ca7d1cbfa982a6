// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"cmp"
	"context"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubelet-backoff/kubelet-backoff/agent"
	"github.com/kubelet-backoff/kubelet-backoff/restart"
)

// State implements agent.Runtime. It leaves out instances that were never started,
// because Start replaces them. It includes the instances of lost sandboxes.
func (r *Runtime) State(ctx context.Context) (agent.State, error) {
	// An instance that starts after the list below is not in it, and has not ended.
	followed := r.logs.ids()
	sandboxes, err := r.listSandboxes(ctx)
	if err != nil {
		return agent.State{}, err
	}
	containers, err := r.listContainers(ctx)
	if err != nil {
		return agent.State{}, err
	}
	state := agent.State{Instances: map[string]agent.Instance{}}
	if _, state.IP, state.SandboxReady, err = r.readySandbox(ctx, sandboxes); err != nil {
		return agent.State{}, err
	}
	statuses := map[string]*runtimeapi.ContainerStatus{}
	running := map[string]bool{}
	for _, c := range containers {
		running[c.Id] = c.State == runtimeapi.ContainerState_CONTAINER_RUNNING || c.State == runtimeapi.ContainerState_CONTAINER_UNKNOWN
		if _, newer := state.Instances[c.Metadata.Name]; newer {
			continue
		}
		s := r.knownStatus(c)
		if s == nil && c.State == runtimeapi.ContainerState_CONTAINER_CREATED {
			continue
		}
		if s == nil {
			answer, err := r.runtime.ContainerStatus(ctx, c.Id, false)
			if err != nil {
				return agent.State{}, err
			}
			s = answer.Status
		}
		statuses[c.Id] = s
		state.Instances[c.Metadata.Name] = instance(s)
	}
	for _, id := range followed {
		if !running[id] {
			r.logs.end(id)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.statuses = statuses
	return state, nil
}

// knownStatus returns the cached status of an instance, or nil if its state has changed.
func (r *Runtime) knownStatus(c *runtimeapi.Container) *runtimeapi.ContainerStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.State == runtimeapi.ContainerState_CONTAINER_CREATED {
		return r.unstartable[c.Id]
	}
	if s := r.statuses[c.Id]; s.GetState() == c.State && c.State != runtimeapi.ContainerState_CONTAINER_UNKNOWN {
		return s
	}
	return nil
}

func instance(s *runtimeapi.ContainerStatus) agent.Instance {
	i := agent.Instance{
		ContainerStatus: restart.ContainerStatus{
			ID: s.Id, State: restart.ContainerStateUnknown,
			ExitCode: s.ExitCode, StartedAt: nanoseconds(s.StartedAt), FinishedAt: nanoseconds(s.FinishedAt), RestartCount: int(s.Metadata.Attempt),
		},
	}
	switch s.State {
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		i.State = restart.ContainerStateRunning
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		i.State = restart.ContainerStateExited
		// The agent derives Completed and Error from the exit code.
		if s.Reason != "Completed" && s.Reason != "Error" {
			i.Reason, i.Message = s.Reason, s.Message
		}
	}
	return i
}

// nanoseconds converts a CRI time. It returns the zero time for 0.
func nanoseconds(t int64) time.Time {
	if t <= 0 {
		return time.Time{}
	}
	return time.Unix(0, t)
}

// listSandboxes returns the pod's sandboxes, newest first.
func (r *Runtime) listSandboxes(ctx context.Context) ([]*runtimeapi.PodSandbox, error) {
	list, err := r.runtime.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{LabelSelector: r.selector()})
	slices.SortFunc(list, func(a, b *runtimeapi.PodSandbox) int { return cmp.Compare(b.Metadata.Attempt, a.Metadata.Attempt) })
	return list, err
}

// listContainers returns all instances of the pod's containers, newest first.
func (r *Runtime) listContainers(ctx context.Context) ([]*runtimeapi.Container, error) {
	list, err := r.runtime.ListContainers(ctx, &runtimeapi.ContainerFilter{LabelSelector: r.selector()})
	slices.SortFunc(list, func(a, b *runtimeapi.Container) int { return cmp.Compare(b.Metadata.Attempt, a.Metadata.Attempt) })
	return list, err
}

// each calls a method for each sandbox until an error.
func each(ctx context.Context, sandboxes []*runtimeapi.PodSandbox, call func(context.Context, string) error) error {
	for _, s := range sandboxes {
		if err := call(ctx, s.Id); err != nil {
			return err
		}
	}
	return nil
}

// readySandbox returns the ID and the IP of the newest sandbox, and reports whether it
// is usable according to PodSandboxChanged of pkg/kubelet/kuberuntime/util.
func (r *Runtime) readySandbox(ctx context.Context, sandboxes []*runtimeapi.PodSandbox) (id, ip string, ready bool, err error) {
	isReady := func(s *runtimeapi.PodSandbox) bool { return s.State == runtimeapi.PodSandboxState_SANDBOX_READY }
	if len(sandboxes) == 0 || !isReady(sandboxes[0]) || slices.ContainsFunc(sandboxes[1:], isReady) {
		return "", "", false, nil
	}
	id = sandboxes[0].Id
	r.mu.Lock()
	s := r.sandbox
	r.mu.Unlock()
	if s.GetId() != id {
		answer, err := r.runtime.PodSandboxStatus(ctx, id, false)
		if err != nil {
			return "", "", false, err
		}
		s = answer.Status
		r.mu.Lock()
		r.sandbox = s
		r.mu.Unlock()
	}
	if s.GetLinux().GetNamespaces().GetOptions().GetNetwork() != namespaces(r.pod).Network {
		return "", "", false, nil
	}
	if r.pod.Spec.HostNetwork {
		return id, "127.0.0.1", true, nil
	}
	ip = s.GetNetwork().GetIp()
	return id, ip, ip != "" || s.GetNetwork() == nil, nil
}
