// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/node"
)

// kubeletLog returns a function that reads the kubelet's log from now on, including the
// logs of later kubelets.
func (e *e2e) kubeletLog(t *testing.T) func() string {
	t.Helper()
	log, err := os.Open(filepath.Join(e.Spec.Logs, "kubelet.log"))
	require.NoError(t, err)
	t.Cleanup(func() { log.Close() })
	from, err := log.Seek(0, io.SeekEnd)
	require.NoError(t, err)
	return func() string {
		t.Helper()
		_, err := log.Seek(from, io.SeekStart)
		require.NoError(t, err)
		text, err := io.ReadAll(log)
		require.NoError(t, err)
		return string(text)
	}
}

// errorsOf returns the lines at error level about a pod.
func errorsOf(log string, p *pod) (found []string) {
	for line := range strings.Lines(log) {
		if strings.HasPrefix(line, "E") && (strings.Contains(line, p.name) || strings.Contains(line, string(p.uid))) {
			found = append(found, line)
		}
	}
	return found
}

// backOffEvents returns the pod's events with reason BackOff. If name is not empty, it
// returns only those of that container.
func (p *pod) backOffEvents(name string) (found []v1.Event) {
	p.t.Helper()
	events, err := p.kube.CoreV1().Events(metav1.NamespaceDefault).List(p.ctx, metav1.ListOptions{
		FieldSelector: "reason=BackOff,involvedObject.uid=" + string(p.uid),
	})
	require.NoError(p.t, err)
	for _, e := range events.Items {
		if name == "" || e.InvolvedObject.FieldPath == "spec.containers{"+name+"}" {
			found = append(found, e)
		}
	}
	slices.SortFunc(found, func(a, b v1.Event) int { return a.FirstTimestamp.Compare(b.FirstTimestamp.Time) })
	return found
}

func messagesOf(events []v1.Event) (out []string) {
	for _, e := range events {
		out = append(out, fmt.Sprintf("%s (%d times)", e.Message, e.Count))
	}
	return out
}

var waitEvent = regexp.MustCompile(`^Back-off restarting failed container (\S+) in pod (\S+): waiting (\S+), next start at (\S+)$`)

// assertWaitEvents checks that each of the first waits of a container has one event with
// the delay and the end of the wait.
func (p *pod) assertWaitEvents(name string, waits int) {
	p.t.Helper()
	events := p.backOffEvents(name)
	if !assert.GreaterOrEqual(p.t, len(events), waits, "pod %s: events of waits of %s: %v", p.name, name, messagesOf(events)) {
		return
	}
	assert.LessOrEqual(p.t, len(events), p.starts(name)-1, "pod %s: events of waits of %s: %v", p.name, name, messagesOf(events))
	for i, event := range events {
		// The first restart has no wait.
		k := i + 1
		assert.EqualValues(p.t, 1, event.Count, "how often there was the event %q", event.Message)
		assert.Equal(p.t, v1.EventTypeWarning, event.Type)
		f := waitEvent.FindStringSubmatch(event.Message)
		if !assert.NotNil(p.t, f, "pod %s: the event says %q, want %s", p.name, event.Message, waitEvent) {
			continue
		}
		assert.Equal(p.t, name, f[1])
		assert.Equal(p.t, fmt.Sprintf("%s_%s(%s)", p.name, metav1.NamespaceDefault, p.uid), f[2])
		assert.Equal(p.t, defaultCurve.Delay(k).String(), f[3], "the delay in %q", event.Message)
		next, err := time.Parse(time.RFC3339, f[4])
		if assert.NoError(p.t, err, "%q", event.Message) {
			due := p.exits(name, k+1)[0] + defaultCurve.Delay(k).Seconds()
			assert.InDelta(p.t, due, float64(next.UnixMilli())/1e3, 1.2, "the next start in %q", event.Message)
		}
	}
}

// decision is a line of the log with a decision on the start of a container.
type decision struct{ allowed, attempt, delay string }

// decisions returns the decisions on a container.
func decisions(log string, p *pod, name string) (found []decision) {
	for _, f := range decisionLine.FindAllStringSubmatch(log, -1) {
		if f[1] == metav1.NamespaceDefault+"/"+p.name && f[2] == name {
			found = append(found, decision{f[3], f[4], f[5]})
		}
	}
	return found
}

// changes returns the lines about a container that match one of the expressions.
func changes(log string, line *regexp.Regexp, p *pod, name string) []string {
	return slices.DeleteFunc(line.FindAllString(log, -1), func(text string) bool {
		return !strings.Contains(text, fmt.Sprintf("pod=%q", metav1.NamespaceDefault+"/"+p.name)) || !strings.Contains(text, fmt.Sprintf("containerName=%q", name))
	})
}

// besideWaits returns the lines about the beginning and the end of waits of a container.
func besideWaits(log string, p *pod, name string) []string {
	return append(changes(log, waitsLine, p, name), changes(log, leavesLine, p, name)...)
}

// assertDecisions checks the lines of the log about a container that restarted after each
// delay of the curve and now waits for the last one.
func (p *pod) assertDecisions(log, name string) {
	p.t.Helper()
	starts := p.starts(name)
	all := decisions(log, p, name)
	node.Progress("%s: %d decisions on %d starts of %s", p.name, len(all), starts, name)
	allowed := slices.DeleteFunc(slices.Clone(all), func(d decision) bool { return d.allowed != "true" })
	assert.Len(p.t, allowed, starts, "pod %s: decisions that let %s start: %v", p.name, name, all)
	// The number of decisions to wait varies: the kubelet also syncs the pod after each
	// exit of another container, and for other reasons.
	for k := 1; k < starts; k++ {
		held := slices.DeleteFunc(slices.Clone(all), func(d decision) bool {
			return d.allowed != "false" || d.delay != defaultCurve.Delay(k).String()
		})
		assert.NotEmpty(p.t, held, "pod %s: decisions that %s waits for %v", p.name, name, defaultCurve.Delay(k))
	}
	assert.Len(p.t, changes(log, waitsLine, p, name), starts-1, "pod %s: lines that say that %s waits", p.name, name)
	assert.Len(p.t, changes(log, leavesLine, p, name), starts-2, "pod %s: lines that say that %s waits no more", p.name, name)
}
