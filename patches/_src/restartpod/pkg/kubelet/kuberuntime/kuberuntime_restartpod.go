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

package kuberuntime

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utilwait "k8s.io/apimachinery/pkg/util/wait"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/util/flowcontrol"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	crierror "k8s.io/cri-api/pkg/errors"
	"k8s.io/klog/v2"

	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/features"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/events"
	"k8s.io/kubernetes/pkg/kubelet/restart"
	"k8s.io/kubernetes/pkg/kubelet/restartpod"
)

// ContainerStopper is the part of the container runtime that a restart of a pod
// needs.
type ContainerStopper interface {
	// StopContainer stops a container of a pod that stays. The container has
	// gracePeriod seconds for its preStop hook and to end. With 0 it is killed at
	// once.
	StopContainer(ctx context.Context, pod *v1.Pod, id kubecontainer.ContainerID, name, message string, gracePeriod int64) error
	// LastStopped returns the ID of the instance of a container that this kubelet or an
	// earlier one stopped last, or began to stop, and when. The ID is empty if there is
	// none, or if no rule of the pod restarts the pod.
	LastStopped(uid types.UID, name string) (id string, when restartpod.StopTime)
}

// stoppedDir is the directory below that of a pod with a file for each container that
// the kubelet stopped. The annotations with the back-off cannot hold this, because an
// instance keeps those that it was created with.
const stoppedDir = "stopped-by-kubelet"

// exitPause returns for how long a stop waits for the container to end by itself.
func exitPause(reason containerKillReason) time.Duration {
	switch reason {
	case reasonStartupProbe, reasonLivenessProbe, reasonFailedPostStartHook:
		return restartpod.ExitPause
	default:
		return 0
	}
}

// awaitExit waits until the container has ended, or until pause is over.
func (m *kubeGenericRuntimeManager) awaitExit(ctx context.Context, id kubecontainer.ContainerID, pause time.Duration) {
	if pause == 0 {
		return
	}
	_ = utilwait.PollUntilContextTimeout(ctx, 50*time.Millisecond, pause, true, func(ctx context.Context) (bool, error) {
		resp, err := m.runtimeService.ContainerStatus(ctx, id.ID, false)
		return err != nil || resp.GetStatus().GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING, nil
	})
}

// noteStopped stores that the kubelet is about to stop an instance of a container
// within gracePeriod seconds, for the syncs after the stop and for a kubelet that starts later.
func (m *kubeGenericRuntimeManager) noteStopped(ctx context.Context, pod *v1.Pod, id kubecontainer.ContainerID, name string, gracePeriod int64, reason containerKillReason) {
	// The gates do not matter, so that the next kubelet may have others.
	if !hasPodRule(&pod.Spec, true) {
		return
	}
	m.awaitExit(ctx, id, exitPause(reason))
	dir := filepath.Join(m.runtimeHelper.GetPodDir(pod.UID), stoppedDir)
	last, when := m.LastStopped(pod.UID, name)
	if last != id.String() {
		when = restartpod.StopTime{}
	}
	// The API accepts numbers of seconds that are no Duration.
	when = restartpod.NewStopTime(when, time.Now(), time.Duration(min(gracePeriod, math.MaxInt32))*time.Second)
	// The pod's directory exists, except if the pod is gone.
	err := os.Mkdir(dir, 0750)
	if err == nil || os.IsExist(err) {
		// What is left of a write that does not complete is no StopTime, which is right:
		// nothing has been stopped yet.
		text := id.String() + " " + when.From.UTC().Format(time.RFC3339Nano) + " " + when.Until.UTC().Format(time.RFC3339)
		err = os.WriteFile(filepath.Join(dir, name), []byte(text), 0640)
	}
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Unable to store that the kubelet stops the container", "pod", klog.KObj(pod), "podUID", pod.UID, "containerName", name, "err", err)
	}
}

// stopUnlessExited stops an instance of a container. If noteStopped applies to the pod, it
// leaves an instance that has exited alone: CRI-O would change FinishedAt to the time of the
// stop, and an exit from before it would count as one that the kubelet caused.
func (m *kubeGenericRuntimeManager) stopUnlessExited(ctx context.Context, pod *v1.Pod, id kubecontainer.ContainerID, gracePeriod int64) error {
	if hasPodRule(&pod.Spec, true) {
		resp, err := m.runtimeService.ContainerStatus(ctx, id.ID, false)
		if err == nil && resp.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
			return nil
		}
	}
	return m.runtimeService.StopContainer(ctx, id.ID, gracePeriod)
}

// doPodBackOff is doRestartBackOff for a pod that may wait as a whole for its back-off.
func (m *kubeGenericRuntimeManager) doPodBackOff(ctx context.Context, pod *v1.Pod, container *v1.Container, podStatus *kubecontainer.PodStatus, backOff *flowcontrol.Backoff, changes podActions) (bool, string, error) {
	if err := podStatus.Restart.Wait(pod, container); err != nil {
		return true, podStatus.Restart.Message, err
	}
	return m.doRestartBackOff(ctx, pod, container, podStatus, backOff, changes)
}

// mayRestartPod reports whether a rule may restart the pod in its sandbox. Upstream's code
// restarts all containers also in a new one.
func mayRestartPod(spec *v1.PodSpec) bool {
	return hasPodRule(spec, utilfeature.DefaultFeatureGate.Enabled(features.KubeletRestartAllContainersBackOff))
}

// hasPodRule reports whether a rule restarts the pod or, if all is true, all containers. In
// the pod that SyncPod gets, the rules of a container that the kubelet stopped before have no
// action, because they do not apply to that exit.
func hasPodRule(spec *v1.PodSpec, all bool) bool {
	for c := range podutil.ContainerIter(spec, podutil.InitContainers|podutil.Containers) {
		for _, rule := range c.RestartPolicyRules {
			if a := rule.Action; a != v1.ContainerRestartRuleActionRestart && (all || a != v1.ContainerRestartRuleActionRestartAllContainers) {
				return true
			}
		}
	}
	return false
}

// LastStopped implements ContainerStopper.
func (m *kubeGenericRuntimeManager) LastStopped(uid types.UID, name string) (id string, when restartpod.StopTime) {
	text, err := os.ReadFile(filepath.Join(m.runtimeHelper.GetPodDir(uid), stoppedDir, name))
	if err != nil {
		return "", restartpod.StopTime{}
	}
	f := strings.Fields(string(text))
	if len(f) != 3 {
		return "", restartpod.StopTime{}
	}
	if when.From, err = time.Parse(time.RFC3339Nano, f[1]); err == nil {
		when.Until, err = time.Parse(time.RFC3339, f[2])
	}
	if err != nil {
		return "", restartpod.StopTime{}
	}
	return f[0], when
}

// StopContainer implements ContainerStopper. With a gracePeriod of 0, killContainer
// would give the container two seconds.
func (m *kubeGenericRuntimeManager) StopContainer(ctx context.Context, pod *v1.Pod, id kubecontainer.ContainerID, name, message string, gracePeriod int64) error {
	if gracePeriod > 0 {
		return m.killContainer(ctx, pod, id, name, message, reasonUnknown, &gracePeriod, nil)
	}
	if spec := kubecontainer.GetContainerSpec(pod, name); spec != nil {
		m.recordContainerEvent(ctx, pod, spec, id.ID, v1.EventTypeNormal, events.KillingContainer, "%v", message)
	}
	if err := m.stopUnlessExited(ctx, pod, id, 0); err != nil && !crierror.IsNotFound(err) {
		return err
	}
	klog.FromContext(ctx).V(3).Info("Container killed", "pod", klog.KObj(pod), "podUID", pod.UID, "containerName", name, "containerID", id.String())
	return nil
}

// countInRestart returns the restart count with which a container starts. count is
// the restart count according to the statuses. The previous instance may belong to a
// previous run of the pod.
func countInRestart(podStatus *kubecontainer.PodStatus, container *v1.Container, count int) int {
	if r := podStatus.Restart; r != nil {
		if last, ok := r.LastCounts[container.Name]; ok {
			return max(count, last+1)
		}
	}
	return count
}

// annotateRestart adds the pod's back-off to the configuration of a container that is
// about to be created.
func annotateRestart(podStatus *kubecontainer.PodStatus, config *runtimeapi.ContainerConfig) {
	if r := podStatus.Restart; r != nil && r.BackOff != "" {
		config.Annotations[restart.PodBackOffAnnotation] = r.BackOff
	}
}
