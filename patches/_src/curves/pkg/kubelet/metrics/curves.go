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

var registerCurves sync.Once

// RegisterCurves registers the metric of containers with a back-off of their own, which count
// returns.
func RegisterCurves(count func() int) {
	registerCurves.Do(func() {
		legacyregistry.RawMustRegister(metrics.NewGaugeFunc(&metrics.GaugeOpts{
			Subsystem:      KubeletSubsystem,
			Name:           "restart_curve_containers",
			Help:           "Number of containers that have a back-off of their own by annotation.",
			StabilityLevel: metrics.ALPHA,
		}, func() float64 { return float64(count()) }))
	})
}
