// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
)

// Scenario is a measurement of each of the two kubelets.
type Scenario struct {
	Name string `json:"name"`
	harness.Curve
	// API adds etcd and kube-apiserver. Scenarios with several pods need them: a
	// standalone kubelet builds its node object again for each sync of a static pod,
	// which delays pods for reasons other than the back-off.
	API  bool `json:"api"`
	Pods int  `json:"pods"`
	// Window is the length of the measurement, which begins when every pod has had its
	// first restart. If it is zero, there is one pod, and the run ends after Restarts.
	Window   time.Duration `json:"window"`
	Restarts int           `json:"restarts"`
	// LatenessRatio is the limit for our mean lateness, as a share of stock's. Both are
	// without the time that the container runtime takes for a restart without a kubelet.
	LatenessRatio float64 `json:"latenessRatio,omitempty"`
	// Action restarts whole pods instead of containers: it is the action of a restart
	// rule for the exit of one container. With a Window, which then begins with the
	// first start, that container exits whenever it runs. Without a Window, it exits
	// once in each pod, one pod after another. The first restart of a pod has no delay.
	Action corev1.ContainerRestartRuleAction `json:"action,omitempty"`
	// Network gives the pods a network of their own instead of the host's, and CSI gives each
	// a CSI volume, for which a kubelet needs an API server.
	Network bool `json:"network,omitempty"`
	CSI     bool `json:"csi,omitempty"`
	// RequestLimit is the maximum number of API requests per restart; 0 is no limit.
	RequestLimit float64 `json:"requestLimit,omitempty"`
	// Healthy starts healthy pods beside those that crash.
	Healthy bool `json:"healthy,omitempty"`
	// Inits is the number of init containers of a healthy pod, each of which succeeds at
	// once, and InitRatio how much of stock's median time its start on the idle node may take.
	Inits     int     `json:"inits,omitempty"`
	InitRatio float64 `json:"initRatio,omitempty"`
	// ImageSize is the size in bytes of an image that the node downloads for each healthy pod.
	ImageSize int64 `json:"imageSize,omitempty"`
	// RestartRatio is how much of stock's median time a restart of a pod may take, and
	// WorstRatio how much of stock's worst.
	RestartRatio float64 `json:"restartRatio,omitempty"`
	WorstRatio   float64 `json:"worstRatio,omitempty"`

	goals []Goal
}

// Goal is an absolute figure that the project wants to reach. It is only printed,
// because machines differ. Ratios within a run differ much less.
type Goal struct {
	What  string
	Unit  string
	Limit float64
	of    func(Figures) float64
}

// The windows keep the whole comparison below twenty-five minutes. With an API
// server they give some 300 (5 pods) and 500 (20 pods) restarts with a stock
// kubelet, so an incomplete restart at either end changes the requests per restart
// by less than one percent. The length of the window still affects that figure: the
// kubelet's event client lets each pod have a burst of events and then few more, so
// a longer window has fewer events per restart. So api5 has the longest window that
// fits. The number of requests does not depend on the speed of the machine, so their
// limit is a criterion on any machine.
var scenarios = []Scenario{
	{
		Name: "max1s", Curve: harness.Curve{Maximum: time.Second}, Pods: 1, Window: 60 * time.Second, LatenessRatio: 0.1,
		goals: []Goal{goalMean(1.08), goalWorst(1.2)},
	},
	{
		Name: "max4s", Curve: harness.Curve{Maximum: 4 * time.Second}, Pods: 1, Window: 60 * time.Second, LatenessRatio: 0.1,
		goals: []Goal{goalMean(4.08)},
	},
	{
		Name: "default", Pods: 1, Restarts: 5, LatenessRatio: 0.1,
		goals: []Goal{goalWorstLateness},
	},
	// The delays go up to 16 s, because from the eighth restart on a stock kubelet
	// exceeds the maximum of 60 s.
	{
		Name: "reduced", Curve: harness.Curve{Reduced: true}, Pods: 1, Restarts: 6, LatenessRatio: 0.1,
		goals: []Goal{goalWorstLateness},
	},
	{
		Name: "api5", Curve: harness.Curve{Maximum: time.Second}, API: true, Pods: 5, Window: 120 * time.Second, LatenessRatio: 0.1, RequestLimit: 4.5,
		goals: []Goal{goalMean(1.08), goalCPU(20.4)},
	},
	{
		Name: "api20", Curve: harness.Curve{Maximum: time.Second}, API: true, Pods: 20, Window: 60 * time.Second, LatenessRatio: 0.4,
		goals: []Goal{
			goalMean(1.4),
			{"interval, p99", "s", 2.0, func(f Figures) float64 { return f.Interval.P99 }},
			goalCPU(13.0),
		},
	},
	// The absolute goal is a quarter of a stock kubelet's time when the goal was set.
	{
		Name: "restartall", Action: corev1.ContainerRestartRuleActionRestartAllContainers, Pods: 10, RestartRatio: 0.25, WorstRatio: 0.35,
		goals: []Goal{goalPodRestart},
	},
	{
		Name: "restartpod", Action: harness.ActionRestartPod, Pods: 10, RestartRatio: 0.25, WorstRatio: 0.35,
		goals: []Goal{goalPodRestart},
	},
	// KEP-4603 asks for figures with network plugins and with CSI drivers. A restart must
	// call neither, so the criteria are the same.
	{
		Name: "restartcni", Action: harness.ActionRestartPod, Pods: 10, Network: true, RestartRatio: 0.25, WorstRatio: 0.35,
		goals: []Goal{goalPodRestart},
	},
	{
		Name: "restartcsi", Action: harness.ActionRestartPod, Pods: 10, API: true, CSI: true, RestartRatio: 0.25, WorstRatio: 0.35,
		goals: []Goal{goalPodRestart},
	},
	{
		Name: "restartloop", Action: corev1.ContainerRestartRuleActionRestartAllContainers, Pods: 1, Window: 60 * time.Second,
	},
	// The kubelet must see the end of each init container before it starts the next one.
	{
		Name: "init", Curve: harness.Curve{Maximum: time.Second}, API: true, Pods: 1, Window: 20 * time.Second, Healthy: true, Inits: 5, InitRatio: 0.4,
	},
	// With this many pods the container runtime is the limit.
	{
		Name: "healthy", Curve: harness.Curve{Maximum: time.Second}, API: true, Pods: 100, Window: 60 * time.Second, Healthy: true,
	},
	// KEP-4603 asks what large downloads cost under the fastest restarts.
	{
		Name: "pulls", Curve: harness.Curve{Maximum: time.Second}, API: true, Pods: 30, Window: 40 * time.Second, Healthy: true, ImageSize: 64 << 20,
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

// String describes the scenario.
func (s Scenario) String() string {
	where, pods, length := "standalone", "1 pod", fmt.Sprintf("first %d restarts", s.Restarts)
	if s.API {
		where = "with an API server"
	}
	if s.Network {
		where += ", with a network of the pods"
	}
	if s.CSI {
		where += ", with CSI volumes"
	}
	if s.Action != "" {
		return s.restartString(where)
	}
	if s.Pods > 1 {
		pods = fmt.Sprintf("%d pods", s.Pods)
	}
	if s.Window > 0 {
		length = s.Window.String()
	}
	if s.Healthy {
		length += ", healthy pods beside them"
	}
	if s.Inits > 0 {
		length += fmt.Sprintf(" with %d init containers each", s.Inits)
	}
	if s.ImageSize > 0 {
		length += fmt.Sprintf(", each with an image of %d MiB to download", s.ImageSize>>20)
	}
	return strings.Join([]string{where, pods, s.curve(), length}, ", ")
}

// curve describes the back-off.
func (s Scenario) curve() string {
	switch {
	case s.Maximum > 0:
		return fmt.Sprintf("maximum %v", s.Maximum)
	case s.Reduced:
		return "reduced decay"
	}
	return "default curve"
}

// short returns the scenarios that show the differences between releases, for older
// releases. They take some seven minutes with both kubelets.
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

// selectScenarios returns the scenarios in a comma-separated list, in their usual
// order. An empty list means all. A window above zero replaces the window of every
// scenario that has one.
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
