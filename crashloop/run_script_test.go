// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

func TestRunErrorsAsJSON(t *testing.T) {
	tests := []struct {
		args []string
		want int
		line issueReport
	}{
		{[]string{"run", "-o", "json", "testdata/run-same-name.yaml"}, exitRefused, issueReport{
			File: "testdata/run-same-name.yaml", Object: "Pod default/web", Field: "metadata.name", BadValue: "default/web",
			Detail: `Duplicate value: "default/web": also in testdata/run-same-name.yaml`,
		}},
		{[]string{"run", "-o=json"}, exitUsage, issueReport{Detail: "no MANIFEST: name a file or a directory, or - for stdin"}},
		{[]string{"run", "--bogus", "x", "-ojson"}, exitUsage, issueReport{Detail: "unknown flag: --bogus"}},
		{[]string{"run", "--timeout", "-1s", "--output", "json", "-"}, exitUsage, issueReport{Detail: "--timeout -1s: must not be negative"}},
		{[]string{"status", "--metrics", "testdata/a\nb", "--output=json"}, exitFailed, issueReport{Detail: "testdata/a\nb: no such file or directory"}},
	}
	for _, tc := range tests {
		var stdout, stderr bytes.Buffer
		require.Equal(t, tc.want, run(tc.args, strings.NewReader(""), &stdout, &stderr), "%q", tc.args)
		require.Empty(t, stdout.String())
		var line struct {
			Severity string
			issueReport
		}
		require.NoError(t, json.Unmarshal(stderr.Bytes(), &line), "%q: %s", tc.args, &stderr)
		require.Equal(t, "error", line.Severity)
		require.Equal(t, tc.line, line.issueReport)
	}
}

// On a terminal, the table is drawn again in its place.
func TestRunOnTerminal(t *testing.T) {
	t.Parallel()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("there is no terminal: %v", err)
	}
	defer master.Close()
	require.NoError(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	defer slave.Close()

	pod := newPod(always, container("main"))
	c := newCommand(t, []*v1.Pod{pod}, "-o", "table", "--config", "testdata/run/kubelet.yaml", "-")
	c.cmd.Stdout = slave
	c.cmd.Env = append(c.cmd.Env, "TERM=xterm")
	c.start()
	output := make(chan string, 1000)
	go func() {
		defer close(output)
		for b := make([]byte, 4096); ; {
			n, err := master.Read(b)
			if err != nil {
				return
			}
			output <- string(b[:n])
		}
	}()
	var seen string
	until := func(want string) (before string) {
		for !strings.Contains(seen, want) {
			select {
			case text := <-output:
				seen += text
			case <-time.After(patience):
				require.FailNow(t, "nothing more comes", "want %q in %q", want, seen)
			}
		}
		before, seen, _ = strings.Cut(seen, want)
		return before
	}
	until("CONTAINER  STATE")
	c.signal(os.Interrupt)
	require.Contains(t, until("Logs: "), "\x1b[", "the table is replaced")
	require.Equal(t, 130, c.wait())
}
