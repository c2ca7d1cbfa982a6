// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

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
	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/usage"
	"github.com/kubelet-backoff/kubelet-backoff/validation"
)

// longestName is the maximum number of characters in the name of a curve.
const longestName = 60

// parseCurve parses [NAME=]CURVE. It also returns the warnings about a configuration file.
func parseCurve(text string, gates map[string]bool) (c fleet.Curve, warnings []string, err error) {
	name, spec, named := strings.Cut(text, "=")
	if !named {
		spec = name
	}
	switch {
	case name == "" || spec == "":
		return c, nil, fmt.Errorf("--curve %q must be CURVE or NAME=CURVE, with default, reduced, 4s, 250ms/1m or a file for CURVE", text)
	case utf8.RuneCountInString(name) > longestName:
		return c, nil, fmt.Errorf("--curve %q: the name must have at most %d characters: use NAME=FILE", text, longestName)
	}
	c.Name = name
	c.Curve, warnings, err = curveOf(spec, gates)
	if f := (*Failure)(nil); errors.As(err, &f) {
		f.Err = fmt.Errorf("--curve %s: %w", name, f.Err)
	} else if err != nil {
		err = fmt.Errorf("--curve %q: %w", text, err)
	}
	return c, warnings, err
}

// curveOf returns the curve that package config resolves for spec, or the initial delay and the
// maximum in spec. It also returns the warnings about a configuration file.
func curveOf(spec string, gates map[string]bool) (backoff.Curve, []string, error) {
	initial, maximum, both := strings.Cut(spec, "/")
	first, err1 := time.ParseDuration(initial)
	most, err2 := time.ParseDuration(maximum)
	if both && err1 == nil && err2 == nil {
		return backoff.Curve{Initial: first, Max: most, DelayFirst: gates[string(config.KubeletDelayFirstContainerRestart)]}, nil, nil
	}
	file := spec
	if spec == "default" || spec == "reduced" || !both && err1 == nil {
		file = ""
	}
	c, err := kubeletconfig.Load(file, "", gates)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w; a curve is default, reduced, a maximum such as 4s, INITIAL/MAXIMUM such as 250ms/1m, or a file", err)
	}
	if err != nil {
		return backoff.Curve{}, nil, &Failure{Err: err, Refused: true}
	}
	switch {
	case spec == "reduced":
		c.ReduceDefaultCrashLoopBackOffDecay = true
	case !both && err1 == nil:
		c.MaxContainerRestartPeriod = &first
	}
	if errs := validation.ValidateCrashLoopBackOff(c.Settings, field.NewPath("crashLoopBackOff")); len(errs) > 0 {
		if file == "" {
			return backoff.Curve{}, nil, errs.ToAggregate()
		}
		return backoff.Curve{}, nil, &Failure{Err: &kubeletconfig.Error{File: file, Err: errs[0]}, Refused: true}
	}
	curve := config.Resolve(c.Settings)
	if curve.Ignored && file == "" {
		return curve.Curve, nil, fmt.Errorf("the feature gate %s is off", config.KubeletCrashLoopBackOffMax)
	}
	var warnings []string
	for _, w := range c.Warnings {
		warnings = append(warnings, w.String())
	}
	if w := curve.Warning(); w != "" {
		warnings = append(warnings, file+": "+w)
	}
	return curve.Curve, warnings, nil
}

// curveFiles returns the values of --curve without their names. Some of them are files.
func curveFiles(values []string) (files []string) {
	for _, text := range values {
		name, file, named := strings.Cut(text, "=")
		if !named {
			file = name
		}
		files = append(files, file)
	}
	return files
}

// maxima returns the curves of all maxima in whole seconds that a KubeletConfiguration may have.
func maxima(gates map[string]bool) (list []fleet.Curve, err error) {
	for m := config.LeastMaxContainerRestartPeriod; m <= config.GreatestMaxContainerRestartPeriod; m += time.Second {
		curve, _, err := curveOf(m.String(), gates)
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
