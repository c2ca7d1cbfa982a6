// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	// upstreamFocus are upstream's tests of container restart rules and of
	// RestartAllContainers, in test/e2e/common/node and test/e2e_node.
	upstreamFocus = "Container Restart Rules|RestartAllContainers"
	// upstreamSkip are those that do not run here: they restart the kubelet
	// through systemd, which a node in namespaces does not have. The scenarios
	// KubeletKilled… are about the same. One more, of the CPU manager, skips itself.
	upstreamSkip = "RestartAllContainersWithKubeletRestarts"
)

// upstreamBusybox is the image of upstream's tests, with the programs they call.
func upstreamBusybox() nodeImage {
	return nodeImage{
		program: "busybox", reference: "registry.k8s.io/e2e-test-images/busybox:" + *busyboxTagFlag,
		links: []string{"sh", "cat", "date", "echo", "false", "grep", "ls", "mkdir", "rm", "sleep", "test", "touch", "true", "["},
	}
}

// TestUpstream runs upstream's own tests. They bring their API server and start
// the kubelet that lies beside them themselves.
func TestUpstream(t *testing.T) {
	if !*insideFlag || *upstreamFlag == "" {
		t.Skip("this needs root and upstream's tests, built: make node-e2e")
	}
	n, err := theNode()
	require.NoError(t, err)
	_, err = n.ctr(n.ctx, "images", "import", upstreamBusybox().archive(n.spec.Bin))
	require.NoError(t, err)
	for _, program := range []string{"systemd-run", "journalctl"} {
		if path, err := exec.LookPath(program); err == nil {
			require.NoError(t, n.replace(path, nil))
		}
	}
	config := n.path("upstream.yaml")
	base := fmt.Sprintf(kubeletConfig, n.containerdSocket(), 10248, n.path("upstream-logs"), n.path("plugins"))
	require.NoError(t, os.WriteFile(config, []byte(base), 0o644))
	report := filepath.Join(n.spec.Logs, "upstream")
	require.NoError(t, os.Mkdir(report, 0o755))
	log, err := os.Create(filepath.Join(n.spec.Logs, "upstream.log"))
	require.NoError(t, err)
	defer log.Close()
	cmd := exec.CommandContext(n.ctx, *upstreamFlag,
		"--ginkgo.focus="+upstreamFocus, "--ginkgo.skip="+upstreamSkip, "--ginkgo.no-color",
		"--prepull-images=false", "--report-dir="+report, "--node-name="+nodeName,
		"--container-runtime-endpoint=unix://"+n.containerdSocket(), "--kubelet-config-file="+config,
		"--kubelet-flags=--hostname-override="+nodeName+" --node-ip="+nodeIP+" --cgroup-root=/ --cgroups-per-qos=false --enforce-node-allocatable= --system-cgroups=")
	cmd.Dir = report
	cmd.Stdout, cmd.Stderr = log, log
	progress("running upstream's tests: %s", upstreamFocus)
	if err := cmd.Run(); err != nil {
		t.Errorf("upstream's tests: %v; the end of %s:\n%s", err, log.Name(), tail(log.Name()))
		return
	}
	text, err := os.ReadFile(log.Name())
	require.NoError(t, err)
	ran := regexp.MustCompile(`(?m)Ran (\d+) of \d+ Specs`).FindSubmatch(text)
	require.NotNil(t, ran, "%s does not say how many tests ran", log.Name())
	require.NotEqual(t, "0", string(ran[1]), "tests that ran")
	progress("pass  %s of upstream's tests", ran[1])
}
