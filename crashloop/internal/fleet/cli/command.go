// SPDX-License-Identifier: Apache-2.0

// Package cli has the command crashloop plan fleet.
package cli

import (
	"errors"
	"fmt"
	"io"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/fleet"
	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/fleet/report"
	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/plan"
	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/usage"
)

// Failure is an error of a file, a configuration, or a budget. All other errors are usage errors.
type Failure struct {
	Err error
	// Refused is true for an invalid configuration, which has its own exit status.
	Refused bool
}

func (f *Failure) Error() string { return f.Err.Error() }

// Unwrap returns Err.
func (f *Failure) Unwrap() error { return f.Err }

// fleetOptions are the flags of fleet.
type fleetOptions struct {
	fleet.Options
	curves   []string
	gates    map[string]bool
	exit     string
	policy   string
	outages  []string
	requests float64
	cpu      float64
	window   time.Duration
	format   string
	step     time.Duration
}

// NewFleet returns the command fleet.
func NewFleet() *cobra.Command {
	o := fleetOptions{Options: fleet.Options{Costs: fleet.MeasuredCosts}}
	cmd := &cobra.Command{
		Use:   "fleet [--curve [NAME=]CURVE]... [--nodes N] [--pods N] [--exit LIFE[,LIFE...]] [--for DURATION] [-o FORMAT]",
		Short: "Print what restarts will cost a fleet of nodes",
		Long: `Print what the restarts of a fleet's containers will cost with one back-off or with
several side by side: how many there are, the API requests and the CPU of the
kubelets, how long containers are down, and how long they take to recover. No
container is run: the code that restarts them on a node decides in virtual time.

A CURVE is one of

  default      10 s up to 300 s
  reduced      1 s up to 60 s, as with ReduceDefaultCrashLoopBackOffDecay
  4s           the default with crashLoopBackOff.maxContainerRestartPeriod: 4s
  250ms/1m     an initial delay and a maximum, also one that a kubelet does not support
  FILE         the curve of a KubeletConfiguration

Excess is the difference from the first curve. All containers exit as --exit says, with
a LIFE as in 'crashloop plan'. With --outage the containers run, except that a SHARE
of them fails for LENGTH, beginning at FROM. With --fail only a share of the containers
fails, from the start; instances that start after --recover run like the others.

A restart costs what was measured (docs/results/plan.md) unless a flag says otherwise.
With a budget, the command looks for the lowest maximum that stays within it.

Exit status: 0 the plan was printed; 1 the output cannot be written or no maximum stays
within the budget; 2 wrong usage; 3 a configuration is invalid or cannot be read.`,
		Example: `  # a node full of failing pods, with three maxima
  crashloop plan fleet --curve default --curve 60s --curve 10s -o html > report.html

  # a service that all pods need is down for 20 minutes
  crashloop plan fleet --curve default --curve reduced --exit '1@exp(5s)' --outage 10m,20m

  # the lowest maximum for 100 nodes that keeps them below 2000 requests per second
  crashloop plan fleet --nodes 100 --budget-requests 2000 --budget-cpu 50%`,
		DisableFlagsInUseLine: true,
		Args:                  cobra.NoArgs,
		ValidArgsFunction:     cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(o.outages) > 0 && !cmd.Flags().Changed("fail") {
				o.Fail = 0
			}
			// Unset flags mean "never" and "no budget". An explicit 0 would mean the opposite.
			for name, zero := range map[string]bool{"recover": o.Recover == 0, "budget-requests": o.requests == 0, "budget-cpu": o.cpu == 0} {
				if zero && cmd.Flags().Changed(name) {
					return fmt.Errorf("--%s must be more than 0", name)
				}
			}
			if o.Recover > 0 && o.Fail == 0 {
				return errors.New("--recover is for the share of --fail, which is 0: set --fail, or leave --recover out")
			}
			if cmd.Flags().Changed("budget-window") && o.requests == 0 && o.cpu == 0 {
				return errors.New("--budget-window needs --budget-requests or --budget-cpu")
			}
			return o.run(cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&o.curves, "curve", nil, "a curve to compare; the excess is counted from the first (default \"default\")")
	gatesFlag(flags, &o.gates)
	flags.IntVar(&o.Nodes, "nodes", 1, "the number of nodes")
	flags.IntVar(&o.Pods, "pods", 110, "the number of pods of a node")
	flags.IntVar(&o.Containers, "containers", 1, "the number of containers of a pod")
	flags.StringVar(&o.exit, "exit", "1@10s", "the exits of a container that fails; the last LIFE repeats")
	share(flags, &o.Fail, "fail", 1, "the share of the containers that fail from the start (default 0 with --outage)")
	share(flags, &o.Succeed, "succeed", 0, "the share of these exits that have code 0")
	flags.StringVar(&o.policy, "restart-policy", string(v1.RestartPolicyAlways), "Always, or OnFailure: containers that exit with 0 are not restarted")
	Duration(flags, &o.Recover, "recover", 0, "the time after which containers of --fail no longer fail when they start (default never)")
	flags.StringArrayVar(&o.outages, "outage", nil, "an outage of a dependency: its start, its length, and the share of the containers that fail")
	Duration(flags, &o.Stagger, "stagger", 0, "the time within which all containers start (default all at once)")
	Duration(flags, &o.For, "for", time.Hour, "the simulated time")
	flags.Uint64Var(&o.Seed, "seed", 1, "the seed of random times: the same seed gives the same plan")
	flags.Float64Var(&o.RequestsPerRestart, "requests-per-restart", o.RequestsPerRestart, "the API requests of a restart, without those for events")
	flags.IntVar(&o.EventsPerRestart, "events-per-restart", o.EventsPerRestart, "the events of a restart, one of them BackOff; of a pod 25 of each type are sent, and then one in 5m")
	flags.Float64Var(&o.RequestLimit, "request-limit", o.RequestLimit, "the maximum number of API requests without events that a kubelet sends per second (kubeAPIQPS); 0 means no limit")
	flags.Float64Var(&o.EventLimit, "event-limit", o.EventLimit, "the maximum number of requests for events that a kubelet sends per second (eventRecordQPS); 0 means no limit")
	Duration(flags, &o.CPUPerRestart, "cpu-per-restart", o.CPUPerRestart, "the processor time of the kubelet for a restart, without its requests")
	Duration(flags, &o.CPUPerRequest, "cpu-per-request", o.CPUPerRequest, "the processor time of the kubelet for an API request")
	share(flags, &o.CPUIdle, "cpu-idle", o.CPUIdle, "the processors that a kubelet needs without restarts")
	Duration(flags, &o.APIServerCPUPerRequest, "apiserver-cpu-per-request", o.APIServerCPUPerRequest, "the processor time of the API server for an API request")
	perSecond(flags, &o.requests, "budget-requests", "the maximum number of API requests per second of all nodes")
	usage.Var(flags, &o.cpu, "budget-cpu", "SHARE", "", "the maximum processor time that a kubelet uses, as a share of one processor", parseProcessors)
	Duration(flags, &o.window, "budget-window", 5*time.Minute, "the time over which a budget is averaged")
	usage.Output(cmd, &o.format, formats)
	Duration(flags, &o.step, "step", 0, "the time from one row to the next (default about a dozen rows)")
	usage.Name(cmd, map[string]string{
		"curve": "[NAME=]CURVE", "feature-gates": "GATE=true|false,...", "nodes": "N", "pods": "N", "containers": "N", "exit": "LIFE,...",
		"restart-policy": "POLICY", "recover": "AFTER", "outage": "FROM,LENGTH[,SHARE]", "seed": "N",
		"requests-per-restart": "N", "events-per-restart": "N", "request-limit": "N", "event-limit": "N",
	})
	return cmd
}

// run simulates the fleet and writes the outputs.
func (o *fleetOptions) run(stdout, stderr io.Writer) error {
	warnings, err := o.parse()
	if err != nil {
		return err
	}
	// Report all errors in the input before the simulation, which may take hours.
	if err := o.Validate(); err != nil {
		return err
	}
	if err := report.CheckStep(o.step, o.For); err != nil {
		return err
	}
	budget := fleet.Budget{Requests: o.requests, CPU: o.cpu, Window: o.window}
	wanted := budget.Requests != 0 || budget.CPU != 0
	var candidates []fleet.Curve
	if wanted {
		if candidates, err = maxima(o.gates); err != nil {
			return err
		}
		if err := budget.Validate(&o.Options, candidates); err != nil {
			return err
		}
	}
	for _, w := range warnings {
		fmt.Fprintf(stderr, "warning: %s\n", w)
	}
	bar := newProgress(stderr)
	result, err := fleet.Run(o.Options, bar.note)
	bar.end()
	if err != nil {
		return err
	}
	var rec *fleet.Recommendation
	if wanted {
		if rec, err = fleet.Recommend(o.Options, budget, candidates); err != nil {
			return err
		}
	}
	if err := writeReport(stdout, o.format, report.New(result, rec, o.step), result); err != nil {
		return err
	}
	if rec != nil && rec.Best == nil {
		return &Failure{Err: errors.New("no maximum is within the budget")}
	}
	return nil
}

// parse fills the options from the flags, and returns warnings about the configuration files.
func (o *fleetOptions) parse() (warnings []string, err error) {
	if o.Lives, err = plan.ParseLives(o.exit); err != nil {
		return nil, fmt.Errorf("--exit: %w", err)
	}
	if o.Policy, err = parsePolicy(o.policy); err != nil {
		return nil, err
	}
	for _, text := range o.outages {
		out, err := parseOutage(text)
		if err != nil {
			return nil, err
		}
		o.Outages = append(o.Outages, out)
	}
	if len(o.curves) == 0 {
		o.curves = []string{"default"}
	}
	for _, text := range o.curves {
		name, source, err := parseCurve(text)
		if err == nil && utf8.RuneCountInString(name) > longestName {
			err = fmt.Errorf("the name must have at most %d characters: use NAME=FILE", longestName)
		}
		if err != nil {
			return nil, fmt.Errorf("--curve %q: %w", text, err)
		}
		curve, odd, err := source.curve(o.gates)
		if f := (*Failure)(nil); errors.As(err, &f) {
			f.Err = fmt.Errorf("--curve %s: %w", name, f.Err)
			return nil, f
		}
		o.Curves = append(o.Curves, fleet.Curve{Name: name, Curve: curve})
		warnings = append(warnings, odd...)
	}
	return warnings, nil
}

// longestName is the maximum number of characters in the name of a curve.
const longestName = 60
