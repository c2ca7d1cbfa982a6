// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/figures"
	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
)

// nodeCommand is the argument with which the harness runs this program as a node.
const nodeCommand = "node-main"

// task is the input of a node.
type task struct {
	Label    string
	Scenario Scenario
}

// measurement is a node with one scenario.
type measurement struct {
	*harness.Node
	label    string
	scenario Scenario
	// registry has the images of healthy pods, if these are downloaded.
	registry *harness.Registry
}

// nodeMain runs in the process that the harness started.
func nodeMain(in io.Reader, out io.Writer) error {
	n, err := harness.New(in)
	if err != nil {
		return err
	}
	var t task
	if err := json.Unmarshal(n.Spec.Task, &t); err != nil {
		return fmt.Errorf("reading the node's task: %w", err)
	}
	m := &measurement{Node: n, label: t.Label, scenario: t.Scenario}
	run, err := m.run()
	if err != nil {
		if c := context.Cause(n.Context()); c != nil {
			return c
		}
		return err
	}
	return json.NewEncoder(out).Encode(run)
}

// run starts the parts of the node and measures.
func (m *measurement) run() (run Run, err error) {
	if err := os.Mkdir(m.Path(startsDir), 0o755); err != nil {
		return run, err
	}
	if run.Version, err = figures.KubeletVersion(m.Context(), m.Spec.Kubelet); err != nil {
		return run, err
	}
	run.Kubelet = m.Spec.Kubelet
	m.say("starting the container runtime")
	if err := m.StartRuntime(); err != nil {
		return run, err
	}
	var api *harness.APIServer
	if m.scenario.API {
		m.say("starting etcd and kube-apiserver")
		var gates []string
		if m.scenario.Action == harness.ActionRestartPod {
			gates = []string{"--feature-gates=" + harness.GateRestartPod + "=true"}
		}
		if api, err = m.StartAPIServer(gates...); err != nil {
			return run, err
		}
		if m.scenario.CSI {
			driver, err := m.StartCSI()
			if err != nil {
				return run, err
			}
			defer driver.Stop()
			if err := api.Create(m.Context(), "/apis/storage.k8s.io/v1/csidrivers", harness.CSIObject(harness.CSIName)); err != nil {
				return run, err
			}
		}
		if m.scenario.ImageSize > 0 {
			if m.registry, err = m.StartRegistry(); err != nil {
				return run, err
			}
			defer m.registry.Stop()
		}
		m.say("starting the kubelet %s", run.Version)
		if err := m.StartKubelet(m.scenarioConfig(), "--kubeconfig="+api.Kubeconfig); err != nil {
			return run, err
		}
		if err := api.AwaitNode(m.Context(), harness.Name); err != nil {
			return run, err
		}
		if m.scenario.Healthy {
			idle, err := m.startHealthyPods(api, "idle", func(n int, _ time.Duration) bool { return n == idleHealthyPods })
			if err != nil {
				return run, err
			}
			run.HealthyPods = &healthyPods{Idle: idle}
		}
		if err := m.createPods(api); err != nil {
			return run, err
		}
	} else {
		if err := m.writeManifests(); err != nil {
			return run, err
		}
		m.say("starting the kubelet %s", run.Version)
		static := fmt.Sprintf("staticPodPath: %s\n", m.Path("manifests"))
		if err := m.StartKubelet(m.scenarioConfig() + static); err != nil {
			return run, err
		}
	}
	if err := m.observe(api, &run); err != nil {
		return run, err
	}
	m.Kubelet.End()
	switch {
	case m.scenario.Action != "" && m.scenario.Window == 0:
		run.Alone, err = m.restartAlone()
	case m.scenario.LatenessRatio > 0:
		run.Alone, err = m.crashAlone()
	}
	return run, err
}

// observe waits for the beginning and the end of the measuring window.
func (m *measurement) observe(api *harness.APIServer, run *Run) error {
	if m.scenario.Action != "" {
		return m.observeRestarts(api, run)
	}
	// The window begins when every pod has had its first restart, which has no delay.
	// So it does not include the start-up of the kubelet. A run that ends after a number
	// of restarts includes all restarts from the first start on.
	warm := 2
	if m.scenario.Window == 0 {
		warm = 1
	}
	if err := harness.Await(m.Context(), fmt.Sprintf("start %d of the container in every pod", warm), 2*time.Minute, func(context.Context) error {
		starts, err := m.starts()
		if err != nil {
			return err
		}
		return enough(starts, m.scenario.Pods, warm)
	}); err != nil {
		return err
	}
	first, err := m.sample(api)
	if err != nil {
		return err
	}
	s := m.scenario
	if s.Healthy {
		// They last as long as the window.
		if run.HealthyPods.Busy, err = m.startHealthyPods(api, "busy", func(_ int, elapsed time.Duration) bool { return elapsed >= s.Window }); err != nil {
			return err
		}
	}
	// The limit is more than twice the delays of the curve: a later kubelet is broken.
	limit, said := time.Duration(0), time.Now()
	for i := range s.Restarts {
		limit += 2*s.Delay(i) + 30*time.Second
	}
	err = harness.Await(m.Context(), fmt.Sprintf("restart %d", s.Restarts), s.Window+limit+time.Minute, func(context.Context) error {
		starts, err := m.starts()
		if err != nil {
			return err
		}
		now, err := uptime()
		if err != nil {
			return err
		}
		elapsed := time.Duration((now - first.at) * float64(time.Second))
		if s.Window > 0 && elapsed >= s.Window {
			return nil
		}
		if s.Window == 0 {
			if err := enough(starts, s.Pods, s.Restarts+1); err == nil {
				return nil
			}
		}
		if time.Since(said) >= 10*time.Second {
			said = time.Now()
			m.say("%s", status(s, elapsed, starts))
		}
		return errors.New(status(s, elapsed, starts))
	})
	if err != nil {
		return err
	}
	last, err := m.sample(api)
	if err != nil {
		return err
	}
	if run.Starts, err = m.starts(); err != nil {
		return err
	}
	run.From, run.To = first.at, last.at
	if s.Window == 0 {
		// The first start was before the first sample.
		run.From = 0
	}
	run.CPU = last.cpu - first.cpu
	if api != nil {
		run.Requests = figures.Increase(first.requests, last.requests)
	}
	return nil
}

func status(s Scenario, elapsed time.Duration, starts map[string][]float64) string {
	restarts := 0
	for _, t := range starts {
		restarts += max(0, len(t)-1)
	}
	of := ""
	if s.Window > 0 {
		of = fmt.Sprintf(" of %v", s.Window)
	} else {
		of = fmt.Sprintf(", until restart %d", s.Restarts)
	}
	return fmt.Sprintf("%v%s, %d restarts so far", elapsed.Round(time.Second), of, restarts)
}

// enough returns an error unless each of the pods has started the given number of
// times.
func enough(starts map[string][]float64, pods, times int) error {
	ready := 0
	for _, t := range starts {
		if len(t) >= times {
			ready++
		}
	}
	if ready < pods {
		return fmt.Errorf("%d of %d pods have", ready, pods)
	}
	return nil
}

// sample has the values that observe reads at both ends of the measuring window.
type sample struct {
	at, cpu  float64
	requests map[string]float64
}

func (m *measurement) sample(api *harness.APIServer) (s sample, err error) {
	if api != nil {
		if s.requests, _, err = figures.Requests(m.Context(), api); err != nil {
			return s, err
		}
	}
	if s.cpu, err = figures.CPU(m.Kubelet.PID()); err != nil {
		return s, err
	}
	s.at, err = uptime()
	return s, err
}

// starts reads the start times that the containers have written so far.
func (m *measurement) starts() (map[string][]float64, error) {
	entries, err := os.ReadDir(m.Path(startsDir))
	if err != nil {
		return nil, err
	}
	starts := map[string][]float64{}
	for _, e := range entries {
		data, err := os.ReadFile(m.Path(startsDir, e.Name()))
		if err != nil {
			return nil, err
		}
		if starts[e.Name()], err = parseStarts(data); err != nil {
			return nil, fmt.Errorf("%s: %w", m.Path(startsDir, e.Name()), err)
		}
	}
	return starts, nil
}

func (m *measurement) say(format string, args ...any) {
	harness.Progress("%s, %s: %s", m.scenario.Name, m.label, fmt.Sprintf(format, args...))
}

// uptime reads the clock that crasher uses.
func uptime() (float64, error) {
	data, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return 0, err
	}
	seconds, _, _ := bytes.Cut(data, []byte(" "))
	return strconv.ParseFloat(string(seconds), 64)
}
