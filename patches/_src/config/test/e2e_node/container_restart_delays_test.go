//go:build linux

/*
Copyright The Kubernetes Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package e2enode

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/featuregate"
	admissionapi "k8s.io/pod-security-admission/api"

	"k8s.io/kubernetes/pkg/features"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/test/e2e/framework"
	e2epod "k8s.io/kubernetes/test/e2e/framework/pod"
	imageutils "k8s.io/kubernetes/test/utils/image"
)

// restartLateness is how long after the end of its back-off a container may start.
// It covers the start of the container on a busy node. A kubelet that finds the end
// of a back-off only in its next periodic sync is up to ten seconds late.
const restartLateness = 5 * time.Second

var _ = SIGDescribe("Container Restart Delays", func() {
	f := framework.NewDefaultFramework("container-restart-delays")
	f.NamespacePodSecurityLevel = admissionapi.LevelBaseline

	for _, tc := range []struct {
		node   string
		period time.Duration
		gates  map[featuregate.Feature]bool
		// delays are those before the first restarts. A later restart waits for the
		// last of them.
		delays []time.Duration
	}{
		{
			node:   "with maxContainerRestartPeriod below the initial delay",
			period: 3 * time.Second,
			gates:  map[featuregate.Feature]bool{features.KubeletCrashLoopBackOffMax: true, features.ReduceDefaultCrashLoopBackOffDecay: false},
			delays: []time.Duration{0, 3 * time.Second, 3 * time.Second, 3 * time.Second, 3 * time.Second},
		},
		{
			node:   "with maxContainerRestartPeriod above the initial delay",
			period: 12 * time.Second,
			gates:  map[featuregate.Feature]bool{features.KubeletCrashLoopBackOffMax: true, features.ReduceDefaultCrashLoopBackOffDecay: false},
			delays: []time.Duration{0, 10 * time.Second, 12 * time.Second, 12 * time.Second},
		},
		{
			node:   "with maxContainerRestartPeriod and the reduced delays",
			period: 3 * time.Second,
			gates:  map[featuregate.Feature]bool{features.KubeletCrashLoopBackOffMax: true, features.ReduceDefaultCrashLoopBackOffDecay: true},
			delays: []time.Duration{0, 1 * time.Second, 2 * time.Second, 3 * time.Second, 3 * time.Second},
		},
		{
			// The kubelet starts and does not apply the field, so that the gate can be
			// turned off without changing the configuration.
			node:   "with maxContainerRestartPeriod and its feature gate off",
			period: 3 * time.Second,
			gates:  map[featuregate.Feature]bool{features.KubeletCrashLoopBackOffMax: false, features.ReduceDefaultCrashLoopBackOffDecay: false},
			delays: []time.Duration{0, 10 * time.Second, 20 * time.Second},
		},
	} {
		f.Context(tc.node, f.WithSerial(), f.WithFeatureGate(features.KubeletCrashLoopBackOffMax), func() {
			tempSetCurrentKubeletConfig(f, func(_ context.Context, config *kubeletconfig.KubeletConfiguration) {
				config.CrashLoopBackOff.MaxContainerRestartPeriod = &metav1.Duration{Duration: tc.period}
				if config.FeatureGates == nil {
					config.FeatureGates = map[string]bool{}
				}
				for gate, on := range tc.gates {
					config.FeatureGates[string(gate)] = on
				}
			})

			ginkgo.It(fmt.Sprintf("should restart a failing container after %v", tc.delays), func(ctx context.Context) {
				expectRestartDelays(ctx, f, tc.delays)
			})
		})
	}

	// It changes nothing of the node, so it can run on any.
	f.It("should restart a failing container after the delays of the node's configuration", f.WithNodeConformance(), func(ctx context.Context) {
		config, err := getCurrentKubeletConfig(ctx)
		framework.ExpectNoError(err)
		expectRestartDelays(ctx, f, configuredRestartDelays(config))
	})
})

// configuredRestartDelays returns the delays before the first three restarts.
func configuredRestartDelays(config *kubeletconfig.KubeletConfiguration) []time.Duration {
	initial, longest := 10*time.Second, 300*time.Second
	if config.FeatureGates[string(features.ReduceDefaultCrashLoopBackOffDecay)] {
		initial, longest = time.Second, 60*time.Second
	}
	// A kubelet does not start with the field set and its gate off, unless the gate is off explicitly.
	on, set := config.FeatureGates[string(features.KubeletCrashLoopBackOffMax)]
	if period := config.CrashLoopBackOff.MaxContainerRestartPeriod; period != nil && (on || !set) {
		longest = period.Duration
	}
	initial = min(initial, longest)
	return []time.Duration{0, initial, min(2*initial, longest)}
}

// expectRestartDelays creates a pod whose container fails at once each time, and expects
// these delays before its first restarts.
func expectRestartDelays(ctx context.Context, f *framework.Framework, delays []time.Duration) {
	ginkgo.GinkgoHelper()

	const container = "failing"
	// A container status has whole seconds only, so the container itself stores the times
	// of its starts. Each instance prints those of all instances: the kubelet keeps no
	// logs of earlier ones. Between the start that it stores and its exit it does
	// nothing that takes time.
	pod := e2epod.NewPodClient(f).Create(ctx, &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "restart-delays"},
		Spec: v1.PodSpec{
			Containers: []v1.Container{{
				Name:         container,
				Image:        imageutils.GetE2EImage(imageutils.BusyBox),
				Command:      []string{"sh", "-c", "cut -d ' ' -f 1 /proc/uptime >>/starts/times; cat /starts/times; exit 1"},
				VolumeMounts: []v1.VolumeMount{{Name: "starts", MountPath: "/starts"}},
			}},
			Volumes: []v1.Volume{{Name: "starts", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}},
		},
	})

	timeout := f.Timeouts.PodStart
	for _, delay := range delays {
		timeout += delay + restartLateness
	}
	var starts []time.Duration
	gomega.Eventually(ctx, func(ctx context.Context) error {
		log, err := e2epod.GetPodLogs(ctx, f.ClientSet, pod.Namespace, pod.Name, container)
		if err != nil {
			return err
		}
		if starts, err = parseUptimes(log); err != nil {
			return err
		}
		if len(starts) <= len(delays) {
			return fmt.Errorf("the container has started %d times, which is %d too few", len(starts), len(delays)+1-len(starts))
		}
		return nil
	}).WithTimeout(timeout).WithPolling(time.Second).Should(gomega.Succeed())

	framework.Logf("The container started at these uptimes of the node: %v", starts)
	for i, delay := range delays {
		took := starts[i+1] - starts[i]
		gomega.Expect(took).To(gomega.BeNumerically(">=", delay), "restart %d came before the end of the back-off; starts: %v", i+1, starts)
		gomega.Expect(took).To(gomega.BeNumerically("<=", delay+restartLateness), "restart %d came long after the end of the back-off; starts: %v", i+1, starts)
	}
}

// parseUptimes parses times of /proc/uptime, one on each line.
func parseUptimes(text string) (times []time.Duration, err error) {
	for _, word := range strings.Fields(text) {
		seconds, err := strconv.ParseFloat(word, 64)
		if err != nil {
			return nil, fmt.Errorf("not a time of /proc/uptime: %w", err)
		}
		times = append(times, time.Duration(seconds*float64(time.Second)))
	}
	return times, nil
}
