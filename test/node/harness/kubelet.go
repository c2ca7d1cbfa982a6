// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"

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
// (they would stay if the network is the host's), and the health port on loopback. Without
// the address of a cluster's DNS server, each sync would record an event, and the limit of a
// pod's events would drop others. No pod asks that server.
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
clusterDNS: [10.0.0.10]
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
// runtime is the socket of its container runtime, health the port of its health check, and
// logs the folder for the logs of pods.
func (n *Node) KubeletConfig(runtime string, health int, logs string) string {
	cgroups := ownCgroups
	if n.Spec.Machine {
		cgroups = systemdCgroups
	}
	return fmt.Sprintf(kubeletConfig, runtime, health, logs, n.Path("plugins")) + cgroups
}

// StartKubelet starts the kubelet of the spec with extra configuration and
// arguments, and returns when it is healthy.
func (n *Node) StartKubelet(config string, args ...string) (err error) {
	n.Kubelet, err = n.RunKubelet(KubeletSpec{
		Name: Name, Log: "kubelet", Program: n.Spec.Kubelet, Dir: n.Path(), Runtime: n.RuntimeSocket(), Config: config, Args: args,
	})
	return err
}

// MaxKubelets is how many kubelets a node can have instead of one named Name.
const MaxKubelets = 99

// KubeletName returns the name of the i-th of several kubelets, counted from 0.
func KubeletName(i int) string { return fmt.Sprintf("node-%d", i+1) }

// KubeletDir makes the folder of the i-th of several kubelets, counted from 0. Its name is
// short because it has sockets.
func (n *Node) KubeletDir(i int) (string, error) {
	dir := n.Path(strconv.Itoa(i + 1))
	return dir, os.Mkdir(dir, 0o755)
}

// KubeletSpec is the input of RunKubelet.
type KubeletSpec struct {
	// Name is the name of the node object, and Log that of the kubelet's log.
	Name, Log string
	Program   string
	// Dir is the folder for all state, and Runtime the socket of the container runtime.
	Dir, Runtime string
	// Config is extra configuration, and Args are extra arguments.
	Config string
	Args   []string
}

// RunKubelet starts a kubelet, and returns when it is healthy.
func (n *Node) RunKubelet(s KubeletSpec) (*Process, error) {
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	path := func(name string) string { return filepath.Join(s.Dir, name) }
	config := n.KubeletConfig(s.Runtime, port, path("pod-logs")) + s.Config
	args := append([]string{
		"--config=" + path("kubelet.yaml"),
		"--root-dir=" + path("kubelet"),
		"--cert-dir=" + path("kubelet-pki"),
		"--hostname-override=" + s.Name,
		"--v=2",
	}, s.Args...)
	if n.Spec.Machine {
		// For GC an instance that has not started yet is the newest dead one, so it removes
		// the one before it, with its log. A start takes so long there that this happens.
		args = append(args, "--minimum-container-ttl-duration=1m")
	}
	if err := os.WriteFile(path("kubelet.yaml"), []byte(config), 0o644); err != nil {
		return nil, err
	}
	kubelet, err := n.Start(s.Log, s.Program, args...)
	if err != nil {
		return nil, err
	}
	return kubelet, Await(n.ctx, "a healthy kubelet", startLimit, func(ctx context.Context) error {
		return request(ctx, http.DefaultClient, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/healthz", port), "", nil, nil)
	})
}
