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
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	crierror "k8s.io/cri-api/pkg/errors"
	"k8s.io/klog/v2"

	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/events"
	"k8s.io/kubernetes/pkg/kubelet/restart"
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
	LastStopped(uid types.UID, name string) (id string, when StopTime)
}

// StopTime is the time in which a stop ends a container. An exit before it came before the
// stop began, and an exit after it has another cause: the kubelet ended before it stopped
// the container. A zero Until is no end, so the zero StopTime ends everything.
type StopTime struct{ From, Until time.Time }

// Ends reports whether the stop may be the cause of an exit at a time. An unknown time is
// zero or the Unix epoch. A time without fractions is that of a runtime that knows only
// seconds.
func (t StopTime) Ends(exit time.Time) bool {
	if exit.Unix() <= 0 {
		return true
	}
	latest := exit
	if exit.Nanosecond() == 0 {
		latest = exit.Add(time.Second - 1)
	}
	return !latest.Before(t.From) && (t.Until.IsZero() || !exit.After(t.Until))
}

// stoppedDir is the directory below that of a pod with a file for each container that
// the kubelet stopped. The annotations with the back-off cannot hold this, because an
// instance keeps those that it was created with.
const stoppedDir = "stopped-by-kubelet"

// stoppedSlack is added to the grace period, after which the runtime kills the
// container. It may take long on a busy node.
const stoppedSlack = time.Minute

// exitPause returns for how long a stop waits for the container to end by itself. A probe or
// a hook that runs in the container ends with it, and the runtime reports that before it notes
// the end of the container: some 20 ms before, and 250 ms on a busy node.
func exitPause(reason containerKillReason) time.Duration {
	switch reason {
	case reasonStartupProbe, reasonLivenessProbe, reasonFailedPostStartHook:
		return time.Second
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
	if !mayRestartPod(&pod.Spec) {
		return
	}
	m.awaitExit(ctx, id, exitPause(reason))
	dir := filepath.Join(m.runtimeHelper.GetPodDir(pod.UID), stoppedDir)
	from := time.Now()
	if last, when := m.LastStopped(pod.UID, name); last == id.String() && from.Before(when.Until) {
		// An earlier attempt, in whose time this one is, may have ended it.
		from = when.From
	}
	// The pod's directory exists, except if the pod is gone.
	err := os.Mkdir(dir, 0750)
	if err == nil || os.IsExist(err) {
		// The API accepts numbers of seconds that are no Duration.
		deadline := time.Now().Add(time.Duration(min(gracePeriod, math.MaxInt32))*time.Second + stoppedSlack)
		// What is left of a write that does not complete is no StopTime, which is right:
		// nothing has been stopped yet.
		text := id.String() + " " + from.UTC().Format(time.RFC3339Nano) + " " + deadline.UTC().Format(time.RFC3339)
		err = os.WriteFile(filepath.Join(dir, name), []byte(text), 0640)
	}
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Unable to store that the kubelet stops the container", "pod", klog.KObj(pod), "podUID", pod.UID, "containerName", name, "err", err)
	}
}

// mayRestartPod reports whether a rule restarts the pod. In the pod that SyncPod gets, the rules
// of a container that the kubelet stopped before have no action, because they do not apply to
// that exit.
func mayRestartPod(spec *v1.PodSpec) bool {
	for c := range podutil.ContainerIter(spec, podutil.InitContainers|podutil.Containers) {
		for _, rule := range c.RestartPolicyRules {
			if rule.Action != v1.ContainerRestartRuleActionRestart {
				return true
			}
		}
	}
	return false
}

// LastStopped implements ContainerStopper.
func (m *kubeGenericRuntimeManager) LastStopped(uid types.UID, name string) (id string, when StopTime) {
	text, err := os.ReadFile(filepath.Join(m.runtimeHelper.GetPodDir(uid), stoppedDir, name))
	if err != nil {
		return "", StopTime{}
	}
	f := strings.Fields(string(text))
	if len(f) != 3 {
		return "", StopTime{}
	}
	if when.From, err = time.Parse(time.RFC3339Nano, f[1]); err == nil {
		when.Until, err = time.Parse(time.RFC3339, f[2])
	}
	if err != nil {
		return "", StopTime{}
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
	if err := m.runtimeService.StopContainer(ctx, id.ID, 0); err != nil && !crierror.IsNotFound(err) {
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
