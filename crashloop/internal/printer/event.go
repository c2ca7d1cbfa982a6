// SPDX-License-Identifier: Apache-2.0

package printer

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubelet-backoff/kubelet-backoff/agent"
	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/text"
	"github.com/kubelet-backoff/kubelet-backoff/restart"
)

// ReasonStillRunning is the reason of a warning of WarnRunning.
const ReasonStillRunning = "StillRunning"

// The other reasons of lines that are not events of the kubelet. An exit has the reason in
// v1.ContainerStateTerminated, and a wait has the reason in v1.ContainerStateWaiting.
const (
	reasonCrashLoopBackOff = "CrashLoopBackOff"
	reasonSummary          = "Summary"
)

// Event is a line of the JSON output. Later versions may add fields; they do not
// rename or remove any.
type Event struct {
	Time time.Time `json:"time"`
	// Pod is namespace/name. It is missing if the event is about the whole run.
	Pod string `json:"pod,omitempty"`
	// Container is missing if the event is about the pod.
	Container string `json:"container,omitempty"`
	// Type is Normal or Warning.
	Type    string `json:"type"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// ExitCode, StartedAt and FinishedAt are set for an exit. RestartCount is set for an
	// exit or a wait. It is the number of earlier restarts of the container or the pod.
	ExitCode     *int32    `json:"exitCode,omitempty"`
	RestartCount *int      `json:"restartCount,omitempty"`
	StartedAt    time.Time `json:"startedAt,omitzero"`
	FinishedAt   time.Time `json:"finishedAt,omitzero"`
	// RetryAt is the end of a wait.
	RetryAt time.Time `json:"retryAt,omitzero"`
	// Phase is the phase of a pod that has ended, or of any pod at the end of the run.
	Phase v1.PodPhase `json:"phase,omitempty"`
	// Summary is set for the reason Summary: one event per container and per pod.
	Summary *Summary `json:"summary,omitempty"`
}

// Recorder returns a recorder for the events of a pod.
func (p *Printer) Recorder(pod *v1.Pod) restart.EventRecorder { return recorder{p, pod} }

type recorder struct {
	printer *Printer
	pod     *v1.Pod
}

// Eventf implements restart.EventRecorder.
func (r recorder) Eventf(object runtime.Object, eventType, reason, format string, args ...any) {
	container := ""
	if ref, ok := object.(*v1.ObjectReference); ok {
		_, after, _ := strings.Cut(ref.FieldPath, "{") // spec.containers{main}
		container = strings.TrimSuffix(after, "}")
	}
	r.printer.add(r.pod, Event{Container: container, Type: eventType, Reason: reason, Message: fmt.Sprintf(format, args...)})
}

func sameExit(a, b *v1.ContainerStateTerminated) bool {
	return b != nil && a.ContainerID == b.ContainerID && a.FinishedAt.Equal(&b.FinishedAt)
}

func exitEvent(c agent.ContainerStatus) Event {
	t := c.LastExit
	e := Event{
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

func (p *Printer) appendJSON(to []byte, pod *v1.Pod, e Event) []byte {
	e.Time = p.clock.Now().UTC()
	e.StartedAt, e.FinishedAt, e.RetryAt = e.StartedAt.UTC(), e.FinishedAt.UTC(), e.RetryAt.UTC()
	if pod != nil {
		e.Pod = pod.Namespace + "/" + pod.Name
	}
	b := bytes.NewBuffer(to)
	if err := text.WriteJSON(b, "", e); err != nil {
		panic(err) // Every Event has a JSON form.
	}
	return b.Bytes()
}
