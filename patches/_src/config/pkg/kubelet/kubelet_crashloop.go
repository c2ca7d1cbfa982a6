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
	"fmt"
	"time"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	"k8s.io/klog/v2"

	"k8s.io/kubernetes/pkg/features"
	kubeletconfiginternal "k8s.io/kubernetes/pkg/kubelet/apis/config"
	backoffconfig "k8s.io/kubernetes/pkg/kubelet/backoff/config"
)

// LogCrashLoopBackOff logs the container restart back-off of the node, and a
// warning for a setting that is not honored. The gates must be final.
func LogCrashLoopBackOff(logger klog.Logger, kubeCfg *kubeletconfiginternal.KubeletConfiguration) {
	curve := crashLoopBackOffCurve(kubeCfg, utilfeature.DefaultFeatureGate)
	logger.Info("Container restart back-off", "delays", fmt.Sprint(curve.Delays()),
		"initial", curve.Initial, "initialReason", curve.InitialReason,
		"maximum", curve.Max, "maximumReason", curve.MaxReason)
	if warning := curve.Warning(); warning != "" {
		logger.Info("Container restart back-off is not as configured", "warning", warning, "maxContainerRestartPeriod", kubeCfg.CrashLoopBackOff.MaxContainerRestartPeriod.Duration)
	}
}

// resolveCrashLoopBackOff returns the maximum and the initial delay before a
// container is restarted. It replaces newCrashLoopBackOff.
func resolveCrashLoopBackOff(kubeCfg *kubeletconfiginternal.KubeletConfiguration) (time.Duration, time.Duration) {
	curve := crashLoopBackOffCurve(kubeCfg, utilfeature.DefaultFeatureGate)
	return curve.Max, curve.Initial
}

func crashLoopBackOffCurve(kubeCfg *kubeletconfiginternal.KubeletConfiguration, gates featuregate.FeatureGate) backoffconfig.Curve {
	settings := backoffconfig.Settings{
		KubeletCrashLoopBackOffMax:         gates.Enabled(features.KubeletCrashLoopBackOffMax),
		ReduceDefaultCrashLoopBackOffDecay: gates.Enabled(features.ReduceDefaultCrashLoopBackOffDecay),
		KubeletDelayFirstContainerRestart:  gates.Enabled(features.KubeletDelayFirstContainerRestart),
	}
	if period := kubeCfg.CrashLoopBackOff.MaxContainerRestartPeriod; period != nil {
		settings.MaxContainerRestartPeriod = &period.Duration
	}
	return backoffconfig.Resolve(settings)
}
