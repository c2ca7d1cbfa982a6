// SPDX-License-Identifier: Apache-2.0

package printer

import (
	"flag"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubelet-backoff/kubelet-backoff/agent"
	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

// printed is a printer with a fake clock.
type printed struct {
	*Printer
	clock *testingclock.FakeClock
	// stepped is called after each step, if it is not nil.
	stepped func()
}

// testPrinter runs f in a bubble of synctest, in which step waits until the printer is
// idle.
func testPrinter(t *testing.T, w io.Writer, format string, size func() (int, int), pods []*v1.Pod, f func(*testing.T, *printed)) {
	synctest.Test(t, func(t *testing.T) {
		c := testingclock.NewFakeClock(time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC))
		p := &printed{Printer: New(w, format, pods, size, c), clock: c}
		defer func() {
			if !p.Printer.closed { // The test failed.
				_ = p.Close(func(*v1.Pod) string { return "" })
			}
		}()
		f(t, p)
	})
}

// step moves the clock when the printer is idle, and returns when it is idle again. After
// redrawPause or more, everything from before is written.
func (p *printed) step(d time.Duration) {
	synctest.Wait()
	p.clock.Step(d)
	synctest.Wait()
	if p.stepped != nil {
		p.stepped()
	}
}

func (p *printed) closed(t *testing.T) {
	require.NoError(t, p.Close(func(pod *v1.Pod) string { return "/cache/" + pod.Name + "/logs" }))
}

func testPod(namespace, name string, containers ...string) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	for _, c := range containers {
		pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: c})
	}
	return pod
}

func running() v1.ContainerState {
	return v1.ContainerState{Running: &v1.ContainerStateRunning{}}
}

func waiting(reason string) v1.ContainerState {
	return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}}
}

func exited(id string, code int32, at time.Time) *v1.ContainerStateTerminated {
	reason := "Error"
	if code == 0 {
		reason = "Completed"
	}
	return &v1.ContainerStateTerminated{
		Reason: reason, ContainerID: id, ExitCode: code, StartedAt: metav1.NewTime(at.Add(-time.Second)), FinishedAt: metav1.NewTime(at),
	}
}

func podIs(phase v1.PodPhase, containers ...agent.ContainerStatus) agent.Status {
	return agent.Status{Phase: phase, Containers: containers}
}

// scenario is a run with an init container, a start error, a back-off, a restart of the
// whole pod that waits, a failed probe, and the end.
func scenario(p *printed) {
	pod := p.pods[0]
	recorder, output := p.Recorder(pod), p.Output(pod)
	ref := func(path string) *v1.ObjectReference { return &v1.ObjectReference{FieldPath: path} }
	setup := agent.ContainerStatus{Name: "setup", Kind: restartpod.KindInit, State: waiting("PodInitializing")}
	main := agent.ContainerStatus{Name: "main", Kind: restartpod.KindRegular, State: waiting("PodInitializing")}
	report := func(s agent.Status) {
		s.Containers = []agent.ContainerStatus{setup, main}
		p.Status(pod, s)
		p.Status(pod, s)
	}

	p.Warn(nil, "", "NotHonored", "not honored by the process runtime: spec.containers.image")
	report(agent.Status{Phase: v1.PodPending})
	recorder.Eventf(ref("spec.initContainers{setup}"), v1.EventTypeNormal, "Started", "Container started")
	setup.State = running()
	report(agent.Status{Phase: v1.PodPending})
	p.step(redrawPause)

	output("setup", []byte("fetched 3 files"))
	setup.LastExit = exited("s0", 0, p.clock.Now())
	setup.State = v1.ContainerState{Terminated: setup.LastExit}
	main.LastExit = exited("m0", agent.ExitCodeStartError, p.clock.Now())
	main.LastExit.Reason, main.LastExit.Message = agent.ReasonStartError, "no such file:\n/bin/nosuch"
	main.State = v1.ContainerState{Terminated: main.LastExit}
	report(agent.Status{Phase: v1.PodPending})
	main.State, main.Restarts = running(), agent.Restarts{Count: 1, Timed: 1, Late: 1500 * time.Microsecond, Worst: 1500 * time.Microsecond}
	report(agent.Status{Phase: v1.PodRunning})
	p.step(2 * time.Second)

	output("main", []byte("hello\tworld"))
	recorder.Eventf(ref("spec.containers{main}"), v1.EventTypeWarning, "Unhealthy", "Liveness probe failed: %s", "not <ok>\n")
	main.LastExit = exited("m1", 1, p.clock.Now().Add(-4*time.Millisecond))
	main.State = v1.ContainerState{Terminated: main.LastExit}
	p.Status(pod, agent.Status{Phase: v1.PodRunning, Containers: []agent.ContainerStatus{setup, main}}) // The wait is in the next status.
	recorder.Eventf(ref("spec.containers{main}"), v1.EventTypeWarning, "BackOff", "Back-off restarting failed container main")
	main.State, main.RetryAt = waiting("CrashLoopBackOff"), main.LastExit.FinishedAt.Add(10*time.Second)
	report(agent.Status{Phase: v1.PodRunning})
	p.step(9996 * time.Millisecond)

	main.State, main.RetryAt = running(), time.Time{}
	main.Restarts = agent.Restarts{Count: 2, Timed: 2, Waited: 10 * time.Second, Late: 4 * time.Millisecond, Worst: 2500 * time.Microsecond}
	report(agent.Status{Phase: v1.PodRunning})
	p.step(time.Second)

	main.LastExit = exited("m2", 88, p.clock.Now())
	main.State = v1.ContainerState{Terminated: main.LastExit}
	restarting := agent.Status{Phase: v1.PodRunning, Conditions: []v1.PodCondition{{Type: restartpod.PodRestarting, Status: v1.ConditionTrue}}}
	report(restarting)
	recorder.Eventf(pod, v1.EventTypeNormal, "PodRestarting", "Container main exited with code 88, triggering pod restart")
	restarting.RetryAt = p.clock.Now().Add(20 * time.Second)
	setup.State, main.State = waiting("PodInitializing"), waiting("PodInitializing")
	report(restarting)
	p.step(13 * time.Second)
	p.step(7 * time.Second)

	setup.State, setup.Restarts.Count = v1.ContainerState{Terminated: setup.LastExit}, 1
	main.State, main.Restarts.Count = running(), 3
	whole := agent.Restarts{Count: 1, Timed: 1, Waited: 20 * time.Second, Late: 12345 * time.Microsecond, Worst: 12345 * time.Microsecond}
	restarted := agent.Status{Phase: v1.PodRunning, Restarts: whole}
	report(restarted)
	p.step(time.Second)

	restarted.Terminating, restarted.Reason = true, "DeadlineExceeded"
	report(restarted)
	p.step(time.Second)
	main.LastExit = exited("m3", 143, p.clock.Now())
	main.State = v1.ContainerState{Terminated: main.LastExit}
	report(agent.Status{Phase: v1.PodFailed, Reason: "DeadlineExceeded", Message: "Pod was active for longer than it may be", Restarts: whole})
	p.step(time.Second)
}

func scenarioPod() *v1.Pod {
	pod := testPod("training", "worker", "main")
	pod.Spec.InitContainers = []v1.Container{{Name: "setup"}}
	return pod
}

// compareGolden compares with testdata/NAME.golden.
func compareGolden(t *testing.T, name, got string) {
	t.Helper()
	golden := filepath.Join("testdata", name+".golden")
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(golden), 0o755))
		require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}
