// SPDX-License-Identifier: Apache-2.0

// Command load measures the cost of restarts on a full node: pods crash at a maximum
// of a second, with a real kubelet, kube-apiserver and etcd, and a runtime that keeps
// its containers in memory. It compares two kubelets: the stock one and ours, or two
// of ours.
//
//	go run ./load --stock KUBELET --ours KUBELET --apiserver KUBE_APISERVER
//	go run ./load --base KUBELET --ours KUBELET --apiserver KUBE_APISERVER --only all-fail --pods 110 --profile DIR
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
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kubelet-backoff/kubelet-backoff/test/node/harness"
	"github.com/kubelet-backoff/kubelet-backoff/test/node/memcri"
)

var began = time.Now()

func main() {
	var err error
	switch {
	case len(os.Args) == 2 && os.Args[1] == nodeCommand:
		err = nodeMain(os.Stdin, os.Stdout)
	case len(os.Args) > 1 && os.Args[1] == runtimeCommand:
		err = memcri.Main(os.Args[2:])
	default:
		ctx, stop := harness.Interruptible()
		err = execute(ctx, os.Args[1:], os.Stdout)
		stop()
	}
	harness.Exit("node-load", err)
}

// options are the flags.
type options struct {
	stock, base, ours, jittered, apiserver, patched string
	only, pods, gates                               string
	work, sources, format, profile, report, svg     string
	seconds, outage, rounds                         int
	scenario                                        Scenario
	runtime                                         memcri.Options
	keep                                            bool
}

func (o *options) flags() *flag.FlagSet {
	f := flag.NewFlagSet("load", flag.ContinueOnError)
	f.StringVar(&o.stock, "stock", "", "the unpatched kubelet `binary`")
	f.StringVar(&o.base, "base", "", "another patched kubelet `binary`, as the reference instead of an unpatched one")
	f.StringVar(&o.ours, "ours", "", "the patched kubelet `binary`")
	f.StringVar(&o.jittered, "jittered", "", "the patched kubelet `binary` with jitter in its back-off, only for the mix dependency")
	f.StringVar(&o.apiserver, "apiserver", "", "the kube-apiserver `binary`")
	f.StringVar(&o.patched, "apiserver-patched", "", "the patched kube-apiserver `binary`, which the mix restartpod needs")
	f.StringVar(&o.only, "only", "", "run only these mixes, a comma-separated `list`; a number of pods may follow a name, as in all-fail/30")
	f.StringVar(&o.pods, "pods", "", "run each mix with these numbers of pods, a comma-separated `list` (default: 110, and all-fail with 30 and 500 too)")
	f.StringVar(&o.gates, "gates", "", "set these feature gates of our kubelets, a comma-separated `list` such as A=true,B=false; with the same binary for --base, this measures the gates")
	f.IntVar(&o.seconds, "seconds", 30, "measure for `N` seconds")
	f.IntVar(&o.rounds, "rounds", 1, "run each scenario `N` times with each kubelet in turn, and take the median of each figure")
	f.IntVar(&o.outage, "outage", 30, "let the dependency be down for `N` seconds; with the default curve, use 300")
	f.IntVar(&o.scenario.Nodes, "nodes", 1, "share the pods among `N` nodes, each with a kubelet and a runtime; figures of kubelets are the sums")
	f.DurationVar(&o.scenario.Maximum, "maximum", time.Second, "the `maximum` of the back-off")
	f.BoolVar(&o.scenario.Reduced, "reduced", false, "reduce the first delay to a second; with --maximum 60s this is upstream's reduced curve")
	f.DurationVar(&o.scenario.Life, "life", 20*time.Millisecond, "how `long` a failing container runs")
	f.BoolVar(&o.scenario.Network, "network", false, "give the pods a network of their own, with the plugins bridge and host-local")
	f.StringVar(&o.profile, "profile", "", "write profiles of each kubelet to this `folder`; they cover a time after the window, but block profiling is on all the time")
	f.StringVar(&o.sources, "sources", "", "the `folder` test/node of the repository, from which network plugins are built (default: the current folder)")
	f.StringVar(&o.work, "work", "", "the `folder` for state and logs (default: _output/node of the repository)")
	f.BoolVar(&o.keep, "keep", false, "keep the logs even if nothing fails")
	f.StringVar(&o.report, "report", "", "write a report in Markdown to this `file`, such as load.md, and one in JSON beside it")
	f.StringVar(&o.svg, "svg", "", "draw charts in this `folder`")
	f.StringVar(&o.format, "o", "text", "the output `format`: text or json")
	o.runtime.Flags(f)
	return f
}

func execute(ctx context.Context, args []string, out io.Writer) (err error) {
	var o options
	f := o.flags()
	if err := f.Parse(args); err != nil {
		return err
	}
	switch {
	case f.NArg() > 0:
		return fmt.Errorf("load takes no argument, but got %q", f.Arg(0))
	case o.format != "text" && o.format != "json":
		return fmt.Errorf("-o %q: the formats are text and json", o.format)
	case o.seconds < 1:
		return fmt.Errorf("--seconds %d: must be positive", o.seconds)
	case o.scenario.Nodes < 1 || o.scenario.Nodes > harness.MaxKubelets:
		return fmt.Errorf("--nodes %d: must be from 1 to %d", o.scenario.Nodes, harness.MaxKubelets)
	case o.rounds < 1:
		return fmt.Errorf("--rounds %d: must be positive", o.rounds)
	case o.outage < 1:
		return fmt.Errorf("--outage %d: must be positive", o.outage)
	case o.stock != "" && o.base != "":
		return errors.New("--stock and --base exclude each other")
	}
	for _, path := range []*string{&o.profile, &o.report, &o.svg, &o.work, &o.stock, &o.base, &o.ours, &o.jittered, &o.apiserver, &o.patched} {
		if *path == "" {
			continue
		}
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
	}
	if _, err := gateLines(o.gates); err != nil {
		return err
	}
	o.scenario.Window = time.Duration(o.seconds) * time.Second
	selected, err := selectScenarios(o.only, o.pods, o.scenario, time.Duration(o.outage)*time.Second)
	if err != nil {
		return err
	}
	programs := []harness.Program{{Flag: "--apiserver", Path: &o.apiserver}}
	var subjects []subject
	for _, s := range []struct {
		label, flag string
		path        *string
	}{{"stock", "--stock", &o.stock}, {"base", "--base", &o.base}, {patched, "--ours", &o.ours}, {jittered, "--jittered", &o.jittered}} {
		if *s.path != "" {
			programs = append(programs, harness.Program{Flag: s.flag, Path: s.path})
			subjects = append(subjects, subject{s.label, s.path})
		}
	}
	if len(subjects) == 0 {
		return errors.New("no kubelet: set --stock, --base, --ours or --jittered")
	}
	if o.patched != "" {
		programs = append(programs, harness.Program{Flag: "--apiserver-patched", Path: &o.patched})
	}
	if err := harness.CheckInotify(o.scenario.Nodes * kubeletInotify); err != nil {
		return fmt.Errorf("--nodes %d: %w", o.scenario.Nodes, err)
	}
	needs := harness.Needs{APIServer: true}
	if o.sources != "" {
		if err := os.Chdir(o.sources); err != nil {
			return fmt.Errorf("--sources: %w", err)
		}
	}
	if o.scenario.Network {
		// The network plugins are built with it.
		needs.Runtime = harness.DefaultRuntime
	}
	h, err := harness.NewHarness(ctx, o.work, programs, needs)
	if err != nil {
		return err
	}
	h.Keep = o.keep
	defer func() {
		err = errors.Join(err, h.Check(os.Stderr))
		harness.Progress("done after %v", time.Since(began).Round(time.Second))
	}()
	report := Report{Command: command(f), Runtime: o.runtime, Versions: map[string]string{}}
	if report.Machine, err = machine(ctx, o.apiserver); err != nil {
		return err
	}
	return report.run(ctx, h, o, subjects, selected, out)
}

// paths are the flags with paths of this machine, which do not affect the measurement.
var paths = []string{"stock", "base", "ours", "jittered", "apiserver", "apiserver-patched", "work", "sources", "report", "svg", "profile", "keep", "o"}

// command returns the command that repeats the measurement.
func command(f *flag.FlagSet) string {
	var args []string
	f.Visit(func(f *flag.Flag) {
		if !slices.Contains(paths, f.Name) {
			arg := "--" + f.Name
			// A boolean flag takes its value only after "=".
			if b, ok := f.Value.(interface{ IsBoolFlag() bool }); !ok || !b.IsBoolFlag() {
				arg += " " + f.Value.String()
			} else if f.Value.String() != "true" {
				arg += "=" + f.Value.String()
			}
			args = append(args, arg)
		}
	})
	if len(args) == 0 {
		return "make node-load"
	}
	return "hack/node-load.sh " + strings.Join(args, " ")
}

// subject is a kubelet that is measured.
type subject struct {
	label string
	path  *string
}

// patched is the label of our kubelet in figures, and jittered that of ours with jitter.
const (
	patched  = "patched"
	jittered = "jittered"
)

// runs reports whether to measure the kubelet with a scenario. Jitter is for pods that
// fail once at the same instant; it does not spread pods that fail all the time.
func (k subject) runs(s Scenario) bool { return k.label != jittered || s.Mix == onDependent }

// run runs each scenario with one kubelet right after the other, so that the machine
// is in a similar state for both. Every other round reverses the order.
func (report *Report) run(ctx context.Context, h *harness.Harness, o options, subjects []subject, selected []Scenario, out io.Writer) error {
	for i, s := range selected {
		subjects := slices.DeleteFunc(slices.Clone(subjects), func(k subject) bool { return !k.runs(s) })
		if len(subjects) == 0 {
			return fmt.Errorf("%s: no given kubelet runs this scenario", s.name())
		}
		harness.Progress("scenario %d of %d, %s: %v", i+1, len(selected), s.name(), s)
		r := Result{Name: s.name(), Scenario: s, Figures: map[string]Figures{}}
		rounds := map[string][]Figures{}
		for round := range o.rounds {
			order := slices.Clone(subjects)
			if round%2 == 1 {
				slices.Reverse(order)
			}
			for _, subject := range order {
				f, err := subject.measure(ctx, h, o, s)
				if err != nil {
					return err
				}
				rounds[subject.label] = append(rounds[subject.label], f)
			}
		}
		for _, subject := range subjects {
			r.Labels = append(r.Labels, subject.label)
			r.Figures[subject.label] = median(rounds[subject.label])
			report.Versions[subject.label] = r.Figures[subject.label].Version
			if other := subject.scenario(s); other.Action != s.Action {
				r.Note = fmt.Sprintf("%s does not have %s. It runs %s instead, which has no back-off there.", subject.label, s.Action, other.Action)
			}
		}
		r.Goals = r.goals()
		report.Results = append(report.Results, r)
		if o.format == "text" {
			r.print(out)
		}
	}
	if o.format == "json" {
		if err := printJSON(out, report); err != nil {
			return err
		}
	}
	return report.write(o)
}

// scenario returns the form of a scenario that the kubelet can run.
func (k subject) scenario(s Scenario) Scenario {
	if k.label == "stock" {
		return s.forStock()
	}
	return s
}

// measure runs a scenario once with the kubelet.
func (k subject) measure(ctx context.Context, h *harness.Harness, o options, s Scenario) (Figures, error) {
	s = k.scenario(s)
	run, err := observe(ctx, h, o, s, k)
	if err != nil {
		return Figures{}, err
	}
	f, err := measure(run, s)
	if err != nil {
		return Figures{}, fmt.Errorf("%s, %s: %w", s.name(), k.label, err)
	}
	harness.Progress("%s, %s: %s", s.name(), k.label, f.summary())
	return f, nil
}

// write draws the charts and writes the report, if the flags say so.
func (report *Report) write(o options) error {
	var pictures []string
	if o.svg != "" {
		files, err := writeCharts(o.svg, report.Results)
		if err != nil {
			return err
		}
		for _, f := range files {
			pictures = append(pictures, relative(o.report, f))
		}
	}
	if o.report == "" {
		return nil
	}
	var text bytes.Buffer
	report.markdown(&text, pictures)
	var figures bytes.Buffer
	if err := printJSON(&figures, report); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(o.report), 0o755); err != nil {
		return err
	}
	beside := strings.TrimSuffix(o.report, filepath.Ext(o.report)) + ".json"
	return errors.Join(os.WriteFile(o.report, text.Bytes(), 0o644), os.WriteFile(beside, figures.Bytes(), 0o644))
}

// observe runs a node that measures a scenario, and returns its result.
func observe(ctx context.Context, h *harness.Harness, o options, s Scenario, kubelet subject) (run Run, err error) {
	sp := harness.Spec{Kubelet: *kubelet.path, APIServer: o.apiserver, Network: s.Network}
	if s.Action == harness.ActionRestartPod {
		sp.APIServer = o.patched
	}
	t := task{Label: kubelet.label, Scenario: s, Runtime: o.runtime, Profile: o.profile}
	if kubelet.label == patched || kubelet.label == jittered {
		t.Gates = o.gates
	}
	if sp.Task, err = json.Marshal(t); err != nil {
		return run, err
	}
	var out bytes.Buffer
	title := fmt.Sprintf("%s-%d, %s", s.Mix, s.Pods, kubelet.label)
	if err := h.Run(ctx, title, sp, &out, nodeCommand); err != nil {
		return run, err
	}
	if err := json.Unmarshal(out.Bytes(), &run); err != nil {
		return run, fmt.Errorf("%s: result of the node: %w", title, err)
	}
	return run, nil
}
