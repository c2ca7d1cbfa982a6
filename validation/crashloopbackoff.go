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

// Warning is about something that is valid and has not the effect that one may
// expect.
type Warning struct {
	// Field is the path of a field, empty where it is about no single one.
	Field  string
	Detail string
}

// WarningsForCrashLoopBackOff returns warnings about the crashLoopBackOff of a
// KubeletConfiguration, which is at fldPath: a maximum that is not honoured, the
// gate being off, and that a curve other than the default is for containers
// alone, not for image pulls.
func WarningsForCrashLoopBackOff(s config.Settings, fldPath *field.Path) []Warning {
	var warnings []Warning
	c := config.Resolve(s)
	if c.Ignored {
		warnings = append(warnings, Warning{Field: fldPath.Child("maxContainerRestartPeriod").String(),
			Detail: fmt.Sprintf("not honoured: the feature gate %s is off", config.KubeletCrashLoopBackOffMax)})
	}
	if c.Initial != config.DefaultInitial || c.Max != config.DefaultMax {
		warnings = append(warnings, Warning{Detail: "image pulls keep a back-off of their own, 10s to 300s: this one is for container restarts alone"})
	}
	return warnings
}
