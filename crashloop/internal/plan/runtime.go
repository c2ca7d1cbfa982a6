// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/agent"
	"github.com/kubelet-backoff/kubelet-backoff/restart"
)

// exitCodeKilled is the exit code of a process killed by SIGKILL.
const exitCodeKilled = 128 + 9

// exit is a future exit.
type exit struct {
	at   time.Time
	code int32
}

func (m *maker) State(context.Context) (agent.State, error) {
	return agent.State{SandboxReady: m.ready, IP: "127.0.0.1", Instances: m.instances}, nil
}

func (m *maker) CreateSandbox(context.Context) error {
	m.ready = true
	return nil
}

func (m *maker) Start(_ context.Context, c *v1.Container, restarts int) (string, error) {
	if lost, ok := m.lost[c.Name]; ok && restarts == 0 {
		restarts = lost + 1
	}
	id := fmt.Sprintf("%s#%d", c.Name, restarts)
	m.instances[c.Name] = agent.Instance{
		ContainerStatus: restart.ContainerStatus{ID: id, State: restart.ContainerStateRunning, StartedAt: m.now, RestartCount: restarts},
	}
	life := m.lives[c.Name].Of(m.starts[c.Name])
	m.starts[c.Name]++
	if after, ok := m.Recovers[c.Name]; ok && !m.now.Before(m.Begin.Add(after)) {
		life = Life{Runs: true}
	}
	for ; m.resets > 0; m.resets-- {
		m.add(Entry{Kind: Reset, Container: c.Name})
	}
	m.add(Entry{Kind: Start, Container: c.Name, Restarts: restarts, Message: m.conditions[c.Name]})
	delete(m.conditions, c.Name)
	m.script(c.Name, life, m.now)
	return id, nil
}

// script applies a life to the running instance of a container, which started at startedAt.
func (m *maker) script(container string, l Life, startedAt time.Time) {
	if !l.Runs {
		m.exits[container] = exit{startedAt.Add(l.Draw(m.random)), l.Code}
	}
}

// Stop kills the instance at the end of the grace period, unless its script ends before:
// the kernel ignores a SIGTERM that the first process of a container does not handle.
func (m *maker) Stop(_ context.Context, id string, grace time.Duration) error {
	kill := m.now.Add(grace)
	for name, i := range m.instances {
		e, ends := m.exits[name]
		if i.ID == id && i.State == restart.ContainerStateRunning && (!ends || kill.Before(e.at)) {
			m.exits[name] = exit{kill, exitCodeKilled}
		}
	}
	return nil
}

// Exec is for hooks, which succeed at once.
func (m *maker) Exec(context.Context, string, []string) ([]byte, int, error) { return nil, 0, nil }

func (m *maker) Remove(context.Context) error { return nil }

func (m *maker) Changed() <-chan struct{} { return nil }

// end ends the instance of a container if it is running.
func (m *maker) end(name string, code int32) {
	i := m.instances[name]
	if i.State != restart.ContainerStateRunning {
		return
	}
	i.State, i.ExitCode, i.FinishedAt = restart.ContainerStateExited, code, m.now
	m.instances[name] = i
	delete(m.exits, name)
	m.add(Entry{Kind: Exit, Container: name, ExitCode: &code, RanSeconds: m.now.Sub(i.StartedAt).Seconds()})
}
