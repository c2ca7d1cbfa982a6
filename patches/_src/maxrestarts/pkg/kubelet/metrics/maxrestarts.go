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

package metrics

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var restartLimitExceeded = metrics.NewCounter(&metrics.CounterOpts{
	Subsystem:      KubeletSubsystem,
	Name:           "restart_limit_exceeded_pods_total",
	Help:           "Number of pods that the kubelet has ended because of their max-restarts annotation.",
	StabilityLevel: metrics.ALPHA,
})

var registerRestartLimit sync.Once

// RegisterRestartLimit registers the metric of max-restarts annotations.
func RegisterRestartLimit() {
	registerRestartLimit.Do(func() { legacyregistry.MustRegister(restartLimitExceeded) })
}

// CountRestartLimitExceeded counts a pod that ends because of its max-restarts annotation.
func CountRestartLimitExceeded() { restartLimitExceeded.Inc() }
