// SPDX-License-Identifier: Apache-2.0

// Package plan predicts the restarts of a pod. It runs the agent in virtual time, with
// containers that exit as a script says. It has no formula for delays or restarts: packages
// config, backoff, kuberuntime, restartpod and agent decide, as they do on a node.
package plan

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubelet-backoff/kubelet-backoff/agent"
	"github.com/kubelet-backoff/kubelet-backoff/backoff"
	"github.com/kubelet-backoff/kubelet-backoff/kuberuntime"
	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

// Options are what a plan is made of.
type Options struct {
	// Pod is a valid pod with all defaults. Its status is where the plan begins.
	Pod   *v1.Pod
	Gates restartpod.Gates
	// Curve is that of the node.
	Curve backoff.Curve
	// Lives has a script for each container that has one. Others have what is likely: Plan.Assumed.
	Lives map[string]Lives
	// Recovers has, for containers, how long after Begin each instance that starts runs for ever.
	Recovers map[string]time.Duration
	// Begin is the present, and For how much of the future the plan has.
	Begin time.Time
	For   time.Duration
	// Seed makes what is drawn of distributions. The same one gives the same plan.
	Seed uint64
}

// Kind is what happens.
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
	// Container is empty where the pod is concerned.
	Container string `json:"container,omitempty"`
	// Restarts is for a start: how many instances there were before.
	Restarts int `json:"restarts,omitempty"`
	// ExitCode and RanSeconds are for an exit.
	ExitCode   *int32  `json:"exitCode,omitempty"`
	RanSeconds float64 `json:"ranSeconds,omitempty"`
	// DelaySeconds and Until are for a wait: the back-off, and when it ends.
	DelaySeconds float64    `json:"delaySeconds,omitempty"`
	Until        *time.Time `json:"until,omitempty"`
	// Message is for a start what has to be over before, and for the pod what happens to it.
	Message string `json:"message,omitempty"`
}

// Plan is what will happen.
type Plan struct {
	// Assumed has the scripts of the containers that Options.Lives does not name.
	Assumed map[string]string `json:"assumed,omitempty"`
	Begin   time.Time         `json:"begin"`
	End     time.Time         `json:"end"`
	Entries []Entry           `json:"entries"`
	// Containers has the sums of each container, in the order of the spec.
	Containers []Summary   `json:"containers"`
	Phase      v1.PodPhase `json:"phase"`
	// Notes are the plan's assumptions where the status is incomplete.
	Notes []string `json:"notes,omitempty"`
}

// Summary sums up a container within the plan.
type Summary struct {
	Name     string `json:"name"`
	Restarts int    `json:"restarts"`
	// RanSeconds is how long it ran in the plan.
	RanSeconds float64 `json:"ranSeconds"`
	// DownSeconds is how long it waited for a restart. Once it has ended for good it is not down.
	DownSeconds float64 `json:"downSeconds"`
}

// Make makes the plan. An error is for a pod or a status that contradicts itself or the curve, and
// names the field, or for a plan that is too long. A status that is a little later than Begin is of
// another clock: the plan begins with it.
func Make(o Options) (*Plan, error) {
	if err := checkNames(o.Pod); err != nil {
		return nil, err
	}
	notes := []string(nil)
	if newest := newestTime(o.Pod); newest.After(o.Begin) && newest.Sub(o.Begin) <= clockSkew {
		notes = append(notes, fmt.Sprintf("the status is %v later than this clock: the plan begins then", newest.Sub(o.Begin)))
		o.Begin = newest
	}
	m := &maker{
		Options:    o,
		plan:       &Plan{Assumed: map[string]string{}, Begin: o.Begin, End: o.Begin.Add(o.For), Entries: []Entry{}, Phase: o.Pod.Status.Phase, Notes: notes},
		containers: containers(o.Pod, o.Gates), keys: map[string]string{}, waits: map[string]time.Time{}, ifs: map[string]string{},
	}
	m.backOff, m.podBackOff = agent.NewBackOffs(nil, o.Curve)
	m.backOff.SetMetrics("", m)
	m.keys[""] = restartpod.New(m.podBackOff, o.Pod, o.Gates).BackOffKey()
	for _, list := range [][]v1.Container{o.Pod.Spec.InitContainers, o.Pod.Spec.Containers} {
		for i := range list {
			m.keys[list[i].Name] = kuberuntime.Key(o.Pod, &list[i])
		}
	}
	m.runtime = &scripted{
		now: o.Begin, random: rand.New(rand.NewPCG(o.Seed, 0)), lives: assumed(o.Pod, o.Lives, o.Begin), recovers: map[string]time.Time{},
		instances: map[string]agent.Instance{}, lost: map[string]int{}, exits: map[string]exit{}, starts: map[string]int{},
		started: m.started, exited: m.exited,
	}
	for name, lives := range m.runtime.lives {
		if o.Lives[name] == nil {
			m.plan.Assumed[name] = lives.String()
		}
	}
	for name, after := range o.Recovers {
		m.runtime.recovers[name] = o.Begin.Add(after)
	}
	if err := m.resume(); err != nil {
		return nil, err
	}
	if phase := m.plan.Phase; phase == v1.PodSucceeded || phase == v1.PodFailed {
		// A pod does not come back from there, whatever its containers' policy.
		m.add(Entry{Kind: PodEnd, Message: string(phase)})
		m.sum()
		return m.plan, nil
	}
	if m.least() > most {
		return nil, fmt.Errorf("in %v %w", o.For, errTooLong)
	}
	return m.plan, m.run()
}

// maker makes a plan.
type maker struct {
	Options
	plan                *Plan
	containers          []restartpod.Container
	runtime             *scripted
	backOff, podBackOff *backoff.Backoff
	// resets is how often the reset rule held for a start that is not noted yet.
	resets int
	// keys has that of each container in its back-off, and waits when its noted wait ends. Those
	// of the pod are under "".
	keys  map[string]string
	waits map[string]time.Time
	// ifs has what the next start of a container depends on that the plan takes for granted.
	ifs map[string]string
}

// run steps the agent from one thing that happens to the next.
func (m *maker) run() error {
	a, err := agent.New(agent.Options{
		Pod: m.Pod, Runtime: m.runtime, Gates: m.Gates, ContainerBackOff: m.backOff, PodBackOff: m.podBackOff,
		Recorder: m, Report: m.report, Earlier: m.Pod.Status,
		Probe: func(context.Context, string, *v1.Probe) (string, bool, error) { return "", true, nil },
	})
	if err != nil {
		return err
	}
	if m.Pod.DeletionTimestamp != nil {
		a.Delete()
	}
	// A pod that comes to no rest in a moment would take for ever.
	const restless = 10_000
	for now, steps := m.Begin, 0; ; steps++ {
		next, done := a.Step(context.Background(), now)
		m.plan.Phase = a.Status().Phase
		if done {
			m.add(Entry{Kind: PodEnd, Message: string(m.plan.Phase)})
			break
		}
		if exits := m.runtime.next(); next.IsZero() || !exits.IsZero() && exits.Before(next) {
			next = exits
		}
		if next.IsZero() || next.After(m.plan.End) {
			break
		}
		if next.After(now) {
			now, steps = next, 0
		}
		if len(m.plan.Entries) > most || steps > restless {
			return fmt.Errorf("by %s %w", now.Format(time.RFC3339), errTooLong)
		}
		m.runtime.advance(now, m.containers)
	}
	m.sum()
	return nil
}

// add adds an entry at the present.
func (m *maker) add(e Entry) {
	e.Time = m.runtime.now
	m.plan.Entries = append(m.plan.Entries, e)
}

func (m *maker) started(container string, restarts int) {
	for ; m.resets > 0; m.resets-- {
		m.add(Entry{Kind: Reset, Container: container})
	}
	m.add(Entry{Kind: Start, Container: container, Restarts: restarts, Message: m.ifs[container]})
	delete(m.ifs, container)
}

func (m *maker) exited(container string, code int32, ran time.Duration) {
	m.add(Entry{Kind: Exit, Container: container, ExitCode: &code, RanSeconds: ran.Seconds()})
}

// Eventf records restarts of the pod. Entries about containers come from the runtime.
func (m *maker) Eventf(_ runtime.Object, _, reason, format string, args ...any) {
	if reason == restartpod.EventPodRestarting {
		m.add(Entry{Kind: PodRestart, Message: fmt.Sprintf(format, args...)})
	}
}

// report notes waits that are new.
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
	if until.After(m.runtime.now) {
		e.Until, e.DelaySeconds = &until, b.Get(m.keys[e.Container]).Seconds()
		m.add(e)
	}
}

// sum sums up each container.
func (m *maker) sum() {
	for _, c := range m.containers {
		s := Summary{Name: c.Name}
		var ran, down time.Duration
		// It runs since one time, or is down since the other.
		var since, downSince time.Time
		if status, _ := statusOf(m.Pod, c.Name); status != nil && status.State.Running != nil {
			since = m.Begin
		}
		wait := func(e Entry) {
			if since.IsZero() && downSince.IsZero() {
				downSince = e.Time
			}
		}
		end := func(now time.Time) {
			if !since.IsZero() {
				ran += now.Sub(since)
			}
			if !downSince.IsZero() {
				down += now.Sub(downSince)
			}
			since, downSince = time.Time{}, time.Time{}
		}
		podRestarts := false
		for _, e := range m.plan.Entries {
			switch {
			case e.Kind == PodRestart || e.Kind == PodWait:
				podRestarts = true
				wait(e)
			case e.Kind == PodEnd:
				end(e.Time)
			case e.Container != c.Name:
				podRestarts = podRestarts && e.Kind != Start
			case e.Kind == Wait:
				wait(e)
			case e.Kind == Start:
				end(e.Time)
				podRestarts = false
				if since = e.Time; e.Restarts > 0 {
					s.Restarts++
				}
			case e.Kind == Exit:
				if end(e.Time); podRestarts {
					wait(e)
				}
			}
		}
		end(m.plan.End)
		s.RanSeconds, s.DownSeconds = ran.Seconds(), down.Seconds()
		m.plan.Containers = append(m.plan.Containers, s)
	}
}

// The methods of backoff.MetricsProvider: of all that it may count, a plan shows resets.

func (m *maker) NewKeysMetric(string) backoff.GaugeMetric { return nil }

func (m *maker) NewDelayMetric(string) backoff.HistogramMetric { return nil }

func (m *maker) NewLatenessMetric(string) backoff.HistogramMetric { return nil }

func (m *maker) NewResetsMetric(string) backoff.CounterMetric { return m }

// Inc counts a reset.
func (m *maker) Inc() { m.resets++ }
