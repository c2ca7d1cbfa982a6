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
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"k8s.io/kubernetes/pkg/kubelet/backoff"
)

// The types of a restart back-off: for single containers, and for pods that are
// restarted in place.
const (
	RestartBackOffContainer = "container"
	RestartBackOffPod       = "pod"
)

var (
	restartBackOffKeys = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Subsystem:      KubeletSubsystem,
		Name:           "restart_backoff_keys",
		Help:           "Number of containers (type container) and pods (type pod) whose restart back-off is known.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"type"})
	restartBackOffDelay = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Subsystem: KubeletSubsystem,
		Name:      "restart_backoff_delay_seconds",
		Help:      "Delay in seconds of the restarts that were allowed, 0 for an immediate one. The count is that of the restarts, without those for a resize or a changed container.",
		// The delays of the default curve, of the reduced curve and of low maximums.
		Buckets:        []float64{0, 1, 2, 4, 5, 8, 10, 16, 20, 32, 40, 60, 80, 160, 300},
		StabilityLevel: metrics.ALPHA,
	}, []string{"type"})
	restartBackOffLateness = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Subsystem:      KubeletSubsystem,
		Name:           "restart_backoff_lateness_seconds",
		Help:           "How many seconds after the end of its delay a restart was allowed, for restarts that had a delay.",
		Buckets:        []float64{0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300},
		StabilityLevel: metrics.ALPHA,
	}, []string{"type"})
	restartBackOffResets = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem:      KubeletSubsystem,
		Name:           "restart_backoff_resets_total",
		Help:           "Number of restart back-offs that started over after a long run, or were forgotten long after the last restart.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"type"})
)

// registerRestartBackOff registers the metrics of restart back-offs. All have a value
// from the start, because rate() does not see the change with which a metric appears.
func registerRestartBackOff() {
	legacyregistry.MustRegister(restartBackOffKeys)
	legacyregistry.MustRegister(restartBackOffDelay)
	legacyregistry.MustRegister(restartBackOffLateness)
	legacyregistry.MustRegister(restartBackOffResets)
	for _, t := range []string{RestartBackOffContainer, RestartBackOffPod} {
		restartBackOffKeys.WithLabelValues(t)
		restartBackOffDelay.WithLabelValues(t)
		restartBackOffLateness.WithLabelValues(t)
		restartBackOffResets.WithLabelValues(t)
	}
}

// MeasureRestartBackOff makes b report to the metrics of the given type of back-off.
func MeasureRestartBackOff(b *backoff.Backoff, backOffType string) {
	b.SetMetrics(restartBackOff{backOffType})
}

// restartBackOff implements backoff.Metrics. It looks up the values on use, because a
// Backoff may be created before the metrics are registered, and there are no values before
// that.
type restartBackOff struct{ backOffType string }

func (m restartBackOff) KeyAdded()   { restartBackOffKeys.WithLabelValues(m.backOffType).Inc() }
func (m restartBackOff) KeyRemoved() { restartBackOffKeys.WithLabelValues(m.backOffType).Dec() }
func (m restartBackOff) KeyReset()   { restartBackOffResets.WithLabelValues(m.backOffType).Inc() }
func (m restartBackOff) RestartAllowed(_ string, delay, late time.Duration) {
	restartBackOffDelay.WithLabelValues(m.backOffType).Observe(delay.Seconds())
	if delay > 0 {
		restartBackOffLateness.WithLabelValues(m.backOffType).Observe(late.Seconds())
	}
}
