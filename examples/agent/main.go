// SPDX-License-Identifier: Apache-2.0

// Command agent is a node agent: a runtime, in which containers are processes of this machine, and a pod for it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/kubelet-backoff/kubelet-backoff/agent"
	"github.com/kubelet-backoff/kubelet-backoff/restart"
	v1 "k8s.io/api/core/v1"
)

// processes implements agent.Runtime.
type processes struct {
	newest, running sync.Map // of agent.Instance by the container's name, of *os.Process by the instance's ID
	changed         chan struct{}
}

func (p *processes) State(context.Context) (agent.State, error) {
	s := agent.State{SandboxReady: true, IP: "127.0.0.1", Instances: map[string]agent.Instance{}}
	p.newest.Range(func(name, i any) bool { s.Instances[name.(string)] = i.(agent.Instance); return true })
	return s, nil
}
func (p *processes) CreateSandbox(context.Context) error { return nil } // There is nothing to make.
func (p *processes) Remove(context.Context) error        { return nil }
func (p *processes) Changed() <-chan struct{}            { return p.changed }
func (p *processes) set(container string, i agent.Instance) {
	p.newest.Store(container, i)
	select {
	case p.changed <- struct{}{}:
	default: // The agent has yet to look at the change before.
	}
}
func (p *processes) Start(_ context.Context, c *v1.Container, restarts int) (string, error) {
	cmd := exec.Command(c.Command[0], append(c.Command[1:], c.Args...)...)
	if err := cmd.Start(); err != nil {
		return "", err
	}
	s := restart.ContainerStatus{ID: fmt.Sprint(c.Name, "#", restarts), State: restart.ContainerStateRunning, StartedAt: time.Now(), RestartCount: restarts}
	p.running.Store(s.ID, cmd.Process)
	p.set(c.Name, agent.Instance{ContainerStatus: s})
	go func() {
		cmd.Wait()
		s.State, s.ExitCode, s.FinishedAt = restart.ContainerStateExited, int32(cmd.ProcessState.ExitCode()), time.Now()
		p.set(c.Name, agent.Instance{ContainerStatus: s})
	}()
	return s.ID, nil
}
func (p *processes) Stop(_ context.Context, id string, grace time.Duration) error {
	process, _ := p.running.Load(id)
	time.AfterFunc(grace, func() { process.(*os.Process).Kill() })
	process.(*os.Process).Signal(syscall.SIGTERM)
	return nil // The agent sees in State when it has ended.
}
func (p *processes) Exec(context.Context, string, []string) ([]byte, int, error) {
	return nil, 0, syscall.ENOSYS // It is for exec probes and hooks.
}
func main() {
	main := v1.Container{Name: "main", Command: []string{"sh", "-c", "mkdir once && exit 3; rmdir once"}} // It fails the first time.
	pod := &v1.Pod{Spec: v1.PodSpec{RestartPolicy: v1.RestartPolicyOnFailure, Containers: []v1.Container{main}}}
	pod.Name, pod.Namespace, pod.UID = "worker", "default", "b36a0a9e"
	var status v1.PodStatus // An agent of a cluster would write it to the API.
	report := func(s agent.Status) {
		status = s.PodStatus(pod, status, time.Now(), "127.0.0.1")
		fmt.Printf("%s, ready %t, %d restarts\n", status.Phase, status.ContainerStatuses[0].Ready, status.ContainerStatuses[0].RestartCount)
	}
	a, err := agent.New(agent.Options{Pod: pod, Runtime: &processes{changed: make(chan struct{}, 1)}, Report: report})
	if err != nil {
		panic(err)
	}
	fmt.Println(a.Run(context.Background()))
}
