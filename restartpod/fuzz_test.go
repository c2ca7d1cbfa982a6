// SPDX-License-Identifier: Apache-2.0

package restartpod

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	backoff "github.com/kubelet-backoff/kubelet-backoff/backoff"
	"github.com/kubelet-backoff/kubelet-backoff/restart"
)

// FuzzStep steps a machine through observations that no runtime would make:
// kinds in any order, contradictory statuses, containers that come and go,
// missing or duplicate IDs, times that step back, and recoveries in between. The
// agent must be able to carry out every plan.
func FuzzStep(f *testing.F) {
	f.Add([]byte{})
	// An exit that triggers a restart, and then time.
	f.Add([]byte{0xff, 1, 2, 2, 4, 88, 1, 0, 0, 60, 0, 0, 60})
	f.Add([]byte("init, sidecar and container, each with a status"))
	f.Add([]byte("a pod that is deleted while it starts up, and a crash"))
	f.Add(make([]byte, 200))
	f.Add(bytes.Repeat([]byte{255}, 200))
	for seed := range byte(32) {
		data := make([]byte, 400)
		for i, at := 0, uint32(seed); i < len(data); i++ {
			at = at*1664525 + 1013904223
			data[i] = byte(at >> 24)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		in := input(data)
		gates := Gates{ContainerRestartRules: in.bool(), RestartPod: in.bool(), RestartAllContainers: in.bool()}
		b := backoff.NewBackOff(in.duration(), in.duration())
		b.DelayFirstRestart = in.bool()
		m := New(b, &v1.Pod{}, gates)
		now := epoch
		var containers []Container
		for len(in) > 0 {
			now = now.Add(in.duration())
			// Most observations resemble earlier ones.
			if len(containers) == 0 || in.n(16) == 0 {
				containers = in.containers(now)
			} else if i := in.n(len(containers)); in.n(16) == 0 {
				containers = append(slices.Clone(containers), in.container(now))
			} else {
				containers = slices.Clone(containers)
				containers[i].Status = in.status(i, now)
			}
			if in.n(16) == 0 {
				m = New(b, &v1.Pod{}, gates)
				m.Recover(in.conditions(now), containers, now)
			}
			o := Observation{
				Now: now, Containers: containers, GracePeriod: in.duration(),
				SandboxLost: in.n(16) == 0, Held: in.n(4) == 0, Deleted: in.n(32) == 0,
			}
			p := m.Step(o)
			if broken := checkAnyPlan(&o, &p); broken != "" {
				t.Fatalf("%s\nseen: %+v\nplan: %+v", broken, o, p)
			}
		}
	})
}

// checkAnyPlan checks a plan of an arbitrary observation. It returns the
// violated property, or "".
func checkAnyPlan(o *Observation, p *Plan) string {
	restarting := false
	switch p.Phase {
	case PhaseTerminatingForRestart, PhaseStartup:
		restarting = true
	case PhaseRunning, PhaseDone, PhaseFailed:
	default:
		return fmt.Sprintf("no phase: %q", p.Phase)
	}
	for i, c := range p.Conditions {
		if (c.Status == v1.ConditionTrue) != (i == 0 && restarting) {
			return fmt.Sprintf("condition %d is %q in %s", i, c.Status, p.Phase)
		}
		if c.Type != PodRestarting && c.Type != AllContainersRestarting || i > 0 && c.Type == p.Conditions[0].Type || i > 1 {
			return fmt.Sprintf("condition %d is %s", i, c.Type)
		}
	}
	if restarting && len(p.Conditions) == 0 {
		return "no condition in " + string(p.Phase)
	}
	if (p.Waiting == nil) != p.StartAt.IsZero() {
		return fmt.Sprintf("waiting is %v until %v", p.Waiting, p.StartAt)
	}
	if p.Old != nil && len(p.Old) != len(o.Containers) {
		return fmt.Sprintf("Old has %d of %d containers", len(p.Old), len(o.Containers))
	}
	if p.Kill != nil && p.Phase != PhaseTerminatingForRestart {
		return "kills in " + string(p.Phase)
	}
	if p.Start != nil && p.Phase != PhaseRunning && p.Phase != PhaseStartup {
		return "starts in " + string(p.Phase)
	}
	if o.Deleted && (p.Start != nil || p.Events != nil || restarting) {
		return "a pod being deleted is restarted"
	}
	if !p.StartAt.IsZero() && (p.Phase != PhaseTerminatingForRestart || p.Kill != nil) {
		return "StartAt is set while something else is waited for"
	}
	if !p.Next.IsZero() && !p.Next.After(o.Now) {
		return "the next step is not later"
	}
	seen := map[int]string{}
	check := func(i int, what string) string {
		switch {
		case i < 0 || i >= len(o.Containers):
			return fmt.Sprintf("%s: no container %d", what, i)
		case seen[i] != "":
			return fmt.Sprintf("container %d: %s and %s", i, seen[i], what)
		case o.Containers[i].Kind == KindEphemeral:
			return fmt.Sprintf("%s: container %d is ephemeral", what, i)
		}
		seen[i] = what
		return ""
	}
	for _, k := range p.Kill {
		if broken := check(k.Container, "kill"); broken != "" {
			return broken
		}
		s := o.Containers[k.Container].Status
		if !alive(s) || s.ID != k.ID {
			return fmt.Sprintf("kill: %q is not the instance of container %d that runs", k.ID, k.Container)
		}
		if k.Grace < 0 || k.Grace > max(o.GracePeriod, MinimumGracePeriod) || k.PreStop != (k.Grace > 0) {
			return fmt.Sprintf("kill: preStop is %v with %v", k.PreStop, k.Grace)
		}
	}
	for _, i := range p.Start {
		if broken := check(i, "start"); broken != "" {
			return broken
		}
		if alive(o.Containers[i].Status) {
			return fmt.Sprintf("start: container %d runs", i)
		}
	}
	return ""
}

// input is the data of a fuzzer. When it is used up, its methods return zero
// values.
type input []byte

func (in *input) byte() byte {
	if len(*in) == 0 {
		return 0
	}
	b := (*in)[0]
	*in = (*in)[1:]
	return b
}

func (in *input) bool() bool { return in.byte()&1 == 1 }

// n returns a number from 0 to n-1.
func (in *input) n(n int) int { return int(in.byte()) % n }

// duration returns a duration of up to a few minutes, sometimes a negative one
// or one of years.
func (in *input) duration() time.Duration {
	switch b := in.byte(); {
	case b < 200:
		return time.Duration(b) * time.Second
	case b < 220:
		return -time.Duration(b-199) * time.Minute
	case b < 254:
		return time.Duration(b-219) * 100 * time.Millisecond
	case b == 254:
		return -1 << 60
	default:
		return 1 << 60
	}
}

func (in *input) containers(now time.Time) []Container {
	containers := make([]Container, in.n(6))
	for i := range containers {
		containers[i] = in.container(now)
	}
	if in.n(4) > 0 {
		slices.SortStableFunc(containers, inOrder)
	}
	return containers
}

// inOrder compares containers in the order of the function Containers.
func inOrder(a, b Container) int {
	rank := map[Kind]int{KindInit: -3, KindSidecar: -3, KindRegular: -2, KindEphemeral: -1}
	return rank[a.Kind] - rank[b.Kind]
}

func (in *input) container(now time.Time) Container {
	kinds := []Kind{KindInit, KindSidecar, KindRegular, KindRegular, KindEphemeral, "unknown"}
	policies := []v1.ContainerRestartPolicy{
		PolicyAlways, PolicyOnFailure, PolicyNever, "",
	}
	c := Container{Name: "c", Kind: kinds[in.n(len(kinds))], Policy: policies[in.n(len(policies))]}
	actions := []Action{
		ActionRestartPod, ActionRestartAllContainers,
		ActionRestart, "unknown",
	}
	operators := []Operator{
		OperatorIn, OperatorNotIn, "unknown",
	}
	for range in.n(3) {
		rule := Rule{Action: actions[in.n(len(actions))]}
		if in.n(8) > 0 {
			rule.Operator, rule.Values = operators[in.n(len(operators))], []int32{int32(in.n(3))}
		}
		c.Rules = append(c.Rules, rule)
	}
	c.Status = in.status(0, now)
	return c
}

func (in *input) status(container int, now time.Time) *restart.ContainerStatus {
	states := []restart.ContainerState{
		restart.ContainerStateCreated, restart.ContainerStateRunning, restart.ContainerStateRunning,
		restart.ContainerStateExited, restart.ContainerStateExited, restart.ContainerStateUnknown, "paused",
	}
	state := in.n(len(states) + 1)
	if state == len(states) {
		return nil
	}
	s := &restart.ContainerStatus{State: states[state], Started: in.bool(), ExitCode: int32(in.n(3)), StoppedByAgent: in.n(8) == 0}
	// Few IDs, so that an instance sometimes comes back. Some are empty.
	if n := in.n(8); n > 0 {
		s.ID = fmt.Sprintf("%d#%d", container*in.n(2), n)
	}
	s.StartedAt, s.FinishedAt = in.time(now), in.time(now)
	return s
}

func (in *input) time(now time.Time) time.Time {
	switch in.n(8) {
	case 0:
		return time.Time{}
	case 1:
		return time.Unix(0, 0)
	case 2:
		return now
	default:
		return now.Add(-in.duration())
	}
}

func (in *input) conditions(now time.Time) []v1.PodCondition {
	types := []v1.PodConditionType{PodRestarting, AllContainersRestarting, v1.PodReady}
	statuses := []v1.ConditionStatus{v1.ConditionTrue, v1.ConditionFalse, v1.ConditionUnknown, ""}
	reasons := []string{ReasonContainerExited, ReasonContainersStarted, ReasonPodFailed, ReasonPodDeleted, ""}
	var conditions []v1.PodCondition
	for range in.n(4) {
		conditions = append(conditions, v1.PodCondition{
			Type: types[in.n(len(types))], Status: statuses[in.n(len(statuses))], Reason: reasons[in.n(len(reasons))],
			LastTransitionTime: metav1.NewTime(in.time(now)),
		})
	}
	return conditions
}
