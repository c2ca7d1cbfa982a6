// SPDX-License-Identifier: Apache-2.0

package printer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/agent"
	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

func TestOutput(t *testing.T) {
	// Without a terminal there is no table.
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

// One crash is one line, also if several containers crash at once, and for a failed
// start. Events about an exit follow it.
func TestCrashes(t *testing.T) {
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
		p.Recorder(pods[1]).Eventf(ref("main"), v1.EventTypeNormal, "Started", "Container started") // An event of another pod does not matter.
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
		p.Status(pods[0], podIs(v1.PodRunning, third, fourth)) // The last status: no wait follows.
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

// Lines are in the order of time, also if an exit is held until its wait is known.
func TestLinesAreInOrder(t *testing.T) {
	var out bytes.Buffer
	pods := []*v1.Pod{testPod("a", "web", "main"), testPod("a", "db", "main")}
	testPrinter(t, &out, Plain, nil, pods, func(t *testing.T, p *printed) {
		crash := func(pod *v1.Pod) agent.Status {
			return podIs(v1.PodRunning, agent.ContainerStatus{Name: "main", LastExit: exited(pod.Name, 1, p.clock.Now())})
		}
		web := crash(pods[0])
		p.Status(pods[0], web)
		p.step(time.Millisecond)
		db := crash(pods[1])
		p.Status(pods[1], db)
		p.step(time.Millisecond)
		p.Output(pods[1])("main", []byte("hello"))
		p.step(time.Millisecond)
		waits := web.Containers[0]
		waits.RetryAt = p.clock.Now().Add(10 * time.Second)
		p.Status(pods[0], podIs(v1.PodRunning, waits))

		web = crash(pods[0])
		web.Containers[0].LastExit.ContainerID = "next"
		p.Status(pods[0], web)
		p.step(time.Millisecond)
		p.Warn(nil, "", "Timeout", "--timeout is over")
		p.closed(t)
	})
	lines, _, _ := strings.Cut(out.String(), "\n\n")
	require.Equal(t, `    0.000s  web/main   Error             exited with code 1
    0.001s  db/main    Error             exited with code 1
    0.002s  db/main  | hello
    0.003s  web/main   CrashLoopBackOff  next restart in 10s
    0.003s  web/main   Error             exited with code 1
    0.004s  run        Timeout           --timeout is over`, lines)
}

// A name that two pods have comes with the namespace.
func TestPods(t *testing.T) {
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

// The exits that an earlier agent has reported are not reported again.
func TestAdoptedPod(t *testing.T) {
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

// Output is written unchanged, except above a table.
func TestOutputIsUnchanged(t *testing.T) {
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

// stuckWriter blocks until go is closed.
type stuckWriter struct {
	bytes.Buffer
	proceed chan struct{}
}

func (w *stuckWriter) Write(p []byte) (int, error) {
	<-w.proceed
	return w.Buffer.Write(p)
}

func TestOutputWaitsForTheWriterAndEventsDoNot(t *testing.T) {
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

			// The clock does not move: output does not wait for the table.
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

// Containers do not wait for a reader that does not read at all. The output counts the
// missing lines.
func TestOutputLeavesOutWhatIsNotRead(t *testing.T) {
	pod := testPod("default", "worker", "main")
	var w stuckWriter
	testPrinter(t, &w, Plain, nil, []*v1.Pod{pod}, func(t *testing.T, p *printed) {
		w.proceed = make(chan struct{})
		const lines = 3 * maxQueuedOutput / 1000
		line := bytes.Repeat([]byte("x"), 1000)
		for range lines {
			p.Output(pod)("main", line)
		}
		<-time.After(2 * stallAfter) // The writer still blocks.
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

// failingWriter fails after one write.
type failingWriter struct{ writes int }

func (w *failingWriter) Write(p []byte) (int, error) {
	if w.writes++; w.writes == 1 {
		return len(p), nil
	}
	return 0, errors.New("broken pipe")
}

func TestWriteError(t *testing.T) {
	pod := testPod("default", "worker", "main")
	var w failingWriter
	testPrinter(t, &w, Plain, nil, []*v1.Pod{pod}, func(t *testing.T, p *printed) {
		p.Warn(pod, "", "First", "")
		synctest.Wait()
		line := bytes.Repeat([]byte("x"), 1000)
		for range 3 * maxQueuedOutput / len(line) {
			p.Output(pod)("main", line) // It must not block.
			p.Warn(pod, "", "Another", "")
		}
		require.EqualError(t, p.Close(func(*v1.Pod) string { return "" }), "broken pipe")
	})
	require.Equal(t, 2, w.writes)
}

func TestAfterClose(t *testing.T) {
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
		<-stopped // Close ends the wait.
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

// Lines are complete, and those of each caller are in order.
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
