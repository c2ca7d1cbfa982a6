// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubelet-backoff/kubelet-backoff/config"
)

// ValidateCrashLoopBackOff validates the crashLoopBackOff of a
// KubeletConfiguration. fldPath is its path. maxContainerRestartPeriod must be nil
// or between 1 s and 300 s, both inclusive (KEP-5593, "Conflict resolution").
// Fractions of a second are allowed. If the gate KubeletCrashLoopBackOffMax is off,
// the value has no effect and is not an error; see WarningsForCrashLoopBackOff.
//
// ValidateKubeletConfiguration of pkg/kubelet/apis/config/validation compares whole
// milliseconds, so it accepts 300.0004 s. This function compares the exact
// duration.
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

// Warning is about a value that is valid but may not have the expected effect.
type Warning struct {
	// Field is the path of the field. It is empty if the warning is not about a
	// single field.
	Field  string
	Detail string
}

// WarningsForCrashLoopBackOff returns warnings about the crashLoopBackOff of a
// KubeletConfiguration. fldPath is its path. It warns if the maximum is not
// honored because the gate is off. It also warns that another initial delay or
// maximum than the default applies only to containers and not to image pulls.
func WarningsForCrashLoopBackOff(s config.Settings, fldPath *field.Path) []Warning {
	var warnings []Warning
	c := config.Resolve(s)
	if c.Ignored {
		warnings = append(warnings, Warning{Field: fldPath.Child("maxContainerRestartPeriod").String(),
			Detail: fmt.Sprintf("not honored: the feature gate %s is off", config.KubeletCrashLoopBackOffMax)})
	}
	if c.Initial != config.DefaultInitial || c.Max != config.DefaultMax {
		warnings = append(warnings, Warning{Detail: "image pulls have a separate back-off, 10s to 300s, which this configuration does not change"})
	}
	return warnings
}
