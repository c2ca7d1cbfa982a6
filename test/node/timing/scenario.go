// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/node"
)

// Scenario is one measurement, made with each of the two kubelets in turn.
type Scenario struct {
	Name string `json:"name"`
	node.Curve
	// API connects etcd and kube-apiserver. Several pods are measured only with
	// them: a standalone kubelet builds its node object again for each sync of a
	// static pod, which delays pods for reasons that are not the back-off.
	API  bool `json:"api"`
	Pods int  `json:"pods"`
	// Window is how long is measured, from when every pod has had its first
	// restart. Where it is zero, Restarts of the (then only) pod end the run.
	Window   time.Duration `json:"window"`
	Restarts int           `json:"restarts"`
	// LatenessRatio is how much of stock's mean lateness ours may have, both beyond what the
	// container runtime takes for a restart without a kubelet.
	LatenessRatio float64 `json:"latenessRatio,omitempty"`
	// Action restarts whole pods instead of containers: it is what a rule answers
	// the exit of one container with. With a Window, which then begins with the
	// first start, that container exits whenever it runs; without, it does so once
	// in each pod, and one pod waits for the other. The first restart of a pod has
	// no delay.
	Action corev1.ContainerRestartRuleAction `json:"action,omitempty"`
	// RequestLimit is how many API requests a restart may take; zero is no limit.
	RequestLimit float64 `json:"requestLimit,omitempty"`
	// Innocent starts innocent pods beside those that crash, and FirstStarts is true
	// where a gate of ours is on that puts them first.
	Innocent    bool `json:"innocent,omitempty"`
	FirstStarts bool `json:"firstStarts,omitempty"`
	// RestartRatio is how much of stock's median time a restart of a pod may take, and
	// WorstRatio how much of stock's worst.
	RestartRatio float64 `json:"restartRatio,omitempty"`
	WorstRatio   float64 `json:"worstRatio,omitempty"`

	goals []Goal
}

// Goal is an absolute figure that the project wants to reach. It is printed,
// but does not decide: machines differ, ratios within a run much less.
type Goal struct {
	What  string
	Unit  string
	Limit float64
	of    func(Figures) float64
}

// The windows keep the whole comparison below twenty-five minutes. With an API
// server they give some 300 (5 pods) and 500 (20 pods) restarts with a stock
// kubelet, so a restart cut off at either end moves requests per restart by
// less than one in a hundred. Their length shows in that figure all the same:
// the kubelet's event client lets each pod have a burst of events and then one
// now and then, so the longer the window, the fewer events per restart. Hence
// the longest that fits for api5. Requests are counted, not timed, and so their
// limit decides on any machine.
var scenarios = []Scenario{
	{
		Name: "max1s", Curve: node.Curve{Maximum: time.Second}, Pods: 1, Window: 60 * time.Second, LatenessRatio: 0.1,
		goals: []Goal{goalMean(1.08), goalWorst(1.2)},
	},
	{
		Name: "max4s", Curve: node.Curve{Maximum: 4 * time.Second}, Pods: 1, Window: 60 * time.Second, LatenessRatio: 0.1,
		goals: []Goal{goalMean(4.08)},
	},
	{
		Name: "default", Pods: 1, Restarts: 5, LatenessRatio: 0.1,
		goals: []Goal{goalWorstLateness},
	},
	// Up to 16 s, where a stock kubelet has the same curve; from the eighth restart
	// on it goes beyond 60 s.
	{
		Name: "reduced", Curve: node.Curve{Reduced: true}, Pods: 1, Restarts: 6, LatenessRatio: 0.1,
		goals: []Goal{goalWorstLateness},
	},
	{
		Name: "api5", Curve: node.Curve{Maximum: time.Second}, API: true, Pods: 5, Window: 120 * time.Second, LatenessRatio: 0.1, RequestLimit: 4.5,
		goals: []Goal{goalMean(1.08), goalCPU(20.4)},
	},
	{
		Name: "api20", Curve: node.Curve{Maximum: time.Second}, API: true, Pods: 20, Window: 60 * time.Second, LatenessRatio: 0.4,
		goals: []Goal{
			goalMean(1.4),
			{"interval, p99", "s", 2.0, func(f Figures) float64 { return f.Interval.P99 }},
			goalCPU(13.0),
		},
	},
	// The absolute goal is a quarter of what a stock kubelet took when it was set.
	{
		Name: "restartall", Action: corev1.ContainerRestartRuleActionRestartAllContainers, Pods: 10, RestartRatio: 0.25, WorstRatio: 0.35,
		goals: []Goal{goalPodRestart},
	},
	{
		Name: "restartpod", Action: node.ActionRestartPod, Pods: 10, RestartRatio: 0.25, WorstRatio: 0.35,
		goals: []Goal{goalPodRestart},
	},
	{
		Name: "restartloop", Action: corev1.ContainerRestartRuleActionRestartAllContainers, Pods: 1, Window: 60 * time.Second,
	},
	// So many that the container runtime is the limit.
	{
		Name: "innocent", Curve: node.Curve{Maximum: time.Second}, API: true, Pods: 100, Window: 60 * time.Second, Innocent: true,
	},
	{
		Name: "firststarts", Curve: node.Curve{Maximum: time.Second}, API: true, Pods: 100, Window: 60 * time.Second, Innocent: true, FirstStarts: true,
	},
}

var goalPodRestart = Goal{"trigger to all running, median", "s", 0.44, func(f Figures) float64 { return f.PodRestart.Median }}

var goalWorstLateness = Goal{"worst lateness", "s", 0.1, func(f Figures) float64 { return f.Lateness.Worst }}

func goalMean(limit float64) Goal {
	return Goal{"interval, mean", "s", limit, func(f Figures) float64 { return f.Interval.Mean }}
}

func goalWorst(limit float64) Goal {
	return Goal{"interval, worst", "s", limit, func(f Figures) float64 { return f.Interval.Worst }}
}

func goalCPU(limit float64) Goal {
	return Goal{"kubelet CPU per restart", "ms", limit, func(f Figures) float64 { return f.CPUPerRestart }}
}

// String says in words what is measured.
func (s Scenario) String() string {
	where, pods, maximum, length := "standalone", "1 pod", "default curve", fmt.Sprintf("first %d restarts", s.Restarts)
	if s.API {
		where = "with an API server"
	}
	if s.Action != "" {
		return s.restartString(where)
	}
	if s.Pods > 1 {
		pods = fmt.Sprintf("%d pods", s.Pods)
	}
	if s.Reduced {
		maximum = "reduced decay"
	}
	if s.Maximum > 0 {
		maximum = fmt.Sprintf("maximum %v", s.Maximum)
	}
	if s.Window > 0 {
		length = s.Window.String()
	}
	if s.Innocent {
		length += ", innocent pods beside them"
	}
	if s.FirstStarts {
		length += ", ours with " + gateFirstStarts
	}
	return strings.Join([]string{where, pods, maximum, length}, ", ")
}

// short returns the scenarios for a release that is not the newest, in which what
// differs between releases shows: some seven minutes with both kubelets.
func short() []Scenario {
	selected, err := selectScenarios("max1s,default,api5", 40*time.Second)
	if err != nil {
		panic(err)
	}
	for i := range selected {
		if selected[i].Restarts > 0 {
			selected[i].Restarts = 4 // up to 40 s
		}
	}
	return selected
}

// selectScenarios returns the scenarios that a comma-separated list names, in
// the order they always run in; an empty list means all. A window above zero
// replaces that of every scenario that has one.
func selectScenarios(list string, window time.Duration) ([]Scenario, error) {
	var names, known []string
	for _, s := range scenarios {
		known = append(known, s.Name)
	}
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("no scenario is named %q; there are: %s", name, strings.Join(known, ", "))
		}
		names = append(names, name)
	}
	var selected []Scenario
	for _, s := range scenarios {
		if len(names) > 0 && !slices.Contains(names, s.Name) {
			continue
		}
		if window > 0 && s.Window > 0 {
			s.Window = window
		}
		selected = append(selected, s)
	}
	return selected, nil
}
