// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/figures"
	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
)

// journalOf parses a journal of lines "time container event".
func journalOf(t *testing.T, lines string) (journal []harness.JournalEvent) {
	for line := range strings.SplitSeq(lines, ", ") {
		var e harness.JournalEvent
		if _, err := fmt.Sscanf(line, "%g %s %s", &e.At, &e.Container, &e.Event); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		journal = append(journal, e)
	}
	return journal
}

func TestPodRestarts(t *testing.T) {
	const began = "1 init start, 1 init exit:0, 2 sidecar start, 3 main start, 3.5 other start"
	for _, tc := range []struct{ name, journal, want string }{
		{"not triggered", began, "[]"},
		{"another exit code", began + ", 9 main exit:1", "[]"},
		{"until the last container", began + ", 9 main exit:42, 9.5 other term, 9.5 other exit:143, 10 init start, 11 sidecar start, 12.5 other start, 12 main start", "[{9 12.5}]"},
		{"cut off", began + ", 9 main exit:42, 10 init start, 11 sidecar start, 12 main start", "[]"},
		{"twice", "1 main start, 1 main exit:42, 1.5 main start, 2 main exit:42, 12.25 main start", "[{1 1.5} {2 12.25}]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := podRestarts(journalOf(t, tc.journal))
			if err != nil || fmt.Sprint(got) != tc.want {
				t.Errorf("podRestarts = %v, %v, want %s", got, err, tc.want)
			}
		})
	}
	own := journalOf(t, began+", 5 other start, 9 main exit:42, 10 init start, 11 sidecar start, 12 main start")
	if got, err := podRestarts(own); err == nil || !strings.Contains(err.Error(), "other") {
		t.Errorf("podRestarts with a container that restarted by itself = %v, %v, want an error that names it", got, err)
	}
}

func TestMeasureRestarts(t *testing.T) {
	run := Run{Journals: map[string][]harness.JournalEvent{
		"a": journalOf(t, "1 main start, 4 main exit:42, 5.5 main start"),
		"b": journalOf(t, "1 main start, 6 main exit:42, 6.5 main start"),
	}}
	f, err := measure([]Run{run}, Scenario{Action: harness.ActionRestartPod, Pods: 2})
	if err != nil || f.Restarts != 2 || f.PodRestart.Median != 1 || f.PodRestart.Worst != 1.5 {
		t.Errorf("figures = %+v, %v, want 2 restarts of 0.5 and 1.5 s", f, err)
	}
	run.Replaced = []float64{3, 5}
	if f, err = measure([]Run{run}, Scenario{Action: harness.ActionRestartPod, Pods: 2}); err != nil || f.Replaced.Median != 4 {
		t.Errorf("figures = %+v, %v, want new pods after 4 s", f, err)
	}
	run.Alone = &Alone{Journal: journalOf(t, "1 main start, 2 main exit:42, 2.25 main start"), Starts: []float64{0.125}}
	f, err = measure([]Run{run, run}, Scenario{Action: harness.ActionRestartPod, Pods: 2})
	if err != nil || f.Restarts != 4 || f.Alone.Count != 2 || f.Alone.Median != 0.25 || f.AloneStarts.Median != 0.125 {
		t.Errorf("figures = %+v, %v, want two restarts of 0.25 s without a kubelet, starts of 0.125 s", f, err)
	}
	loop := Run{Journals: map[string][]harness.JournalEvent{
		"a": journalOf(t, "100 main start, 100 main exit:42, 101 main start, 101 main exit:42, 111 main start, 111 main exit:42, 160.5 main start"),
	}}
	f, err = measure([]Run{loop}, Scenario{Action: harness.ActionRestartPod, Pods: 1, Window: time.Minute})
	if err != nil || f.Restarts != 2 {
		t.Errorf("figures = %+v, %v, want 2 restarts in the minute from 100 on", f, err)
	}
	if f, err := measure([]Run{{}}, Scenario{Action: harness.ActionRestartPod}); err == nil {
		t.Errorf("figures of no restart = %+v, want an error", f)
	}
}

func TestRestartCriteria(t *testing.T) {
	took := func(median float64) Figures {
		return Figures{Restarts: 10, PodRestart: figures.Summary{Median: median, Worst: 2 * median}}
	}
	worst := func(worst float64) Figures {
		return Figures{Restarts: 10, PodRestart: figures.Summary{Median: 0.5, Worst: worst}}
	}
	once := Scenario{Action: harness.ActionRestartPod, Pods: 10, RestartRatio: 0.75, WorstRatio: 0.8}
	loop := Scenario{Action: harness.ActionRestartPod, Pods: 1, Window: time.Minute}
	for _, tc := range []struct {
		name        string
		scenario    Scenario
		stock, ours Figures
		want        string
	}{
		{"at the limit", once, took(2), took(1.5), "pass pass"},
		{"above it", once, took(2), took(1.51), "FAIL pass"},
		{"worst at the limit", once, took(2), worst(3.2), "pass pass"},
		{"worst above it", once, took(2), worst(3.21), "pass FAIL"},
		{"loop", loop, Figures{Restarts: 30}, Figures{Restarts: 3}, "pass"},
		{"loop without a back-off", loop, Figures{Restarts: 30}, Figures{Restarts: 4}, "FAIL"},
		{"loop that is late", loop, Figures{Restarts: 30}, Figures{Restarts: 2}, "FAIL"},
		{"loop with a maximum", Scenario{Action: harness.ActionRestartPod, Curve: harness.Curve{Maximum: 20 * time.Second}, Window: time.Minute}, Figures{Restarts: 30}, Figures{Restarts: 4}, "pass"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := verdicts(compare(tc.scenario, stockLabel, tc.stock, tc.ours)); got != tc.want {
				t.Errorf("criteria: %s, want %s", got, tc.want)
			}
		})
	}
}

func TestPrintRestarts(t *testing.T) {
	all, err := selectScenarios("restartpod, restartcsi, restartloop", 0)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	printComparison(&out, compare(all[0], stockLabel, Figures{Restarts: 10, PodRestart: figures.Summary{Median: 2}}, Figures{Restarts: 10, PodRestart: figures.Summary{Median: 1.1}, Alone: figures.Summary{Median: 0.3}, AloneStarts: figures.Summary{Median: 0.2}}))
	printComparison(&out, compare(all[1], stockLabel, Figures{Replaced: figures.Summary{Median: 4}}, Figures{Replaced: figures.Summary{Median: 3}}))
	printComparison(&out, compare(all[2], stockLabel, Figures{Restarts: 30}, Figures{Restarts: 3}))
	assertReport(t, out.String(),
		"restartpod: standalone, RestartPod (stock: RestartAllContainers), 10 pods, each triggered once",
		"trigger to all running, median           2.000 s     1.100 s       0.550",
		"the same without a kubelet, median       0.000 s     0.300 s",
		"  of that four starts                    0.000 s     0.200 s",
		"goal  trigger to all running, median at most 0.440 s: 1.100 s, missed (does not decide)",
		"a new pod instead, median                4.000 s     3.000 s       0.750",
		"restartloop: standalone, RestartAllContainers, 1 pod, always triggered, first 1m0s",
		"restarts of the pod                           30           3       0.100",
		"pass  as many restarts as the delays leave room for: stock 30.00, ours 3.00, limit 3.00",
	)
}

// A stock kubelet refuses the gate and the action, so it runs another action without
// the gate.
func TestForStock(t *testing.T) {
	for _, s := range scenarios {
		if got := s.forStock(true).Action; got != s.Action && s.Action != harness.ActionRestartPod || got == harness.ActionRestartPod {
			t.Errorf("%s: a stock kubelet is measured with the action %q", s.Name, got)
		}
	}
	m := measurement{Node: &harness.Node{}, scenario: Scenario{Action: harness.ActionRestartPod, Pods: 1}}
	rule := m.pods()[0].Spec.Containers[0].RestartPolicyRules[0]
	if rule.Action != harness.ActionRestartPod || !strings.Contains(m.scenarioConfig(), harness.GateRestartPod) {
		t.Errorf("action %s, configuration:\n%s\nwant RestartPod and its gate", rule.Action, m.scenarioConfig())
	}
	m.scenario = m.scenario.forStock(true)
	if rule = m.pods()[0].Spec.Containers[0].RestartPolicyRules[0]; rule.Action != corev1.ContainerRestartRuleActionRestartAllContainers || strings.Contains(m.scenarioConfig(), harness.GateRestartPod) {
		t.Errorf("for stock: action %s, configuration:\n%s\nwant RestartAllContainers and no gate", rule.Action, m.scenarioConfig())
	}
}

// A stock kubelet without a maximum runs its default curve. Ours has the gate enabled,
// which releases before v1.35 need.
func TestForOlderRelease(t *testing.T) {
	for _, s := range short() {
		ours := measurement{scenario: s}
		config := ours.scenarioConfig()
		if got := strings.Contains(config, "featureGates: {KubeletCrashLoopBackOffMax: true}\n"); got != (s.Maximum > 0) {
			t.Errorf("%s: ours has %q", s.Name, config)
		}
		stock := measurement{scenario: s.forStock(false)}
		if config := stock.scenarioConfig(); strings.Contains(config, "BackOff") {
			t.Errorf("%s: stock has %q, which it does not know", s.Name, config)
		}
		if window := stock.scenario.Window; s.Window > 0 && window <= 60*time.Second || s.Window == 0 && window > 0 {
			t.Errorf("%s: in %v stock has no whole wait of 20 s, or the scenario should have no window", s.Name, window)
		}
		if s.forStock(true).Maximum != s.Maximum {
			t.Errorf("%s: stock has not the maximum that it could have", s.Name)
		}
	}
	if s := (measurement{scenario: Scenario{Curve: harness.Curve{Maximum: time.Second}, Action: harness.ActionRestartPod}}); !strings.Contains(s.scenarioConfig(), "{KubeletCrashLoopBackOffMax: true, RestartPodOnContainerExits: true}") {
		t.Errorf("two gates: %q", s.scenarioConfig())
	}
}
