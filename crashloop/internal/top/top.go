// SPDX-License-Identifier: Apache-2.0

// Package top lists the containers that wait for a back-off or restarted lately, from what the
// API server has: pods and their events.
package top

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/plan"
)

// Window is the time for which restarts are counted. An API server keeps events as long.
const Window = time.Hour

// StartedReason is the reason of the kubelet's event for each start of a container.
const StartedReason = "Started"

// combined begins the message of an event for several containers of a pod, which has the field of
// one of them. Kubelets before v1.35 write such events for a pod with ten containers or more.
// Source: EventAggregatorByReasonMessageFunc in client-go.
const combined = "(combined from similar events): "

// The states of a row. A container that waits for something else has the reason as its state.
const (
	StateWaiting    = "CrashLoopBackOff"
	StateRunning    = "Running"
	StateTerminated = "Terminated"
	StateDeleted    = "Deleted"
)

// Row is a container. Scripts read its JSON form in the output of kubectl crashloop top: later
// versions may add fields; they do not rename or remove any.
type Row struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Container string `json:"container"`
	// ExitCode is that of the last exit. It is missing if the status has none.
	ExitCode *int32 `json:"exitCode,omitempty"`
	// Attempt is the number of the restart that a waiting container waits for, and of the
	// last restart of another container.
	Attempt int64  `json:"attempt"`
	State   string `json:"state"`
	// DelaySeconds and WaitsUntil are missing if the container does not wait, or if its
	// status does not have them.
	DelaySeconds float64    `json:"delaySeconds,omitempty"`
	WaitsUntil   *time.Time `json:"waitsUntil,omitempty"`
	// RestartsLastHour is a lower bound if AtLeast is true.
	RestartsLastHour int32 `json:"restartsLastHour"`
	AtLeast          bool  `json:"atLeast,omitempty"`
}

// Listed reports whether the container waits, or restarted in the Window.
func (r Row) Listed() bool { return r.State == StateWaiting || r.RestartsLastHour > 0 }

// Same reports whether two rows differ at most in the number of restarts.
func (r Row) Same(other Row) bool {
	r.RestartsLastHour, r.AtLeast = other.RestartsLastHour, other.AtLeast
	return reflect.DeepEqual(r, other)
}

// UID returns the UID of a pod in the events of its containers. The API server has a mirror of
// a static pod, with another UID and with the time at which the mirror was created.
func UID(pod *v1.Pod) types.UID {
	return cmp.Or(types.UID(pod.Annotations[v1.MirrorPodAnnotationKey]), pod.UID)
}

// key is a container.
type key struct {
	pod  types.UID
	name string
}

// sample is the restart count of a container at a time, and when its newest instance had started.
type sample struct {
	at       time.Time
	restarts int32
	started  metav1.Time
}

// History is what was seen of restarts. A pod's status has only their number, without times.
type History map[key]*seen

type seen struct {
	starts  []v1.Event
	samples []sample
}

// NewHistory returns a history with events. They must be older than the pods that Rows gets.
func NewHistory(events []v1.Event) History {
	h := History{}
	for _, e := range events {
		// The field is spec.containers{NAME} or spec.initContainers{NAME}.
		_, name, _ := strings.Cut(strings.TrimSuffix(e.InvolvedObject.FieldPath, "}"), "{")
		if e.Reason == StartedReason && !strings.HasPrefix(e.Message, combined) {
			c := h.of(key{e.InvolvedObject.UID, name})
			c.starts = append(c.starts, e)
		}
	}
	return h
}

func (h History) of(k key) *seen {
	if h[k] == nil {
		h[k] = &seen{}
	}
	return h[k]
}

// Retain forgets all pods but those to keep, by their UID.
func (h History) Retain(keep func(types.UID) bool) {
	maps.DeleteFunc(h, func(k key, _ *seen) bool { return !keep(k.pod) })
}

// Rows returns the containers of a pod. It adds their restart counts to the history.
func (h History) Rows(pod *v1.Pod, now time.Time) (rows []Row) {
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		r := Row{Namespace: pod.Namespace, Pod: pod.Name, Container: s.Name, Attempt: int64(s.RestartCount)}
		r.RestartsLastHour, r.AtLeast = h.restarts(pod, &s, now)
		for _, last := range []*v1.ContainerStateTerminated{s.LastTerminationState.Terminated, s.State.Terminated} {
			if last != nil {
				r.ExitCode = &last.ExitCode
			}
		}
		delay, since, waits := plan.Waiting(pod, &s)
		switch {
		case waits:
			r.State, r.DelaySeconds = StateWaiting, delay.Seconds()
			r.Attempt++
			// JSON has no times after 9999.
			if until := since.Add(delay).UTC(); delay > 0 && !since.IsZero() && until.Year() <= 9999 {
				r.WaitsUntil = &until
			}
		case s.State.Running != nil:
			r.State = StateRunning
		case s.State.Terminated != nil:
			r.State = StateTerminated
		case s.State.Waiting != nil:
			r.State = s.State.Waiting.Reason
		}
		rows = append(rows, r)
	}
	return rows
}

// Sort sorts rows by the end of the wait. Those without one come last.
func Sort(rows []Row) {
	order := func(r Row) string {
		switch {
		case r.WaitsUntil != nil:
			return "1" + r.WaitsUntil.UTC().Format(time.RFC3339)
		case r.State == StateWaiting:
			return "2"
		}
		return "3"
	}
	slices.SortStableFunc(rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(order(a), order(b)), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod))
	})
}

// restarts returns the number of restarts in the Window before now, or a lower bound and true.
func (h History) restarts(pod *v1.Pod, s *v1.ContainerStatus, now time.Time) (int32, bool) {
	begin := now.Add(-Window)
	c := h.of(key{UID(pod), s.Name})
	started := newestStart(s)
	if i := len(c.samples); i > 0 && c.samples[i-1].restarts > s.RestartCount {
		c.samples = nil // The kubelet has lost the count.
	}
	if i := len(c.samples); i == 0 || c.samples[i-1].restarts != s.RestartCount {
		c.samples = append(c.samples, sample{now, s.RestartCount, started})
	}
	// Of the samples before the window, only the last one counts.
	for len(c.samples) > 1 && !c.samples[1].at.After(begin) {
		c.samples = c.samples[1:]
	}
	known := started.Unix() > 0 // A runtime that does not know a time reports 1970-01-01.
	n := int64(s.RestartCount) - int64(c.samples[0].restarts)
	switch {
	case s.RestartCount == 0 || pod.CreationTimestamp.After(begin) && UID(pod) == pod.UID:
		return s.RestartCount, false
	case n == 0 && known && !started.After(begin):
		return 0, false
	case !c.samples[0].at.After(begin):
		return int32(n), false
	}
	// The kubelet writes the event of a start before the status, so the newest one may be of a
	// restart since the first sample.
	if n > 0 && slices.ContainsFunc(c.starts, func(e v1.Event) bool { return e.LastTimestamp.After(c.samples[0].started.Time) }) {
		n--
	}
	for _, e := range c.starts {
		switch {
		case e.FirstTimestamp.After(begin):
			n += int64(max(e.Count, 1))
		case e.LastTimestamp.After(begin):
			n++
		}
	}
	if known {
		n = max(n, 1)
	}
	// The first start of a container is none of its restarts.
	return int32(max(min(n, int64(s.RestartCount)), 0)), true
}

// newestStart returns when the newest instance of a container started, if that is known. An
// instance that could not start has only the time of its end.
func newestStart(s *v1.ContainerStatus) metav1.Time {
	last := cmp.Or(s.State.Terminated, s.LastTerminationState.Terminated)
	switch {
	case s.State.Running != nil:
		return s.State.Running.StartedAt
	case last == nil:
		return metav1.Time{}
	case last.StartedAt.Unix() > 0:
		return last.StartedAt
	}
	return last.FinishedAt
}
