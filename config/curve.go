// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"time"
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

// Curve is a node's container restart back-off: the k-th delay is Initial
// doubled k-1 times, and Max at most.
type Curve struct {
	// Initial is the least delay but zero. Initial <= Max.
	Initial       time.Duration
	InitialReason Reason
	// Max is the greatest delay.
	Max       time.Duration
	MaxReason Reason
	// DelayFirst says that the first restart waits too, for Initial. Otherwise it
	// is immediate.
	DelayFirst bool
	// Ignored says that MaxContainerRestartPeriod is set and not honoured, the
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
		Initial: DefaultInitial, InitialReason: ReasonDefault,
		Max: DefaultMax, MaxReason: ReasonDefault,
		DelayFirst: s.KubeletDelayFirstContainerRestart,
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

// Delay returns what the restart number attempt waits, counted from 1, of a
// container that never ran long enough for a reset. It is 0 for an attempt
// below 1.
func (c Curve) Delay(attempt int) time.Duration {
	first := 1
	if !c.DelayFirst {
		first = 2
	}
	if attempt < first {
		return 0
	}
	d := c.Initial
	for ; attempt > first && d < c.Max; attempt-- {
		d *= 2
	}
	return min(d, c.Max)
}

// Delays returns the delays up to and with the first that is Max. As every one
// after it is Max too, they are the whole curve.
func (c Curve) Delays() []time.Duration {
	var delays []time.Duration
	for attempt := 1; ; attempt++ {
		d := c.Delay(attempt)
		delays = append(delays, d)
		if d >= c.Max {
			return delays
		}
	}
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
