// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// log returns the entries of a log file: times, streams, tags and lines.
func (p *pod) log(name string) [][]string {
	p.t.Helper()
	content, err := os.ReadFile(filepath.Join(p.dir, "logs", name))
	require.NoError(p.t, err)
	var entries [][]string
	for line := range strings.Lines(string(content)) {
		require.True(p.t, strings.HasSuffix(line, "\n"))
		entry := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 4)
		_, err := time.Parse(time.RFC3339Nano, entry[0])
		require.NoError(p.t, err)
		entries = append(entries, entry)
	}
	return entries
}

func TestLines(t *testing.T) {
	long := strings.Repeat("x", maxLine)
	type lines = []string
	for name, tc := range map[string]struct {
		writes, full, partial lines
	}{
		"nothing":         {},
		"lines":           {lines{"a\nb\n\n"}, lines{"a", "b", ""}, nil},
		"in parts":        {lines{"a", "b", "\nc\n"}, lines{"ab", "c"}, nil},
		"no newline":      {lines{"a\nb"}, lines{"a"}, lines{"b"}},
		"longest":         {lines{long + "\n"}, lines{long}, nil},
		"longest in two":  {lines{long, "\nx\n"}, lines{long, "x"}, nil},
		"too long":        {lines{long + "y\n"}, lines{"y"}, lines{long}},
		"too long in two": {lines{long, "y\n"}, lines{"y"}, lines{long}},
		"very long":       {lines{long[1:], long, long, "z\nx\n"}, lines{long[1:] + "z", "x"}, lines{long, long}},
		"binary":          {lines{"\x00\xff\r\n\x80\n"}, lines{"\x00\xff\r", "\x80"}, nil},
	} {
		var full, partial lines
		reader, writer := io.Pipe()
		go func() {
			for _, w := range tc.writes {
				writer.Write([]byte(w))
			}
			writer.Close()
		}()
		readLines(reader, func(line []byte, isPartial bool) {
			if isPartial {
				partial = append(partial, string(line))
			} else {
				full = append(full, string(line))
			}
		})
		assert.Equal(t, tc.full, full, name)
		assert.Equal(t, tc.partial, partial, name)
	}
}

func TestOutput(t *testing.T) {
	p := newPod(t)
	p.run(sh("c", `echo out; echo error >&2; printf '\000\377 no newline'`))
	require.ElementsMatch(t, []string{"out", "error", "\x00\xff no newline"}, p.output("c"))
	var entries []string
	for _, e := range p.log("c/0.log") {
		entries = append(entries, strings.Join(e[1:], " "))
	}
	require.ElementsMatch(t, []string{"stdout F out", "stderr F error", "stdout P \x00\xff no newline"}, entries)

	// A new agent appends to an existing log.
	p.run(sh("c", "echo again"))
	require.Len(t, p.log("c/0.log"), 4)
}

func TestOldLogsAreRemoved(t *testing.T) {
	p := newPod(t)
	for n := range 8 {
		p.start(sh("c", "echo x"), n)
		p.exited("c")
	}
	entries, err := os.ReadDir(filepath.Join(p.dir, "logs/c"))
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	require.Equal(t, []string{"3.log", "4.log", "5.log", "6.log", "7.log"}, names)
}

// A container that writes faster than output reads has to wait, and nothing is lost.
func TestFlood(t *testing.T) {
	const lines, width = 32_000, 1000
	p := newPod(t)
	pid, last, ahead := "", 0, 0
	p.Runtime.output = func(_ string, line []byte) {
		if pid == "" {
			pid = string(line)
			return
		}
		last++
		if n, _ := strconv.Atoi(string(line)); n != last {
			t.Errorf("line %d is %q", last, line)
		}
		if last%100 == 0 {
			stat, _ := os.ReadFile("/proc/" + pid + "/io")
			_, stat, _ = bytes.Cut(stat, []byte("wchar: "))
			stat, _, _ = bytes.Cut(stat, []byte("\n"))
			written, _ := strconv.Atoi(string(stat))
			ahead = max(ahead, written-last*width)
		}
	}
	p.run(sh("c", "echo $$; exec seq -f %0"+strconv.Itoa(width-1)+"g "+strconv.Itoa(lines)))
	require.Equal(t, lines, last)
	require.Positive(t, ahead)
	require.Less(t, ahead, 256<<10, "bytes that were written and not taken")

	var kept []int
	for _, name := range []string{"c/0.log.1", "c/0.log"} {
		info, err := os.Stat(filepath.Join(p.dir, "logs", name))
		require.NoError(t, err)
		require.LessOrEqual(t, info.Size(), int64(maxLogSize))
		for _, entry := range p.log(name) {
			n, err := strconv.Atoi(entry[3])
			require.NoError(t, err)
			kept = append(kept, n)
		}
	}
	require.Greater(t, len(kept)*width, maxLogSize*9/10)
	require.Equal(t, lines, kept[len(kept)-1])
	for i := range kept {
		require.Equal(t, kept[0]+i, kept[i])
	}
}

func TestLogOnFullDisk(t *testing.T) {
	p := newPod(t)
	path := filepath.Join(p.dir, "logs/c/0.log")
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	c := sh("c", "echo a; echo b; until [ -e space ]; do sleep 0.01; done; echo c; until [ -e more ]; do sleep 0.01; done; echo d; echo e")
	c.WorkingDir = p.dir
	warnings := func() []string {
		p.mu.Lock()
		defer p.mu.Unlock()
		return slices.Clone(p.warnings)
	}
	const warning = "c: cannot write the log, so it will be incomplete: "

	require.NoError(t, os.Symlink("/dev/full", path))
	p.start(c, 0)
	require.Eventually(t, func() bool { return len(p.output("c")) == 2 }, time.Minute, time.Millisecond)
	require.Equal(t, []string{warning + "write " + path + ": no space left on device"}, warnings())

	require.NoError(t, os.Remove(path))
	require.NoError(t, os.WriteFile(filepath.Join(p.dir, "space"), nil, 0o644))
	require.Eventually(t, func() bool { return len(p.output("c")) == 3 }, time.Minute, time.Millisecond)
	require.Equal(t, []string{"a", "b", "c"}, p.output("c"))
	require.Equal(t, "c", p.log("c/0.log")[0][3])
	require.Len(t, warnings(), 1)

	require.NoError(t, os.WriteFile(filepath.Join(p.dir, "more"), nil, 0o644))
	require.Zero(t, p.exited("c").ExitCode)
	require.Equal(t, []string{"a", "b", "c", "d", "e"}, p.output("c"))
	require.Len(t, p.log("c/0.log"), 3)
	require.Len(t, warnings(), 1)

	// A folder that cannot be made has the same effect as a full disk.
	require.NoError(t, os.WriteFile(filepath.Join(p.dir, "logs/d"), nil, 0o644))
	require.Zero(t, p.run(sh("d", "echo a; echo b")).ExitCode)
	require.Equal(t, []string{"a", "b"}, p.output("d"))
	require.Len(t, warnings(), 2)
}

// A process outside the container that has its output open does not delay the end.
// Everything written before the end is read.
func TestOutputHeldOpen(t *testing.T) {
	p := newPod(t)
	p.block = make(chan struct{})
	id := p.start(sh("c", `printf "$$\n$$\n$$\n"; exec sleep 1000`), 0)
	p.block <- struct{}{}
	pid := p.lineOf("c")
	outside, err := os.OpenFile("/proc/"+pid+"/fd/1", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer outside.Close()
	_, err = outside.WriteString("outside\n")
	require.NoError(t, err)

	stopped := make(chan error)
	go func() { stopped <- p.Stop(context.Background(), id, 0) }()
	requireNoProcess(t, pid)
	select {
	case <-stopped:
		require.Fail(t, "stopped before its output was taken")
	default:
	}
	close(p.block)
	require.NoError(t, <-stopped)
	require.Equal(t, []string{pid, pid, pid, "outside"}, p.output("c"))
}
