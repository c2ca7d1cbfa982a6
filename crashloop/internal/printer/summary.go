// SPDX-License-Identifier: Apache-2.0

package printer

import (
	"bytes"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/agent"
	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/text"
)

// Summary sums up the restarts of a container, or of a whole pod.
type Summary struct {
	Restarts      int     `json:"restarts"`
	WaitedSeconds float64 `json:"waitedSeconds"`
	// TimedRestarts is the number of restarts whose lateness is known. If it is 0, the
	// mean and worst lateness are missing.
	TimedRestarts        int      `json:"timedRestarts"`
	MeanLatenessSeconds  *float64 `json:"meanLatenessSeconds,omitempty"`
	WorstLatenessSeconds *float64 `json:"worstLatenessSeconds,omitempty"`
	// Logs is the directory of the pod's logs.
	Logs string `json:"logs,omitempty"`
}

// summary returns the end of the output. logs returns the directory of a pod's logs.
func (p *Printer) summary(logs func(*v1.Pod) string) []byte {
	var b bytes.Buffer
	for _, pod := range p.pods {
		s, ran := p.statuses[pod]
		if !ran {
			continue
		}
		if p.format == JSON {
			for _, c := range s.Containers {
				b.Write(p.appendJSON(nil, pod, summaryEvent(c.Name, c.Restarts)))
			}
			e := summaryEvent("", s.Restarts)
			e.Phase, e.Summary.Logs = s.Phase, logs(pod)
			b.Write(p.appendJSON(nil, pod, e))
			continue
		}
		phase := string(s.Phase)
		if !ended(s.Phase) {
			phase = "stopped"
		}
		fmt.Fprintf(&b, "\nPod %s %s\n", p.podName(pod), joinNonEmpty(": ", phase, s.Reason))
		tab := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		fmt.Fprintln(tab, "  CONTAINER\tRESTARTS\tWAITED\tMEAN LATENESS\tWORST LATENESS")
		for _, c := range s.Containers {
			writeRestarts(tab, c.Name, c.Restarts)
		}
		if s.Restarts.Count > 0 {
			writeRestarts(tab, "the whole pod", s.Restarts)
		}
		tab.Flush()
		fmt.Fprintf(&b, "  Logs: %s\n", text.Printable(logs(pod)))
	}
	return b.Bytes()
}

func writeRestarts(w io.Writer, name string, r agent.Restarts) {
	mean, worst := "-", "-"
	if r.Timed > 0 {
		mean, worst = milliseconds(meanLateness(r)), milliseconds(r.Worst)
	}
	fmt.Fprintf(w, "  %s\t%d\t%s\t%s\t%s\n", name, r.Count, waited(r), mean, worst)
}

func summaryEvent(container string, r agent.Restarts) Event {
	e := Event{
		Container: container, Type: v1.EventTypeNormal, Reason: reasonSummary,
		Message: fmt.Sprintf("restarts %d, waited %s", r.Count, waited(r)),
		Summary: &Summary{Restarts: r.Count, WaitedSeconds: r.Waited.Seconds(), TimedRestarts: r.Timed},
	}
	if r.Timed > 0 {
		mean, worst := meanLateness(r).Seconds(), r.Worst.Seconds()
		e.Summary.MeanLatenessSeconds, e.Summary.WorstLatenessSeconds = &mean, &worst
		e.Message += fmt.Sprintf(", mean lateness %s, worst %s", milliseconds(meanLateness(r)), milliseconds(r.Worst))
	}
	return e
}

func meanLateness(r agent.Restarts) time.Duration { return r.Late / time.Duration(r.Timed) }

func waited(r agent.Restarts) string { return text.Seconds(r.Waited.Round(time.Millisecond)) }

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}
