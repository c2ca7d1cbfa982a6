// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
)

// e2e is the node that the scenarios share.
type e2e struct {
	*harness.Node
	ctx  context.Context
	api  *harness.APIServer
	kube kubernetes.Interface
	pods *recorder
	// kubeletArgs are extra arguments for every kubelet.
	kubeletArgs []string
}

// startE2E starts the parts of the node, which end with this process.
func startE2E(t *testing.T) *e2e {
	n, err := theNode()
	require.NoError(t, err)
	e := &e2e{Node: n, ctx: n.Context(), pods: &recorder{history: map[string][]snapshot{}, stop: func() {}}}
	// client-go logs an error for each connection that a disruption breaks.
	log, err := os.Create(filepath.Join(n.Spec.Logs, "client-go.log"))
	require.NoError(t, err)
	klog.LogToStderr(false)
	klog.SetOutput(log)
	harness.Progress("starting etcd and kube-apiserver")
	args := []string{"--kubelet-preferred-address-types=" + string(v1.NodeInternalIP)}
	for _, gate := range known(t, n, n.Spec.APIServer, append([]string{harness.GateRestartPod}, gatesOfRules...)) {
		args = append(args, "--feature-gates="+gate+"=true")
	}
	e.api, err = n.StartAPIServer(args...)
	require.NoError(t, err)
	e.kube, err = e.api.Clientset()
	require.NoError(t, err)
	harness.Progress("starting the kubelet")
	e.startKubelet(t)
	require.NoError(t, e.api.AwaitNode(n.Context(), harness.Name))
	if *managerFlag != "" {
		require.NoError(t, e.startControllerManager())
	}
	e.pods.record(n.Context(), e.kube)
	return e
}

// e2eKubeletConfig is the configuration that the scenarios add to that of every kubelet:
// the curve, a server for logs and metrics, and a folder for static pods.
const e2eKubeletConfig = `address: %s
authentication:
  anonymous: {enabled: true}
  webhook: {enabled: false}
staticPodPath: %s
crashLoopBackOff:
  maxContainerRestartPeriod: %s
featureGates:
`

// gatesOfRules are the gates of restart rules, which are off by default in older releases.
var gatesOfRules = []string{gateRestartRules, gateRestartAllContainers, "NodeDeclaredFeatures"}

// usual has the curve 0, 1, 2, 4, 4 … s. slow has 0, 10, 10 … s, for scenarios in which
// a delay must be longer than other waits.
var (
	usual = harness.Curve{Reduced: true, Maximum: 4 * time.Second}
	slow  = harness.Curve{Maximum: 10 * time.Second}
)

// curve returns the usual delay before the k-th consecutive restart, counted from 0.
func curve(k int) time.Duration { return usual.Delay(k) }

// fromKubelet returns a request that the API server passes on to the kubelet's server.
func (e *e2e) fromKubelet(path string) *rest.Request {
	return e.kube.CoreV1().RESTClient().Get().Resource("nodes").Name(harness.Name).SubResource("proxy").Suffix(path)
}

// startKubelet starts or restarts the kubelet with the usual curve, and with the given
// gates off. Its log has each decision on a start.
func (e *e2e) startKubelet(t *testing.T, off ...string) { e.startKubeletWith(t, usual, off...) }

func (e *e2e) startKubeletWith(t *testing.T, curve harness.Curve, off ...string) {
	manifests := e.Path("manifests")
	require.NoError(t, os.MkdirAll(manifests, 0o755))
	config := fmt.Sprintf(e2eKubeletConfig, harness.IP, manifests, curve.Maximum)
	if !curve.Reduced {
		off = append(slices.Clone(off), harness.GateReduced)
	}
	gates := append([]string{harness.GateReduced, harness.GateMaximum, harness.GateRestartPod, gateRestartAllContainersBackOff, gateStrictBackOff}, gatesOfRules...)
	for _, gate := range known(t, e.Node, e.Spec.Kubelet, gates) {
		config += fmt.Sprintf("  %s: %v\n", gate, !slices.Contains(off, gate))
	}
	args := append([]string{"--v=3", "--kubeconfig=" + e.api.Kubeconfig, "--node-ip=" + harness.IP}, e.kubeletArgs...)
	require.NoError(t, e.StartKubelet(config, args...))
}

// dropIn returns the argument with which a kubelet also reads this part of a configuration.
func (e *e2e) dropIn(t *testing.T, part string) string {
	dir := e.Path("kubelet.conf.d")
	require.NoError(t, os.Mkdir(dir, 0o755))
	// A drop-in needs an API version and a kind of its own.
	part = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n" + part
	require.NoError(t, os.WriteFile(filepath.Join(dir, "test.conf"), []byte(part), 0o644))
	return "--config-dir=" + dir
}

// restartAPIServer restarts the API server with other arguments.
func (e *e2e) restartAPIServer(t *testing.T, args []string) {
	e.api.Kill()
	e.api.Args = args
	require.NoError(t, e.Serve(e.api))
	e.pods.record(e.ctx, e.kube)
}

// restartKubelet kills the kubelet and starts it with the given gates off.
func (e *e2e) restartKubelet(t *testing.T, off ...string) {
	e.Kubelet.Kill()
	e.startKubelet(t, off...)
}

// known returns those of the gates that a binary has. The tests set only these, so that
// they also run with a stock binary.
func known(t *testing.T, n *harness.Node, binary string, gates []string) []string {
	return slices.DeleteFunc(slices.Clone(gates), func(gate string) bool {
		has, err := harness.Knows(n.Context(), binary, gate)
		require.NoError(t, err)
		return !has
	})
}

// knows reports whether the kubelet has a gate.
func (e *e2e) knows(t *testing.T, gate string) bool {
	return len(known(t, e.Node, e.Spec.Kubelet, []string{gate})) > 0
}

// actions returns the actions of the kubelet's release that restart a pod.
func (e *e2e) actions(t *testing.T) (found []v1.ContainerRestartRuleAction) {
	if e.knows(t, harness.GateRestartPod) {
		found = append(found, harness.ActionRestartPod)
	}
	if e.knows(t, gateRestartAllContainers) {
		found = append(found, v1.ContainerRestartRuleActionRestartAllContainers)
	}
	return found
}

// requireActions returns them, or skips the scenario if there are none.
func (e *e2e) requireActions(t *testing.T) []v1.ContainerRestartRuleAction {
	actions := e.actions(t)
	if len(actions) == 0 {
		skip(t, "this kubelet restarts no pods in place")
	}
	return actions
}

// requireGate skips the scenario if the kubelet's release does not have the feature of the
// gate.
func (e *e2e) requireGate(t *testing.T, gate string) {
	if !e.knows(t, gate) {
		skip(t, "this kubelet has no gate "+gate)
	}
}

// requireRulesOf skips the scenario if the pod has restart rules, or a regular container with a
// restart policy, and the API server is of a release before v1.34.
func (e *e2e) requireRulesOf(t *testing.T, spec v1.PodSpec) {
	hasRules := func(c v1.Container) bool { return len(c.RestartPolicyRules) > 0 }
	if !slices.ContainsFunc(spec.InitContainers, hasRules) && !slices.ContainsFunc(spec.Containers, func(c v1.Container) bool {
		return c.RestartPolicy != nil || hasRules(c)
	}) {
		return
	}
	// A gate that is always on is unknown too. The gates are read once, other than the version.
	if len(known(t, e.Node, e.Spec.APIServer, []string{gateRestartRules})) == 0 && before(t, e.Node, e.Spec.APIServer, 34) {
		skip(t, "this API server has no restart rules")
	}
}

// requireRulesOfStaticPods skips the scenario before v1.35, in which a kubelet refuses
// static pods with restart rules.
func (e *e2e) requireRulesOfStaticPods(t *testing.T) {
	if e.before(t, 35) {
		skip(t, "this kubelet takes no restart rules in static pods")
	}
}

// skip skips the scenario, and prints the reason even without -test.v.
func skip(t *testing.T, why string) {
	harness.Progress("%s: %s", t.Name(), why)
	t.SkipNow()
}

// crio reports whether the runtime is CRI-O.
func (e *e2e) crio() bool { return strings.HasPrefix(e.Spec.Runtime, "crio") }

// before reports whether the kubelet is of a release before v1.minor.
func (e *e2e) before(t *testing.T, minor uint) bool { return before(t, e.Node, e.Spec.Kubelet, minor) }

func before(t *testing.T, n *harness.Node, program string, minor uint) bool {
	text, err := programVersion(n.Context(), program)
	require.NoError(t, err)
	of, err := version.ParseSemantic(text)
	require.NoError(t, err)
	return of.Minor() < minor
}

// programVersion returns the version that a program of kubernetes prints, such as v1.36.3.
func programVersion(ctx context.Context, program string) (string, error) {
	text, err := harness.Output(ctx, program, "--version")
	return strings.TrimPrefix(text, "Kubernetes "), err
}

// startControllerManager starts the controller of Jobs.
func (e *e2e) startControllerManager() error {
	return e.StartController(e.api, "kube-controller-manager", *managerFlag, "--controllers=job-controller",
		"--leader-elect=false", "--bind-address=127.0.0.1", "--cert-dir="+e.Path("controller-manager-pki"))
}

// reboot reboots the node, and starts the kubelet again.
func (e *e2e) reboot(t *testing.T) {
	require.NoError(t, e.Reboot())
	e.startKubelet(t)
}

// recorder keeps every version of every pod that a watch of the API shows.
type recorder struct {
	sync.Mutex
	history map[string][]snapshot
	stop    context.CancelFunc
}

// snapshot is a version of a pod, and the time at which the watch showed it.
type snapshot struct {
	at      time.Time
	pod     *v1.Pod
	deleted bool
}

// record starts watching. After a restart of the API server it is called again, because
// the old watch would take long to reconnect.
func (r *recorder) record(ctx context.Context, kube kubernetes.Interface) {
	r.stop()
	ctx, r.stop = context.WithCancel(ctx)
	add := func(object any, deleted bool) {
		if gone, unknown := object.(cache.DeletedFinalStateUnknown); unknown {
			object = gone.Obj
		}
		pod := object.(*v1.Pod)
		r.Lock()
		defer r.Unlock()
		r.history[pod.Name] = append(r.history[pod.Name], snapshot{time.Now(), pod, deleted})
	}
	lw := cache.NewListWatchFromClient(kube.CoreV1().RESTClient(), "pods", metav1.NamespaceDefault, fields.Everything())
	informer := cache.NewSharedInformer(lw, &v1.Pod{}, 0)
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { add(o, false) },
		UpdateFunc: func(_, o any) { add(o, false) },
		DeleteFunc: func(o any) { add(o, true) },
	})
	go informer.RunWithContext(ctx)
}

// of returns the pod's versions so far, oldest first.
func (r *recorder) of(name string) []snapshot {
	r.Lock()
	defer r.Unlock()
	return slices.Clone(r.history[name])
}
