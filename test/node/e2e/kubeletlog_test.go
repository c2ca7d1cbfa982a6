// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
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

// missing is the error of upstream's client of the runtime for a container that does not exist.
var missing = regexp.MustCompile(`"ContainerStatus from runtime service failed" .*code = NotFound .*containerID="(\w+)"`)

// removedBefore is the error of upstream's evictPodLogsDirectories for a link that the removal of the
// container took away.
var removedBefore = regexp.MustCompile(`"Failed to remove container log dead symlink" err="remove [^"]*: no such file or directory"`)

// errorsOf returns the lines at error level about a pod. It leaves out that a container is missing
// which the kubelet removed after a relist had listed it: upstream's getPodContainerStatuses ignores
// that error, because it is normal. It also leaves out that a link is missing.
func errorsOf(log string, p *pod) (found []string) {
	for line := range strings.Lines(log) {
		if !strings.HasPrefix(line, "E") || !strings.Contains(line, p.name) && !strings.Contains(line, string(p.uid)) {
			continue
		}
		if m := missing.FindStringSubmatch(line); m != nil && strings.Contains(log, fmt.Sprintf(`"RemoveContainer" containerID=%q`, m[1])) {
			continue
		}
		if removedBefore.MatchString(line) {
			continue
		}
		found = append(found, line)
	}
	return found
}

func TestErrorsOf(t *testing.T) {
	p := &pod{name: "whole", uid: "664201c8"}
	failed := func(code, pod, id string) string {
		return fmt.Sprintf(`E1127 20:59:58.2 7 remote_runtime.go:657] "ContainerStatus from runtime service failed" err="rpc error: code = %s desc = not found" pod=%q containerID=%q`+"\n", code, pod, id)
	}
	const link = `E1129 03:44:29.7 7 kuberuntime_gc.go:392] "Failed to remove container log dead symlink" err="remove /var/log/containers/whole.log: `
	log := `I1127 20:59:58.1 7 scope.go:118] "RemoveContainer" containerID="d3df"` + "\n" +
		link + `no such file or directory"` + "\n" + link + `permission denied"` + "\n" +
		failed("NotFound", "whole", "d3df") + failed("NotFound", "whole", "40e5") + failed("Unavailable", "whole", "d3df") + failed("Unavailable", "other", "d3df")
	assert.Equal(t, []string{link + `permission denied"` + "\n", failed("NotFound", "whole", "40e5"), failed("Unavailable", "whole", "d3df")}, errorsOf(log, p))
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

var (
	decisionLine    = regexp.MustCompile(`"Checked back-off of container" pod="([^"]*)" containerName="([^"]*)" allowed=(\w+) attempt=(\d+) delay="([^"]*)" retryAt="([^"]*)"`)
	podWaitLine     = regexp.MustCompile(`"Pod waits to be restarted" .*podUID="([^"]*)" reason="back-off (\S+) .*" retryAt="([^"]*)"`)
	killLine        = regexp.MustCompile(`"Killing container with a grace period" .*podUID="([^"]*)" containerName="([^"]*)" .*gracePeriod=(\d+)`)
	waitsLine       = regexp.MustCompile(`"Container waits in back-off" .*`)
	leavesLine      = regexp.MustCompile(`"Container leaves back-off" .*`)
	probeFailedLine = regexp.MustCompile(`"Probe failed" probeType="([^"]*)" .*podUID="([^"]*)" containerName="([^"]*)"`)
	// The probers of a container that does not run write this line.
	notRunningLine = regexp.MustCompile(`"Non-running container probed" .*`)
)

var waitEvent = regexp.MustCompile(`^Back-off restarting failed container (\S+) in pod (\S+): waiting (\S+), next start at (\S+)$`)

// assertWaitEvents checks the events of these waits of a container. Each wait before an attempt
// up to last must have one, and no other wait more than one, with the delay and the end of the wait.
func (p *pod) assertWaitEvents(name string, waits []decision, last int) {
	p.t.Helper()
	byDelay, required := map[string]decision{}, 0
	for _, d := range waits {
		byDelay[d.delay.String()] = d
		if d.attempt <= last {
			required++
		}
	}
	var events []v1.Event
	require.NoError(p.t, harness.Await(p.ctx, fmt.Sprintf("events of %d waits of %s of pod %s", required, name, p.name), patience, func(context.Context) error {
		if events = p.backOffEvents(name); len(events) < required {
			return fmt.Errorf("there are %v", messagesOf(events))
		}
		return nil
	}))
	for _, event := range events {
		assert.EqualValues(p.t, 1, event.Count, "how often there was the event %q", event.Message)
		assert.Equal(p.t, v1.EventTypeWarning, event.Type)
		// The event client says so of a pod's tenth event with a reason, and of each one after that.
		message := strings.TrimPrefix(event.Message, "(combined from similar events): ")
		f := waitEvent.FindStringSubmatch(message)
		if !assert.NotNil(p.t, f, "pod %s: the event says %q, want %s", p.name, event.Message, waitEvent) {
			continue
		}
		assert.Equal(p.t, name, f[1])
		assert.Equal(p.t, fmt.Sprintf("%s_%s(%s)", p.name, metav1.NamespaceDefault, p.uid), f[2])
		if assert.Contains(p.t, byDelay, f[3], "pod %s: waits of %s that have no event yet, for %q", p.name, name, event.Message) {
			assert.Equal(p.t, byDelay[f[3]].retryAt.UTC().Format(time.RFC3339), f[4], "the next start in %q", event.Message)
			delete(byDelay, f[3])
		}
	}
	for _, d := range byDelay {
		assert.Greater(p.t, d.attempt, last, "pod %s: attempts of %s after a wait without an event", p.name, name)
	}
}

// decision is a line of the log with a decision on the start of a container.
type decision struct {
	allowed bool
	// attempt is 1 for the first restart, and 0 for a start that is not a restart.
	attempt int
	delay   time.Duration
	retryAt time.Time
}

// decisions returns the decisions on a container.
func decisions(t *testing.T, log string, p *pod, name string) (found []decision) {
	t.Helper()
	for _, f := range decisionLine.FindAllStringSubmatch(log, -1) {
		if f[1] != metav1.NamespaceDefault+"/"+p.name || f[2] != name {
			continue
		}
		attempt, err := strconv.Atoi(f[4])
		require.NoError(t, err, f[0])
		delay, err := time.ParseDuration(f[5])
		require.NoError(t, err, f[0])
		found = append(found, decision{f[3] == "true", attempt, delay, logged(t, f[6])})
	}
	return found
}

// logged parses a time in a key of the log.
func logged(t *testing.T, text string) time.Time {
	t.Helper()
	text, _, _ = strings.Cut(text, " m=")
	at, err := time.Parse("2006-01-02 15:04:05 -0700 MST", text)
	require.NoError(t, err)
	return at
}

// allowed returns the decisions in the log of the pod's time that let a container start,
// oldest first. Those on the same start count once: a start may be given back, and a
// kubelet may be killed before it creates the instance.
func (p *pod) allowed(name string) []decision {
	p.t.Helper()
	found := slices.DeleteFunc(decisions(p.t, p.log(), p, name), func(d decision) bool { return !d.allowed })
	return slices.CompactFunc(found, func(a, b decision) bool { return a.attempt == b.attempt })
}

// assertDelays checks the delays that the kubelet decided on for the restarts of a
// container so far. Restarts after the last one of want may have been decided already.
func (p *pod) assertDelays(name string, want ...time.Duration) {
	p.t.Helper()
	var got []time.Duration
	for _, d := range p.allowed(name) {
		if d.attempt > 0 {
			got = append(got, d.delay)
		}
	}
	assert.Equal(p.t, want, got[:min(len(want), len(got))], "pod %s: delays of the restarts of %s", p.name, name)
}

// curveDelays returns the first n delays of the usual curve.
func curveDelays(n int) (all []time.Duration) {
	for k := range n {
		all = append(all, curve(k))
	}
	return all
}

// assertCurve checks that the kubelet decided on each restart of a container so far for the
// time when the delay of the curve ended, counted from the exit of the instance before,
// and that it created no instance earlier.
func (p *pod) assertCurve(name string, curve harness.Curve) {
	p.t.Helper()
	starts, allowed := p.starts(name), p.allowed(name)
	require.GreaterOrEqual(p.t, len(allowed), starts, "pod %s: decisions that let %s start: %v", p.name, name, allowed)
	var waited []string
	for k := range starts - 1 {
		delay, exited, d := curve.Delay(k), p.exited(name, k+1), allowed[k+1]
		assert.Equal(p.t, delay, d.delay, "pod %s: the delay of restart %d of %s", p.name, k+1, name)
		if delay > 0 {
			assert.WithinDuration(p.t, exited.Add(delay), d.retryAt, time.Millisecond, "pod %s: when restart %d of %s was due", p.name, k+1, name)
		}
		p.assertWaited(name, k+1, delay)
		waited = append(waited, fmt.Sprintf("%.2f", p.instance(name, k+2, false).created.Sub(exited).Seconds()))
	}
	harness.Progress("%s: the restarts of %s waited %s s", p.name, name, strings.Join(waited, " "))
}

// assertPodCurve checks that the pod waited for each of its restarts so far until the delay
// of the curve ended, counted from the exit of the container that triggered it. If its
// containers took longer to stop, it did not wait. It returns how often it waited for
// each delay.
func (p *pod) assertPodCurve(name string, restarts int, curve harness.Curve) map[time.Duration]int {
	p.t.Helper()
	var due []time.Time
	for k := range restarts {
		p.assertWaited(name, k+1, curve.Delay(k))
		due = append(due, p.exited(name, k+1).Add(curve.Delay(k)).UTC())
	}
	waits := map[time.Duration]int{}
	for at, said := range p.podWaits() {
		k := slices.IndexFunc(due, func(end time.Time) bool { return at.Sub(end).Abs() < time.Millisecond })
		if assert.GreaterOrEqual(p.t, k, 0, "pod %s waited until %v, but its delays ended at %v", p.name, at, due) {
			assert.Equal(p.t, curve.Delay(k).String(), said, "pod %s: the delay that ended at %v", p.name, at)
			waits[curve.Delay(k)]++
		}
	}
	return waits
}

// podWaits returns the delays of the pod's waits in the log of its time, by their end.
func (p *pod) podWaits() map[time.Time]string {
	p.t.Helper()
	waits := map[time.Time]string{}
	for _, f := range podWaitLine.FindAllStringSubmatch(p.log(), -1) {
		if f[1] == string(p.uid) {
			waits[logged(p.t, f[3]).UTC()] = f[2]
		}
	}
	return waits
}

// grace returns the grace periods, in seconds, with which the kubelet stopped the instances
// of a container.
func (p *pod) grace(name string) (seconds []string) {
	for _, f := range killLine.FindAllStringSubmatch(p.log(), -1) {
		if f[1] == string(p.uid) && f[2] == name {
			seconds = append(seconds, f[3])
		}
	}
	return seconds
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
// delay of the curve and now waits for the last one. It returns the first decision of each wait.
func (p *pod) assertDecisions(log, name string) []decision {
	p.t.Helper()
	starts := p.starts(name)
	all := decisions(p.t, log, p, name)
	harness.Progress("%s: %d decisions on %d starts of %s", p.name, len(all), starts, name)
	allowed := slices.DeleteFunc(slices.Clone(all), func(d decision) bool { return !d.allowed })
	assert.Len(p.t, allowed, starts, "pod %s: decisions that let %s start: %v", p.name, name, all)
	// The number of decisions to wait varies: the kubelet also syncs the pod after each
	// exit of another container, and for other reasons.
	waits := slices.DeleteFunc(slices.Clone(all), func(d decision) bool { return d.allowed })
	waits = slices.CompactFunc(waits, func(a, b decision) bool { return a.attempt == b.attempt })
	// In the virtual machine a sync takes so long that a delay may be over before the next sync.
	if !p.Spec.Machine {
		assert.Len(p.t, waits, starts-1, "pod %s: waits of %s", p.name, name)
	}
	for _, d := range waits {
		assert.Equal(p.t, defaultCurve.Delay(d.attempt-1), d.delay, "pod %s: the delay before restart %d of %s", p.name, d.attempt, name)
		assert.WithinDuration(p.t, p.exited(name, d.attempt).Add(d.delay), d.retryAt, time.Millisecond, "pod %s: when restart %d of %s is due", p.name, d.attempt, name)
	}
	assert.Len(p.t, changes(log, waitsLine, p, name), len(waits), "pod %s: lines that say that %s waits", p.name, name)
	leaves := changes(log, leavesLine, p, name)
	assert.Len(p.t, leaves, starts-2, "pod %s: lines that say that %s waits no more", p.name, name)
	for _, line := range leaves {
		assert.NotContains(p.t, line, `late="-`, "pod %s: %s started before the delay was over", p.name, name)
	}
	return waits
}
