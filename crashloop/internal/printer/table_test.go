// SPDX-License-Identifier: Apache-2.0

package printer

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubelet-backoff/kubelet-backoff/agent"
	"github.com/kubelet-backoff/kubelet-backoff/restartpod"
)

// terminal is the part of a terminal that a printer needs. It wraps lines, also when it
// becomes narrower, and keeps the rows that have scrolled off the top. An unknown
// sequence fails the test.
type terminal struct {
	t             *testing.T
	columns, rows int
	// grid has a string for each column; the second one of a wide character is
	// empty.
	grid        []gridRow
	row, column int
	writes      int
}

type gridRow struct {
	cells []string
	// continues is true if the line continues in the next row.
	continues bool
}

func newTerminal(t *testing.T, columns, rows int) *terminal {
	return &terminal{t: t, columns: columns, rows: rows, grid: make([]gridRow, 1)}
}

func (s *terminal) size() (int, int) { return s.columns, s.rows }

var cursorUp = regexp.MustCompile(`^\x1b\[(\d+)A`)

func (s *terminal) Write(p []byte) (int, error) {
	s.writes++
	text := string(p)
	require.True(s.t, utf8.ValidString(text), "%q", text)
	for text != "" {
		if m := cursorUp.FindStringSubmatch(text); m != nil {
			n, err := strconv.Atoi(m[1])
			require.NoError(s.t, err)
			s.row = max(s.row-n, s.top())
			text = text[len(m[0]):]
			continue
		}
		if rest, ok := strings.CutPrefix(text, "\x1b[J"); ok {
			s.grid = s.grid[:s.row+1]
			s.grid[s.row].cells = s.grid[s.row].cells[:min(s.column, len(s.grid[s.row].cells))]
			text = rest
			continue
		}
		r, size := utf8.DecodeRuneInString(text)
		s.put(r)
		text = text[size:]
	}
	return len(p), nil
}

func (s *terminal) top() int { return max(0, len(s.grid)-s.rows) }

func (s *terminal) put(r rune) {
	width := 1
	switch {
	case r == '\r':
		s.column = 0
		return
	case r == '\n':
		s.grid[s.row].continues = false
		s.next()
		return
	case r == '\t':
		for range 8 - s.column%8 {
			s.put(' ')
		}
		return
	case r == '\u0301': // It joins the character before.
		s.grid[s.row].cells[s.column-1] += string(r)
		return
	case r >= '一' && r <= '龥':
		width = 2
	case r < ' ' || r >= 0x7f && r < 0xa0:
		require.Fail(s.t, "control character", "%q", r)
	}
	if s.column+width > s.columns {
		s.grid[s.row].continues = true
		s.next()
	}
	require.Len(s.t, s.grid[s.row].cells, s.column, "something is written over")
	s.grid[s.row].cells = append(s.grid[s.row].cells, string(r))
	if width == 2 {
		s.grid[s.row].cells = append(s.grid[s.row].cells, "")
	}
	s.column += width
}

// next moves to the beginning of the next row.
func (s *terminal) next() {
	if s.row++; s.row == len(s.grid) {
		s.grid = append(s.grid, gridRow{})
	}
	s.column = 0
}

// resize wraps all lines again. The cursor is in the last row, as after a write of the
// printer.
func (s *terminal) resize(columns, rows int) {
	require.Equal(s.t, len(s.grid)-1, s.row)
	require.Zero(s.t, s.column)
	lines := s.lines()
	*s = terminal{t: s.t, columns: columns, rows: rows, grid: make([]gridRow, 1), writes: s.writes}
	for _, line := range lines {
		for _, r := range line + "\n" {
			s.put(r)
		}
	}
}

// lines returns all lines so far, without the row of the cursor.
func (s *terminal) lines() []string {
	var lines []string
	line := ""
	for _, row := range s.grid[:len(s.grid)-1] {
		line += strings.Join(row.cells, "")
		if !row.continues {
			lines = append(lines, line)
			line = ""
		}
	}
	return lines
}

// view returns the visible rows.
func (s *terminal) view() string {
	var b strings.Builder
	for _, row := range s.grid[s.top():] {
		b.WriteString(strings.Join(row.cells, "") + "\n")
	}
	return b.String()
}

// The golden file has the screen after each step of the scenario that changed it.
func TestTable(t *testing.T) {
	s := newTerminal(t, 80, 16)
	var b strings.Builder
	show := func() { fmt.Fprintf(&b, "%s%s\n", s.view(), strings.Repeat("=", 80)) }
	testPrinter(t, s, Table, s.size, []*v1.Pod{scenarioPod()}, func(t *testing.T, p *printed) {
		p.stepped = show
		scenario(p)
		p.closed(t)
		show()
	})
	compareGolden(t, "table", b.String())
}

// The table overwrites no lines: above it are the lines of the plain format, except for
// control characters.
func TestTableKeepsLines(t *testing.T) {
	s := newTerminal(t, 60, 10)
	var plain strings.Builder
	testPrinter(t, s, Table, s.size, []*v1.Pod{scenarioPod()}, func(t *testing.T, p *printed) {
		scenario(p)
		p.closed(t)
	})
	testPrinter(t, &plain, Plain, nil, []*v1.Pod{scenarioPod()}, func(t *testing.T, p *printed) {
		scenario(p)
		p.closed(t)
	})
	var got []string
	for _, line := range s.lines() {
		if !strings.HasPrefix(line, "Pod worker  ") && !strings.HasPrefix(line, "CONTAINER") && !strings.HasPrefix(line, "setup ") && !strings.HasPrefix(line, "main ") {
			got = append(got, line)
		}
	}
	var want []string
	for line := range strings.Lines(plain.String()) {
		before, after, tab := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if tab {
			before += strings.Repeat(" ", 8-len(before)%8) + after
		}
		want = append(want, before)
	}
	require.Equal(t, want, got)
}

func TestTableIsDrawnWhenItChanges(t *testing.T) {
	pod := testPod("default", "worker", "main")
	s := newTerminal(t, 80, 24)
	testPrinter(t, s, Table, s.size, []*v1.Pod{pod}, func(t *testing.T, p *printed) {
		up := podIs(v1.PodRunning, agent.ContainerStatus{Name: "main", State: running()})
		p.Status(pod, up)
		p.step(time.Second)
		require.Equal(t, 1, s.writes)
		for range 5 {
			p.Status(pod, up)
			p.step(time.Second)
		}
		require.Equal(t, 1, s.writes, "nothing has changed")

		down := podIs(v1.PodRunning, agent.ContainerStatus{Name: "main", State: waiting("CrashLoopBackOff"), RetryAt: p.clock.Now().Add(2500 * time.Millisecond)})
		p.Status(pod, down)
		for _, want := range []string{"in 3s", "in 2s", "in 1s", "now"} {
			p.step(redrawPause)
			require.Contains(t, s.view(), want)
			p.step(time.Second - redrawPause)
		}
		require.Equal(t, 5, s.writes)

		// Ten events within 10 ms are drawn twice, the first one at once.
		p.step(redrawPause)
		before := s.writes
		for i := range 10 {
			p.Warn(pod, "", "Event", fmt.Sprintf("event %d", i))
			p.step(time.Millisecond)
		}
		require.Contains(t, s.view(), "event 0")
		require.NotContains(t, s.view(), "event 1")
		require.Equal(t, before+1, s.writes)
		p.step(redrawPause)
		require.Contains(t, s.view(), "event 9")
		require.Equal(t, before+2, s.writes)
		p.closed(t)
	})
}

func TestTableOnTerminalThatIsResized(t *testing.T) {
	pod := testPod("default", "worker", "main", "helper")
	s := newTerminal(t, 80, 24)
	testPrinter(t, s, Table, s.size, []*v1.Pod{pod}, func(t *testing.T, p *printed) {
		long := strings.Repeat("0123456789", 10)
		p.Output(pod)("main", []byte(long))
		p.Status(pod, podIs(v1.PodRunning,
			agent.ContainerStatus{Name: "main", Kind: restartpod.KindRegular, State: waiting("CrashLoopBackOff"), RetryAt: p.clock.Now().Add(time.Minute)},
			agent.ContainerStatus{Name: "helper", Kind: restartpod.KindRegular, State: running()}))
		p.step(time.Second)
		before := s.lines()[:2]
		require.Contains(t, before[0], long)
		for _, size := range [][2]int{{50, 24}, {30, 24}, {7, 30}, {3, 50}, {60, 6}, {200, 50}, {80, 24}} {
			s.resize(size[0], size[1])
			p.step(time.Second)
			lines := s.lines()
			require.Equal(t, before, lines[:2])
			require.Len(t, lines[2:], 4, "%v: nothing is left of the tables before: %q", size, lines)
			for _, line := range lines[2:] {
				require.LessOrEqual(t, utf8.RuneCountInString(line), size[0], "%v: %q", size, line)
			}
		}
		require.Equal(t, "main       CrashLoopBackOff  0                    in 52s", s.lines()[4])
		p.closed(t)
	})
}

func TestTableOnSmallTerminals(t *testing.T) {
	pods := []*v1.Pod{testPod("default", "a", "main"), testPod("default", "b", "main")}
	for rows, want := range map[int]string{
		0: "Pod a,Pod b,CONTAINER,a/main,b/main", // The size is not known: 24 rows.
		1: "… and 2 more pods",
		2: "… and 2 more pods",
		3: "Pod a,Pod b",
		4: "Pod a,Pod b",
		6: "Pod a,Pod b,CONTAINER,… and 2 more containers",
		7: "Pod a,Pod b,CONTAINER,a/main,b/main",
	} {
		s := newTerminal(t, 80, rows)
		testPrinter(t, s, Table, s.size, pods, func(t *testing.T, p *printed) {
			for _, pod := range pods {
				p.Status(pod, podIs(v1.PodRunning, agent.ContainerStatus{Name: "main", Kind: restartpod.KindRegular, State: running()}))
			}
			p.step(redrawPause)
			lines := s.lines()
			for i, line := range lines {
				lines[i], _, _ = strings.Cut(line, "  ")
			}
			require.Equal(t, want, strings.Join(lines, ","), "%d rows", rows)
			p.closed(t)
		})
	}
}

func TestTableOfManyContainers(t *testing.T) {
	var containers []agent.ContainerStatus
	for i := range 200 {
		containers = append(containers, agent.ContainerStatus{Name: fmt.Sprintf("c%03d", i), Kind: restartpod.KindRegular, State: running()})
	}
	pod := testPod("default", "worker", "c000")
	s := newTerminal(t, 80, 24)
	testPrinter(t, s, Table, s.size, []*v1.Pod{pod}, func(t *testing.T, p *printed) {
		containers[3].State = v1.ContainerState{Terminated: exited("1", 0, p.clock.Now())}
		containers[40].State = v1.ContainerState{Terminated: exited("2", 1, p.clock.Now())}
		containers[150].State, containers[150].RetryAt = waiting("CrashLoopBackOff"), p.clock.Now().Add(time.Minute)
		containers[199].State = waiting("ContainerCreating")
		for i := range 40 {
			p.Warn(pod, "", "Event", fmt.Sprintf("event %d", i))
		}
		p.Status(pod, podIs(v1.PodRunning, slices.Clone(containers)...))
		p.step(redrawPause)
		view := strings.Split(s.view(), "\n")
		require.Len(t, view, 25)
		var names []string
		for _, line := range view[8:] {
			names = append(names, strings.SplitN(line, " ", 2)[0])
		}
		require.Equal(t, []string{"c040", "c150", "c199", "c000", "c001", "c002", "c004", "c005", "c006", "c007", "c008", "c009", "c010", "c011", "…", "", ""}, names)
		require.Equal(t, "… and 186 more containers", view[22])
		require.Contains(t, view[5], "next restart in 60s")
		require.Contains(t, view[4], "event 39")
		require.Contains(t, view[0], "event 35")
		p.closed(t)
	})
}

func TestTableOfManyPods(t *testing.T) {
	var pods []*v1.Pod
	for i := range 30 {
		pods = append(pods, testPod("default", fmt.Sprintf("p%02d", i), "main"))
	}
	s := newTerminal(t, 80, 24)
	testPrinter(t, s, Table, s.size, pods, func(t *testing.T, p *printed) {
		for i, pod := range pods {
			status := podIs(v1.PodRunning, agent.ContainerStatus{Name: "main", Kind: restartpod.KindRegular, State: running()})
			switch i {
			case 20:
				status.Phase = v1.PodFailed
			case 10:
				status.Phase = v1.PodSucceeded
			case 25:
				status.RetryAt = p.clock.Now().Add(8 * time.Second)
				status.Restarts.Count = 2
				status.Conditions = []v1.PodCondition{{Type: restartpod.PodRestarting, Status: v1.ConditionTrue}, {Type: v1.AllContainersRestarting, Status: v1.ConditionFalse}}
			}
			p.Status(pod, status)
		}
		p.step(redrawPause)
		lines := s.lines()[3:] // The lines above are those of the pods.
		require.Len(t, lines, 17)
		require.Equal(t, []string{"Pod p20  Failed", "Pod p25  Running  PodRestarting  restarts 2  next restart in 8s", "Pod p00  Running"}, lines[:3])
		require.Equal(t, "… and 23 more pods", lines[7])
		require.Equal(t, "p00/main   Running  0", lines[9])
		require.Equal(t, "… and 23 more containers", lines[16])
		p.closed(t)
	})
}

// Output of a container or its probe cannot overwrite the table.
func TestTableEscapes(t *testing.T) {
	pod := testPod("default", "worker", "main")
	s := newTerminal(t, 40, 24)
	testPrinter(t, s, Table, s.size, []*v1.Pod{pod}, func(t *testing.T, p *printed) {
		p.Status(pod, podIs(v1.PodRunning, agent.ContainerStatus{Name: "main", Kind: restartpod.KindInit, State: waiting("Bad\x1b[2J\tReason\n")}))
		p.Output(pod)("main", []byte("\x1b[2J\x1b[31mred\r\b\x00\x7f\u009b\xff \t世界 e\u0301"))
		p.Warn(pod, "main", "Unhealthy", "a\x1b[A\nb")
		p.step(redrawPause)
		require.Equal(t, []string{
			`    0.000s  main | \x1b[2J\x1b[31mred\r\b\x00\x7f\u009b\xff     世界 e` + "\u0301",
			`    0.000s  main   Unhealthy         a\x1b[A\nb`,
			"Pod worker  Running",
			"CONTAINER  KIND  STATE                 …",
			`main       init  Bad\x1b[2J\tReason\n  0`,
		}, s.lines())
		// The second table replaces the first, although a line above it takes two rows.
		p.Output(pod)("main", []byte(strings.Repeat("世界", 15)))
		p.step(redrawPause)
		require.Len(t, s.lines(), 6)
		p.closed(t)
	})
}

// A name that is too long hides no other column.
func TestTableOfLongNames(t *testing.T) {
	now := time.Now()
	pod := testPod("default", "worker", "my-application-server-worker", "x")
	p := &Printer{pods: []*v1.Pod{pod}, statuses: map[*v1.Pod]agent.Status{pod: podIs(v1.PodRunning,
		agent.ContainerStatus{
			Name: "my-application-server-worker", Kind: restartpod.KindRegular, Restarts: agent.Restarts{Count: 12}, LastExit: exited("1", 137, now),
			State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}, RetryAt: now.Add(7 * time.Second),
		},
		agent.ContainerStatus{Name: "x", Kind: restartpod.KindSidecar, State: running()},
	)}}
	require.Equal(t, []string{
		"Pod worker  Running",
		"CONTAINER         KIND       STATE             RESTARTS  LAST EXIT     NEXT RESTART",
		"my-application-…  container  CrashLoopBackOff  12        137 (0s ago)  in 7s",
		"x                 sidecar    Running           0",
	}, p.table(now, 83, 24))
}

func TestCut(t *testing.T) {
	tests := []struct {
		line    string
		columns int
		want    string
	}{
		{"", 0, ""},
		{"abc", 3, "abc"},
		{"abcd", 3, "ab…"},
		{"abcd", 1, "…"},
	}
	for _, tc := range tests {
		require.Equal(t, tc.want, cut(tc.line, tc.columns), "%q in %d columns", tc.line, tc.columns)
	}
}
