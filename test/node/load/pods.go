// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
)

const (
	// image can be any name, because the runtime has every image.
	image = "localhost/kubelet-backoff/memory:test"
	// mainContainer is the name of the container that crashes. If there are more, theirs begin with it.
	mainContainer = "main"
	// dependency is the dependency of the containers in the mix dependency.
	dependency = "database"
	// triggerExit is the exit code that restarts a whole pod.
	triggerExit = 42
)

func container(name string, lives ...string) corev1.Container {
	return corev1.Container{Name: name, Image: image, ImagePullPolicy: corev1.PullIfNotPresent, Args: lives}
}

// newPod returns a pod that is assigned to the first node, because there is no scheduler.
func newPod(name string, policy corev1.RestartPolicy, containers ...corev1.Container) *corev1.Pod {
	no, second := false, int64(1)
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault},
		Spec: corev1.PodSpec{
			NodeName:                      harness.KubeletName(0),
			RestartPolicy:                 policy,
			TerminationGracePeriodSeconds: &second,
			AutomountServiceAccountToken:  &no,
			EnableServiceLinks:            &no,
			Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers:                    containers,
		},
	}
}

// pods returns the scenario's pods.
func (s Scenario) pods() (pods []*corev1.Pod) {
	fails := fmt.Sprintf("sleep=%v exit=1", s.Life)
	succeeds := fmt.Sprintf("sleep=%v exit=0", s.Life)
	always := corev1.ContainerRestartPolicyAlways
	for i := range s.Pods {
		name := fmt.Sprintf("%s-%03d", s.Mix, i+1)
		pod := newPod(name, corev1.RestartPolicyAlways, container(mainContainer, fails))
		pod.Spec.NodeName = harness.KubeletName(i % s.nodes())
		switch s.Mix {
		case half:
			if i%2 == 0 {
				pod.Spec.Containers[0].Args = []string{succeeds}
			} else {
				pod.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
			}
		case tenth:
			if i >= s.crashing() {
				pod.Spec.Containers[0].Args = nil
			}
		case sidecars:
			sidecar := container("sidecar")
			sidecar.RestartPolicy = &always
			pod.Spec.InitContainers = []corev1.Container{sidecar}
		case dense:
			for n := 2; n <= inPod; n++ {
				pod.Spec.Containers = append(pod.Spec.Containers, container(fmt.Sprintf("%s-%d", mainContainer, n), fails))
			}
		case restartPod:
			never := corev1.ContainerRestartPolicyNever
			sidecar := container("sidecar")
			sidecar.RestartPolicy = &always
			pod.Spec.RestartPolicy = corev1.RestartPolicyNever
			pod.Spec.InitContainers = []corev1.Container{container("init", "exit=0"), sidecar}
			main := &pod.Spec.Containers[0]
			main.Args = []string{fmt.Sprintf("sleep=%v exit=%d", s.Life, triggerExit)}
			main.RestartPolicy = &never
			main.RestartPolicyRules = []corev1.ContainerRestartRule{{
				Action: s.Action,
				ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{
					Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{triggerExit},
				},
			}}
		case onDependent:
			pod.Spec.Containers[0].Args = []string{"needs=" + dependency + " " + fails}
		}
		pods = append(pods, pod)
	}
	return pods
}

// healthy returns a pod that does not crash.
func healthy(n int) *corev1.Pod {
	return newPod(fmt.Sprintf("healthy-%03d", n), corev1.RestartPolicyAlways, container(mainContainer))
}
