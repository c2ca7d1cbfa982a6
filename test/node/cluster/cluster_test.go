// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
	"github.com/kubelet-backoff/kubelet-backoff/test/node/memcri"
)

// cluster is a control plane and its nodes.
type cluster struct {
	*harness.Node
	ctx   context.Context
	api   *harness.APIServer
	kube  kubernetes.Interface
	nodes []*node
}

// node is a node of the cluster.
type node struct {
	name, dir string
	// maximum is the node's longest back-off. Each node of a cluster has another one, as nodes of different pools have.
	maximum time.Duration
	kubelet *harness.Process
	runtime *memcri.Runtime
	server  *grpc.Server
	// before has the events of the runtimes that the node has lost, and created the
	// numbers of the instances that these created.
	before  []memcri.Event
	created map[instance]int
}

// journal returns all events on the node so far.
func (n *node) journal() []memcri.Event { return slices.Concat(n.before, n.runtime.Journal(0)) }

// instances returns how many instances of each container were created on the node so far.
func (n *node) instances() map[instance]int {
	all := maps.Clone(n.created)
	for key, count := range n.runtime.Instances() {
		uid, container, _ := strings.Cut(key, "/")
		all[instance{uid, container}] += count
	}
	return all
}

// startCluster starts the control plane, and as many nodes without a kubelet.
func startCluster(t *testing.T, nodes int) *cluster {
	n, err := harness.New(os.Stdin)
	require.NoError(t, err)
	c := &cluster{Node: n, ctx: n.Context()}
	// client-go logs each connection that breaks.
	log, err := os.Create(filepath.Join(n.Spec.Logs, "client-go.log"))
	require.NoError(t, err)
	klog.LogToStderr(false)
	klog.SetOutput(log)
	_, _, err = n.SetUpNetwork()
	require.NoError(t, err)
	harness.Progress("starting etcd and kube-apiserver")
	// A node that is lost is noticed after some seconds instead of minutes.
	c.api, err = n.StartAPIServer("--kubelet-preferred-address-types=InternalIP", "--feature-gates="+harness.GateRestartPod+"=true",
		"--default-not-ready-toleration-seconds=5", "--default-unreachable-toleration-seconds=5")
	require.NoError(t, err)
	c.kube, err = c.api.Clientset()
	require.NoError(t, err)
	harness.Progress("starting kube-controller-manager, kube-scheduler and JobSet's controller")
	require.NoError(t, n.StartController(c.api, "kube-controller-manager", *managerFlag, "--leader-elect=false", "--bind-address=127.0.0.1",
		"--cert-dir="+n.Path("controller-manager-pki"), "--node-monitor-grace-period=15s", "--node-monitor-period=2s"))
	require.NoError(t, n.StartController(c.api, "kube-scheduler", *schedulerFlag, "--leader-elect=false", "--bind-address=127.0.0.1",
		"--cert-dir="+n.Path("scheduler-pki")))
	c.startJobSet(t)
	for i := range nodes {
		dir, err := n.KubeletDir(i)
		require.NoError(t, err)
		own := &node{name: harness.KubeletName(i), dir: dir, maximum: time.Second << i, created: map[instance]int{}}
		own.newRuntime()
		own.serve(t)
		c.nodes = append(c.nodes, own)
	}
	return c
}

// jobsetConfig is for a controller whose webhooks nobody calls, but it does not start
// without a certificate for them.
const jobsetConfig = `apiVersion: config.jobset.x-k8s.io/v1alpha1
kind: Configuration
internalCertManagement: {enable: false}
leaderElection: {leaderElect: false}
webhook: {host: 127.0.0.1, certDir: %q}
`

func (c *cluster) startJobSet(t *testing.T) {
	dir := c.Path("jobset")
	require.NoError(t, os.Mkdir(dir, 0o755))
	for from, to := range map[string]string{".crt": "tls.crt", ".key": "tls.key"} {
		data, err := os.ReadFile(c.Path("apiserver-pki", "apiserver"+from))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, to), data, 0o600))
	}
	config := filepath.Join(dir, "config.yaml")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, jobsetConfig, dir), 0o644))
	definition, err := os.ReadFile(filepath.Join(c.Spec.Bin, harness.JobSetCRD))
	require.NoError(t, err)
	c.create(t, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
	require.NoError(t, harness.Await(c.ctx, "the API of JobSets", time.Minute, func(ctx context.Context) error {
		return c.api.Request(ctx, http.MethodGet, jobsets, nil, nil)
	}))
	require.NoError(t, c.StartController(c.api, "jobset", filepath.Join(c.Spec.Bin, "jobset"), "--config="+config,
		"--metrics-bind-address=0", "--health-probe-bind-address=0"))
}

// jobsets is the path of JobSets in the API.
const jobsets = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"

// create creates an object from YAML.
func (c *cluster) create(t *testing.T, path string, text []byte) {
	t.Helper()
	object, err := yaml.YAMLToJSON(text)
	require.NoError(t, err)
	require.NoError(t, c.api.Create(c.ctx, path, json.RawMessage(object)))
}

// newRuntime gives the node a runtime without pods.
func (n *node) newRuntime() {
	n.runtime = memcri.New(memcri.Options{Sandbox: 40 * time.Millisecond, Start: 20 * time.Millisecond, Stop: 10 * time.Millisecond, Dir: n.dir})
	n.server = n.runtime.Register()
}

// serve starts the runtime.
func (n *node) serve(t *testing.T) {
	listener, err := net.Listen("unix", n.socket())
	require.NoError(t, err)
	go func() { _ = n.server.Serve(listener) }()
}

func (n *node) socket() string { return filepath.Join(n.dir, "cri.sock") }

// kubeletConfig is the configuration of each kubelet. Its lease is short, so that a loss is
// noticed soon, and so is its curve: 0, 1, 2, 4 … s, up to the node's maximum.
const kubeletConfig = `address: %s
port: %d
authentication:
  anonymous: {enabled: true}
  webhook: {enabled: false}
nodeLeaseDurationSeconds: 10
crashLoopBackOff:
  maxContainerRestartPeriod: %v
featureGates:
  ` + harness.GateReduced + `: true
`

// startKubelet starts a kubelet on the node, and waits until the node is ready with it.
func (c *cluster) startKubelet(t *testing.T, n *node, program string) {
	t.Helper()
	port, err := harness.FreePort()
	require.NoError(t, err)
	config := fmt.Sprintf(kubeletConfig, harness.IP, port, n.maximum)
	for _, gate := range []string{harness.GateMaximum, harness.GateRestartPod} {
		knows, err := harness.Knows(c.ctx, program, gate)
		require.NoError(t, err)
		if knows {
			config += fmt.Sprintf("  %s: true\n", gate)
		}
	}
	n.kubelet, err = c.RunKubelet(harness.KubeletSpec{
		Name: n.name, Log: "kubelet-" + n.name, Program: program, Dir: n.dir, Runtime: n.socket(), Config: config,
		Args: []string{"--kubeconfig=" + c.api.Kubeconfig, "--node-ip=" + harness.IP},
	})
	require.NoError(t, err)
	version, err := harness.Output(c.ctx, program, "--version")
	require.NoError(t, err)
	c.awaitNode(t, n, "with "+version, func(now *corev1.Node) bool {
		return "Kubernetes "+now.Status.NodeInfo.KubeletVersion == version && isReady(now) &&
			!slices.ContainsFunc(now.Spec.Taints, func(t corev1.Taint) bool { return t.Key != corev1.TaintNodeUnschedulable })
	})
}

// replaceKubelet replaces the node's kubelet while its containers go on.
func (c *cluster) replaceKubelet(t *testing.T, n *node, program string) {
	t.Helper()
	n.kubelet.End()
	c.startKubelet(t, n, program)
}

// lose ends the node, and its containers with it, without a notice to the API server.
func (c *cluster) lose(n *node) {
	n.kubelet.Kill()
	n.server.Stop()
	n.before = ended(n.journal(), time.Now())
	n.created = n.instances()
	n.newRuntime()
}

// setDependency makes a dependency present or absent on all nodes.
func (c *cluster) setDependency(name string, present bool) {
	for _, n := range c.nodes {
		n.runtime.SetDependency(name, present)
	}
}
