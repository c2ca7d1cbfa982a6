// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/kubelet-backoff/kubelet-backoff/agent"
)

// The output formats of run beside outputTable.
const (
	outputJSON  = "json"
	outputPlain = "plain"
)

func runOutputFormats() []string { return []string{outputJSON, outputPlain, outputTable} }

// The reasons of what is not an event of the kubelet. Exits have that of
// v1.ContainerStateTerminated, waits that of v1.ContainerStateWaiting.
const (
	reasonCrashLoopBackOff = "CrashLoopBackOff"
	reasonPodSucceeded     = "PodSucceeded"
	reasonPodFailed        = "PodFailed"
	reasonSummary          = "Summary"
)

// maxQueuedOutput is how many bytes of the containers' output wait at most to
// be written. What is being written may be as much again.
const maxQueuedOutput = 256 << 10

// redrawPause is the least time between two drawings of the table, but where
// the output of containers would have to wait for it.
const redrawPause = 100 * time.Millisecond

// stallAfter is how long output waits for a writer that takes nothing, such as
// that of a terminal which was stopped. Afterwards lines are left out: the
// containers are not to wait for whoever reads.
const stallAfter = time.Second

// printer writes what happens to the pods of a run, in the order in which it is
// told. Its methods may be called concurrently, and but for Output return
// without waiting for the writer.
type printer struct {
	w      io.Writer
	format string
	// size is nil without a table.
	size  func() (columns, rows int)
	clock clock.WithTicker
	start time.Time
	pods  []*v1.Pod
	// labelWidth is how far what stands before a line's text is filled up.
	labelWidth int

	// wake has a value when there is something to write, full when a container
	// waits for that.
	wake, full    chan struct{}
	closing, done chan struct{}
	// unread is closed when nobody reads what is written any more.
	unread chan struct{}
	// screen and err are those of loop, until done is closed.
	screen screen
	err    error

	mu sync.Mutex
	// room tells that there is room for output again.
	room *sync.Cond
	// pending is what is to be written, and queuedOutput how much of it containers
	// wrote.
	pending      []byte
	queuedOutput int
	// writing is true during a write, and stalled as well when that takes longer
	// than stallAfter. leftOut is how many lines of output were not queued therefore.
	writing, stalled bool
	leftOut          int
	statuses         map[types.NamespacedName]agent.Status
	closed           bool
	// held are lines that may go on with a wait.
	held []heldLine
	// away is true as long as nothing is to be drawn, and left when the table that
	// was drawn is not to be touched any more.
	away, left bool
}

// heldLine is an exit or a failed start until the next status says what follows.
type heldLine struct {
	runEvent
	pod  *v1.Pod
	line []byte
	last bool // No other status is waited for.
}

// newPrinter returns a printer for these pods, whose names do not change any
// more. The format is one of runOutputFormats or empty, which is as outputTable.
// The size is that of the terminal; if it is nil there is none, and lines take
// the place of the table.
func newPrinter(w io.Writer, format string, pods []*v1.Pod, size func() (columns, rows int), c clock.WithTicker) *printer {
	p := &printer{
		w: w, format: format, clock: c, start: c.Now(), pods: pods,
		wake: make(chan struct{}, 1), full: make(chan struct{}, 1),
		closing: make(chan struct{}), done: make(chan struct{}), unread: make(chan struct{}),
		statuses: map[types.NamespacedName]agent.Status{},
	}
	p.room = sync.NewCond(&p.mu)
	if format == "" || format == outputTable {
		p.format = outputPlain
		if size != nil {
			p.format, p.size = outputTable, size
		}
	}
	for _, pod := range pods {
		p.labelWidth = max(p.labelWidth, len(p.label(pod, "")))
		for _, containers := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for _, c := range containers {
				p.labelWidth = max(p.labelWidth, len(p.label(pod, c.Name)))
			}
		}
	}
	p.labelWidth = min(p.labelWidth, 30) // A longer name moves its own lines alone.
	go p.loop()
	return p
}

// runEvent is a line of the JSON output. Fields are added, and neither renamed
// nor removed.
type runEvent struct {
	Time time.Time `json:"time"`
	// Pod is namespace/name. It is missing where all are concerned.
	Pod string `json:"pod,omitempty"`
	// Container is missing where the pod is concerned.
	Container string `json:"container,omitempty"`
	// Type is Normal or Warning.
	Type    string `json:"type"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// ExitCode, StartedAt and FinishedAt are those of an exit. RestartCount is how
	// often the container, or the pod, had been restarted at an exit or a wait.
	ExitCode     *int32    `json:"exitCode,omitempty"`
	RestartCount *int      `json:"restartCount,omitempty"`
	StartedAt    time.Time `json:"startedAt,omitzero"`
	FinishedAt   time.Time `json:"finishedAt,omitzero"`
	// RetryAt is when a wait ends.
	RetryAt time.Time `json:"retryAt,omitzero"`
	// Phase is that of a pod which has ended, or has at the end of the run.
	Phase v1.PodPhase `json:"phase,omitempty"`
	// Summary is there with the reason Summary: one for each container and one for
	// each pod.
	Summary *runSummary `json:"summary,omitempty"`
}

// recorder returns a recorder for the events of a pod. An object of theirs that
// refers to a container of the pod tells which.
func (p *printer) recorder(pod *v1.Pod) podRecorder { return podRecorder{p, pod} }

type podRecorder struct {
	printer *printer
	pod     *v1.Pod
}

// Eventf implements kuberuntime.EventRecorder.
func (r podRecorder) Eventf(object runtime.Object, eventType, reason, format string, args ...any) {
	container := ""
	if ref, ok := object.(*v1.ObjectReference); ok {
		_, after, _ := strings.Cut(ref.FieldPath, "{") // spec.containers{main}
		container = strings.TrimSuffix(after, "}")
	}
	r.printer.add(r.pod, runEvent{Container: container, Type: eventType, Reason: reason, Message: fmt.Sprintf(format, args...)})
}

// warn writes a warning that is no event of the kubelet. The pod may be nil and
// the container empty.
func (p *printer) warn(pod *v1.Pod, container, reason, message string) {
	p.add(pod, runEvent{Container: container, Type: v1.EventTypeWarning, Reason: reason, Message: message})
}

// output returns an Output for a pod. It waits while too much is queued, unless
// the writer is stalled. There is no output of containers in JSON: who wants it
// reads the logs.
//
// Lines are passed on byte by byte, as kubectl logs does it. Above a table
// control characters are escaped, for they could write over it.
func (p *printer) output(pod *v1.Pod) func(container string, line []byte) {
	return func(container string, line []byte) {
		if p.format == outputJSON {
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		for p.queuedOutput >= maxQueuedOutput && !p.closed && !p.stalled {
			notify(p.full)
			p.room.Wait()
		}
		if p.closed {
			return
		}
		if p.queuedOutput >= maxQueuedOutput {
			p.leftOut++
			return
		}
		before := len(p.pending)
		p.pending = fmt.Appendf(p.pending, "%9.3fs  %-*s | ", p.since().Seconds(), p.labelWidth, p.label(pod, container))
		if p.format == outputTable {
			p.pending = appendEscaped(p.pending, string(line), func(r rune) bool { return r == '\t' || !unicode.IsControl(r) })
		} else {
			p.pending = append(p.pending, line...)
		}
		p.pending = append(p.pending, '\n')
		p.queuedOutput += len(p.pending) - before
		notify(p.wake)
	}
}

// status takes a new status of a pod, which is not to be changed any more, and
// writes what is new in it: exits, waits, and the pod's end.
func (p *printer) status(pod *v1.Pod, s agent.Status) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	old, known := p.statuses[podKey(pod)]
	for i := range p.held {
		p.held[i].last = p.held[i].last || p.held[i].pod == pod
	}
	p.statuses[podKey(pod)] = s
	before := make(map[string]agent.ContainerStatus, len(old.Containers))
	for _, c := range old.Containers {
		before[c.Name] = c
	}
	for _, c := range s.Containers {
		// An agent that adopts a pod finds exits that are no news.
		if e := c.LastExit; e != nil && !sameExit(e, before[c.Name].LastExit) && (known || !e.FinishedAt.Time.Before(p.start)) {
			p.addLocked(pod, exitEvent(c))
		}
	}
	for _, c := range s.Containers {
		if !c.RetryAt.Equal(before[c.Name].RetryAt) {
			reason := reasonCrashLoopBackOff
			if w := c.State.Waiting; w != nil && w.Reason != "" {
				reason = w.Reason
			}
			p.addWaitLocked(pod, c.Name, reason, c.RetryAt, c.Restarts.Count)
		}
	}
	if !s.RetryAt.Equal(old.RetryAt) {
		p.addWaitLocked(pod, "", reasonCrashLoopBackOff, s.RetryAt, s.Restarts.Count)
	}
	p.releaseLocked(func(h heldLine) bool { return h.last })
	if s.Phase != old.Phase {
		message := joinNonEmpty(": ", s.Reason, s.Message)
		switch s.Phase {
		case v1.PodSucceeded:
			p.addLocked(pod, runEvent{Type: v1.EventTypeNormal, Reason: reasonPodSucceeded, Message: message, Phase: s.Phase})
		case v1.PodFailed:
			p.addLocked(pod, runEvent{Type: v1.EventTypeWarning, Reason: reasonPodFailed, Message: message, Phase: s.Phase})
		}
	}
	notify(p.wake) // For the table.
}

func sameExit(a, b *v1.ContainerStateTerminated) bool {
	return b != nil && a.ContainerID == b.ContainerID && a.FinishedAt.Equal(&b.FinishedAt)
}

func exitEvent(c agent.ContainerStatus) runEvent {
	t := c.LastExit
	e := runEvent{
		Container: c.Name, Type: v1.EventTypeWarning, Reason: t.Reason,
		Message:  joinNonEmpty(": ", fmt.Sprintf("exited with code %d", t.ExitCode), strings.TrimSpace(t.Message)),
		ExitCode: &t.ExitCode, RestartCount: &c.Restarts.Count,
		StartedAt: t.StartedAt.Time, FinishedAt: t.FinishedAt.Time,
	}
	if t.ExitCode == 0 {
		e.Type = v1.EventTypeNormal
	}
	return e
}

// addWaitLocked adds that a wait began, or nothing when retryAt says that one
// ended.
func (p *printer) addWaitLocked(pod *v1.Pod, container, reason string, retryAt time.Time, restarts int) {
	if retryAt.IsZero() {
		return
	}
	wait := max(0, retryAt.Sub(p.clock.Now())).Round(100 * time.Millisecond)
	message := "next restart in " + seconds(metav1.Duration{Duration: wait})
	for i := range p.held {
		if h := &p.held[i]; h.pod == pod && h.Container == container {
			h.line = append(h.line, ", "+message...)
			return
		}
	}
	p.addLocked(pod, runEvent{
		Container: container, Type: v1.EventTypeWarning, Reason: reason,
		Message: message, RestartCount: &restarts, RetryAt: retryAt,
	})
}

func (p *printer) add(pod *v1.Pod, e runEvent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.addLocked(pod, e)
}

func (p *printer) addLocked(pod *v1.Pod, e runEvent) {
	if p.closed {
		return
	}
	defer notify(p.wake)
	if p.format == outputJSON {
		p.pending = p.appendJSON(p.pending, pod, e)
		return
	}
	switch e.Reason {
	case "BackOff", "Created": // The line of the exit says it, or Started is next.
		return
	}
	line := fmt.Appendf(nil, "%9.3fs  %-*s   %-16s  ", p.since().Seconds(), p.labelWidth, p.label(pod, e.Container), e.Reason)
	line = []byte(strings.TrimRight(string(line)+printable(strings.TrimSpace(e.Message)), " "))
	failed := e.Reason == "Failed" && e.Container != ""
	if !failed && e.ExitCode == nil {
		p.releaseLocked(func(h heldLine) bool { return h.pod == pod })
		p.pending = append(append(p.pending, line...), '\n')
		return
	}
	// The exit of what could not be started says what the event has said.
	p.held = slices.DeleteFunc(p.held, func(h heldLine) bool {
		return h.pod == pod && h.Container == e.Container && h.ExitCode == nil && e.Reason == agent.ReasonStartError
	})
	p.held = append(p.held, heldLine{runEvent: e, pod: pod, line: line})
}

// releaseLocked writes those of the lines that are held.
func (p *printer) releaseLocked(those func(heldLine) bool) {
	p.held = slices.DeleteFunc(p.held, func(h heldLine) bool {
		if !those(h) {
			return false
		}
		p.pending = append(append(p.pending, h.line...), '\n')
		return true
	})
}

// leave has the table that is on the terminal stay there, and the next one drawn
// below all that others write. With away it is not drawn until the next call.
func (p *printer) leave(away bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away, p.left = away, true
	notify(p.wake)
}

func (p *printer) appendJSON(to []byte, pod *v1.Pod, e runEvent) []byte {
	e.Time = p.clock.Now().UTC()
	e.StartedAt, e.FinishedAt, e.RetryAt = e.StartedAt.UTC(), e.FinishedAt.UTC(), e.RetryAt.UTC()
	if pod != nil {
		e.Pod = podKey(pod).String()
	}
	b := bytes.NewBuffer(to)
	encoder := json.NewEncoder(b)
	encoder.SetEscapeHTML(false)
	must(encoder.Encode(e))
	return b.Bytes()
}

func (p *printer) since() time.Duration { return p.clock.Since(p.start) }

// label is what tells a line's container or pod: the container alone where
// there is one pod, and the namespace where two have the same name.
func (p *printer) label(pod *v1.Pod, container string) string {
	switch {
	case pod == nil:
		return "run"
	case len(p.pods) > 1:
		return joinNonEmpty("/", p.podName(pod), container)
	case container == "":
		return "pod"
	default:
		return container
	}
}

func (p *printer) podName(pod *v1.Pod) string {
	for _, other := range p.pods {
		if other.Name == pod.Name && other.Namespace != pod.Namespace {
			return podKey(pod).String()
		}
	}
	return pod.Name
}

func podKey(pod *v1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}

func joinNonEmpty(sep string, parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), sep)
}

func ended(phase v1.PodPhase) bool { return phase == v1.PodSucceeded || phase == v1.PodFailed }

// notify puts a value into a channel of capacity 1 unless it has one.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
