// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubelet-backoff/kubelet-backoff/agent"
	"github.com/kubelet-backoff/kubelet-backoff/agent/podspec"
	"github.com/kubelet-backoff/kubelet-backoff/agent/restartrules"
	"github.com/kubelet-backoff/kubelet-backoff/asked"
	"github.com/kubelet-backoff/kubelet-backoff/backoff"
	"github.com/kubelet-backoff/kubelet-backoff/restart"
	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

// assumed returns the lives of all containers: the given ones, and assumptions for the others. A
// container repeats its last run, unless the current run is longer already, or another container
// ended the last run by a restart of the pod. If nothing is known about a container, it succeeds
// after a second if it is an init container, and fails after a second if it is the first regular
// container and no lives are given. Every other container does not exit.
func assumed(pod *v1.Pod, given map[string]Lives, now time.Time) map[string]Lives {
	all := map[string]Lives{}
	for i, c := range containers(pod, restartpod.Gates{}) {
		status, _ := statusOf(pod, c.Name)
		last := lastExit(status)
		life := Life{Runs: true}
		switch {
		case given[c.Name] != nil:
			all[c.Name] = given[c.Name]
			continue
		case last != nil && (c.Kind == restartpod.KindInit && last.ExitCode == 0 || !withPod(status, last)):
			ran := time.Second
			if isSet(last.StartedAt) && isSet(last.FinishedAt) {
				ran = max(last.FinishedAt.Sub(last.StartedAt.Time), 0)
			}
			if r := status.State.Running; r == nil || now.Sub(r.StartedAt.Time) <= ran {
				life = Life{Code: last.ExitCode, After: ran}
			}
		case c.Kind == restartpod.KindInit:
			life = Life{After: time.Second}
		case i == len(pod.Spec.InitContainers) && len(given) == 0 && status == nil:
			life = Life{Code: 1, After: time.Second}
		}
		all[c.Name] = Lives{life}
	}
	return all
}

// containers returns the containers of a plan, in the order in which they start. It leaves out
// ephemeral containers.
func containers(pod *v1.Pod, gates restartpod.Gates) []restartpod.Container {
	return restartrules.Containers(&pod.Spec, gates)[:len(pod.Spec.InitContainers)+len(pod.Spec.Containers)]
}

// statusOf returns the status of a container, or nil, and its path.
func statusOf(pod *v1.Pod, name string) (*v1.ContainerStatus, *field.Path) {
	for list, statuses := range map[string][]v1.ContainerStatus{
		"initContainerStatuses": pod.Status.InitContainerStatuses, "containerStatuses": pod.Status.ContainerStatuses,
	} {
		for i := range statuses {
			if statuses[i].Name == name {
				return &statuses[i], field.NewPath("status", list).Index(i)
			}
		}
	}
	return nil, nil
}

// lastExit returns the newest exit in a status, or nil.
func lastExit(s *v1.ContainerStatus) *v1.ContainerStateTerminated {
	switch {
	case s == nil:
		return nil
	case s.State.Terminated != nil:
		return s.State.Terminated
	case s.LastTerminationState.Terminated == nil && inBackOff(s.State.Waiting) && !podBackOff.MatchString(s.State.Waiting.Message):
		return &v1.ContainerStateTerminated{ExitCode: 1} // The container waits, so it has exited.
	}
	return s.LastTerminationState.Terminated
}

// isSet reports whether a time of a status is set. A runtime that does not know the time reports
// none or 1970-01-01.
func isSet(t metav1.Time) bool { return t.Unix() > 0 }

// clockSkew is the longest time by which a status may be later than the local clock.
const clockSkew = time.Minute

// newestTime returns the newest time in the statuses of the containers.
func newestTime(pod *v1.Pod) (newest time.Time) {
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		var times []metav1.Time
		if r := s.State.Running; r != nil {
			times = append(times, r.StartedAt)
		}
		for _, t := range []*v1.ContainerStateTerminated{s.State.Terminated, s.LastTerminationState.Terminated} {
			if t != nil {
				times = append(times, t.StartedAt, t.FinishedAt)
			}
		}
		for _, t := range times {
			if t.After(newest) {
				newest = t.Time
			}
		}
	}
	return newest
}

var phases = []v1.PodPhase{v1.PodFailed, v1.PodPending, v1.PodRunning, v1.PodSucceeded, v1.PodUnknown}

// checkStatus returns an error for a container status without a container, and for an unknown phase.
func checkStatus(pod *v1.Pod) error {
	names, seen := map[string]bool{}, map[string]bool{}
	for _, c := range podspec.Containers(&pod.Spec) {
		names[c.Name] = true
	}
	check := func(list string, statuses []v1.ContainerStatus) error {
		for i, s := range statuses {
			path := field.NewPath("status", list).Index(i).Child("name")
			switch {
			case !names[s.Name]:
				return field.Invalid(path, s.Name, "must be the name of a container in the spec")
			case seen[s.Name]:
				return field.Duplicate(path, s.Name)
			}
			seen[s.Name] = true
		}
		return nil
	}
	if p := pod.Status.Phase; p != "" && !slices.Contains(phases, p) {
		return field.NotSupported(field.NewPath("status", "phase"), p, phases)
	}
	return cmp.Or(check("initContainerStatuses", pod.Status.InitContainerStatuses), check("containerStatuses", pod.Status.ContainerStatuses))
}

// The messages of containers that wait for their own back-off, and for the back-off of the pod. The
// groups are the delay and the names.
var (
	containerBackOff = regexp.MustCompile(`^back-off (\S+) restarting failed container=(\S+) pod=([^_]+)_`)
	podBackOff       = regexp.MustCompile(`^back-off (\S+) restarting pod ([^:]+): `)
)

func inBackOff(w *v1.ContainerStateWaiting) bool {
	return w != nil && (w.Reason == restart.ErrCrashLoopBackOff.Error() || containerBackOff.MatchString(w.Message) || podBackOff.MatchString(w.Message))
}

// Waiting reports whether a container of the pod waits for a back-off, its own or that of the
// pod. delay is 0 if the status has none, or an impossible one. It counts from since, which is
// zero if the status does not have that.
func Waiting(pod *v1.Pod, s *v1.ContainerStatus) (delay time.Duration, since time.Time, ok bool) {
	if !inBackOff(s.State.Waiting) {
		return 0, time.Time{}, false
	}
	message := s.State.Waiting.Message
	if text := containerBackOff.FindStringSubmatch(message); text != nil {
		delay, _ = time.ParseDuration(text[1])
	}
	from := lastExit(s)
	if text := podBackOff.FindStringSubmatch(message); text != nil {
		delay, _ = time.ParseDuration(text[1])
		from = nil
		for _, other := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			if last := lastExit(&other); last != nil && caused(message, other.Name, last.ExitCode) {
				from = last
			}
		}
	}
	if from != nil && isSet(from.FinishedAt) {
		since = from.FinishedAt.Time
	}
	return max(delay, 0), since, true
}

// WaitsForPod reports whether a container waits for the back-off of its pod.
func WaitsForPod(s *v1.ContainerStatus) bool {
	return s.State.Waiting != nil && podBackOff.MatchString(s.State.Waiting.Message)
}

// resume sets the state of the runtime and the back-offs from the status of the pod.
func (m *maker) resume() error {
	for i := range m.containers {
		c := &m.containers[i]
		s, path := statusOf(m.Pod, c.Name)
		if s == nil {
			continue
		}
		instance, err := m.instance(s, path)
		if err != nil {
			return err
		}
		if instance == nil {
			continue
		}
		m.instances[c.Name], m.ready = *instance, true
		if instance.State == restart.ContainerStateRunning {
			m.script(c.Name, m.lives[c.Name].Of(0), instance.StartedAt)
		}
		if err := m.restore(c, s, instance, path); err != nil {
			return err
		}
	}
	return m.restorePod()
}

// instance returns the newest instance of a container according to its status, or nil.
func (m *maker) instance(s *v1.ContainerStatus, path *field.Path) (*agent.Instance, error) {
	// With this limit no plan exceeds the int32 of the API.
	if n := s.RestartCount; n < 0 || n > math.MaxInt32-int32(maxEntries) {
		return nil, field.Invalid(path.Child("restartCount"), n, fmt.Sprintf("must be from 0 to %d", math.MaxInt32-maxEntries))
	}
	i := &agent.Instance{}
	i.RestartCount = int(s.RestartCount)
	// The agent stops an instance by its ID.
	s.ContainerID = cmp.Or(s.ContainerID, fmt.Sprintf("%s#%d", s.Name, s.RestartCount))
	last := lastExit(s)
	w, r := s.State.Waiting, s.State.Running
	if w != nil && (r != nil || s.State.Terminated != nil) || r != nil && s.State.Terminated != nil {
		return nil, field.Forbidden(path.Child("state"), "may have only one of waiting, running, terminated")
	}
	if r != nil {
		if last != nil && isSet(r.StartedAt) && last.FinishedAt.After(r.StartedAt.Time) {
			return nil, field.Invalid(path.Child("state", "running", "startedAt"), r.StartedAt.UTC().Format(time.RFC3339),
				"must not be before the end of the last run, "+last.FinishedAt.UTC().Format(time.RFC3339))
		}
		i.ID, i.State, i.StartedAt = s.ContainerID, restart.ContainerStateRunning, m.orNow(s.Name+" started", r.StartedAt)
		return i, m.checkTimes(path.Child("state", "running"), i.StartedAt, i.StartedAt)
	}
	if w != nil && !inBackOff(w) && w.Reason != "" && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
		m.note("%s waits because of %s: the plan assumes that the cause is gone", s.Name, w.Reason)
		m.conditions[s.Name] = "if " + w.Reason + " is resolved"
	}
	if last == nil {
		if s.RestartCount > 0 {
			m.lost[s.Name] = i.RestartCount
		}
		return nil, nil
	}
	terminated := path.Child("lastState", "terminated")
	if s.State.Terminated != nil {
		terminated = path.Child("state", "terminated")
	}
	i.ID, i.State, i.ExitCode = cmp.Or(last.ContainerID, s.ContainerID), restart.ContainerStateExited, last.ExitCode
	i.FinishedAt = m.orNow(s.Name+" exited", last.FinishedAt)
	if i.StartedAt = last.StartedAt.Time; !isSet(last.StartedAt) {
		i.StartedAt = i.FinishedAt
	}
	return i, m.checkTimes(terminated, i.StartedAt, i.FinishedAt)
}

// orNow returns the time of an event in the status, or the current time if it is not set.
func (m *maker) orNow(event string, t metav1.Time) time.Time {
	if isSet(t) {
		return t.Time
	}
	m.note("the status does not say when %s: the plan assumes now", event)
	return m.Begin
}

func (m *maker) note(format string, args ...any) {
	m.plan.Notes = append(m.plan.Notes, fmt.Sprintf(format, args...))
}

func (m *maker) checkTimes(path *field.Path, startedAt, finishedAt time.Time) error {
	if finishedAt.Before(startedAt) {
		return field.Invalid(path.Child("finishedAt"), finishedAt.Format(time.RFC3339), "must not be before startedAt, "+startedAt.Format(time.RFC3339))
	}
	if err := m.checkPast(path.Child("startedAt"), startedAt); err != nil {
		return err
	}
	return m.checkPast(path.Child("finishedAt"), finishedAt)
}

func (m *maker) checkPast(path *field.Path, t time.Time) error {
	if t.After(m.Begin) {
		return field.Invalid(path, t.Format(time.RFC3339), "must not be after the current time, "+m.Begin.Format(time.RFC3339))
	}
	return nil
}

// restore sets the back-off of a container from its status. If the container does not wait, the
// status does not show the delay, so all its restarts count.
func (m *maker) restore(c *restartpod.Container, s *v1.ContainerStatus, i *agent.Instance, path *field.Path) error {
	state := backoff.KeyState{Attempts: i.RestartCount, LastUpdate: i.StartedAt}
	curve, reset := m.Curve, backoff.ContainerResetPeriod
	var own *backoff.KeyRules
	if m.curves != nil {
		own = m.curves.Rules(m.keys[c.Name])
	}
	last := lastExit(s)
	if own != nil {
		curve.Initial, curve.Max, reset = own.Initial, own.Max, own.Reset
		if last != nil && slices.Contains(own.Ignored, last.ExitCode) {
			return nil // The exit has reset the back-off.
		}
		if len(own.Ignored) > 0 && i.RestartCount > 0 && s.State.Waiting == nil {
			m.note("the status does not say which restarts of %s were after exits that are ignored: the plan counts all", s.Name)
		}
	}
	if s.State.Running != nil && last != nil && isSet(last.StartedAt) && last.FinishedAt.Sub(last.StartedAt.Time) > reset {
		state.Attempts = min(state.Attempts, 1) // The run before this one has reset the back-off.
	}
	if m.Curve.DelayFirst && i.RestartCount > 0 {
		state.Attempts++ // The first wait counts, too.
	}
	if w := s.State.Waiting; inBackOff(w) {
		path := path.Child("state", "waiting", "message")
		text := containerBackOff.FindStringSubmatch(w.Message)
		switch {
		case podBackOff.MatchString(w.Message):
			return nil
		case text == nil:
			m.note("the message of %s has no delay: the plan uses the delay after %d restarts", s.Name, i.RestartCount)
		case text[2] != s.Name || text[3] != m.Pod.Name:
			return field.Invalid(path, w.Message, fmt.Sprintf("must name container %s and pod %s", s.Name, m.Pod.Name))
		case m.Gates.OnExit(c, i.ExitCode) == "":
			return field.Invalid(path, w.Message, fmt.Sprintf("the container is not restarted after exit code %d: see its restartPolicy and restartPolicyRules", i.ExitCode))
		default:
			waits, err := attempts(curve, text[1], path)
			if err != nil && own == nil {
				return err
			}
			if delay, _ := time.ParseDuration(text[1]); err != nil && len(own.Ignored) > 0 && delay <= backoff.IgnoredInterval {
				return nil // The exit before the last one has reset the back-off.
			}
			if err != nil {
				m.note("%s waits for %s, which is not a delay of its annotation: the plan uses the delay after %d restarts", s.Name, text[1], i.RestartCount)
				break
			}
			if waits > max(state.Attempts, 1) {
				m.note("%s waits for %s after only %d restarts: the plan uses the delay, not the number", s.Name, text[1], i.RestartCount)
			}
			state.Attempts, state.WaitingSince = waits, i.FinishedAt
		}
	}
	if state.Attempts == 0 {
		return nil
	}
	if m.MaxRestarts && m.Pod.Annotations[asked.MaxRestartsAnnotation] != "" {
		m.note("the status does not say how many restarts of %s were in a row: the plan counts them as in the curve", s.Name)
	}
	return m.backOff.Restore(m.keys[c.Name], state, m.Begin)
}

// restorePod sets the back-off of the pod from the messages of its containers during an in-place
// restart of the pod. The back-off counts from the exit that caused the restart.
func (m *maker) restorePod() error {
	var since time.Time
	delay := ""
	for i := range m.containers {
		s, path := statusOf(m.Pod, m.containers[i].Name)
		if s == nil || s.State.Waiting == nil {
			continue
		}
		message, path := s.State.Waiting.Message, path.Child("state", "waiting", "message")
		text := podBackOff.FindStringSubmatch(message)
		if text == nil {
			continue
		}
		condition := slices.IndexFunc(m.Pod.Status.Conditions, restarting)
		switch {
		case text[2] != m.Pod.Name:
			return field.Invalid(path, message, "must name pod "+m.Pod.Name)
		case condition < 0:
			return field.Invalid(path, message, "the pod is not being restarted: a condition PodRestarting or AllContainersRestarting must be True")
		case delay != "" && delay != text[1]:
			return field.Invalid(path, message, "must have the delay of the other containers, "+delay)
		case delay != "":
			continue
		}
		delay = text[1]
		waits, err := attempts(m.Curve, delay, path)
		if err != nil {
			return err
		}
		for name, instance := range m.instances {
			if caused(message, name, instance.ExitCode) {
				since = instance.FinishedAt
			}
		}
		if since.IsZero() {
			since = m.orNow("the pod's restart began", m.Pod.Status.Conditions[condition].LastTransitionTime)
		}
		if err := m.checkPast(field.NewPath("status", "conditions").Index(condition).Child("lastTransitionTime"), since); err != nil {
			return err
		}
		if err := m.podBackOff.Restore(m.keys[""], backoff.KeyState{Attempts: waits, LastUpdate: since, WaitingSince: since}, m.Begin); err != nil {
			return err
		}
	}
	if delay == "" && slices.ContainsFunc(m.Pod.Status.Conditions, func(c v1.PodCondition) bool { return restartCondition(c.Type) }) {
		m.note("the status does not say how many restarts were those of the pod: the plan counts them for each container, and not for the pod")
	}
	return nil
}

// caused reports whether an exit is the cause of a pod restart with this message.
func caused(message, container string, code int32) bool {
	return strings.Contains(message, fmt.Sprintf(": Container %s exited with code %d,", container, code))
}

// withPod reports whether the last run of a container ended because another container caused a
// restart of the pod.
func withPod(s *v1.ContainerStatus, last *v1.ContainerStateTerminated) bool {
	w := s.State.Waiting
	return w != nil && podBackOff.MatchString(w.Message) && !caused(w.Message, s.Name, last.ExitCode)
}

// restarting reports whether the condition says that the pod is being restarted in place.
func restarting(c v1.PodCondition) bool {
	return restartCondition(c.Type) && c.Status == v1.ConditionTrue
}

// restartCondition reports whether the condition is one of a restart in place.
func restartCondition(t v1.PodConditionType) bool {
	return t == restartpod.PodRestarting || t == v1.AllContainersRestarting
}

// attempts returns the number of attempts with which a key waits for this delay. The number is the
// same whether or not the curve delays the first restart.
func attempts(curve backoff.Curve, text string, path *field.Path) (int, error) {
	curve.DelayFirst = false
	delay, _ := time.ParseDuration(text)
	n := slices.Index(curve.Delays(), delay)
	if n < 0 || delay <= 0 {
		return 0, field.Invalid(path, "back-off "+text, "must be a delay of the node's curve: set --config, --config-dir and --feature-gates as on the node, and see crashloop check")
	}
	return n, nil
}
