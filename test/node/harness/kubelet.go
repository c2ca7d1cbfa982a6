// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"net/http"
	"os"

	corev1 "k8s.io/api/core/v1"
)

// Name is the name of the node.
const Name = "backoff-node"

// The series adds this action to the API, and its gate.
const (
	ActionRestartPod = corev1.ContainerRestartRuleAction("RestartPod")
	GateRestartPod   = "RestartPodOnContainerExits"
)

// kubeletConfig lets a kubelet run beside other programs of the machine: no swap or
// cgroup requirements, no cgroups of its own, no eviction, no garbage collection of
// the imported images (nothing could pull them again), no chains in the firewall
// (they would stay if the network is the host's), and the health port on loopback.
// All other settings are the defaults, because measurements compare the defaults.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix://%[1]s
readOnlyPort: 0
healthzBindAddress: 127.0.0.1
healthzPort: %[2]d
authorization: {mode: AlwaysAllow}
failSwapOn: false
failCgroupV1: false
makeIPTablesUtilChains: false
resolvConf: ""
evictionHard: {memory.available: "0%%", nodefs.available: "0%%", nodefs.inodesFree: "0%%", imagefs.available: "0%%"}
imageGCHighThresholdPercent: 100
podLogsDir: %[3]s
volumePluginDir: %[4]s
`

// ownCgroups is for a node that shares the machine. A node that has it uses systemd's
// cgroups, as those of distributions do.
const (
	ownCgroups     = "cgroupDriver: cgroupfs\ncgroupsPerQOS: false\nenforceNodeAllocatable: []\n"
	systemdCgroups = "cgroupDriver: systemd\n"
)

// KubeletConfig returns the configuration that every kubelet of the node needs.
// health is the port of its health check, and logs the folder for the logs of pods.
func (n *Node) KubeletConfig(health int, logs string) string {
	cgroups := ownCgroups
	if n.Spec.Machine {
		cgroups = systemdCgroups
	}
	return fmt.Sprintf(kubeletConfig, n.RuntimeSocket(), health, logs, n.Path("plugins")) + cgroups
}

// StartKubelet starts the kubelet of the spec with extra configuration and
// arguments, and returns when it is healthy.
func (n *Node) StartKubelet(config string, args ...string) error {
	port, err := FreePort()
	if err != nil {
		return err
	}
	config = n.KubeletConfig(port, n.Path("pod-logs")) + config
	args = append([]string{
		"--config=" + n.Path("kubelet.yaml"),
		"--root-dir=" + n.Path("kubelet"),
		"--cert-dir=" + n.Path("kubelet-pki"),
		"--hostname-override=" + Name,
		"--v=2",
	}, args...)
	if err := os.WriteFile(n.Path("kubelet.yaml"), []byte(config), 0o644); err != nil {
		return err
	}
	if n.Kubelet, err = n.Start("kubelet", n.Spec.Kubelet, args...); err != nil {
		return err
	}
	return Await(n.ctx, "a healthy kubelet", startLimit, func(ctx context.Context) error {
		return request(ctx, http.DefaultClient, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/healthz", port), "", nil, nil)
	})
}
