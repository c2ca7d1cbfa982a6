// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
)

// startsDir is the folder to which crashers write their start times.
const startsDir = "starts"

// podsPath is the path of all pods in the API.
const podsPath = "/api/v1/namespaces/" + metav1.NamespaceDefault + "/pods"

// scenarioConfig returns the configuration that the scenario adds to the one of every
// kubelet of a node. It disables the kubelet's server.
func (m *measurement) scenarioConfig() string {
	config := "enableServer: false\nauthentication:\n  webhook: {enabled: false}\n"
	var gates []string
	if m.scenario.Reduced {
		gates = append(gates, harness.GateReduced)
	}
	if maximum := m.scenario.Maximum; maximum > 0 {
		config += fmt.Sprintf("crashLoopBackOff:\n  maxContainerRestartPeriod: %v\n", maximum)
		gates = append(gates, harness.GateMaximum)
	}
	if m.scenario.Action == harness.ActionRestartPod {
		gates = append(gates, harness.GateRestartPod)
	}
	if gates != nil {
		config += "featureGates: {" + strings.Join(gates, ": true, ") + ": true}\n"
	}
	return config
}

// pods returns the scenario's pods. The annotation differs in each run, and so does
// the UID of a static pod. So no exited container of an earlier run can count as a
// previous instance and use up the first restart, which has no delay.
func (m *measurement) pods() []*corev1.Pod {
	no := false
	directory := corev1.HostPathDirectory
	var pods []*corev1.Pod
	for i := range m.scenario.Pods {
		name := fmt.Sprintf("crasher-%02d", i+1)
		pods = append(pods, &corev1.Pod{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{
				Name: name, Namespace: metav1.NamespaceDefault,
				Annotations: map[string]string{"kubelet-backoff/run": m.Spec.ID},
			},
			Spec: corev1.PodSpec{
				// A pod on the host's network needs no network plugin, and a pod with a
				// node name needs no scheduler.
				HostNetwork:                  !m.scenario.Network,
				NodeName:                     harness.Name,
				RestartPolicy:                corev1.RestartPolicyAlways,
				AutomountServiceAccountToken: &no,
				EnableServiceLinks:           &no,
				Tolerations:                  []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
				Containers: []corev1.Container{{
					Name:            "crasher",
					Image:           harness.CrasherImage,
					ImagePullPolicy: corev1.PullNever,
					Args:            []string{"/starts/" + name},
					VolumeMounts:    []corev1.VolumeMount{{Name: "starts", MountPath: "/starts"}},
				}},
				Volumes: []corev1.Volume{{
					Name: "starts",
					VolumeSource: corev1.VolumeSource{
						HostPath: &corev1.HostPathVolumeSource{Path: m.Path(startsDir), Type: &directory},
					},
				}},
			},
		})
	}
	if s := m.scenario; s.Action != "" {
		withRestartRules(pods, s, m.Path(journalsDir))
	}
	return pods
}

// actor returns a container that follows the lives, as in images/actor. One of the mounts must be
// /pod, for its journal.
func actor(name string, mounts []corev1.VolumeMount, lives ...string) corev1.Container {
	return corev1.Container{
		Name: name, Image: harness.ActorImage, ImagePullPolicy: corev1.PullNever, Args: lives,
		Env:          []corev1.EnvVar{{Name: "CONTAINER", Value: name}},
		VolumeMounts: mounts,
	}
}

// writeManifests writes the pods to the folder of a standalone kubelet's static pods.
func (m *measurement) writeManifests() error {
	if err := os.MkdirAll(m.Path("manifests"), 0o755); err != nil {
		return err
	}
	for _, pod := range m.pods() {
		data, err := json.Marshal(pod)
		if err != nil {
			return err
		}
		if err := os.WriteFile(m.Path("manifests", pod.Name+".json"), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// createPods creates the scenario's pods.
func (m *measurement) createPods(api *harness.APIServer) error {
	for _, pod := range m.pods() {
		if err := api.Create(m.Context(), podsPath, pod); err != nil {
			return err
		}
	}
	return nil
}
