// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"time"

	backoff "github.com/kubelet-backoff/kubelet-backoff/backoff"
)

// The delays of a node with the default configuration, and of a node with the
// feature gate ReduceDefaultCrashLoopBackOffDecay (KEP-4603, "Front loaded decay
// curve").
const (
	DefaultInitial = 10 * time.Second
	DefaultMax     = 300 * time.Second
	ReducedInitial = 1 * time.Second
	ReducedMax     = 60 * time.Second
)

// The minimum and maximum value of crashLoopBackOff.maxContainerRestartPeriod,
// both inclusive (KEP-5593, "Conflict resolution").
const (
	LeastMaxContainerRestartPeriod    = 1 * time.Second
	GreatestMaxContainerRestartPeriod = 300 * time.Second
)

// Settings holds everything that a node's curve depends on.
type Settings struct {
	// MaxContainerRestartPeriod is the field of that name in the
	// KubeletConfiguration. Nil means not set. It has no default, because a
	// default of 300 s would look like the operator's choice and override the
	// reduced decay.
	MaxContainerRestartPeriod *time.Duration
	// The feature gates, by name.
	KubeletCrashLoopBackOffMax         bool
	ReduceDefaultCrashLoopBackOffDecay bool
	KubeletDelayFirstContainerRestart  bool
}

// Reason is the origin of a value of a Curve.
type Reason string

// The reasons.
const (
	// ReasonDefault is the default of a node.
	ReasonDefault Reason = "Default"
	// ReasonReducedDecay is the gate ReduceDefaultCrashLoopBackOffDecay.
	ReasonReducedDecay Reason = "ReducedDecay"
	// ReasonPerNodeMaximum is crashLoopBackOff.maxContainerRestartPeriod.
	ReasonPerNodeMaximum Reason = "PerNodeMaximum"
	// ReasonClamped is an initial delay lowered to a smaller maximum.
	ReasonClamped Reason = "Clamped"
)

// Curve is a node's container restart back-off and the origin of its values.
type Curve struct {
	backoff.Curve
	InitialReason Reason
	MaxReason     Reason
	// Ignored is true if MaxContainerRestartPeriod is set but not honored
	// because the gate KubeletCrashLoopBackOffMax is off.
	Ignored bool
}

// Resolve returns the curve of a node. It corrects newCrashLoopBackOff of
// pkg/kubelet in two ways. Without MaxContainerRestartPeriod the maximum comes
// from the gates and is not always 300 s. A nil value is accepted. Resolve clamps
// a value out of range, which validation rejects, so that a caller without
// validation still has a back-off.
func Resolve(s Settings) Curve {
	c := Curve{
		Curve:         backoff.Curve{Initial: DefaultInitial, Max: DefaultMax, DelayFirst: s.KubeletDelayFirstContainerRestart},
		InitialReason: ReasonDefault, MaxReason: ReasonDefault,
	}
	if s.ReduceDefaultCrashLoopBackOffDecay {
		c.Initial, c.InitialReason = ReducedInitial, ReasonReducedDecay
		c.Max, c.MaxReason = ReducedMax, ReasonReducedDecay
	}
	if s.MaxContainerRestartPeriod == nil {
		return c
	}
	if !s.KubeletCrashLoopBackOffMax {
		c.Ignored = true
		return c
	}
	c.Max = min(max(*s.MaxContainerRestartPeriod, LeastMaxContainerRestartPeriod), GreatestMaxContainerRestartPeriod)
	c.MaxReason = ReasonPerNodeMaximum
	if c.Initial > c.Max {
		c.Initial, c.InitialReason = c.Max, ReasonClamped
	}
	return c
}

// String formats the curve in one line for a log: the delays, and the origin of
// the initial delay and of the maximum.
func (c Curve) String() string {
	return fmt.Sprintf("%v … (initial %v: %s, maximum %v: %s)", c.Delays(), c.Initial, c.InitialReason, c.Max, c.MaxReason)
}

// Warning returns a message if a setting has no effect, and "" otherwise.
func (c Curve) Warning() string {
	if !c.Ignored {
		return ""
	}
	return "crashLoopBackOff.maxContainerRestartPeriod is set and not honored: the feature gate KubeletCrashLoopBackOffMax is off"
}
