// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/agent"
	"github.com/kubelet-backoff/kubelet-backoff/restart"
)

// crashing is a Runtime in virtual time: a container runs for two seconds and exits
// with 1.
type crashing struct {
	now     time.Time
	started int
	newest  map[string]agent.Instance
}

func (r *crashing) State(context.Context) (agent.State, error) {
	return agent.State{SandboxReady: true, Instances: r.newest}, nil
}

func (r *crashing) CreateSandbox(context.Context) error { return nil }

func (r *crashing) Start(_ context.Context, c *v1.Container, restarts int) (string, error) {
	r.started++
	s := restart.ContainerStatus{ID: fmt.Sprint(c.Name, restarts), State: restart.ContainerStateRunning, StartedAt: r.now, RestartCount: restarts}
	r.newest[c.Name] = agent.Instance{ContainerStatus: s}
	return s.ID, nil
}

func (r *crashing) Stop(context.Context, string, time.Duration) error { return nil }

func (r *crashing) Exec(context.Context, string, []string) ([]byte, int, error) { return nil, 0, nil }

func (r *crashing) Remove(context.Context) error { return nil }

func (r *crashing) Changed() <-chan struct{} { return nil }

// exits makes containers exit that have run for two seconds, and returns the time of
// the next exit.
func (r *crashing) exits() (next time.Time) {
	for name, i := range r.newest {
		at := i.StartedAt.Add(2 * time.Second)
		switch {
		case i.State != restart.ContainerStateRunning:
		case r.now.Before(at):
			next = at
		default:
			i.State, i.ExitCode, i.FinishedAt = restart.ContainerStateExited, 1, r.now
			r.newest[name] = i
		}
	}
	return next
}

// Run a day of a crashing pod in a few milliseconds.
func ExampleAgent_Step() {
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main"}}}}
	pod.Name, pod.Namespace, pod.UID = "worker", "default", "b36a0a9e"

	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r := &crashing{now: begin, newest: map[string]agent.Instance{}}
	a, err := agent.New(agent.Options{Pod: pod, Runtime: r})
	if err != nil {
		panic(err)
	}
	for r.now.Before(begin.Add(24 * time.Hour)) {
		started := r.started
		next, _ := a.Step(context.Background(), r.now)
		if r.started > started && r.started <= 6 {
			fmt.Println("starts after", r.now.Sub(begin))
		}
		if exit := r.exits(); !exit.IsZero() && (next.IsZero() || exit.Before(next)) {
			next = exit
		}
		r.now = next
		r.exits()
	}
	fmt.Println(r.started, "starts in a day")

	// Output:
	// starts after 0s
	// starts after 2s
	// starts after 14s
	// starts after 36s
	// starts after 1m18s
	// starts after 2m40s
	// 292 starts in a day
}
