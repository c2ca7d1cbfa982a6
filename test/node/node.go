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
	"path/filepath"
	"strconv"
	"time"
)

// spec tells a node what to do. The harness hands it over on the standard input
// of the process that becomes the node.
type spec struct {
	ID        string
	Label     string
	Scenario  Scenario
	Kubelet   string
	APIServer string
	Etcd      string
	Bin       string
	Dir       string
	Logs      string
	// Network gives the node a network of its own, and its pods addresses.
	Network bool
}

// node is one run: one containerd, one kubelet, one scenario. A new one is made
// for each, so that both kubelets start from the same, which is nothing.
type node struct {
	*supervisor
	spec       spec
	containerd *process
	kubelet    *process
}

func (n *node) path(elem ...string) string {
	return filepath.Join(append([]string{n.spec.Dir}, elem...)...)
}

// nodeMain runs in the process that isolate started, as process 1 of its own
// PID namespace. When it ends, for whatever reason, the kernel kills every
// process of the node, and with the last of them go the node's mounts.
func nodeMain(in io.Reader, out io.Writer) error {
	n, err := newNode(in)
	if err != nil {
		return err
	}
	run, err := n.run()
	if err != nil {
		return cause(n.ctx, err)
	}
	return json.NewEncoder(out).Encode(run)
}

// newNode reads the node's spec. The node's context ends with the input: then
// the harness is gone.
func newNode(in io.Reader) (*node, error) {
	var s spec
	if err := json.NewDecoder(in).Decode(&s); err != nil {
		return nil, fmt.Errorf("the node's spec cannot be read: %w", err)
	}
	ctx, fail := context.WithCancelCause(context.Background())
	go func() {
		// The harness never writes more.
		_, _ = io.Copy(io.Discard, in)
		fail(errors.New("the harness has ended"))
	}()
	return &node{supervisor: &supervisor{ctx: ctx, fail: fail, logs: s.Logs}, spec: s}, nil
}

func (n *node) run() (run Run, err error) {
	if err := n.secludeMounts(); err != nil {
		return run, err
	}
	if err := os.Mkdir(n.path(startsDir), 0o755); err != nil {
		return run, err
	}
	if run.Version, err = kubeletVersion(n.ctx, n.spec.Kubelet); err != nil {
		return run, err
	}
	run.Kubelet = n.spec.Kubelet
	n.say("starting containerd")
	if err := n.startContainerd(); err != nil {
		return run, err
	}
	var api *apiServer
	if n.spec.Scenario.API {
		n.say("starting etcd and kube-apiserver")
		if api, err = n.startAPIServer(); err != nil {
			return run, err
		}
		n.say("starting the kubelet %s", run.Version)
		if err := n.startKubelet(n.scenarioConfig(), "--kubeconfig="+api.kubeconfig); err != nil {
			return run, err
		}
		if err := n.createPods(api); err != nil {
			return run, err
		}
	} else {
		if err := n.writeManifests(); err != nil {
			return run, err
		}
		n.say("starting the kubelet %s", run.Version)
		static := fmt.Sprintf("staticPodPath: %s\n", n.path("manifests"))
		if err := n.startKubelet(n.scenarioConfig() + static); err != nil {
			return run, err
		}
	}
	if err := n.observe(api, &run); err != nil {
		return run, err
	}
	n.kubelet.end()
	return run, nil
}

// observe waits for the measuring window, and through it.
func (n *node) observe(api *apiServer, run *Run) error {
	if n.spec.Scenario.Action != "" {
		return n.observeRestarts(run)
	}
	// The window opens when every pod has had its first, free restart: the
	// kubelet's start-up lies before that. A run that ends after a number of
	// restarts needs every one, from the first start on.
	warm := 2
	if n.spec.Scenario.Window == 0 {
		warm = 1
	}
	if err := await(n.ctx, fmt.Sprintf("start %d of the container in every pod", warm), 2*time.Minute, func(context.Context) error {
		starts, err := n.starts()
		if err != nil {
			return err
		}
		return enough(starts, n.spec.Scenario.Pods, warm)
	}); err != nil {
		return err
	}
	first, err := n.sample(api)
	if err != nil {
		return err
	}
	s := n.spec.Scenario
	// Twice what the curve asks for and then some: a kubelet this late is broken.
	limit, said := time.Duration(0), time.Now()
	for i := range s.Restarts {
		limit += 2*delay(s, i) + 30*time.Second
	}
	err = await(n.ctx, fmt.Sprintf("restart %d", s.Restarts), s.Window+limit+time.Minute, func(context.Context) error {
		starts, err := n.starts()
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
			n.say("%s", status(s, elapsed, starts))
		}
		return errors.New(status(s, elapsed, starts))
	})
	if err != nil {
		return err
	}
	last, err := n.sample(api)
	if err != nil {
		return err
	}
	if run.Starts, err = n.starts(); err != nil {
		return err
	}
	run.From, run.To = first.at, last.at
	if s.Window == 0 {
		// The first start was before it could be seen.
		run.From = 0
	}
	run.CPU = last.cpu - first.cpu
	if api != nil {
		run.Requests = increase(first.requests, last.requests)
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

// enough returns an error unless each of so many pods has started so often.
func enough(starts map[string][]float64, pods, times int) error {
	ready := 0
	for _, t := range starts {
		if len(t) >= times {
			ready++
		}
	}
	if ready < pods {
		return fmt.Errorf("%d of %d pods are that far", ready, pods)
	}
	return nil
}

// sample is what is read at each end of the measuring window.
type sample struct {
	at, cpu  float64
	requests map[string]float64
}

func (n *node) sample(api *apiServer) (s sample, err error) {
	if api != nil {
		if s.requests, err = api.requests(n.ctx); err != nil {
			return s, err
		}
	}
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(n.kubelet.cmd.Process.Pid), "stat"))
	if err != nil {
		return s, err
	}
	if s.cpu, err = parseCPU(stat); err != nil {
		return s, err
	}
	s.at, err = uptime()
	return s, err
}

// starts reads what the containers have written so far.
func (n *node) starts() (map[string][]float64, error) {
	entries, err := os.ReadDir(n.path(startsDir))
	if err != nil {
		return nil, err
	}
	starts := map[string][]float64{}
	for _, e := range entries {
		data, err := os.ReadFile(n.path(startsDir, e.Name()))
		if err != nil {
			return nil, err
		}
		if starts[e.Name()], err = parseStarts(data); err != nil {
			return nil, fmt.Errorf("%s: %w", n.path(startsDir, e.Name()), err)
		}
	}
	return starts, nil
}

func (n *node) say(format string, args ...any) {
	progress("%s, %s: %s", n.spec.Scenario.Name, n.spec.Label, fmt.Sprintf(format, args...))
}

// uptime is the clock that crasher writes down.
func uptime() (float64, error) {
	data, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return 0, err
	}
	seconds, _, _ := bytes.Cut(data, []byte(" "))
	return strconv.ParseFloat(string(seconds), 64)
}
