// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/kubelet-backoff/kubelet-backoff/agent/kubeletconfig"
	"github.com/kubelet-backoff/kubelet-backoff/backoff"
	"github.com/kubelet-backoff/kubelet-backoff/config"
	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/fleet/cli"
	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/text"
	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/usage"
	"github.com/kubelet-backoff/kubelet-backoff/validation"
)

// configOptions are the flags for the configuration of a kubelet.
type configOptions struct {
	file         string
	dir          string
	curve        cli.Source
	featureGates map[string]bool
}

type checkOptions struct {
	configOptions
	manifestFlags
	output string
}

func newCheckCommand() *cobra.Command {
	var o checkOptions
	cmd := &cobra.Command{
		Use:   "check [--config FILE] [--config-dir DIR] [--curve CURVE] [--feature-gates GATES] [-o FORMAT] [-f FILE|DIR|-] [-R] [MANIFEST ...]",
		Short: "Print the restart back-off of a kubelet's configuration and the restart rules of pods",
		Long: `Print the container restart back-off of a kubelet of this project: the initial
delay, the maximum, the source of each, and all delays. If a start fails after
something was created (create, run, postStart error), the attempt counts as an
exit. If nothing was created (CreateContainerConfigError: a ConfigMap or Secret is
missing), the container is retried after 10 to 15 s and the delay does not grow.

The file, the drop-ins and the feature gates are read as the kubelet reads them
when it starts with the same three flags. Only settings about restarts are checked.
A setting that the kubelet rejects is an error. A setting that it accepts but
ignores, such as an unknown field, is a warning.

For each pod and each pod template in the manifests it prints the result of each
exit code of each container, from the restart policy, the restart rules and the
feature gates. restartPolicy and restartPolicyRules are validated as by an API
server with the same feature gates; in addition, exit codes must exist and be
unique. Names, volumes, hooks, probes and the other fields that 'crashloop run'
uses must be valid too. Nothing else of the objects is checked, not even which
restart policy their kind requires. A manifest is a file with one or more objects,
a directory with such files, or - for stdin. A file without pods is a warning.

Exit status: 0 valid, possibly with warnings; 1 the output could not be written;
2 wrong usage; 3 a manifest or the configuration is invalid or cannot be read.`,
		Example: `  # a node with the default configuration
  crashloop check

  # the configuration of a kubeadm node
  crashloop check --config /var/lib/kubelet/config.yaml --config-dir /etc/kubernetes/kubelet.conf.d

  # the effect of a feature gate, for a script
  crashloop check --feature-gates ReduceDefaultCrashLoopBackOffDecay=true -o json

  # the results of the exit codes of the containers of these pods
  crashloop check --feature-gates RestartPodOnContainerExits=true pod.yaml job.yaml
  kubectl get pods -o yaml | crashloop check -`,
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     completeManifests,
		RunE: func(cmd *cobra.Command, manifests []string) error {
			return check(o, o.list(manifests), cmd.InOrStdin()).write(cmd.OutOrStdout(), o.output)
		},
	}
	addConfigFlags(cmd, &o.configOptions)
	addManifestFlags(cmd, &o.manifestFlags)
	usage.Output(cmd, &o.output, outputFormats())
	return cmd
}

func addConfigFlags(cmd *cobra.Command, o *configOptions) {
	known := kubeletconfig.NewFeatureGate().KnownFeatures()
	flags := cmd.Flags()
	flags.StringVar(&o.file, "config", "", "the KubeletConfiguration, as the kubelet's --config")
	flags.StringVar(&o.dir, "config-dir", "", "the drop-in directory, as the kubelet's --config-dir")
	flags.Var(cliflag.NewMapStringBool(&o.featureGates), "feature-gates",
		"feature gates, as the kubelet's --feature-gates; they override those of the files\nOther names are ignored, unless they look like a misspelling of one of these:\n"+strings.Join(known, "\n"))
	usage.Var(flags, &o.curve, "curve", "CURVE", "", "a curve in place of --config and --config-dir, as in 'crashloop plan fleet': default, reduced, 4s, 250ms/1m or a file", cli.ParseCurve)
	cmd.MarkFlagsMutuallyExclusive("curve", "config")
	cmd.MarkFlagsMutuallyExclusive("curve", "config-dir")
	usage.Name(cmd, map[string]string{"config": "FILE", "config-dir": "DIR", "feature-gates": "GATE=true|false,..."})
	cobra.CheckErr(cmd.RegisterFlagCompletionFunc("feature-gates", completeGates(known)))
	cobra.CheckErr(cmd.MarkFlagFilename("config", "yaml", "yml", "json"))
	cobra.CheckErr(cmd.MarkFlagDirname("config-dir"))
}

func completeManifests(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return []cobra.Completion{"yaml", "yml", "json"}, cobra.ShellCompDirectiveFilterFileExt
}

// completeGates completes the last gate of a list. known has the form of KnownFeatures:
// NAME=true|false and more.
func completeGates(known []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
		before := toComplete[:strings.LastIndex(toComplete, ",")+1]
		var completions []cobra.Completion
		for _, gate := range known {
			name, _, _ := strings.Cut(gate, "=")
			completions = append(completions, before+name+"=true", before+name+"=false")
		}
		return completions, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}

// askedGates has the patch of each gate that the default series does not have.
var askedGates = map[string]string{
	config.KubeletRestartAtAnnotation:      "restartat",
	config.KubeletMaxRestartsAnnotation:    "maxrestarts",
	config.KubeletRestartBackOffAnnotation: "curves",
}

// report is the output of check. Scripts read its JSON form: later versions may add
// fields; they do not rename or remove any.
type report struct {
	Valid bool `json:"valid"`
	// Curve is missing if the configuration is not valid.
	Curve *curveReport `json:"curve,omitempty"`
	curve backoff.Curve
	// FeatureGates is missing if the gates are not valid.
	FeatureGates []kubeletconfig.Gate `json:"featureGates,omitempty"`
	// Pods lists the pods of the manifests, except those that are invalid with all
	// feature gates. It is missing if the configuration is not valid.
	Pods []podReport `json:"pods,omitempty"`
	issues
}

type curveReport struct {
	Initial valueReport `json:"initial"`
	Maximum valueReport `json:"maximum"`
	// Delays lists the delays of the first restarts, counted from the exit. The last
	// delay repeats.
	Delays []metav1.Duration `json:"delays"`
}

type valueReport struct {
	Value  metav1.Duration `json:"value"`
	Reason config.Reason   `json:"reason"`
	// Source is the file that sets maxContainerRestartPeriod, if that is the reason of
	// the value.
	Source kubeletconfig.Source `json:"source,omitzero"`
}

// issueReport is a warning or an error.
type issueReport struct {
	File string `json:"file,omitempty"`
	// Object is the kind, namespace and name of an object in a manifest.
	Object   string `json:"object,omitempty"`
	Field    string `json:"field,omitempty"`
	BadValue any    `json:"badValue,omitempty"`
	Detail   string `json:"detail"`
	// text is the whole issue on one line.
	text string
}

func check(o checkOptions, manifests []string, stdin io.Reader) *report {
	r := &report{}
	c := r.addConfig(o.curve, o.load)
	if c == nil {
		for _, file := range manifests {
			r.Warnings = append(r.Warnings, newIssue(manifestName(file), "", "", "skipped: the configuration is not valid"))
		}
	} else {
		r.warnOfConfig(c)
		pods, _ := r.readWorkloads(manifests, stdin)
		for _, p := range pods {
			r.addPod(p, c.FeatureGate)
			r.warnOfAnnotations(p, c.FeatureGate)
		}
	}
	r.Valid = len(r.Errors) == 0
	return r
}

// write writes the report. It returns an error if the report is not valid.
func (r *report) write(w io.Writer, format string) error {
	if err := writers[format](w, r); err != nil || r.Valid {
		return failed(err)
	}
	return exitError(exitRefused)
}

func (o configOptions) load() (*kubeletconfig.Config, error) {
	source := o.curve
	if source.File == "" {
		source.File = o.file
	}
	return source.Load(o.dir, o.featureGates)
}

// addConfig adds the curve, gates, warnings and errors of the configuration that load
// returns. source is the value of --curve. addConfig returns nil if the configuration is
// not valid.
func (r *report) addConfig(source cli.Source, load func() (*kubeletconfig.Config, error)) *kubeletconfig.Config {
	c, err := load()
	for _, w := range c.Warnings {
		r.Warnings = append(r.Warnings, newIssue(w.File, "", w.Field, w.Detail))
	}
	if err != nil {
		r.addErrors(err)
		return nil
	}
	r.FeatureGates = c.Gates
	path := field.NewPath("crashLoopBackOff")
	for _, w := range validation.WarningsForCrashLoopBackOff(c.Settings, path) {
		file := ""
		if w.Field != "" {
			file = c.MaxSource.File
		}
		r.Warnings = append(r.Warnings, newIssue(file, "", w.Field, w.Detail))
	}
	if errs := validation.ValidateCrashLoopBackOff(c.Settings, path); len(errs) > 0 {
		for _, err := range errs {
			r.addErrors(&kubeletconfig.Error{File: c.MaxSource.File, Err: err})
		}
		return nil
	}
	curve, err := source.Resolve(c)
	if err != nil {
		r.Errors = append(r.Errors, newIssue("", "", "--curve", err.Error()))
		return nil
	}
	r.curve = curve.Curve
	r.Curve = &curveReport{
		Initial: valueReport{Value: metav1.Duration{Duration: curve.Initial}, Reason: curve.InitialReason},
		Maximum: valueReport{Value: metav1.Duration{Duration: curve.Max}, Reason: curve.MaxReason},
	}
	if curve.MaxReason == config.ReasonPerNodeMaximum {
		r.Curve.Maximum.Source = c.MaxSource
	}
	for _, d := range curve.Delays() {
		r.Curve.Delays = append(r.Curve.Delays, metav1.Duration{Duration: d})
	}
	return c
}

// warnOfConfig warns of what other kubelets, or all of them, do not accept.
func (r *report) warnOfConfig(c *kubeletconfig.Config) {
	for _, g := range c.Gates {
		if patch := askedGates[string(g.Name)]; patch != "" && g.SetBy == g.Name {
			r.Warnings = append(r.Warnings, newIssue(g.Source.File, "", "featureGates", string(g.Name)+": a kubelet without the optional patch "+patch+" (SERIES=all) does not start with this gate"))
		}
	}
	if !isOfKubelet(r.curve) {
		r.Warnings = append(r.Warnings, newIssue("", "", "--curve", fmt.Sprintf("%s/%s: no kubelet has this curve: the maximum is from %s to %s, and the initial delay %s, %s, or the maximum if that is shorter",
			text.Seconds(r.curve.Initial), text.Seconds(r.curve.Max), text.Seconds(config.LeastMaxContainerRestartPeriod), text.Seconds(config.GreatestMaxContainerRestartPeriod),
			text.Seconds(config.DefaultInitial), text.Seconds(config.ReducedInitial))))
	}
}

// isOfKubelet reports whether a configuration of a kubelet has the curve.
func isOfKubelet(c backoff.Curve) bool {
	return c.Max >= config.LeastMaxContainerRestartPeriod && c.Max <= config.GreatestMaxContainerRestartPeriod &&
		(c.Initial == min(config.DefaultInitial, c.Max) || c.Initial == min(config.ReducedInitial, c.Max))
}

// addErrors adds an error of a configuration, or all errors of an aggregate.
func (r *report) addErrors(err error) {
	list := []error{err}
	if agg := utilerrors.Aggregate(nil); errors.As(err, &agg) {
		list = agg.Errors()
	}
	for _, err := range list {
		file, detail := "", err
		var fileErr *kubeletconfig.Error
		if errors.As(err, &fileErr) {
			file, detail = fileErr.File, fileErr.Err
		}
		issue := newErrorIssue(file, "", detail)
		issue.text = text.Printable(err.Error()) // The error names --feature-gates if there is no file.
		r.Errors = append(r.Errors, issue)
	}
}

// newIssue returns an issue. Every argument except the detail may be empty.
func newIssue(file, object, field, detail string) issueReport {
	parts := slices.DeleteFunc([]string{file, object, field, detail}, func(s string) bool { return s == "" })
	return issueReport{File: file, Object: object, Field: field, Detail: detail, text: text.Printable(strings.Join(parts, ": "))}
}

// newErrorIssue returns the issue of an error, with the field of a field.Error.
func newErrorIssue(file, object string, err error) issueReport {
	var fieldErr *field.Error
	if !errors.As(err, &fieldErr) {
		return newIssue(file, object, "", err.Error())
	}
	issue := newIssue(file, object, fieldErr.Field, fieldErr.ErrorBody())
	if _, omit := fieldErr.BadValue.(field.OmitValueType); !omit && fieldErr.Type != field.ErrorTypeRequired && fieldErr.Type != field.ErrorTypeForbidden {
		issue.BadValue = fieldErr.BadValue // Those two types have no value.
	}
	return issue
}
