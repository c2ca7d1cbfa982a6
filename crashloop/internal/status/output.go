// SPDX-License-Identifier: Apache-2.0

package status

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/text"
)

// WriteTable writes the report for people. Lines have at most 100 columns, except for a
// long source.
func WriteTable(w io.Writer, r *Report) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "RESTARTS in %s", text.Printable(r.Source))
	if r.KubeletStarted != nil {
		fmt.Fprintf(&b, ", since the kubelet started at %s", r.KubeletStarted.Format(time.RFC3339))
	}
	b.WriteString("\n")
	tab := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	waiting := "unknown"
	if r.WaitingContainers != nil {
		waiting = strconv.FormatUint(*r.WaitingContainers, 10)
	}
	fmt.Fprintf(tab, "  waiting\t%s\tcontainers in CrashLoopBackOff now\n", waiting)
	fmt.Fprintf(tab, "  restarts\t%d\tof containers and of pods\n", r.Restarts)
	if r.RestartLimitExceededPods != nil {
		fmt.Fprintf(tab, "  given up\t%d\tpods that max-restarts annotations have ended\n", *r.RestartLimitExceededPods)
	}
	tab.Flush()

	for _, rows := range [][][]string{
		backOffRows(r.BackOffs), delayRows(r.BackOffs), outcomeRows(r.InPlaceRestarts), phaseRows(r.InPlaceRestarts), askedRows(r.RestartAtAnnotations),
	} {
		if len(rows) == 1 { // Only the header.
			continue
		}
		fmt.Fprintf(tab, "\n%s\n", strings.Join(rows[0], "\t"))
		for _, row := range rows[1:] {
			fmt.Fprintln(tab, "  "+strings.Join(row, "\t"))
		}
		tab.Flush()
	}
	_, err := w.Write(b.Bytes())
	return err
}

func backOffRows(backOffs []backOffStatus) [][]string {
	rows := [][]string{{"BACK-OFF", "RESTARTS", "RESETS", "KEYS", "LATENESS P50", "P99", "MAX"}}
	for _, s := range backOffs {
		rows = append(rows, append([]string{s.Type, number(s.Restarts), number(s.Resets), number(s.Keys)}, quantiles(s.Lateness)...))
	}
	return rows
}

// delayRows returns a row for each bucket that is not empty, with a column for each
// back-off.
func delayRows(backOffs []backOffStatus) [][]string {
	header := []string{"DELAY UP TO"}
	counts := map[bound][]uint64{}
	for i, s := range backOffs {
		header = append(header, strings.ToUpper(s.Type))
		for _, bucket := range s.Delays.Buckets {
			if counts[bucket.UpTo] == nil {
				counts[bucket.UpTo] = make([]uint64, len(backOffs))
			}
			counts[bucket.UpTo][i] = bucket.Count
		}
	}
	bounds := slices.SortedFunc(maps.Keys(counts), func(a, b bound) int {
		switch {
		case a.Seconds < b.Seconds || a.Seconds == b.Seconds && b.Above:
			return -1
		default:
			return 1
		}
	})
	rows := [][]string{header}
	for _, upTo := range bounds {
		row := []string{upTo.String()}
		for _, n := range counts[upTo] {
			row = append(row, number(n))
		}
		rows = append(rows, row)
	}
	return rows
}

// askedRows returns a row for each outcome of restart-at annotations.
func askedRows(outcomes map[string]uint64) [][]string {
	rows := [][]string{{"RESTART-AT ANNOTATIONS", "COUNT"}}
	for _, outcome := range slices.Sorted(maps.Keys(outcomes)) {
		rows = append(rows, []string{outcome, number(outcomes[outcome])})
	}
	return rows
}

// outcomeRows returns a row for each action, with a column for each outcome: the known ones
// and any others in the metrics.
func outcomeRows(inPlace []inPlaceStatus) [][]string {
	outcomes := []string{"Restarted", "Failed", "Deleted", "TriggeredAgain"}
	others := sets.New[string]()
	for _, s := range inPlace {
		others = others.Union(sets.KeySet(s.Outcomes))
	}
	outcomes = append(outcomes, sets.List(others.Delete(outcomes...))...)
	rows := [][]string{{"IN-PLACE POD RESTARTS BY"}}
	for _, outcome := range outcomes {
		rows[0] = append(rows[0], strings.ToUpper(outcome))
	}
	for _, s := range inPlace {
		row := []string{s.Action}
		for _, outcome := range outcomes {
			row = append(row, number(s.Outcomes[outcome]))
		}
		rows = append(rows, row)
	}
	return rows
}

func phaseRows(inPlace []inPlaceStatus) [][]string {
	rows := [][]string{{"ACTION", "PHASE", "COUNT", "DURATION P50", "P99", "MAX"}}
	for _, s := range inPlace {
		for _, p := range s.Phases {
			rows = append(rows, append([]string{s.Action, p.Phase, number(p.Duration.Count)}, quantiles(p.Duration)...))
		}
	}
	return rows
}

// quantiles returns the columns P50, P99 and MAX of a distribution.
func quantiles(d distribution) []string {
	if d.Count == 0 {
		return []string{"-", "-", "-"}
	}
	maximum := d.Max.String()
	if !d.Max.Above {
		maximum = "<= " + maximum
	}
	return []string{d.P50.String(), d.P99.String(), maximum}
}

func number(n uint64) string { return strconv.FormatUint(n, 10) }

// String formats the duration with three significant digits.
func (b bound) String() string {
	value, unit := b.Seconds, "s"
	if value != 0 && value < 1 {
		value, unit = value*1000, "ms"
	}
	text := strconv.FormatFloat(value, 'g', 3, 64)
	if value >= 1000 {
		text = strconv.FormatFloat(value, 'f', 0, 64)
	}
	if b.Above {
		return "> " + text + unit
	}
	return text + unit
}
