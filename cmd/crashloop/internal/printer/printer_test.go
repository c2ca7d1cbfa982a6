// SPDX-License-Identifier: Apache-2.0

package printer

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
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

// printed is a printer with a clock that the test moves.
type printed struct {
	*Printer
	clock *testingclock.FakeClock
	// stepped is called after each step, if it is not nil.
	stepped func()
}

// testPrinter runs f in a bubble, in which step waits until the printer has
// nothing more to do.
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

// step moves the clock when the printer has done what it can, and returns when it
// has again. By redrawPause or more, all that it was told before is written.
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

// scenario has all that a pod can go through: an init container, a start error,
// a back-off, a restart of the whole pod that waits, a probe that fails, the end.
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

	p.Warn(nil, "", "NotHonoured", "not honoured by the process runtime: spec.containers.image")
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
	p.Status(pod, agent.Status{Phase: v1.PodRunning, Containers: []agent.ContainerStatus{setup, main}}) // What follows is in the next one.
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

func TestOutput(t *testing.T) {
	// Without a terminal a table would be of no use.
	for format, golden := range map[string]string{Table: "plain", Plain: "plain", JSON: "json"} {
		t.Run("format "+format, func(t *testing.T) {
			var out bytes.Buffer
			testPrinter(t, &out, format, nil, []*v1.Pod{scenarioPod()}, func(t *testing.T, p *printed) {
				scenario(p)
				p.closed(t)
			})
			compareGolden(t, golden, out.String())
		})
	}
	t.Run("lines on a terminal", func(t *testing.T) {
		var out bytes.Buffer
		size := func() (int, int) { return 80, 24 }
		testPrinter(t, &out, Plain, size, []*v1.Pod{scenarioPod()}, func(t *testing.T, p *printed) {
			scenario(p)
			p.closed(t)
		})
		compareGolden(t, "plain", out.String())
	})
}

func TestJSONLines(t *testing.T) {
	var out bytes.Buffer
	testPrinter(t, &out, JSON, nil, []*v1.Pod{scenarioPod()}, func(t *testing.T, p *printed) {
		scenario(p)
		p.closed(t)
	})
	last := ""
	for line := range strings.Lines(out.String()) {
		var e Event
		require.NoError(t, json.Unmarshal([]byte(line), &e), line)
		require.False(t, e.Time.IsZero(), line)
		require.Contains(t, []string{v1.EventTypeNormal, v1.EventTypeWarning}, e.Type, line)
		last = e.Reason
	}
	require.Equal(t, reasonSummary, last)
}

// Pods of one name are told apart by their namespaces.
// One crash is one line, also of several containers at once and of a start that
// failed. What an exit has to do with comes after it.
func TestOfCrashes(t *testing.T) {
	var out bytes.Buffer
	pods := []*v1.Pod{testPod("a", "web", "one", "two"), testPod("a", "db", "main")}
	testPrinter(t, &out, Plain, nil, pods, func(t *testing.T, p *printed) {
		crashed := func(name string, code int32) agent.ContainerStatus {
			s := agent.ContainerStatus{Name: name, Kind: restartpod.KindRegular, LastExit: exited(name+"0", code, p.clock.Now())}
			s.State = v1.ContainerState{Terminated: s.LastExit}
			return s
		}
		waits := func(s agent.ContainerStatus, d time.Duration) agent.ContainerStatus {
			s.State, s.RetryAt = waiting("CrashLoopBackOff"), p.clock.Now().Add(d)
			return s
		}
		one, two := crashed("one", 1), crashed("two", 2)
		ref := func(name string) *v1.ObjectReference {
			return &v1.ObjectReference{FieldPath: "spec.containers{" + name + "}"}
		}
		p.Status(pods[0], podIs(v1.PodRunning, one, two))
		p.Recorder(pods[0]).Eventf(ref("one"), v1.EventTypeWarning, "BackOff", "Back-off restarting failed container one")
		p.Recorder(pods[1]).Eventf(ref("main"), v1.EventTypeNormal, "Started", "Container started") // Another pod's is not in the way.
		p.Status(pods[0], podIs(v1.PodRunning, waits(one, 10*time.Second), waits(two, 20*time.Second)))

		p.Recorder(pods[1]).Eventf(ref("main"), v1.EventTypeWarning, "Failed", "Error: no such file")
		p.Status(pods[1], podIs(v1.PodRunning, agent.ContainerStatus{Name: "main", State: waiting("CreateContainerError"), RetryAt: p.clock.Now().Add(5 * time.Second)}))
		p.Status(pods[1], podIs(v1.PodRunning))
		p.Recorder(pods[1]).Eventf(ref("main"), v1.EventTypeWarning, "Failed", "Error: no such program")
		failed := crashed("main", agent.ExitCodeStartError)
		failed.LastExit.Reason, failed.LastExit.Message = agent.ReasonStartError, "no such program"
		p.Status(pods[1], podIs(v1.PodRunning, failed))
		p.Status(pods[1], podIs(v1.PodRunning, waits(failed, 40*time.Second)))

		third := crashed("one", 3)
		third.LastExit.ContainerID = "one1"
		p.Status(pods[0], podIs(v1.PodRunning, third, waits(two, 20*time.Second)))
		p.Recorder(pods[0]).Eventf(pods[0], v1.EventTypeNormal, "PodRestarting", "Container one exited with code 3, triggering pod restart")
		fourth := crashed("two", 4)
		fourth.LastExit.ContainerID = "two1"
		p.Status(pods[0], podIs(v1.PodRunning, third, fourth)) // The last: nothing follows.
		p.closed(t)
	})
	lines, _, _ := strings.Cut(out.String(), "\n\n")
	require.Equal(t, `    0.000s  db/main   Started           Container started
    0.000s  web/one   Error             exited with code 1, next restart in 10s
    0.000s  web/two   Error             exited with code 2, next restart in 20s
    0.000s  db/main   Failed            Error: no such file, next restart in 5s
    0.000s  db/main   StartError        exited with code 128: no such program, next restart in 40s
    0.000s  web/one   Error             exited with code 3
    0.000s  web       PodRestarting     Container one exited with code 3, triggering pod restart
    0.000s  web/two   Error             exited with code 4`, lines)
}

func TestOfPods(t *testing.T) {
	pods := []*v1.Pod{testPod("a", "web", "main"), testPod("b", "web", "main", "x"), testPod("a", "db", "main")}
	var out bytes.Buffer
	testPrinter(t, &out, Plain, nil, pods, func(t *testing.T, p *printed) {
		for _, pod := range pods {
			p.Recorder(pod).Eventf(&v1.ObjectReference{FieldPath: "spec.containers{main}"}, v1.EventTypeNormal, "Started", "Container started")
			p.Output(pod)("main", []byte("hello"))
			p.Status(pod, podIs(v1.PodSucceeded, agent.ContainerStatus{Name: "main", State: running()}))
		}
		p.closed(t)
	})
	compareGolden(t, "pods", out.String())
}

// An agent that adopts a pod is told of exits that its predecessor told of.
func TestOfAdoptedPod(t *testing.T) {
	pod := testPod("default", "worker", "old", "new")
	var out bytes.Buffer
	testPrinter(t, &out, Plain, nil, []*v1.Pod{pod}, func(t *testing.T, p *printed) {
		before := p.clock.Now().Add(-time.Second)
		p.step(time.Second)
		c := agent.ContainerStatus{Name: "old", LastExit: exited("1", 3, before), RetryAt: p.clock.Now().Add(9 * time.Second)}
		p.Status(pod, podIs(v1.PodRunning, c, agent.ContainerStatus{Name: "new", LastExit: exited("2", 4, p.clock.Now())}))
		synctest.Wait()
		require.Equal(t, "    1.000s  new   Error             exited with code 4\n"+
			"    1.000s  old   CrashLoopBackOff  next restart in 9s\n", out.String())
		p.closed(t)
	})
}

// What a container writes goes through as it is, but on a terminal with a table.
func TestIsUnchanged(t *testing.T) {
	pod := testPod("default", "worker", "main")
	var out bytes.Buffer
	testPrinter(t, &out, Plain, nil, []*v1.Pod{pod}, func(t *testing.T, p *printed) {
		line := []byte("\x1b[31mred\x1b[0m \xff\x00\r")
		p.Output(pod)("main", line)
		copy(line, "overwritten")
		p.closed(t)
	})
	require.True(t, strings.HasPrefix(out.String(), "    0.000s  main | \x1b[31mred\x1b[0m \xff\x00\r\n"), "%q", out.String())
}

// stuckWriter takes nothing until go is closed.
type stuckWriter struct {
	bytes.Buffer
	proceed chan struct{}
}

func (w *stuckWriter) Write(p []byte) (int, error) {
	<-w.proceed
	return w.Buffer.Write(p)
}

func TestWaitsForTheWriterAndEventsDoNot(t *testing.T) {
	pod := testPod("default", "worker", "main")
	for _, size := range []func() (int, int){nil, func() (int, int) { return 80, 24 }} {
		var w stuckWriter
		testPrinter(t, &w, Table, size, []*v1.Pod{pod}, func(t *testing.T, p *printed) {
			w.proceed = make(chan struct{})
			const lines = 3 * maxQueuedOutput / 1000
			line := strings.Repeat("x", 1000)
			sent, done := 0, make(chan struct{})
			go func() {
				defer close(done)
				for sent < lines {
					p.Output(pod)("main", fmt.Appendf(nil, "%d %s", sent, line))
					sent++
				}
			}()
			synctest.Wait()
			require.Less(t, sent, lines)
			require.Less(t, len(p.pending), maxQueuedOutput+2000)
			for range 1000 {
				p.Status(pod, podIs(v1.PodRunning, agent.ContainerStatus{Name: "main", State: running()}))
				p.Warn(pod, "main", "Event", "told")
			}
			require.NotContains(t, w.String(), "told")

			// The clock stands: the table is no reason to wait.
			close(w.proceed)
			<-done
			synctest.Wait()
			p.closed(t)
			require.Equal(t, 1000, strings.Count(w.String(), "told"))
			next := 0
			for l := range strings.Lines(w.String()) {
				if _, text, ok := strings.Cut(l, "main | "); ok {
					require.Equal(t, fmt.Sprintf("%d %s\n", next, line), text)
					next++
				}
			}
			require.Equal(t, lines, next)
		})
	}
}

// Containers do not wait for who does not read at all. What he misses is said.
func TestLeavesOutWhatIsNotRead(t *testing.T) {
	pod := testPod("default", "worker", "main")
	var w stuckWriter
	testPrinter(t, &w, Plain, nil, []*v1.Pod{pod}, func(t *testing.T, p *printed) {
		w.proceed = make(chan struct{})
		const lines = 3 * maxQueuedOutput / 1000
		line := bytes.Repeat([]byte("x"), 1000)
		for range lines {
			p.Output(pod)("main", line)
		}
		<-time.After(2 * stallAfter) // The writer is as stuck as before.
		p.Output(pod)("main", line)
		close(w.proceed)
		synctest.Wait()
		p.Output(pod)("main", []byte("afterwards"))
		p.closed(t)
		written := strings.Count(w.String(), "main | x")
		require.Positive(t, written)
		require.Contains(t, w.String(), fmt.Sprintf("OutputLeftOut     %d lines of output were not read in time; they are in the logs\n", lines+1-written))
		require.Contains(t, w.String(), "main | afterwards\n")
	})
}

// failingWriter takes one write.
type failingWriter struct{ writes int }

func (w *failingWriter) Write(p []byte) (int, error) {
	if w.writes++; w.writes == 1 {
		return len(p), nil
	}
	return 0, errors.New("broken pipe")
}

func TestThatIsNotWritten(t *testing.T) {
	pod := testPod("default", "worker", "main")
	var w failingWriter
	testPrinter(t, &w, Plain, nil, []*v1.Pod{pod}, func(t *testing.T, p *printed) {
		p.Warn(pod, "", "First", "")
		synctest.Wait()
		line := bytes.Repeat([]byte("x"), 1000)
		for range 3 * maxQueuedOutput / len(line) {
			p.Output(pod)("main", line) // It would wait for ever.
			p.Warn(pod, "", "Another", "")
		}
		require.EqualError(t, p.Close(func(*v1.Pod) string { return "" }), "broken pipe")
	})
	require.Equal(t, 2, w.writes)
}

func TestAfterItsEnd(t *testing.T) {
	pod := testPod("default", "worker", "main")
	var w stuckWriter
	testPrinter(t, &w, Plain, nil, []*v1.Pod{pod}, func(t *testing.T, p *printed) {
		w.proceed = make(chan struct{})
		p.Status(pod, podIs(v1.PodRunning))
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			for range 3 * maxQueuedOutput / 1000 {
				p.Output(pod)("main", bytes.Repeat([]byte("x"), 1000))
			}
		}()
		synctest.Wait()
		closed := make(chan error)
		go func() { closed <- p.Close(func(*v1.Pod) string { return "/logs" }) }()
		<-stopped // Nothing waits for a printer that ends.
		p.Recorder(pod).Eventf(pod, v1.EventTypeNormal, "TooLate", "")
		p.Status(pod, podIs(v1.PodFailed))
		close(w.proceed)
		require.NoError(t, <-closed)
	})
	require.NotContains(t, w.String(), "TooLate")
	require.NotContains(t, w.String(), "Failed")
	require.Contains(t, w.String(), "Pod worker stopped\n")
	require.True(t, strings.HasSuffix(w.String(), "  Logs: /logs\n"))
}

// Lines are whole, and those of each caller in their order.
func TestConcurrently(t *testing.T) {
	pods := []*v1.Pod{testPod("a", "p0", "c"), testPod("a", "p1", "c"), testPod("a", "p2", "c"), testPod("a", "p3", "c")}
	for _, format := range Formats() {
		var out bytes.Buffer
		testPrinter(t, &out, format, nil, pods, func(t *testing.T, p *printed) {
			var all sync.WaitGroup
			for _, pod := range pods {
				all.Go(func() {
					for i := range 100 {
						p.Output(pod)("c", []byte("text"))
						p.Recorder(pod).Eventf(pod, v1.EventTypeNormal, "Told", "%s %d.", pod.Name, i)
						p.Status(pod, podIs(v1.PodRunning, agent.ContainerStatus{Name: "c"}))
					}
				})
			}
			all.Wait()
			p.closed(t)
		})
		for _, pod := range pods {
			from := 0
			for i := range 100 {
				at := strings.Index(out.String()[from:], fmt.Sprintf("%s %d.", pod.Name, i))
				require.GreaterOrEqual(t, at, 0, "%s: %s %d", format, pod.Name, i)
				from += at
			}
		}
	}
}
