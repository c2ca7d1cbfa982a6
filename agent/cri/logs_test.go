// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubelet-backoff/kubelet-backoff/agent/internal/podfiles"
)

func TestOutput(t *testing.T) {
	r, f, w := started(t, testPod("main", "other"))
	id := r.start(t, 0, 0)
	other := r.start(t, 1, 0)
	file := r.logFile("main", 0)
	require.Equal(t, file, filepath.Join(f.sandbox.LogDirectory, f.configs[id].LogPath))
	log := func(file string, entries ...string) {
		t.Helper()
		to, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		require.NoError(t, err)
		defer to.Close()
		for _, e := range entries {
			_, err := fmt.Fprintf(to, "%s %s\n", time.Now().UTC().Format(time.RFC3339Nano), e)
			require.NoError(t, err)
		}
	}
	seen := func(w *written, lines ...string) {
		t.Helper()
		require.Eventually(t, func() bool { return len(w.all()) >= len(lines) }, time.Minute, 5*time.Millisecond)
		require.Equal(t, lines, w.all())
	}
	log(file, "stdout F one", "stdout P two", "stderr F three", "stdout F , the end", "stdout F ")
	seen(w, "main: one", "main: three", "main: two, the end", "main: ")
	log(r.logFile("other", 0), "stdout P never ended")
	log(file, "stdout F five")
	seen(w, "main: one", "main: three", "main: two, the end", "main: ", "main: five")

	// The next agent outputs only new lines.
	require.NoError(t, r.Close())
	next, w := open(t, f, r.pod, r.dir)
	log(file, "stdout F six")
	seen(w, "main: six")
	f.exit(id, 0)
	f.exit(other, 0)
	next.state(t)
	require.NoError(t, next.logs.finish(t.Context()))

	// A new instance has a new file. Remove returns after all its lines.
	log(next.logFile("main", 1), "stdout F of a pod before")
	id = next.start(t, 0, 1)
	f.exit(id, 0)
	log(next.logFile("main", 1), "stdout F seven", "stderr P eight")
	require.NoError(t, next.Remove(t.Context()))
	require.Equal(t, []string{"main: six", "main: seven", "main: eight"}, w.all())
	require.FileExists(t, file, "logs stay")
}

// Reading a log again repeats no lines.
func TestOutputAgain(t *testing.T) {
	var got []string
	l := &follower{}
	stdout := &lines{ctx: t.Context(), follower: l, write: func(line []byte) { got = append(got, string(line)) }}
	entries := []string{"one\n", "two, ", "the end\n", "three\n"}
	for n := range entries {
		l.skip = l.seen
		for _, e := range entries[:n+1] {
			_, err := stdout.Write([]byte(e))
			require.NoError(t, err)
		}
	}
	require.Equal(t, []string{"one", "two, the end", "three"}, got)
	_, err := stdout.Write(bytes.Repeat([]byte("x"), maxLine+1))
	require.NoError(t, err)
	require.Len(t, got, 4, "a line without an end")
	stdout.flush()
	require.Len(t, got, 4)
}

// The lines of a new instance follow those of the old one.
func TestOutputInOrder(t *testing.T) {
	w := &written{}
	f := newFollowers(newFake(), w.output)
	dir := t.TempDir()
	entry := func(file string) {
		t.Helper()
		line := time.Now().UTC().Format(time.RFC3339Nano) + " stdout F " + file + "\n"
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(line), 0o644))
	}
	entry("new")
	entry("another's")
	for _, i := range []struct{ container, file string }{{"main", "old"}, {"main", "new"}, {"other", "another's"}} {
		f.follow(t.Context(), i.file, i.container, filepath.Join(dir, i.file), time.Time{})
	}
	require.Eventually(t, func() bool { return len(w.all()) > 0 }, time.Minute, 5*time.Millisecond)
	entry("old")
	require.NoError(t, f.finish(t.Context()))
	require.Equal(t, []string{"other: another's", "main: old", "main: new"}, w.all())
}

func TestLogsKept(t *testing.T) {
	r, f, _ := started(t, testPod("main"))
	dir := filepath.Join(r.dir, podfiles.Logs, "main")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	for _, name := range []string{"9.log", "0.log", "notes.txt"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("old"), 0o644))
	}
	for restarts := range 7 {
		f.exit(r.start(t, 0, restarts), 0)
		require.NoError(t, os.WriteFile(r.logFile("main", restarts), nil, 0o644))
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	require.Equal(t, []string{"2.log", "3.log", "4.log", "5.log", "6.log", "notes.txt"}, names)
}
