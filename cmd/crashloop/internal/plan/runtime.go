// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/agent"
	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

// exitCodeTerminated is the exit code of a process killed by SIGTERM.
const exitCodeTerminated = 128 + 15

// scripted is an agent.Runtime in virtual time. Scripts decide when its containers exit. Everything
// else takes no time.
type scripted struct {
	now       time.Time
	random    *rand.Rand
	lives     map[string]Lives
	recovers  map[string]time.Time
	instances map[string]agent.Instance
	// lost maps containers whose instances are unknown to their restart count.
	lost map[string]int
	// exits maps containers to the next exit of their running instances.
	exits map[string]exit
	// starts counts the starts of each container in the plan.
	starts  map[string]int
	ready   bool
	started func(container string, restarts int)
	exited  func(container string, code int32, ran time.Duration)
}

// exit is a future exit.
type exit struct {
	at   time.Time
	code int32
}

func (s *scripted) State(context.Context) (agent.State, error) {
	return agent.State{SandboxReady: s.ready, IP: "127.0.0.1", Instances: s.instances}, nil
}

func (s *scripted) CreateSandbox(context.Context) error {
	s.ready = true
	return nil
}

func (s *scripted) Start(_ context.Context, c *v1.Container, restarts int) (string, error) {
	if lost, ok := s.lost[c.Name]; ok && restarts == 0 {
		restarts = lost + 1
	}
	id := fmt.Sprintf("%s#%d", c.Name, restarts)
	s.instances[c.Name] = agent.Instance{
		Status:   restartpod.Status{ID: id, State: restartpod.StateRunning, StartedAt: s.now},
		Restarts: restarts,
	}
	life := s.lives[c.Name].Of(s.starts[c.Name])
	s.starts[c.Name]++
	if at, ok := s.recovers[c.Name]; ok && !s.now.Before(at) {
		life = Life{Runs: true}
	}
	s.started(c.Name, restarts)
	s.script(c.Name, life, s.now)
	return id, nil
}

// script applies a life to the running instance of a container, which started at startedAt.
func (s *scripted) script(container string, l Life, startedAt time.Time) {
	if !l.Runs {
		s.exits[container] = exit{startedAt.Add(l.Draw(s.random)), l.Code}
	}
}

func (s *scripted) Stop(_ context.Context, id string, _ time.Duration) error {
	for name, i := range s.instances {
		if i.ID == id {
			s.end(name, exitCodeTerminated)
		}
	}
	return nil
}

// Exec is for hooks, which succeed at once.
func (s *scripted) Exec(context.Context, string, []string) ([]byte, int, error) { return nil, 0, nil }

func (s *scripted) Remove(context.Context) error { return nil }

func (s *scripted) Changed() <-chan struct{} { return nil }

// end ends the instance of a container if it is running.
func (s *scripted) end(name string, code int32) {
	i := s.instances[name]
	if i.State != restartpod.StateRunning {
		return
	}
	i.State, i.ExitCode, i.FinishedAt = restartpod.StateExited, code, s.now
	s.instances[name] = i
	delete(s.exits, name)
	s.exited(name, code, s.now.Sub(i.StartedAt))
}

// next returns the time of the next exit, or zero.
func (s *scripted) next() (at time.Time) {
	for _, e := range s.exits {
		if at.IsZero() || e.at.Before(at) {
			at = e.at
		}
	}
	return at
}

// advance sets the time and ends the instances that exit by then, in the given order.
func (s *scripted) advance(to time.Time, order []restartpod.Container) {
	s.now = to
	for _, c := range order {
		if e, ok := s.exits[c.Name]; ok && !e.at.After(to) {
			s.end(c.Name, e.code)
		}
	}
}
