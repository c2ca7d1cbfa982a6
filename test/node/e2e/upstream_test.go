// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
)

const (
	// upstreamFocus matches upstream's tests of container restart rules and of
	// RestartAllContainers, in test/e2e/common/node and test/e2e_node.
	upstreamFocus = "Container Restart Rules|RestartAllContainers"
	// upstreamSkip matches tests that do not run here: they restart the kubelet
	// through systemd, which a node in namespaces does not have. The scenarios
	// KubeletKilled… test the same. Another test, of the CPU manager, skips itself.
	upstreamSkip = "RestartAllContainersWithKubeletRestarts"
)

// upstreamBusybox returns the busybox image of upstream's tests, with the programs that
// they call.
func upstreamBusybox() harness.Image {
	return harness.Image{
		Program: "busybox", Reference: "registry.k8s.io/e2e-test-images/busybox:" + *busyboxTagFlag,
		Links: []string{"sh", "cat", "date", "echo", "false", "grep", "ls", "mkdir", "rm", "sleep", "test", "touch", "true", "["},
	}
}

// TestUpstream runs upstream's own tests. They start their own API server, and the
// kubelet in their folder.
func TestUpstream(t *testing.T) {
	if !*insideFlag || *upstreamFlag == "" {
		t.Skip("this needs root and upstream's tests, built: make node-e2e")
	}
	ran.Add(1)
	n, err := theNode()
	require.NoError(t, err)
	require.NoError(t, n.Import(upstreamBusybox()))
	report := filepath.Join(n.Spec.Logs, "upstream")
	require.NoError(t, os.Mkdir(report, 0o755))
	harness.Progress("running upstream's tests: %s", upstreamFocus)
	log := filepath.Join(n.Spec.Logs, "upstream.log")
	var gates []string
	for _, gate := range known(t, n, n.Spec.Kubelet, gatesOfRules) {
		gates = append(gates, gate+"=true")
	}
	args := append([]string{"--feature-gates=" + strings.Join(gates, ","), "--ginkgo.focus=" + upstreamFocus, "--ginkgo.skip=" + upstreamSkip, "--ginkgo.no-color"}, upstreamArgs(t, n, report)...)
	if err := runUpstream(t, n, *upstreamFlag, args, log); err != nil {
		t.Errorf("upstream's tests fail: %v; the end of %s:\n%s", err, log, harness.Tail(log))
		return
	}
	text, err := os.ReadFile(log)
	require.NoError(t, err)
	ran := regexp.MustCompile(`(?m)Ran (\d+) of \d+ Specs`).FindSubmatch(text)
	require.NotNil(t, ran, "%s does not say how many tests ran", log)
	require.NotEqual(t, "0", string(ran[1]), "tests that ran")
	harness.Progress("pass  %s of upstream's tests", ran[1])
}

// upstreamArgs returns the arguments of upstream's tests for this node.
func upstreamArgs(t *testing.T, n *harness.Node, report string) []string {
	config := n.Path("upstream.yaml")
	base := n.KubeletConfig(n.RuntimeSocket(), 10248, n.Path("upstream-logs"))
	require.NoError(t, os.WriteFile(config, []byte(base), 0o644))
	// They would move the kubelet and others to cgroups of their own.
	cgroups := "--system-cgroups= --kubelet-cgroups= --runtime-cgroups="
	if !n.Spec.Machine {
		cgroups = "--cgroup-root=/ --cgroups-per-qos=false --enforce-node-allocatable= --system-cgroups="
	}
	return []string{
		"--prepull-images=false", "--report-dir=" + report, "--node-name=" + harness.Name,
		"--container-runtime-endpoint=unix://" + n.RuntimeSocket(), "--kubelet-config-file=" + config,
		"--kubelet-flags=--hostname-override=" + harness.Name + " --node-ip=" + harness.IP + " " + cgroups,
	}
}

// runUpstream runs a program of upstream's tests, without systemd.
func runUpstream(t *testing.T, n *harness.Node, program string, args []string, file string) error {
	for _, program := range []string{"systemd-run", "journalctl"} {
		if path, err := exec.LookPath(program); err == nil {
			require.NoError(t, n.Replace(path, nil))
		}
	}
	log, err := os.Create(file)
	require.NoError(t, err)
	defer log.Close()
	cmd := exec.CommandContext(n.Context(), program, args...)
	cmd.Dir = n.Spec.Logs
	cmd.Stdout, cmd.Stderr = log, log
	return cmd.Run()
}
