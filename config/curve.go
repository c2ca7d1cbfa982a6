// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"time"

	backoff "github.com/kubelet-backoff/kubelet-backoff/backoff"
)

// The delays of a node that sets nothing, and of one with the gate
// ReduceDefaultCrashLoopBackOffDecay (KEP-4603, "Front loaded decay curve").
const (
	DefaultInitial = 10 * time.Second
	DefaultMax     = 300 * time.Second
	ReducedInitial = 1 * time.Second
	ReducedMax     = 60 * time.Second
)

// The least and the greatest value of crashLoopBackOff.maxContainerRestartPeriod,
// both included (KEP-5593, "Conflict resolution").
const (
	LeastMaxContainerRestartPeriod    = 1 * time.Second
	GreatestMaxContainerRestartPeriod = 300 * time.Second
)

// Settings is all that a node's curve depends on.
type Settings struct {
	// MaxContainerRestartPeriod is the field of that name in the
	// KubeletConfiguration, nil when it is not set. It has no default: a default
	// of 300 s would be taken for the operator's wish, and win over the reduced
	// decay.
	MaxContainerRestartPeriod *time.Duration
	// The feature gates, by their names.
	KubeletCrashLoopBackOffMax         bool
	ReduceDefaultCrashLoopBackOffDecay bool
	KubeletDelayFirstContainerRestart  bool
}

// Reason says what a value of a Curve comes from.
type Reason string

// The reasons.
const (
	// ReasonDefault is the value of a node that sets nothing.
	ReasonDefault Reason = "Default"
	// ReasonReducedDecay is the gate ReduceDefaultCrashLoopBackOffDecay.
	ReasonReducedDecay Reason = "ReducedDecay"
	// ReasonPerNodeMaximum is crashLoopBackOff.maxContainerRestartPeriod.
	ReasonPerNodeMaximum Reason = "PerNodeMaximum"
	// ReasonClamped is an initial delay lowered to a maximum below it.
	ReasonClamped Reason = "Clamped"
)

// Curve is a node's container restart back-off, and what its values come from.
type Curve struct {
	backoff.Curve
	InitialReason Reason
	MaxReason     Reason
	// Ignored is true if MaxContainerRestartPeriod is set and not honoured, the
	// gate KubeletCrashLoopBackOffMax being off.
	Ignored bool
}

// Resolve returns the curve of a node. It corrects newCrashLoopBackOff of
// pkg/kubelet in two ways: without MaxContainerRestartPeriod the maximum is that
// of the gates and not 300 s, and nil is tolerated. A value out of range, which
// validation refuses, is brought into range here, so that a caller without
// validation has a back-off all the same.
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

// String is the curve in a line, for a log: the delays, and what the initial
// delay and the maximum come from.
func (c Curve) String() string {
	return fmt.Sprintf("%v … (initial %v: %s, maximum %v: %s)", c.Delays(), c.Initial, c.InitialReason, c.Max, c.MaxReason)
}

// Warning says what is set and has no effect, or is "".
func (c Curve) Warning() string {
	if !c.Ignored {
		return ""
	}
	return "crashLoopBackOff.maxContainerRestartPeriod is set and not honoured: the feature gate KubeletCrashLoopBackOffMax is off"
}
