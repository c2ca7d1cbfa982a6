// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubelet-backoff/kubelet-backoff/agent"
	"github.com/kubelet-backoff/kubelet-backoff/backoff"
	"github.com/kubelet-backoff/kubelet-backoff/kuberuntime"
	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

// Assumed returns the lives of all containers: those given, and for the others what is likely.
// A container that has exited before goes on like that, unless it runs longer by now. In a pod that never ran, init containers
// succeed after a second, and the first regular container fails after a second, unless any lives
// are given. All else runs.
func Assumed(pod *v1.Pod, given map[string]Lives, now time.Time) map[string]Lives {
	all := map[string]Lives{}
	for i, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		status, _ := statusOf(pod, c.Name)
		last := lastExit(status)
		life := Life{Runs: true}
		switch sidecar := c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways; {
		case given[c.Name] != nil:
			all[c.Name] = given[c.Name]
			continue
		case last != nil:
			ran := time.Second
			if known(last.StartedAt) && known(last.FinishedAt) {
				ran = max(last.FinishedAt.Sub(last.StartedAt.Time), 0)
			}
			if r := status.State.Running; r == nil || now.Sub(r.StartedAt.Time) <= ran {
				life = Life{Code: last.ExitCode, After: ran}
			}
		case i < len(pod.Spec.InitContainers) && !sidecar:
			life = Life{After: time.Second}
		case i == len(pod.Spec.InitContainers) && len(given) == 0 && status == nil:
			life = Life{Code: 1, After: time.Second}
		}
		all[c.Name] = Lives{life}
	}
	return all
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
	case s.LastTerminationState.Terminated == nil && s.State.Waiting != nil && containerBackOff.MatchString(s.State.Waiting.Message):
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

// checkNames returns an error for a name that is missing, there twice, or in the status alone.
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
	return cmp.Or(
		check("initContainers", pod.Spec.InitContainers), check("containers", pod.Spec.Containers),
		checkStatus("initContainerStatuses", pod.Status.InitContainerStatuses), checkStatus("containerStatuses", pod.Status.ContainerStatuses),
	)
}

// The messages of containers that wait for their own back-off, and for that of the pod.
var (
	containerBackOff = regexp.MustCompile(`^back-off (\S+) restarting failed container=`)
	podBackOff       = regexp.MustCompile(`^back-off (\S+) restarting pod `)
)

// resume puts the runtime and the back-offs in the state that the pod's status has.
func (m *maker) resume() error {
	for i := range m.specs {
		c := &m.specs[i]
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
	if len(m.Pod.Status.Conditions) == 0 && m.Pod.Status.StartTime == nil {
		return nil
	}
	// The agent has the rest of the status from where an agent before it has left it.
	dir, err := os.MkdirTemp("", "crashloop-plan-")
	if err != nil {
		return err
	}
	m.statusFile = filepath.Join(dir, "status.json")
	data, err := json.Marshal(m.Pod.Status)
	if err != nil {
		return err
	}
	return os.WriteFile(m.statusFile, data, 0o600)
}

// instance returns the newest instance of a container by its status, or nil if it has none.
func (m *maker) instance(s *v1.ContainerStatus, path *field.Path) (*agent.Instance, error) {
	if s.RestartCount < 0 {
		return nil, field.Invalid(path.Child("restartCount"), s.RestartCount, "must be 0 or more")
	}
	i := &agent.Instance{Restarts: int(s.RestartCount)}
	last := lastExit(s)
	if r := s.State.Running; r != nil {
		running := path.Child("state", "running", "startedAt")
		switch {
		case s.State.Terminated != nil:
			return nil, field.Forbidden(path.Child("state"), "a container is either running or terminated")
		case last != nil && known(r.StartedAt) && last.FinishedAt.After(r.StartedAt.Time):
			return nil, field.Invalid(running, r.StartedAt.UTC().Format(time.RFC3339), "must not be before the end of the last run, "+last.FinishedAt.UTC().Format(time.RFC3339))
		}
		i.ID, i.State, i.StartedAt = s.ContainerID, restartpod.StateRunning, m.orNow(s.Name+" started", r.StartedAt, m.Begin)
		return i, m.checkTimes(path.Child("state", "running"), i.StartedAt, i.StartedAt)
	}
	if w := s.State.Waiting; w != nil {
		if w.Reason != "" && w.Reason != "CrashLoopBackOff" && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
			m.note("%s waits: %s. The plan takes it to be over", s.Name, w.Reason)
		}
	}
	if last == nil {
		return nil, nil
	}
	terminated := path.Child("lastState", "terminated")
	if s.State.Terminated != nil {
		terminated = path.Child("state", "terminated")
	}
	i.ID, i.State, i.ExitCode = last.ContainerID, restartpod.StateExited, last.ExitCode
	i.FinishedAt = m.orNow(s.Name+" exited", last.FinishedAt, m.Begin)
	if i.StartedAt = last.StartedAt.Time; !known(last.StartedAt) {
		i.StartedAt = i.FinishedAt
	}
	return i, m.checkTimes(terminated, i.StartedAt, i.FinishedAt)
}

// orNow is a time of a status, or the present if it has none.
func (m *maker) orNow(what string, t metav1.Time, now time.Time) time.Time {
	if known(t) {
		return t.Time
	}
	m.note("it is not known when %s: the plan takes it to be now", what)
	return now
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

// restore gives a container, or the pod, the back-off that its status shows. Where no wait shows
// it, every restart so far counts as one in a row.
func (m *maker) restore(c *v1.Container, s *v1.ContainerStatus, i *agent.Instance, path *field.Path) error {
	b, key := m.backOff, kuberuntime.Key(m.Pod, c)
	state := backoff.KeyState{Attempts: i.Restarts, LastUpdate: i.StartedAt}
	if w := s.State.Waiting; w != nil && i.State == restartpod.StateExited {
		text := containerBackOff.FindStringSubmatch(w.Message)
		if pod := podBackOff.FindStringSubmatch(w.Message); pod != nil {
			b, key, text = m.podBackOff, restartpod.New(m.podBackOff, m.Pod, m.Gates).BackOffKey(), pod
		}
		if text != nil {
			attempt, err := m.attempt(text[1], path.Child("state", "waiting", "message"))
			if err != nil {
				return err
			}
			state.Attempts, state.WaitingSince = attempt-1, i.FinishedAt
		}
	}
	if state.Attempts == 0 {
		return nil
	}
	return b.RestoreAt(key, state, m.Begin)
}

// attempt is the restart that has to wait for a delay.
func (m *maker) attempt(text string, path *field.Path) (int, error) {
	delay, err := time.ParseDuration(text)
	if err == nil {
		for n, d := range m.Curve.Delays() {
			if d == delay && d > 0 {
				return n + 1, nil
			}
		}
	}
	return 0, field.Invalid(path, "back-off "+text, "is not on the node's curve: see crashloop check, and set --config, --config-dir and --feature-gates as the node has them")
}
