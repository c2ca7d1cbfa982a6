// SPDX-License-Identifier: Apache-2.0

// Package printer writes the events of a run: as lines, as JSON, or on a terminal as
// lines above a table that is redrawn when it changes.
package printer

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/kubelet-backoff/kubelet-backoff/agent"
	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/text"
	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

// The output formats. Table is the same as Plain if the output is not a terminal.
const (
	JSON  = "json"
	Plain = "plain"
	Table = "table"
)

// Formats returns the output formats.
func Formats() []string { return []string{JSON, Plain, Table} }

const (
	// maxQueuedOutput limits the queued bytes of the containers' output. The current
	// write may have as many bytes more.
	maxQueuedOutput = 256 << 10
	// redrawPause is the shortest time between two redraws of the table, unless a
	// container waits until its output is written.
	redrawPause = 100 * time.Millisecond
	// stallAfter is the time for which the output of containers waits for a write that
	// does not return, for example to a stopped terminal. Then lines are dropped, so
	// that a slow reader cannot block a container.
	stallAfter = time.Second
)

// control matches a control character except a tab, and invalid UTF-8, which regexp reads as U+FFFD.
var control = regexp.MustCompile(`[\x00-\x08\x0a-\x1f\x7f-\x9f\x{fffd}]`)

// Printer writes the events of a run in the order in which its methods are called. The
// methods may be called concurrently. Only the function that Output returns waits for the
// writer.
type Printer struct {
	w      io.Writer
	format string
	// size is nil if there is no table.
	size  func() (columns, rows int)
	clock clock.WithTicker
	start time.Time
	pods  []*v1.Pod
	// labelWidth is the width of the column with the labels.
	labelWidth int

	// wake has a value if there is something to write. full has a value if a container
	// waits.
	wake, full    chan struct{}
	closing, done chan struct{}
	// screen and err belong to loop until done is closed.
	screen screen
	err    error

	mu sync.Mutex
	// room signals that queuedOutput is lower, or that output does not have to wait.
	room *sync.Cond
	// pending is not written yet. queuedOutput of its bytes are output of containers.
	pending      []byte
	queuedOutput int
	// writing is true during a write, and stalled if the write takes longer than
	// stallAfter. leftOut counts the dropped lines.
	writing, stalled bool
	leftOut          int
	statuses         map[*v1.Pod]agent.Status
	closed           bool
	// held are the lines to which a wait may be appended.
	held []heldLine
}

// heldLine is the line of an exit or a failed start. It is held until the next
// status has the wait that follows.
type heldLine struct {
	Event
	pod  *v1.Pod
	at   time.Duration
	line []byte
	last bool // The line is written after the next status.
}

// New returns a printer for these pods. The format is one of Formats. size returns the
// size of the terminal, and is nil if there is no terminal.
func New(w io.Writer, format string, pods []*v1.Pod, size func() (columns, rows int), c clock.WithTicker) *Printer {
	p := &Printer{
		w: w, format: format, clock: c, start: c.Now(), pods: pods,
		wake: make(chan struct{}, 1), full: make(chan struct{}, 1),
		closing: make(chan struct{}), done: make(chan struct{}),
		statuses: map[*v1.Pod]agent.Status{},
	}
	p.room = sync.NewCond(&p.mu)
	if format == Table && size == nil {
		p.format = Plain
	} else if format == Table {
		p.size = size
	}
	for _, pod := range pods {
		p.labelWidth = max(p.labelWidth, len(p.label(pod, "")))
		for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			p.labelWidth = max(p.labelWidth, len(p.label(pod, c.Name)))
		}
	}
	p.labelWidth = min(p.labelWidth, 30) // A longer name moves only its own lines.
	go p.loop()
	return p
}

// Warn writes a warning of crashloop itself. The pod may be nil, and the container may be
// empty.
func (p *Printer) Warn(pod *v1.Pod, container, reason, message string) {
	p.add(pod, Event{Container: container, Type: v1.EventTypeWarning, Reason: reason, Message: message})
}

// WarnRunning writes a warning for each running container of a pod. Sidecars are left out,
// because they wait for the others to stop.
func (p *Printer) WarnRunning(pod *v1.Pod, message string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.statuses[pod].Containers {
		if c.State.Running != nil && c.Kind != restartpod.KindSidecar {
			p.addLocked(pod, Event{Container: c.Name, Type: v1.EventTypeWarning, Reason: ReasonStillRunning, Message: message})
		}
	}
}

// Output returns a function that writes a line of a container's output. The function
// blocks while too much output is queued, unless a write is stalled. With JSON it drops
// all lines, because they are in the logs.
//
// Lines are written byte for byte, as by kubectl logs. With a table, control characters
// are escaped, because they could overwrite it.
func (p *Printer) Output(pod *v1.Pod) func(container string, line []byte) {
	return func(container string, line []byte) {
		if p.format == JSON {
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
		at := p.since()
		p.releaseLocked(func(h heldLine) bool { return h.at < at })
		before := len(p.pending)
		p.pending = fmt.Appendf(p.pending, "%9.3fs  %-*s | ", at.Seconds(), p.labelWidth, p.label(pod, container))
		if p.format == Table {
			line = control.ReplaceAllFunc(line, func(c []byte) []byte { return []byte(text.Printable(string(c))) })
		}
		p.pending = append(append(p.pending, line...), '\n')
		p.queuedOutput += len(p.pending) - before
		notify(p.wake)
	}
}

// Status writes the exits, the waits and the end of the pod that are new in a status. The
// caller must not modify the status afterwards.
func (p *Printer) Status(pod *v1.Pod, s agent.Status) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	old, known := p.statuses[pod]
	for i := range p.held {
		p.held[i].last = p.held[i].last || p.held[i].pod == pod
	}
	p.statuses[pod] = s
	before := make(map[string]agent.ContainerStatus, len(old.Containers))
	for _, c := range old.Containers {
		before[c.Name] = c
	}
	for _, c := range s.Containers {
		// An agent that adopts a pod also reports exits before this run.
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
	if s.Phase != old.Phase && ended(s.Phase) {
		e := Event{Type: v1.EventTypeNormal, Reason: "Pod" + string(s.Phase), Message: joinNonEmpty(": ", s.Reason, s.Message), Phase: s.Phase}
		if s.Phase == v1.PodFailed {
			e.Type = v1.EventTypeWarning
		}
		p.addLocked(pod, e)
	}
	notify(p.wake) // The table may have changed.
}

func (p *Printer) add(pod *v1.Pod, e Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.addLocked(pod, e)
}

func (p *Printer) addLocked(pod *v1.Pod, e Event) {
	if p.closed {
		return
	}
	defer notify(p.wake)
	if p.format == JSON {
		p.pending = p.appendJSON(p.pending, pod, e)
		return
	}
	switch e.Reason {
	case "BackOff", "Created": // The line of the exit has the wait, and Started follows Created.
		return
	}
	at := p.since()
	line := fmt.Appendf(nil, "%9.3fs  %-*s   %-16s  ", at.Seconds(), p.labelWidth, p.label(pod, e.Container), e.Reason)
	line = []byte(strings.TrimRight(string(line)+text.Printable(strings.TrimSpace(e.Message)), " "))
	failed := e.Reason == "Failed" && e.Container != ""
	if !failed && e.ExitCode == nil {
		p.releaseLocked(func(h heldLine) bool { return h.pod == pod || h.at < at })
		p.pending = append(append(p.pending, line...), '\n')
		return
	}
	// A start error is both an event and an exit with the same message.
	p.held = slices.DeleteFunc(p.held, func(h heldLine) bool {
		return h.pod == pod && h.Container == e.Container && h.ExitCode == nil && e.Reason == agent.ReasonStartError
	})
	p.held = append(p.held, heldLine{Event: e, pod: pod, at: at, line: line})
}

// addWaitLocked adds the start of a wait. If the line of its cause is still held, it adds
// the wait to that line. A zero retryAt is the end of a wait and adds nothing.
func (p *Printer) addWaitLocked(pod *v1.Pod, container, reason string, retryAt time.Time, restarts int) {
	if retryAt.IsZero() {
		return
	}
	wait := max(0, retryAt.Sub(p.clock.Now())).Round(100 * time.Millisecond)
	message := "next restart in " + text.Seconds(wait)
	for i := range p.held {
		if h := &p.held[i]; h.pod == pod && h.Container == container {
			h.line = append(h.line, ", "+message...)
			return
		}
	}
	p.addLocked(pod, Event{
		Container: container, Type: v1.EventTypeWarning, Reason: reason,
		Message: message, RestartCount: &restarts, RetryAt: retryAt,
	})
}

// releaseLocked writes the held lines up to the last one that matches, so that lines stay
// in the order of time.
func (p *Printer) releaseLocked(match func(heldLine) bool) {
	n := 0
	for i, h := range p.held {
		if match(h) {
			n = i + 1
		}
	}
	for _, h := range p.held[:n] {
		p.pending = append(append(p.pending, h.line...), '\n')
	}
	p.held = slices.Delete(p.held, 0, n)
}

// since returns the time of a line, as precise as it is printed.
func (p *Printer) since() time.Duration { return p.clock.Since(p.start).Round(time.Millisecond) }

// label returns the label of a line: the container or, if there are several pods, the pod
// and the container.
func (p *Printer) label(pod *v1.Pod, container string) string {
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

// podName returns the name of a pod, with its namespace if another pod has the same name.
func (p *Printer) podName(pod *v1.Pod) string {
	for _, other := range p.pods {
		if other.Name == pod.Name && other.Namespace != pod.Namespace {
			return pod.Namespace + "/" + pod.Name
		}
	}
	return pod.Name
}

func joinNonEmpty(sep string, parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), sep)
}

func ended(phase v1.PodPhase) bool { return phase == v1.PodSucceeded || phase == v1.PodFailed }

// notify sends a value to a channel with a buffer of one, unless the buffer is full.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
