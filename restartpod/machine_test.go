// SPDX-License-Identifier: Apache-2.0

package restartpod

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	backoff "github.com/kubelet-backoff/kubelet-backoff/backoff"
)

// newTestMachine returns the machine of a pod with the name foo.
func newTestMachine() *Machine {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "foo", UID: "uid"}}
	return New(backoff.NewBackOff(10*time.Second, 300*time.Second), pod, allGates)
}

// exitedAt88 returns a regular container that exited with 88 and has a rule for
// that code.
func exitedAt88(name, id string) Container {
	return Container{
		Name: name, Kind: KindRegular, Policy: never, Rules: []v1.ContainerRestartRule{rule(restartPod, in, 88)},
		Status: &Status{ID: id, State: StateExited, ExitCode: 88, StartedAt: epoch, FinishedAt: epoch},
	}
}

// A past exit is identified by its instance, regardless of the position of the
// container.
func TestContainersChange(t *testing.T) {
	m := newTestMachine()
	main := exitedAt88("main", "main#1")
	p := m.Step(Observation{Now: epoch, Containers: []Container{main}})
	require.Equal(t, PhaseStartup, p.Phase)

	// A static pod changed: a new container comes first, and main has other
	// rules.
	main.Rules = []v1.ContainerRestartRule{rule(restartPod, in, 1)}
	other := Container{Name: "other", Kind: KindRegular, Policy: never}
	p = m.Step(Observation{Now: epoch, Containers: []Container{other, main}})
	assert.Equal(t, []bool{false, true}, p.Old)
	assert.Equal(t, []int{0, 1}, p.Start)

	other.Status = &Status{ID: "other#1", State: StateRunning, Started: true}
	main.Status = &Status{ID: "main#2", State: StateExited, ExitCode: 88}
	p = m.Step(Observation{Now: epoch, Containers: []Container{other, main}})
	assert.Equal(t, PhaseRunning, p.Phase, "the rule for 88 is gone")
	assert.Nil(t, p.Old)
	main.Status.ExitCode = 1
	p = m.Step(Observation{Now: epoch, Containers: []Container{other, main}})
	assert.Equal(t, PhaseTerminatingForRestart, p.Phase)
}

// An agent may end a restart without reading the pod's containers.
func TestDeletedWithoutContainers(t *testing.T) {
	m := newTestMachine()
	containers := []Container{exitedAt88("main", "main#1"), {
		Name: "helper", Kind: KindRegular, Policy: never, Status: &Status{ID: "helper#1", State: StateRunning, Started: true},
	}}
	m.Step(Observation{Now: epoch, Containers: containers})
	m.Step(Observation{Now: epoch, Deleted: true})
	p := m.Step(Observation{Now: epoch, Containers: containers, Deleted: true})
	assert.Equal(t, []bool{true, true}, p.Old)
}

// The clock stepped back, and an init container started before the condition. It
// belongs to the present run if a container that starts after it does.
func TestRecoverClockStep(t *testing.T) {
	m := newTestMachine()
	containers := []Container{
		{Name: "setup", Kind: KindInit, Policy: never, Status: &Status{ID: "setup#2", State: StateExited, StartedAt: epoch.Add(-time.Minute)}},
		exitedAt88("main", "main#2"),
	}
	containers[1].Status.State, containers[1].Status.Started = StateRunning, true
	containers[1].Status.StartedAt = epoch.Add(time.Minute)
	m.Recover([]v1.PodCondition{{Type: PodRestarting, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(epoch)}}, containers)
	p := m.Step(Observation{Now: epoch.Add(2 * time.Minute), Containers: containers})
	assert.Equal(t, PhaseRunning, p.Phase)
	assert.Nil(t, p.Old)
}

// At most one of the two conditions is True, regardless of the conditions in the
// API and of how the next restart begins.
func TestConditions(t *testing.T) {
	m := newTestMachine()
	at := func(s int) metav1.Time { return metav1.NewTime(epoch.Add(time.Duration(s) * time.Second)) }
	main := exitedAt88("main", "main#1")
	m.Recover([]v1.PodCondition{
		{Type: v1.PodReady, Status: v1.ConditionTrue},
		{Type: v1.AllContainersRestarting, Status: v1.ConditionTrue, LastTransitionTime: at(2)},
		{Type: PodRestarting, Status: v1.ConditionTrue, LastTransitionTime: at(1)},
	}, []Container{main})
	p := m.Step(Observation{Now: at(3).Time, Containers: []Container{main}})
	assert.Equal(t, []v1.PodCondition{
		{Type: v1.AllContainersRestarting, Status: v1.ConditionTrue, LastTransitionTime: at(2)},
		{Type: PodRestarting, Status: v1.ConditionFalse, LastTransitionTime: at(2)},
	}, p.Conditions)

	// In Startup a rule with the other action triggers another restart.
	next := exitedAt88("main", "main#2")
	next.Status.FinishedAt = at(4).Time
	kept := p.Conditions
	p = m.Step(Observation{Now: at(4).Time, Containers: []Container{next}})
	assert.Equal(t, []v1.PodCondition{
		{Type: PodRestarting, Status: v1.ConditionTrue, LastTransitionTime: at(4), Reason: ReasonContainerExited, Message: "Container main exited with code 88, triggering pod restart"},
		{Type: v1.AllContainersRestarting, Status: v1.ConditionFalse, LastTransitionTime: at(4)},
	}, p.Conditions)
	assert.Equal(t, v1.ConditionTrue, kept[0].Status, "a plan does not change later")
}

// The texts of a restart that has to wait. Each is in one plan.
func TestTexts(t *testing.T) {
	m := newTestMachine()
	m.Step(Observation{Now: epoch, Containers: []Container{exitedAt88("main", "main#1")}})
	main := exitedAt88("main", "main#2")
	helper := Container{Name: "helper", Kind: KindSidecar, Policy: always, Status: &Status{ID: "helper#1", State: StateRunning, Started: true}}
	o := Observation{Now: epoch, Containers: []Container{helper, main}, GracePeriod: time.Minute}
	const message = "Container main exited with code 88, triggering pod restart"
	p := m.Step(o)
	assert.Equal(t, []Event{{"Normal", "PodRestarting", message}}, p.Events)
	assert.Nil(t, p.Waiting)
	assert.Equal(t, []Kill{{ID: "helper#1", PreStop: true, Grace: time.Minute, Message: "Stopping container helper, the pod is being restarted"}}, p.Kill)

	helper.Status = &Status{ID: "helper#1", State: StateExited}
	o.Containers[0] = helper
	for _, want := range [][]Event{{{"Warning", "BackOff", "Back-off restarting pod foo: " + message + ": waiting 10s, next start at 2026-01-01T00:00:10Z"}}, nil} {
		p = m.Step(o)
		assert.Equal(t, want, p.Events)
		assert.Equal(t, &Waiting{"CrashLoopBackOff", "back-off 10s restarting pod foo: " + message}, p.Waiting)
	}
	o.Now = p.StartAt
	p = m.Step(o)
	assert.Equal(t, PhaseStartup, p.Phase)
	assert.Nil(t, p.Waiting)
	assert.Nil(t, p.Events)
}
