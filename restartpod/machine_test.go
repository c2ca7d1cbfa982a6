// SPDX-License-Identifier: Apache-2.0

package restartpod

import (
	"fmt"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"

	backoff "github.com/kubelet-backoff/kubelet-backoff/backoff"
	"github.com/kubelet-backoff/kubelet-backoff/restart"
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
		Name: name, Kind: KindRegular, Policy: never, Rules: []Rule{rule(restartPod, in, 88)},
		Status: &restart.ContainerStatus{ID: id, State: restart.ContainerStateExited, ExitCode: 88, StartedAt: epoch, FinishedAt: epoch},
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
	main.Rules = []Rule{rule(restartPod, in, 1)}
	other := Container{Name: "other", Kind: KindRegular, Policy: never}
	p = m.Step(Observation{Now: epoch, Containers: []Container{other, main}})
	assert.Equal(t, []bool{false, true}, p.Old)
	assert.Equal(t, []int{0, 1}, p.Start)

	other.Status = &restart.ContainerStatus{ID: "other#1", State: restart.ContainerStateRunning, Started: true}
	main.Status = &restart.ContainerStatus{ID: "main#2", State: restart.ContainerStateExited, ExitCode: 88}
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
		Name: "helper", Kind: KindRegular, Policy: never, Status: &restart.ContainerStatus{ID: "helper#1", State: restart.ContainerStateRunning, Started: true},
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
		{Name: "setup", Kind: KindInit, Policy: never, Status: &restart.ContainerStatus{ID: "setup#2", State: restart.ContainerStateExited, StartedAt: epoch.Add(-time.Minute)}},
		exitedAt88("main", "main#2"),
	}
	containers[1].Status.State, containers[1].Status.Started = restart.ContainerStateRunning, true
	containers[1].Status.StartedAt = epoch.Add(time.Minute)
	m.Recover([]v1.PodCondition{{Type: PodRestarting, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(epoch)}}, containers, epoch.Add(2*time.Minute))
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
		{Type: AllContainersRestarting, Status: v1.ConditionTrue, LastTransitionTime: at(2)},
		{Type: PodRestarting, Status: v1.ConditionTrue, LastTransitionTime: at(1)},
	}, []Container{main}, at(3).Time)
	p := m.Step(Observation{Now: at(3).Time, Containers: []Container{main}})
	assert.Equal(t, []v1.PodCondition{
		{Type: AllContainersRestarting, Status: v1.ConditionTrue, LastTransitionTime: at(2)},
		{Type: PodRestarting, Status: v1.ConditionFalse, LastTransitionTime: at(2)},
	}, p.Conditions)

	// In Startup a rule with the other action triggers another restart.
	next := exitedAt88("main", "main#2")
	next.Status.FinishedAt = at(4).Time
	kept := p.Conditions
	p = m.Step(Observation{Now: at(4).Time, Containers: []Container{next}})
	assert.Equal(t, []v1.PodCondition{
		{Type: PodRestarting, Status: v1.ConditionTrue, LastTransitionTime: at(4), Reason: ReasonContainerExited, Message: "Container main exited with code 88, triggering pod restart"},
		{Type: AllContainersRestarting, Status: v1.ConditionFalse, LastTransitionTime: at(4)},
	}, p.Conditions)
	assert.Equal(t, v1.ConditionTrue, kept[0].Status, "a plan does not change later")
}

// The texts of a restart that has to wait. Each is in one plan.
func TestTexts(t *testing.T) {
	m := newTestMachine()
	m.Step(Observation{Now: epoch, Containers: []Container{exitedAt88("main", "main#1")}})
	main := exitedAt88("main", "main#2")
	helper := Container{Name: "helper", Kind: KindSidecar, Policy: always, Status: &restart.ContainerStatus{ID: "helper#1", State: restart.ContainerStateRunning, Started: true}}
	o := Observation{Now: epoch, Containers: []Container{helper, main}, GracePeriod: time.Minute}
	const message = "Container main exited with code 88, triggering pod restart"
	p := m.Step(o)
	assert.Equal(t, []Event{{"Normal", "PodRestarting", message}}, p.Events)
	assert.Nil(t, p.Waiting)
	assert.Equal(t, []Kill{{ID: "helper#1", PreStop: true, Grace: time.Minute, Message: "Stopping container helper, the pod is being restarted"}}, p.Kill)

	helper.Status = &restart.ContainerStatus{ID: "helper#1", State: restart.ContainerStateExited}
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

// asbx returns the containers of a pod with the policy Never: the init containers a and b
// around the sidecar s, and the regular container x. All four have a rule for 88.
func asbx() []Container {
	rules := []Rule{rule(restartPod, in, 88)}
	return []Container{
		{Name: "a", Kind: KindInit, Policy: never, Rules: rules},
		{Name: "s", Kind: KindSidecar, Policy: always, Rules: rules},
		{Name: "b", Kind: KindInit, Policy: never, Rules: rules},
		{Name: "x", Kind: KindRegular, Policy: never, Rules: rules},
	}
}

func exitedWith(id string, code int32) *restart.ContainerStatus {
	return &restart.ContainerStatus{ID: id, State: restart.ContainerStateExited, ExitCode: code, StartedAt: epoch, FinishedAt: epoch}
}

func TestStartsOfInitContainers(t *testing.T) {
	running := func(id string, started bool) *restart.ContainerStatus {
		return &restart.ContainerStatus{ID: id, State: restart.ContainerStateRunning, Started: started, StartedAt: epoch}
	}
	for name, tc := range map[string]struct {
		statuses []*restart.ContainerStatus
		start    []int
		phase    Phase
	}{
		"the last sidecar exited before the next init container":   {[]*restart.ContainerStatus{exitedWith("a#1", 0), exitedWith("s#1", 1), nil, nil}, []int{1}, PhaseRunning},
		"the sidecar has not passed its startup probe":             {[]*restart.ContainerStatus{exitedWith("a#1", 0), running("s#1", false), nil, nil}, nil, PhaseRunning},
		"the sidecar has passed its startup probe":                 {[]*restart.ContainerStatus{exitedWith("a#1", 0), running("s#1", true), nil, nil}, []int{2}, PhaseRunning},
		"the runtime removed what had completed":                   {[]*restart.ContainerStatus{nil, running("s#1", true), exitedWith("b#1", 0), nil}, []int{3}, PhaseRunning},
		"the runtime removed all but a running init container":     {[]*restart.ContainerStatus{nil, running("s#1", true), running("b#1", true), nil}, nil, PhaseRunning},
		"a sidecar exited, and then an init container failed":      {[]*restart.ContainerStatus{exitedWith("a#1", 0), exitedWith("s#1", 1), exitedWith("b#1", 1), nil}, nil, PhaseFailed},
		"an init container failed, and the pod is initialized":     {[]*restart.ContainerStatus{exitedWith("a#1", 0), running("s#1", true), exitedWith("b#1", 1), running("x#1", true)}, nil, PhaseRunning},
		"an init container failed, and the runtime removed others": {[]*restart.ContainerStatus{nil, nil, exitedWith("b#1", 1), nil}, nil, PhaseFailed},
	} {
		t.Run(name, func(t *testing.T) {
			o := Observation{Now: epoch, Containers: asbx()}
			for i := range tc.statuses {
				o.Containers[i].Status = tc.statuses[i]
			}
			p := newTestMachine().Step(o)
			assert.Equal(t, tc.start, p.Start)
			assert.Equal(t, tc.phase, p.Phase)
		})
	}
}

// The runtime may remove the containers of a pod that is done. Then it is still done.
func TestDoneIsFinal(t *testing.T) {
	for phase, last := range map[Phase]int{PhaseDone: 3, PhaseFailed: 2} {
		m := newTestMachine()
		containers := asbx()
		for i := range containers[:last+1] {
			containers[i].Status = exitedWith(containers[i].Name, 0)
		}
		containers[last].Status.ExitCode = 1
		for range 2 {
			p := m.Step(Observation{Now: epoch, Containers: containers})
			assert.Equal(t, phase, p.Phase)
			assert.Nil(t, p.Start)
			assert.Nil(t, p.Events)
			containers = asbx()
		}
	}
}

// An exit at the time of the pod's end, or at an unknown time, triggers nothing. An earlier
// one does.
func TestExitsOfAPodThatIsDone(t *testing.T) {
	for want, finished := range map[Phase][]time.Time{
		PhaseDone:    {epoch, epoch.Add(1), {}, time.Unix(0, 0)},
		PhaseStartup: {epoch.Add(-1)},
	} {
		for _, at := range finished {
			containers := asbx()
			containers[1].Status, containers[3].Status = exitedWith("s#1", 88), exitedWith("x#1", 0)
			containers[1].Status.FinishedAt = at
			m := newTestMachine()
			m.Recover(nil, containers, epoch)
			assert.Equal(t, want, m.Step(Observation{Now: epoch, Containers: containers}).Phase, at)
		}
	}
}

// The end of a restart changes the time of its condition.
func TestTimeOfTheFalseCondition(t *testing.T) {
	for reason, end := range map[string]func([]Container){
		ReasonContainersStarted: func([]Container) {},
		ReasonPodFailed: func(c []Container) {
			c[2].Status.State, c[2].Status.ExitCode, c[3].Status = restart.ContainerStateExited, 1, nil
		},
	} {
		m := newTestMachine()
		containers := asbx()
		containers[3].Status = exitedWith("x#1", 88)
		m.Step(Observation{Now: epoch, Containers: containers})
		for i := range containers {
			containers[i].Status = &restart.ContainerStatus{ID: containers[i].Name + "#2", State: restart.ContainerStateRunning, Started: true, StartedAt: epoch.Add(time.Second)}
		}
		end(containers)
		later := epoch.Add(3 * time.Second)
		p := m.Step(Observation{Now: later, Containers: containers})
		require.Len(t, p.Conditions, 1)
		assert.Equal(t, v1.ConditionFalse, p.Conditions[0].Status)
		assert.Equal(t, reason, p.Conditions[0].Reason)
		assert.Equal(t, later, p.Conditions[0].LastTransitionTime.Time)
	}
}

// The time in which the agent cannot stop containers does not count.
func TestGracePeriodBeginsWithTheStop(t *testing.T) {
	const grace = 30 * time.Second
	m := newTestMachine()
	containers := asbx()
	for i := range containers {
		containers[i].Status = &restart.ContainerStatus{ID: containers[i].Name + "#1", State: restart.ContainerStateRunning, Started: true, StartedAt: epoch}
	}
	containers[3].Status = exitedWith("x#1", 88)
	for _, step := range []struct {
		after time.Duration
		held  bool
		grace time.Duration
		kills int // sidecars are stopped last, until the grace period has passed
	}{
		{0, true, grace, 2},
		{40 * time.Second, true, grace, 2},
		{50 * time.Second, false, grace, 2},
		{60 * time.Second, true, 20 * time.Second, 2},
		{75 * time.Second, false, 5 * time.Second, 2},
		{80 * time.Second, false, MinimumGracePeriod, 3},
	} {
		p := m.Step(Observation{Now: epoch.Add(step.after), Containers: containers, GracePeriod: grace, Held: step.held})
		require.Equal(t, PhaseTerminatingForRestart, p.Phase)
		require.Len(t, p.Kill, step.kills, step.after)
		for _, k := range p.Kill {
			assert.Equal(t, step.grace, k.Grace, step.after)
		}
	}
}

// Containers that may not have been told to stop have a whole grace period: after the agent
// was restarted, and those that Startup had started in a sandbox that is lost.
func TestGracePeriodBeginsAgain(t *testing.T) {
	const grace = 30 * time.Second
	helper := Container{Name: "helper", Kind: KindRegular, Policy: never, Status: &restart.ContainerStatus{
		ID: "helper#1", State: restart.ContainerStateRunning, Started: true, StartedAt: epoch,
	}}
	observe := func(after time.Duration) Observation {
		return Observation{Now: epoch.Add(after), Containers: []Container{exitedAt88("main", "main#1"), helper}, GracePeriod: grace}
	}
	o := observe(0)
	o.Held = true
	p := newTestMachine().Step(o)
	m, o := newTestMachine(), observe(time.Minute)
	m.Recover(p.Conditions, o.Containers, o.Now)
	p = m.Step(o)
	require.Len(t, p.Kill, 1)
	assert.Equal(t, grace, p.Kill[0].Grace)

	helper.Status = exitedWith("helper#1", 0)
	require.Equal(t, PhaseStartup, m.Step(observe(61*time.Second)).Phase)
	helper.Status = &restart.ContainerStatus{ID: "helper#2", State: restart.ContainerStateRunning, Started: true, StartedAt: epoch.Add(62 * time.Second)}
	o = observe(3 * time.Minute)
	o.SandboxLost = true
	p = m.Step(o)
	require.Len(t, p.Kill, 1)
	assert.Equal(t, grace, p.Kill[0].Grace)
}

// A clock that steps back makes the grace period of a restart begin again once, and not
// with each step.
func TestGracePeriodAfterClockStepsBack(t *testing.T) {
	const grace = 30 * time.Second
	m := newTestMachine()
	containers := asbx()
	for i := range containers {
		containers[i].Status = &restart.ContainerStatus{ID: containers[i].Name + "#1", State: restart.ContainerStateRunning, Started: true, StartedAt: epoch}
	}
	containers[3].Status = exitedWith("x#1", 88)
	for _, step := range []struct {
		after, grace time.Duration
		kills        int // sidecars are stopped last, until the grace period has passed
	}{
		{0, grace, 2},
		{20 * time.Second, 10 * time.Second, 2},
		{-time.Hour, grace, 2},
		{-time.Hour + 25*time.Second, 5 * time.Second, 2},
		{-time.Hour + 30*time.Second, MinimumGracePeriod, 3},
	} {
		p := m.Step(Observation{Now: epoch.Add(step.after), Containers: containers, GracePeriod: grace})
		require.Len(t, p.Kill, step.kills, step.after)
		assert.Equal(t, step.grace, p.Kill[0].Grace, step.after)
	}
}

// While containers are being stopped, GC must not forget the back-off of the pod.
func TestBackOffSurvivesGCWhileStopping(t *testing.T) {
	now := epoch
	clock := testingclock.NewFakeClock(now)
	b := backoff.NewFakeBackOff(10*time.Second, 300*time.Second, clock)
	b.HasExpiredFunc = backoff.FlatReset(backoff.ContainerResetPeriod)
	m := New(b, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "foo", UID: "uid"}}, allGates)
	containers := []Container{exitedAt88("main", "main#1")}
	m.Step(Observation{Now: now, Containers: containers}) // the first restart is immediate
	helper := Container{Name: "helper", Kind: KindRegular, Policy: never, Status: &restart.ContainerStatus{ID: "helper#2", State: restart.ContainerStateRunning, Started: true}}
	containers = []Container{exitedAt88("main", "main#2"), helper}
	containers[0].Status.FinishedAt = now.Add(590 * time.Second)
	for ; now.Before(epoch.Add(630 * time.Second)); now = now.Add(10 * time.Second) {
		if !now.Before(containers[0].Status.FinishedAt) {
			require.NotEmpty(t, m.Step(Observation{Now: now, Containers: containers, GracePeriod: time.Hour}).Kill)
		}
		clock.SetTime(now)
		b.GC()
	}
	containers[1].Status = exitedWith("helper#2", 0)
	assert.Equal(t, PhaseStartup, m.Step(Observation{Now: now, Containers: containers}).Phase)
	assert.Equal(t, 20*time.Second, b.Get(m.BackOffKey()), "the second restart")
}

// After a restart of the agent, the back-off counts from the exit and not from the
// condition, which is later and has whole seconds.
func TestRecoveredExitTime(t *testing.T) {
	m := newTestMachine()
	main := exitedAt88("main", "main#2")
	main.Status.FinishedAt = epoch.Add(1300 * time.Millisecond)
	require.NoError(t, m.backoff.Restore(m.key, backoff.KeyState{Attempts: 1, LastUpdate: epoch}, epoch.Add(3*time.Second)))
	m.Recover([]v1.PodCondition{{
		Type: PodRestarting, Status: v1.ConditionTrue, Reason: ReasonContainerExited,
		LastTransitionTime: metav1.NewTime(epoch.Add(2 * time.Second)), Message: causeMessage(&main),
	}}, []Container{main}, epoch.Add(3*time.Second))
	p := m.Step(Observation{Now: epoch.Add(3 * time.Second), Containers: []Container{main}})
	assert.Equal(t, epoch.Add(11300*time.Millisecond), p.StartAt)
}

// The clock is set back by an hour while a restart is in progress, and the agent is
// restarted before it is complete. The pod is not restarted a second time, and the
// instance from before the step, which seems to have started later, is still old.
func TestRecoverAfterTheClockWasSetBack(t *testing.T) {
	for name, crash := range map[string]bool{"by the same agent": false, "by another agent": true} {
		t.Run(name, func(t *testing.T) {
			m := newTestMachine()
			containers := asbx()
			containers[3].Status = exitedWith("x#1", 88)
			containers[1].Status = &restart.ContainerStatus{ID: "s#1", State: restart.ContainerStateRunning, Started: true, StartedAt: epoch.Add(-time.Minute)}
			p := m.Step(Observation{Now: epoch, Containers: containers, GracePeriod: time.Minute})
			require.Equal(t, PhaseTerminatingForRestart, p.Phase)
			now := epoch.Add(-time.Hour)
			if crash {
				m = newTestMachine()
				m.Recover(p.Conditions, containers, now)
			}
			containers[1].Status = &restart.ContainerStatus{ID: "s#1", State: restart.ContainerStateExited, StartedAt: epoch.Add(-time.Minute), FinishedAt: now}
			p = m.Step(Observation{Now: now, Containers: containers})
			require.Equal(t, PhaseStartup, p.Phase)
			require.Equal(t, now, p.Conditions[0].LastTransitionTime.Time)

			containers[0].Status = exitedWith("a#2", 0)
			containers[0].Status.StartedAt = now.Add(time.Second)
			m = newTestMachine()
			m.Recover(p.Conditions, containers, now.Add(2*time.Second))
			p = m.Step(Observation{Now: now.Add(2 * time.Second), Containers: containers})
			assert.Equal(t, PhaseStartup, p.Phase)
			assert.Equal(t, []bool{false, true, false, true}, p.Old)
			assert.Equal(t, []int{1}, p.Start)
		})
	}
}

// Without the container that was the cause, the back-off counts from the condition.
func TestRecoveredWithoutTheCause(t *testing.T) {
	m, now := newTestMachine(), epoch.Add(5*time.Second)
	require.NoError(t, m.backoff.Restore(m.key, backoff.KeyState{Attempts: 1, LastUpdate: epoch}, now))
	containers := []Container{exitedAt88("main", "main#2")}
	containers[0].Status = nil
	m.Recover([]v1.PodCondition{{
		Type: PodRestarting, Status: v1.ConditionTrue, Reason: ReasonContainerExited,
		LastTransitionTime: metav1.NewTime(epoch.Add(2 * time.Second)), Message: "Container main exited with code 88, triggering pod restart",
	}}, containers, now)
	assert.Equal(t, epoch.Add(12*time.Second), m.Step(Observation{Now: now, Containers: containers}).StartAt)
}

// The runtime may have removed the init container that failed.
func TestRecoveredFailureIsFinal(t *testing.T) {
	containers := asbx()
	containers[3].Status = exitedWith("x#1", 88)
	m := newTestMachine()
	m.Recover([]v1.PodCondition{{Type: PodRestarting, Status: v1.ConditionFalse, Reason: ReasonPodFailed, LastTransitionTime: metav1.NewTime(epoch)}}, containers, epoch)
	assert.Equal(t, PhaseFailed, m.Step(Observation{Now: epoch, Containers: containers}).Phase)
}

// A pod is done at the last exit of a regular container, not at the first.
func TestDoneAtTheLastExit(t *testing.T) {
	containers := append(asbx(), asbx()[3])
	containers[4].Name = "y"
	for i, at := range map[int]int{1: 2, 3: 1, 4: 3} {
		containers[i].Status = exitedWith(containers[i].Name, 0)
		containers[i].Status.FinishedAt = epoch.Add(time.Duration(at) * time.Second)
	}
	containers[1].Status.ExitCode = 88
	assert.Equal(t, PhaseStartup, newTestMachine().Step(Observation{Now: epoch.Add(4 * time.Second), Containers: containers}).Phase)
}

// Containers that ended with the sandbox in Startup did not end for good.
func TestSandboxLostInStartupIsNotTheEnd(t *testing.T) {
	m := newTestMachine()
	containers := append(asbx(), asbx()[3])
	containers[4].Name = "y"
	containers[3].Status = exitedWith("x#1", 88)
	require.Equal(t, PhaseStartup, m.Step(Observation{Now: epoch, Containers: containers}).Phase)
	for i := range containers {
		containers[i].Status = exitedWith(containers[i].Name+"#2", 0)
		if i == 1 || i > 2 {
			containers[i].Status.ExitCode = 255
		}
	}
	assert.Equal(t, PhaseStartup, m.Step(Observation{Now: epoch.Add(time.Second), Containers: containers, SandboxLost: true}).Phase)
}

// If the clock was set back, an exit that seems earlier than the end of the pod is not.
func TestDoneAfterTheClockWasSetBack(t *testing.T) {
	back := epoch.Add(-time.Hour)
	for phase, code := range map[Phase]int32{PhaseDone: 0, PhaseFailed: 1} {
		containers := asbx()
		containers[0].Status, containers[2].Status = exitedWith("a#1", 0), exitedWith("b#1", code)
		if phase == PhaseDone {
			containers[3].Status = exitedWith("x#1", 0)
		}
		containers[1].Status = exitedWith("s#1", 88)
		containers[1].Status.FinishedAt = back
		m := newTestMachine()
		m.Recover(nil, containers, back.Add(2*time.Second))
		p := m.Step(Observation{Now: back.Add(2 * time.Second), Containers: containers})
		assert.Equal(t, phase, p.Phase)
		assert.Empty(t, p.Events)
	}
}

// The clock is set back in Startup, before or after a first container has started, and
// the agent is restarted then or later. What Startup has started is not stopped.
func TestRecoverAfterTheClockWasSetBackInStartup(t *testing.T) {
	back := epoch.Add(-time.Hour)
	for _, begun := range []bool{false, true} {
		for _, crash := range []bool{false, true} {
			t.Run(fmt.Sprintf("begun %t, restarted then %t", begun, crash), func(t *testing.T) {
				m := newTestMachine()
				containers := asbx()
				containers[3].Status = exitedWith("x#1", 88)
				p := m.Step(Observation{Now: monotonicAt(t, epoch, 0), Containers: containers})
				require.Equal(t, PhaseStartup, p.Phase)
				start := func(at time.Time) {
					containers[0].Status = exitedWith("a#2", 0)
					containers[0].Status.StartedAt, containers[0].Status.FinishedAt = at.Add(2*time.Second), at.Add(3*time.Second)
				}
				if begun {
					start(epoch)
					p = m.Step(Observation{Now: monotonicAt(t, epoch.Add(3*time.Second), 3*time.Second), Containers: containers})
				}
				if crash {
					m = newTestMachine()
					m.Recover(p.Conditions, containers, back)
				}
				p = m.Step(Observation{Now: monotonicAt(t, back, 4*time.Second), Containers: containers})
				require.Equal(t, PhaseStartup, p.Phase)
				if !begun {
					start(back)
				}
				containers[1].Status = &restart.ContainerStatus{ID: "s#2", State: restart.ContainerStateRunning, Started: true, StartedAt: back.Add(4 * time.Second)}
				p = m.Step(Observation{Now: monotonicAt(t, back.Add(5*time.Second), 9*time.Second), Containers: containers})
				require.Equal(t, []int{2}, p.Start)
				m = newTestMachine()
				m.Recover(p.Conditions, containers, back.Add(6*time.Second))
				p = m.Step(Observation{Now: back.Add(6 * time.Second), Containers: containers})
				assert.Equal(t, PhaseStartup, p.Phase)
				assert.Empty(t, p.Kill)
				assert.Equal(t, []int{2}, p.Start)
			})
		}
	}
}

// monotonicAt returns what the real clock returns when its wall clock shows wall and its
// monotonic clock shows monotonic. Before compares the latter, and no function of the
// standard library makes such a time.
func monotonicAt(t *testing.T, wall time.Time, monotonic time.Duration) time.Time {
	t.Helper()
	now := time.Now()
	parts := (*struct {
		wall uint64
		ext  int64
	})(unsafe.Pointer(&now))
	const secondsFrom1885, hasMonotonic = 2682288000, 1 << 63
	parts.wall = hasMonotonic | uint64(wall.Unix()+secondsFrom1885)<<30 | uint64(wall.Nanosecond())
	parts.ext = int64(monotonic)
	require.True(t, now.Round(0).Equal(wall), "the layout of time.Time is not as this test expects: %s", now)
	return now
}
