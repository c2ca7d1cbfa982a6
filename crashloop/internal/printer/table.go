// SPDX-License-Identifier: Apache-2.0

package printer

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kubelet-backoff/kubelet-backoff/agent"
	"github.com/kubelet-backoff/kubelet-backoff/crashloop/internal/text"
	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

// screen keeps a table below the lines that scroll.
type screen struct {
	// drawn are the lines of the table on the terminal. The cursor is on the row below
	// them.
	drawn []string
}

// draw returns the bytes that replace the table on the terminal with the lines and the new
// table. It returns nil if nothing changes.
func (s *screen) draw(lines []byte, table []string, columns int) []byte {
	if len(lines) == 0 && slices.Equal(table, s.drawn) {
		return nil
	}
	var b bytes.Buffer
	// If the terminal has become narrower, it has wrapped the long lines.
	rows := 0
	for _, line := range s.drawn {
		rows += max(1, (columnsOf(line)+columns-1)/columns)
	}
	if rows > 0 {
		fmt.Fprintf(&b, "\r\x1b[%dA\x1b[J", rows) // Move to the first column, move up, and erase to the end.
	}
	b.Write(lines)
	for _, line := range table {
		b.WriteString(line + "\n")
	}
	s.drawn = table
	return b.Bytes()
}

type tableRow struct {
	// rank orders rows by importance if not all fit. 0 is the most important.
	rank int
	text string
}

// table returns the lines of the table: one for each pod, then one for each container. No
// line is wider than columns. A quarter of the rows remains for the lines that scroll.
func (p *Printer) table(now time.Time, columns, rows int) []string {
	limit := max(1, rows-1-rows/4) // The cursor has its own row.
	var pods []tableRow
	var statuses []agent.ContainerStatus
	var names []string
	for _, pod := range p.pods {
		s := p.statuses[pod]
		pods = append(pods, p.podRow(pod, s, now))
		for _, c := range s.Containers {
			statuses = append(statuses, c)
			name := c.Name
			if len(p.pods) > 1 {
				name = p.label(pod, c.Name)
			}
			names = append(names, name)
		}
	}
	podLimit := limit
	if len(statuses) > 0 && limit >= 4 {
		podLimit = max(1, limit/2)
	}
	lines := fit(pods, podLimit, "pods")
	if left := limit - len(lines); len(statuses) > 0 && left >= 2 {
		header, containers := containerRows(names, statuses, now)
		widest := columnsOf(header)
		for _, row := range containers {
			widest = max(widest, columnsOf(row.text))
		}
		if widest > columns {
			// The columns on the right are more important, so the names are cut first.
			names = shorten(names, widest-columns)
			header, containers = containerRows(names, statuses, now)
		}
		lines = append(append(lines, header), fit(containers, left-1, "containers")...)
	}
	for i, line := range lines {
		lines[i] = cut(line, columns)
	}
	return lines
}

// shorten cuts all names to the width of the longest name minus columns, but not below 8.
func shorten(names []string, columns int) []string {
	longest := 0
	for _, name := range names {
		longest = max(longest, columnsOf(name))
	}
	short := make([]string, len(names))
	for i, name := range names {
		short[i] = cut(name, max(longest-columns, 8))
	}
	return short
}

// fit returns at most limit lines: all rows, or the most important rows and the number of
// the others.
func fit(rows []tableRow, limit int, what string) []string {
	more := 0
	if len(rows) > limit {
		rows = slices.Clone(rows)
		slices.SortStableFunc(rows, func(a, b tableRow) int { return a.rank - b.rank })
		more = len(rows) - limit + 1
		rows = rows[:limit-1]
	}
	var lines []string
	for _, row := range rows {
		lines = append(lines, row.text)
	}
	if more > 0 {
		lines = append(lines, fmt.Sprintf("… and %d more %s", more, what))
	}
	return lines
}

func (p *Printer) podRow(pod *v1.Pod, s agent.Status, now time.Time) tableRow {
	phase := string(s.Phase)
	switch {
	case ended(s.Phase):
	case s.Terminating:
		phase = "Terminating" // As kubectl shows it.
	case phase == "":
		phase = string(v1.PodPending)
	}
	parts := []string{"Pod " + p.podName(pod), phase, s.Reason}
	rank := 2
	for _, c := range s.Conditions {
		if c.Status == v1.ConditionTrue && (c.Type == restartpod.PodRestarting || c.Type == v1.AllContainersRestarting) {
			parts = append(parts, string(c.Type))
			rank = 1
		}
	}
	if n := s.Restarts.Count; n > 0 {
		parts = append(parts, fmt.Sprintf("restarts %d", n))
	}
	if !s.RetryAt.IsZero() {
		parts = append(parts, "next restart "+countdown(s.RetryAt, now))
	}
	switch {
	case s.Phase == v1.PodFailed || !s.RetryAt.IsZero():
		rank = 0
	case s.Phase == v1.PodSucceeded:
		rank = 3
	}
	return tableRow{rank, joinNonEmpty("  ", parts...)}
}

// containerRows returns a header and a row for each container. It leaves out the column
// KIND if all are regular containers.
func containerRows(names []string, statuses []agent.ContainerStatus, now time.Time) (string, []tableRow) {
	kinds := slices.ContainsFunc(statuses, func(c agent.ContainerStatus) bool { return c.Kind != restartpod.KindRegular })
	var b bytes.Buffer
	tab := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	kind := ""
	if kinds {
		kind = "KIND\t"
	}
	fmt.Fprintf(tab, "CONTAINER\t%sSTATE\tRESTARTS\tLAST EXIT\tNEXT RESTART\n", kind)
	for i, c := range statuses {
		if kinds {
			kind = string(c.Kind) + "\t"
		}
		exit, next := "", ""
		if e := c.LastExit; e != nil {
			exit = strconv.Itoa(int(e.ExitCode))
			if !e.FinishedAt.IsZero() {
				exit += fmt.Sprintf(" (%s ago)", duration.HumanDuration(max(0, now.Sub(e.FinishedAt.Time))))
			}
		}
		if !c.RetryAt.IsZero() {
			next = countdown(c.RetryAt, now)
		}
		fmt.Fprintf(tab, "%s\t%s%s\t%d\t%s\t%s\n", names[i], kind, text.Printable(stateOf(c.State)), c.Restarts.Count, exit, next)
	}
	tab.Flush()
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	rows := make([]tableRow, len(statuses))
	for i, c := range statuses {
		rows[i] = tableRow{rankOf(c), strings.TrimRight(lines[i+1], " ")}
	}
	return lines[0], rows
}

// stateOf returns the state as kubectl shows it.
func stateOf(s v1.ContainerState) string {
	switch {
	case s.Running != nil:
		return "Running"
	case s.Terminated != nil:
		return s.Terminated.Reason
	case s.Waiting != nil && s.Waiting.Reason != "":
		return s.Waiting.Reason
	default:
		return "Waiting"
	}
}

// rankOf returns the rank of a container: failed and waiting containers are the most
// important, and succeeded containers the least.
func rankOf(c agent.ContainerStatus) int {
	switch t := c.State.Terminated; {
	case !c.RetryAt.IsZero(), t != nil && t.ExitCode != 0:
		return 0
	case c.State.Running != nil:
		return 2
	case t != nil:
		return 3
	default:
		return 1
	}
}

// countdown rounds up to seconds, so that it reaches zero when the wait ends.
func countdown(to, now time.Time) string {
	left := to.Sub(now)
	if left <= 0 {
		return "now"
	}
	return "in " + duration.HumanDuration((left + time.Second - 1).Truncate(time.Second))
}

// cut shortens a line to the columns. A shortened line ends with ….
func cut(line string, columns int) string {
	if runes := []rune(line); len(runes) > columns {
		return string(runes[:columns-1]) + "…"
	}
	return line
}

// columnsOf returns the columns of a line. It has names and reasons, which are ASCII, and ….
func columnsOf(s string) int { return utf8.RuneCountInString(s) }
