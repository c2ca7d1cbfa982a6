// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	nodeName  = "backoff-node"
	startsDir = "starts"
)

// kubeletConfig lets a kubelet run beside whatever else the machine does: no
// swap or cgroup demands, no cgroups of its own making, no eviction, no garbage
// collection of the imported images (which nothing could pull again), no chains
// in the firewall (the network may be the host's, and they would stay there),
// and the health port on loopback. All else stays at its default, because the
// defaults are what is compared.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix://%[1]s
readOnlyPort: 0
healthzBindAddress: 127.0.0.1
healthzPort: %[2]d
authorization: {mode: AlwaysAllow}
failSwapOn: false
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
makeIPTablesUtilChains: false
resolvConf: ""
evictionHard: {memory.available: "0%%", nodefs.available: "0%%", nodefs.inodesFree: "0%%", imagefs.available: "0%%"}
imageGCHighThresholdPercent: 100
podLogsDir: %[3]s
volumePluginDir: %[4]s
`

// scenarioConfig is what the scenario adds to kubeletConfig. No server listens.
func (n *node) scenarioConfig() string {
	config := "enableServer: false\nauthentication:\n  webhook: {enabled: false}\n"
	if n.spec.Scenario.Reduced {
		config += "featureGates:\n  ReduceDefaultCrashLoopBackOffDecay: true\n"
	}
	if m := n.spec.Scenario.Maximum; m > 0 {
		config += fmt.Sprintf("crashLoopBackOff:\n  maxContainerRestartPeriod: %v\n", m)
	}
	if n.spec.Scenario.Action == actionRestartPod {
		config += "featureGates:\n  " + gateRestartPod + ": true\n"
	}
	return config
}

// startKubelet brings up the kubelet of the spec, with more configuration and
// arguments, and returns once it is healthy.
func (n *node) startKubelet(config string, args ...string) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	config = fmt.Sprintf(kubeletConfig, n.containerdSocket(), port, n.path("pod-logs"), n.path("plugins")) + config
	args = append([]string{
		"--config=" + n.path("kubelet.yaml"),
		"--root-dir=" + n.path("kubelet"),
		"--cert-dir=" + n.path("kubelet-pki"),
		"--hostname-override=" + nodeName,
		"--v=2",
	}, args...)
	if err := os.WriteFile(n.path("kubelet.yaml"), []byte(config), 0o644); err != nil {
		return err
	}
	if n.kubelet, err = n.start("kubelet", n.spec.Kubelet, args...); err != nil {
		return err
	}
	return await(n.ctx, "a healthy kubelet", time.Minute, func(ctx context.Context) error {
		return get(ctx, http.DefaultClient, fmt.Sprintf("http://127.0.0.1:%d/healthz", port), "", nil)
	})
}

// pods returns the scenario's pods. The annotation is new in each run and with
// it the UID of a static pod, so that no exited container of an earlier run can
// count as a previous instance and use up the free first restart.
func (n *node) pods() []*corev1.Pod {
	no := false
	directory := corev1.HostPathDirectory
	var pods []*corev1.Pod
	for i := range n.spec.Scenario.Pods {
		name := fmt.Sprintf("crasher-%02d", i+1)
		pods = append(pods, &corev1.Pod{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{
				Name: name, Namespace: metav1.NamespaceDefault,
				Annotations: map[string]string{"kubelet-backoff/run": n.spec.ID},
			},
			Spec: corev1.PodSpec{
				// On the host's network a pod needs no network plugin, and no
				// scheduler when its node is given.
				HostNetwork:                  true,
				NodeName:                     nodeName,
				RestartPolicy:                corev1.RestartPolicyAlways,
				AutomountServiceAccountToken: &no,
				EnableServiceLinks:           &no,
				Tolerations:                  []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
				Containers: []corev1.Container{{
					Name:            "crasher",
					Image:           crasherImage,
					ImagePullPolicy: corev1.PullNever,
					Args:            []string{"/starts/" + name},
					VolumeMounts:    []corev1.VolumeMount{{Name: "starts", MountPath: "/starts"}},
				}},
				Volumes: []corev1.Volume{{
					Name: "starts",
					VolumeSource: corev1.VolumeSource{
						HostPath: &corev1.HostPathVolumeSource{Path: n.path(startsDir), Type: &directory},
					},
				}},
			},
		})
	}
	if s := n.spec.Scenario; s.Action != "" {
		withRestartRules(pods, s, n.path(journalsDir))
	}
	return pods
}

// writeManifests puts the pods where a standalone kubelet finds them.
func (n *node) writeManifests() error {
	if err := os.MkdirAll(n.path("manifests"), 0o755); err != nil {
		return err
	}
	for _, pod := range n.pods() {
		data, err := json.Marshal(pod)
		if err != nil {
			return err
		}
		if err := os.WriteFile(n.path("manifests", pod.Name+".json"), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// kubeletVersion asks the binary.
func kubeletVersion(ctx context.Context, kubelet string) (string, error) {
	out, err := output(ctx, kubelet, "--version")
	if err != nil {
		return "", err
	}
	return strings.TrimPrefix(out, "Kubernetes "), nil
}
