// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/restart"
)

// chaos is a late runtime whose calls fail at random. If created is true, State shows new
// instances as created for three seconds. If lies is true, a start may return an error although
// the container runs.
type chaos struct {
	*late
	random              *rand.Rand
	errs, created, lies bool
	seen                map[string]bool // as started
}

func (c *chaos) fails() error {
	if c.errs && c.random.Intn(4) == 0 {
		return errors.New("boom")
	}
	return nil
}

func (c *chaos) State(ctx context.Context) (State, error) {
	s, err := c.late.State(ctx)
	if c.created {
		s.Instances = maps.Clone(s.Instances)
		for name, i := range s.Instances {
			if age := c.now.Sub(i.StartedAt); i.State != restart.ContainerStateRunning || age < 0 || age >= 3*time.Second {
				c.seen[i.ID] = true
			} else if !c.seen[i.ID] { // The clock may be back.
				i.State = restart.ContainerStateCreated
				s.Instances[name] = i
			}
		}
	}
	return s, errors.Join(err, c.fails())
}

func (c *chaos) CreateSandbox(ctx context.Context) error {
	if err := c.fails(); err != nil {
		return err
	}
	return c.late.CreateSandbox(ctx)
}

func (c *chaos) Start(ctx context.Context, spec *v1.Container, restarts int) (string, error) {
	if c.newest[spec.Name].State == restart.ContainerStateRunning {
		c.t.Fatalf("%s starts twice", spec.Name)
	}
	if err := c.fails(); err != nil {
		return "", err
	}
	id, err := c.script.Start(ctx, spec, restarts)
	if c.lies && c.delay == 0 && c.random.Intn(3) == 0 {
		return "", errors.New("timed out")
	}
	return id, err
}

func (c *chaos) Stop(ctx context.Context, id string, grace time.Duration) error {
	if err := c.fails(); err != nil {
		return err
	}
	for _, i := range c.newest {
		if i.ID == id && i.State == restart.ContainerStateRunning {
			return c.script.Stop(ctx, id, grace)
		}
	}
	return nil
}

func (c *chaos) Remove(context.Context) error { return c.fails() }

// Whatever happens to a pod, no container starts twice, and its status is in order.
func TestRandom(t *testing.T) {
	const spec = `
activeDeadlineSeconds: 100000
initContainers:
- {name: proxy, restartPolicy: Always, startupProbe: {exec: {command: [start]}}, readinessProbe: {exec: {command: [ready]}, successThreshold: 2}}
- {name: setup}
containers:
- {name: main, readinessProbe: {exec: {command: [ready]}}, livenessProbe: {exec: {command: [live]}, failureThreshold: 3},
   restartPolicy: Always, restartPolicyRules: [{action: RestartPod, exitCodes: {operator: In, values: [88]}}, {action: RestartAllContainers, exitCodes: {operator: In, values: [99]}}]}
- {name: other, lifecycle: {postStart: {sleep: {seconds: 2}}, preStop: {sleep: {seconds: 3}}}}`
	for seed := range int64(15) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewSource(seed))
			c := &chaos{late: newLate(t, newScript(0, 0), 0), random: random, created: seed%4 == 1, lies: seed%4 == 2, seen: map[string]bool{}}
			p := pod(t, spec)
			p.Spec.RestartPolicy = []v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever}[random.Intn(3)]
			var status v1.PodStatus
			back := false
			o := Options{
				Pod: p, Runtime: c, Gates: allGates, StatusFile: filepath.Join(t.TempDir(), "status.json"),
				Probe: func(_ context.Context, _ string, probe *v1.Probe) (string, bool, error) {
					return "", random.Intn(3) > 0 || probe.Exec.Command[0] == "start", c.fails()
				},
				Report: func(s Status) {
					next := s.PodStatus(p, status, c.now)
					require.Equal(t, next, s.PodStatus(p, next, c.now.Add(time.Second)))
					ready := conditionStatus(next.Conditions, v1.PodReady) == v1.ConditionTrue
					ended := next.Phase == v1.PodSucceeded || next.Phase == v1.PodFailed
					for i, list := range [][]v1.ContainerStatus{next.InitContainerStatuses, next.ContainerStatuses} {
						for j, s := range list {
							running := s.State.Running != nil
							require.True(t, running || !*s.Started)
							require.True(t, !s.Ready || running && *s.Started || s.Name == "setup" && s.State.Terminated.ExitCode == 0)
							require.True(t, !ready || s.Ready || s.Name == "setup")
							require.False(t, ended && (running || ready))
							if status.ContainerStatuses != nil {
								before := [][]v1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses}[i][j]
								require.GreaterOrEqual(t, s.RestartCount, before.RestartCount)
							}
						}
					}
					for _, condition := range next.Conditions {
						for _, before := range status.Conditions {
							if condition.Type == before.Type && condition.Status == before.Status && !isRestartCondition(condition) {
								require.Equal(t, before.LastTransitionTime, condition.LastTransitionTime)
							}
						}
					}
					status = next
				},
			}
			a, err := New(o)
			require.NoError(t, err)
			deleted, lost := false, false
			for range 60 {
				names := []string{"proxy", "setup", "main", "other"}
				name := names[random.Intn(4)]
				switch random.Intn(12) {
				case 0, 1, 2, 3:
					if i := c.newest[name]; i.State == restart.ContainerStateRunning {
						c.exit(name, []int32{0, 0, 1, 88, 99}[random.Intn(5)])
					}
				case 4:
					c.errs = !c.errs
				case 5:
					c.delay = time.Duration(random.Intn(20)) * time.Second
				case 6:
					if !deleted {
						a, err = New(o)
						require.NoError(t, err)
					}
				case 7:
					if !back && c.delay == 0 { // The states of late are sorted by time.
						c.now, back = c.now.Add(-time.Duration(random.Intn(3600))*time.Second), true
						c.states, c.times = nil, nil
					}
				case 8:
					if c.delay == 0 && !lost {
						lost, c.ready = true, false
						for _, name := range names {
							if c.newest[name].State == restart.ContainerStateRunning {
								c.exit(name, 137)
							}
						}
					}
				case 9:
					if random.Intn(5) == 0 {
						a.Delete()
						deleted = true
					}
				default:
				}
				if c.drive(a, time.Duration(random.Intn(30))*time.Second) {
					return
				}
			}
			c.errs = false
			a.Delete()
			require.True(t, c.drive(a, 10*time.Minute), "%+v", status)
			require.Contains(t, []v1.PodPhase{v1.PodSucceeded, v1.PodFailed}, status.Phase)
		})
	}
}
