// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubelet-backoff/kubelet-backoff/agent/kubeletconfig"
	"github.com/kubelet-backoff/kubelet-backoff/backoff"
	"github.com/kubelet-backoff/kubelet-backoff/config"
	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/text"
)

const (
	outputJSON  = "json"
	outputTable = "table"
)

// writers maps the output formats of check to their functions.
var writers = map[string]func(io.Writer, *report) error{
	outputTable: writeTable,
	outputJSON:  func(w io.Writer, r *report) error { return text.WriteJSON(w, "  ", r) },
	"yaml":      writeYAML,
}

func outputFormats() []string { return slices.Sorted(maps.Keys(writers)) }

func writeYAML(w io.Writer, r *report) error {
	data, err := yaml.Marshal(r)
	if err != nil {
		return err
	}
	_, err = w.Write(data)
	return err
}

// delays returns the delays as text. The last one repeats.
func delays(list []metav1.Duration) string {
	var all []string
	for _, d := range append(slices.Clone(list), list[len(list)-1]) {
		all = append(all, text.Seconds(d.Duration))
	}
	return strings.Join(all, ", ") + " …"
}

// writeTable writes the report for people. Lines have at most 100 columns, except for
// long paths.
func writeTable(w io.Writer, r *report) error {
	var b bytes.Buffer
	if r.Curve != nil {
		initial, maximum := r.Curve.Initial, r.Curve.Maximum
		b.WriteString("CONTAINER RESTART BACK-OFF\n")
		tab := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		fmt.Fprintf(tab, "  initial\t%s\t%s\n", text.Seconds(initial.Value.Duration), because(initial))
		fmt.Fprintf(tab, "  maximum\t%s\t%s\n", text.Seconds(maximum.Value.Duration), because(maximum))
		tab.Flush()
		fmt.Fprintf(&b, "  delays   %s from each exit\n", delays(r.Curve.Delays))
		fmt.Fprintf(&b, "  reset    after a run of more than %v min\n", backoff.ContainerResetPeriod.Minutes())
	} else {
		b.WriteString("INVALID: the kubelet does not start with this configuration\n")
		writeIssues(&b, "ERRORS", r.Errors)
	}
	if len(r.FeatureGates) > 0 {
		b.WriteString("\n")
		tab := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		fmt.Fprintln(tab, "FEATURE GATE\tSTAGE\tVALUE\tSET BY")
		for _, g := range r.FeatureGates {
			fmt.Fprintf(tab, "  %s\t%s\t%t\t%s\n", g.Name, g.Stage, g.Enabled, setBy(g))
		}
		tab.Flush()
	}
	for _, pod := range r.Pods {
		writePod(&b, pod)
	}
	writeIssues(&b, "WARNINGS", r.Warnings)
	if r.Curve != nil {
		writeIssues(&b, "ERRORS", r.Errors)
	}
	_, err := w.Write(b.Bytes())
	return err
}

// because describes the reason for a value of the curve.
func because(v valueReport) string {
	switch v.Reason {
	case config.ReasonDefault:
		return "default"
	case config.ReasonReducedDecay:
		return "feature gate " + string(config.ReduceDefaultCrashLoopBackOffDecay)
	case config.ReasonPerNodeMaximum:
		return "maxContainerRestartPeriod" + in(v.Source)
	case config.ReasonClamped:
		return "lowered to the maximum"
	default:
		return string(v.Reason)
	}
}

// in names the source of a value, as the end of a sentence.
func in(s kubeletconfig.Source) string {
	switch s.Kind {
	case "":
		return ""
	case kubeletconfig.SourceFlag:
		return " in --feature-gates"
	default:
		return " in " + text.Printable(s.File)
	}
}

// setBy describes the source of a gate's value.
func setBy(g kubeletconfig.Gate) string {
	switch {
	case g.SetBy == "":
		return "default"
	case g.SetBy != g.Name:
		return string(g.SetBy) + in(g.Source)
	default:
		return strings.TrimPrefix(in(g.Source), " in ")
	}
}

// issueWriter writes issues that are not in a report, as lines or as JSON objects.
type issueWriter struct {
	w      io.Writer
	format string
}

func (w issueWriter) write(severity string, issue issueReport) {
	if w.format != outputJSON {
		fmt.Fprintf(w.w, "%s: %s\n", severity, issue.text)
		return
	}
	text.WriteJSON(w.w, "", struct {
		Severity string `json:"severity"`
		issueReport
	}{severity, issue})
}

func (w issueWriter) error(text string) { w.write("error", newIssue("", "", "", text)) }

func writeIssues(b *bytes.Buffer, title string, issues []issueReport) {
	if len(issues) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s\n", title)
	for _, issue := range issues {
		line := "  -"
		for _, word := range strings.Fields(issue.text) {
			if columns := utf8.RuneCountInString(line); columns > 4 && columns+1+utf8.RuneCountInString(word) > 100 {
				b.WriteString(line + "\n")
				line = "   "
			}
			line += " " + word
		}
		b.WriteString(line + "\n")
	}
}
