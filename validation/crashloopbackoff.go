// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubelet-backoff/kubelet-backoff/config"
)

// ValidateCrashLoopBackOff checks the crashLoopBackOff of a KubeletConfiguration,
// which is at fldPath: maxContainerRestartPeriod is nil or from 1 s to 300 s, both
// included (KEP-5593, "Conflict resolution"). It may have a sub-second part. With
// the gate KubeletCrashLoopBackOffMax off the value does not count, so it is no
// error; see WarningsForCrashLoopBackOff.
//
// ValidateKubeletConfiguration of pkg/kubelet/apis/config/validation compares whole
// milliseconds, and so lets 300.0004 s pass. Here the duration itself counts.
func ValidateCrashLoopBackOff(s config.Settings, fldPath *field.Path) field.ErrorList {
	period := s.MaxContainerRestartPeriod
	if period == nil || !s.KubeletCrashLoopBackOffMax {
		return nil
	}
	const least, greatest = config.LeastMaxContainerRestartPeriod, config.GreatestMaxContainerRestartPeriod
	if *period >= least && *period <= greatest {
		return nil
	}
	detail := fmt.Sprintf("must be from %ds to %ds", least/time.Second, greatest/time.Second)
	return field.ErrorList{field.Invalid(fldPath.Child("maxContainerRestartPeriod"), period.String(), detail)}
}

// WarningsForCrashLoopBackOff returns what is valid and has not the effect that
// one may expect: a maximum that is not honoured, the gate being off, and that a
// curve other than the default is for containers alone, not for image pulls.
func WarningsForCrashLoopBackOff(s config.Settings) []string {
	var warnings []string
	c := config.Resolve(s)
	if w := c.Warning(); w != "" {
		warnings = append(warnings, w)
	}
	if c.Initial != config.DefaultInitial || c.Max != config.DefaultMax {
		warnings = append(warnings, "image pulls keep a back-off of their own, 10s to 300s: this one is for container restarts alone")
	}
	return warnings
}
