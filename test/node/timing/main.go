// SPDX-License-Identifier: Apache-2.0

// Command timing measures on a real node how late a kubelet restarts a crash-looping
// container, and compares two kubelets: the stock one and ours, or, to measure a
// change, two of ours.
//
//	go run ./timing timing --stock KUBELET --ours KUBELET --apiserver KUBE_APISERVER
//	go run ./timing timing --base KUBELET --ours KUBELET --rounds 3 --only max1s,api5 --apiserver KUBE_APISERVER
//	go run ./timing run --kubelet KUBELET --scenario max1s [--apiserver KUBE_APISERVER]
//
// Run it in the folder test/node. Package node describes what it needs.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/kubelet-backoff/kubelet-backoff/internal/chart"
	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
)

var began = time.Now()

var errCriteria = errors.New("some criteria do not hold")

const usage = `usage:
  timing timing --stock KUBELET|--base KUBELET --ours KUBELET --apiserver KUBE_APISERVER
                [--apiserver-patched KUBE_APISERVER]
                [--only LIST | --short] [--rounds N] [--seconds N] [--runtime NAME] [--work DIR] [--keep] [-o text|json]
  timing run --kubelet KUBELET --scenario NAME [--apiserver KUBE_APISERVER]
                [--seconds N] [--runtime NAME] [--work DIR] [--keep] [-o text|json]
`

func main() {
	if len(os.Args) < 2 {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	var err error
	switch name := os.Args[1]; name {
	case nodeCommand:
		err = nodeMain(os.Stdin, os.Stdout)
	case "timing", "run":
		ctx, stop := harness.Interruptible()
		err = execute(ctx, name, os.Args[2:], os.Stdout)
		stop()
	default:
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	harness.Exit("node-timing", err)
}

// options are the flags of both commands.
type options struct {
	stock, base, ours, kubelet, apiserver, patched, runtime, only, work, format, record, svg string
	seconds, rounds                                                                          int
	short, keep                                                                              bool
}

func execute(ctx context.Context, command string, args []string, out io.Writer) (err error) {
	var o options
	f := flag.NewFlagSet(command, flag.ContinueOnError)
	f.StringVar(&o.apiserver, "apiserver", "", "the kube-apiserver `binary`; the api scenarios need it")
	f.StringVar(&o.patched, "apiserver-patched", "", "the patched kube-apiserver `binary`; restartcsi needs it")
	f.StringVar(&o.runtime, "runtime", harness.DefaultRuntime, "the container `runtime`: containerd (with runc), crio (with crun) or crio-runc")
	f.StringVar(&o.work, "work", "", "the `folder` for binaries, state and logs (default: _output/node of the repository)")
	f.IntVar(&o.seconds, "seconds", 0, "measure for `N` seconds instead of the scenario's own time")
	f.BoolVar(&o.keep, "keep", false, "keep the logs even if nothing fails")
	f.StringVar(&o.format, "o", "text", "the output `format`: text or json")
	if command == "timing" {
		f.StringVar(&o.stock, "stock", "", "the unpatched kubelet `binary`")
		f.StringVar(&o.base, "base", "", "another patched kubelet `binary`, as the reference instead of an unpatched one")
		f.IntVar(&o.rounds, "rounds", 1, "run each scenario `N` times with each kubelet, and combine the results")
		f.StringVar(&o.ours, "ours", "", "the patched kubelet `binary`")
		f.StringVar(&o.only, "only", "", "run only these scenarios, a comma-separated `list` (default: all)")
		f.BoolVar(&o.short, "short", false, "run only max1s, default up to 40 s and api5, less than a minute each: the form for older releases")
		f.StringVar(&o.svg, "svg", "", "draw the waits of the scenarios max1s and default to this `file`")
		f.StringVar(&o.record, "record", "", "the `program` that stores the result for the matrix of releases")
	} else {
		f.StringVar(&o.kubelet, "kubelet", "", "the kubelet `binary`")
		f.StringVar(&o.only, "scenario", "max1s", "the `scenario`, or a comma-separated list")
	}
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("%s takes no argument, but got %q", command, f.Arg(0))
	}
	if o.format != "text" && o.format != "json" {
		return fmt.Errorf("-o %q: the formats are text and json", o.format)
	}
	if o.seconds < 0 {
		return fmt.Errorf("--seconds %d: must not be negative", o.seconds)
	}
	if command == "timing" && o.rounds < 1 {
		return fmt.Errorf("--rounds %d: must be positive", o.rounds)
	}
	if o.stock != "" && o.base != "" {
		return errors.New("--stock and --base exclude each other")
	}
	if o.short && (o.only != "" || o.seconds > 0) {
		return errors.New("--short excludes --only and --seconds")
	}
	selected, err := selectScenarios(o.only, time.Duration(o.seconds)*time.Second)
	if err != nil {
		return err
	}
	details := ""
	if o.short {
		selected, details = short(), "short form"
	}
	programs := []harness.Program{{Flag: "--kubelet", Path: &o.kubelet}}
	if command == "timing" {
		programs = []harness.Program{{Flag: "--stock", Path: &o.stock}, {Flag: "--ours", Path: &o.ours}}
		if o.base != "" {
			programs[0] = harness.Program{Flag: "--base", Path: &o.base}
		}
	}
	api := slices.ContainsFunc(selected, func(s Scenario) bool { return s.API })
	if api {
		programs = append(programs, harness.Program{Flag: "--apiserver", Path: &o.apiserver})
	}
	if slices.ContainsFunc(selected, func(s Scenario) bool { return s.API && s.Action == harness.ActionRestartPod }) {
		programs = append(programs, harness.Program{Flag: "--apiserver-patched", Path: &o.patched})
	}
	h, err := harness.NewHarness(ctx, o.work, programs, harness.Needs{Runtime: o.runtime, APIServer: api})
	if err != nil {
		return err
	}
	h.Keep = o.keep
	defer func() {
		err = errors.Join(err, h.Check(os.Stderr))
		err = errors.Join(err, harness.Record(ctx, o.record, "node-timing", err == nil, details))
		harness.Progress("done after %v", time.Since(began).Round(time.Second))
	}()
	if command == "timing" {
		return timing(ctx, h, o, selected, out)
	}
	return single(ctx, h, o, selected, out)
}

// timing compares two kubelets. Each scenario runs with one right after the other, so
// that the machine is in a similar state for both. Every other round reverses the
// order.
func timing(ctx context.Context, h *harness.Harness, o options, selected []Scenario, out io.Writer) error {
	var all []Comparison
	var charts []chart.Chart
	hasMaximum := true
	if o.base == "" {
		var err error
		if hasMaximum, err = harness.Knows(ctx, o.stock, harness.GateMaximum); err != nil {
			return err
		}
	}
	for i, s := range selected {
		harness.Progress("scenario %d of %d, %s: %v", i+1, len(selected), s.Name, s)
		reference := subject{stockLabel, o.stock, s.forStock(hasMaximum), nil}
		if o.base != "" {
			reference = subject{baseLabel, o.base, s, nil}
		}
		if s.Maximum > 0 && !hasMaximum {
			harness.Progress("%s: stock has no maximum, so it uses the default curve", s.Name)
		}
		ours := subject{"ours", o.ours, s, nil}
		for round := range o.rounds {
			both := []*subject{&reference, &ours}
			if round%2 == 1 {
				slices.Reverse(both)
			}
			for _, subject := range both {
				if err := subject.run(ctx, h, o); err != nil {
					return err
				}
			}
		}
		referenceFigures, err := measure(reference.runs, reference.scenario)
		if err != nil {
			return err
		}
		oursFigures, err := measure(ours.runs, s)
		if err != nil {
			return err
		}
		c := compare(s, reference.label, referenceFigures, oursFigures)
		all = append(all, c)
		if slices.Contains(pictured, s.Name) {
			charts = append(charts, lateChart(s, reference, ours))
		}
		if o.format == "text" {
			printComparison(out, c)
		}
	}
	if o.format == "json" {
		if err := printJSON(out, all); err != nil {
			return err
		}
	} else {
		printVerdict(out, all)
	}
	if o.svg != "" && len(charts) > 0 {
		if err := os.WriteFile(o.svg, chart.SVG(charts...), 0o644); err != nil {
			return err
		}
	}
	if !passed(all) {
		return errCriteria
	}
	return nil
}

// subject is a kubelet to measure, with its runs so far.
type subject struct {
	label, kubelet string
	scenario       Scenario
	runs           []Run
}

// run runs the scenario once more with the kubelet.
func (s *subject) run(ctx context.Context, h *harness.Harness, o options) error {
	run, err := observe(ctx, h, o, s.scenario, s.label, s.kubelet)
	if err != nil {
		return err
	}
	f, err := measure([]Run{run}, s.scenario)
	if err != nil {
		return fmt.Errorf("%s, %s: %w", s.scenario.Name, s.label, err)
	}
	harness.Progress("%s, %s: %s", s.scenario.Name, s.label, f.summary(s.scenario))
	s.runs = append(s.runs, run)
	return nil
}

// single measures one kubelet.
func single(ctx context.Context, h *harness.Harness, o options, selected []Scenario, out io.Writer) error {
	type result struct {
		Scenario Scenario `json:"scenario"`
		Figures  Figures  `json:"figures"`
	}
	var all []result
	for _, s := range selected {
		subject := subject{"kubelet", o.kubelet, s, nil}
		if err := subject.run(ctx, h, o); err != nil {
			return err
		}
		f, err := measure(subject.runs, s)
		if err != nil {
			return err
		}
		all = append(all, result{s, f})
		if o.format == "text" {
			printFigures(out, s, f)
		}
	}
	if o.format == "json" {
		return printJSON(out, all)
	}
	return nil
}

// observe runs a node that measures a scenario, and returns its result.
func observe(ctx context.Context, h *harness.Harness, o options, s Scenario, label, kubelet string) (run Run, err error) {
	sp := harness.Spec{Kubelet: kubelet, APIServer: o.apiserver, Runtime: o.runtime, Network: s.Network}
	if s.Action == harness.ActionRestartPod && s.API {
		sp.APIServer = o.patched
	}
	if sp.Task, err = json.Marshal(task{label, s}); err != nil {
		return run, err
	}
	var out bytes.Buffer
	if err := h.Run(ctx, s.Name+", "+label, sp, &out, nodeCommand); err != nil {
		return run, err
	}
	if err := json.Unmarshal(out.Bytes(), &run); err != nil {
		return run, fmt.Errorf("%s, %s: result of the node: %w", s.Name, label, err)
	}
	return run, nil
}
