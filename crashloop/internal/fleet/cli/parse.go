// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/kubelet-backoff/kubelet-backoff/agent/kubeletconfig"
	"github.com/kubelet-backoff/kubelet-backoff/backoff"
	"github.com/kubelet-backoff/kubelet-backoff/config"
	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/fleet"
	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/plan"
	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/text"
	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/usage"
	"github.com/kubelet-backoff/kubelet-backoff/validation"
)

// Source is what a CURVE names: a file, or what takes the place of one.
type Source struct {
	// File is a KubeletConfiguration. It is empty for another CURVE.
	File    string
	reduced bool
	maximum *time.Duration
	// fixed has an initial delay and a maximum, also ones that a kubelet does not support.
	fixed *backoff.Curve
}

const curves = "default, reduced, a maximum such as 4s, INITIAL/MAXIMUM such as 250ms/1m, or a file"

// ParseCurve parses [NAME=]CURVE. The commands that have one curve do not use the name.
func ParseCurve(text string) (Source, error) {
	_, s, err := parseCurve(text)
	return s, err
}

func parseCurve(value string) (name string, s Source, err error) {
	name, spec, named := strings.Cut(value, "=")
	if !named {
		spec = name
	}
	if name == "" || spec == "" {
		return "", s, errors.New("must be CURVE or NAME=CURVE; a curve is " + curves)
	}
	initial, maximum, both := strings.Cut(spec, "/")
	first, err1 := time.ParseDuration(initial)
	most, err2 := time.ParseDuration(maximum)
	switch {
	case both && err1 == nil && err2 == nil:
		s.fixed = &backoff.Curve{Initial: first, Max: most}
		err = fleet.CheckDelays(*s.fixed)
	case !both && err1 == nil:
		s.maximum = &first
		settings := config.Settings{KubeletCrashLoopBackOffMax: true, MaxContainerRestartPeriod: &first}
		err = validation.ValidateCrashLoopBackOff(settings, field.NewPath("crashLoopBackOff")).ToAggregate()
	case spec == "reduced":
		s.reduced = true
	case spec != "default":
		s.File = spec
		if _, statErr := os.Stat(spec); errors.Is(statErr, fs.ErrNotExist) {
			err = fmt.Errorf("%w; a curve is %s", text.Reason(statErr), curves)
		}
	}
	return name, s, err
}

// Load is kubeletconfig.Load with the source in place of its file.
func (s Source) Load(dir string, gates map[string]bool) (*kubeletconfig.Config, error) {
	if s.reduced {
		given := gates
		gates = map[string]bool{}
		maps.Copy(gates, given)
		gates[string(config.ReduceDefaultCrashLoopBackOffDecay)] = true
	}
	c, err := kubeletconfig.Load(s.File, dir, gates)
	if err == nil && s.maximum != nil {
		c.MaxContainerRestartPeriod = s.maximum
	}
	return c, err
}

// Resolve returns the curve of a valid configuration from Load.
func (s Source) Resolve(c *kubeletconfig.Config) (config.Curve, error) {
	curve := config.Resolve(c.Settings)
	if s.fixed != nil {
		curve.Initial, curve.InitialReason = s.fixed.Initial, reasonFlag
		curve.Max, curve.MaxReason = s.fixed.Max, reasonFlag
	}
	if curve.Ignored && s.maximum != nil {
		return curve, fmt.Errorf("the feature gate %s is off", config.KubeletCrashLoopBackOffMax)
	}
	return curve, nil
}

// reasonFlag is the reason of the values of INITIAL/MAXIMUM.
const reasonFlag config.Reason = "--curve"

// curve returns the curve of a node without drop-ins, and the warnings about its file.
func (s Source) curve(gates map[string]bool) (curve backoff.Curve, warnings []string, err error) {
	c, err := s.Load("", gates)
	if err != nil {
		return curve, nil, &Failure{Err: err, Refused: true}
	}
	if errs := validation.ValidateCrashLoopBackOff(c.Settings, field.NewPath("crashLoopBackOff")); len(errs) > 0 {
		return curve, nil, &Failure{Err: &kubeletconfig.Error{File: s.File, Err: errs[0]}, Refused: true}
	}
	resolved, err := s.Resolve(c)
	if err != nil {
		return curve, nil, &Failure{Err: err, Refused: true}
	}
	for _, w := range c.Warnings {
		warnings = append(warnings, w.String())
	}
	if w := resolved.Warning(); w != "" {
		warnings = append(warnings, s.File+": "+w)
	}
	return resolved.Curve, warnings, nil
}

// maxima returns the curves of all maxima in whole seconds that a KubeletConfiguration may have.
func maxima(gates map[string]bool) (list []fleet.Curve, err error) {
	for m := config.LeastMaxContainerRestartPeriod; m <= config.GreatestMaxContainerRestartPeriod; m += time.Second {
		curve, _, err := Source{maximum: &m}.curve(gates)
		if err != nil {
			return nil, fmt.Errorf("budget: %w", err)
		}
		list = append(list, fleet.Curve{Name: m.String(), Curve: curve})
	}
	return list, nil
}

// parseOutage parses FROM,LENGTH[,SHARE].
func parseOutage(text string) (o fleet.Outage, err error) {
	parts := strings.Split(text, ",")
	if o.Share = 1; len(parts) < 2 || len(parts) > 3 {
		return o, fmt.Errorf("--outage %q must be FROM,LENGTH or FROM,LENGTH,SHARE, such as 10m,20m,50%%", text)
	}
	for i, d := range []*time.Duration{&o.From, &o.Length} {
		if *d, err = time.ParseDuration(parts[i]); err != nil {
			return o, fmt.Errorf("--outage %q: %q must be a duration such as 10m", text, parts[i])
		}
	}
	if len(parts) == 3 {
		if o.Share, err = parseShare(parts[2]); err != nil {
			return o, fmt.Errorf("--outage %q: %w", text, err)
		}
	}
	return o, nil
}

// parseShare parses 0.5 or 50%.
func parseShare(text string) (float64, error) {
	number, percent := strings.CutSuffix(text, "%")
	f, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return 0, fmt.Errorf("%q must be a share such as 0.5 or 50%%", text)
	}
	if percent {
		f /= 100
	}
	return f, nil
}

// parseProcessors parses a share of one processor, or 500m as in a pod. More than one must be a
// percentage or have the m, because somebody who writes 25 means 25% and not 25 processors.
func parseProcessors(text string) (float64, error) {
	if q, err := resource.ParseQuantity(text); err == nil && strings.HasSuffix(text, "m") {
		return q.AsApproximateFloat64(), nil
	}
	f, err := parseShare(text)
	if err == nil && f > 1 && !strings.HasSuffix(text, "%") {
		err = fmt.Errorf("%q is more than one processor: must be a share such as 0.5, 50%% or 500m, or 200%% for two processors", text)
	}
	return f, err
}

func parsePolicy(text string) (v1.RestartPolicy, error) {
	for _, p := range []v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyOnFailure} {
		if text == string(p) {
			return p, nil
		}
	}
	return "", fmt.Errorf("--restart-policy %q must be %s or %s", text, v1.RestartPolicyAlways, v1.RestartPolicyOnFailure)
}

// share adds a flag for a share.
func share(flags *pflag.FlagSet, to *float64, name string, standard float64, help string) {
	text := ""
	if *to = standard; standard != 0 {
		text = strconv.FormatFloat(standard, 'g', -1, 64)
	}
	usage.Var(flags, to, name, "SHARE", text, help, parseShare)
}

// perSecond adds a flag for a number per second, with or without the suffix /s.
func perSecond(flags *pflag.FlagSet, to *float64, name, help string) {
	usage.Var(flags, to, name, "N", "", help, func(text string) (float64, error) {
		f, err := strconv.ParseFloat(strings.TrimSuffix(text, "/s"), 64)
		if err != nil {
			return 0, fmt.Errorf("%q must be a number per second, such as 50 or 50/s", text)
		}
		return f, nil
	})
}

// Duration adds a flag for a duration. The error for an invalid duration says what would be right,
// also if time.ParseDuration rejects it as too long.
func Duration(flags *pflag.FlagSet, to *time.Duration, name string, standard time.Duration, help string) {
	text := ""
	if *to = standard; standard != 0 {
		text = fleet.Short(standard)
	}
	usage.Var(flags, to, name, "DURATION", text, help, func(text string) (time.Duration, error) {
		d, err := time.ParseDuration(text)
		if err != nil {
			return 0, fmt.Errorf("%q must be a duration such as 90s, 1h30m or, at most, %s", text, fleet.Short(plan.Longest))
		}
		return d, nil
	})
}

// gatesFlag adds the kubelet's --feature-gates.
func gatesFlag(flags *pflag.FlagSet, to *map[string]bool) {
	flags.Var(cliflag.NewMapStringBool(to), "feature-gates", "the kubelets' feature gates")
}
