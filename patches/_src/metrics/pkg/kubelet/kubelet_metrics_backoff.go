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

package kubelet

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics"

	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubeletmetrics "k8s.io/kubernetes/pkg/kubelet/metrics"
)

var waitingContainersDesc = metrics.NewDesc(
	metrics.BuildFQName("", kubeletmetrics.KubeletSubsystem, "restart_backoff_waiting_containers"),
	"Number of containers whose status is waiting with the reason CrashLoopBackOff.",
	nil, nil, metrics.ALPHA, "")

// measureRestartBackOff makes the back-off of containers report to the metrics.
// It returns the collector of the remaining metric. Call it before the first
// sync.
func (kl *Kubelet) measureRestartBackOff() metrics.StableCollector {
	if kl.restartBackOff != nil {
		kubeletmetrics.MeasureRestartBackOff(kl.restartBackOff, kubeletmetrics.RestartBackOffContainer)
	}
	return &waitingCollector{kl: kl}
}

// waitingCollector counts the containers that currently wait for a restart. It
// uses their statuses, so it does not count a container that is gone or has
// started.
type waitingCollector struct {
	metrics.BaseStableCollector
	kl *Kubelet
}

// DescribeWithStability implements metrics.StableCollector.
func (c *waitingCollector) DescribeWithStability(ch chan<- *metrics.Desc) {
	ch <- waitingContainersDesc
}

// CollectWithStability implements metrics.StableCollector.
func (c *waitingCollector) CollectWithStability(ch chan<- metrics.Metric) {
	waiting := 0
	for _, pod := range c.kl.podManager.GetPods() {
		if c.kl.podWorkers.IsPodTerminationRequested(pod.UID) {
			continue
		}
		status, found := c.kl.statusManager.GetPodStatus(pod.UID)
		if !found {
			continue
		}
		for _, statuses := range [][]v1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses} {
			for i := range statuses {
				if w := statuses[i].State.Waiting; w != nil && w.Reason == kubecontainer.ErrCrashLoopBackOff.Error() {
					waiting++
				}
			}
		}
	}
	ch <- metrics.NewLazyConstMetric(waitingContainersDesc, metrics.GaugeValue, float64(waiting))
}
