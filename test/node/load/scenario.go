// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
)

// Scenario is a mix and a number of pods, for measuring each kubelet.
type Scenario struct {
	Mix  string `json:"mix"`
	Pods int    `json:"pods"`
	// Nodes is the number of nodes that share the pods, or 0 for one.
	Nodes int `json:"nodes,omitempty"`
	harness.Curve
	// Life is the time after which a failing container exits.
	Life time.Duration `json:"life"`
	// Window is the length of the measurement, which begins when every crashing
	// container has had two restarts. In the mix dependency it is the time for which the
	// dependency is down.
	Window time.Duration `json:"window"`
	// Network gives the pods a network of their own, with the plugins bridge and host-local.
	Network bool `json:"network,omitempty"`
	// Action restarts whole pods.
	Action corev1.ContainerRestartRuleAction `json:"action,omitempty"`
}

// The mixes, in the order in which they run.
const (
	allFail     = "all-fail"
	half        = "half"
	tenth       = "tenth"
	sidecars    = "sidecars"
	dense       = "dense"
	restartPod  = "restartpod"
	onDependent = "dependency"
)

var mixes = []struct{ name, what string }{
	{allFail, "all fail at once"},
	{half, "half exit with 0 (Always), half with 1 (OnFailure)"},
	{tenth, "one in ten fails, the others run"},
	{sidecars, "all have a sidecar that runs and a container that fails"},
	{dense, "all have ten containers that fail"},
	{restartPod, "all restart as a whole: init container, sidecar, and a container that triggers"},
	{onDependent, "all run, fail during the outage of a dependency, and recover after it"},
}

// name returns the name by which flags select a scenario.
func (s Scenario) name() string { return fmt.Sprintf("%s/%d", s.Mix, s.Pods) }

// String describes the scenario.
func (s Scenario) String() string {
	what := s.Mix
	for _, m := range mixes {
		if m.name == s.Mix {
			what = m.what
		}
	}
	if s.Network {
		what += ", with a network of the pods"
	}
	window := s.Window.String()
	if s.Mix == onDependent {
		window = "outage of " + window
	}
	curve := fmt.Sprintf("maximum %v", s.Maximum)
	if s.Reduced {
		curve = "reduced curve, " + curve
	}
	pods := fmt.Sprintf("%d pods", s.Pods)
	if s.Nodes > 1 {
		pods = fmt.Sprintf("%d nodes, %s", s.Nodes, pods)
	}
	return fmt.Sprintf("%s, %s; %s, a run of %v, %s", pods, what, curve, s.Life, window)
}

func (s Scenario) nodes() int { return max(1, s.Nodes) }

// inPod is the number of main containers in each pod of the mix dense. KEP-4603 asks for pods with many containers.
const inPod = 10

// mains returns the number of main containers.
func (s Scenario) mains() int {
	if s.Mix == dense {
		return inPod * s.Pods
	}
	return s.Pods
}

// crashing returns the number of main containers that crash.
func (s Scenario) crashing() int {
	if s.Mix == tenth {
		return s.Pods / 10
	}
	return s.mains()
}

// ideal returns the number of restarts per second if each was on time and took no
// time.
func (s Scenario) ideal() float64 {
	return float64(s.crashing()) / (s.delay(2) + s.Life).Seconds()
}

// delay returns the back-off before restart n of a container, counted from 0.
func (s Scenario) delay(n int) time.Duration {
	if s.Action == corev1.ContainerRestartRuleActionRestartAllContainers {
		// Only the stock kubelet runs this action, and without a back-off.
		return 0
	}
	return s.Delay(n)
}

// forStock returns the scenario for a kubelet without RestartPod.
func (s Scenario) forStock() Scenario {
	if s.Action == harness.ActionRestartPod {
		s.Action = corev1.ContainerRestartRuleActionRestartAllContainers
	}
	return s
}

// defaultPods are the numbers of pods of a mix by default. The scenarios of 30 and 500
// differ from those of 110 only in the number. The mix dense has as many containers as others.
func defaultPods(mix string) []int {
	switch mix {
	case allFail:
		return []int{30, 110, 500}
	case dense:
		return []int{110 / inPod}
	}
	return []int{110}
}

// selectScenarios returns the scenarios of the mixes in a comma-separated list, each
// with each number of pods in another list. An empty list means the defaults. A name
// may have its own number, as in all-fail/30.
func selectScenarios(only, pods string, like Scenario, outage time.Duration) ([]Scenario, error) {
	var numbers []int
	for text := range strings.SplitSeq(pods, ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("--pods %q: %q is not a number of pods", pods, text)
		}
		numbers = append(numbers, n)
	}
	wanted := map[string][]int{}
	for text := range strings.SplitSeq(only, ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		name, number, own := strings.Cut(text, "/")
		if !slices.ContainsFunc(mixes, func(m struct{ name, what string }) bool { return m.name == name }) {
			return nil, fmt.Errorf("no mix is named %q: must be one of %s", name, strings.Join(mixNames(), ", "))
		}
		if !own {
			wanted[name] = append(wanted[name], numbers...)
			continue
		}
		n, err := strconv.Atoi(number)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("--only %q: %q is not a number of pods", only, number)
		}
		wanted[name] = append(wanted[name], n)
	}
	var selected []Scenario
	for _, m := range mixes {
		counts, chosen := wanted[m.name]
		if !chosen && len(wanted) > 0 {
			continue
		}
		if len(counts) == 0 {
			counts = numbers
		}
		if len(counts) == 0 {
			counts = defaultPods(m.name)
		}
		for _, n := range counts {
			s := like
			s.Mix, s.Pods = m.name, n
			switch m.name {
			case restartPod:
				s.Action = harness.ActionRestartPod
			case onDependent:
				s.Window = outage
			}
			if s.crashing() == 0 {
				return nil, fmt.Errorf("%s: one in ten of %d pods is none", m.name, n)
			}
			selected = append(selected, s)
		}
	}
	return selected, nil
}

func mixNames() (names []string) {
	for _, m := range mixes {
		names = append(names, m.name)
	}
	return names
}
