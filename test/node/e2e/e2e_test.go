// SPDX-License-Identifier: Apache-2.0

// Package e2e has tests that restart pods in place on a real node, see TestNode.
// hack/node-e2e.sh compiles and runs them.
package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
)

var began = time.Now()

// The flags of TestNode, TestUpstream and TestCrashloopRun, which hack/node-e2e.sh
// sets. A test without its flags is skipped.
var (
	kubeletFlag    = flag.String("kubelet", "", "the patched kubelet `binary`")
	shortResetFlag = flag.String("kubelet-short-reset", "", "the `binary` of the same kubelet, built to reset the back-off after a run of "+shortReset.String())
	apiserverFlag  = flag.String("apiserver", "", "the patched kube-apiserver `binary`")
	managerFlag    = flag.String("controller-manager", "", "the kube-controller-manager `binary`")
	stockFlag      = flag.String("kubelet-stock", "", "the unpatched kubelet `binary` of the same release, for the scenarios that need it, which are skipped without it")
	upstreamFlag   = flag.String("e2e-node", "", "the `binary` of upstream's own node tests, in the folder of the kubelet")
	busyboxFlag    = flag.String("busybox", "", "a statically linked busybox `binary`, for upstream's tests")
	busyboxTagFlag = flag.String("busybox-tag", "", "the `tag` of the busybox image that upstream's tests use")
	pluginFlag     = flag.String("device-plugin", "", "upstream's sample device plugin `binary`, which the scenarios of a machine need")
	crashloopFlag  = flag.String("crashloop", "", "the crashloop `binary`")
	actionFlag     = flag.String("action", string(harness.ActionRestartPod), "the `action` of the restart rules; with RestartAllContainers the tests also run on a stock node, and their failures show its differences")
	runtimeFlag    = flag.String("runtime", harness.DefaultRuntime, "the container `runtime` of the node: containerd (with runc), crio (with crun) or crio-runc")
	workFlag       = flag.String("work", "", "the `folder` for binaries, state and logs (default: _output/node of the repository)")
	recordFlag     = flag.String("record", "", "the `program` that stores the result for the matrix of releases")
	keepFlag       = flag.Bool("keep", false, "keep the logs even if nothing fails")
	buildFlag      = flag.Bool("build", false, "only build what nodes need besides the kubernetes programs into the folder of -work")
	machineFlag    = flag.Bool("machine", false, "run on a virtual machine that is only for this: the folder of -work has what -build builds, systemd makes the cgroups, and nothing is cleared")
	insideFlag     = flag.Bool("inside", false, "set by the harness in the process that is the node")
)

// shortReset is the length of a run after which the kubelet of -kubelet-short-reset
// resets a back-off. For other kubelets it is ten minutes.
const shortReset = 15 * time.Second

// hookGrace is the grace period, in seconds, of pods whose preStop hooks or SIGTERM handlers use it
// up. The hook must run before it is over.
var hookGrace = int64(4)

// ran is the number of scenarios that ran, without those that were skipped. Upstream's tests count as one.
var ran atomic.Int32

// TestMain runs this program again as a node in new namespaces. The tests run there,
// in process 1, so that no process outlives them.
func TestMain(m *testing.M) {
	flag.Parse()
	if *machineFlag { // An emulated processor is so slow that a shorter wait would be over before it is seen.
		patience = 3 * patience
		usual = harness.Curve{Maximum: 20 * time.Second}
		slow = harness.Curve{Maximum: 40 * time.Second}
		soakCurve = defaultCurve // With the reduced one, the machine could not start so many containers in time.
		hookGrace = 30
	}
	if *insideFlag {
		code := m.Run()
		if code == 0 && ran.Load() == 0 {
			fmt.Fprintf(os.Stderr, "node-e2e: no scenario ran: none matches -test.run %s, or all were skipped\n", flag.Lookup("test.run").Value)
			code = 1
		}
		os.Exit(code)
	}
	if *buildFlag {
		if err := harness.Build(context.Background(), *workFlag, *runtimeFlag); err != nil {
			fmt.Fprintln(os.Stderr, "node-e2e:", err)
			os.Exit(1)
		}
		return
	}
	if *kubeletFlag == "" && *crashloopFlag == "" && *skewFlag == "" && *conformanceFlag == "" {
		os.Exit(m.Run())
	}
	ctx, stop := harness.Interruptible()
	err := testOnNode(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "node-e2e:", err)
		os.Exit(1)
	}
}

func testOnNode(ctx context.Context) (err error) {
	var programs []harness.Program
	if *kubeletFlag != "" {
		programs = []harness.Program{
			{Flag: "-kubelet", Path: kubeletFlag}, {Flag: "-kubelet-short-reset", Path: shortResetFlag},
			{Flag: "-apiserver", Path: apiserverFlag}, {Flag: "-controller-manager", Path: managerFlag},
		}
	}
	if *skewFlag != "" {
		all := skewed()
		for i := range all {
			programs = append(programs, harness.Program{Flag: "-skew-kubelets", Path: &all[i]})
		}
		programs = append(programs, harness.Program{Flag: "-apiserver", Path: apiserverFlag}, harness.Program{Flag: "-apiserver-stock", Path: stockAPIServerFlag})
	}
	if *conformanceFlag != "" {
		programs = append(programs, harness.Program{Flag: "-ginkgo", Path: ginkgoFlag}, harness.Program{Flag: "-agnhost", Path: agnhostFlag}, harness.Program{Flag: "-busybox", Path: busyboxFlag})
	}
	if *crashloopFlag != "" {
		programs = append(programs, harness.Program{Flag: "-crashloop", Path: crashloopFlag})
	}
	if *stockFlag != "" {
		programs = append(programs, harness.Program{Flag: "-kubelet-stock", Path: stockFlag})
	}
	if *pluginFlag != "" {
		programs = append(programs, harness.Program{Flag: "-device-plugin", Path: pluginFlag})
	}
	if *upstreamFlag != "" {
		programs = append(programs, harness.Program{Flag: "-e2e-node", Path: upstreamFlag}, harness.Program{Flag: "-busybox", Path: busyboxFlag})
	}
	h, err := harness.NewHarness(ctx, *workFlag, programs, harness.Needs{
		Runtime: *runtimeFlag, Built: *machineFlag, APIServer: *kubeletFlag != "" || *skewFlag != "", HostPath: *kubeletFlag != "",
	})
	if err != nil {
		return err
	}
	h.Keep = *keepFlag
	if *kubeletFlag != "" {
		if err := h.Pack(pulledImage, h.Program("actor")); err != nil {
			return err
		}
	}
	if *upstreamFlag != "" {
		if err := h.Pack(upstreamBusybox(), *busyboxFlag); err != nil {
			return err
		}
	}
	defer func() {
		if !*machineFlag {
			err = errors.Join(err, h.Check(os.Stderr))
		}
		check, details := "node-e2e", ""
		switch {
		case *runtimeFlag == "crio":
			check = "node-crio"
		case *skewFlag != "":
			check, details = "node-skew", skewedVersions(ctx)
		case *conformanceFlag != "":
			check = "node-conformance"
		}
		err = errors.Join(err, harness.Record(ctx, *recordFlag, check, err == nil, details))
		harness.Progress("done after %v", time.Since(began).Round(time.Second))
	}()
	if *skewFlag != "" {
		return runSkew(ctx, h)
	}
	if *conformanceFlag != "" {
		return runConformance(ctx, h, os.Stdout)
	}
	sp := harness.Spec{Kubelet: *kubeletFlag, APIServer: *apiserverFlag, Runtime: *runtimeFlag, Network: true, Machine: *machineFlag}
	return h.Run(ctx, "e2e", sp, os.Stdout, append(os.Args[1:], "-inside")...)
}

// theNode returns the node of this process, with the container runtime running.
var theNode = sync.OnceValues(func() (*harness.Node, error) {
	n, err := harness.New(os.Stdin)
	if err != nil {
		return nil, err
	}
	harness.Progress("starting %s", *runtimeFlag)
	return n, n.StartRuntime()
})

// TestNode runs the scenarios on one node. Those of Pods run in parallel, because they
// affect only their own pods. The others run after them, one by one: Machine, if there is
// one, Disruptions, Persist, which kills the kubelet while pods wait, and Metrics, which counts
// everything that a kubelet does.
func TestNode(t *testing.T) {
	if !*insideFlag || *kubeletFlag == "" {
		t.Skip("this needs root and patched binaries: make node-e2e")
	}
	e := startE2E(t)
	t.Cleanup(func() { e.Kubelet.Kill() })
	t.Run("Pods", func(t *testing.T) {
		for _, s := range slices.Concat(podScenarios, overScenarios, startScenarios, pullScenarios, doneScenarios, probeScenarios) {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				s.report(t, e)
			})
		}
	})
	if *machineFlag {
		t.Run("Machine", func(t *testing.T) {
			text := machineConfig
			if !e.before(t, 36) {
				text += tieredReservation
			}
			e.kubeletArgs = []string{e.dropIn(t, text)}
			e.restartKubelet(t)
			t.Cleanup(func() {
				e.kubeletArgs = nil
				e.restartKubelet(t)
			})
			for _, s := range machineScenarios {
				t.Run(s.name, func(t *testing.T) { s.report(t, e) })
			}
		})
	}
	t.Run("Disruptions", func(t *testing.T) {
		for _, s := range slices.Concat(disruptions, gateDisruptions, csiDisruptions, staticDisruptions, firstStartDisruptions, doneDisruptions, probeDisruptions, askedDisruptions, limitDisruptions, curveDisruptions) {
			t.Run(s.name, func(t *testing.T) { s.report(t, e) })
		}
	})
	t.Run("Persist", func(t *testing.T) {
		for _, s := range persistScenarios {
			t.Run(s.name, func(t *testing.T) { s.report(t, e) })
		}
	})
	t.Run("Metrics", func(t *testing.T) {
		for _, s := range slices.Concat(metricsScenarios, metricsPluginScenarios) {
			t.Run(s.name, func(t *testing.T) { s.report(t, e) })
		}
		if *recordingFlag != "" {
			for _, s := range recordingScenarios {
				t.Run(s.name, func(t *testing.T) { s.report(t, e) })
			}
		}
	})
}

// scenario is a test on the shared node.
type scenario struct {
	name string
	run  func(*testing.T, *e2e)
}

// report runs the scenario and prints a line at its end. The failures follow at the
// end of the whole test.
func (s scenario) report(t *testing.T, e *e2e) {
	start := time.Now()
	defer func() {
		verdict := "pass"
		switch {
		case t.Failed():
			verdict = "FAIL"
		case t.Skipped():
			verdict = "skip"
		}
		if !t.Skipped() {
			ran.Add(1)
		}
		harness.Progress("%s  %s (%.1f s)", verdict, s.name, time.Since(start).Seconds())
	}()
	s.run(t, e)
}

// Two scenarios with the same name would share the folder of their pods.
func TestScenarioNames(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range slices.Concat(podScenarios, overScenarios, startScenarios, pullScenarios, doneScenarios, probeScenarios,
		machineScenarios, disruptions, gateDisruptions, csiDisruptions, staticDisruptions, firstStartDisruptions, doneDisruptions, probeDisruptions, askedDisruptions, limitDisruptions, curveDisruptions,
		persistScenarios, metricsScenarios, metricsPluginScenarios, crashloopScenarios, crashloopDisruptions) {
		name := strings.ToLower(s.name)
		if seen[name] {
			t.Errorf("two scenarios are named %s", s.name)
		}
		seen[name] = true
	}
}
