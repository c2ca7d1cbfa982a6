// SPDX-License-Identifier: Apache-2.0

// Package plan predicts the restarts of a pod. It runs the agent in virtual time, and a script
// decides when containers exit. It has no formula for delays or restarts: packages config,
// backoff, restart, restartpod and agent decide, as they do on a node.
package plan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubelet-backoff/kubelet-backoff/agent"
	"github.com/kubelet-backoff/kubelet-backoff/asked"
	"github.com/kubelet-backoff/kubelet-backoff/backoff"
	"github.com/kubelet-backoff/kubelet-backoff/restart"
	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

// Options configures a plan.
type Options struct {
	// Pod is a valid pod with all defaults. The plan continues from its status.
	Pod   *v1.Pod
	Gates restartpod.Gates
	// Curve is the back-off curve of the node.
	Curve backoff.Curve
	// Lives maps containers to their scripts. The plan assumes a script for every other
	// container: see Plan.Assumed.
	Lives map[string]Lives
	// Recovers maps containers to a time after Begin. An instance that starts at that time or
	// later does not exit.
	Recovers map[string]time.Duration
	// RestartAt makes annotations of the pod end waits (package asked).
	RestartAt bool
	// MaxRestarts makes an annotation end the pod (package asked).
	MaxRestarts bool
	// Curves makes annotations give containers another back-off (package asked).
	Curves bool
	// Begin is the current time, and For is the length of the plan.
	Begin time.Time
	For   time.Duration
	// Seed is the seed of random times. The same seed gives the same plan.
	Seed uint64
	// Cost is that of all plans with this Cost. The limits apply to their sum.
	Cost *Cost
}

// Cost is what plans have cost.
type Cost struct{ entries, work int }

// ErrTooLong is the error of a plan that costs too much.
var ErrTooLong = errors.New("use a shorter --for, or longer runs")

const (
	// maxEntries limits the lines of plans.
	maxEntries = 100_000
	// maxSteps limits the steps at one point in time, for a pod that never settles.
	maxSteps = 10_000
	// maxWork limits the steps times the containers, because a step takes a microsecond for each
	// container.
	maxWork = 4_000_000
)

// Kind is the kind of an entry.
type Kind string

// The kinds of entries.
const (
	Start      Kind = "Start"
	Exit       Kind = "Exit"
	Wait       Kind = "Wait"
	Reset      Kind = "Reset"
	PodRestart Kind = "PodRestart"
	PodWait    Kind = "PodWait"
	PodEnd     Kind = "PodEnd"
)

// Entry is a line of the plan.
type Entry struct {
	Time time.Time `json:"time"`
	Kind Kind      `json:"kind"`
	// Container is empty for an entry about the pod.
	Container string `json:"container,omitempty"`
	// Restarts is set for a start. It is the number of earlier instances.
	Restarts int `json:"restarts,omitempty"`
	// ExitCode and RanSeconds are set for an exit.
	ExitCode   *int32  `json:"exitCode,omitempty"`
	RanSeconds float64 `json:"ranSeconds,omitempty"`
	// DelaySeconds and Until are set for a wait: the delay of the back-off, and its end.
	DelaySeconds float64    `json:"delaySeconds,omitempty"`
	Until        *time.Time `json:"until,omitempty"`
	// Message is the condition of a start, the cause of a pod restart, or the final phase of
	// the pod and its reason.
	Message string `json:"message,omitempty"`
}

// Plan is the predicted future of a pod.
type Plan struct {
	// Assumed maps the containers that Options.Lives does not name to their scripts.
	Assumed map[string]string `json:"assumed,omitempty"`
	Begin   time.Time         `json:"begin"`
	End     time.Time         `json:"end"`
	Entries []Entry           `json:"entries"`
	// Containers is in the order of the spec, init containers first.
	Containers []Summary   `json:"containers"`
	Phase      v1.PodPhase `json:"phase"`
	// Notes lists the assumptions that the plan makes because the status is incomplete.
	Notes []string `json:"notes,omitempty"`
}

// Summary sums up a container within the plan.
type Summary struct {
	Name     string `json:"name"`
	Restarts int    `json:"restarts"`
	// RanSeconds is the time for which the container ran in the plan.
	RanSeconds float64 `json:"ranSeconds"`
	// DownSeconds is the time for which the container waited for a restart. A container that
	// will not be restarted is not down.
	DownSeconds float64 `json:"downSeconds"`
}

// Make makes the plan. It returns an error, which names the field, if the pod or its status
// contradicts itself or the curve. It also returns an error if the plan is too long. If the status
// is slightly later than Begin, the clocks differ, and the plan begins at the time of the status.
func Make(o Options) (*Plan, error) {
	if err := checkStatus(o.Pod); err != nil {
		return nil, err
	}
	o.Pod = o.Pod.DeepCopy()
	var notes []string
	if newest := newestTime(o.Pod); newest.After(o.Begin) && newest.Sub(o.Begin) <= clockSkew {
		notes = append(notes, fmt.Sprintf("the status is %v ahead of the local clock: the plan begins at the time of the status", newest.Sub(o.Begin)))
		o.Begin = newest
	}
	m := &maker{
		Options:    o,
		plan:       &Plan{Assumed: map[string]string{}, Begin: o.Begin, End: o.Begin.Add(o.For), Entries: []Entry{}, Phase: o.Pod.Status.Phase, Notes: notes},
		containers: containers(o.Pod, o.Gates), keys: map[string]string{}, waits: map[string]time.Time{}, conditions: map[string]string{},
		now: o.Begin, random: rand.New(rand.NewPCG(o.Seed, 0)), lives: assumed(o.Pod, o.Lives, o.Begin),
		instances: map[string]agent.Instance{}, lost: map[string]int{}, exits: map[string]exit{}, starts: map[string]int{},
	}
	m.backOff, m.podBackOff = agent.NewBackOffs(nil, o.Curve)
	m.backOff.SetMetrics(m)
	if o.Curves {
		m.curves = asked.NewCurves(o.Curve)
		m.curves.Note(nil, o.Pod, o.Begin)
		m.backOff.RulesOf = m.curves.Rules
	}
	m.keys[""] = restartpod.New(m.podBackOff, o.Pod, o.Gates).BackOffKey()
	for _, list := range [][]v1.Container{o.Pod.Spec.InitContainers, o.Pod.Spec.Containers} {
		for i := range list {
			m.keys[list[i].Name] = restart.Key(o.Pod, &list[i])
		}
	}
	for name, lives := range m.lives {
		if o.Lives[name] == nil {
			m.plan.Assumed[name] = lives.String()
		}
	}
	if err := m.resume(); err != nil {
		return nil, err
	}
	if phase := m.plan.Phase; phase == v1.PodSucceeded || phase == v1.PodFailed {
		// These phases are final, whatever the restart policies of the containers are.
		m.add(Entry{Kind: PodEnd, Message: string(phase)})
		m.summarize()
		return m.plan, nil
	}
	return m.plan, m.run()
}

// maker makes a plan. It is an agent.Runtime in virtual time: scripts decide when its containers exit,
// and everything else takes no time.
type maker struct {
	Options
	plan                *Plan
	containers          []restartpod.Container
	backOff, podBackOff *backoff.Backoff
	// curves is nil without Options.Curves.
	curves *asked.Curves
	// resets counts the resets of the back-off since the last start.
	resets int
	// keys maps each container to its key in the back-off, and waits to the end of the last wait
	// in the plan. The pod has the entry "".
	keys  map[string]string
	waits map[string]time.Time
	// conditions maps each container to the condition of its next start. The plan assumes that it
	// becomes true.
	conditions map[string]string

	now    time.Time
	random *rand.Rand
	lives  map[string]Lives
	// ready is true after the sandbox was created.
	ready     bool
	instances map[string]agent.Instance
	// lost maps containers whose instances are unknown to their restart count.
	lost map[string]int
	// exits maps containers to the next exit of their running instances.
	exits map[string]exit
	// starts counts the starts of each container in the plan.
	starts map[string]int
}

// run steps the agent from one event to the next.
func (m *maker) run() error {
	var restarts *asked.Restarts
	if m.RestartAt {
		restarts = &asked.Restarts{}
	}
	var limits *asked.Limits
	if m.MaxRestarts {
		limits = &asked.Limits{}
	}
	a, err := agent.New(agent.Options{
		Pod: m.Pod, RestartAt: restarts, MaxRestarts: limits, Curves: m.curves, Runtime: m, Gates: m.Gates, ContainerBackOff: m.backOff, PodBackOff: m.podBackOff,
		Recorder: m, Report: m.report, Earlier: m.Pod.Status,
		Probe: func(context.Context, string, *v1.Probe) (string, bool, error) { return "", true, nil },
	})
	if err != nil {
		return err
	}
	if m.Pod.DeletionTimestamp != nil {
		a.Delete()
	}
	cost := cmp.Or(m.Cost, &Cost{})
	earlier := cost.entries
	for steps := 0; ; steps++ {
		next, done := a.Step(context.Background(), m.now)
		m.plan.Phase = a.Status().Phase
		if done {
			message := string(m.plan.Phase)
			if reason := a.Status().Reason; reason != "" {
				message += ": " + reason
			}
			m.add(Entry{Kind: PodEnd, Message: message})
			break
		}
		for _, e := range m.exits {
			if next.IsZero() || e.at.Before(next) {
				next = e.at
			}
		}
		if next.IsZero() || next.After(m.plan.End) {
			break
		}
		if next.After(m.now) {
			m.now, steps = next, 0
		}
		cost.entries = earlier + len(m.plan.Entries)
		cost.work += len(m.containers)
		if cost.entries > maxEntries || steps > maxSteps || cost.work > maxWork {
			return fmt.Errorf("the plan is too long by %s: %w", m.now.Format(time.RFC3339), ErrTooLong)
		}
		for _, c := range m.containers {
			if e, ok := m.exits[c.Name]; ok && !e.at.After(m.now) {
				m.end(c.Name, e.code)
			}
		}
	}
	m.summarize()
	return nil
}

func (m *maker) add(e Entry) {
	e.Time = m.now
	m.plan.Entries = append(m.plan.Entries, e)
}

// Eventf records restarts of the pod. Start and end add the entries about containers.
func (m *maker) Eventf(_ runtime.Object, _, reason, format string, args ...any) {
	if reason == restartpod.EventPodRestarting {
		m.add(Entry{Kind: PodRestart, Message: fmt.Sprintf(format, args...)})
	}
}

// report adds the new waits.
func (m *maker) report(s agent.Status) {
	m.wait(Entry{Kind: PodWait}, m.podBackOff, s.RetryAt)
	for _, c := range s.Containers {
		m.wait(Entry{Kind: Wait, Container: c.Name}, m.backOff, c.RetryAt)
	}
}

func (m *maker) wait(e Entry, b *backoff.Backoff, until time.Time) {
	if until.Equal(m.waits[e.Container]) {
		return
	}
	m.waits[e.Container] = until
	if until.After(m.now) {
		e.Until, e.DelaySeconds = &until, b.Get(m.keys[e.Container]).Seconds()
		if e.DelaySeconds == 0 { // It waits for the rest of backoff.IgnoredInterval.
			e.DelaySeconds = until.Sub(m.instances[e.Container].FinishedAt).Seconds()
		}
		m.add(e)
	}
}

// summarize adds the summary of each container.
func (m *maker) summarize() {
	for _, c := range m.containers {
		s := Summary{Name: c.Name}
		var ran, down time.Duration
		// The time after from is added to *current, which is ran, down or none.
		var current *time.Duration
		var from time.Time
		set := func(now time.Time, next *time.Duration) {
			if current != nil {
				*current += now.Sub(from)
			}
			current, from = next, now
		}
		wait := func(e Entry) {
			if current == nil {
				set(e.Time, &down)
			}
		}
		if status, _ := statusOf(m.Pod, c.Name); status != nil && status.State.Running != nil {
			set(m.Begin, &ran)
		}
		podRestarts := false
		for _, e := range m.plan.Entries {
			switch {
			case e.Kind == PodRestart || e.Kind == PodWait:
				podRestarts = true
				wait(e)
			case e.Kind == PodEnd:
				set(e.Time, nil)
			case e.Container != c.Name:
				podRestarts = podRestarts && e.Kind != Start
			case e.Kind == Wait:
				wait(e)
			case e.Kind == Start:
				set(e.Time, &ran)
				podRestarts = false
				if e.Restarts > 0 {
					s.Restarts++
				}
			case e.Kind == Exit:
				if set(e.Time, nil); podRestarts {
					wait(e)
				}
			}
		}
		set(m.plan.End, nil)
		s.RanSeconds, s.DownSeconds = ran.Seconds(), down.Seconds()
		m.plan.Containers = append(m.plan.Containers, s)
	}
}

// maker is a backoff.Metrics that only counts resets.

func (m *maker) KeyAdded() {}

func (m *maker) KeyRemoved() {}

func (m *maker) KeyReset() { m.resets++ }

func (m *maker) RestartAllowed(string, time.Duration, time.Duration) {}
