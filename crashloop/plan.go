// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubelet-backoff/kubelet-backoff/agent/kubeletconfig"
	"github.com/kubelet-backoff/kubelet-backoff/agent/podspec"
	"github.com/kubelet-backoff/kubelet-backoff/asked"
	"github.com/kubelet-backoff/kubelet-backoff/config"
	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/fleet/cli"
	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/plan"
	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/text"
	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/usage"
)

type planOptions struct {
	configOptions
	manifestFlags
	exits, recovers []string
	length          time.Duration
	at, restartAt   string
	seed            uint64
	output          string
	// ofNode is true if the configuration is that of a node, which says if it is patched.
	ofNode bool
}

func newPlanCommand() *cobra.Command {
	var o planOptions
	cmd := &cobra.Command{
		Use:   "plan [--config FILE] [--config-dir DIR] [--curve CURVE] [--feature-gates GATES] [--exit NAME=LIFE[,LIFE...]]... [--recover NAME=AFTER]... [--at TIME] [--restart-at TIME] [--for DURATION] [--seed N] [-o FORMAT] [-f FILE|DIR|-] [-R] MANIFEST ...",
		Short: "Print when the containers of a pod will be restarted",
		Long: `Print the future starts, exits, waits and restarts of the pods in the manifests,
and of pods from their pod templates, and the resets of the back-off after a run
of more than ten minutes. If a pod has a status, as in the output of kubectl get
pod -o yaml, the plan continues from it: the first line has the time of the next
restart. A manifest is a file with one or more objects, a directory with such
files, or - for stdin. A file without pods is a warning if another file has one.

No container is run. The code of 'crashloop run' and of a patched kubelet decides
in virtual time. A container starts at once, and probes and hooks succeed. No
container handles SIGTERM: one that is stopped goes on until it exits or its grace
period ends, which is exit code 137. --exit is a list of the runs of a container.
The last LIFE repeats:

  1@5s               exits with 1 after five seconds
  1@exp(30s)         exits with 1 after an exponentially distributed time with a mean of 30 s
  0@uniform(1m,2m)   exits with 0 after one to two minutes
  runs               does not exit

With --recover, an instance that starts after that time does not exit. Without
--exit, a container that has exited before repeats its last run; in a pod that
never ran, init containers succeed and the first container fails, each after a
second. --restart-at shows what the annotation that ends a wait would do.

Exit status: 0 the plan was printed; 1 it could not be written; 2 wrong usage;
3 a manifest, a status or the configuration is invalid.`,
		Example: `  # a container that fails after three seconds each time
  crashloop plan --exit main=1@3s pod.yaml

  # the same container, with a dependency that recovers after twelve minutes
  crashloop plan --exit main=1@3s --recover main=12m pod.yaml

  # the next restart of a pod in a cluster
  kubectl get pod NAME -o yaml | crashloop plan -`,
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     completeManifests,
		RunE: func(cmd *cobra.Command, manifests []string) error {
			manifests = o.list(manifests)
			if len(manifests) == 0 {
				return errors.New("no MANIFEST: name a file or a directory, or - for stdin")
			}
			read := func(r *report, file string, visit visitObject) { r.readManifest(file, cmd.InOrStdin(), visit) }
			return planPods(o, o.load, manifests, read, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	addPlanFlags(cmd, &o)
	addManifestFlags(cmd, &o.manifestFlags)
	cmd.AddCommand(cli.NewFleet())
	return cmd
}

// addPlanFlags adds the flags of a plan, except those for manifests.
func addPlanFlags(cmd *cobra.Command, o *planOptions) {
	addConfigFlags(cmd, &o.configOptions)
	flags := cmd.Flags()
	flags.StringArrayVar(&o.exits, "exit", nil, "the runs of a container")
	flags.StringArrayVar(&o.recovers, "recover", nil, "the time after which new instances of a container do not exit")
	cli.Duration(flags, &o.length, "for", time.Hour, "the length of the plan")
	flags.StringVar(&o.at, "at", "", "the start of the plan, in RFC 3339 format (default now)")
	flags.StringVar(&o.restartAt, "restart-at", "", "plan as if the pods had the annotation "+asked.RestartAtAnnotation+" with this time, and the gate for it were on: in RFC 3339 format, or a time after the start of the plan, such as 5m")
	flags.Uint64Var(&o.seed, "seed", 1, "the seed of random times: the same seed gives the same plan")
	usage.Output(cmd, &o.output, []string{outputJSON, outputTable})
	usage.Name(cmd, map[string]string{"exit": "NAME=LIFE,...", "recover": "NAME=AFTER", "at": "TIME", "restart-at": "TIME", "seed": "N"})
}

// patchedKubelet is the note on a plan with a wait or a restart of the pod. Without those,
// a stock kubelet does the same.
const patchedKubelet = "the plan assumes a patched kubelet: a stock one restarts later, and has no RestartPod"

// podPlan is the plan of a pod in the JSON output.
type podPlan struct {
	File   string `json:"file"`
	Object string `json:"object"`
	*plan.Plan
}

// planPods plans the pods that read finds in the manifests, with the configuration that load
// returns. If planPods returns an exitError, it has written the errors.
func planPods(o planOptions, load func() (*kubeletconfig.Config, error), manifests []string, read manifestReader, stdout, stderr io.Writer) error {
	begin := time.Now()
	if o.at != "" {
		var err error
		if begin, err = time.Parse(time.RFC3339, o.at); err != nil {
			return fmt.Errorf("--at %q must be a time such as 2026-01-01T12:00:00Z", o.at)
		}
		// A status has no times up to 1970, and JSON has no times after 9999.
		if y := begin.Year(); y < 1971 || y > 9000 {
			return fmt.Errorf("--at %q must be a time from 1971 to 9000", o.at)
		}
	}
	if o.length <= 0 || o.length > plan.Longest {
		return fmt.Errorf("--for %v must be more than 0s and at most %v", o.length, plan.Longest)
	}
	exits, err := parseNamed("--exit", o.exits, plan.ParseLives)
	if err != nil {
		return err
	}
	recovers, err := parseNamed("--recover", o.recovers, func(text string) (time.Duration, error) {
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 || d > plan.Longest {
			return 0, fmt.Errorf("%q must be a duration from 0s to %v, such as 12m", text, plan.Longest)
		}
		return d, nil
	})
	if err != nil {
		return err
	}
	begin = begin.Truncate(time.Second)
	if d, err := time.ParseDuration(o.restartAt); err == nil {
		o.restartAt = begin.Add(d).UTC().Format(time.RFC3339)
	} else if _, err := time.Parse(time.RFC3339, o.restartAt); err != nil && o.restartAt != "" {
		return fmt.Errorf("--restart-at %q must be a time such as 2026-01-01T12:00:00Z, or a duration such as 5m", o.restartAt)
	}
	r := &report{}
	c := r.addConfig(o.curve, load)
	var plans []podPlan
	if c != nil {
		r.addGatesNotHonored("crashloop plan", c.FeatureGate)
		plans = r.addPlans(manifests, read, o.restartAt, plan.Options{
			RestartAt:   o.restartAt != "" || asks(c.FeatureGate, config.KubeletRestartAtAnnotation),
			MaxRestarts: asks(c.FeatureGate, config.KubeletMaxRestartsAnnotation),
			Curves:      asks(c.FeatureGate, config.KubeletRestartBackOffAnnotation),
			Gates:       restartGates(c.FeatureGate), Curve: r.curve,
			Lives: exits, Recovers: recovers, Begin: begin, For: o.length, Seed: o.seed,
		})
	}
	if !r.logIssues(issueWriter{stderr, o.output}) {
		return exitError(exitRefused)
	}
	for _, p := range plans {
		if !o.ofNode && slices.ContainsFunc(p.Entries, func(e plan.Entry) bool { return e.Kind == plan.PodRestart || e.Until != nil }) {
			p.Notes = append(p.Notes, patchedKubelet)
		}
	}
	return failed(writePlans(stdout, o.output, plans))
}

// parseNamed parses the values NAME=VALUE of a flag.
func parseNamed[V any](flag string, values []string, parse func(string) (V, error)) (map[string]V, error) {
	named := map[string]V{}
	for _, text := range values {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("%s %q must be NAME=VALUE, with the name of a container", flag, text)
		}
		if _, ok := named[name]; ok {
			return nil, fmt.Errorf("%s %q: already set for %q", flag, text, name)
		}
		v, err := parse(value)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", flag, name, err)
		}
		named[name] = v
	}
	return named, nil
}

// manifestReader visits the objects in a manifest. It adds errors to the report.
type manifestReader func(r *report, manifest string, visit visitObject)

// addPlans returns the plans of the pods and pod templates in the manifests. It adds their errors
// to the report. A restartAt is the value of the annotation of all of them.
func (r *report) addPlans(manifests []string, read manifestReader, restartAt string, o plan.Options) (plans []podPlan) {
	known := map[string]bool{}
	var without []issueReport
	o.Cost = &plan.Cost{}
	tooLong := false
	for _, file := range manifests {
		errs := len(r.Errors)
		found := false
		read(r, file, func(file, name string, _ runtime.Object, pod *v1.Pod, path *field.Path) {
			if pod == nil {
				return
			}
			if found = true; tooLong {
				return
			}
			m := podManifest{file: file, object: name, path: path, pod: pod}
			if restartAt != "" {
				metav1.SetMetaDataAnnotation(&pod.ObjectMeta, asked.RestartAtAnnotation, restartAt)
			}
			if _, errs := m.validate(o.Gates, podspec.Support{}); len(errs) > 0 {
				for _, err := range errs {
					r.Errors = append(r.Errors, m.newErrorIssue(err))
				}
				return
			}
			o.Pod = pod
			p, err := plan.Make(o)
			if err != nil {
				tooLong = errors.Is(err, plan.ErrTooLong)
				r.Errors = append(r.Errors, newErrorIssue(file, name, err))
				return
			}
			for _, c := range p.Containers {
				known[c.Name] = true
			}
			plans = append(plans, podPlan{file, name, p})
		})
		if !found && len(r.Errors) == errs {
			without = append(without, newIssue(manifestName(file), "", "", noPod))
		}
	}
	if len(plans)+len(r.Errors) == 0 {
		r.Errors = without
	} else {
		r.Warnings = append(r.Warnings, without...)
	}
	if len(r.Errors) == 0 {
		r.checkContainers("--exit", maps.Keys(o.Lives), known)
		r.checkContainers("--recover", maps.Keys(o.Recovers), known)
	}
	return plans
}

// checkContainers adds an error for each unknown container that a flag names.
func (r *report) checkContainers(flag string, names iter.Seq[string], known map[string]bool) {
	for _, name := range slices.Sorted(names) {
		if !known[name] {
			r.Errors = append(r.Errors, newIssue("", "", flag,
				fmt.Sprintf("no pod has a container %q: must be one of %s", name, strings.Join(slices.Sorted(maps.Keys(known)), ", "))))
		}
	}
}

func writePlans(w io.Writer, format string, plans []podPlan) error {
	var b bytes.Buffer
	for i, p := range plans {
		if format == outputJSON {
			data, err := json.Marshal(p)
			if err != nil {
				return err
			}
			b.Write(append(data, '\n'))
			continue
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		writePlan(&b, p)
	}
	_, err := w.Write(b.Bytes())
	return err
}

func writePlan(b *bytes.Buffer, p podPlan) {
	fmt.Fprintf(b, "%s in %s: %s\n", text.Printable(p.Object), text.Printable(manifestName(p.File)), nextRestart(p.Plan))
	for _, name := range slices.Sorted(maps.Keys(p.Assumed)) {
		fmt.Fprintf(b, "assumed: --exit %s=%s\n", text.Cell(name), p.Assumed[name])
	}
	for _, note := range p.Notes {
		fmt.Fprintf(b, "note: %s\n", text.Printable(note))
	}
	tab := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, "TIME\tAFTER\tCONTAINER\tEVENT")
	for _, e := range p.Entries {
		fmt.Fprintf(tab, "%s\t%s\t%s\t%s\n", at(p.Plan, e.Time), short(e.Time.Sub(p.Begin)), text.Cell(e.Container), describe(p.Plan, e))
	}
	tab.Flush()
	length := p.End.Sub(p.Begin)
	for _, s := range p.Containers {
		if s.Restarts > 0 {
			restarts := "restarts"
			if s.Restarts == 1 {
				restarts = "restart"
			}
			fmt.Fprintf(b, "%s: %d %s in %s, down for %.1f%% of the time\n", text.Cell(s.Name), s.Restarts, restarts, short(length), 100*s.DownSeconds/length.Seconds())
		}
	}
}

// at formats a time of the plan in seconds, with the date if the plan is a day or longer.
func at(p *plan.Plan, t time.Time) string {
	t = t.Round(time.Second)
	if p.End.Sub(p.Begin) >= 24*time.Hour {
		return t.Format(time.DateTime)
	}
	return t.Format(time.TimeOnly)
}

// nextRestart describes the first restart of the plan. It may be after the end of the plan,
// at the end of a wait.
func nextRestart(p *plan.Plan) string {
	next := plan.Entry{}
	for _, e := range p.Entries {
		if e.Kind == plan.Start && e.Restarts > 0 {
			next = e
			break
		}
		if e.Until != nil && (next.Time.IsZero() || e.Until.Before(next.Time)) {
			next.Time = *e.Until
		} else if e.Kind == plan.PodEnd {
			next.Time = time.Time{}
		}
	}
	if next.Time.IsZero() {
		return "no restart in " + short(p.End.Sub(p.Begin))
	}
	in := "now"
	if d := next.Time.Sub(p.Begin); d > 0 {
		in = "in " + short(d)
	}
	return fmt.Sprintf("next restart at %s, %s%s", at(p, next.Time), in, condition(next))
}

// condition describes the condition of a start, as the end of a sentence.
func condition(e plan.Entry) string {
	if e.Message == "" {
		return ""
	}
	return ", " + text.Printable(e.Message)
}

func describe(p *plan.Plan, e plan.Entry) string {
	switch e.Kind {
	case plan.Start:
		if e.Restarts > 0 {
			return fmt.Sprintf("starts, restart %d%s", e.Restarts, condition(e))
		}
		return "starts" + condition(e)
	case plan.Exit:
		return fmt.Sprintf("exits with code %d after %s", *e.ExitCode, short(time.Duration(e.RanSeconds*float64(time.Second))))
	case plan.Wait, plan.PodWait:
		return fmt.Sprintf("waits until %s, back-off %s", at(p, *e.Until), short(time.Duration(e.DelaySeconds*float64(time.Second))))
	case plan.Reset:
		return "ran for more than ten minutes: the back-off starts over"
	case plan.PodRestart:
		return "the pod is restarted: " + text.Printable(e.Message)
	}
	return cmp.Or(text.Printable(e.Message), string(e.Kind))
}

// short formats a duration in tenths of a second.
func short(d time.Duration) string { return d.Round(100 * time.Millisecond).String() }
