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
	"github.com/kubelet-backoff/kubelet-backoff/backoff"
	"github.com/kubelet-backoff/kubelet-backoff/kuberuntime"
	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

// assumed returns the lives of all containers: those given, and for the others what is likely.
// A container that has exited before goes on like that, unless it runs longer by now, or was
// stopped because another one had the pod restarted. In a pod that never ran, init containers
// succeed after a second, and the first regular container fails after a second, unless any lives
// are given. All else runs.
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
			if known(last.StartedAt) && known(last.FinishedAt) {
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

// containers are those of the pod that a plan has, in the order in which they start.
func containers(pod *v1.Pod, gates restartpod.Gates) []restartpod.Container {
	return restartpod.Containers(&pod.Spec, gates)[:len(pod.Spec.InitContainers)+len(pod.Spec.Containers)]
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

// lastExit is the newest exit in a status, or nil.
func lastExit(s *v1.ContainerStatus) *v1.ContainerStateTerminated {
	switch {
	case s == nil:
		return nil
	case s.State.Terminated != nil:
		return s.State.Terminated
	case s.LastTerminationState.Terminated == nil && inBackOff(s.State.Waiting) && !podBackOff.MatchString(s.State.Waiting.Message):
		return &v1.ContainerStateTerminated{ExitCode: 1} // The kubelet has lost what it waits after.
	}
	return s.LastTerminationState.Terminated
}

// known reports whether a status has a time. A runtime that does not know it leaves it out, or
// says 1970.
func known(t metav1.Time) bool { return t.Unix() > 0 }

// clockSkew is how much later than the present a status may be.
const clockSkew = time.Minute

// newestTime is the newest time in the statuses of the containers.
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

// checkNames returns an error for a name that is missing, there twice, or in the status alone, and
// for a phase that there is not.
func checkNames(pod *v1.Pod) error {
	names, seen := map[string]bool{}, map[string]bool{}
	check := func(list string, containers []v1.Container) error {
		for i, c := range containers {
			path := field.NewPath("spec", list).Index(i).Child("name")
			switch {
			case c.Name == "":
				return field.Required(path, "a container has one")
			case names[c.Name]:
				return field.Duplicate(path, c.Name)
			}
			names[c.Name] = true
		}
		return nil
	}
	checkStatus := func(list string, statuses []v1.ContainerStatus) error {
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
	return cmp.Or(
		check("initContainers", pod.Spec.InitContainers), check("containers", pod.Spec.Containers),
		checkStatus("initContainerStatuses", pod.Status.InitContainerStatuses), checkStatus("containerStatuses", pod.Status.ContainerStatuses),
	)
}

// The messages of containers that wait for their own back-off, and for that of the pod: how long,
// and the names.
var (
	containerBackOff = regexp.MustCompile(`^back-off (\S+) restarting failed container=(\S+) pod=([^_]+)_`)
	podBackOff       = regexp.MustCompile(`^back-off (\S+) restarting pod ([^:]+): `)
)

func inBackOff(w *v1.ContainerStateWaiting) bool {
	return w != nil && (w.Reason == kuberuntime.ErrCrashLoopBackOff.Error() || containerBackOff.MatchString(w.Message) || podBackOff.MatchString(w.Message))
}

// resume puts the runtime and the back-offs in the state that the pod's status has.
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
		m.runtime.instances[c.Name], m.runtime.ready = *instance, true
		if instance.State == restartpod.StateRunning {
			m.runtime.script(c.Name, m.runtime.lives[c.Name].Of(0), instance.StartedAt)
		}
		if err := m.restore(c, s, instance, path); err != nil {
			return err
		}
	}
	return m.restorePod()
}

// instance returns the newest instance of a container by its status, or nil if it has none.
func (m *maker) instance(s *v1.ContainerStatus, path *field.Path) (*agent.Instance, error) {
	// No plan is so long that it counts beyond what the API can.
	if n := s.RestartCount; n < 0 || n > math.MaxInt32-most {
		return nil, field.Invalid(path.Child("restartCount"), n, fmt.Sprintf("must be from 0 to %d", math.MaxInt32-most))
	}
	i := &agent.Instance{Restarts: int(s.RestartCount)}
	last := lastExit(s)
	w, r := s.State.Waiting, s.State.Running
	if w != nil && (r != nil || s.State.Terminated != nil) || r != nil && s.State.Terminated != nil {
		return nil, field.Forbidden(path.Child("state"), "it is one of waiting, running and terminated")
	}
	if r != nil {
		if last != nil && known(r.StartedAt) && last.FinishedAt.After(r.StartedAt.Time) {
			return nil, field.Invalid(path.Child("state", "running", "startedAt"), r.StartedAt.UTC().Format(time.RFC3339),
				"must not be before the end of the last run, "+last.FinishedAt.UTC().Format(time.RFC3339))
		}
		i.ID, i.State, i.StartedAt = s.ContainerID, restartpod.StateRunning, m.orNow(s.Name+" started", r.StartedAt)
		return i, m.checkTimes(path.Child("state", "running"), i.StartedAt, i.StartedAt)
	}
	if w != nil && !inBackOff(w) && w.Reason != "" && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
		m.note("%s waits: %s. The plan takes it to be over", s.Name, w.Reason)
		m.ifs[s.Name] = "if " + w.Reason + " is over"
	}
	if last == nil {
		if s.RestartCount > 0 {
			m.runtime.lost[s.Name] = i.Restarts
		}
		return nil, nil
	}
	terminated := path.Child("lastState", "terminated")
	if s.State.Terminated != nil {
		terminated = path.Child("state", "terminated")
	}
	i.ID, i.State, i.ExitCode = last.ContainerID, restartpod.StateExited, last.ExitCode
	i.FinishedAt = m.orNow(s.Name+" exited", last.FinishedAt)
	if i.StartedAt = last.StartedAt.Time; !known(last.StartedAt) {
		i.StartedAt = i.FinishedAt
	}
	return i, m.checkTimes(terminated, i.StartedAt, i.FinishedAt)
}

// orNow is a time of a status, or the present if it has none.
func (m *maker) orNow(what string, t metav1.Time) time.Time {
	if known(t) {
		return t.Time
	}
	m.note("it is not known when %s: the plan takes it to be now", what)
	return m.Begin
}

func (m *maker) note(format string, args ...any) {
	m.plan.Notes = append(m.plan.Notes, fmt.Sprintf(format, args...))
}

func (m *maker) checkTimes(path *field.Path, startedAt, finishedAt time.Time) error {
	switch {
	case finishedAt.Before(startedAt):
		return field.Invalid(path.Child("finishedAt"), finishedAt.Format(time.RFC3339), "must not be before startedAt, "+startedAt.Format(time.RFC3339))
	case startedAt.After(m.Begin):
		return field.Invalid(path.Child("startedAt"), startedAt.Format(time.RFC3339), "must not be after the present, "+m.Begin.Format(time.RFC3339))
	case finishedAt.After(m.Begin):
		return field.Invalid(path.Child("finishedAt"), finishedAt.Format(time.RFC3339), "must not be after the present, "+m.Begin.Format(time.RFC3339))
	}
	return nil
}

// restore gives a container the back-off that its status shows. Where no wait shows it, every
// restart so far counts as one in a row.
func (m *maker) restore(c *restartpod.Container, s *v1.ContainerStatus, i *agent.Instance, path *field.Path) error {
	state := backoff.KeyState{Attempts: i.Restarts, LastUpdate: i.StartedAt}
	if m.Curve.DelayFirst && i.Restarts > 0 {
		state.Attempts++ // The first wait counts, too.
	}
	if w := s.State.Waiting; inBackOff(w) {
		path := path.Child("state", "waiting", "message")
		text := containerBackOff.FindStringSubmatch(w.Message)
		switch {
		case podBackOff.MatchString(w.Message):
			return nil
		case text == nil:
			m.note("the message of %s does not say how long it waits: the plan goes by its restarts, %d", s.Name, i.Restarts)
		case text[2] != s.Name || text[3] != m.Pod.Name:
			return field.Invalid(path, w.Message, fmt.Sprintf("must be of container %s of pod %s", s.Name, m.Pod.Name))
		case m.Gates.OnExit(c, i.ExitCode) == "":
			return field.Invalid(path, w.Message, fmt.Sprintf("the container is not restarted after exit code %d: see its restartPolicy and restartPolicyRules", i.ExitCode))
		default:
			waits, err := attempts(m.Curve, text[1], path)
			if err != nil {
				return err
			}
			if waits > max(state.Attempts, 1) {
				m.note("%s waits for %s after %d restarts only: the plan goes by the wait", s.Name, text[1], i.Restarts)
			}
			state.Attempts, state.WaitingSince = waits, i.FinishedAt
		}
	}
	if state.Attempts == 0 {
		return nil
	}
	return m.backOff.RestoreAt(m.keys[c.Name], state, m.Begin)
}

// restorePod gives the pod the back-off that its containers show while it is being restarted as a
// whole. It counts from the exit that was the cause.
func (m *maker) restorePod() error {
	var since time.Time
	shown := ""
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
			return field.Invalid(path, message, "must be of pod "+m.Pod.Name)
		case condition < 0:
			return field.Invalid(path, message, "the pod is not being restarted: a condition PodRestarting or AllContainersRestarting must be True")
		case shown != "" && shown != text[1]:
			return field.Invalid(path, message, "the pod has one back-off, and another container has "+shown)
		case shown != "":
			continue
		}
		shown = text[1]
		waits, err := attempts(m.Curve, shown, path)
		if err != nil {
			return err
		}
		for name, instance := range m.runtime.instances {
			if caused(message, name, instance.ExitCode) {
				since = instance.FinishedAt
			}
		}
		if since.IsZero() {
			since = m.orNow("the pod's restart began", m.Pod.Status.Conditions[condition].LastTransitionTime)
		}
		if since.After(m.Begin) {
			return field.Invalid(field.NewPath("status", "conditions").Index(condition).Child("lastTransitionTime"), since.Format(time.RFC3339), "must not be after the present, "+m.Begin.Format(time.RFC3339))
		}
		if err := m.podBackOff.RestoreAt(m.keys[""], backoff.KeyState{Attempts: waits, LastUpdate: since, WaitingSince: since}, m.Begin); err != nil {
			return err
		}
	}
	return nil
}

// caused reports whether a pod waits for its back-off because a container exited.
func caused(message, container string, code int32) bool {
	return strings.Contains(message, fmt.Sprintf(": Container %s exited with code %d,", container, code))
}

// withPod reports whether a container ended because another one had the pod restarted.
func withPod(s *v1.ContainerStatus, last *v1.ContainerStateTerminated) bool {
	w := s.State.Waiting
	return w != nil && podBackOff.MatchString(w.Message) && !caused(w.Message, s.Name, last.ExitCode)
}

// restarting reports whether a pod with a condition is being restarted as a whole.
func restarting(c v1.PodCondition) bool {
	return (c.Type == restartpod.PodRestarting || c.Type == v1.AllContainersRestarting) && c.Status == v1.ConditionTrue
}

// attempts are those of a key that waits for a delay. A curve that delays the first restart, too,
// begins with that.
func attempts(curve backoff.Curve, text string, path *field.Path) (int, error) {
	curve.DelayFirst = false
	delay, _ := time.ParseDuration(text)
	n := slices.Index(curve.Delays(), delay)
	if n < 0 || delay <= 0 {
		return 0, field.Invalid(path, "back-off "+text, "is not on the node's curve: see crashloop check, and set --config, --config-dir and --feature-gates as the node has them")
	}
	return n, nil
}
