// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/figures"
	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
)

func late(mean, least float64) figures.Summary {
	return figures.Summary{Count: 10, Mean: mean, Least: least, Worst: mean}
}

func verdicts(c Comparison) string {
	var v []string
	for _, k := range c.Criteria {
		if k.Pass {
			v = append(v, "pass")
		} else {
			v = append(v, "FAIL")
		}
	}
	return strings.Join(v, " ")
}

func TestCriteria(t *testing.T) {
	alone := Scenario{Name: "max1s", Curve: harness.Curve{Maximum: time.Second}, Pods: 1, LatenessRatio: 0.1}
	api := Scenario{Name: "api20", Curve: harness.Curve{Maximum: time.Second}, Pods: 20, API: true, LatenessRatio: 0.4}
	limited := Scenario{Name: "api5", Curve: harness.Curve{Maximum: time.Second}, Pods: 5, API: true, LatenessRatio: 0.1, RequestLimit: 4.5}
	for _, tc := range []struct {
		name        string
		scenario    Scenario
		stock, ours Figures
		want        string
	}{
		{"at the limit", alone, Figures{Lateness: late(1, 0.9)}, Figures{Lateness: late(0.1, 0.05)}, "pass pass"},
		{"above it", alone, Figures{Lateness: late(1, 0.9)}, Figures{Lateness: late(0.11, 0.05)}, "FAIL pass"},
		{"at the limit of a slow runtime", alone,
			Figures{Lateness: late(1.1, 0.9), Alone: figures.Summary{Mean: 0.1}},
			Figures{Lateness: late(0.2, 0.05), Alone: figures.Summary{Mean: 0.12}}, "pass pass"},
		{"above the limit of a slow runtime", alone,
			Figures{Lateness: late(1.1, 0.9), Alone: figures.Summary{Mean: 0.12}},
			Figures{Lateness: late(0.21, 0.05), Alone: figures.Summary{Mean: 0.1}}, "FAIL pass"},
		{"stock is no later than the runtime", alone,
			Figures{Lateness: late(0.1, 0), Alone: figures.Summary{Mean: 0.12}},
			Figures{Lateness: late(0.13, 0.05), Alone: figures.Summary{Mean: 0.12}}, "FAIL pass"},
		{"no back-off at all", alone, Figures{Lateness: late(1, 0.9)}, Figures{Lateness: late(-0.9, -0.9)}, "pass FAIL"},
		{"rounded start times", alone, Figures{Lateness: late(1, 0.9)}, Figures{Lateness: late(0, -0.01)}, "pass pass"},
		{"CPU over few restarts", alone,
			Figures{Restarts: 19, Lateness: late(1, 0.9), CPUPerRestart: 10},
			Figures{Restarts: 40, Lateness: late(0.1, 0), CPUPerRestart: 20}, "pass pass"},
		{"CPU over enough restarts", alone,
			Figures{Restarts: 20, Lateness: late(1, 0.9), CPUPerRestart: 10},
			Figures{Restarts: 40, Lateness: late(0.1, 0), CPUPerRestart: 10}, "pass pass pass"},
		{"higher CPU", alone,
			Figures{Restarts: 20, Lateness: late(1, 0.9), CPUPerRestart: 10},
			Figures{Restarts: 40, Lateness: late(0.1, 0), CPUPerRestart: 20}, "pass pass FAIL"},
		{"equal cost", api,
			Figures{Restarts: 500, Lateness: late(1, 0), CPUPerRestart: 10, RequestsPerRestart: 6},
			Figures{Restarts: 800, Lateness: late(0.4, 0), CPUPerRestart: 10, RequestsPerRestart: 6}, "pass pass pass pass"},
		{"higher cost", api,
			Figures{Restarts: 500, Lateness: late(1, 0), CPUPerRestart: 10, RequestsPerRestart: 6},
			Figures{Restarts: 800, Lateness: late(0.41, 0), CPUPerRestart: 10.1, RequestsPerRestart: 6.1}, "FAIL pass FAIL FAIL"},
		{"requests at the limit", limited,
			Figures{Restarts: 300, Lateness: late(1, 0), CPUPerRestart: 10, RequestsPerRestart: 7},
			Figures{Restarts: 500, Lateness: late(0.1, 0), CPUPerRestart: 10, RequestsPerRestart: 4.5}, "pass pass pass pass pass"},
		{"requests above the limit, below stock's", limited,
			Figures{Restarts: 300, Lateness: late(1, 0), CPUPerRestart: 10, RequestsPerRestart: 7},
			Figures{Restarts: 500, Lateness: late(0.1, 0), CPUPerRestart: 10, RequestsPerRestart: 4.51}, "pass pass pass pass FAIL"},
		{"requests below the limit, above stock's", limited,
			Figures{Restarts: 300, Lateness: late(1, 0), CPUPerRestart: 10, RequestsPerRestart: 4},
			Figures{Restarts: 500, Lateness: late(0.1, 0), CPUPerRestart: 10, RequestsPerRestart: 4.5}, "pass pass pass FAIL pass"},
		{"limited requests not counted", limited,
			Figures{Restarts: 300, Lateness: late(1, 0), CPUPerRestart: 10},
			Figures{Restarts: 500, Lateness: late(0.1, 0), CPUPerRestart: 10}, "pass pass pass FAIL FAIL"},
		{"requests not counted", api,
			Figures{Restarts: 500, Lateness: late(1, 0), CPUPerRestart: 10, RequestsPerRestart: 6},
			Figures{Restarts: 800, Lateness: late(0.4, 0), CPUPerRestart: 10}, "pass pass pass FAIL"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := compare(tc.scenario, stockLabel, tc.stock, tc.ours)
			if got := verdicts(c); got != tc.want {
				t.Errorf("criteria: %s, want %s", got, tc.want)
			}
			if got, want := passed([]Comparison{c}), !strings.Contains(tc.want, "FAIL"); got != want {
				t.Errorf("passed = %v, want %v", got, want)
			}
		})
	}
}

// TestCostCriteria compares two patched kubelets, which must be equal.
func TestCostCriteria(t *testing.T) {
	alone := Scenario{Name: "max1s", Curve: harness.Curve{Maximum: time.Second}, Pods: 1, LatenessRatio: 0.1}
	api := Scenario{Name: "api5", Curve: harness.Curve{Maximum: time.Second}, Pods: 5, API: true, LatenessRatio: 0.1, RequestLimit: 4.5}
	once := Scenario{Action: harness.ActionRestartPod, Pods: 10, RestartRatio: 0.75}
	loop := Scenario{Action: harness.ActionRestartPod, Pods: 1, Window: time.Minute}
	// Best is that of the best round. The other rounds were worse and do not count.
	cost := func(restarts int, lateness, least, cpu, requests float64) Figures {
		return Figures{
			Restarts: restarts, Lateness: late(lateness+1, least), CPUPerRestart: 100 - cpu,
			Best: Best{lateness, cpu}, RequestsPerRestart: requests,
		}
	}
	for _, tc := range []struct {
		name       string
		scenario   Scenario
		base, ours Figures
		want       string
	}{
		{"equal", alone, cost(50, 0.07, 0.05, 20, 0), cost(50, 0.07, 0.05, 20, 0), "pass pass pass"},
		{"at the limits", alone, cost(50, 0.1, 0.05, 20, 0), cost(50, 0.12, 0.05, 20.4, 0), "pass pass pass"},
		{"later", alone, cost(50, 0.1, 0.05, 20, 0), cost(50, 0.121, 0.05, 20, 0), "FAIL pass pass"},
		{"early", alone, cost(50, 0.1, 0.05, 20, 0), cost(50, 0, -0.5, 20, 0), "pass FAIL pass"},
		{"higher CPU", alone, cost(50, 0.1, 0.05, 20, 0), cost(50, 0.1, 0.05, 20.5, 0), "pass pass FAIL"},
		{"CPU over few restarts", alone, cost(19, 0.1, 0.05, 20, 0), cost(50, 0.1, 0.05, 40, 0), "pass pass"},
		{"more requests", api, cost(500, 0.1, 0, 20, 4), cost(500, 0.1, 0, 20, 4.1), "pass pass pass FAIL"},
		{"requests not counted", api, cost(500, 0.1, 0, 20, 4), cost(500, 0.1, 0, 20, 0), "pass pass pass FAIL"},
		{"pods as fast", once, Figures{PodRestart: figures.Summary{Median: 1}}, Figures{PodRestart: figures.Summary{Median: 1.1}}, "pass"},
		{"pods slower", once, Figures{PodRestart: figures.Summary{Median: 1}}, Figures{PodRestart: figures.Summary{Median: 1.2}}, "FAIL"},
		{"loops of two rounds", loop, Figures{Rounds: 2, Restarts: 6}, Figures{Rounds: 2, Restarts: 6}, "pass"},
		{"one restart too few in two rounds", loop, Figures{Rounds: 2, Restarts: 6}, Figures{Rounds: 2, Restarts: 5}, "FAIL"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := verdicts(compare(tc.scenario, baseLabel, tc.base, tc.ours)); got != tc.want {
				t.Errorf("criteria: %s, want %s", got, tc.want)
			}
		})
	}
	var out bytes.Buffer
	printComparison(&out, compare(alone, baseLabel, cost(50, 0, 0, 20, 0), cost(50, 0, 0, 21, 0)))
	assertReport(t, out.String(), "base        ours   ours/base", "FAIL  kubelet CPU per restart at most 1.02 of base's: base 20.000 ms, ours 21.000 ms, limit 20.400 ms")
}

func TestGoalsDoNotDecide(t *testing.T) {
	s := scenarios[0]
	slow := Figures{Interval: figures.Summary{Mean: 1.1, Worst: 1.1}, Lateness: late(0.1, 0.1)}
	c := compare(s, stockLabel, Figures{Lateness: late(1, 1)}, slow)
	if len(c.Goals) != 2 || c.Goals[0].Reached || !c.Goals[1].Reached {
		t.Errorf("goals = %+v, want the mean missed and the worst reached", c.Goals)
	}
	if !passed([]Comparison{c}) {
		t.Error("a missed goal made the measurement fail")
	}
}

func TestPrintComparison(t *testing.T) {
	s := scenarios[4]
	stock := Figures{
		Restarts: 100, Interval: figures.Summary{Mean: 2}, Lateness: late(1, 0.9), CPUPerRestart: 20,
		RequestsPerRestart: 7, Requests: map[string]float64{"GET pods": 3, "POST events": 1},
	}
	ours := Figures{
		Restarts: 190, Interval: figures.Summary{Mean: 1.07}, Lateness: late(0.07, 0.05), CPUPerRestart: 19,
		RequestsPerRestart: 4, Requests: map[string]float64{"GET pods": 2, "PATCH events": 1},
	}
	c := compare(s, stockLabel, stock, ours)
	var out bytes.Buffer
	printComparison(&out, c)
	printVerdict(&out, []Comparison{c})
	assertReport(t, out.String(),
		"api5: with an API server, 5 pods, maximum 1s, 2m0s",
		"lateness, mean                           1.000 s     0.070 s       0.070",
		"POST events                               1.00        0.00       0.000",
		"PATCH events                              0.00        1.00           -",
		"pass  mean lateness beyond the runtime's at most 0.1 of stock's: stock 1.000 s, ours 0.070 s, limit 0.100 s",
		"goal  interval, mean at most 1.080 s: 1.070 s, reached",
		"pass  API requests per restart at most 4.5: stock 7.00, ours 4.00, limit 4.50",
		"PASS: 5 of 5 criteria hold in 1 scenarios",
	)
}

func TestPrintDefaultCurve(t *testing.T) {
	var out bytes.Buffer
	printFigures(&out, scenarios[2], Figures{Restarts: 5, ByRestart: []Step{{10, 14.5}, {20, 30}}})
	assertReport(t, out.String(), "restart 2, delay 10 s: interval", "14.50 s", "restart 3, delay 20 s: interval", "30.00 s")
}

func TestSelectScenarios(t *testing.T) {
	names := func(list string, window time.Duration) string {
		s, err := selectScenarios(list, window)
		if err != nil {
			return err.Error()
		}
		var out []string
		for _, s := range s {
			out = append(out, s.Name+" "+s.Window.String())
		}
		return strings.Join(out, ", ")
	}
	for _, tc := range []struct {
		list   string
		window time.Duration
		want   string
	}{
		{"", 0, "max1s 1m0s, max4s 1m0s, default 0s, reduced 0s, api5 2m0s, api20 1m0s, restartall 0s, restartpod 0s, restartcni 0s, restartcsi 0s, restartloop 1m0s, init 20s, healthy 1m0s, pulls 40s"},
		{"api5, max1s", 30 * time.Second, "max1s 30s, api5 30s"},
		{"default", 30 * time.Second, "default 0s"},
		{"max2s", 0, `no scenario is named "max2s"; there are: max1s, max4s, default, reduced, api5, api20, restartall, restartpod, restartcni, restartcsi, restartloop, init, healthy, pulls`},
	} {
		if got := names(tc.list, tc.window); got != tc.want {
			t.Errorf("selectScenarios(%q, %v) = %s, want %s", tc.list, tc.window, got, tc.want)
		}
	}
}

// assertReport checks that the report has all these lines.
func assertReport(t *testing.T, report string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(report, want) {
			t.Errorf("the report lacks %q:\n%s", want, report)
		}
	}
}
