// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

// PodStatus returns the status of the agent's pod for the API. old is the status before,
// such as the result of the last call. now is the time of conditions that change. ips are
// the addresses of the pod, the primary one first; if there are none yet, those of old stay.
//
// Phase, StartTime, the statuses of containers, the conditions PodScheduled, Initialized,
// ContainersReady and Ready, and those for restarts of the pod are the agent's. All else
// stays as in old: the host's addresses, the image ID of an instance, and other conditions,
// among them those that the pod's readiness gates name. IDs of instances are those of the
// Runtime.
//
// It keeps the behavior of generateAPIPodStatus of pkg/kubelet and of package
// pkg/kubelet/status: a terminal phase stays, a pod that has ended is not ready even if
// containers still run, an initialized pod stays so during a restart, a restart count does
// not decrease, and a container without an exit in a pod that has ended was lost.
func (s Status) PodStatus(pod *v1.Pod, old v1.PodStatus, now time.Time, ips ...string) v1.PodStatus {
	p := *old.DeepCopy()
	p.ObservedGeneration = pod.Generation
	ended := s.Ended
	if p.Phase == v1.PodSucceeded || p.Phase == v1.PodFailed {
		ended = p.Phase
	} else if p.Phase != s.Phase || s.Reason != "" { // Otherwise the reason may be another's.
		p.Phase, p.Reason, p.Message = s.Phase, s.Reason, s.Message
	}
	if p.StartTime.IsZero() && !s.StartTime.IsZero() {
		p.StartTime = &metav1.Time{Time: s.StartTime}
	}
	if ips = slices.DeleteFunc(slices.Clone(ips), func(ip string) bool { return ip == "" }); len(ips) > 0 {
		p.PodIP, p.PodIPs = ips[0], nil
		for _, ip := range ips {
			p.PodIPs = append(p.PodIPs, v1.PodIP{IP: ip})
		}
	}
	p.InitContainerStatuses, p.ContainerStatuses = nil, nil
	var incomplete, unready []string
	initialized := conditionStatus(old.Conditions, v1.PodInitialized) == v1.ConditionTrue
	for i := range s.Containers {
		c := &s.Containers[i]
		if c.Kind != restartpod.KindInit && !c.Ready {
			unready = append(unready, c.Name)
		}
		if c.Kind == restartpod.KindRegular {
			p.ContainerStatuses = append(p.ContainerStatuses, c.status(old.ContainerStatuses))
			initialized = initialized || c.State.Waiting == nil
			continue
		}
		p.InitContainerStatuses = append(p.InitContainerStatuses, c.status(old.InitContainerStatuses))
		if c.Kind == restartpod.KindInit && !c.Ready || c.Kind == restartpod.KindSidecar && !c.Started {
			incomplete = append(incomplete, c.Name)
		}
	}
	initialized = initialized || incomplete == nil || ended == v1.PodSucceeded
	if p.Phase == ended {
		lost := [][]v1.ContainerStatus{beforeNeverStarted(p.InitContainerStatuses)}
		if initialized {
			lost = append(lost, p.ContainerStatuses)
		}
		for _, statuses := range lost {
			for i := range statuses {
				if c := &statuses[i]; c.State.Terminated == nil {
					c.State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
						ExitCode: 137, Reason: "ContainerStatusUnknown", Message: "The container could not be located when the pod was terminated",
					}}
				}
			}
		}
	}

	p.Conditions = slices.DeleteFunc(p.Conditions, func(c v1.PodCondition) bool {
		return isRestartCondition(c) || slices.Contains([]v1.PodConditionType{v1.PodScheduled, v1.PodInitialized, v1.ContainersReady, v1.PodReady}, c.Type)
	})
	set := func(conditionType v1.PodConditionType, is bool, reason, message string) {
		c := v1.PodCondition{
			Type: conditionType, Status: v1.ConditionFalse, Reason: reason, Message: message,
			LastTransitionTime: metav1.NewTime(now), ObservedGeneration: pod.Generation,
		}
		if is {
			c.Status = v1.ConditionTrue
		}
		for _, before := range old.Conditions {
			if before.Type == c.Type && before.Status == c.Status {
				c.LastTransitionTime = before.LastTransitionTime
			}
		}
		p.Conditions = append(p.Conditions, c)
	}
	reason, message := "", ""
	if ended == v1.PodSucceeded {
		reason = "PodCompleted"
	} else if !initialized {
		reason, message = "ContainersNotInitialized", fmt.Sprintf("containers with incomplete status: %s", incomplete)
	}
	set(v1.PodInitialized, initialized, reason, message)
	reason, message = "", ""
	switch {
	case ended == v1.PodSucceeded:
		reason = "PodCompleted"
	case ended == v1.PodFailed:
		reason = "PodFailed"
	case unready != nil:
		reason, message = "ContainersNotReady", fmt.Sprintf("containers with unready status: %s", unready)
	}
	set(v1.ContainersReady, reason == "", reason, message)
	if reason == "" {
		var closed []string
		for _, gate := range pod.Spec.ReadinessGates {
			if status := conditionStatus(p.Conditions, gate.ConditionType); status == "" {
				closed = append(closed, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", gate.ConditionType))
			} else if status != v1.ConditionTrue {
				closed = append(closed, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %v", gate.ConditionType, status))
			}
		}
		if closed != nil {
			reason, message = "ReadinessGatesNotReady", strings.Join(closed, ", ")
		}
	}
	set(v1.PodReady, reason == "", reason, message)
	set(v1.PodScheduled, true, "", "")
	for _, c := range s.Conditions {
		c.ObservedGeneration = pod.Generation
		p.Conditions = append(p.Conditions, c)
	}
	return *p.DeepCopy() // It shares nothing with s.
}

// beforeNeverStarted returns the init containers up to the last one that has ever started, or
// the first one if none has: initializedContainers of pkg/kubelet/status.
func beforeNeverStarted(statuses []v1.ContainerStatus) []v1.ContainerStatus {
	for i := len(statuses) - 1; i > 0; i-- {
		if statuses[i].State.Waiting == nil || statuses[i].LastTerminationState.Terminated != nil {
			return statuses[:i+1]
		}
	}
	return statuses[:min(len(statuses), 1)]
}

// status returns the status of a container for the API, after the one before in old.
func (c *ContainerStatus) status(old []v1.ContainerStatus) (status v1.ContainerStatus) {
	before := v1.ContainerStatus{}
	if i := slices.IndexFunc(old, func(s v1.ContainerStatus) bool { return s.Name == c.Name }); i >= 0 {
		before = old[i]
	}
	last := before.LastTerminationState.Terminated
	if before.ContainerID == c.ID {
		status = before
	} else if before.State.Terminated != nil {
		last = before.State.Terminated
	}
	if c.State.Terminated == nil && c.LastExit != nil {
		last = c.LastExit
	} else if c.State.Terminated != nil && last != nil && last.ContainerID == c.ID {
		last = nil
	}
	status.Name, status.Image, status.ContainerID, status.State = c.Name, c.Image, c.ID, c.State
	status.LastTerminationState = v1.ContainerState{Terminated: last}
	status.Started, status.Ready = &c.Started, c.Ready
	status.RestartCount = max(int32(c.Restarts.Count), before.RestartCount)
	return status
}

func conditionStatus(conditions []v1.PodCondition, conditionType v1.PodConditionType) v1.ConditionStatus {
	for _, c := range conditions {
		if c.Type == conditionType {
			return c.Status
		}
	}
	return ""
}

// isRestartCondition reports whether a condition is one of restartpod.Plan.Conditions.
func isRestartCondition(c v1.PodCondition) bool {
	return c.Type == restartpod.PodRestarting || c.Type == restartpod.AllContainersRestarting
}
