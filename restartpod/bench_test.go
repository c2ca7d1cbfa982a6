// SPDX-License-Identifier: Apache-2.0

package restartpod

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	backoff "github.com/kubelet-backoff/kubelet-backoff/backoff"
	"github.com/kubelet-backoff/kubelet-backoff/restart"
)

// benchmark is a step. Each iteration uses a copy of the machine.
type benchmark struct {
	name string
	m    Machine
	o    Observation
}

func (b *benchmark) step() Plan {
	m := b.m
	return m.Step(b.o)
}

// benchmarks returns the trigger, and a step for each state in which a machine
// may stay for long. The pod has two init containers, two sidecars and six
// regular containers.
func benchmarks(t testing.TB) []benchmark {
	spec := &v1.PodSpec{RestartPolicy: v1.RestartPolicyNever}
	own, sidecar := PolicyNever, PolicyAlways
	rules := func(*v1.Container) []Rule {
		return []Rule{{Action: ActionRestartPod, Operator: OperatorIn, Values: []int32{88}}}
	}
	for i := range 10 {
		c := v1.Container{Name: fmt.Sprintf("c%d", i), RestartPolicy: &own}
		switch {
		case i < 2:
			spec.InitContainers = append(spec.InitContainers, c)
		case i < 4:
			c.RestartPolicy = &sidecar
			spec.InitContainers = append(spec.InitContainers, c)
		default:
			spec.Containers = append(spec.Containers, c)
		}
	}
	// see returns the pod with all containers in their n-th instance. states are
	// the states of the last containers, from the last one back.
	see := func(n int, states ...restart.ContainerState) Observation {
		containers := Containers(spec, allGates, rules)
		for i := range containers {
			s := &restart.ContainerStatus{ID: fmt.Sprintf("c%d#%d", i, n), State: restart.ContainerStateRunning, Started: true, StartedAt: epoch, FinishedAt: epoch}
			if containers[i].Kind == KindInit {
				s.State = restart.ContainerStateExited
			}
			if back := len(containers) - 1 - i; back < len(states) {
				s.State = states[back]
			}
			containers[i].Status = s
		}
		return Observation{Now: epoch, Containers: containers, GracePeriod: 30 * time.Second}
	}
	triggered := func(n int) Observation {
		o := see(n, restart.ContainerStateExited)
		o.Containers[9].Status.ExitCode = 88
		return o
	}
	ended := func(n int) Observation {
		o := triggered(n)
		for i := range o.Containers {
			o.Containers[i].Status.State = restart.ContainerStateExited
		}
		return o
	}
	backingOff := []Observation{triggered(1), ended(1), see(2), triggered(2), ended(2)}
	// The second init container runs and the first has ended.
	startup := ended(1)
	startup.Containers[0].Status = &restart.ContainerStatus{ID: "c0#2", State: restart.ContainerStateExited}
	startup.Containers[1].Status = &restart.ContainerStatus{ID: "c1#2", State: restart.ContainerStateRunning, Started: true}
	tests := []struct {
		name string
		past []Observation
		o    Observation
		want Phase
	}{
		{"Running", nil, see(1), PhaseRunning},
		{"Trigger", nil, triggered(1), PhaseTerminatingForRestart},
		{"Terminating", []Observation{triggered(1)}, triggered(1), PhaseTerminatingForRestart},
		{"BackOffBegins", backingOff[:4], ended(2), PhaseTerminatingForRestart},
		{"BackOff", backingOff, ended(2), PhaseTerminatingForRestart},
		{"Startup", []Observation{triggered(1), ended(1)}, startup, PhaseStartup},
	}
	var all []benchmark
	for _, test := range tests {
		m := New(backoff.NewBackOff(10*time.Second, 300*time.Second), &v1.Pod{}, allGates)
		for _, o := range test.past {
			m.Step(o)
		}
		b := benchmark{test.name, *m, test.o}
		require.Equal(t, test.want, b.step().Phase, test.name)
		all = append(all, b)
	}
	return all
}

func BenchmarkStep(b *testing.B) {
	for _, step := range benchmarks(b) {
		b.Run(step.name, func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				step.step()
			}
		})
	}
}

// TestStepAllocations limits the allocations of a step, regardless of the number
// of containers. Two steps of each restart also allocate its texts and
// conditions.
func TestStepAllocations(t *testing.T) {
	if underRace {
		t.Skip("the race detector has allocations of its own")
	}
	for _, b := range benchmarks(t) {
		t.Run(b.name, func(t *testing.T) {
			limit := 4.0
			if b.step().Events != nil {
				limit = 8
			}
			assert.LessOrEqual(t, testing.AllocsPerRun(100, func() { b.step() }), limit)
		})
	}
}
