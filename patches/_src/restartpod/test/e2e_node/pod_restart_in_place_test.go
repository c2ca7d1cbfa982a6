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
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	admissionapi "k8s.io/pod-security-admission/api"
	"k8s.io/utils/ptr"

	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/test/e2e/framework"
	e2epod "k8s.io/kubernetes/test/e2e/framework/pod"
	e2eskipper "k8s.io/kubernetes/test/e2e/framework/skipper"
	imageutils "k8s.io/kubernetes/test/utils/image"
)

const (
	// podRestartExit is the exit code that restarts the pods of these specs.
	podRestartExit = 88
	// podRestartLateness is how much longer than expected a restart of a pod may take
	// on a busy node.
	podRestartLateness = 10 * time.Second
	// podRestartFunctions are what the containers' scripts use. All containers of a pod
	// write to one file, so that it shows the order of what happens in the pod. Each
	// event has the IPC namespace, which the pod's containers share: a new sandbox
	// would have another one.
	podRestartFunctions = `
record() { echo "$(cut -d ' ' -f 1 /proc/uptime) $CONTAINER $1 $(readlink /proc/self/ns/ipc)" >>/history/events; }
recorded() { grep -c " $1 $2 " /history/events; }
run() { while :; do sleep 1; done; }
show() { tail -n +1 -f /history/events & wait; }
`
	// podRestartTrigger exits the first %d times that it runs, as soon as the other
	// containers that run have started.
	podRestartTrigger = `
trap exit TERM
record start
starts=$(recorded "$CONTAINER" start)
[ "$starts" -le %d ] || run
until [ "$(recorded "$NEEDS" start)" -ge "$starts" ]; do sleep 1; done
record exit
exit %d
`
)

var _ = SIGDescribe("Pod Restart In Place", framework.WithFeatureGate(features.ContainerRestartRules), framework.WithFeatureGate(features.RestartPodOnContainerExits), func() {
	f := framework.NewDefaultFramework("pod-restart-in-place")
	f.NamespacePodSecurityLevel = admissionapi.LevelBaseline

	ginkgo.BeforeEach(func() {
		e2eskipper.SkipUnlessFeatureGateEnabled(features.ContainerRestartRules)
		e2eskipper.SkipUnlessFeatureGateEnabled(features.RestartPodOnContainerExits)
		if !utilfeature.DefaultFeatureGate.Enabled(features.RestartPodOnContainerExits) {
			e2eskipper.Skipf("Only supported when the API server has %s enabled, see --service-feature-gates", features.RestartPodOnContainerExits)
		}
	})

	ginkgo.It("should stop all containers and start them again in the same pod", func(ctx context.Context) {
		pod := podRestartPod(30,
			[]v1.Container{
				podRestartContainer("init", "record start"),
				podRestartSidecar(podRestartContainer("sidecar", "trap 'record term; exit' TERM; record start; run")),
			},
			podRestartTriggering(podRestartContainer("trigger", fmt.Sprintf(podRestartTrigger, 1, podRestartExit)), "worker"),
			// It needs some seconds of the grace period.
			podRestartContainer("worker", "trap 'record term; sleep 3; record stopped; exit' TERM; record start; show"),
		)
		pod = e2epod.NewPodClient(f).Create(ctx, pod)

		ginkgo.By("waiting for the restart to begin")
		restarting := waitForPodRestart(ctx, f, pod, "PodRestarting is True", func(pod *v1.Pod) error {
			if c := podRestartCondition(pod); c.Status != v1.ConditionTrue {
				return fmt.Errorf("PodRestarting is %q", c.Status)
			}
			return nil
		})

		ginkgo.By("waiting for all containers to run again")
		restarted := waitForPodRestart(ctx, f, pod, "all containers have restarted once", func(pod *v1.Pod) error {
			return podRestartedTimes(pod, 1)
		})
		gomega.Expect(restarted.UID).To(gomega.Equal(pod.UID))
		gomega.Expect(restarted.Status.Phase).To(gomega.Equal(v1.PodRunning))
		gomega.Expect(restarted.Status.PodIP).To(gomega.Equal(restarting.Status.PodIP), "IP of the pod")

		history := waitForPodHistory(ctx, f, pod, "worker", "worker start", 2)
		history.expectOrder("trigger exit", "worker term", "worker stopped", "sidecar term")
		history.expectSameSandbox()
		// The pod starts as it did at first.
		gomega.Expect(history.times("init start")).To(gomega.HaveLen(2))
		again := history.after("sidecar term")
		again.expectOrder("init start", "sidecar start", "trigger start")
		again.expectOrder("init start", "sidecar start", "worker start")
	})

	ginkgo.It("should kill containers that do not stop within the grace period", func(ctx context.Context) {
		const grace = 4
		pod := e2epod.NewPodClient(f).Create(ctx, podRestartPod(grace, nil,
			podRestartTriggering(podRestartContainer("trigger", fmt.Sprintf(podRestartTrigger, 1, podRestartExit)), "stubborn"),
			podRestartContainer("stubborn", "trap 'record term; run' TERM; record start; show"),
		))
		waitForPodRestart(ctx, f, pod, "all containers have restarted once", func(pod *v1.Pod) error {
			return podRestartedTimes(pod, 1)
		})
		history := waitForPodHistory(ctx, f, pod, "stubborn", "stubborn start", 2)
		history.expectOrder("trigger exit", "stubborn term")
		term, again := history.times("stubborn term")[0], history.times("stubborn start")[1]
		// The term is recorded a moment after the grace period began.
		gomega.Expect(again-term).To(gomega.BeNumerically(">=", grace*time.Second-500*time.Millisecond), "time from the signal to the next start")
		gomega.Expect(again-term).To(gomega.BeNumerically("<=", grace*time.Second+podRestartLateness), "time from the signal to the next start")
	})

	ginkgo.It("should wait for the back-off before a second restart", func(ctx context.Context) {
		config, err := getCurrentKubeletConfig(ctx)
		framework.ExpectNoError(err)
		if config.CrashLoopBackOff.MaxContainerRestartPeriod != nil || config.FeatureGates[string(features.ReduceDefaultCrashLoopBackOffDecay)] {
			e2eskipper.Skipf("Only supported with the default back-off of container restarts")
		}
		const backOff = 10 * time.Second

		pod := e2epod.NewPodClient(f).Create(ctx, podRestartPod(30, nil,
			podRestartTriggering(podRestartContainer("trigger", fmt.Sprintf(podRestartTrigger, 2, podRestartExit)), "worker"),
			podRestartContainer("worker", "trap exit TERM; record start; show"),
		))

		ginkgo.By("waiting for the back-off to begin")
		waitForPodRestart(ctx, f, pod, "all containers wait", func(pod *v1.Pod) error {
			if c := podRestartCondition(pod); c.Status != v1.ConditionTrue {
				return fmt.Errorf("PodRestarting is %q", c.Status)
			}
			for _, s := range pod.Status.ContainerStatuses {
				if s.State.Waiting == nil || s.State.Waiting.Reason != "CrashLoopBackOff" {
					return fmt.Errorf("container %s is in the state %v", s.Name, s.State)
				}
			}
			return nil
		})

		ginkgo.By("waiting for all containers to run again")
		waitForPodRestart(ctx, f, pod, "all containers have restarted twice", func(pod *v1.Pod) error {
			return podRestartedTimes(pod, 2)
		})
		history := waitForPodHistory(ctx, f, pod, "worker", "worker start", 3)
		history.expectSameSandbox()
		exits := history.times("trigger exit")
		gomega.Expect(exits).To(gomega.HaveLen(2))
		for _, container := range []string{"trigger", "worker"} {
			starts := history.times(container + " start")
			gomega.Expect(starts).To(gomega.HaveLen(3), container)
			gomega.Expect(starts[1]-exits[0]).To(gomega.BeNumerically("<", backOff), "the first restart of %s does not wait", container)
			gomega.Expect(starts[2]-exits[1]).To(gomega.BeNumerically(">=", backOff), "the second restart of %s waits", container)
			gomega.Expect(starts[2]-exits[1]).To(gomega.BeNumerically("<=", backOff+podRestartLateness), "the second restart of %s waits", container)
		}
	})

	ginkgo.It("should start again from the first init container if an init container exits", func(ctx context.Context) {
		pod := e2epod.NewPodClient(f).Create(ctx, podRestartPod(30,
			[]v1.Container{
				podRestartContainer("first", "record start"),
				podRestartTriggering(podRestartContainer("second", fmt.Sprintf("record start; [ $(recorded second start) -gt 1 ] || exit %d", podRestartExit)), ""),
			},
			podRestartContainer("worker", "trap exit TERM; record start; show"),
		))
		waitForPodRestart(ctx, f, pod, "the pod runs", func(pod *v1.Pod) error {
			if pod.Status.Phase != v1.PodRunning {
				return fmt.Errorf("phase %q", pod.Status.Phase)
			}
			for _, s := range pod.Status.InitContainerStatuses {
				if s.RestartCount != 1 {
					return fmt.Errorf("container %s has restarted %d times", s.Name, s.RestartCount)
				}
			}
			return nil
		})
		history := waitForPodHistory(ctx, f, pod, "worker", "worker start", 1)
		gomega.Expect(history.names()).To(gomega.Equal([]string{"first start", "second start", "first start", "second start", "worker start"}))
		history.expectSameSandbox()
	})
})

// podRestartPod returns a pod whose own restart policy restarts nothing.
func podRestartPod(grace int64, initContainers []v1.Container, containers ...v1.Container) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "restarts"},
		Spec: v1.PodSpec{
			RestartPolicy:                 v1.RestartPolicyNever,
			TerminationGracePeriodSeconds: &grace,
			InitContainers:                initContainers,
			Containers:                    containers,
			Volumes:                       []v1.Volume{{Name: "history", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}},
		},
	}
}

func podRestartContainer(name, script string) v1.Container {
	return v1.Container{
		Name:         name,
		Image:        imageutils.GetE2EImage(imageutils.BusyBox),
		Command:      []string{"sh", "-c", podRestartFunctions + script},
		Env:          []v1.EnvVar{{Name: "CONTAINER", Value: name}},
		VolumeMounts: []v1.VolumeMount{{Name: "history", MountPath: "/history"}},
	}
}

// podRestartTriggering adds the rule that restarts the pod. needs is the container that
// must run before podRestartTrigger exits.
func podRestartTriggering(c v1.Container, needs string) v1.Container {
	c.Env = append(c.Env, v1.EnvVar{Name: "NEEDS", Value: needs})
	c.RestartPolicy = ptr.To(v1.ContainerRestartPolicyNever)
	c.RestartPolicyRules = []v1.ContainerRestartRule{{
		Action: v1.ContainerRestartRuleActionRestartPod,
		ExitCodes: &v1.ContainerRestartRuleOnExitCodes{
			Operator: v1.ContainerRestartRuleOnExitCodesOpIn,
			Values:   []int32{podRestartExit},
		},
	}}
	return c
}

func podRestartSidecar(c v1.Container) v1.Container {
	c.RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
	return c
}

// podRestartCondition returns the condition PodRestarting, which is empty if the pod
// has none.
func podRestartCondition(pod *v1.Pod) v1.PodCondition {
	if _, c := podutil.GetPodCondition(&pod.Status, v1.PodRestarting); c != nil {
		return *c
	}
	return v1.PodCondition{}
}

// podRestartedTimes returns an error until the last of so many restarts is over and each
// container has restarted as often.
func podRestartedTimes(pod *v1.Pod, times int32) error {
	if c := podRestartCondition(pod); c.Status != v1.ConditionFalse {
		return fmt.Errorf("PodRestarting is %q", c.Status)
	}
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if s.RestartCount != times {
			return fmt.Errorf("container %s has restarted %d times", s.Name, s.RestartCount)
		}
		if s.State.Running == nil && s.Name != "init" {
			return fmt.Errorf("container %s is in the state %v", s.Name, s.State)
		}
	}
	return nil
}

// waitForPodRestart polls often, because a restart may take less than a second.
func waitForPodRestart(ctx context.Context, f *framework.Framework, pod *v1.Pod, what string, check func(*v1.Pod) error) (got *v1.Pod) {
	ginkgo.GinkgoHelper()
	gomega.Eventually(ctx, func(ctx context.Context) (err error) {
		if got, err = f.ClientSet.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{}); err != nil {
			return err
		}
		return check(got)
	}).WithTimeout(f.Timeouts.PodStart).WithPolling(200*time.Millisecond).Should(gomega.Succeed(), what)
	return got
}

// podEvent is what a container recorded.
type podEvent struct {
	at time.Duration
	// name has the container, a space, and what happened.
	name, namespace string
}

func (e podEvent) String() string { return fmt.Sprintf("%s at %v", e.name, e.at) }

type podHistory []podEvent

// waitForPodHistory reads the history from the logs of a container that shows it, until
// it has so many events of a name.
func waitForPodHistory(ctx context.Context, f *framework.Framework, pod *v1.Pod, container, name string, count int) (history podHistory) {
	ginkgo.GinkgoHelper()
	gomega.Eventually(ctx, func(ctx context.Context) error {
		log, err := e2epod.GetPodLogs(ctx, f.ClientSet, pod.Namespace, pod.Name, container)
		if err != nil {
			return err
		}
		history = nil
		for _, line := range strings.Split(strings.TrimSpace(log), "\n") {
			words := strings.Fields(line)
			if len(words) != 4 {
				return fmt.Errorf("not an event: %q", line)
			}
			seconds, err := strconv.ParseFloat(words[0], 64)
			if err != nil {
				return fmt.Errorf("not an event: %q: %w", line, err)
			}
			history = append(history, podEvent{at: time.Duration(seconds * float64(time.Second)), name: words[1] + " " + words[2], namespace: words[3]})
		}
		if n := len(history.times(name)); n < count {
			return fmt.Errorf("%d events %q, want %d: %v", n, name, count, history.names())
		}
		return nil
	}).WithTimeout(f.Timeouts.PodStart).WithPolling(time.Second).Should(gomega.Succeed())
	framework.Logf("What happened in the pod: %v", history)
	return history
}

// times returns when the events of a name happened.
func (h podHistory) times(name string) (times []time.Duration) {
	for _, e := range h {
		if e.name == name {
			times = append(times, e.at)
		}
	}
	return times
}

func (h podHistory) names() (names []string) {
	for _, e := range h {
		names = append(names, e.name)
	}
	return names
}

// after returns what followed the first event of a name.
func (h podHistory) after(name string) podHistory {
	return h[slices.Index(h.names(), name)+1:]
}

// expectOrder expects that the first events of these names follow each other. Other
// events may be between them.
func (h podHistory) expectOrder(names ...string) {
	ginkgo.GinkgoHelper()
	rest := h
	for _, name := range names {
		gomega.Expect(rest.names()).To(gomega.ContainElement(name), "in the order %v of %v", names, h.names())
		rest = rest.after(name)
	}
}

func (h podHistory) expectSameSandbox() {
	ginkgo.GinkgoHelper()
	for _, e := range h {
		gomega.Expect(e.namespace).To(gomega.Equal(h[0].namespace), "IPC namespace of %s", e.name)
	}
}
