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

	"k8s.io/kubernetes/pkg/kubelet/asked"
)

var restartAtAnnotations = metrics.NewCounterVec(&metrics.CounterOpts{
	Subsystem:      KubeletSubsystem,
	Name:           "restart_at_annotations_total",
	Help:           "Number of answers to restart-at annotations of waiting containers and pods: honored, refused because the time is less than ten seconds from another one of the pod, or invalid.",
	StabilityLevel: metrics.ALPHA,
}, []string{"outcome"})

var registerRestartAt sync.Once

// RegisterRestartAt registers the metric of restart-at annotations.
func RegisterRestartAt() {
	registerRestartAt.Do(func() {
		legacyregistry.MustRegister(restartAtAnnotations)
		for _, outcome := range []asked.Outcome{asked.Honored, asked.Refused, asked.Invalid} {
			restartAtAnnotations.WithLabelValues(string(outcome))
		}
	})
}

// CountRestartAt counts an answer to a restart-at annotation. It ignores an empty outcome.
func CountRestartAt(outcome asked.Outcome) {
	if outcome != "" {
		restartAtAnnotations.WithLabelValues(string(outcome)).Inc()
	}
}
