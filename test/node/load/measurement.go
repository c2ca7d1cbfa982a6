// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/figures"
	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
	"github.com/kubelet-backoff/kubelet-backoff/test/node/memcri"
)

// nodeCommand is the argument with which the harness runs this program as a node, and
// runtimeCommand the one with which the node runs it as a container runtime.
const (
	nodeCommand    = "node-main"
	runtimeCommand = "memcri"
)

const (
	// sampling is the interval for reading CPU time and memory.
	sampling = 200 * time.Millisecond
	// heapSampling is the interval for reading the kubelet's heap, which costs the
	// kubelet some milliseconds.
	heapSampling = 5 * time.Second
	// settling is the wait between the warm-up and the window.
	settling = 5 * time.Second
	// telling is the time for the kubelet to report its last restarts.
	telling = 2 * time.Second
	// profiling is the duration of a profile.
	profiling = 20 * time.Second
	// healthyEvery is the interval for creating healthy pods, and the next constant
	// their number on the idle node.
	healthyEvery      = 2 * time.Second
	healthyPodsOnIdle = 5
)

// task is the input of a node.
type task struct {
	Label    string
	Scenario Scenario
	Runtime  memcri.Options
	// Gates are the kubelet's feature gates, in the format of the flag.
	Gates string
	// Profile is the folder for profiles, if any.
	Profile string
}

// Run has the observations of one kubelet in one scenario.
type Run struct {
	Kubelet string `json:"kubelet"`
	Version string `json:"version"`
	// Journal has all events of the runtime.
	Journal []memcri.Event `json:"journal"`
	// Created is the time at which the pods were created. From and To are the bounds of
	// the measuring window.
	Created time.Time `json:"created"`
	From    time.Time `json:"from"`
	To      time.Time `json:"to"`
	// End is the end of the observations.
	End time.Time `json:"end"`
	// Back is the time at which the dependency came back, in the mix that has one.
	Back time.Time `json:"back,omitzero"`
	// Samples were taken all through the window.
	Samples []Sample `json:"samples"`
	// Heap is the maximum of the kubelet's heap in bytes.
	Heap float64 `json:"heap"`
	// Idle is what the API server had to do before there were crashing pods. Healthy pods started as often as in the window.
	Idle Idle `json:"idle"`
	// Requests counts the kubelet's API requests in the window.
	Requests map[string]float64 `json:"requests"`
	// RequestMedian and RequestP99 are estimates of their durations at the API server, and of those of the harness, in seconds.
	RequestMedian float64 `json:"requestMedian"`
	RequestP99    float64 `json:"requestP99"`
	// Metrics has the increase of the kubelet's own metrics in the window.
	Metrics map[string]float64 `json:"metrics"`
	// Calls counts the calls of the runtime in the window.
	Calls map[string]memcri.Calls `json:"calls"`
	// HealthyPods are the pods that were created on the idle node and in the window.
	HealthyPods []Healthy `json:"healthyPods"`
	// APIRestarts is the sum of the restart counts in the API after the window, and
	// Restarts the number of restarts in the runtime.
	APIRestarts int `json:"apiRestarts"`
	Restarts    int `json:"restarts"`
	// Costs and Waits are from the profiles, if any, by purpose, in milliseconds per
	// restart.
	Costs map[string]float64 `json:"costs,omitempty"`
	Waits map[string]float64 `json:"waits,omitempty"`
}

// Idle is the use of the API server in some time: the kubelets' requests, and CPU time in seconds.
type Idle struct {
	Seconds   float64            `json:"seconds"`
	APIServer float64            `json:"apiserver"`
	Requests  map[string]float64 `json:"requests"`
}

// Sample is the resource use of the kubelets, the API server, the runtimes and the machine
// so far: CPU time in seconds, memory in bytes.
type Sample struct {
	At              time.Time `json:"at"`
	Kubelet         float64   `json:"kubelet"`
	APIServer       float64   `json:"apiserver"`
	Runtime         float64   `json:"runtime"`
	All             float64   `json:"all"`
	Stolen          float64   `json:"stolen"`
	KubeletMemory   float64   `json:"kubeletMemory"`
	APIServerMemory float64   `json:"apiserverMemory"`
}

// Healthy is a pod that does not crash.
type Healthy struct {
	Name    string    `json:"name"`
	Created time.Time `json:"created"`
	// Idle reports whether the node had no other pods.
	Idle bool `json:"idle,omitempty"`
}

// measurement is a node with one scenario.
type measurement struct {
	*harness.Node
	task
	api    *harness.APIServer
	nodes  []*node
	client *http.Client
	run    Run
	// own counts the requests for pods that this program made since the last time when it was emptied.
	own map[string]float64
	// deleted is the number of HealthyPods that are deleted.
	deleted int
}

// node is a kubelet with its runtime.
type node struct {
	name             string
	kubelet, runtime *harness.Process
	control          *memcri.Control
	// url is that of the kubelet's server.
	url string
	// read is the number of events of the runtime that were read.
	read int
}

// nodeMain runs in the process that the harness started.
func nodeMain(in io.Reader, out io.Writer) error {
	n, err := harness.New(in)
	if err != nil {
		return err
	}
	m := &measurement{Node: n, own: map[string]float64{}}
	if err := json.Unmarshal(n.Spec.Task, &m.task); err != nil {
		return fmt.Errorf("reading the node's task: %w", err)
	}
	if err := m.measure(); err != nil {
		if c := context.Cause(n.Context()); c != nil {
			return c
		}
		return err
	}
	return json.NewEncoder(out).Encode(m.run)
}

// measure starts the parts of the node and measures.
func (m *measurement) measure() error {
	if err := m.startAll(); err != nil {
		return err
	}
	if err := m.idle(); err != nil {
		return err
	}
	pods := m.Scenario.pods()
	m.say("creating %d pods", len(pods))
	m.run.Created = time.Now()
	for _, pod := range pods {
		if err := m.create(pod); err != nil {
			return err
		}
	}
	if err := m.warmUp(); err != nil {
		return err
	}
	if err := m.window(); err != nil {
		return err
	}
	// The last healthy pods also get time to start. Those that have not started then
	// count with their waits.
	_ = m.awaitHealthyPods()
	if err := m.count(); err != nil {
		return err
	}
	if m.Profile != "" {
		if err := m.profile(); err != nil {
			return err
		}
	}
	for _, n := range m.nodes {
		n.kubelet.End()
	}
	return nil
}

// startAll starts the runtimes, the API server and the kubelets.
func (m *measurement) startAll() (err error) {
	if m.run.Version, err = figures.KubeletVersion(m.Context(), m.Spec.Kubelet); err != nil {
		return err
	}
	m.run.Kubelet = m.Spec.Kubelet
	var network []string
	if m.Scenario.Network {
		conf, plugins, err := m.SetUpNetwork()
		if err != nil {
			return err
		}
		network = []string{"--network=" + conf, "--plugins=" + strings.Join(plugins, string(filepath.ListSeparator))}
	}
	m.say("starting etcd and kube-apiserver")
	var gates []string
	if m.Scenario.Action == harness.ActionRestartPod {
		gates = []string{"--feature-gates=" + harness.GateRestartPod + "=true"}
	}
	if m.api, err = m.StartAPIServer(gates...); err != nil {
		return err
	}
	// The certificates of kubelets are self-signed.
	m.client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	m.say("starting %d kubelets %s", m.Scenario.nodes(), m.run.Version)
	for i := range m.Scenario.nodes() {
		n, err := m.startNode(i, network)
		if err != nil {
			return err
		}
		m.nodes = append(m.nodes, n)
	}
	return nil
}

// startNode starts a runtime and a kubelet, and waits for the node object.
func (m *measurement) startNode(i int, network []string) (n *node, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	name := harness.KubeletName(i)
	dir, err := m.KubeletDir(i)
	if err != nil {
		return nil, err
	}
	socket, control := filepath.Join(dir, "cri.sock"), filepath.Join(dir, "control.sock")
	n = &node{name: name, control: memcri.NewControl(control)}
	args := slices.Concat([]string{runtimeCommand, "--listen=" + socket, "--control=" + control, "--dir=" + dir}, m.Runtime.Args(), network)
	if n.runtime, err = m.Start("memcri-"+name, self, args...); err != nil {
		return nil, err
	}
	if err := harness.Await(m.Context(), "the runtime", time.Minute, func(ctx context.Context) error {
		_, err := n.control.Calls(ctx)
		return err
	}); err != nil {
		return nil, err
	}
	port, err := harness.FreePort()
	if err != nil {
		return nil, err
	}
	n.url = fmt.Sprintf("https://127.0.0.1:%d", port)
	config, err := m.kubeletConfig(port)
	if err != nil {
		return nil, err
	}
	if n.kubelet, err = m.RunKubelet(harness.KubeletSpec{
		Name: name, Log: "kubelet-" + name, Program: m.Spec.Kubelet, Dir: dir, Runtime: socket, Config: config,
		Args: []string{"--kubeconfig=" + m.api.Kubeconfig},
	}); err != nil {
		return nil, err
	}
	return n, m.api.AwaitNode(m.Context(), name)
}

// kubeletConfig returns the configuration that the scenario adds to the one of every
// kubelet of a node. The kubelet's server, on loopback, is for metrics and profiles.
func (m *measurement) kubeletConfig(port int) (string, error) {
	s := m.Scenario
	gates, err := gateLines(m.Gates)
	if err != nil {
		return "", err
	}
	config := fmt.Sprintf(`address: 127.0.0.1
port: %d
authentication:
  anonymous: {enabled: true}
  webhook: {enabled: false}
maxPods: %d
crashLoopBackOff:
  maxContainerRestartPeriod: %v
`, port, max(110, s.Pods/s.nodes()+1)+20, s.Maximum)
	if s.Action == harness.ActionRestartPod {
		gates += "  " + harness.GateRestartPod + ": true\n"
	}
	if s.Reduced {
		gates += "  " + harness.GateReduced + ": true\n"
	}
	if gates != "" {
		config += "featureGates:\n" + gates
	}
	if m.Profile != "" {
		config += "enableContentionProfiling: true\n"
	}
	return config, nil
}

// gateLines returns a list of gates as lines of a KubeletConfiguration.
func gateLines(list string) (lines string, err error) {
	for text := range strings.SplitSeq(list, ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		name, value, _ := strings.Cut(text, "=")
		if value != "true" && value != "false" {
			return "", fmt.Errorf("--gates %q: %q is not GATE=true or GATE=false", list, text)
		}
		lines += fmt.Sprintf("  %s: %s\n", name, value)
	}
	return lines, nil
}

func (m *measurement) say(format string, args ...any) {
	harness.Progress("%s, %s: %s", m.Scenario.name(), m.Label, fmt.Sprintf(format, args...))
}

// wait calls do repeatedly for the duration.
func (m *measurement) wait(d time.Duration, do func() error) error {
	tick := time.NewTicker(sampling)
	defer tick.Stop()
	for end := time.Now().Add(d); time.Now().Before(end); {
		select {
		case <-tick.C:
		case <-m.Context().Done():
			return context.Cause(m.Context())
		}
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

// request sends the API server a request for pods.
func (m *measurement) request(method, path string, body []byte, use func(io.Reader) error) error {
	m.own[method+" pods"]++
	return m.api.Request(m.Context(), method, "/api/v1/namespaces/default/pods"+path, body, use)
}

func (m *measurement) create(pod *corev1.Pod) error {
	pod.Spec.HostNetwork = !m.Scenario.Network
	data, err := json.Marshal(pod)
	if err != nil {
		return err
	}
	return m.request(http.MethodPost, "", data, nil)
}

func (m *measurement) createHealthy(idle bool) error {
	pod := healthy(len(m.run.HealthyPods) + 1)
	m.run.HealthyPods = append(m.run.HealthyPods, Healthy{pod.Name, time.Now(), idle})
	return m.create(pod)
}

// events returns the runtimes' events since the last call. Those of a pod are in their
// order.
func (m *measurement) events() (all []memcri.Event, err error) {
	for _, n := range m.nodes {
		events, err := n.control.Journal(m.Context(), n.read)
		if err != nil {
			return nil, err
		}
		n.read += len(events)
		all = append(all, events...)
	}
	return all, nil
}

// readJournal adds the runtimes' events since the last call to the journal.
func (m *measurement) readJournal() error {
	events, err := m.events()
	m.run.Journal = append(m.run.Journal, events...)
	return err
}

// calls returns how often each method of the runtimes was called so far.
func (m *measurement) calls() (map[string]memcri.Calls, error) {
	sums := map[string]memcri.Calls{}
	for _, n := range m.nodes {
		calls, err := n.control.Calls(m.Context())
		if err != nil {
			return nil, err
		}
		for method, c := range calls {
			sums[method] = memcri.Calls{Count: sums[method].Count + c.Count, Seconds: sums[method].Seconds + c.Seconds}
		}
	}
	return sums, nil
}

// setDependency makes the dependency present or absent.
func (m *measurement) setDependency(present bool) error {
	var failed []error
	for _, n := range m.nodes {
		failed = append(failed, n.control.SetDependency(m.Context(), dependency, present))
	}
	return errors.Join(failed...)
}

// deleteHealthyPods deletes the healthy pods that have started.
func (m *measurement) deleteHealthyPods() error {
	if err := m.readJournal(); err != nil {
		return err
	}
	for ; m.deleted < len(m.run.HealthyPods); m.deleted++ {
		name := m.run.HealthyPods[m.deleted].Name
		if !slices.ContainsFunc(m.run.Journal, func(e memcri.Event) bool { return e.Pod == name }) {
			return nil
		}
		if err := m.request(http.MethodDelete, "/"+name, nil, nil); err != nil {
			return err
		}
	}
	return nil
}

// starts returns how often each main container has started.
func (m *measurement) starts() map[string]int {
	starts := map[string]int{}
	for _, e := range m.run.Journal {
		if m.isStart(e) {
			starts[idOf(e)]++
		}
	}
	return starts
}

// isStart reports whether a main container has started.
func (m *measurement) isStart(e memcri.Event) bool {
	return e.What == memcri.Started && isMain(e, m.Scenario)
}

// The names of the kubelet's metrics.
const (
	metricSyncs     = "kubelet_pod_worker_duration_seconds"
	metricRelists   = "kubelet_pleg_relist_duration_seconds"
	metricThrottled = "rest_client_rate_limiter_duration_seconds"
	metricHeap      = "go_memstats_heap_inuse_bytes"
)
